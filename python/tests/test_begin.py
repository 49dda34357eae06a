# SPDX-License-Identifier: BSD-3-Clause
"""What a process pays for before its first operation, and what only later if ever."""

import errno
import json
import os
import platform
import sys
from datetime import timedelta

import lockstep.torch
import processes
import pytest
import torch.distributed as dist
from lockstep.torch import _store_rendezvous

# A thread exists before the library is loaded. The program prints what membarrier says to PRIVATE_EXPEDITED, at first, after
# the operations of one thread, and after those of a second one.
_WITH_THREADS = """
import ctypes, platform, threading
number = {"x86_64": 324, "aarch64": 283}[platform.machine()]
system = ctypes.CDLL(None, use_errno=True)
found = []
def ask():
    ctypes.set_errno(0)
    system.syscall(number, 8, 0, 0)
    found.append(ctypes.get_errno())
end = threading.Event()
threading.Thread(target=end.wait).start()
import torch
from lockstep._communicator import Communicator
from lockstep._library import C
ask()
group = Communicator.open(0, 1, None, 10000, 10000)
def call():
    for _ in range(3):
        assert C.ls_barrier(group.handle, None) == 0
call()
ask()
thread = threading.Thread(target=call)
thread.start()
thread.join()
ask()
end.set()
group.close(None)
print(*found)
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="the number of membarrier is not known")
def test_threads_register_for_membarriers_when_one_is_due():
    """A registration waits for all processors, once there are threads; so only a second thread that calls pays for it."""
    done = processes.run([sys.executable, "-c", _WITH_THREADS], anew=True)
    assert done.text.split() == [str(errno.EPERM), str(errno.EPERM), "0"], done.text


def claimed_before(ends):
    """A store that has an entry of another process for this one's rank."""
    meeting, size = dist.HashStore(), 1
    meeting.add("lockstep/0/rank/0", 1)
    if ends == "after it said who it is":
        other = _store_rendezvous._Waiting(meeting, 0, size, 1000).me
        meeting.set("lockstep/0/here/0", json.dumps({**other, "pid": os.getppid()}))  # its number is another one's now
    lockstep.torch.process_group(meeting, 0, size, timedelta(seconds=10)).shutdown()


@pytest.mark.parametrize("ends", ["before it said who it is", "after it said who it is"])
def test_a_process_that_has_claimed_a_rank_and_ended(ranks, ends):
    ranks(1, claimed_before, ends)
