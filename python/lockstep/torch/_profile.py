# SPDX-License-Identifier: BSD-3-Clause
"""torch.profiler shows calls: a range "lockstep:all_reduce" for each while it lasts, and one for each wait.

Callers ask `profiler._is_profiler_enabled` first, which is there for checks that cost nothing. A range ends where its
call does; where an exception comes in between, with the object that holds it.
"""

import sys

from torch.autograd import profiler

# Methods whose name is not that of the function in torch.distributed.
_NAMES = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce_coalesced",
    "all_gather_single": "all_gather_into_tensor",
    "allgather": "all_gather",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "_shapes": "all_reduce",  # of sparse tensors, exchanged first
}


class Range:
    def __init__(self, call, what=""):
        self.call = call
        self._record = profiler.record_function(f"lockstep:{call}{what}")
        self._record.__enter__()

    def end(self, work=None):
        """Ends the range. work: what the call returns; it learns the name of its call, for of_wait."""
        self._record.__exit__(None, None, None)
        if work is not None:
            work.call = self.call


def name_of(method):
    return _NAMES.get(method, method)


def of_caller(above=2):
    """The range of the method that calls the caller of this, or `above` frames up."""
    return Range(name_of(sys._getframe(above).f_code.co_name))


def of_wait(work):
    """The range of a wait for an operation. Its name is unknown if the operation's call was not profiled."""
    return Range(work.call or "operation", " (wait)")
