# SPDX-License-Identifier: BSD-3-Clause
"""Short forms of ProcessGroup's methods, which name no options: what they give is what gloo's group gives."""

from datetime import timedelta

import lockstep
import pytest
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

LIMIT = timedelta(seconds=60)


def one(value):
    return torch.arange(3.0) + value


def zeros(count):
    return [torch.zeros(3) for _ in range(count)]


FORMS = {
    "allreduce of a tensor": lambda group, x, n, rank: (x, group.allreduce(x)),
    "allreduce of a list": lambda group, x, n, rank: (x, group.allreduce([x])),
    "allreduce, max": lambda group, x, n, rank: (x, group.allreduce(x, ReduceOp.MAX)),
    "allreduce of a list, max": lambda group, x, n, rank: (x, group.allreduce([x], ReduceOp.MAX)),
    "allreduce, op and timeout": lambda group, x, n, rank: (x, group.allreduce(x, op=ReduceOp.MIN, timeout=LIMIT)),
    "allreduce, all of it": lambda group, x, n, rank: (x, group.allreduce([x], ReduceOp.PRODUCT, LIMIT)),
    "broadcast": lambda group, x, n, rank: (x, group.broadcast(x, 1)),
    "broadcast, root and timeout": lambda group, x, n, rank: (x, group.broadcast(x, root=1, timeout=LIMIT)),
    "reduce": lambda group, x, n, rank: (x if rank == 1 else None, group.reduce(x, 1)),
    "reduce, all of it": lambda group, x, n, rank: (x if rank == 1 else None, group.reduce(x, 1, ReduceOp.MAX, LIMIT)),
    "allgather": lambda group, x, n, rank: (y := zeros(n), group.allgather(y, x)),
    "allgather, timeout": lambda group, x, n, rank: (y := zeros(n), group.allgather(y, x, LIMIT)),
    "gather": lambda group, x, n, rank: (y := zeros(n if rank == 1 else 0), group.gather(y, x, 1)),
    "scatter": lambda group, x, n, rank: (x, group.scatter(x, [one(i) for i in range(n)] if rank == 1 else [], 1)),
    "reduce_scatter": lambda group, x, n, rank: (y := zeros(1)[0], group.reduce_scatter(y, [x] * n)),
    "reduce_scatter, all of it": lambda group, x, n, rank: (
        y := zeros(1)[0],
        group.reduce_scatter(y, [x] * n, ReduceOp.MAX, LIMIT),
    ),
    "alltoall_base, timeout": lambda group, x, n, rank: (
        y := torch.zeros(2 * n),
        group.alltoall_base(y, torch.arange(2.0 * n) + 10 * rank, [], [], LIMIT),
    ),
    "barrier, timeout": lambda group, x, n, rank: (None, group.barrier(LIMIT)),
}


def call(group, form):
    result, work = FORMS[form](group, one(group.rank()), group.size(), group.rank())
    work.wait()
    return result


@pytest.mark.parametrize("form", FORMS)
def test_short_form(ranks, form):
    ranks.both(2, call, form)


def too_late():
    """Rank 1 comes only when rank 0 has given up."""
    group = dist.group.WORLD
    if group.rank() == 0:
        with pytest.raises(lockstep.TimedOut):
            group.allreduce(one(0), ReduceOp.SUM, timedelta(milliseconds=100)).wait()
    while group.error() is None:
        pass


def test_the_time_limit_of_a_short_form_counts(ranks):
    ranks(2, too_late, fresh=True)
