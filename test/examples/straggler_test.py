#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The report on phases names the rank that keeps the others waiting, and the phase: straggler_test.py LOCKSTEP STRAGGLER."""

import json
import os
import re
import signal
import subprocess
import sys

import outcome

LOCKSTEP, STRAGGLER = sys.argv[1:3]
LIMIT_S = 120
PHASES = ["data", "data/image", "forward", "backward", "optimizer"]


def environment():
    return {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")}


def start(ranks, *arguments):
    return subprocess.Popen([LOCKSTEP, "run", "--no-prefix", "-n", str(ranks), "--", STRAGGLER, *arguments],
                            env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def run(ranks, *arguments):
    job = start(ranks, *arguments)
    try:
        out = job.communicate(timeout=LIMIT_S)[0]
    finally:
        job.kill()  # its ranks end with it
        job.wait()
    assert job.returncode == 0, f"exit {job.returncode}\n{out}"
    return out.rstrip("\n").split("\n")


def named(line, who):
    found = re.fullmatch(rf"{who} spends? (?:[\d.]+x to )?([\d.]+)x the median in data/image, "
                         r"which costs (\d+) % of the step", line)
    assert found, line
    return float(found[1]), int(found[2])


def rows(lines):
    """Of each rank the numbers of its row, by the names above them."""
    head = next(i for i, line in enumerate(lines) if line.startswith("  rank "))
    names = lines[head].split()
    assert names == ["rank", *PHASES, "outside", "waiting", "skew"], names
    return [dict(zip(names, line.split())) for line in lines[head + 1:]]


def test_two_of_four():
    """They decode six times as often. Times are those of a clock on the wall: where ranks share cores, the others
    may wait for one in their phase too, which makes the ratio smaller; or come first when they wake up, which
    makes it larger."""
    lines = run(4)
    ratio, cost = named(lines[0], "ranks 1 and 3")
    assert 2 <= ratio <= 100 and 20 <= cost <= 100, lines
    table = rows(lines)
    assert [row["rank"] for row in table] == ["0", "1", "2", "3"], table
    for fast in (0, 2):
        for slow in (1, 3):
            assert float(table[slow]["data/image"]) > 1.5 * float(table[fast]["data/image"]), lines
            assert float(table[fast]["waiting"]) > float(table[slow]["waiting"]), lines


def test_one_of_two():
    lines = run(2, "--slow", "0", "--times", "4")
    ratio, cost = named(lines[0], "rank 0")
    assert 1.5 <= ratio <= 60 and 20 <= cost <= 100, lines


def test_alone():
    """There is nobody to be compared with."""
    lines = run(1, "--steps", "20")
    assert re.match(r"milliseconds of own work in each phase, of [\d.]+ in all", lines[0]), lines
    assert len(rows(lines)) == 1, lines


def diagnose(*arguments):
    return subprocess.run([LOCKSTEP, "diagnose", *arguments], env=environment(), text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=LIMIT_S, check=False).stdout


def until_diagnosed(job, right):
    """Looks at the running job until it is as it shall be."""
    for _ in range(3000):
        out = diagnose("--json", str(job.pid))
        jobs = json.loads(out)["jobs"] if out else []
        if jobs and right(jobs[0]):
            return jobs[0]
        assert job.poll() is None, "the job has ended:\n" + job.stdout.read()
    raise AssertionError(f"never as it shall be, at last {jobs}")


def blamed(seen):
    """Which phase costs most, and which rank is slow in it."""
    return seen["stragglers"] and (seen["stragglers"][0]["phase"], seen["stragglers"][0]["ranks"])


def names(rank):
    return [phase["name"] for phase in rank["phases"] or []]


def stop_in_image(job, pid):
    """Stops rank 1 until that hits it in data/image."""
    for _ in range(300):
        os.kill(pid, signal.SIGSTOP)
        found = until_diagnosed(job, lambda seen: seen["ranks"][1]["process"] == "stopped")
        image = next(phase for phase in found["ranks"][1]["phases"] if phase["name"] == "data/image")
        if image["running"]:
            return
        os.kill(pid, signal.SIGCONT)
    raise AssertionError("rank 1 was never found in data/image")


def test_from_outside():
    """lockstep diagnose says the same of a job that runs, and of one whose rank is stopped."""
    job = start(4, "--steps", "100000")
    try:
        found = until_diagnosed(job, lambda seen: blamed(seen) == ("data/image", [1, 3]) and
                                all(names(rank) == [*PHASES, "outside"] for rank in seen["ranks"]))
        assert "the median in data/image, which costs" in diagnose(str(job.pid))

        stop_in_image(job, found["ranks"][1]["pid"])
        # Its phase goes on, and at last it alone is to blame; the others wait, which is nobody's fault.
        until_diagnosed(job, lambda seen: blamed(seen) == ("data/image", [1]))
    finally:
        job.kill()
        job.communicate(timeout=LIMIT_S)


outcome.main(globals())
