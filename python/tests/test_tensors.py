# SPDX-License-Identifier: BSD-3-Clause
"""Tensors that are not one plain row of numbers: strided, conjugated, empty, scalars, with gradients, sparse."""

import lockstep.torch
import pytest
import torch
import torch.distributed as dist


def number(rank, *shape):
    return (torch.arange(torch.Size(shape).numel()) + 100 * rank).view(shape).float()


KINDS = {
    "transposed": lambda r: number(r, 6, 4).t(),
    "sliced": lambda r: number(r, 8, 8)[1::2, ::3],
    "expanded_rows": lambda r: number(r, 3, 4, 5).permute(2, 0, 1),
    "channels_last": lambda r: number(r, 2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
    "scalar": lambda r: torch.tensor(float(r + 1)),
    "empty": lambda r: torch.zeros(0),
    "empty_rows": lambda r: torch.zeros(0, 5),
    "offset": lambda r: number(r, 101)[1:],
    "flipped_view": lambda r: number(r, 50).as_strided((10,), (5,)),
    "negated_and_strided": lambda r: torch.complex(number(r, 20), number(r + 1, 20)).conj().imag,
    "negated": lambda r: torch._neg_view(number(r, 20)),
    "parameter": lambda r: torch.nn.Parameter(number(r, 7)),
}
kinds = pytest.mark.parametrize("kind", list(KINDS))


def total(size, kind):
    return sum(KINDS[kind](rank).detach().clone().resolve_conj().resolve_neg() for rank in range(size))


def plain(tensor):
    """The values of a tensor as one would see them."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous().clone()


def all_reduce(group, kind):
    tensor = KINDS[kind](dist.get_rank(group))
    dist.all_reduce(tensor, group=group)
    return plain(tensor)


def all_reduce_reference(rank, size, kind):
    return total(size, kind).contiguous()


@kinds
def test_all_reduce(ranks, kind):
    ranks.against(2, all_reduce_reference, all_reduce, kind)


def neighbours(group):
    """What lies between the elements of a strided tensor is not touched."""
    base = number(dist.get_rank(group), 10, 10)
    dist.all_reduce(base[:, 3], group=group)
    dist.broadcast(base[::2, 5], 1, group=group)
    return base


def neighbours_reference(rank, size):
    base = number(rank, 10, 10)
    base[:, 3] = sum(number(r, 10, 10)[:, 3] for r in range(size))
    base[::2, 5] = number(1, 10, 10)[::2, 5]
    return base


def test_elements_between_those_of_a_strided_tensor_stay(ranks):
    ranks.against(2, neighbours_reference, neighbours)


def moved(group, kind):
    """Each moving collective, from and into tensors of this kind."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    make = KINDS[kind]
    sent = make(rank)
    dist.broadcast(sent, 1, group=group)
    gathered = [make(7) for _ in range(size)]
    dist.all_gather(gathered, make(rank), group=group)
    rooted = [make(7) for _ in range(size)] if rank == 0 else None
    dist.gather(make(rank), rooted, 0, group=group)
    part = make(7)
    dist.scatter(part, [make(10 + r) for r in range(size)] if rank == 0 else None, 0, group=group)
    exchanged = [make(7) for _ in range(size)]
    dist.all_to_all(exchanged, [make(10 * rank + to) for to in range(size)], group=group)
    received = make(7)
    works = [dist.isend(make(rank), 1 - rank, group=group), dist.irecv(received, 1 - rank, group=group)]
    for work in works:
        work.wait()
    lists = gathered + (rooted or []) + exchanged
    return [plain(tensor) for tensor in [sent, part, received, *lists]]


def moved_reference(rank, size, kind):
    make = KINDS[kind]
    lists = [make(r) for r in range(size)] + ([make(r) for r in range(size)] if rank == 0 else [])
    exchanged = [make(10 * source + rank) for source in range(size)]
    return [plain(tensor) for tensor in [make(1), make(10 + rank), make(1 - rank), *lists, *exchanged]]


@kinds
def test_moving(ranks, kind):
    ranks.against(2, moved_reference, moved, kind)


def scattered_sums(group, kind):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    output = KINDS[kind](7)
    dist.reduce_scatter(output, [KINDS[kind](rank + 10 * to) for to in range(size)], group=group)
    rooted = KINDS[kind](rank)
    dist.reduce(rooted, 0, group=group)
    return plain(output), plain(rooted) if rank == 0 else None


def scattered_sums_reference(rank, size, kind):
    summed = sum(plain(KINDS[kind](r + 10 * rank)) for r in range(size))
    return summed, total(size, kind).contiguous() if rank == 0 else None


@kinds
def test_reduce_and_reduce_scatter(ranks, kind):
    ranks.against(2, scattered_sums_reference, scattered_sums, kind)


def conjugated(group):
    """Through the group itself, as torch.distributed's functions refuse such tensors."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    tensors = [torch.complex(number(rank, 20), number(rank + 1, 20)).conj() for _ in range(4)]
    group.allreduce([tensors[0]]).wait()
    from_one = dist.BroadcastOptions()
    from_one.rootRank = 1
    group.broadcast([tensors[1]], from_one).wait()
    gathered = [torch.complex(number(7, 20), number(7, 20)).conj() for _ in range(size)]
    group.allgather([gathered], [tensors[2]]).wait()
    assert all(tensor.is_conj() for tensor in tensors + gathered)
    return [plain(tensor) for tensor in [*tensors, *gathered]]


def conjugated_reference(rank, size):
    parts = [plain(torch.complex(number(r, 20), number(r + 1, 20)).conj()) for r in range(size)]
    return [sum(parts), parts[1], parts[rank], parts[rank], *parts]


def test_conjugated_tensors(ranks):
    ranks.against(2, conjugated_reference, conjugated)


VIEWS = {
    "conjugated": lambda tensor: tensor.conj(),
    "negated": lambda tensor: torch._neg_view(tensor.real.clone()),
}


def whole(rank, view):
    return VIEWS[view](torch.complex(number(rank, 8), number(rank + 1, 8)))


def chunks_of_views(group, view):
    """Lists of tensors that lie in memory one behind the other, where their elements are not as they look."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    chunks = list(whole(rank, view).chunk(size))
    summed, scattered = plain(chunks[0]), plain(chunks[0])
    group.reduce_scatter([summed], [chunks]).wait()
    group.scatter([scattered], [chunks] if rank == 0 else [], dist.ScatterOptions()).wait()
    gathered, rooted = whole(7, view), whole(7, view)
    group.allgather([list(gathered.chunk(size))], [plain(chunks[0])]).wait()
    group.gather([list(rooted.chunk(size))] if rank == 0 else [], [plain(chunks[1])], dist.GatherOptions()).wait()
    return [plain(tensor) for tensor in (summed, scattered, gathered, *([rooted] if rank == 0 else []))]


def chunks_reference(rank, size, view):
    parts = [plain(whole(r, view)).chunk(size) for r in range(size)]
    first, second = (torch.cat([part[i] for part in parts]) for i in range(2))
    return [sum(part[rank] for part in parts), parts[0][rank], first, *([second] if rank == 0 else [])]


@pytest.mark.parametrize("view", list(VIEWS))
def test_lists_of_chunks_of_views(ranks, view):
    ranks.against(2, chunks_reference, chunks_of_views, view)


def in_place_views(group):
    """Input and output of all_gather and reduce_scatter in one storage, as FSDP has them."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    whole = number(rank, size * 5)
    dist.all_gather_into_tensor(whole, whole[rank * 5 : rank * 5 + 5], group=group)
    sums = number(rank, size * 5)
    dist.reduce_scatter_tensor(sums[rank * 5 : rank * 5 + 5], sums.clone(), group=group)
    return whole, sums[rank * 5 : rank * 5 + 5].clone()


def in_place_reference(rank, size):
    whole = torch.cat([number(r, size * 5)[r * 5 : r * 5 + 5] for r in range(size)])
    return whole, sum(number(r, size * 5) for r in range(size))[rank * 5 : rank * 5 + 5].clone()


def test_views_of_one_storage(ranks):
    ranks.against(3, in_place_reference, in_place_views)


def with_gradient(group):
    """A tensor that a graph has made is reduced, and the graph still works."""
    leaf = torch.ones(4, requires_grad=True)
    made = leaf * (dist.get_rank(group) + 2)
    work = dist.all_reduce(made.detach(), group=group, async_op=True)
    work.wait()
    made.sum().backward()
    return made.detach(), leaf.grad


def test_tensors_of_a_graph(ranks):
    ranks.both(2, with_gradient)


def nothing(group):
    """Operations of no elements, in the forms that take one tensor for all ranks."""
    size = dist.get_world_size(group)
    empty = lambda *shape: torch.zeros(shape or 0)  # noqa: E731
    gathered, scattered, exchanged = empty(0, 3), empty(0, 3), empty(0, 3)
    dist.all_gather_into_tensor(gathered, empty(0, 3), group=group)
    dist.reduce_scatter_tensor(scattered, empty(0, 3), group=group)
    dist.all_to_all_single(exchanged, empty(0, 3), [0] * size, [0] * size, group=group)
    dist.all_to_all_single(exchanged, empty(0, 3), group=group)
    dist.all_reduce_coalesced([empty(), empty()], group=group)
    dist.broadcast(empty(), 1, group=group)
    total = torch.ones(2)
    dist.all_reduce(total, group=group)
    return gathered, scattered, exchanged, total


def nothing_reference(rank, size):
    return torch.zeros(0, 3), torch.zeros(0, 3), torch.zeros(0, 3), torch.full((2,), float(size))


def test_operations_of_no_elements(ranks):
    ranks.against(3, nothing_reference, nothing)


# ---- sparse ----


def sparse_sum(group, dtype):
    """Each rank has values in a row of its own, and in one that all have; rank 1 has none at all."""
    rank = dist.get_rank(group)
    dense = torch.zeros(6, 3).to(dtype)
    if rank != 1:
        dense[rank], dense[5] = 1 + rank, 2 * (1 + rank)
    tensor = dense.to_sparse(1)
    dist.all_reduce(tensor, group=group)
    return tensor.to_dense()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
def test_sums_of_sparse_tensors(ranks, dtype):
    ranks.both(3, sparse_sum, dtype)


def sparse_average(group, dtype, is_dense):
    """The parts of the last row are no multiples of the size, but their sum is; sums of halves do not fit, but averages
    do."""
    rank = dist.get_rank(group)
    dense = torch.zeros(6, 3).to(dtype)
    if rank != 1:
        dense[rank], dense[4], dense[5] = 7 + rank, -5, 1 + rank // 2
    if dtype is torch.float16:
        dense[3] = 60000
    tensor = dense if is_dense else dense.to_sparse(1)
    dist.all_reduce(tensor, dist.ReduceOp.AVG, group=group)
    return tensor if is_dense else tensor.to_dense()


def sparse_average_is_the_dense_one(dtype):
    sparse, dense = (sparse_average(None, dtype, is_dense) for is_dense in (False, True))
    assert sparse.dtype == dtype and torch.equal(sparse, dense) and dense.isfinite().all(), (sparse, dense)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int8, torch.int64, torch.uint8], ids=str)
def test_averages_of_sparse_tensors(ranks, dtype):
    ranks(3, sparse_average_is_the_dense_one, dtype)


def sparse_average_of_flags():
    dist.all_reduce(torch.eye(3, dtype=torch.bool).to_sparse(), dist.ReduceOp.AVG)


def test_an_average_of_sparse_flags_is_refused(ranks):
    for outcome in ranks.outcomes(2, sparse_average_of_flags):
        assert isinstance(outcome.error, lockstep.Unsupported), outcome.trace


# ---- refused ----


def sparse(call):
    tensor = torch.eye(4).to_sparse()
    calls = {
        "broadcast": lambda: dist.broadcast(tensor, 0),
        "all_gather": lambda: dist.all_gather([torch.zeros(4, 4) for _ in range(2)], tensor),
        "send": lambda: dist.send(tensor, 1 - dist.get_rank()),
    }
    calls[call]()


@pytest.mark.parametrize("call", ["broadcast", "all_gather", "send"])
def test_sparse_tensors_are_refused(ranks, call):
    for outcome in ranks.outcomes(2, sparse, call):
        assert isinstance(outcome.error, lockstep.Unsupported), outcome.trace
        assert "to_dense" in str(outcome.error) and call in str(outcome.error)


def other_device():
    dist.all_reduce(torch.zeros(4, device="meta"))


def test_tensors_of_other_devices_are_refused(ranks):
    for outcome in ranks.outcomes(2, other_device):
        assert isinstance(outcome.error, (lockstep.Unsupported, NotImplementedError)), outcome.trace


def wrong_size(call):
    size = dist.get_world_size()
    calls = {
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(torch.zeros(7), torch.zeros(3)),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(torch.zeros(3), torch.zeros(7)),
        "all_to_all_single": lambda: dist.all_to_all_single(torch.zeros(7), torch.zeros(7), [1] * size, [7] * size),
        "all_gather": lambda: dist.all_gather([torch.zeros(3)], torch.zeros(3)),
        "reduce_scatter": lambda: dist.reduce_scatter(torch.zeros(3), [torch.zeros(4)] * size),
    }
    with_error(calls[call])
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


def with_error(call):
    try:
        call()
    except ValueError:  # lockstep.BadArgument is one, and so is what PyTorch itself raises
        return
    raise AssertionError("no error")


@pytest.mark.parametrize(
    "call", ["all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single", "all_gather", "reduce_scatter"]
)
def test_wrong_sizes_are_refused_and_the_group_goes_on(ranks, call):
    assert ranks(2, wrong_size, call) == [2.0, 2.0]


MIXED = {
    "allgather": lambda group, one, other: group.allgather([[other]], [one]),
    "allgather_coalesced": lambda group, one, other: group.allgather_coalesced([[other]], [one]),
    "allreduce_coalesced": lambda group, one, other: group.allreduce_coalesced([one, other]),
    "all_gather_single": lambda group, one, other: group.all_gather_single(other, one),
    "all_to_all_single": lambda group, one, other: group.all_to_all_single(other, one),
    "alltoall": lambda group, one, other: group.alltoall([other], [one]),
    "gather": lambda group, one, other: group.gather([[other]], [one], dist.GatherOptions()),
    "reduce_scatter": lambda group, one, other: group.reduce_scatter([other], [[one]]),
    "reduce_scatter_single": lambda group, one, other: group.reduce_scatter_single(other, one),
    "scatter": lambda group, one, other: group.scatter([other], [[one]], dist.ScatterOptions()),
}


def mixed(call):
    with pytest.raises(lockstep.BadArgument, match="one dtype"):
        MIXED[call](dist.group.WORLD, torch.ones(4, dtype=torch.float64), torch.ones(4, dtype=torch.float32))


@pytest.mark.parametrize("call", list(MIXED))
def test_tensors_of_two_dtypes_are_refused(ranks, call):
    ranks(1, mixed, call)


# ---- elements that share memory ----

EXPANDED = {
    "all_reduce": lambda tensor, group: dist.all_reduce(tensor, group=group),
    "broadcast": lambda tensor, group: dist.broadcast(tensor, 1, group=group),
    "reduce": lambda tensor, group: dist.reduce(tensor, 0, group=group),
}


def expanded(group, call):
    """One element in memory, so that gloo, which takes it for four, writes behind it: hence the room."""
    rank = dist.get_rank(group)
    tensor = torch.full((8,), rank + 1.0)[:1].expand(4)
    EXPANDED[call](tensor, group)
    return tensor.clone() if call != "reduce" or rank == 0 else None


@pytest.mark.parametrize("call", list(EXPANDED))
def test_expanded_tensors(ranks, call):
    ranks.both(2, expanded, call)


def expanded_differently():
    tensor = torch.ones(1).expand(2)
    return dist.all_to_all_single(tensor, torch.full((2,), dist.get_rank() + 1.0)) or tensor


def test_an_expanded_tensor_cannot_hold_different_values(ranks):
    """gloo gives it one of them."""
    for outcome in ranks.outcomes(2, expanded_differently):
        assert isinstance(outcome.error, lockstep.BadArgument) and "share memory" in str(outcome.error), outcome.trace


# ---- modes of PyTorch ----


def beside_a_default_device(group, call):
    rank, parts, one = dist.get_rank(group), [torch.zeros(4) for _ in range(2)], torch.full((4,), 2.0)
    flags = torch.sparse_coo_tensor([[rank, 3]], torch.ones(2), (4,))
    calls = {
        "all_gather": lambda: group.allgather([parts], [one]),
        "gather": lambda: group.gather([parts] if rank == 0 else [], [one], root=0),
        "all_to_all": lambda: group.alltoall(parts, [one, one]),
        "sparse": lambda: group.allreduce([flags]),
    }
    with torch.device("meta"):  # PyTorch's own functions end it for what they call
        calls[call]().wait()
    return parts, flags.to_dense()


def beside_a_default_device_reference(rank, size, call):
    filled = [torch.full((4,), 0.0 if call == "sparse" or (call == "gather" and rank) else 2.0) for _ in range(2)]
    own = torch.zeros(4)
    own[[rank, 3]] = 1
    return filled, torch.tensor([1.0, 1.0, 0.0, 2.0]) if call == "sparse" else own


@pytest.mark.parametrize("call", ["all_gather", "gather", "all_to_all", "sparse"])
def test_a_default_device(ranks, call):
    """It is that of the program's tensors, not of memory that the package needs for a moment."""
    ranks.against(2, beside_a_default_device_reference, beside_a_default_device, call)


def memory_beside_a_default_device():
    with torch.device("meta"):
        return lockstep.torch.zeros(0).device.type, lockstep.torch.tensor([1.0, 2.0]).tolist()


def test_memory_beside_a_default_device(ranks):
    assert ranks(1, memory_beside_a_default_device) == [("cpu", [1.0, 2.0])]


class Elsewhere(torch.Tensor):
    """Says that it is on another device; its elements lie in a row."""

    is_cpu = False
    device = torch.device("cuda")


def lists_of_another_device(call):
    parts, own = [part.as_subclass(Elsewhere) for part in torch.ones(4).chunk(2)], torch.zeros(2)
    with pytest.raises(lockstep.Unsupported, match="on cuda"):
        if call == "scatter":
            dist.group.WORLD.scatter([own], [parts], root=dist.get_rank())
        else:
            dist.group.WORLD.reduce_scatter([own], [parts])


@pytest.mark.parametrize("call", ["scatter", "reduce_scatter"])
def test_lists_of_another_device_are_refused(ranks, call):
    ranks(2, lists_of_another_device, call, fresh=True)
