# SPDX-License-Identifier: BSD-3-Clause
"""Many signals whose handlers raise, at any moment of calls of all kinds, in groups that the program then lets go of or ends.
What a call has returned with is right, on both ranks, and whatever a call has left under way, its memory stays."""

import contextlib
import os
import random
import signal
import threading
import time

import lockstep.torch
import pytest
import torch
import torch.distributed as dist

from test_interrupted import Raised
from test_signals import store

CYCLES = 600
LIMIT_S = 200


def blocking(kind, **fields):
    options = kind()
    options.asyncOp = False
    for name, value in fields.items():
        setattr(options, name, value)
    return options


def scatter(group, tensor, rank):
    parts = [[tensor.clone(), tensor.clone()]] if rank == 0 else []
    group.scatter([tensor], parts, blocking(dist.ScatterOptions, rootRank=0))


# What it does, and what all elements are then; before, they are the rank + 1.
CALLS = [
    (lambda group, tensor, rank: group.allreduce([tensor], blocking(dist.AllreduceOptions)), 3.0),
    (lambda group, tensor, rank: group.allreduce([tensor], blocking(dist.AllreduceOptions, reduceOp=dist.ReduceOp.MAX)), 2.0),
    (lambda group, tensor, rank: group.allreduce([tensor]).wait(), 3.0),
    (lambda group, tensor, rank: group.allreduce([tensor]).get_future().wait(), 3.0),
    (lambda group, tensor, rank: group.broadcast([tensor], blocking(dist.BroadcastOptions, rootRank=0, rootTensor=0)), 1.0),
    (lambda group, tensor, rank: (group.recv([tensor], 0, 0) if rank else group.send([tensor], 1, 0)).wait(), 1.0),
    (lambda group, tensor, rank: (group.send([tensor], 0, 0) if rank else group.recv([tensor], 1, 0)).wait(), 2.0),
    (scatter, 1.0),
]
ENDS = [lambda group: None, lambda group: None, lambda group: group.shutdown(), lambda group: group.abort()]


class Storm:
    """Of signals, while this process is in a call."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.rages = self.over = False
        self.before = [(number, signal.signal(number, self._handle)) for number in (signal.SIGUSR1, signal.SIGUSR2)]
        self.thread = threading.Thread(target=self._send, args=(random.Random(seed),))
        self.thread.start()

    def _handle(self, number, frame):
        if self.rages and self.random.random() < 0.8:
            raise Raised

    def _send(self, chance):
        while not self.over:
            time.sleep(chance.random() * 0.002)
            for number, share in (signal.SIGUSR1, 1), (signal.SIGUSR2, 0.5):
                if self.rages and chance.random() < share:
                    os.kill(os.getpid(), number)

    def blow(self, call):
        """Whether the call has returned."""
        returned = False
        with contextlib.suppress(Raised):
            try:
                self.rages = True
                call()
                returned = True
            finally:
                self.rages = False
        return returned

    def end(self):
        self.over = True
        self.thread.join()
        for number, handler in self.before:
            signal.signal(number, handler)


def cycle(name, chance, own, storm):
    """Whether the call has returned; for rank 1, whose partner may be gone, whether it has returned without an error."""
    rank, (call, right) = dist.get_rank(), chance.choice(CALLS)
    tensor = torch.full((chance.choice([1, 100, 5000, 300000]), 2), rank + 1.0)
    tensor = tensor.t() if chance.random() < 0.3 else tensor
    group = lockstep.torch.process_group(dist.PrefixStore(name, store()), rank, 2)
    time.sleep(own.random() * 0.004)
    if rank == 0:
        returned = storm.blow(lambda: call(group, tensor, rank))
    else:
        try:
            call(group, tensor, rank)
            returned = True
        except (lockstep.Error, RuntimeError):  # the second of a future
            returned = False
    assert not returned or (tensor == right).all(), (name, tensor.unique().tolist())
    inside = group.communicator.inside + group.communicator.waiting + group.communicator.visits
    assert threading.get_ident() not in inside, (name, inside)
    if rank == 0:
        own.choice(ENDS)(group)
    shape = tensor.shape
    del group, tensor
    used_again = [torch.full(shape, float("nan")) for _ in range(3)]
    store().add(f"{name} over", 1)
    while store().add(f"{name} over", 0) < 2:
        time.sleep(0.0005)
    del used_again
    return returned


def weathered(seed):
    chance, own = random.Random(seed), random.Random(2 * seed + dist.get_rank())
    storm = Storm(seed) if dist.get_rank() == 0 else None
    try:
        return sum(cycle(f"storm {seed} {number}", chance, own, storm) for number in range(CYCLES))
    finally:
        if storm is not None:
            storm.end()


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [1, 2])
def test_a_storm_of_signals(ranks, seed):
    for returned in ranks(2, weathered, seed, fresh=True, limit=LIMIT_S):
        assert 0 < returned < CYCLES
