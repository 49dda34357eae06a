# SPDX-License-Identifier: BSD-3-Clause
"""Tensors in memory that peers reach, and DistributedDataParallel with buckets that lie there."""

import ctypes
import gc
import os
import threading
import time

import lockstep
import lockstep.torch
import pytest
import torch
import torch.distributed as dist
from lockstep._library import C, MemoryStats
from torch import nn

from training import Model, seeded, train


def stats():
    out = MemoryStats(size=ctypes.sizeof(MemoryStats))
    communicator = dist.GroupMember.WORLD.communicator
    communicator.check(C.ls_memory_stats(communicator.handle, ctypes.byref(out)))
    return out


def makers():
    like = torch.zeros(3, 4, dtype=torch.int16).t()
    return [
        (lockstep.torch.empty(2, 3), (2, 3), torch.float32),
        (lockstep.torch.empty((2, 3), dtype=torch.bool), (2, 3), torch.bool),
        (lockstep.torch.empty(0, 3), (0, 3), torch.float32),
        (lockstep.torch.empty_like(like), (4, 3), torch.int16),
        (lockstep.torch.zeros(5, requires_grad=True), (5,), torch.float32),
        (lockstep.torch.ones(5, dtype=torch.complex64), (5,), torch.complex64),
        (lockstep.torch.full((2,), 7, dtype=torch.uint16), (2,), torch.uint16),
        (lockstep.torch.tensor([[1.5, 2.5]], dtype=torch.bfloat16), (1, 2), torch.bfloat16),
    ]


def make_all():
    before = stats().live_bytes
    made = makers()
    for tensor, shape, dtype in made:
        assert tuple(tensor.shape) == shape and tensor.dtype == dtype and tensor.is_contiguous()
    assert made[4][0].requires_grad and made[4][0].sum() == 0 and made[5][0].sum() == 5
    assert made[6][0].tolist() == [7, 7] and made[7][0].tolist() == [[1.5, 2.5]]
    live = stats().live_bytes
    view = made[0][0][1]
    del made, tensor
    gc.collect()
    left = stats().live_bytes
    view.fill_(3)
    assert view.tolist() == [3, 3, 3]
    del view
    gc.collect()
    return live > left > before, stats().live_bytes - before


def test_tensors_are_made_and_given_back(ranks):
    """A view keeps its memory."""
    assert ranks(2, make_all) == [(True, 0), (True, 0)]


def reduce_them(count):
    mapped, plain = lockstep.torch.empty(count), torch.empty(count)
    for tensor in (mapped, plain):
        tensor.copy_(torch.arange(count) * (dist.get_rank() + 1))
        dist.all_reduce(tensor)
    return bool((mapped == plain).all()), mapped[-1].item()


@pytest.mark.parametrize("count", [1, 1000, 3_000_000])
def test_they_take_part_in_collectives(ranks, count):
    assert ranks(2, reduce_them, count) == [(True, 3.0 * (count - 1))] * 2


def share_one():
    tensor = torch.full((300_000,), float(dist.get_rank()))
    view = tensor[7:]
    assert lockstep.torch.share(tensor)
    registered = stats().registered
    dist.all_reduce(tensor)
    return registered, view[0].item(), tensor.is_shared()


def test_share(ranks):
    for registered, value, shared in ranks(2, share_one, fresh=True):
        assert registered == 1 and value == 1.0 and shared


def share_and_free():
    """What is registered: with a tensor twice, with a view of it alone, with nothing, with another tensor."""
    registered = []
    tensor = torch.ones(1 << 22)
    assert lockstep.torch.share(tensor) and lockstep.torch.share(tensor[1:])
    registered.append(stats().registered)
    first, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
    view = tensor.view(2, -1)[1]
    del tensor
    gc.collect()
    registered.append(stats().registered)
    dist.all_reduce(view)
    assert (view == 2).all()
    del view
    gc.collect()
    registered.append(stats().registered)
    kept, inside = [], 0
    while not inside and len(kept) < 500:
        kept.append(torch.full((1 << 17,), float(dist.get_rank() + 1)))
        inside = first <= kept[-1].data_ptr() and kept[-1].data_ptr() + kept[-1].nbytes <= end
    dist.all_reduce(kept[-1])
    assert (kept[-1] == 3).all()
    assert lockstep.torch.share(kept[0])
    registered.append(stats().registered)
    return registered


def test_a_registration_ends_with_the_storage(ranks, capfd):
    assert ranks(2, share_and_free, fresh=True) == [[1, 1, 0, 1]] * 2
    assert "LS-" not in capfd.readouterr().err


def share_many():
    """Rank 0 has shared one tensor more, so it is the first that has no place left. What it cannot share takes the last place
    of rank 1, too."""
    rank = dist.get_rank()
    kept = [torch.full((1024,), float(i)) for i in range(70)]
    lockstep.torch.share(torch.ones(1024) if rank == 0 else torch.ones(0))
    shared = [lockstep.torch.share(tensor) for tensor in kept]
    again = lockstep.torch.share(kept[0]), lockstep.torch.share(kept[0][1:])
    for tensor in kept:
        dist.all_reduce(tensor)
    assert [tensor[0].item() for tensor in kept] == [2.0 * i for i in range(70)]
    return shared.count(True), again, kept[-1].is_shared()


def test_more_shared_tensors_than_there_is_room_for_is_said_once(ranks):
    first, second = ranks(2, share_many, fresh=True)
    assert first == (63, (True, True), False)
    assert second == (63, (True, True), False)
    assert [text.count("LS-MEMORY-REGIONS") for text in ranks.written] == [1, 0]
    assert [text.count("LS-GROUP-REGISTER") for text in ranks.written] == [0, 1]


def share_in_a_group():
    """Memory belongs to all groups: what outlives the one that it came from ends all the same."""
    group = dist.new_group()
    tensor, block = torch.ones(100_000), lockstep.torch.ones(100_000, group=group)
    assert lockstep.torch.share(tensor, group)
    dist.destroy_process_group(group)
    before = stats()
    dist.all_reduce(tensor)
    dist.all_reduce(block)
    assert (tensor == 2).all() and (block == 2).all()
    del tensor, block
    gc.collect()
    left = tensor_left = torch.ones(100_000)
    assert lockstep.torch.share(left)
    after = stats()
    dist.destroy_process_group()
    del left, tensor_left
    gc.collect()
    return before.registered, after.registered, before.live_bytes - after.live_bytes >= 400_000


def test_memory_outlives_the_group_it_came_from(ranks, capfd):
    assert ranks(2, share_in_a_group, fresh=True) == [(1, 1, True)] * 2
    assert "LS-" not in capfd.readouterr().err


def arenas():
    """Of this process, whether its own or mapped of others."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return sum("lockstep-arena" in line for line in maps)


def start(path):
    rank, size = int(os.environ["TEST_RANK"]), int(os.environ["TEST_SIZE"])
    dist.init_process_group("lockstep", init_method=f"file://{path}", rank=rank, world_size=size)


def outlive_all_groups(path):
    before = arenas()
    start(path + "1")
    group = dist.new_group()
    tensor, of_group = lockstep.torch.ones(100_000), lockstep.torch.full((3,), 5.0, group=group)
    unused = lockstep.torch.empty(1 << 20)
    dist.all_reduce(tensor)
    parameter = nn.Parameter(lockstep.torch.ones(7))
    dist.destroy_process_group()
    kept = arenas() - before
    del unused
    gc.collect()
    (parameter * 2).sum().backward()
    parameter.data.add_(parameter.grad)
    tensor.add_(1)
    values = (tensor == 3).all().item(), of_group.tolist(), parameter.tolist()
    start(path + "2")
    dist.all_reduce(tensor)  # plain memory to the next group
    values += ((tensor == 6).all().item(),)
    dist.destroy_process_group()
    del tensor, of_group, parameter
    gc.collect()
    return values, kept, arenas() - before


def test_tensors_outlive_all_groups(ranks, tmp_path, capfd):
    expected = ((True, [5.0] * 3, [3.0] * 7, True), 1, 0)
    assert ranks(2, outlive_all_groups, str(tmp_path / "store"), backend=None) == [expected] * 2
    assert "LS-" not in capfd.readouterr().err


def let_go_while_it_ends(path):
    """Threads let tensors go while the group is being closed, and after it."""
    before = arenas()
    start(path)
    threads, count = [], 4
    ready = threading.Barrier(count + 1)

    def let_go(tensors):
        ready.wait()
        while tensors:
            tensors.pop()

    for _ in range(count):
        tensors = [lockstep.torch.ones(10) for _ in range(500)]
        threads.append(threading.Thread(target=let_go, args=(tensors,)))
        threads[-1].start()
    del tensors
    ready.wait()
    dist.destroy_process_group()
    for thread in threads:
        thread.join()
    threads.clear()
    gc.collect()
    return arenas() - before


def test_tensors_are_let_go_while_the_group_ends(ranks, tmp_path, capfd):
    for turn in range(3):
        assert ranks(2, let_go_while_it_ends, str(tmp_path / f"store{turn}"), backend=None) == [0, 0]
    assert "LS-" not in capfd.readouterr().err


def without_a_group():
    with pytest.raises(lockstep.BadArgument, match="open one first"):
        lockstep.torch.empty(3)


def test_memory_needs_a_group_of_this_backend(ranks):
    ranks(2, without_a_group, backend="gloo")


def train_model(hook):
    model = nn.parallel.DistributedDataParallel(
        seeded(Model), gradient_as_bucket_view=True, bucket_cap_mb=0.001, broadcast_buffers=False
    )
    before = stats().registered
    if hook:
        model.register_comm_hook(lockstep.torch.MappedBuckets(), lockstep.torch.mapped_buckets)
    losses = train(model, steps=5)
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return losses, gradients, stats().registered - before, [gradient.is_shared() for gradient in gradients]


def registered_at_last():
    """The threads that complete futures hold a bucket a moment longer than the wait for it takes."""
    deadline = time.monotonic() + 20
    while stats().registered and time.monotonic() < deadline:
        gc.collect()
        os.sched_yield()
    return stats().registered


def drop_model():
    """Gradients are views of buckets; with these gone nothing is registered."""
    model = nn.parallel.DistributedDataParallel(seeded(Model), gradient_as_bucket_view=True, bucket_cap_mb=0.001)
    state = lockstep.torch.MappedBuckets()
    model.register_comm_hook(state, lockstep.torch.mapped_buckets)
    train(model, steps=5)
    gc.collect()
    counts = stats().registered, len(model.reducer._get_zeros_like_grad_buckets())
    del model, state
    return *counts, registered_at_last()


def test_buckets_end_with_the_model(ranks):
    """DistributedDataParallel makes its buckets anew after the first step: those of before are no more."""
    for registered, buckets, left in ranks(2, drop_model, fresh=True):
        assert registered == buckets > 1 and left == 0


def test_buckets_that_peers_reach(ranks):
    """The same training, and gradients are views of shared memory."""
    plain = ranks(2, train_model, False, fresh=True)
    mapped = ranks(2, train_model, True, fresh=True)
    for one, other in zip(plain, mapped):
        assert all(torch.equal(a, b) for a, b in zip(one[0] + one[1], other[0] + other[1]))
        assert one[2] == 0 and other[2] > 1
        assert not any(one[3]) and all(other[3])
