# SPDX-License-Identifier: BSD-3-Clause
"""One rank of the tests: a process that lives through many of them, and runs what it is sent.

It keeps a default group as long as the jobs ask for the same one, since making groups for each of hundreds of tests
would cost more than the tests.
"""

import contextlib
import faulthandler
import gc
import os
import pickle
import signal
import traceback

import torch
import torch.distributed as dist

import lockstep.torch  # noqa: F401  registers the backend

gc.freeze()  # in the process that imports this last, and forks ranks: they would else look through, and so copy, all of PyTorch


class World:
    """The default group of this process, and one of the other backend with the same ranks."""

    def __init__(self):
        self.key = None
        self.lockstep = None
        self.gloo = None
        self.left = None  # the group of gloo that was left last

    def enter(self, key, rank):
        """`key`: (path of the store, backend, size), or None for no group at all."""
        if key is not None and self.key == key:
            return
        self.leave()
        if key is None:
            return
        path, backend, size = key
        dist.init_process_group(backend, store=dist.FileStore(path, size), rank=rank, world_size=size)
        other = dist.new_group(backend="gloo" if backend == "lockstep" else "lockstep")
        pair = (dist.group.WORLD, other) if backend == "lockstep" else (other, dist.group.WORLD)
        self.lockstep, self.gloo = pair
        self.key = key

    def leave(self):
        # The last reference to a group may be that of a callback which a thread of gloo is about to drop. That thread
        # would destroy the group, wait for its own end, and abort ("Resource deadlock avoided"). So it is kept until the
        # next one is left; for longer not, as threads of gloo that wake now and then delay the proof of a deadlock.
        self.left = self.gloo
        self.key = self.lockstep = self.gloo = None
        if dist.is_initialized():
            dist.destroy_process_group()


world = World()


def same(ours, theirs, tolerance=0.0):
    """Raises if two results differ: tensors in dtype, shape and values, all else by ==."""
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, torch.Tensor), f"{type(ours)} is no tensor"
        assert (ours.dtype, ours.shape) == (
            theirs.dtype,
            theirs.shape,
        ), f"{ours.dtype} {tuple(ours.shape)} instead of {theirs.dtype} {tuple(theirs.shape)}"
        torch.testing.assert_close(_bits(ours), _bits(theirs), rtol=tolerance, atol=tolerance, equal_nan=True)
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), f"{len(ours)} results instead of {len(theirs)}"
        for one, other in zip(ours, theirs):
            same(one, other, tolerance)
    elif isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key in theirs:
            same(ours[key], theirs[key], tolerance)
    else:
        assert ours == theirs, f"{ours!r} instead of {theirs!r}"


def _bits(tensor):
    """What assert_close can compare: some dtypes it only compares as bytes."""
    tensor = tensor.detach()
    if tensor.dtype.is_floating_point and tensor.element_size() == 1:
        return tensor.contiguous().view(torch.uint8)
    if tensor.dtype is torch.complex32:
        return torch.view_as_real(tensor)
    return tensor


def both(tolerance, function, *args):
    """The function's result with the group of Lockstep, which must be the same as with that of gloo."""
    theirs = function(world.gloo, *args)
    ours = function(world.lockstep, *args)
    same(ours, theirs, tolerance)


def against(tolerance, reference, function, *args):
    """The same for what gloo cannot: reference(rank, size, *args) computes in this process what is right."""
    theirs = reference(dist.get_rank(), dist.get_world_size(), *args)
    ours = function(world.lockstep, *args)
    same(ours, theirs, tolerance)


@contextlib.contextmanager
def _environment(names):
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _answer(job):
    with _environment(job["environment"]):
        return _answer_in(job)


def _answer_in(job):
    try:
        os.environ.update(TEST_RANK=str(job["rank"]), TEST_SIZE=str(job["size"]))  # for those that make their own group
        world.enter(job["world"], job["rank"])
        return pickle.dumps((job["function"](*job["args"]), None, ""))
    except BaseException as error:
        text = traceback.format_exc()
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            error = RuntimeError(f"{type(error).__name__}: {error}")
        return pickle.dumps((None, error, text))


def serve(connection, messages):
    """Runs jobs until there are no more. Standard error goes into the file `messages`."""
    file = os.open(messages, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 2)
    faulthandler.enable(file=2)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it runs in the background ignore it
    torch.set_num_threads(1)
    while True:
        try:
            job = pickle.loads(connection.recv_bytes())
        except EOFError:
            return
        faulthandler.dump_traceback_later(job["limit"], exit=True, file=2)
        answer = _answer(job)
        faulthandler.cancel_dump_traceback_later()
        connection.send_bytes(answer)
