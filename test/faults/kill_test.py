#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""kill -9 at random moments: of ranks while they open, loop and close, and of the launcher. Survivors
must learn of it, from one verdict that names a killed rank; and nothing may be left. --promised: within a second.

kill_test.py LOCKSTEP LOOP REOPEN [--kills N] [--launchers N] [--seed N] [--at-once N] [--only TEXT] [--promised]
A failure prints its seed: --only ranks --kills 1 --seed SEED plays it again. Prints TAP."""

import argparse
import contextlib
import os
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jobs import TEMPORARY, Failure, environment, need, run_tests

LIMIT_S = 120  # a job that takes longer than this to begin or to end hangs
TOLD_S = 1.0  # within this time every survivor gets the error, as promised
RUNNABLE_PER_CORE = 8  # with more, the box is overloaded, and survivors get proportionally more time
IN_OPEN = {"LS_PEER_DIED", "LS_RANK_MISSING", "LS_NO_MASTER"}
# When to kill: at most so many seconds after the first victim has written this word.
MOMENTS = {"opening": ("is", 0.03), "looping": ("open", 0.12), "grouping": ("grouping", 0.001), "closing": ("last", 0.004)}
MARK = "KILL_TEST_MARK"
REOPENINGS = 200
SHOWN = 5  # of the jobs that failed


class Plan:
    """One job, and which ranks are killed in it, and when: all drawn from one seed."""

    def __init__(self, seed):
        draw = random.Random(seed)
        self.seed, self.size = seed, draw.randint(2, 6)
        count = draw.choice((1, 1, 1, 2, 2, self.size - 1))
        self.victims = draw.sample(range(self.size), min(count, self.size - 1))
        self.moment = draw.choice(("opening", "looping", "looping", "grouping", "closing"))
        self.word, longest_s = MOMENTS[self.moment]
        self.delay_s = draw.uniform(0, longest_s)
        self.gaps_s = [draw.uniform(0, 0.01) for _ in self.victims[1:]]
        self.rounds = 1000000 if self.moment in ("looping", "grouping") else draw.randint(0, 4)

    def __str__(self):
        return (f"seed {self.seed}: {self.size} ranks, {self.victims} killed while {self.moment}, {self.delay_s * 1e3:.2f} ms "
                f"after '{self.word}', gaps {[round(g * 1e3, 2) for g in self.gaps_s]} ms, {self.rounds} rounds")


class Play:
    """The running job: what ranks write to a pipe, and what the launcher prints."""

    def __init__(self, plan):
        self.plan = plan
        self.pidfds = {}
        self.kill_ns = None
        self.pipe, theirs = os.pipe()
        self.process = subprocess.Popen(
            [LOCKSTEP, "run", "-n", str(plan.size), "--", LOOP, str(plan.seed), str(plan.rounds)],
            env=environment(LOOP_FD=theirs), pass_fds=[theirs], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, bufsize=0)
        os.close(theirs)
        self.printed = self.process.stdout.fileno()
        self.text = {self.pipe: b"", self.printed: b""}
        self.open = {self.pipe, self.printed}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()  # and with it all of the job
            self.process.wait()
        self.process.stdout.close()
        for fd in [self.pipe, *self.pidfds.values()]:
            if fd >= 0:
                os.close(fd)

    def told(self):
        return self.text[self.pipe].decode()

    def has_told(self, rank, word):
        return re.search(rf"^rank {rank} {word}\b", self.told(), re.M) is not None

    def output(self):
        return f"{self.plan}\n{self.told()}\n{self.text[self.printed].decode(errors='replace')}"

    def read(self, until_s):
        """Reads what ranks write before until_s; False if nothing came."""
        ready, _, _ = select.select(self.open, [], [], max(0, until_s - time.monotonic()))
        for fd in ready:
            part = os.read(fd, 65536)
            self.text[fd] += part
            if not part:
                self.open.remove(fd)
        for rank in self.plan.victims:
            found = re.search(rf"^rank {rank} is (\d+)$", self.told(), re.M)
            if found and rank not in self.pidfds:
                self.pidfds[rank] = -1  # stays so if the whole job was faster
                with contextlib.suppress(ProcessLookupError):
                    self.pidfds[rank] = os.pidfd_open(int(found[1]))
        return bool(ready)

    def kill(self):
        """Waits for the moment, then kills one victim after the other."""
        limit_s = time.monotonic() + LIMIT_S
        while len(self.pidfds) < len(self.plan.victims) or not self.has_told(self.plan.victims[0], self.plan.word):
            need(self.open and self.read(limit_s), "the job did not begin", self.output())
        for rank, pause_s in zip(self.plan.victims, [self.plan.delay_s] + self.plan.gaps_s):
            until_s = time.monotonic() + pause_s
            while self.open and self.read(until_s):
                pass
            if self.kill_ns is None:
                self.kill_ns = time.monotonic_ns()
            if self.pidfds[rank] >= 0:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self.pidfds[rank], signal.SIGKILL)

    def finish(self):
        limit_s = time.monotonic() + LIMIT_S
        while self.open:
            need(self.read(limit_s), "the job hangs", self.output())
        self.process.wait(LIMIT_S)


def overload():
    """How overloaded this machine is, at least 1."""
    runnable = int(Path("/proc/loadavg").read_text().split()[3].split("/")[0])
    return max(1.0, runnable / (RUNNABLE_PER_CORE * len(os.sched_getaffinity(0))))


def names_victim(plan, text):
    """Whether a text such as "ranks 1, 3-4" names a victim."""
    named = re.findall(r"(?:\branks? |, | and )(\d+)(?:-(\d+))?", text)
    return any(int(first) <= victim <= int(last or first) for first, last in named for victim in plan.victims)


def check_failed(play, rank, status, blamed, where):
    """What a survivor has learned."""
    plan, output = play.plan, play.output()
    if where == "opening":
        said = re.findall(rf"^\[{rank}\] lockstep: rank {rank}: (.*) \[LS-[A-Z-]+\]$", output, re.M)
        need(status in IN_OPEN, f"rank {rank} got {status} from ls_group_open", output)
        need(any(names_victim(plan, line) for line in said), f"the error of rank {rank} does not name whom it missed", output)
        return
    several = blamed == -1 and len(plan.victims) > 1  # seen dead together: there is no single one
    need(blamed in plan.victims or several, f"the error of rank {rank} blames rank {blamed}", output)
    left = status == "LS_PEER_LEFT" and play.has_told(blamed, "closing")
    need(status == "LS_PEER_DIED" or left, f"rank {rank} got {status}", output)


def check(play, limit_s):
    """For each survivor that has failed: where it was, in which call, and how long it took to learn of the death."""
    plan, output, times = play.plan, play.output(), []
    need("are wrong" not in output and not re.search(r"exited with ([2-9]|\d\d)", output), "a check of the loop failed", output)
    found = re.finditer(r"^rank (\d+): (LS_\w+) blamed (-?\d+) while (\w+) in (.+) from (\d+) to (\d+)$", play.told(), re.M)
    failures = {}  # a rank's first is the one whose time counts; all must be right
    for m in found:
        check_failed(play, int(m[1]), m[2], int(m[3]), m[4])
        # Until a rank comes back to the runtime nobody can tell it anything.
        failures.setdefault(int(m[1]), (m[4], m[5], (int(m[7]) - max(play.kill_ns, int(m[6]))) * 1e-9))
    for rank in set(range(plan.size)) - set(plan.victims):
        if rank not in failures:
            need(play.has_told(rank, "done"), f"rank {rank} got no error", output)
            need(all(play.has_told(v, "last") for v in plan.victims), f"rank {rank} went on without a dead rank", output)
            continue
        late_s = failures[rank][2]
        need(late_s >= 0, f"rank {rank} failed before anybody was killed", output)
        need(late_s < limit_s, f"rank {rank} got the error after {late_s:.3f} s, not within {limit_s:.1f} s", output)
        times.append(failures[rank])
    check_verdicts(play, times)
    return times, any(where == "looping" for where, _, _ in times) and "[LS-VERDICT]" not in output


def check_verdicts(play, times):
    plan, output = play.plan, play.output()
    verdicts = len(re.findall(r"\[LS-VERDICT\]$", output, re.M))
    # A second victim may be the rank that was to print the verdict, and die just before it does.
    least = 1 if any(where == "looping" for where, _, _ in times) and len(plan.victims) == 1 else 0
    # Each group has a cause of its own. Both halves of a split group may fail, and for one of them perhaps only the
    # verdict says so, because all its members are dead.
    further = "in a further group" in output or re.search(r"waits? in .* of group \d+ \(", output)
    most = 3 if further else 1
    need(least <= verdicts <= most, f"{verdicts} verdicts", output)
    if not times and all(play.has_told(rank, "done") for rank in range(plan.size)):
        need(verdicts == 0, "a verdict about ranks that were done", output)


def play_one(seed, promised):
    """The survivors' times, whether no verdict was printed for them, and what is wrong."""
    try:
        with Play(Plan(seed)) as play:
            play.kill()
            load = overload()
            play.finish()
            return *check(play, TOLD_S * max(load, overload()) if promised else LIMIT_S), None
    except Failure as failure:
        return [], False, str(failure)


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] * 1e3


def test_ranks(options):
    with ThreadPoolExecutor(options.at_once) as pool:
        seeds = range(options.seed, options.seed + options.kills)
        plays = list(pool.map(lambda seed: play_one(seed, options.promised), seeds))
    told = [one for times, _, _ in plays for one in times]
    wrong = [failure for _, _, failure in plays if failure]
    finished = sum(not times and not failure for times, _, failure in plays)
    unsaid = sum(lost for _, lost, _ in plays)
    print(f"# figure: {len(plays)} jobs of 2 to 6 ranks, seeds from {options.seed}, {options.at_once} at once: {len(wrong)} "
          f"failed; in {finished} of them no rank needed the dead one any more")
    for where in ("opening", "looping"):
        times = [late_s for place, _, late_s in told if place == where]
        if times:
            print(f"# figure: {len(times)} survivors {where} got the error after p50 {percentile(times, .5):.1f} ms, "
                  f"p99 {percentile(times, .99):.1f} ms, max {max(times) * 1e3:.1f} ms")
    inside = Counter(doing for place, doing, _ in told if place == "looping")
    slow = sorted(((late_s, doing) for place, doing, late_s in told if place == "looping"), reverse=True)[:SHOWN]
    print("# the slowest: " + ", ".join(f"{late_s * 1e3:.1f} ms in {doing}" for late_s, doing in slow))
    print("# figure: they were in " + ", ".join(f"{doing} ({count})" for doing, count in inside.most_common()))
    need(unsaid <= 1 + len(plays) / 500, f"{unsaid} verdicts were lost with the rank that had them")
    need(not wrong, f"{len(wrong)} of {len(plays)} jobs failed:", "\n".join(wrong[:SHOWN]))


# ---- the launcher ----


def read(path):
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def processes():
    return [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def of_job(mark):
    """Living processes that carry this mark in their environment."""
    return [int(p.name) for p in processes() if f"{MARK}={mark}".encode() in read(p / "environ").split(b"\0")]


def sockets():
    """Inode and name of all abstract sockets of Lockstep."""
    lines = [line.split() for line in read("/proc/net/unix").decode(errors="replace").split("\n")]
    return {(words[6], words[7]) for words in lines if len(words) == 8 and words[7].startswith("@lockstep")}


def is_held(inode):
    """Whether a living process has this socket."""
    for process in processes():
        try:
            if any(os.readlink(fd) == f"socket:[{inode}]" for fd in (process / "fd").iterdir()):
                return True
        except OSError:
            continue
    return False


def await_none(look, what, limit_s=5):
    """Looks until nothing is seen."""
    end_s = time.monotonic() + limit_s
    while seen := look():
        need(time.monotonic() < end_s, f"{what} left after {limit_s} s: {seen}")
        os.sched_yield()


def kill_launcher(seed):
    draw, mark = random.Random(seed), uuid.uuid4().hex
    size, delay_s = draw.randint(1, 6), draw.choice((0.02, 0.1, 0.3)) * draw.random()
    before, named = sockets(), set(os.listdir("/dev/shm"))
    with tempfile.TemporaryDirectory(dir=TEMPORARY.name) as folder, open(os.devnull, "r+b") as null:
        process = subprocess.Popen([LOCKSTEP, "run", "-n", str(size), "--", LOOP, str(seed), "1000000"],
                                   env=environment(LOOP_FD=2, LOOP_WORKER=1, TMPDIR=folder, **{MARK: mark}),
                                   stdin=null, stdout=null, stderr=null)
        # The delay is what is tested, so it is measured and not awaited.
        with os.fdopen(os.pidfd_open(process.pid)) as ended:
            need(not select.select([ended], [], [], delay_s)[0], f"seed {seed}: the job ended by itself")
        process.kill()
        process.wait()
        context = f"seed {seed}, {size} ranks, {delay_s * 1e3:.1f} ms:"
        try:
            await_none(lambda: of_job(mark), f"{context} processes")
        finally:
            for pid in of_job(mark):
                os.kill(pid, signal.SIGKILL)
        # Whatever a living process holds now belongs to another job.
        await_none(lambda: [s for s in sockets() - before if not is_held(s[0])], f"{context} sockets")
        await_none(lambda: set(os.listdir("/dev/shm")) - named, f"{context} files in /dev/shm")
        need(not os.listdir(folder), f"{context} files in TMPDIR: {os.listdir(folder)}")


def test_launchers(options):
    for seed in range(options.seed, options.seed + options.launchers):
        kill_launcher(seed)


# ---- open and close ----


def test_reopen(how):
    done = subprocess.run([REOPEN, how, str(REOPENINGS)], env=environment(), stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False)
    need(done.returncode == 0, f"exit {done.returncode}", done.stdout)
    print("\n".join("# " + line for line in done.stdout.splitlines()))


def main():
    global LOCKSTEP, LOOP, REOPEN
    parser = argparse.ArgumentParser()
    for name in ("lockstep", "loop", "reopen"):
        parser.add_argument(name)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--launchers", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6) * 1000)
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--promised", action="store_true")
    options = parser.parse_args()
    LOCKSTEP, LOOP, REOPEN = map(os.path.abspath, (options.lockstep, options.loop, options.reopen))
    print(f"# seed {options.seed}")
    tests = [("ranks killed", lambda: test_ranks(options)), ("launchers killed", lambda: test_launchers(options))]
    tests += [(f"reopen as {how}", lambda how=how: test_reopen(how)) for how in ("threads", "processes")]
    return run_tests([t for t in tests if options.only in t[0]])


if __name__ == "__main__":
    sys.exit(main())
