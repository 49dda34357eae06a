# SPDX-License-Identifier: BSD-3-Clause
"""The end of PyTorch's _coalescing_manager by an exception.

PyTorch then leaves a mark that the group collects calls. So each later all_reduce would be collected, too, and never run,
without a word. Here the mark goes with the exception, and a warning says what has not been run.
"""

import functools
import warnings
from contextlib import contextmanager

import torch.distributed as dist
from torch.distributed import distributed_c10d


def _drop(group, number):
    """What is collected is gone, as the exception has kept the program from the end of the block."""
    group.stop_collecting()
    dropped = distributed_c10d._world.pg_coalesce_state.pop(group, ())
    if dropped:
        names = sorted({collected.op.__name__ for collected in dropped})
        warnings.warn(
            f"lockstep: an exception has ended _coalescing_manager on rank {group.rank()}: {len(dropped)} calls that it had "
            f"collected ({', '.join(names)}) are not run on this rank",
            stacklevel=number,
        )


def _made(plain, ours):
    entered = contextmanager(plain)

    @functools.wraps(plain)
    def _coalescing_manager(group=None, *arguments, **keywords):
        manager = None
        try:
            with entered(group, *arguments, **keywords) as manager:
                yield manager
        except BaseException:
            group = group or dist.GroupMember.WORLD
            if manager is not None and ours(group):
                _drop(group, 4)
            raise

    return _coalescing_manager


def watch(ours):
    """`ours` tells whether a process group is one of this package. Others go where they went. The function is changed
    within, as modules that were loaded before this one have taken it from where PyTorch has it."""
    outer = distributed_c10d._coalescing_manager
    cells = dict(zip(outer.__code__.co_freevars, outer.__closure__ or ()))
    if "func" in cells and hasattr(distributed_c10d._world, "pg_coalesce_state"):
        cells["func"].cell_contents = _made(cells["func"].cell_contents, ours)
