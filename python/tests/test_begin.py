# SPDX-License-Identifier: BSD-3-Clause
"""What a process pays for before its first operation, and what only later if ever."""

import errno
import platform
import sys

import processes
import pytest

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
    done = processes.run([sys.executable, "-c", _WITH_THREADS])
    assert done.text.split() == [str(errno.EPERM), str(errno.EPERM), "0"], done.text
