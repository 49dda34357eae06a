# SPDX-License-Identifier: BSD-3-Clause
"""The end of the interpreter: groups that are open are left, peers learn why, and nothing hangs."""

import atexit
import sys
import weakref

from lockstep import _sites

_open = weakref.WeakSet()
_failed = None  # what ended the program, if it was an exception


def opened(communicator):
    _open.add(communicator)


def _remember(previous):
    def hook(kind, value, trace):
        global _failed
        where = _sites.of_trace(trace)
        first = str(value).splitlines()
        # The place comes first, as of a long text only the beginning is kept.
        _failed = f"{kind.__name__}{f' at {where}' if where else ''}: {first[0] if first else ''}"
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
