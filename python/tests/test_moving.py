# SPDX-License-Identifier: BSD-3-Clause
"""Collectives that only move: broadcast, gather, scatter, all_gather and all_to_all in all their forms."""

from datetime import timedelta

import lockstep
import numpy
import pytest
import torch
import torch.distributed as dist

DTYPES = "bool int8 uint16 int64 float16 bfloat16 float64 complex64 float8_e4m3fn float8_e5m2".split()
# Gloo moves these too; the rest is compared with what this process knows of all ranks.
GLOO = ["int8", "int64", "float16", "float64"]


def values(rank, dtype, count, seed=0):
    generator = torch.Generator().manual_seed(rank * 1000 + count + seed)
    return torch.randint(0, 2, (count,), generator=generator).to(getattr(torch, dtype))


def everywhere(ranks, size, dtype, reference, function, *args):
    ranks.against(size, reference, function, dtype, *args)
    if dtype in GLOO:
        ranks.both(size, function, dtype, *args)


# ---- from one, to one ----


def broadcast(group, dtype, root, count):
    tensor = values(dist.get_rank(group), dtype, count)
    dist.broadcast(tensor, root, group=group)
    return tensor


def broadcast_reference(rank, size, dtype, root, count):
    return values(root, dtype, count)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("root", [0, 1])
def test_broadcast(ranks, dtype, root):
    for count in (1, 5000):
        everywhere(ranks, 2, dtype, broadcast_reference, broadcast, root, count)


def broadcast_by_group_rank(group, dtype):
    tensor = values(dist.get_rank(group), dtype, 10)
    dist.broadcast(tensor, group=group, group_src=2)
    return tensor


def test_broadcast_by_the_rank_within_a_group(ranks):
    ranks.both(3, broadcast_by_group_rank, "float64")


def gather(group, dtype, root):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    parts = [values(0, dtype, 60) for _ in range(size)] if rank == root else None
    dist.gather(values(rank, dtype, 60), parts, root, group=group)
    return parts


def gather_reference(rank, size, dtype, root):
    return [values(r, dtype, 60) for r in range(size)] if rank == root else None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("root", [0, 2])
def test_gather(ranks, dtype, root):
    everywhere(ranks, 3, dtype, gather_reference, gather, root)


def scatter(group, dtype, root):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    output = values(9, dtype, 60)
    parts = [values(r, dtype, 60, seed=5) for r in range(size)] if rank == root else None
    dist.scatter(output, parts, root, group=group)
    return output


def scatter_reference(rank, size, dtype, root):
    return values(rank, dtype, 60, seed=5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("root", [0, 2])
def test_scatter(ranks, dtype, root):
    everywhere(ranks, 3, dtype, scatter_reference, scatter, root)


# ---- all_gather ----


def all_gather(group, dtype):
    parts = [values(9, dtype, 70) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, values(dist.get_rank(group), dtype, 70), group=group)
    return parts


def all_gather_into_a_row(group, dtype):
    """The list is views of one tensor, which needs no copies."""
    size = dist.get_world_size(group)
    room = torch.zeros(70 * size, dtype=getattr(torch, dtype))
    dist.all_gather(list(room.split(70)), values(dist.get_rank(group), dtype, 70), group=group)
    return list(room.split(70))


def all_gather_reference(rank, size, dtype):
    return [values(r, dtype, 70) for r in range(size)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", [all_gather, all_gather_into_a_row])
def test_all_gather(ranks, dtype, function):
    everywhere(ranks, 3, dtype, all_gather_reference, function)


def all_gather_into_tensor(group, dtype, stack):
    size = dist.get_world_size(group)
    shape = (size, 70) if stack else (size * 70,)
    output = torch.zeros(shape, dtype=getattr(torch, dtype))
    dist.all_gather_into_tensor(output, values(dist.get_rank(group), dtype, 70), group=group)
    return output


def all_gather_into_tensor_reference(rank, size, dtype, stack):
    parts = [values(r, dtype, 70) for r in range(size)]
    return torch.stack(parts) if stack else torch.cat(parts)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("stack", [False, True])
def test_all_gather_into_tensor(ranks, dtype, stack):
    ranks.against(2, all_gather_into_tensor_reference, all_gather_into_tensor, dtype, stack)
    if dtype in GLOO and not stack:  # gloo takes no other shape
        ranks.both(2, all_gather_into_tensor, dtype, stack)


def all_gather_uneven(group, dtype, counts):
    parts = [torch.zeros(count, dtype=getattr(torch, dtype)) for count in counts]
    rank = dist.get_rank(group)
    dist.all_gather(parts, values(rank, dtype, counts[rank]), group=group)
    return parts


def all_gather_uneven_reference(rank, size, dtype, counts):
    return [values(r, dtype, count) for r, count in enumerate(counts)]


@pytest.mark.parametrize("counts", [(1, 2, 3), (0, 100, 0), (5000, 1, 77)])
def test_all_gather_of_uneven_sizes(ranks, counts):
    for dtype in ("float32", "float8_e5m2"):
        ranks.against(3, all_gather_uneven_reference, all_gather_uneven, dtype, counts)


def all_gather_coalesced(group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    outputs = [torch.zeros(size * count) for count in (3, 50)]
    with dist._coalescing_manager(group):
        for output, count in zip(outputs, (3, 50)):
            dist.all_gather_into_tensor(output, values(rank, "float32", count), group=group)
    lists = [[torch.zeros(3), torch.zeros(50)] for _ in range(size)]
    dist.all_gather_coalesced(lists, [values(rank, "float32", count) for count in (3, 50)], group=group)
    return outputs, lists


def all_gather_coalesced_reference(rank, size):
    parts = [[values(r, "float32", count) for count in (3, 50)] for r in range(size)]
    return [torch.cat([part[i] for part in parts]) for i in range(2)], parts


def test_all_gather_coalesced(ranks):
    ranks.against(3, all_gather_coalesced_reference, all_gather_coalesced)


# ---- all_to_all ----


def all_to_all(group, dtype):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    inputs = [values(rank, dtype, 10 * (rank + to + 1), seed=to) for to in range(size)]
    outputs = [torch.zeros(10 * (rank + source + 1), dtype=getattr(torch, dtype)) for source in range(size)]
    dist.all_to_all(outputs, inputs, group=group)
    return outputs


def all_to_all_reference(rank, size, dtype):
    return [values(source, dtype, 10 * (rank + source + 1), seed=rank) for source in range(size)]


def all_to_all_single(group, dtype):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    output = torch.zeros(size * 4, 3, dtype=getattr(torch, dtype))
    dist.all_to_all_single(output, values(rank, dtype, size * 12).view(-1, 3), group=group)
    return output


def all_to_all_single_reference(rank, size, dtype):
    return torch.cat([values(source, dtype, size * 12).view(size, 4, 3)[rank] for source in range(size)])


def all_to_all_uneven(group, dtype):
    """Rank r sends r + to rows to each; the rank 0 sends none to itself."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    rows = [rank + other for other in range(size)]
    output = torch.zeros(sum(rows), 3, dtype=getattr(torch, dtype))
    dist.all_to_all_single(output, values(rank, dtype, sum(rows) * 3).view(-1, 3), rows, rows, group=group)
    return output


def all_to_all_uneven_reference(rank, size, dtype):
    parts = []
    for source in range(size):
        rows = [source + other for other in range(size)]
        parts.append(values(source, dtype, sum(rows) * 3).view(-1, 3).split(rows)[rank])
    return torch.cat(parts)


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_to_all(ranks, dtype):
    ranks.against(3, all_to_all_reference, all_to_all, dtype)
    everywhere(ranks, 3, dtype, all_to_all_single_reference, all_to_all_single)
    everywhere(ranks, 3, dtype, all_to_all_uneven_reference, all_to_all_uneven)


def all_to_all_split_by_an_array(group):
    """Split sizes as numpy counts them."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    rows = numpy.arange(size) + rank
    output = torch.zeros(int(sum(rows)))
    dist.all_to_all_single(output, values(rank, "float32", len(output)), rows, rows, group=group)
    return output


def test_all_to_all_of_split_sizes_in_an_array(ranks):
    ranks.both(3, all_to_all_split_by_an_array)


# ---- lists of one tensor's parts, of which one is also the other side ----


def gathered_beside_a_part(group, place):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    whole, rooted = values(rank, "float32", size * 5), values(rank, "float32", size * 5)
    parts, at_root = list(whole.chunk(size)), list(rooted.chunk(size))
    dist.all_gather(parts, parts[place], group=group)
    dist.gather(at_root[place], at_root if rank == 1 else None, 1, group=group)
    return whole, rooted


def gathered_beside_a_part_reference(rank, size, place):
    gathered = torch.cat([values(r, "float32", size * 5).chunk(size)[place] for r in range(size)])
    return gathered, gathered if rank == 1 else values(rank, "float32", size * 5)


def scattered_beside_a_part(group, place):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    parts, summed = (list(values(rank, "float32", size * 5).chunk(size)) for _ in range(2))
    dist.scatter(parts[place], parts if rank == 1 else None, 1, group=group)
    dist.reduce_scatter(summed[place], summed, group=group)
    return parts[place], summed[place]


def scattered_beside_a_part_reference(rank, size, place):
    every = [values(r, "float32", size * 5).chunk(size)[rank] for r in range(size)]
    return every[1], sum(every)


@pytest.mark.parametrize("place", range(3))
def test_a_part_that_is_also_the_other_side(ranks, place):
    """Not with gloo, which scatters a part that it has already overwritten."""
    ranks.against(3, gathered_beside_a_part_reference, gathered_beside_a_part, place)
    ranks.against(3, scattered_beside_a_part_reference, scattered_beside_a_part, place)


def gathered_across_parts(group):
    """The input is half of one part, and half of the next."""
    whole = values(dist.get_rank(group), "float32", dist.get_world_size(group) * 4)
    dist.all_gather(list(whole.chunk(dist.get_world_size(group))), whole[2:6], group=group)
    return whole


def test_an_input_across_two_parts(ranks):
    ranks.both(3, gathered_across_parts)


# ---- one tensor that is, in part, the other one, too ----


def gathered_within(group, where):
    whole = values(dist.get_rank(group), "float32", dist.get_world_size(group) * 4)
    dist.all_gather_into_tensor(whole, whole[where : where + 4], group=group)
    return whole


def reduced_within(group, where):
    whole = values(dist.get_rank(group), "int32", dist.get_world_size(group) * 4)
    part = whole[where : where + 4]
    dist.reduce_scatter_tensor(part, whole, group=group)
    return part


@pytest.mark.parametrize("where", [0, 2, 4, 8])
def test_a_tensor_within_the_other_one(ranks, where):
    ranks.both(3, gathered_within, where)
    ranks.both(3, reduced_within, where)


def exchanged_within():
    group, size = dist.group.WORLD, dist.get_world_size()
    tensor, longer = torch.arange(size * 2), torch.arange(size * 2 + 1)
    for output, input, common in (tensor, tensor, 4), (longer[1:], longer[:-1], 3):
        for sizes in (None, [2, 2]):
            with pytest.raises(lockstep.BadArgument) as caught:
                dist.all_to_all_single(output, input, sizes, sizes)
            told = f"all_to_all_single: output and input share memory (4 and 4 elements, of which {common} are the same)"
            assert told in str(caught.value) and "0x" not in str(caught.value)
    if dist.get_rank() == 0:  # sends nothing, and has no place for that within what it gets
        dist.all_to_all_single(longer, longer[2:2], [0, 5], [0, 0])
    else:
        dist.all_to_all_single(torch.empty(0, dtype=torch.int64), longer + 10, [0, 0], [5, 0])
    assert longer.tolist() == ([10, 11, 12, 13, 14] if dist.get_rank() == 0 else [0, 1, 2, 3, 4])
    dist.all_to_all([tensor[2:], tensor[:2]], list(tensor.chunk(2)), group=group)
    return tensor


def test_an_exchange_in_place(ranks):
    """Gloo gives now these values and now those, and NCCL's manual excludes it. With a list the input is copied."""
    assert [result.tolist() for result in ranks(2, exchanged_within)] == [[0, 1, 0, 1], [2, 3, 2, 3]]


def exchanged_alone(group):
    tensor = torch.arange(3)
    dist.all_to_all_single(tensor, tensor, group=group)
    return tensor


def test_an_exchange_in_place_of_one_rank(ranks):
    ranks.both(1, exchanged_alone)


# ---- objects ----


def objects(group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    mine = {"rank": rank, "list": list(range(rank * 100)), "text": "é" * rank}
    gathered = [None] * size
    dist.all_gather_object(gathered, mine, group=group)
    at_root = [None] * size if rank == 1 else None
    dist.gather_object(mine, at_root, dst=1, group=group)
    shared = [mine, rank] if rank == 2 else [None, None]
    dist.broadcast_object_list(shared, src=2, group=group)
    own = [None]
    dist.scatter_object_list(own, [f"for {r}" for r in range(size)] if rank == 0 else None, src=0, group=group)
    return gathered, at_root, shared, own


def test_objects(ranks):
    ranks.both(3, objects)


def object_messages(group):
    rank = dist.get_rank(group)
    if rank == 0:
        dist.send_object_list([{"a": 1}, "zwei"], dst=1, group=group)
        return None
    received = [None, None]
    source = dist.recv_object_list(received, src=0, group=group)
    return received, source


def test_object_messages(ranks):
    ranks.both(2, object_messages)


# ---- barrier ----


def barrier(group):
    """Nobody is past it before all have come: what rank 1 says before it, rank 0 finds after it."""
    store = dist.distributed_c10d._get_default_store()
    name = f"said/{dist.get_backend(group)}"
    if dist.get_rank(group) == 1:
        store.set(name, "yes")
    dist.barrier(group=group)
    return store.check([name])


def test_barrier(ranks):
    ranks.both(3, barrier, fresh=True)


def monitored_barrier(group):
    group.monitored_barrier()
    group.monitored_barrier(timeout=timedelta(seconds=30), wait_all_ranks=True)
    return True


def test_monitored_barrier_of_the_group(ranks):
    ranks.both(3, monitored_barrier)
