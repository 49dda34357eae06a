# SPDX-License-Identifier: BSD-3-Clause
"""Messages between two ranks: blocking and not, in batches, from any source, with tags."""

import sys
import threading

import lockstep
import pytest
import torch
import torch.distributed as dist


def ring(group, dtype, count):
    """Each rank sends to the next one; the last one receives first, so that blocking sends of any length meet."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    mine = torch.full((count,), float(rank + 1)).to(getattr(torch, dtype))
    other = torch.zeros(count).to(getattr(torch, dtype))
    calls = [
        lambda: dist.send(mine, (rank + 1) % size, group=group),
        lambda: dist.recv(other, (rank - 1) % size, group=group),
    ]
    answers = [call() for call in (calls if rank < size - 1 else reversed(calls))]
    return other, next((answer for answer in answers if answer is not None), None)


@pytest.mark.parametrize("count", [0, 1, 1000, 1_000_000])
def test_send_and_recv(ranks, count):
    ranks.both(3, ring, "float32", count)


def ring_reference(rank, size, dtype, count):
    source = (rank - 1) % size
    return torch.full((count,), float(source + 1)).to(getattr(torch, dtype)), source


@pytest.mark.parametrize("dtype", "bool uint16 bfloat16 complex32 complex128 float8_e4m3fn".split())
def test_send_and_recv_of_dtypes(ranks, dtype):
    ranks.against(3, ring_reference, ring, dtype, 100)


def as_bytes(group):
    """Through the group itself, as torch.distributed's functions make two numbers of a complex one. The library has
    no such dtype, and moves its bytes."""
    mine, other = torch.full((9,), 2.0 + dist.get_rank()).to(torch.complex32), torch.zeros(9).to(torch.complex32)
    works = [group.send([mine], 1 - dist.get_rank(), 0), group.recv([other], 1 - dist.get_rank(), 0)]
    for work in works:
        work.wait()
    return other


def as_bytes_reference(rank, size):
    return torch.full((9,), 3.0 - rank).to(torch.complex32)


def test_dtypes_that_the_library_does_not_know(ranks):
    ranks.against(2, as_bytes_reference, as_bytes)


def any_source(group, count):
    """Rank 0 takes a message of each other rank in whatever order they come."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if rank > 0:
        dist.send(torch.full((count,), float(rank)), 0, group=group)
        return None
    found = {}
    for _ in range(size - 1):
        tensor = torch.zeros(count)
        source = dist.recv(tensor, group=group)
        found[source] = tensor
    return dict(sorted(found.items()))


@pytest.mark.parametrize("count", [3, 300_000])
def test_recv_from_any_source(ranks, count):
    ranks.both(4, any_source, count)


def coalesced(group, count):
    """Messages of a coalescing manager for a device are over when it ends."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    other = torch.zeros(count)
    with dist._coalescing_manager(group, device=torch.device("cpu")):
        dist.isend(torch.full((count,), float(rank)), (rank + 1) % size, group=group)
        dist.irecv(other, (rank - 1) % size, group=group)
    return other


def coalesced_reference(rank, size, count):
    return torch.full((count,), float((rank - 1) % size))


@pytest.mark.parametrize("count", [1, 100_000])
def test_messages_of_a_coalescing_manager(ranks, count):
    ranks.against(3, coalesced_reference, coalesced, count)


def tags(group):
    """Messages are taken in another order than they were sent in: their tags tell which is meant."""
    rank = dist.get_rank(group)
    if rank == 0:
        works = [dist.isend(torch.full((4,), float(tag)), 1, group=group, tag=tag) for tag in (7, 8, 9)]
        for work in works:
            work.wait()
        return None
    got = []
    for tag in (9, 7, 8):
        tensor = torch.zeros(4)
        dist.recv(tensor, 0, group=group, tag=tag)
        got.append(tensor)
    return got


def test_tags(ranks):
    ranks.both(2, tags)


def tags_any_source(group):
    rank = dist.get_rank(group)
    if rank > 0:
        dist.send(torch.full((4,), float(rank)), 0, group=group, tag=rank)
        return None
    got = []
    for tag in (2, 1):
        tensor = torch.zeros(4)
        got.append((dist.recv(tensor, group=group, tag=tag), tensor))
    return got


def test_tags_from_any_source(ranks):
    ranks.both(3, tags_any_source)


def both_ways(group, count):
    """Both ranks send before they receive, which only works if the sends do not block."""
    peer = 1 - dist.get_rank(group)
    mine, other = torch.arange(count) + dist.get_rank(group), torch.zeros(count, dtype=torch.int64)
    send = dist.isend(mine, peer, group=group)
    receive = dist.irecv(other, peer, group=group)
    receive.wait()
    send.wait()
    return other, send.is_completed(), receive.is_completed()


@pytest.mark.parametrize("count", [10, 500_000])
def test_isend_and_irecv(ranks, count):
    ranks.both(2, both_ways, count)


def batch(group, count):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    mine = torch.full((count,), float(rank))
    left, right = torch.zeros(count), torch.zeros(count)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, mine, (rank + 1) % size, group),
            dist.P2POp(dist.irecv, left, (rank - 1) % size, group),
            dist.P2POp(dist.isend, mine + 10, (rank - 1) % size, group),
            dist.P2POp(dist.irecv, right, (rank + 1) % size, group),
        ]
    )
    for work in works:
        work.wait()
    return left, right


@pytest.mark.parametrize("count", [1, 100_000])
def test_batch_isend_irecv(ranks, count):
    ranks.both(3, batch, count)


def beside(group):
    """A receive that waits delays neither a collective nor a message of another tag."""
    rank = dist.get_rank(group)
    late = torch.zeros(3)
    work = dist.irecv(late, 1 - rank, group=group, tag=1)
    total = torch.ones(3)
    dist.all_reduce(total, group=group)
    early = torch.zeros(3)
    if rank == 0:
        dist.send(torch.full((3,), 5.0), 1, group=group, tag=2)
        dist.recv(early, 1, group=group, tag=2)
    else:
        dist.recv(early, 0, group=group, tag=2)
        dist.send(torch.full((3,), 6.0), 0, group=group, tag=2)
    was_over = work.is_completed()
    dist.barrier(group=group)
    dist.send(torch.full((3,), 7.0), 1 - rank, group=group, tag=1)
    work.wait()
    return total, early, late, was_over


def test_a_waiting_receive_delays_nothing_else(ranks):
    ranks.both(2, beside)


def many(group, count, backwards):
    rank = dist.get_rank(group)
    if rank == 0:
        works = [dist.isend(torch.tensor([i]), 1, group=group, tag=i) for i in range(count)]
        for work in works:
            work.wait()
        return None
    got = []
    for i in reversed(range(count)) if backwards else range(count):
        tensor = torch.zeros(1, dtype=torch.int64)
        dist.recv(tensor, 0, group=group, tag=i)
        got.append(tensor.item())
    return got


@pytest.mark.parametrize("count,backwards", [(60, True), (1000, False)])
def test_many_messages(ranks, count, backwards):
    ranks.both(2, many, count, backwards)


def test_more_messages_than_a_box_holds_taken_backwards_are_a_deadlock_that_says_so(ranks):
    for outcome in ranks.outcomes(2, too_many):
        assert isinstance(outcome.error, lockstep.Deadlock), outcome.trace
        assert "64 messages of rank 0 to rank 1 that nobody receives" in str(outcome.error)


def too_many():
    many(dist.group.WORLD, 300, True)


def wrong_tags():
    pending = dist.group.WORLD.communicator.pending
    texts, before = [], len(pending)
    for tag in (-2, 1 << 30, (1 << 32) + 7):
        for call in (dist.send, dist.recv):
            try:
                call(torch.ones(1), 1 - dist.get_rank(), tag=tag)
            except lockstep.BadArgument as error:
                texts.append(str(error))
    return texts, len(pending) - before


def test_tags_that_do_not_fit(ranks):
    for texts, kept in ranks(2, wrong_tags):
        assert kept == 0
        assert len(texts) == 6 and all("tags are numbers from 0 to 1073741823" in text for text in texts)


def begun_beside_threads():
    """After any call of a function another thread may run, and begin an operation."""
    me, communicator = dist.get_rank(), dist.group.WORLD.communicator
    late = [dist.irecv(torch.ones(1), me, tag=tag) for tag in range(80)]
    others = []

    def run(frame, event, argument):
        if event == "c_return" and frame.f_code is type(communicator).sweep.__code__:
            others.append(object())
            communicator.pending[id(others[-1])] = late[0]

    sys.setprofile(run)
    try:
        dist.isend(torch.ones(1), me, tag=80)
    finally:
        sys.setprofile(None)
        for other in others:
            del communicator.pending[id(other)]
    for tag in range(80):
        dist.isend(torch.ones(1), me, tag=tag)
    dist.irecv(torch.ones(1), me, tag=80).wait()
    return len(others) > 0, [work.wait() for work in late].count(True)


def test_many_under_way_beside_other_threads(ranks):
    assert ranks(1, begun_beside_threads, fresh=True) == [(True, 80)]


def beside_a_coalescing_manager():
    """What another thread begins meanwhile is not waited for: here it comes only after what this thread does next."""
    other, me, late = 1 - dist.get_rank(), dist.get_rank(), torch.zeros(1)
    if me == 1:
        dist.recv(torch.zeros(1), 0)
        dist.recv(torch.zeros(1), 0, tag=1)
        dist.send(torch.ones(1), 0, tag=2)
        return 1.0
    works = []
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        dist.isend(torch.ones(1), other)
        thread = threading.Thread(target=lambda: works.append(dist.irecv(late, other, tag=2)))
        thread.start()
        thread.join()
    manager.wait()
    dist.send(torch.ones(1), other, tag=1)
    works[0].wait()
    return late.item()


def test_a_coalescing_manager_and_another_thread(ranks):
    assert ranks(2, beside_a_coalescing_manager) == [1.0, 1.0]
