# SPDX-License-Identifier: BSD-3-Clause
"""The end of the interpreter: groups that are open are left, peers learn why, and nothing hangs."""

import atexit
import sys
import weakref

_open = weakref.WeakSet()
_failed = None  # what ended the program, if it was an exception


def opened(communicator):
    _open.add(communicator)


def _remember(previous):
    def hook(kind, value, trace):
        global _failed
        where = ""
        while trace is not None:
            where = f" ({trace.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno})"
            trace = trace.tb_next
        first = str(value).splitlines()
        _failed = f"{kind.__name__}: {first[0] if first else ''}{where}"
        previous(kind, value, _failed and value.__traceback__)

    return hook


def _leave():
    for communicator in sorted(_open, key=lambda c: c.parent is None):
        if communicator.handle is None:
            continue
        if communicator.pending:
            names = sorted({str(work) for work in communicator.pending.values()})
            print(
                f"lockstep: rank {communicator.rank} ends with {len(communicator.pending)} operations under way that "
                f"nobody has waited for: {', '.join(names[:5])}",
                file=sys.stderr,
            )
        if _failed:
            communicator.abort(_failed)
        communicator.close()


def watch():
    sys.excepthook = _remember(sys.excepthook)
    atexit.register(_leave)
