# SPDX-License-Identifier: BSD-3-Clause
"""What happens while the results of an operation are copied to where the caller wants them: a handler of a signal raises,
another thread or a handler waits for the same operation. Whoever is told that it is over finds all results."""

import contextlib
import os
import signal
import threading
from functools import partial

import lockstep
import pytest
import torch
import torch.distributed as dist
from lockstep import _communicator
from lockstep.torch import _work


class Raised(Exception):
    """By a handler."""


ELEMENTS = 12


def strided():
    """Each gets its result from a copy."""
    return [torch.full((4, ELEMENTS // 4), 1.0).t() for _ in range(3)]


def begun(tensors, beside=True):
    options = dist.AllreduceCoalescedOptions()
    options.asyncOp = beside
    return dist.group.WORLD.allreduce_coalesced(tensors, options)


def begun_strided():
    """(Work, its tensors)"""
    tensors = strided()
    return begun(tensors), tensors


def have_results(tensors):
    return all(tensor.eq(2).all().item() for tensor in tensors)


@contextlib.contextmanager
def copying(act):
    """`act` runs when the first result has been copied; the results of a checked group are copied twice."""
    copied, copy = [], torch.Tensor.copy_

    def acting(target, source):
        if target.numel() == ELEMENTS and not target.is_contiguous():
            copied.append(target)
            if len(copied) == 2:
                act()
        return copy(target, source)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "copy_", acting)
        yield


def raised_while_copied(kind):
    work, tensors = begun_strided()

    def handler(number, frame):
        raise kind

    before = signal.signal(signal.SIGUSR1, handler)
    with copying(lambda: os.kill(os.getpid(), signal.SIGUSR1)), pytest.raises(kind):
        work.wait()
    signal.signal(signal.SIGUSR1, before)
    early = have_results(tensors)
    work.wait()
    return early, have_results(tensors), work.is_success(), len(dist.group.WORLD.communicator.pending)


@pytest.mark.parametrize("check", ["0", "1"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, Raised])
def test_raised_while_results_are_copied(ranks, kind, check):
    """The next wait copies them."""
    with ranks.setting(LOCKSTEP_CHECK=check):
        assert ranks(2, raised_while_copied, kind) == [(False, True, True, 0)] * 2


def raised_in_a_blocking_call(kind):
    tensors = strided()

    def handler(number, frame):
        raise kind

    before = signal.signal(signal.SIGUSR1, handler)
    with copying(lambda: os.kill(os.getpid(), signal.SIGUSR1)), pytest.raises(kind):
        begun(tensors, beside=False)
    signal.signal(signal.SIGUSR1, before)
    dist.group.WORLD._wait_for_pending_works()
    return have_results(tensors)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Raised])
def test_raised_while_a_blocking_call_copies(ranks, kind):
    assert ranks(2, raised_in_a_blocking_call, kind) == [True] * 2


def waited_while_copied(beside):
    """Whether the results were there, for each wait that has returned."""
    work, tensors = begun_strided()
    there, returned, threads = [], threading.Event(), []

    def wait():
        if work.is_completed() and work.wait():
            there.append(have_results(tensors))
            returned.set()

    def act():
        if not beside:
            wait()
            return
        threads.append(threading.Thread(target=wait))
        threads[0].start()
        returned.wait(0.2)  # it must not return

    with copying(act):
        work.wait()
    there.append(have_results(tensors))
    for thread in threads:
        thread.join()
    return there


@pytest.mark.parametrize("check", ["0", "1"])
@pytest.mark.parametrize("beside", [True, False], ids=["thread", "handler"])
def test_waited_for_while_results_are_copied(ranks, beside, check):
    with ranks.setting(LOCKSTEP_CHECK=check):
        assert ranks(2, waited_while_copied, beside) == [[True, True]] * 2


def asked_while_the_error_is_made():
    """A thread asks for a failed operation while another one, which has learnt of its end, asks for the reason."""
    communicator = dist.group.WORLD.communicator
    work = dist.all_reduce(torch.ones(3 + dist.get_rank()), async_op=True)
    error, told, threads, returned = communicator.error, [], [], threading.Event()

    def wait():
        try:
            told.append(work.wait())
        except lockstep.Mismatch:
            told.append("mismatch")
        returned.set()

    def asking(status):
        threads.append(threading.Thread(target=wait))
        threads[0].start()
        returned.wait(0.2)  # it must not return
        return error(status)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(lockstep.Mismatch):
        patch.setattr(communicator, "error", asking)
        work.wait()
    threads[0].join()
    return told


def test_asked_for_while_the_error_is_made(ranks):
    assert ranks(2, asked_while_the_error_is_made, fresh=True) == [["mismatch"]] * 2


def left_in_the_list():
    """Works that a handler has kept from leaving the list of what is under way, by raising just before."""
    pending = dist.group.WORLD.communicator.pending
    works = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(_communicator.SWEEP)]
    for work in works:
        work.wait()
    pending.update((id(work), work) for work in works)
    dist.all_reduce(torch.ones(1), async_op=True).wait()
    return len(pending) < len(works)


def test_works_that_are_left_in_the_list(ranks):
    assert ranks(2, left_in_the_list, fresh=True) == [True] * 2


def judged(raises):
    """Whether an error from Python code of PyTorch is taken for that of a handler."""
    code = "def fail(*_):\n    raise Raised\n\ndef run(call):\n    call()\n"
    scope = {"Raised": Raised}
    exec(compile(code, os.path.join(os.path.dirname(torch.__file__), "code.py"), "exec"), scope)
    before = signal.signal(signal.SIGUSR1, scope["fail"] if raises == "handler" else signal.SIG_DFL)
    try:
        scope["run"](partial(os.kill, os.getpid(), signal.SIGUSR1) if raises == "handler" else scope["fail"])
    except Raised as error:
        return _work._is_of_handler(error.with_traceback(error.__traceback__.tb_next))  # without the frame of this function
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_handlers_of_pytorch():
    assert [judged(raises) for raises in ("handler", "function")] == [True, False]
