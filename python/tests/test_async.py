# SPDX-License-Identifier: BSD-3-Clause
"""Operations that go on beside their caller: Work, its futures, and what is chained to them."""

import threading
import time
from datetime import timedelta

import lockstep
import pytest
import torch
import torch.distributed as dist


def calls(group):
    """name → a function that begins it and gives (work, tensors with the result)"""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    mine = lambda: torch.arange(12.0) + rank  # noqa: E731
    empty = lambda n=12: torch.zeros(n)  # noqa: E731

    def begin(call, *tensors, **options):
        return call(*tensors, group=group, async_op=True, **options)

    def all_reduce():
        tensor = mine()
        return begin(dist.all_reduce, tensor), [tensor]

    def broadcast():
        tensor = mine()
        return begin(dist.broadcast, tensor, src=1), [tensor]

    def reduce():
        tensor = mine()
        return begin(dist.reduce, tensor, dst=0), [tensor] if rank == 0 else []

    def all_gather():
        parts = [empty() for _ in range(size)]
        return begin(dist.all_gather, parts, mine()), parts

    def all_gather_into_tensor():
        tensor = empty(12 * size)
        return begin(dist.all_gather_into_tensor, tensor, mine()), [tensor]

    def gather():
        parts = [empty() for _ in range(size)] if rank == 0 else []
        return begin(dist.gather, mine(), parts if rank == 0 else None, dst=0), parts

    def scatter():
        tensor = empty()
        parts = [torch.arange(12.0) + 10 * r for r in range(size)] if rank == 0 else None
        return begin(dist.scatter, tensor, parts, src=0), [tensor]

    def reduce_scatter():
        tensor = empty()
        return begin(dist.reduce_scatter, tensor, [mine() * r for r in range(size)]), [tensor]

    def reduce_scatter_tensor():
        tensor = empty()
        return begin(dist.reduce_scatter_tensor, tensor, mine().repeat(size)), [tensor]

    def all_to_all_single():
        tensor = empty(12 * size)
        return begin(dist.all_to_all_single, tensor, mine().repeat(size)), [tensor]

    def barrier():
        return begin(dist.barrier), []

    made = (all_reduce, broadcast, reduce, all_gather, all_gather_into_tensor, gather, scatter, reduce_scatter)
    return {call.__name__: call for call in (*made, reduce_scatter_tensor, all_to_all_single, barrier)}


NAMES = (
    "all_reduce broadcast reduce all_gather all_gather_into_tensor gather scatter reduce_scatter "
    "reduce_scatter_tensor all_to_all_single barrier"
).split()


def waited(group, name):
    work, tensors = calls(group)[name]()
    work.wait()
    assert work.is_completed() or dist.get_backend(group) == "gloo"  # whose reduce_scatter never says so
    return tensors


@pytest.mark.parametrize("name", NAMES)
def test_wait(ranks, name):
    ranks.both(2, waited, name)


def polled(group, name):
    """Never waited for: the library's own progress finishes it."""
    if dist.get_backend(group) == "gloo":
        return waited(group, name)
    work, tensors = calls(group)[name]()
    while not work.is_completed():
        pass
    return tensors


@pytest.mark.parametrize("name", NAMES)
def test_is_completed_becomes_true_by_itself(ranks, name):
    ranks.both(2, polled, name)


def by_future(group, name):
    if dist.get_backend(group) == "gloo":
        return waited(group, name)
    work, tensors = calls(group)[name]()
    work.get_future().wait()
    return tensors


@pytest.mark.parametrize("name", NAMES)
def test_futures(ranks, name):
    ranks.both(2, by_future, name)


def future_of_what_is_over(group, name):
    work, tensors = calls(group)[name]()
    work.wait()
    if dist.get_backend(group) == "lockstep":  # not all of gloo's have one
        future = work.get_future()
        assert future.done() and all(isinstance(part, torch.Tensor) for part in future.value())
    return tensors


@pytest.mark.parametrize("name", NAMES)
def test_a_future_that_is_asked_for_after_the_wait(ranks, name):
    """Also of operations that give nothing: a barrier, and a gather on all ranks but its root."""
    ranks.both(2, future_of_what_is_over, name)


def chained():
    tensor = torch.ones(5)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    halved = future.then(lambda f: f.value()[0] / 2)
    text = halved.then(lambda f: f"sum {f.value().sum().item()}")
    return text.wait(), future.done(), future.value()[0]


def test_chained_futures(ranks):
    ranks.default_both(2, chained)


def chained_with_communication(depth):
    """What is attached to a future communicates, and waits for it."""
    tensor = torch.ones(3)
    names = []

    def again(future):
        names.append(threading.current_thread().name)
        inner = dist.all_reduce(future.value()[0], async_op=True)
        inner.wait()
        return [future.value()[0]]

    future = dist.all_reduce(tensor, async_op=True).get_future()
    for _ in range(depth):
        future = future.then(again)
    return future.wait()[0]


def test_callbacks_that_communicate(ranks):
    for values in ranks(2, chained_with_communication, 3):
        assert values.tolist() == [16.0] * 3


def callbacks_wait_for_later_operations():
    """On rank 0 the first operation cannot be over before its callback is attached, which waits for the second."""
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 1:
        store.wait(["attached"])
    first = dist.all_reduce(torch.ones(2), async_op=True).get_future()
    later = []
    done = first.then(lambda future: future.value()[0] + later[0].wait()[0]) if dist.get_rank() == 0 else None
    later.append(dist.all_reduce(torch.full((2,), 10.0), async_op=True).get_future())
    store.set("attached", "1")
    return done.wait() if done else first.wait()[0] + later[0].wait()[0]


def test_callbacks_that_wait_for_later_operations(ranks):
    for values in ranks(2, callbacks_wait_for_later_operations, fresh=True):
        assert values.tolist() == [22.0] * 2


def out_of_order(count):
    """Works are waited for in the opposite order, and by several threads at once."""
    tensors = [torch.full((i + 1,), float(i)) for i in range(count)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    threads = [threading.Thread(target=work.wait) for work in works[::2] for _ in range(2)]
    for thread in threads:
        thread.start()
    for work in reversed(works):
        work.wait()
    for thread in threads:
        thread.join()
    return tensors


def test_waits_in_any_order_and_from_many_threads(ranks):
    ranks.default_both(2, out_of_order, 20)


def forgotten():
    """Nobody keeps the Work or the tensors; memory is not given away before the operation is over."""
    for _ in range(200):
        dist.all_reduce(torch.ones(1000), async_op=True)
    total = torch.ones(1)
    dist.all_reduce(total)  # now all before it are over, and the next one finds that out
    dist.all_reduce(torch.ones(1), async_op=True).wait()
    pending = len(dist.group.WORLD.communicator.pending)
    return total.item(), pending


def test_works_that_nobody_keeps(ranks):
    for total, pending in ranks(2, forgotten):
        assert total == 2.0 and pending <= 65  # it is looked which are over when there are as many


def error_in_callback():
    future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
    failing = future.then(lambda f: 1 / 0)
    try:
        failing.wait()
    except Exception as error:
        text = str(error)
    total = torch.ones(1)
    dist.all_reduce(total)
    return "division by zero" in text, total.item()


def test_an_error_in_a_callback_leaves_the_group_alone(ranks):
    assert ranks(2, error_in_callback) == [(True, 2.0)] * 2


def own_limit():
    """wait(timeout) gives up the wait, not the operation."""
    rank = dist.get_rank()
    store = dist.distributed_c10d._get_default_store()
    tensor = torch.ones(3)
    raised = None
    if rank == 0:
        work = dist.all_reduce(tensor, async_op=True)
        try:
            work.wait(timedelta(milliseconds=30))
        except lockstep.TimedOut as error:
            raised = isinstance(error, TimeoutError)
        store.set("limit-over", "1")
        work.wait()
    else:
        store.wait(["limit-over"])
        dist.all_reduce(tensor)
    return raised, tensor[0].item()


def test_a_wait_with_a_limit_of_its_own(ranks):
    assert ranks(2, own_limit, fresh=True) == [(True, 2.0), (None, 2.0)]


def attributes():
    tensor = torch.ones(3)
    work = dist.all_reduce(tensor, async_op=True)
    work.synchronize()
    return work.is_success(), work.exception(), work.result()[0].data_ptr() == tensor.data_ptr()


def test_what_a_work_tells(ranks):
    assert ranks(2, attributes) == [(True, None, True)] * 2


def resized_under_way():
    """PyTorch runs code of its own in Python within what brings the results."""
    group = dist.group.WORLD
    torch.set_default_device("cpu")
    try:
        tensor = torch.zeros(4, 4).t()
        work = dist.all_reduce(tensor, async_op=True)
        tensor.resize_(3, 3)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="invalid for input of size 16"):
                work.wait()
        over = work.is_completed()
        dist.destroy_process_group()
    finally:
        torch.set_default_device(None)
    return over, group.communicator.closed


def test_results_that_cannot_be_brought_beside_a_default_device(ranks):
    assert ranks(2, resized_under_way, fresh=True) == [(True, True)] * 2


def waiting_for_futures():
    """Rank 1 comes when rank 0 has asked for all futures. While what is chained to one runs, another thread waits."""
    number, completers = 40, lambda: sum(thread.name == "lockstep-futures" for thread in threading.enumerate())
    if dist.get_rank() == 1:
        dist.recv(torch.zeros(1), 0)
        for _ in range(number):
            dist.all_reduce(torch.ones(1))
        return 0, True
    works = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(number)]
    futures = [work.get_future() for work in works]
    counts = []
    chained = [future.then(lambda future: counts.append(completers())) for future in futures]
    end = time.monotonic() + 0.2
    while time.monotonic() < end:  # any that were called have come
        counts.append(completers())
    before = max(counts)
    dist.send(torch.ones(1), 1)
    for future in chained:
        future.wait()
    end = time.monotonic() + 10
    while completers() > 2 and time.monotonic() < end:
        pass
    return before, completers() <= 2


def test_one_thread_waits_for_many_futures(ranks):
    assert ranks(2, waiting_for_futures, fresh=True) == [(1, True), (0, True)]
