# SPDX-License-Identifier: BSD-3-Clause
"""The forms of ProcessGroup's methods: short ones, which name no options, and those with PyTorch's names for all they take.
What they give is what gloo's group gives."""

import inspect
import re
from datetime import timedelta

import lockstep
import lockstep.torch
import pytest
import torch
import torch.distributed as dist
from lockstep.torch._collectives import Collectives
from lockstep.torch._p2p import PointToPoint
from torch._C._distributed_c10d import AllgatherOptions
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


def rooted(kind):
    opts = kind()
    opts.rootRank = 1
    return opts


def largest(kind):
    opts = kind()
    opts.reduceOp = ReduceOp.MAX
    return opts


BY_NAME = {
    "allreduce": lambda group, x, n, rank: (x, group.allreduce(tensors=[x], opts=largest(dist.AllreduceOptions))),
    "allreduce of a tensor": lambda group, x, n, rank: (x, group.allreduce(tensor=x, op=ReduceOp.MAX)),
    "allreduce_coalesced": lambda group, x, n, rank: (
        x,
        group.allreduce_coalesced(tensors=[x], opts=largest(dist.AllreduceCoalescedOptions)),
    ),
    "broadcast": lambda group, x, n, rank: (x, group.broadcast(tensors=[x], opts=rooted(dist.BroadcastOptions))),
    "broadcast of a tensor": lambda group, x, n, rank: (x, group.broadcast(tensor=x, root=1)),
    "reduce": lambda group, x, n, rank: (
        x if rank == 1 else None,
        group.reduce(tensors=[x], opts=rooted(dist.ReduceOptions)),
    ),
    "reduce of a tensor": lambda group, x, n, rank: (
        x if rank == 1 else None,
        group.reduce(tensor=x, root=1, op=ReduceOp.MAX),
    ),
    "allgather": lambda group, x, n, rank: (y := zeros(n), group.allgather(output_tensors=[y], input_tensors=[x])),
    "allgather of a tensor": lambda group, x, n, rank: (
        y := zeros(n),
        group.allgather(output_tensors=y, input_tensor=x, timeout=LIMIT),
    ),
    "allgather_coalesced": lambda group, x, n, rank: (
        y := [zeros(1) for _ in range(n)],
        group.allgather_coalesced(output_lists=y, input_list=[x]),
    ),
    "all_gather_single": lambda group, x, n, rank: (
        y := torch.zeros(3 * n),
        group.all_gather_single(output=y, input=x, opts=AllgatherOptions()),
    ),
    "gather": lambda group, x, n, rank: (
        y := zeros(n if rank == 1 else 0),
        group.gather(
            output_tensors=[y] if rank == 1 else [], input_tensors=[x], opts=rooted(dist.GatherOptions)
        ),
    ),
    "gather of a tensor": lambda group, x, n, rank: (
        y := zeros(n if rank == 1 else 0),
        group.gather(output_tensors=y, input_tensor=x, root=1),
    ),
    "scatter": lambda group, x, n, rank: (
        x,
        group.scatter(
            output_tensors=[x], input_tensors=[zeros(n)] if rank == 1 else [], opts=rooted(dist.ScatterOptions)
        ),
    ),
    "scatter of a tensor": lambda group, x, n, rank: (
        x,
        group.scatter(output_tensor=x, input_tensors=[one(i) for i in range(n)] if rank == 1 else [], root=1),
    ),
    "reduce_scatter": lambda group, x, n, rank: (
        y := zeros(1),
        group.reduce_scatter(
            output_tensors=y, input_tensors=[[x] * n], opts=largest(dist.ReduceScatterOptions)
        ),
    ),
    "reduce_scatter of a tensor": lambda group, x, n, rank: (
        y := zeros(1)[0],
        group.reduce_scatter(output=y, input=[x] * n, op=ReduceOp.MAX, timeout=LIMIT),
    ),
    "reduce_scatter_single": lambda group, x, n, rank: (
        y := torch.zeros(1),
        group.reduce_scatter_single(outputTensor=y, inputTensor=torch.arange(float(n)) + rank),
    ),
    "alltoall": lambda group, x, n, rank: (
        y := zeros(n),
        group.alltoall(output_tensors=y, input_tensors=[x + 10 * i for i in range(n)]),
    ),
    "alltoall_base": lambda group, x, n, rank: (
        y := torch.zeros(n),
        group.alltoall_base(
            output=y, input=torch.arange(float(n)) + rank, output_split_sizes=[], input_split_sizes=[], timeout=LIMIT
        ),
    ),
    "send, recv": lambda group, x, n, rank: (
        x,
        group.send(tensors=[x], dstRank=1, tag=3) if rank == 0 else group.recv(tensors=[x], srcRank=0, tag=3),
    ),
}


def call(group, form):
    result, work = FORMS[form](group, one(group.rank()), group.size(), group.rank())
    work.wait()
    return result


@pytest.mark.parametrize("form", FORMS)
def test_short_form(ranks, form):
    ranks.both(2, call, form)


def call_by_name(group):
    results = []
    for form in BY_NAME.values():
        result, work = form(group, one(group.rank()), group.size(), group.rank())
        work.wait()
        results.append(result)
    return results


@pytest.mark.parametrize("checked", ["0", "1"])
def test_names_of_arguments(ranks, checked):
    with ranks.setting(LOCKSTEP_CHECK=checked):
        ranks.both(2, call_by_name)


def names_of(signature):
    """Of a line that pybind11 has written, "1. name(self: ..., tensors: ..., opts: ... = ...) -> ..."."""
    return re.findall(r"(?:^|, )(\w+): ", signature)[1:]


SHARED = {name for name in dir(Collectives) + dir(PointToPoint) if not name.startswith("__")} & set(dir(dist.ProcessGroup))


@pytest.mark.parametrize("name", sorted(SHARED - {"recv_anysource"}))  # whose arguments have no names
def test_every_name_of_an_argument_is_known(name):
    """Of all forms that the installed PyTorch has."""
    signatures = re.findall(rf"^(?:\d+\. )?{name}\((self.*)\) ->", getattr(dist.ProcessGroup, name).__doc__ or "", re.M)
    known = inspect.signature(getattr(lockstep.torch.ProcessGroup, name)).parameters
    for signature in signatures:
        assert set(names_of(signature)) <= set(known)


def without_tensors():
    group = dist.group.WORLD
    for name in ("allreduce", "broadcast", "reduce", "scatter", "reduce_scatter"):
        with pytest.raises(TypeError, match=rf"{name}\(\) is called without"):
            getattr(group, name)()


def test_a_call_without_tensors(ranks):
    ranks(2, without_tensors)


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
