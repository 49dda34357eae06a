#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The pipeline example: pipeline_test.py LOCKSTEP PIPELINE."""

import json
import os
import re
import signal
import subprocess
import sys

import outcome

LOCKSTEP, PIPELINE = sys.argv[1:3]
LIMIT_S = 120


def environment(**settings):
    env = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")}
    env.update(settings)
    return env


def start(ranks, *arguments, **settings):
    return subprocess.Popen([LOCKSTEP, "run", "--no-prefix", "-n", str(ranks), "--", PIPELINE, *arguments],
                            env=environment(**settings), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def run(ranks, *arguments, **settings):
    job = start(ranks, *arguments, **settings)
    try:
        out = job.communicate(timeout=LIMIT_S)[0]
    finally:
        job.kill()  # its ranks end with it
        job.wait()
    return job.returncode, out


def check(ranks, microbatches, steps=3, **settings):
    """Loss and gradients are those of one process, and nothing else is said. Returns the losses."""
    code, out = run(ranks, "--check", "--steps", str(steps), "--microbatches", str(microbatches), "--width", "16",
                    "--batch", "4", **settings)
    about = f"{ranks} ranks, {microbatches} micro-batches\n{out}"
    assert code == 0, about
    lines = out.rstrip("\n").split("\n")
    assert len(lines) == steps + 2, about
    found = [re.fullmatch(r"step +\d+  loss (\d\.\d{6}) +[\d.]+ ms", line) for line in lines[:steps]]
    assert all(found), about
    assert re.fullmatch(rf"step time [\d.]+ ms, the median of {steps}", lines[-2]), about
    assert re.fullmatch(r"loss and gradients are equal to those of one process: at most \S+ apart", lines[-1]), about
    return [float(line[1]) for line in found]


def test_any_number_of_microbatches():
    for microbatches in range(1, 10):
        check(4, microbatches)


def test_any_number_of_ranks():
    for ranks in (2, 3, 5, 6):
        for microbatches in (1, 4, 7, 8):
            check(ranks, microbatches)


def test_all_messages_in_one_queue():
    """The order of a rank's messages is one in which each may wait for the one before it."""
    for ranks, microbatches in ((2, 5), (4, 1), (4, 6), (4, 8), (5, 7)):
        check(ranks, microbatches, LOCKSTEP_P2P="serial")


def test_few_places_for_messages():
    check(4, 9, LOCKSTEP_MESSAGES="1")


def test_loss_falls():
    losses = check(4, 4, steps=40)
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.8 * losses[0], losses


def test_one_rank_is_too_few():
    code, out = run(1)
    assert code != 0 and "a pipeline needs at least two ranks" in out, out


def pid_of(job, rank):
    seen = subprocess.run([LOCKSTEP, "diagnose", "--json", str(job.pid)], env=environment(), text=True, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT_S)
    jobs = json.loads(seen.stdout)["jobs"] if seen.stdout else []
    assert len(jobs) == 1, seen
    return next(found["pid"] for found in jobs[0]["ranks"] if found["rank"] == rank)


def test_a_rank_is_killed():
    """Every survivor learns which one, wherever in its step it is."""
    for victim in (0, 2):
        job = start(4, "--steps", "1000000", "--microbatches", "6")
        try:
            job.stdout.readline()  # the group is open
            os.kill(pid_of(job, victim), signal.SIGKILL)
            out = job.communicate(timeout=LIMIT_S)[0]
        finally:
            job.kill()
            job.wait()
        told = re.findall(r"rank (\d) cannot go on in step \d+: (\w+), rank (-?\d+)$", out, re.M)
        expected = [(str(rank), "LS_PEER_DIED", str(victim)) for rank in range(4) if rank != victim]
        assert sorted(told) == expected, "\n".join(out.split("\n")[-30:])


outcome.main(globals())
