# SPDX-License-Identifier: BSD-3-Clause
"""Reductions: every operation with every dtype that it is defined for, on 2 and 3 ranks."""

import functools
import warnings

import lockstep
import pytest
import torch
import torch.distributed as dist

INTEGERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
FLOATS = "float16 bfloat16 float32 float64".split()
COMPLEX = "complex64 complex128".split()
# What gloo reduces; the rest is compared with sums of this process.
GLOO = "int8 uint8 int32 int64 float16 float32 float64".split()

PAIRS = [
    *[("SUM", dtype) for dtype in INTEGERS + FLOATS + COMPLEX + ["bool"]],
    *[("PRODUCT", dtype) for dtype in INTEGERS + FLOATS + ["bool"]],
    *[(op, dtype) for op in ("MIN", "MAX") for dtype in INTEGERS + FLOATS + ["bool"]],
    *[(op, dtype) for op in ("BAND", "BOR", "BXOR") for dtype in INTEGERS + ["bool"]],
    *[("AVG", dtype) for dtype in INTEGERS + FLOATS + COMPLEX],
]


def values(rank, dtype, count, op="SUM"):
    """Small numbers whose sums and products are exact in every dtype, in any order."""
    generator = torch.Generator().manual_seed(rank * 1000 + count)
    high = {"PRODUCT": 3, "AVG": 2}.get(op, 10)
    small = torch.randint(0, high, (count,), generator=generator)
    if dtype.is_complex:
        other = torch.randint(0, high, (count,), generator=generator)
        return torch.complex(small.double(), other.double()).to(dtype)
    return (small * (6 if op == "AVG" else 1)).to(dtype)


def fold(op, parts):
    """One after the other, as arithmetic defines it: the dtypes of integers wrap."""
    dtype = parts[0].dtype
    if dtype is torch.bool:
        steps = {"SUM": "__or__", "MAX": "__or__", "BOR": "__or__", "BXOR": "__xor__"}
        return functools.reduce(lambda a, b: getattr(a, steps.get(op, "__and__"))(b), parts)
    if dtype in (torch.uint16, torch.uint32, torch.uint64):
        parts = [part.to(torch.int64) for part in parts]
    steps = {
        "PRODUCT": torch.mul,
        "MIN": torch.minimum,
        "MAX": torch.maximum,
        "BAND": torch.bitwise_and,
        "BOR": torch.bitwise_or,
        "BXOR": torch.bitwise_xor,
    }
    result = functools.reduce(steps.get(op, torch.add), parts)
    return (result / len(parts) if op == "AVG" else result).to(dtype)


def all_reduce(group, op, dtype, count):
    tensor = values(dist.get_rank(group), getattr(torch, dtype), count, op)
    dist.all_reduce(tensor, getattr(dist.ReduceOp, op), group=group)
    return tensor


def all_reduce_reference(rank, size, op, dtype, count):
    return fold(op, [values(r, getattr(torch, dtype), count, op) for r in range(size)])


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("op,dtype", PAIRS)
def test_all_reduce(ranks, op, dtype, size):
    for count in (1, 1000):
        ranks.against(size, all_reduce_reference, all_reduce, op, dtype, count)
        if dtype in GLOO and op != "AVG":
            ranks.both(size, all_reduce, op, dtype, count)


@pytest.mark.parametrize(
    "op,dtype", [("BAND", "float32"), ("BXOR", "float64"), ("AVG", "bool"), ("SUM", "float8_e5m2")]
)
def test_all_reduce_that_is_not_defined_is_refused(ranks, op, dtype):
    for outcome in ranks.outcomes(2, undefined, op, dtype):
        assert isinstance(outcome.error, lockstep.CallError), outcome.trace
        assert "all_reduce" in str(outcome.error) and dtype in str(outcome.error)


def undefined(op, dtype):
    dist.all_reduce(torch.zeros(4).to(getattr(torch, dtype)), getattr(dist.ReduceOp, op))


def premultiplied_integers():
    dist.all_reduce(torch.ones(4, dtype=torch.int32), dist._make_nccl_premul_sum(2.0))


def test_premultiplied_sum_of_integers_is_refused(ranks):
    for outcome in ranks.outcomes(2, premultiplied_integers):
        assert isinstance(outcome.error, lockstep.Unsupported), outcome.trace
        assert "premultiplied sum is not defined for elements of torch.int32" in str(outcome.error)


def premultiplied(group, count, factor):
    tensor = values(dist.get_rank(group), torch.float32, count)
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor), group=group)
    return tensor


def premultiplied_reference(rank, size, count, factor):
    return sum(values(r, torch.float32, count) * factor for r in range(size))


@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_premultiplied_sum(ranks, factor):
    ranks.against(3, premultiplied_reference, premultiplied, 1000, factor)


def premultiplied_by_tensor(group, count, factor):
    return premultiplied(group, count, torch.tensor([factor]))


def test_premultiplied_sum_with_a_tensor_as_factor(ranks):
    ranks.against(2, premultiplied_reference, premultiplied_by_tensor, 10, 0.25)


def all_reduce_long(group, dtype):
    """Long enough for every way that long operations go, and not divisible by anything."""
    tensor = values(dist.get_rank(group), getattr(torch, dtype), 3_000_001)
    dist.all_reduce(tensor, group=group)
    return tensor.sum(dtype=torch.float64), tensor[-5:].clone(), tensor[::100_003].clone()


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_all_reduce_of_long_tensors(ranks, dtype):
    ranks.both(2, all_reduce_long, dtype)


# ---- reduce ----


def reduce(group, op, dtype, root):
    tensor = values(dist.get_rank(group), getattr(torch, dtype), 100, op)
    dist.reduce(tensor, root, getattr(dist.ReduceOp, op), group=group)
    return tensor if dist.get_rank(group) == root else None


def reduce_reference(rank, size, op, dtype, root):
    return all_reduce_reference(rank, size, op, dtype, 100) if rank == root else None


@pytest.mark.parametrize("root", [0, 2])
@pytest.mark.parametrize(
    "op,dtype",
    [("SUM", "float32"), ("MAX", "int64"), ("PRODUCT", "bfloat16"), ("AVG", "float64"), ("SUM", "complex64")],
)
def test_reduce(ranks, op, dtype, root):
    ranks.against(3, reduce_reference, reduce, op, dtype, root)
    if dtype in GLOO and op != "AVG":
        ranks.both(3, reduce, op, dtype, root)


def reduce_leaves_inputs(root):
    """The tensor of a rank that is not the root is unchanged."""
    tensor = torch.full((50,), float(dist.get_rank() + 1))
    dist.reduce(tensor, root)
    return tensor[0].item()


def test_reduce_leaves_the_tensors_of_other_ranks(ranks):
    assert ranks(3, reduce_leaves_inputs, 1) == [1.0, 6.0, 3.0]


# ---- reduce_scatter ----


def reduce_scatter_list(group, dtype, op):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    inputs = list(values(rank, getattr(torch, dtype), 30 * size, op).split(30))
    output = torch.zeros(30, dtype=getattr(torch, dtype))
    dist.reduce_scatter(output, inputs, getattr(dist.ReduceOp, op), group=group)
    return output


def reduce_scatter_tensor(group, dtype, op):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    input = values(rank, getattr(torch, dtype), 30 * size, op)
    output = torch.zeros(30, dtype=getattr(torch, dtype))
    dist.reduce_scatter_tensor(output, input, getattr(dist.ReduceOp, op), group=group)
    return output


def reduce_scatter_reference(rank, size, dtype, op):
    return fold(op, [values(r, getattr(torch, dtype), 30 * size, op) for r in range(size)])[30 * rank : 30 * (rank + 1)]


@pytest.mark.parametrize("function", [reduce_scatter_list, reduce_scatter_tensor])
@pytest.mark.parametrize(
    "dtype,op",
    [("float32", "SUM"), ("int64", "MAX"), ("bfloat16", "SUM"), ("float64", "AVG"), ("bool", "BOR"), ("uint16", "SUM")],
)
def test_reduce_scatter(ranks, function, dtype, op):
    ranks.against(3, reduce_scatter_reference, function, dtype, op)
    if dtype in GLOO and op == "SUM":
        ranks.both(3, function, dtype, op)


def reduce_scatter_uneven(group):
    rank = dist.get_rank(group)
    inputs = list(values(rank, torch.float32, 60).split([10, 20, 30]))
    output = torch.zeros(10 * (rank + 1))
    dist.reduce_scatter(output, inputs, group=group)
    return output


def reduce_scatter_uneven_reference(rank, size):
    return sum(values(r, torch.float32, 60) for r in range(size)).split([10, 20, 30])[rank]


def test_reduce_scatter_of_uneven_parts(ranks):
    ranks.against(3, reduce_scatter_uneven_reference, reduce_scatter_uneven)


def reduce_scatter_coalesced(group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    outputs = [torch.zeros(n) for n in (4, 7)]
    with dist._coalescing_manager(group):
        for output in outputs:
            dist.reduce_scatter_tensor(output, values(rank, torch.float32, len(output) * size), group=group)
    return outputs


def reduce_scatter_coalesced_reference(rank, size):
    return [sum(values(r, torch.float32, n * size) for r in range(size)).split(n)[rank] for n in (4, 7)]


def test_reduce_scatter_coalesced(ranks):
    ranks.against(2, reduce_scatter_coalesced_reference, reduce_scatter_coalesced)


# ---- several tensors at once ----


def all_reduce_coalesced(group):
    rank = dist.get_rank(group)
    tensors = [values(rank, torch.float32, n) for n in (1, 100, 3333)]
    dist.all_reduce_coalesced(tensors, group=group)
    managed = [values(rank, torch.float32, n) for n in (5, 50)]
    with dist._coalescing_manager(group, async_ops=True) as manager:
        for tensor in managed:
            dist.all_reduce(tensor, group=group)
    manager.wait()
    return tensors + managed


def all_reduce_coalesced_reference(rank, size):
    return [sum(values(r, torch.float32, n) for r in range(size)) for n in (1, 100, 3333, 5, 50)]


def test_all_reduce_coalesced(ranks):
    ranks.against(3, all_reduce_coalesced_reference, all_reduce_coalesced)


def all_reduce_coalesced_of_shared_memory(group):
    """As of tied weights: one tensor twice, and two that share half of their elements."""
    rank = dist.get_rank(group)
    twice, whole = values(rank, torch.float32, 50), values(rank, torch.float32, 30)
    dist.all_reduce_coalesced([twice, twice], group=group)
    dist.all_reduce_coalesced([whole[:20], whole[10:], whole[:0]], group=group)
    return twice, whole


def all_reduce_coalesced_of_shared_memory_reference(rank, size):
    return [sum(values(r, torch.float32, n) for r in range(size)) for n in (50, 30)]


def test_all_reduce_coalesced_of_tensors_that_share_memory(ranks):
    ranks.against(3, all_reduce_coalesced_of_shared_memory_reference, all_reduce_coalesced_of_shared_memory)


def coalesced_for_a_device():
    """With a device all calls inside are begun one by one, and waited for together."""
    device, group = torch.device("cpu"), dist.group.WORLD
    tensors = [torch.ones(3), torch.ones(5)]
    with dist._coalescing_manager(group, device=device, async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor, group=group, async_op=True)
    manager.wait()
    begun = [len(work.result()) for work in manager.works]
    return begun, [tensor[0].item() for tensor in tensors]


def test_coalescing_for_a_device(ranks):
    assert ranks(2, coalesced_for_a_device) == [([2], [2.0, 2.0])] * 2


# ---- a block of _coalescing_manager that an exception ends ----


class Mistake(Exception):
    """Of the program."""


COLLECTED = {
    "all_reduce": (dist.all_reduce, 3),
    "all_gather": (lambda tensor: dist.all_gather_into_tensor(torch.zeros(6), tensor), 2),
    "another kind": (lambda tensor: dist.broadcast(tensor, 0), 0),
}


def ended_by_a_mistake(name, device):
    """What comes after it is run, and what was collected is not: each rank is told so."""
    call, times = COLLECTED[name]
    kept = torch.ones(3)
    with warnings.catch_warnings(record=True) as caught, pytest.raises(Mistake):
        warnings.simplefilter("always")
        with dist._coalescing_manager(device=device):
            for _ in range(times):
                call(kept)
            raise Mistake
    told = [(str(one.message), one.filename) for one in caught if "lockstep" in str(one.message)]
    after, within = torch.ones(3), torch.ones(3)
    dist.all_reduce(after)
    with dist._coalescing_manager(device=device):
        dist.all_reduce(within)
    group = dist.group.WORLD
    return kept.tolist(), after.tolist(), within.tolist(), len(group._coalescing), told


@pytest.mark.parametrize("device", [None, torch.device("cpu")])
@pytest.mark.parametrize("name", list(COLLECTED))
def test_a_coalescing_manager_that_a_mistake_has_ended(ranks, name, device):
    for rank, (kept, after, within, left, told) in enumerate(ranks(2, ended_by_a_mistake, name, device, fresh=True)):
        assert kept == [1.0] * 3 and after == within == [2.0] * 3 and left == 0
        if COLLECTED[name][1]:
            assert len(told) == 1 and told[0][1] == __file__
            assert f"on rank {rank}: {COLLECTED[name][1]} calls that it had collected (all_" in told[0][0]
        else:
            assert told == []


def mixed_kinds():
    """PyTorch refuses them when the block ends."""
    device = torch.device("cpu")
    with pytest.raises(RuntimeError, match="same type"), dist._coalescing_manager(device=device):
        dist.all_reduce(torch.ones(3))
        dist.all_gather_into_tensor(torch.zeros(6), torch.ones(3))
    after = torch.ones(3)
    dist.all_reduce(after)
    return after.tolist(), len(dist.group.WORLD._coalescing)


def test_a_coalescing_manager_that_is_refused(ranks):
    assert ranks(2, mixed_kinds, fresh=True) == [([2.0] * 3, 0)] * 2


def within_another():
    """The inner one is refused, and the outer one goes on collecting."""
    outer = torch.ones(3)
    with dist._coalescing_manager():
        dist.all_reduce(outer)
        with pytest.raises(ValueError, match="non-empty"), dist._coalescing_manager():
            pass
        before = outer.tolist()
    return before, outer.tolist()


def test_a_coalescing_manager_within_another(ranks):
    assert ranks(2, within_another, fresh=True) == [([1.0] * 3, [2.0] * 3)] * 2
