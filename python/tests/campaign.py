#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that are killed or stopped at random moments of a training with DistributedDataParallel, and what the others
then raise and report.

campaign.py [--kills N] [--stops N] [--pauses N] [--seed S] [--limit S] [--verbose] [--write-doc]

    kill   SIGKILL of one of three ranks: each survivor raises lockstep.PeerDied, which names it
    stop   SIGSTOP: standard error names it within a second (with --limit: before that time limit); at the time limit
           each survivor raises lockstep.TimedOut, which names it
    pause  SIGSTOP, and SIGCONT before the time limit: all go on

Ranks are forked from this process, which has imported everything and opened nothing, so that a case takes little time.
"""

import argparse
import json
import os
import random
import selectors
import shutil
import signal
import sys
import tempfile
import time
from datetime import timedelta

RANKS = 3
TIMEOUT_S = 2.0  # of the group, where ranks are stopped
PAUSED_TIMEOUT_S = 30.0  # and continued
READY_S = 60  # for all to begin, also on a machine that does much else
TRIES = 5
PROMPT_S = 1.0  # as promised; a machine that is short of processors takes longer
ENDS_S = 60  # for what ends by itself; no measure
PAUSE_S = (0.05, 1.0)  # between these
STEPS_AFTER = 20  # of each rank after a pause
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NAME = "python/tests/campaign.py --write-doc"


# ---- a rank ----


def train(rank, folder, timeout_s, tell):
    """Until the file "enough" is there, for rank 0 to see, or until something is raised."""
    import torch.distributed as dist

    import torch

    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group(
        "lockstep",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=RANKS,
        timeout=timedelta(seconds=timeout_s),
    )
    linear, relu = torch.nn.Linear, torch.nn.ReLU
    model = torch.nn.Sequential(linear(64, 256), relu(), linear(256, 256), relu(), linear(256, 64))
    model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    step, enough = 0, torch.zeros(1)
    while not enough.item():
        optimizer.zero_grad()
        model(torch.randn(16, 64)).pow(2).mean().backward()
        optimizer.step()
        enough[0] = rank == 0 and os.path.exists(f"{folder}/enough")
        dist.all_reduce(enough)
        step += 1
        if step >= 5:
            tell(event="step", step=step)
    dist.destroy_process_group()
    tell(event="end")


def be_rank(rank, folder, timeout_s, events):
    def tell(**what):
        os.write(events, (json.dumps(what) + "\n").encode())

    try:
        train(rank, folder, timeout_s, tell)
    except BaseException as error:
        now = time.monotonic()
        named = getattr(error, "rank", None)
        tell(event="error", at=now, type=type(error).__name__, text=str(error), rank=named)
    os._exit(0)


# ---- three of them ----


class Job:
    """Forked ranks, what they tell, and what they write on standard error, with the moment of each."""

    def __init__(self, timeout_s):
        self.folder = tempfile.mkdtemp(prefix="campaign")
        self.events = [[] for _ in range(RANKS)]
        self.errors = [[] for _ in range(RANKS)]  # (moment, text)
        self.selector = selectors.DefaultSelector()
        self.pids = [self._fork(rank, timeout_s) for rank in range(RANKS)]

    def _fork(self, rank, timeout_s):
        events, errors = os.pipe(), os.pipe()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            os.dup2(errors[1], 2)
            be_rank(rank, self.folder, timeout_s, events[1])
        os.close(events[1])
        os.close(errors[1])
        self.selector.register(events[0], selectors.EVENT_READ, (self._event, rank, bytearray()))
        self.selector.register(errors[0], selectors.EVENT_READ, (self._error, rank, bytearray()))
        return pid

    def _event(self, rank, line):
        self.events[rank].append(json.loads(line))

    def _error(self, rank, line):
        self.errors[rank].append((time.monotonic(), line.decode(errors="replace")))

    def until(self, condition, limit_s):
        """Whether the condition came true in time."""
        end = time.monotonic() + limit_s
        while not condition():
            left = end - time.monotonic()
            if left <= 0 or not self.selector.get_map():
                return condition()
            for key, _ in self.selector.select(left):
                handle, rank, rest = key.data
                data = os.read(key.fd, 65536)
                if not data:
                    self.selector.unregister(key.fd)
                    os.close(key.fd)
                rest += data
                while b"\n" in rest:
                    line, _, after = bytes(rest).partition(b"\n")
                    rest[:] = after
                    handle(rank, line)
        return True

    def steps(self, rank):
        return max((event["step"] for event in self.events[rank] if event["event"] == "step"), default=0)

    def all_begun(self):
        return all(self.steps(rank) for rank in range(RANKS))

    def error_of(self, rank):
        return next((event for event in self.events[rank] if event["event"] == "error"), None)

    def has_ended(self, rank):
        return any(event["event"] in ("error", "end") for event in self.events[rank])

    def said(self, ranks, *words):
        """The moment at which one of these ranks had written all the words in a line, None if none has."""
        moments = [at for rank in ranks for at, text in self.errors[rank] if all(word in text for word in words)]
        return min(moments, default=None)

    def close(self):
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        for pid in self.pids:
            os.waitpid(pid, 0)
        for key in list(self.selector.get_map().values()):
            os.close(key.fd)
        self.selector.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def story(self):
        lines = []
        for rank in range(RANKS):
            last = [event for event in self.events[rank] if event["event"] != "step"]
            lines += [f"rank {rank}: {self.steps(rank)} steps, {last}"]
            lines += [f"rank {rank} wrote: {text}" for _, text in self.errors[rank]]
        return "\n".join(lines)


# ---- one case: (what is wrong, or "", and the seconds that count) ----


def begun(random_, timeout_s):
    """A job at a random moment of its training, and the rank that it will lose. A rank that a busy machine leaves
    alone for as long as the time limit is not what is looked for here: then once more."""
    for _ in range(TRIES):
        job = Job(timeout_s)
        job.until(lambda: job.all_begun() or any(map(job.has_ended, range(RANKS))), READY_S)
        if job.all_begun():
            job.until(lambda: False, random_.uniform(0, 0.2))
            return job, random_.randrange(RANKS)
        story = job.story()
        job.close()
    raise RuntimeError(f"the ranks did not begin to train:\n{story}")


def judge(job, survivors, victim, kind):
    """What is wrong with what the survivors raised."""
    for rank in survivors:
        error = job.error_of(rank)
        if error is None:
            return f"rank {rank} raised nothing"
        if error["type"] != kind:
            return f"rank {rank} raised {error['type']}, not {kind}: {error['text']}"
        if error["rank"] != victim or f"rank {victim}" not in error["text"]:
            return f"rank {rank} does not blame rank {victim}: {error['text']}"
    return ""


def kill(random_, seconds):
    job, victim = begun(random_, 60)
    survivors = [rank for rank in range(RANKS) if rank != victim]
    try:
        at = time.monotonic()
        os.kill(job.pids[victim], signal.SIGKILL)
        job.until(lambda: all(map(job.has_ended, survivors)), ENDS_S)
        wrong = judge(job, survivors, victim, "PeerDied")
        if not wrong:
            seconds += [job.error_of(rank)["at"] - at for rank in survivors]
            unnamed = [rank for rank in survivors if "SIGKILL" not in job.error_of(rank)["text"]]
            wrong = f"rank {unnamed[0]} does not name the signal: {job.error_of(unnamed[0])['text']}" if unnamed else ""
        return wrong, job.story()
    finally:
        job.close()


def stop(random_, seconds, limit_s=None):
    job, victim = begun(random_, limit_s or TIMEOUT_S)
    survivors = [rank for rank in range(RANKS) if rank != victim]
    try:
        at = time.monotonic()
        os.kill(job.pids[victim], signal.SIGSTOP)
        job.until(lambda: all(map(job.has_ended, survivors)), (limit_s or TIMEOUT_S) + ENDS_S)
        said = job.said(survivors, f"rank {victim}", "stopped")
        wrong = judge(job, survivors, victim, "TimedOut")
        if said is None or said - at > (limit_s or PROMPT_S):
            late = "not at all" if said is None else f"after {said - at:.2f} s"
            wrong = wrong or f"that rank {victim} is stopped was reported {late}"
        else:
            seconds.append(said - at)
        return wrong, job.story()
    finally:
        job.close()


def pause(random_, seconds):
    job, victim = begun(random_, PAUSED_TIMEOUT_S)
    try:
        os.kill(job.pids[victim], signal.SIGSTOP)
        job.until(lambda: False, random_.uniform(*PAUSE_S))
        at = time.monotonic()
        os.kill(job.pids[victim], signal.SIGCONT)
        before = [job.steps(rank) for rank in range(RANKS)]
        went_on = lambda: all(job.steps(rank) >= before[rank] + STEPS_AFTER for rank in range(RANKS))  # noqa: E731
        job.until(lambda: went_on() or any(map(job.has_ended, range(RANKS))), ENDS_S)
        if went_on():
            seconds.append(time.monotonic() - at)
        open(f"{job.folder}/enough", "w").close()
        job.until(lambda: all(map(job.has_ended, range(RANKS))), ENDS_S)
        failed = [rank for rank in range(RANKS) if job.error_of(rank) or not job.has_ended(rank)]
        wrong = f"rank {failed[0]} failed: {job.error_of(failed[0])}" if failed else ""
        return wrong or ("" if went_on() else "it did not go on"), job.story()
    finally:
        job.close()


# ---- many ----

KINDS = {
    "kill": (kill, "ranks killed: each survivor raises `PeerDied`, with rank and signal", "exception after the kill"),
    "stop": (
        stop,
        "ranks stopped: reported within 1 s, each survivor raises `TimedOut`, with the rank",
        "report after the stop",
    ),
    "pause": (pause, f"ranks stopped, and continued in time: {STEPS_AFTER} more steps, no error", "those steps"),
}


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def campaign(kind, count, seed, limit_s=None, verbose=False):
    """{"good": of, "p50": seconds, "p99": seconds}; what goes wrong is printed."""
    import torch._dynamo  # noqa: F401  what optimizers import when they are first used

    import lockstep.torch  # noqa: F401

    case, _, _ = KINDS[kind]
    seconds, good = [], 0
    for number in range(count):
        random_ = random.Random(f"{seed} {kind} {number}")
        wrong, story = case(random_, seconds, **({"limit_s": limit_s} if kind == "stop" else {}))
        good += not wrong
        if wrong:
            print(f"{kind} {number}: {wrong}\n{story}", flush=True)
        elif verbose:
            print(f"{kind} {number}: {seconds[-1]:.3f} s", flush=True)
    return {"good": good, "of": count, "p50": quantile(seconds, 0.5), "p99": quantile(seconds, 0.99)}


def line_of(kind, found):
    _, what, of_what = KINDS[kind]
    return f"{what}: {found['good']} of {found['of']}; {of_what}: p50 {found['p50']:.3f} s, p99 {found['p99']:.3f} s"


def write_doc(results, seed):
    sys.path.insert(0, os.path.join(ROOT, "bench"))
    from torch_bench import DOC, markdown, replace_between

    rows = [
        [what, f"{found['good']} of {found['of']}", of_what, f"{found['p50']:.3f} s", f"{found['p99']:.3f} s"]
        for (_, what, of_what), found in ((KINDS[kind], found) for kind, found in results.items())
    ]
    how = (
        f"{RANKS} ranks train with DistributedDataParallel; one of them is killed or stopped at a random moment (seed "
        f"{seed}). The time limit is {TIMEOUT_S:g} s where ranks stay stopped, {PAUSED_TIMEOUT_S:g} s where they go on. "
        f"Meanwhile the load of the machine was {os.getloadavg()[1]:.1f} on {os.cpu_count()} processors. "
        "To repeat it: `make campaign-torch`."
    )
    begin, end = (f"<!-- {word}: written by {NAME} -->" for word in ("begin", "end"))
    table = markdown(["what", "as it should be", "time of", "p50", "p99"], rows)
    replace_between(DOC, begin, end, "Faults at random moments", f"{how}\n\n{table}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for kind in KINDS:
        parser.add_argument(f"--{kind}s", type=int, default=50, metavar="N")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--limit", type=float, metavar="S", help="the time limit where ranks stay stopped, to be told within it")
    parser.add_argument("--verbose", action="store_true", help="tells every case")
    parser.add_argument("--write-doc", action="store_true", help="writes a section of doc/performance-torch.md")
    options = parser.parse_args()
    results, failed = {}, False
    for kind in KINDS:
        count = getattr(options, f"{kind}s")
        if not count:
            continue
        results[kind] = found = campaign(kind, count, options.seed, options.limit, options.verbose)
        print(line_of(kind, found), flush=True)
        failed |= found["good"] < count or (kind == "kill" and found["p99"] >= (options.limit or PROMPT_S))
    if options.write_doc:
        write_doc(results, options.seed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
