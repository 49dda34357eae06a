# SPDX-License-Identifier: BSD-3-Clause
"""The short way of all_reduce in C: what takes it, and that it does what the long way in Python does."""

from datetime import timedelta

import lockstep
import pytest
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from lockstep.torch import _collectives

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.bool, torch.uint8] + [
    getattr(torch, name) for name in ("int8", "int16", "int32", "int64", "uint16", "uint32", "uint64")
]


def filled(*shape, dtype=torch.float32):
    return torch.arange(1 + torch.Size(shape).numel())[1:].reshape(shape).to(dtype)


def negated():
    """A view whose elements lie in memory with the other sign."""
    return torch.complex(filled(6), filled(6)).conj().imag


# name → (the tensor, arguments of all_reduce, whether it takes the short way)
CALLS = {str(dtype): (lambda dtype=dtype: filled(5, dtype=dtype), {}, True) for dtype in DTYPES}
CALLS |= {
    "of no dimension": (lambda: filled(1)[0], {}, True),
    "of many dimensions": (lambda: filled(2, 1, 3, 2), {}, True),
    "empty": (lambda: filled(2, 0), {}, True),
    "behind the begin of its storage": (lambda: filled(8)[3:], {}, True),
    "one row of a column": (lambda: filled(4, 3)[:1, 1:2], {}, True),
    "a parameter": (lambda: torch.nn.Parameter(filled(3)).requires_grad_(False), {}, True),
    "long": (lambda: filled(100000), {}, True),
    "a column": (lambda: filled(4, 3)[:, 1], {}, False),
    "turned over": (lambda: filled(4, 3).t(), {}, False),
    "expanded": (lambda: filled(1).expand(4), {}, False),
    "negated": (negated, {}, False),
    "complex, which PyTorch hands on as real": (lambda: filled(4).to(torch.complex64), {}, True),
    "half": (lambda: filled(4).to(torch.float16), {}, False),
    "sparse": (lambda: filled(4).to_sparse(), {}, False),
    "a class of its own": (lambda: filled(4).as_subclass(Own), {}, False),
    "max": (lambda: filled(4), {"op": ReduceOp.MAX}, False),
    "premultiplied": (lambda: filled(4), {"op": dist._make_nccl_premul_sum(0.5)}, False),
    "async": (lambda: filled(4), {"async_op": True}, False),
}


class Own(torch.Tensor):
    pass


class Counted:
    """While it is entered: which calls were done in C; with `never`, none."""

    def __init__(self, never=False):
        self.never, self.taken = never, []

    def __enter__(self):
        self.before = _collectives._allreduce_in_c

        def call(*arguments):
            self.taken.append(not self.never and self.before(*arguments))
            return self.taken[-1]

        _collectives._allreduce_in_c = call
        return self

    def __exit__(self, *_):
        _collectives._allreduce_in_c = self.before


def reduced(name, never):
    make, options, _ = CALLS[name]
    tensor = make()
    with Counted(never) as counted:
        work = dist.all_reduce(tensor, **options)
        if work is not None:
            work.wait()
    return tensor.detach().to_dense().resolve_neg().tolist(), counted.taken


def both_ways(name):
    dist.all_reduce(torch.ones(1))  # the first call notes the time limit
    return reduced(name, False), reduced(name, True)


@pytest.mark.parametrize("name", CALLS)
def test_both_ways_give_the_same(ranks, name):
    for (short, taken), (long, _) in ranks(2, both_ways, name):
        assert short == long
        assert taken[0] == CALLS[name][2]


def test_it_was_built():
    assert _collectives._allreduce_in_c.__name__ == "allreduce", "no Python.h, or a PyTorch without DLPack's table"


def outcomes():
    """Of what is refused or fails: the exception and its text, both ways."""
    found = []
    for never in (False, True):
        group = dist.new_group(backend="lockstep", timeout=timedelta(seconds=20))
        dist.all_reduce(torch.ones(1), group=group)
        with Counted(never) as counted:
            try:
                dist.all_reduce(torch.ones(2 + dist.get_rank()), group=group)
            except lockstep.Error as error:
                found.append((type(error).__name__, error.rank, error.operation, counted.taken == [False]))
            try:
                dist.all_reduce(torch.ones(2), group=group)
            except lockstep.Error as error:
                found.append((type(error).__name__, error.rank, error.operation, "test_allreduce_in_c.py" in str(error)))
        group.communicator.close("the test is over")
        try:
            group.allreduce([torch.ones(2)])
        except lockstep.Error as error:
            found.append((type(error).__name__, str(error)))
        dist.barrier()
    return found


def test_errors(ranks):
    for found in ranks(2, outcomes, fresh=True):
        assert len(found) == 6
        assert found[1:3] == found[4:6]
        assert found[0][:3] == found[3][:3]
