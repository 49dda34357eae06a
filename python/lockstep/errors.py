# SPDX-License-Identifier: BSD-3-Clause
"""Exceptions: one for each status of the library; their base classes say what is broken.

    Error
      CallError        retry the call differently     BadArgument, OutOfMemory, Unsupported, Forked, Inconsistent
      OperationError   this operation                 Uneven, Cancelled
      GroupError       the group; make a new one      Mismatch, Deadlock, TimedOut, PeerLost, Aborted, …
        PeerLost                                      PeerDied, PeerLeft, Unreachable
      ProcessError     the process; end it            System, Internal

Error is a torch.distributed.DistBackendError where PyTorch is installed, so that code that catches that catches these.
BadArgument is also a ValueError, TimedOut a TimeoutError.
"""

from lockstep._statuses import STATUSES

try:
    from torch.distributed import DistBackendError as _Base
except ImportError:
    _Base = RuntimeError


class Error(_Base):
    """An error that the library reports.

    status     name of the status, such as "PEER_DIED"
    rank       the rank of the group that is at fault, -1 if no single one is
    operation  number of the operation of the group that could not complete, 0 if none
    report     what the library says about it, several lines
    """

    status = "INTERNAL"

    def __init__(self, report="", rank=-1, operation=0):
        super().__init__(report)
        self.report = report
        self.rank = rank
        self.operation = operation

    def __reduce__(self):
        return type(self), (self.report, self.rank, self.operation)


class CallError(Error):
    """Nothing is broken but this call: retry it differently."""


class OperationError(Error):
    """This operation has no result; the group stays open."""


class GroupError(Error):
    """The group has failed on all ranks; make a new one from a group that has not failed."""


class ProcessError(Error):
    """The process cannot continue; end it."""


class PeerLost(GroupError):
    """A member has failed or left, or its host cannot be reached."""


_SCOPES = {"CALL": CallError, "OP": OperationError, "GROUP": GroupError, "PROCESS": ProcessError}
_BASES = {
    "PEER_DIED": (PeerLost,),
    "PEER_LEFT": (PeerLost,),
    "UNREACHABLE": (PeerLost,),
    "BAD_ARGUMENT": (CallError, ValueError),
    "TIMED_OUT": (GroupError, TimeoutError),
}
_by_status = {}

__all__ = ["Error", "CallError", "OperationError", "GroupError", "ProcessError", "PeerLost"]
for _name, _value, _scope, _sentence in STATUSES:
    if _scope not in _SCOPES:
        continue
    _class = type(
        "".join(part.capitalize() for part in _name.split("_")),
        _BASES.get(_name, (_SCOPES[_scope],)),
        {"__doc__": _sentence[0].upper() + _sentence[1:] + ".", "__module__": "lockstep", "status": _name},
    )
    globals()[_class.__name__] = _class
    __all__.append(_class.__name__)
    _by_status[_value] = _class


def class_of(status):
    """The exception of a status, given as a number; ProcessError for an unknown number."""
    return _by_status.get(status, ProcessError)
