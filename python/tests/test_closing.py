# SPDX-License-Identifier: BSD-3-Clause
"""Groups that end while something of them goes on: calls of other threads, groups that were made of them, operations. And
groups that the program lets go of."""

import contextlib
import gc
import os
import signal
import threading
import time
import weakref

import lockstep.torch
import pytest
import torch
import torch.distributed as dist
from lockstep import _communicator
from lockstep.torch import _phases

from test_interrupted import Library, replaced
from test_signals import store

LIMIT_S = 10  # for what other threads do at once; a group that does not wait for them is faster


# ---- calls of other threads ----


@contextlib.contextmanager
def told_when_it_ends(function, events, *modules):
    """`function` of the library, called by another thread, begins only when the group's last step has begun, or when it
    waits for this call. What comes first is in `events`."""
    main, called, goes = threading.get_ident(), threading.Event(), threading.Event()
    others = _communicator.Communicator._others

    def calling(*arguments):
        if threading.get_ident() != main:
            called.set()
            goes.wait(LIMIT_S)
            events.append("called")
        return getattr(library, function)(*arguments)

    def closing(*arguments):
        events.append("closes")
        goes.set()
        return library.ls_group_close(*arguments)

    def waited_for(communicator, threads):
        found = others(communicator, threads)
        if called.is_set() and found:
            goes.set()
        return found

    functions = {function: calling, "ls_group_close": closing}
    with replaced(**functions) as library, pytest.MonkeyPatch.context() as patch:
        for module in modules:
            patch.setattr(module, "C", Library(library, functions))
        patch.setattr(_communicator.Communicator, "_others", waited_for)
        yield called


ASKED = {
    "abort": ("ls_group_abort", lambda group: group.abort()),
    "error": ("ls_group_failure", lambda group: group.error()),
    "phase": ("ls_phase_begin", lambda group: lockstep.torch.phase("data", group).__enter__()),
    "phase_report": ("ls_phase_report", lambda group: lockstep.torch.phase_report(group)),
}


def asked_while_closed(name):
    function, ask = ASKED[name]
    events, group = [], dist.group.WORLD
    with told_when_it_ends(function, events, _phases) as called:
        thread = threading.Thread(target=ask, args=(group,))
        thread.start()
        called.wait()
        dist.destroy_process_group()
        thread.join()
    return events


@pytest.mark.parametrize("name", list(ASKED))
def test_a_group_stays_while_a_thread_asks_it(ranks, name):
    assert ranks(1, asked_while_closed, name, fresh=True) == [["called", "closes"]]


def failed_while_closed():
    """Why a call has failed is asked by its own thread, before the group is gone."""
    events, kinds, group = [], [], dist.group.WORLD
    if dist.get_rank() == 1:
        store().wait(["closed"])
        return None

    def call():
        try:
            dist.barrier()
        except lockstep.Error as error:
            kinds.append(type(error).__name__)

    meeting = store()
    with told_when_it_ends("ls_group_failure", events):
        thread = threading.Thread(target=call)
        thread.start()
        while not group.communicator.inside:
            pass
        dist.destroy_process_group()
        thread.join()
    meeting.set("closed", "1")
    return events, kinds


def test_a_group_stays_while_a_thread_raises_its_error(ranks):
    (events, kinds), _ = ranks(2, failed_while_closed, fresh=True)
    assert events == ["called", "closes"] and kinds == ["Aborted"]


CALLS = {
    "a call in C": lambda group: group.allreduce([torch.ones(4)], blocking(dist.AllreduceOptions())),
    "a call": lambda group: group.allreduce_coalesced([torch.ones(4)], blocking(dist.AllreduceCoalescedOptions())),
    "a wait": lambda group: group.barrier().wait(),
    "a future": lambda group: group.barrier().get_future().wait(),
    "making a group": lambda group: group.communicator.from_members([0, 1], 99, 0, b"here"),
}


def blocking(options):
    options.asyncOp = False
    return options


def closed_from_outside(name):
    """The thread that closes the group sleeps until the other one has left it, and does not look by itself."""
    group, errors, meeting = dist.group.WORLD, [], store()
    dist.all_reduce(torch.ones(4))  # the next one goes the way of C
    communicator = group.communicator
    if dist.get_rank() == 1:
        meeting.set("summed", "1")
        meeting.wait(["closed"])
        return None
    meeting.wait(["summed"])  # else the close may abort that sum on rank 1

    def call():
        try:
            CALLS[name](group)
        except Exception as error:
            errors.append(error)

    thread, slice_s = threading.Thread(target=call), _communicator._SLICE_S
    thread.start()
    while not communicator.inside + communicator.waiting and thread.is_alive():
        pass
    _communicator._SLICE_S = 1000.0
    try:
        dist.destroy_process_group()
    finally:
        _communicator._SLICE_S = slice_s
    thread.join()
    meeting.set("closed", "1")
    return len(errors), communicator.closed


@pytest.mark.parametrize("name", list(CALLS))
def test_whoever_leaves_a_group_wakes_the_thread_that_closes_it(ranks, name):
    assert ranks(2, closed_from_outside, name, fresh=True) == [(1, True), None]


def closed_by_two(number):
    """Threads that close a group at once: all return when it is closed."""
    group = dist.group.WORLD
    threads = [threading.Thread(target=group.shutdown) for _ in range(number)]
    slice_s, _communicator._SLICE_S = _communicator._SLICE_S, 1000.0
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        _communicator._SLICE_S = slice_s
    return group.communicator.closed


def test_several_threads_close_a_group(ranks):
    assert ranks(2, closed_by_two, 4, fresh=True) == [True, True]


# ---- groups that were made of it ----


def closed_with_its_parts(path):
    """torch.distributed shuts groups down in the order of their names, and the default one is "0" unless an attempt to make
    it has failed before."""
    dist.distributed_c10d._world.group_count = 9
    rank, size = int(os.environ["TEST_RANK"]), int(os.environ["TEST_SIZE"])
    order, close = [], _communicator.C.ls_group_close
    dist.init_process_group("lockstep", store=dist.FileStore(path, size), rank=rank, world_size=size)
    part = dist.new_group([0, 1])
    names = {part.communicator._group: "part", dist.group.WORLD.communicator._group: "world"}
    works = [dist.all_reduce(torch.ones(4), group=part, async_op=True) for _ in range(3)]
    dist.barrier(group=part)  # they are over, and nobody has asked yet

    def closing(group):
        order.append(names[group])
        close(group)

    with replaced(ls_group_close=closing):
        dist.destroy_process_group()
    return order, [work.is_completed() for work in works]


def test_what_was_made_of_a_group_is_closed_before_it(ranks, tmp_path):
    assert ranks(2, closed_with_its_parts, str(tmp_path / "store"), backend=None) == [(["part", "world"], [True] * 3)] * 2
    assert ranks.written == ["", ""]


def ended_in_a_part(name):
    """Rank 0 destroys all groups in a handler while it waits in one that was made of another one."""
    world, part = dist.group.WORLD.communicator, dist.new_group([0, 1])
    if dist.get_rank() == 1:
        store().set("made", "1")
        store().wait(["ended"])
        with pytest.raises(lockstep.Error) as caught:
            dist.barrier(group=part)
        return type(caught.value).__name__, "rank 0" in str(caught.value)
    before, meeting = signal.signal(signal.SIGUSR1, lambda number, frame: dist.destroy_process_group()), store()
    meeting.wait(["made"])  # else the end may abort the making of the group on rank 1

    def interrupt():
        while not part.communicator.inside + part.communicator.waiting:
            pause.wait(0.001)
        os.kill(os.getpid(), signal.SIGUSR1)

    pause, thread = threading.Event(), threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(lockstep.Error) as caught:
        if name == "blocking":
            dist.all_reduce(torch.ones(4), group=part)
        else:
            dist.all_reduce(torch.ones(4), group=part, async_op=True).wait()
    thread.join()
    signal.signal(signal.SIGUSR1, before)
    meeting.set("ended", "1")
    return type(caught.value).__name__, world.closed and part.communicator.closed


@pytest.mark.parametrize("name", ["blocking", "wait"])
def test_ended_by_a_handler_in_a_part(ranks, name):
    assert ranks(2, ended_in_a_part, name, fresh=True) == [("Aborted", True)] * 2
    assert not any("LS-GROUP-ARGUMENT" in text for text in ranks.written)


# ---- groups that the program lets go of ----


def another(name):
    return lockstep.torch.process_group(dist.PrefixStore(name, store()), dist.get_rank(), dist.get_world_size())


def let_go(ends):
    """What is still there of each group."""
    closed = []
    for number in range(3):
        group = another(f"{ends} {number}")
        group.barrier().wait()
        dist.barrier()  # no rank is in the other one any more
        communicator = group.communicator
        getattr(group, ends, lambda: None)()
        del group
        end = time.monotonic() + LIMIT_S
        while not communicator.closed and time.monotonic() < end:
            time.sleep(0.001)
        closed.append(communicator.closed)
    return closed


@pytest.mark.parametrize("ends", ["", "abort"])
def test_a_group_ends_when_it_is_let_go(ranks, ends):
    assert ranks(2, let_go, ends, fresh=True) == [[True] * 3] * 2


def let_go_under_way(waits):
    """Nothing of an operation goes before it is over, and whoever has kept its Work can wait for it."""
    group = another(f"under way {waits}")
    group.barrier().wait()
    tensor = torch.ones(100000)
    if dist.get_rank() == 1:
        store().wait(["let go"])
        group.allreduce(tensor).wait()
        return tensor.unique().tolist()
    work, kept = group.allreduce(tensor), weakref.ref(tensor)
    if not waits:
        del work
    del group, tensor
    gc.collect()
    tensor = kept()
    there = tensor is not None
    store().set("let go", "1")
    if waits:
        work.wait()
        return tensor.unique().tolist()
    return there


@pytest.mark.parametrize("waits", [True, False])
def test_operations_of_a_group_that_is_let_go(ranks, waits):
    first, second = ranks(2, let_go_under_way, waits, fresh=True)
    assert second == [2.0] and first == ([2.0] if waits else True)
