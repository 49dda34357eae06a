# SPDX-License-Identifier: BSD-3-Clause
"""What handlers of signals do in the middle of a call: raise, call themselves, end the group. Where that must hit one
step exactly, the step does it: a function of the library is replaced by one that goes on like a handler right after."""

import contextlib
import gc
import os
import signal
import threading
import time
import weakref

import lockstep
import pytest
import torch
import torch.distributed as dist
from lockstep import _communicator
from lockstep.torch import _collectives, _p2p, _work

from test_signals import store, when_waiting


class Library:
    """The library with some of its functions replaced."""

    def __init__(self, library, functions):
        self._library = library
        self._functions = functions

    def __getattr__(self, name):
        return self._functions.get(name) or getattr(self._library, name)


@contextlib.contextmanager
def replaced(**functions):
    modules = (_collectives, _p2p, _work, _communicator)
    before = [module.C for module in modules]
    for module, library in zip(modules, before):
        module.C = Library(library, functions)
    try:
        yield before[0]
    finally:
        for module, library in zip(modules, before):
            module.C = library


class Raised(Exception):
    """By a handler."""


# ---- handlers that raise ----

CALLS = {
    "async": ("ls_allreduce", lambda tensor: dist.all_reduce(tensor, async_op=True)),
    "isend": ("ls_send", lambda tensor: dist.isend(tensor, 1)),
    "irecv": ("ls_recv", lambda tensor: dist.irecv(tensor, 1)),
}


def begun_and_raised(name):
    """The operation goes on, and its tensor stays, though the call has not told that it was begun."""
    function, call = CALLS[name]
    pending = dist.group.WORLD.communicator.pending
    tensor = torch.full((100000,), float(dist.get_rank() + 1))
    if dist.get_rank() == 1:
        store().wait([f"raised {name}"])
        {"async": dist.all_reduce, "isend": lambda t: dist.recv(t, 0), "irecv": lambda t: dist.send(t, 0)}[name](tensor)
        dist.barrier()
        return tensor.unique().tolist(), 0

    def raising(*arguments):
        getattr(library, function)(*arguments)
        raise Raised

    with replaced(**{function: raising}) as library, pytest.raises(Raised):
        call(tensor)
    kept = len(pending)
    store().set(f"raised {name}", "1")
    dist.group.WORLD._wait_for_pending_works()
    dist.barrier()
    return tensor.unique().tolist(), kept


@pytest.mark.parametrize("check", ["0", "1"])
@pytest.mark.parametrize("name", list(CALLS))
def test_raised_when_begun(ranks, name, check):
    results = {"async": ([3.0], [3.0]), "isend": ([1.0], [1.0]), "irecv": ([2.0], [2.0])}[name]
    with ranks.setting(LOCKSTEP_CHECK=check):
        assert ranks(2, begun_and_raised, name) == [(results[0], 1), (results[1], 0)]


def called_in_between(name):
    """A handler begins an operation of its own after another call has copied its tensors, and before that one begins."""
    first, other = torch.ones(3), torch.ones(2)
    inner = []

    def making(*arguments):
        if not inner:
            inner.append(None)
            inner[0] = dist.barrier(async_op=True) if name == "barrier" else dist.all_reduce(other, async_op=True)
        return options()

    options = _collectives.call_options
    _collectives.call_options = making
    try:
        work = dist.all_reduce(first, async_op=True)
    finally:
        _collectives.call_options = options
    inner[0].wait()
    work.wait()
    return first.tolist(), other.tolist()


@pytest.mark.parametrize("check", ["0", "1"])
@pytest.mark.parametrize("name", ["barrier", "all_reduce"])
def test_called_in_between(ranks, name, check):
    other = [1.0] * 2 if name == "barrier" else [2.0] * 2
    with ranks.setting(LOCKSTEP_CHECK=check):
        assert ranks(2, called_in_between, name) == [([2.0] * 3, other)] * 2


def raised_before(name):
    """Nothing is left of an operation that was never begun."""
    function, call = CALLS[name]

    def raising(*arguments):
        raise Raised

    with replaced(**{function: raising}), pytest.raises(Raised):
        call(torch.ones(4))
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item(), len(dist.group.WORLD.communicator.pending)


@pytest.mark.parametrize("name", list(CALLS))
def test_raised_before_it_is_begun(ranks, name):
    assert ranks(2, raised_before, name, fresh=True) == [(2.0, 0)] * 2


# ---- handlers that call ----


def called_when_freed():
    """A handler asks for works, and waits for one, while its thread gives a handle back."""
    seen, sent = [], []
    works = [dist.all_reduce(torch.ones(3), async_op=True) for _ in range(3)]

    def handler(number, frame):
        seen.append([work.is_completed() for work in works])
        works[2].wait()

    def freeing(handle):
        if not sent:
            sent.append(handle)
            os.kill(os.getpid(), signal.SIGUSR1)
        library.ls_request_free(handle)

    before = signal.signal(signal.SIGUSR1, handler)
    with replaced(ls_request_free=freeing) as library:
        for work in works:
            work.wait()
    signal.signal(signal.SIGUSR1, before)
    total = torch.ones(1)
    dist.all_reduce(total)
    return len(seen), total.item()


def test_a_handler_asks_while_its_thread_does(ranks):
    assert ranks(2, called_when_freed, fresh=True) == [(1, 2.0)] * 2


def called_while_waiting():
    """A handler calls in the middle of a call of its thread, of the same kind: each has its own result."""
    other, tensors = dist.new_group([0, 1]), [torch.ones(3), torch.ones(3)]
    dist.all_reduce(torch.ones(1))  # its options are free to be taken
    if dist.get_rank() == 1:
        store().wait(["called"])
        dist.all_reduce(tensors[1], group=other)
        dist.all_reduce(tensors[0])
        return [tensor[0].item() for tensor in tensors]

    def handler(number, frame):
        store().set("called", "1")
        dist.all_reduce(tensors[1], group=other)

    before = signal.signal(signal.SIGUSR1, handler)
    thread = when_waiting(lambda: os.kill(os.getpid(), signal.SIGUSR1))
    dist.all_reduce(tensors[0])
    thread.join()
    signal.signal(signal.SIGUSR1, before)
    return [tensor[0].item() for tensor in tensors]


def test_a_handler_calls_what_its_thread_does(ranks):
    assert ranks(2, called_while_waiting, fresh=True) == [[2.0, 2.0]] * 2


def asked_before_it_is_known():
    """A handler asks for the work whose end its thread has just learnt of, before anything tells so."""
    freed, asked = [], []
    over = _work.Work._over

    def asking(work, status):
        if work not in asked:
            asked.append(work)
            asked.append(work.is_completed())
        over(work, status)

    def freeing(handle):
        freed.append(handle)
        library.ls_request_free(handle)

    with replaced(ls_request_free=freeing) as library, pytest.MonkeyPatch.context() as patch:
        patch.setattr(_work.Work, "_over", asking)
        dist.all_reduce(torch.ones(3), async_op=True).wait()
    return len(freed), asked[1]


def test_a_handle_is_given_back_once(ranks):
    assert ranks(2, asked_before_it_is_known, fresh=True) == [(1, True)] * 2


# ---- handlers that end the group ----

ENDED = {
    "all_reduce": lambda tensor: dist.all_reduce(tensor),
    "wait": lambda tensor: dist.all_reduce(tensor, async_op=True).wait(),
    "recv": lambda tensor: dist.recv(tensor, 1),
    "new_group": lambda tensor: dist.group.WORLD.communicator.from_members([0, 1], 99, 0, b"here"),
}


def ended_by_handler(name):
    """Rank 0 destroys the group in a handler while it waits; rank 1 learns of it by its next call."""
    group = dist.group.WORLD
    if dist.get_rank() == 1:
        store().wait(["ended"])
        try:
            dist.barrier()
        except lockstep.Error as error:
            return type(error).__name__, "rank 0" in str(error)
        return "no error", False
    before = signal.signal(signal.SIGUSR1, lambda number, frame: dist.destroy_process_group())
    meeting = store()
    thread = when_waiting(lambda: os.kill(os.getpid(), signal.SIGUSR1))
    try:
        ENDED[name](torch.ones(4))
        kind = "no error"
    except lockstep.Error as error:
        kind = type(error).__name__
    thread.join()
    signal.signal(signal.SIGUSR1, before)
    meeting.set("ended", "1")
    return kind, group.communicator.handle is None and not group.communicator.inside + group.communicator.waiting


@pytest.mark.parametrize("name", list(ENDED))
def test_ended_by_a_handler(ranks, name):
    assert ranks(2, ended_by_handler, name, fresh=True) == [("Aborted", True)] * 2


def ended_beside_calls():
    """Threads begin operations and wait for them while another one destroys the group: each ends, or says that it did
    not begin."""
    outcomes, begun = [], threading.Barrier(4)

    def work(number):
        try:
            for turn in range(1000):
                if turn == 20:
                    begun.wait()
                dist.isend(torch.ones(2), dist.get_rank(), tag=number).wait()
                dist.irecv(torch.ones(2), dist.get_rank(), tag=number).wait()
        except (lockstep.Error, ValueError) as error:  # PyTorch's own: there is no group
            outcomes.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    begun.wait()
    dist.destroy_process_group()
    for thread in threads:
        thread.join()
    return all(isinstance(one, (lockstep.Error, ValueError)) for one in outcomes)


def test_ended_beside_threads_that_call(ranks):
    assert ranks(1, ended_beside_calls, fresh=True) == [True]


def ended_beside_one_that_begins():
    """The group is not closed as long as a thread is in a call of it."""
    begins, waits, wait = threading.Event(), threading.Event(), _communicator.Communicator._await_others
    events = []

    def sending(*arguments):
        begins.set()
        waits.wait()
        events.append("sends")
        return library.ls_send(*arguments)

    def waiting(communicator, threads):
        if communicator.handle is None:
            waits.set()
        wait(communicator, threads)

    def send():
        try:
            dist.isend(torch.ones(2), 0)
        except lockstep.Error as error:
            events.append(type(error).__name__)

    thread = threading.Thread(target=send)
    with replaced(ls_send=sending) as library, pytest.MonkeyPatch.context() as patch:
        patch.setattr(_communicator.Communicator, "_await_others", waiting)
        thread.start()
        begins.wait()
        dist.destroy_process_group()
        events.append("closed")
        waits.set()
        thread.join()
    return events[0], sorted(events)


def test_ended_beside_a_thread_that_begins(ranks):
    assert ranks(1, ended_beside_one_that_begins, fresh=True) == [("sends", ["Aborted", "closed", "sends"])]


# ---- groups that are left while they are made ----


def left_while_made():
    """Ctrl-C while rank 1 is late: the group is made all the same, and its member there learns that rank 0 is not in it."""
    world = dist.group.WORLD.communicator
    if dist.get_rank() == 1:
        store().wait(["left"])
        group = world.from_members([0, 1], 99, 0, b"here")
        status = _collectives.C.ls_barrier(group.handle, None)
        outcome = type(group.error(status)).__name__, group.failure()[1]
        group.close("it is over")
        return outcome

    def interrupt():
        while len(world.inside) < 2:  # the thread that makes the group, too
            pause.wait(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    pause, thread = threading.Event(), threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        world.from_members([0, 1], 99, 0, b"here")
    thread.join()
    store().set("left", "1")
    while world.inside:
        pause.wait(0.001)
    return None


def test_a_group_that_is_left_while_it_is_made(ranks):
    assert ranks(2, left_while_made, fresh=True) == [None, ("PeerLeft", 0)]


def destroyed_when_made():
    """A handler destroys the group just when one of its members is made: that is gone, too."""
    world, pause = dist.group.WORLD.communicator, threading.Event()

    def making(*arguments):
        status = library.ls_group_from_members(*arguments)
        os.kill(os.getpid(), signal.SIGUSR1)
        while world.deferred is None:
            pause.wait(0.001)
        return status

    signal.signal(signal.SIGUSR1, lambda number, frame: dist.destroy_process_group())
    with replaced(ls_group_from_members=making) as library, pytest.raises(lockstep.Aborted):
        world.from_members([0], 99, 0, b"here")
    return world.handle


def test_destroyed_when_a_member_is_made(ranks):
    assert ranks(1, destroyed_when_made, fresh=True) == [None]


def failing_call():
    def making(*arguments):
        raise Raised

    with replaced(ls_group_from_members=making), pytest.raises(Raised):
        dist.group.WORLD.communicator.from_members([0], 99, 0, b"here")


def test_what_fails_in_the_thread_that_makes_a_group(ranks):
    ranks(1, failing_call)


# ---- many ----


def many_unwaited(count):
    """How often it is asked whether an operation is over, for each that is begun while a peer is late."""
    asked = [0]
    if dist.get_rank() == 1:
        store().wait(["begun"])
        works = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(count)]
        return [work.wait() for work in works].count(True)

    def test(handle):
        asked[0] += 1
        return library.ls_test(handle)

    with replaced(ls_test=test) as library:
        works = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(count)]
    store().set("begun", "1")
    for work in works:
        work.wait()
    return asked[0] / count


def test_many_that_nobody_waits_for(ranks):
    per_call, waited = ranks(2, many_unwaited, 3000, fresh=True)
    assert per_call < 5 and waited == 3000


# ---- two at once ----

CALLED = {
    "in C": lambda tensor: dist.all_reduce(tensor),
    "in Python": lambda tensor: dist.broadcast(tensor, 1),
}


def raised_twice(name):
    """The second handler raises while the first one's exception leaves the call: the tensor stays all the same."""
    tensor = torch.full((100000,), float(dist.get_rank() + 1))
    if dist.get_rank() == 1:
        store().wait(["raised twice"])
        CALLED[name](tensor)
        dist.barrier()
        return None

    def handler(number, frame):
        raise Raised

    def send():
        for number in numbers:
            os.kill(os.getpid(), number)

    numbers = (signal.SIGUSR1, signal.SIGUSR2)
    before = [signal.signal(number, handler) for number in numbers]
    thread = when_waiting(send)
    with pytest.raises(Raised):
        CALLED[name](tensor)
    thread.join()
    for number, handler in zip(numbers, before):
        signal.signal(number, handler)
    kept = weakref.ref(tensor)
    del tensor
    gc.collect()
    there = kept() is not None
    store().set("raised twice", "1")
    dist.barrier()
    return there


@pytest.mark.parametrize("name", list(CALLED))
def test_two_handlers_that_raise(ranks, name):
    assert ranks(2, raised_twice, name, fresh=True) == [True, None]


# ---- futures ----


def raised_while_asked():
    """The first request for a future does not come to the end; the second one has one that is completed."""
    call, raised, tensor = _work.Completer._call_leader, [], torch.ones(2)
    if dist.get_rank() == 1:
        store().wait(["asked"])
        dist.all_reduce(tensor)
        return True, tensor.tolist()

    def raising(completer):
        if not raised:
            raised.append(completer)
            raise Raised
        call(completer)

    work = dist.all_reduce(tensor, async_op=True)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Raised):
        patch.setattr(_work.Completer, "_call_leader", raising)
        work.get_future()
    future, end = work.get_future(), time.monotonic() + 10
    store().set("asked", "1")
    while not future.done() and time.monotonic() < end:
        time.sleep(0.001)
    return future.done(), tensor.tolist()


def test_raised_while_a_future_is_asked_for(ranks):
    assert ranks(2, raised_while_asked, fresh=True) == [(True, [2.0, 2.0])] * 2
