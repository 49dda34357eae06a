# SPDX-License-Identifier: BSD-3-Clause
"""The end of the interpreter: groups that are open are left, peers learn why, and nothing hangs."""

import atexit
import multiprocessing.util
import os
import select
import sys
import time

from lockstep import _communicator, _sites
from lockstep._communicator import culprits

# A launcher reports the process that ends first as the reason why the job has failed. So a process that ends because of
# another one waits until that one has ended, for at most _OUTLIVE_S; then for _NOTICE_S, because a launcher checks its
# processes only now and then: torchrun every tenth of a second, or less often on a busy machine. Most launchers end it
# meanwhile.
_OUTLIVE_S, _NOTICE_S = 3.0, 1.0

_watched = 0  # the process whose end is watched
_failed = None  # the exception that nobody has caught


def opened():
    """A group was."""
    global _watched
    if _watched != os.getpid():
        _watched = os.getpid()
        # Processes of multiprocessing end past atexit, and know of nothing that was registered before them.
        multiprocessing.util.Finalize(None, _leave, exitpriority=100)


def _describe(error):
    """ "ValueError at train.py:42: no such image": the place comes first, as of a long text only the beginning is kept."""
    where = _sites.of_trace(error.__traceback__)
    first = str(error).splitlines()
    return f"{type(error).__name__}{f' at {where}' if where else ''}{': ' + first[0] if first else ''}"


def _remember(previous):
    def hook(kind, value, trace):
        global _failed
        _failed = value
        previous(kind, value, trace)

    return hook


def _ending():
    """The exception that ends the program, or None. In a process of multiprocessing it is still being raised."""
    return _failed or sys.exc_info()[1]


def _is_interrupted():
    """By Ctrl-C, which all processes get."""
    return isinstance(_ending(), KeyboardInterrupt)


def _reason():
    """What ends the program before its time; None: nothing."""
    error = _ending()
    if isinstance(error, SystemExit):
        if not error.code:
            return None
        if error.__context__ is None:
            return f"it ends with code {error.code}"
        error = error.__context__
    return _describe(error) if error is not None else None


def _outlive(pids):
    """Returns when these processes have ended, and their launcher can know it."""
    end = time.monotonic() + _OUTLIVE_S
    for pid in pids - {0, os.getpid()}:
        try:
            process = os.pidfd_open(pid)
        except OSError:  # it has ended, and its parent has reaped it
            continue
        try:
            poll = select.poll()
            poll.register(process, select.POLLIN)
            poll.poll(max(0, end - time.monotonic()) * 1e3)
            time.sleep(max(0, min(_NOTICE_S, end - time.monotonic())))
        finally:
            os.close(process)


def _leave():
    reason = _reason()
    for communicator in sorted(list(_communicator.opened), key=lambda c: c.parent is None):
        if not communicator.is_open():
            communicator.close("")  # another thread may be at the last step, and is waited for
            continue
        if reason is not None:
            communicator.abort(reason)
        pending = communicator.still_pending()
        if pending and reason is None:
            names = sorted({str(work) for work in pending})
            print(
                f"lockstep: rank {communicator.rank} ends with {len(pending)} operations under way that nobody has "
                f"waited for: {', '.join(names[:5])}{', …' if len(names) > 5 else ''}",
                file=sys.stderr,
            )
        communicator.close("the program ended with operations of its own under way")
    if reason is not None and not _is_interrupted():
        _outlive(culprits)
        culprits.clear()  # unless the process is one of multiprocessing, this function is called twice


def watch():
    sys.excepthook = _remember(sys.excepthook)
    atexit.register(_leave)
