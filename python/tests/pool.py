# SPDX-License-Identifier: BSD-3-Clause
"""The processes in which tests run as ranks: started once, given functions, replaced when they die.

They are forked from one server that has imported PyTorch, which costs seconds, and done nothing else with it; so
a process for a rank that a test has killed costs almost nothing.
"""

import contextlib
import multiprocessing
import os
import pickle
import time
from multiprocessing import connection

import worker

LIMIT_S = 120  # for what takes a second at most: a machine may be busy, and only a hang takes this long
_GRACE_S = 10  # for a process over its limit to say where it hung

PRELOAD = [
    "pytest",
    "lockstep.torch",
    "torch._dynamo",
    "torch._functorch.aot_autograd",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "worker",
]


class RankFailed(Exception):
    """A rank of a test raised what the test did not expect, or is gone."""


class Outcome:
    """How a job of one rank ended: with a value, with an exception and its trace, or with the end of the process."""

    def __init__(self, value=None, error=None, trace="", exitcode=None):
        self.value = value
        self.error = error
        self.trace = trace
        self.exitcode = exitcode

    @property
    def failed(self):
        return self.error is not None or self.exitcode is not None


class Rank:
    """One process, and what it writes to standard error."""

    def __init__(self, context, messages):
        self.messages = messages
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=worker.serve, args=(theirs, self.messages), daemon=True)
        self.process.start()
        theirs.close()

    def written(self, since=0):
        try:
            with open(self.messages, encoding="utf-8", errors="replace") as file:
                file.seek(since)
                return file.read()
        except FileNotFoundError:
            return ""

    def end(self):
        self.pipe.close()
        self.process.join(_GRACE_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class Pool:
    """Ranks 0, 1, … as far as tests have asked for them. A test of n ranks uses the first n."""

    def __init__(self, folder):
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(PRELOAD)
        self.folder = folder
        self.ranks = []
        self.epochs = 0
        self.world = None
        self.written = []  # of each rank of the last job
        self.environment = {}  # of jobs

    # ---- what tests call ----

    def __call__(self, size, function, *args, **options):
        """The values of function(*args) on all ranks; an exception if one has none."""
        outcomes = self.outcomes(size, function, *args, **options)
        if any(outcome.failed for outcome in outcomes):
            raise RankFailed(self._story(outcomes))
        return [outcome.value for outcome in outcomes]

    @contextlib.contextmanager
    def setting(self, **environment):
        """Jobs run with these variables, in groups of their own; other jobs do not see them."""
        self.environment, self.world = environment, None
        try:
            yield
        finally:
            self.environment, self.world = {}, None

    def both(self, size, function, *args, tolerance=0.0, **options):
        """function(group, *args) with a group of Lockstep, whose results must be those with a group of gloo."""
        return self(size, worker.both, tolerance, function, *args, **options)

    def against(self, size, reference, function, *args, tolerance=0.0, **options):
        """The same, with reference(rank, size, *args) in the place of gloo."""
        return self(size, worker.against, tolerance, reference, function, *args, **options)

    def default_both(self, size, function, *args, tolerance=0.0, **options):
        """function(*args) with gloo as the default group, then with Lockstep: the results must be the same."""
        theirs = self(size, function, *args, backend="gloo", **options)
        ours = self(size, function, *args, backend="lockstep", **options)
        for one, other in zip(ours, theirs):
            worker.same(one, other, tolerance)
        return ours

    def outcomes(self, size, function, *args, backend="lockstep", fresh=False, limit=LIMIT_S):
        """How the job ended on each rank. fresh: its default group is used by no other test; backend None: it makes
        its own."""
        self._fill(size)
        if backend is None:
            key = None
        elif fresh or self.world is None or self.world[1:] != (backend, size):
            self.epochs += 1
            key = (os.path.join(self.folder, f"store-{self.epochs}"), backend, size)
        else:
            key = self.world
        self.world = None if fresh else key
        ranks = self.ranks[:size]
        starts = [len(rank.written()) for rank in ranks]
        for number, rank in enumerate(ranks):
            job = {"function": function, "args": args, "world": key, "limit": limit, "rank": number, "size": size}
            job["environment"] = self.environment
            rank.pipe.send_bytes(pickle.dumps(job))
        outcomes = self._collect(ranks, time.monotonic() + limit + _GRACE_S)
        self.written = [rank.written(start) for rank, start in zip(ranks, starts)]
        if any(outcome.failed for outcome in outcomes):
            self.world = None
            if backend is None:  # PyTorch counts groups, also those that could not be made: ranks would not agree
                for rank in ranks:
                    rank.end()
        return outcomes

    def close(self):
        for rank in self.ranks:
            rank.end()
        self.ranks = []

    # ---- how ----

    def _messages(self, number):
        return os.path.join(self.folder, f"stderr-{number}-{time.monotonic_ns()}")

    def _make(self, number):
        return Rank(self.context, self._messages(number))

    def _fill(self, size):
        for number, rank in enumerate(self.ranks):
            if not rank.process.is_alive():
                rank.end()
                self.ranks[number] = self._make(number)
                self.world = None
        while len(self.ranks) < size:
            self.ranks.append(self._make(len(self.ranks)))

    def _collect(self, ranks, deadline):
        outcomes = [None] * len(ranks)
        while None in outcomes:
            open_ = {rank.pipe: number for number, rank in enumerate(ranks) if outcomes[number] is None}
            ready = connection.wait(list(open_), max(0, deadline - time.monotonic()))
            if not ready:
                for number in open_.values():
                    ranks[number].process.kill()
                    deadline += _GRACE_S
            for pipe in ready:
                outcomes[open_[pipe]] = self._outcome(ranks[open_[pipe]])
        return outcomes

    @staticmethod
    def _outcome(rank):
        try:
            return Outcome(*pickle.loads(rank.pipe.recv_bytes()))
        except (EOFError, ConnectionResetError):
            rank.process.join()
            return Outcome(exitcode=rank.process.exitcode)

    def _story(self, outcomes):
        parts = []
        for number, outcome in enumerate(outcomes):
            if outcome.exitcode is not None:
                parts.append(f"rank {number} ended with {outcome.exitcode}")
            elif outcome.error is not None:
                parts.append(f"rank {number} raised\n{outcome.trace}")
            else:
                parts.append(f"rank {number}: no error")
            if self.written[number]:
                parts.append(f"rank {number} wrote\n{self.written[number][-4000:]}")
        return "\n".join(parts)
