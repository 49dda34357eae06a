# SPDX-License-Identifier: BSD-3-Clause
"""Signals, threads and forks while a rank waits."""

import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import threading
import time

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

ROUNDS = 5


def store():
    return dist.distributed_c10d._get_default_store()


def when_waiting(action):
    """Runs it in another thread once the main thread waits in the library."""
    main = threading.main_thread().ident

    def watch():
        communicator = dist.group.WORLD.communicator
        pause = threading.Event()
        while main not in communicator.inside + communicator.waiting:
            pause.wait(0.001)
        action()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


WAITS = {
    "all_reduce": lambda tensor: dist.all_reduce(tensor),
    "barrier": lambda tensor: dist.barrier(),
    "recv": lambda tensor: dist.recv(tensor, 1),
    "wait": lambda tensor: dist.all_reduce(tensor, async_op=True).wait(),
    "irecv": lambda tensor: dist.irecv(tensor, 1).wait(),
}


def interrupted(name, round_):
    """Seconds from Ctrl-C until KeyboardInterrupt; rank 1 comes later, and the operation then ends as ever."""
    tensor = torch.ones(4)
    if dist.get_rank() == 1:
        store().wait([f"interrupted {round_}"])
        if "recv" in name:
            dist.send(torch.full((4,), 2.0), 0)
        else:
            WAITS[name](tensor)
        dist.barrier()
        return None
    sent = []

    def interrupt():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    def seconds(wait, thread):
        try:
            wait()
            took = None
        except KeyboardInterrupt:
            took = time.monotonic() - sent.pop()
        thread.join()
        return took

    took = seconds(lambda: WAITS[name](tensor), when_waiting(interrupt))
    store().set(f"interrupted {round_}", "1")
    dist.barrier()
    dist.group.WORLD._wait_for_pending_works()
    alone = threading.Timer(0.05, interrupt)
    alone.start()
    return took, seconds(lambda: time.sleep(60), alone), tensor[0].item()


@pytest.mark.parametrize("name", list(WAITS))
def test_control_c(ranks, name):
    took, pythons = [], []
    for round_ in range(ROUNDS):
        (seconds, sleep, value), _ = ranks(2, interrupted, name, f"{name} {round_}")
        assert seconds is not None, "no KeyboardInterrupt"
        assert value == (1.0 if name == "barrier" else 2.0), "what was interrupted goes on"
        took.append(seconds)
        pythons.append(sleep)
    # On a busy machine a thread of Python that sleeps is late, too.
    assert statistics.median(took) < 0.1 + 4 * statistics.median(pythons), (took, pythons)


def handled(number):
    """A handler in Python runs while the rank waits, as often as signals come, and nothing else happens."""
    if dist.get_rank() == 1:
        store().wait([f"handled {number}"])
        total = torch.ones(3)
        dist.all_reduce(total)
        return total[0].item()
    came = threading.Event()
    seen = []

    def handler(signal_, frame):
        seen.append(signal_)
        came.set()

    before = signal.signal(number, handler)

    def act():
        for _ in range(3):
            came.clear()
            if number == signal.SIGCHLD:
                subprocess.run(["true"], check=True)
            else:
                os.kill(os.getpid(), number)
            came.wait()
        store().set(f"handled {number}", "1")

    thread = when_waiting(act)
    total = torch.ones(3)
    dist.all_reduce(total)
    thread.join()
    signal.signal(number, before)
    return total[0].item(), len(seen)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGCHLD])
def test_handlers_in_python(ranks, number):
    (total, count), other = ranks(2, handled, number, fresh=True)
    assert total == other == 2.0 and count >= 3


def raising_handler():
    """An exception of a handler ends the wait like Ctrl-C; the operation goes on."""
    total = torch.ones(3)
    if dist.get_rank() == 1:
        store().wait(["raised"])
        dist.all_reduce(total)
        return total[0].item()

    def handler(signal_, frame):
        raise LookupError("from the handler")

    before = signal.signal(signal.SIGUSR1, handler)
    thread = when_waiting(lambda: os.kill(os.getpid(), signal.SIGUSR1))
    try:
        dist.all_reduce(total)
        return "no error"
    except LookupError:
        store().set("raised", "1")
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    dist.group.WORLD._wait_for_pending_works()
    return total[0].item()


def test_a_handler_that_raises(ranks):
    assert ranks(2, raising_handler, fresh=True) == [2.0, 2.0]


def other_threads(name):
    """Rank 1 only comes when a thread of rank 0 has worked, while its main thread waits."""
    tensor = torch.ones(4)
    if dist.get_rank() == 1:
        store().wait(["worked"])
        if "recv" in name:
            dist.send(torch.full((4,), 2.0), 0)
        else:
            WAITS[name](tensor)
        return None

    def work():
        steps = sum(1 for _ in range(100_000))
        store().set("worked", str(steps))

    thread = when_waiting(work)
    WAITS[name](tensor)
    thread.join()
    return tensor[0].item()


@pytest.mark.parametrize("name", list(WAITS))
def test_other_threads_run(ranks, name):
    value, _ = ranks(2, other_threads, name, fresh=True)
    assert value == (1.0 if name == "barrier" else 2.0)


# ---- forks ----


def loaded():
    """Workers of a DataLoader are forks of a rank with an open group."""
    multiprocessing.current_process()._config["daemon"] = False  # or it may have no children
    loader = DataLoader(TensorDataset(torch.arange(40.0)), batch_size=5, num_workers=2, multiprocessing_context="fork")
    total = torch.zeros(1)
    for (batch,) in loader:
        part = batch.sum().view(1)
        dist.all_reduce(part)
        total += part
    return total.item()


def test_workers_of_a_data_loader(ranks):
    assert ranks(2, loaded) == [1560.0] * 2


def forked():
    """What a forked child gets from each kind of call; its parent's group goes on."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        names = []
        calls = [
            lambda: dist.all_reduce(torch.ones(3)),
            lambda: dist.all_reduce(torch.ones(3), async_op=True),
            lambda: dist.barrier(),
            lambda: dist.send(torch.ones(3), 1 - dist.get_rank()),
            lambda: dist.recv(torch.ones(3), 1 - dist.get_rank()),
            lambda: dist.new_group(),
        ]
        for call in calls:
            try:
                call()
                names.append("none")
            except BaseException as error:
                names.append(type(error).__name__)
        os.write(writing, " ".join(names).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        names = pipe.read()
    os.waitpid(child, 0)
    total = torch.ones(3)
    dist.all_reduce(total)
    return names, total[0].item()


def test_a_forked_child_is_told_so(ranks):
    for names, total in ranks(2, forked, fresh=True):
        assert names.split()[:5] == ["Forked"] * 5, names
        assert names.split()[5] != "none"
        assert total == 2.0


# ---- the end of the interpreter ----

PROGRAM = """
import sys, torch, torch.distributed as dist, lockstep.torch
path, rank, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
store = dist.FileStore(path, 2)
dist.init_process_group("lockstep", store=store, rank=rank, world_size=2)
total = torch.ones(3)
dist.all_reduce(total)
if how == "pending":
    works = [dist.irecv(torch.zeros(3), 1 - rank), dist.all_reduce(total, async_op=True) if rank == 0 else None]
    future = works[0].get_future().then(lambda f: print("never", f.value()))
    store.set(f"begun {rank}", "")
    store.wait([f"begun {1 - rank}"])
elif how == "raises":
    # An abort ends all that is under way, so rank 0 must have its sum before.
    store.set("summed", "") if rank == 0 else store.wait(["summed"])
    if rank == 1:
        raise KeyError("no such sample")
    try:
        dist.all_reduce(total)
    except lockstep.Error as error:
        print(type(error).__name__, error)
elif how == "exit":
    sys.exit(5)
print("ends")
"""


def programs(path, how):
    """(exit code, output) of a program of two ranks that begin at once."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, path, str(rank), how],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        return [(process.communicate(timeout=60)[0], process.returncode) for process in running]
    finally:
        for process in running:
            process.kill()


def test_the_interpreter_ends_with_operations_under_way(tmp_path):
    """The first one to end gives them up for both, and says so."""
    outputs = ""
    for output, code in programs(str(tmp_path / "store"), "pending"):
        assert code == 0, output
        assert "ends" in output and "never" not in output
        outputs += output
    assert "under way that nobody has waited for" in outputs
    assert "called from <string>:9" in outputs, outputs


def test_peers_learn_which_exception_ended_a_rank(tmp_path):
    (first, code), (second, failed) = programs(str(tmp_path / "store"), "raises")
    assert (code, failed) == (0, 1), first + second
    assert "Traceback" in second and "KeyError" in second
    assert "Aborted" in first or "PeerLeft" in first, first
    assert "KeyError at <string>:17: 'no such sample'" in first, first


def test_the_interpreter_ends_without_destroy(tmp_path):
    for output, code in programs(str(tmp_path / "store"), "exit"):
        assert code == 5, output
        assert "Traceback" not in output
