#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test/net/launch_state_test.py LOCKSTEP RANKS_DEMO [test_…]: what lockstep run --hosts keeps of a job that has ended."""

import json
import os
import signal
import sys
import tempfile

from launch_hosts import BOTH, Far, begin, daemons, network_of_ranks
from harness import equal, lockstep, matches, state, until


def state_of(errors):
    """What lockstep diagnose says of the state that the launcher has kept."""
    path = matches(r"lockstep diagnose (\S+\.snapshot)", errors).group(1)
    text, found = lockstep("diagnose", path), json.loads(lockstep("diagnose", "--json", path).stdout)
    os.unlink(path)
    return text.stdout, found["jobs"][0]


def test_state_of_a_job_that_failed():
    """The launcher fetches it from both hosts; also what the rank did that was killed there."""
    with Far(sys.argv[2], "--rounds", 0) as job:
        job.expect(*(f"[{rank}] round 1" for rank in range(4)))
        os.kill(job.ranks()[3], signal.SIGKILL)
        errors = job.end()[2]
    text, found = state_of(errors)
    for rank in range(4):
        equal((found["ranks"][rank]["rank"], found["ranks"][rank]["readable"]), (rank, True), text)
    equal([host["answered"] for host in found["hosts"]], [True, True], text)
    matches(r"rank 3 .*SIGKILL", text)


def waits_before_its_limit(job):
    """Whether ranks 0 to 2 were in all-reduce #5, and rank 3 stopped before it, when the job still ran."""
    def look():
        if job.process.poll() is not None:
            return "late"
        ranks = job.ranks()
        shown = lockstep("diagnose", "--json", ranks[0]) if len(ranks) == 4 else None
        jobs = json.loads(shown.stdout)["jobs"] if shown and shown.stdout else []
        found = jobs[0]["ranks"] if jobs else []
        numbers = [(rank["operation"] or {}).get("number") for rank in found]
        return len(found) == 4 and numbers[:3] == [5] * 3 and state(ranks[3]) == "T"
    return until(look, "ranks 0 to 2 to wait for rank 3") is True


def test_state_of_a_job_at_its_time_limit():
    """On a busy machine the ranks may need longer than a short limit to come to the state that is to be shown."""
    for limit_s in 3, 10, 30:
        with Far("--timeout", limit_s, sys.argv[2], "stop", 3, 5) as job:
            waits = waits_before_its_limit(job)
            status, _, errors = job.end()
        equal(status, 124, errors)
        if waits and "[LS-WAITING]" in errors:
            break
    text, found = state_of(errors)
    for text in text, errors[errors.rindex("[LS-WAITING]"):]:
        matches(r"rank 3 \(pid \d+ on host host1\) is stopped after all-reduce #4 while ranks 0, 1 and 2 wait in all-reduce #5",
                text)
    equal([host["ranks"] for host in found["hosts"]], [[0, 1], [2, 3]], text)


def test_host_whose_state_is_lost():
    """Its daemon is killed, so only the other host tells."""
    with Far(sys.argv[2], "--rounds", 0) as job:
        job.expect(*(f"[{rank}] round 1" for rank in range(4)))
        os.kill(daemons(network_of_ranks(job.ranks(), 3))[0], signal.SIGKILL)
        errors = job.end()[2]
    text, found = state_of(errors)
    equal([host["answered"] for host in found["hosts"]], [True, False], text)
    matches(r"host host1 \(ranks 2, 3\) did not answer", text)
    assert all(found["ranks"][rank]["pid"] for rank in (2, 3)), text


def test_traces():
    """Also of ranks that end at once after they have met."""
    with tempfile.TemporaryDirectory() as folder:
        for rounds in 1, 4, 1, 1:
            result = lockstep(*BOTH, "--trace", f"{folder}/trace", sys.argv[2], "--rounds", rounds)
            equal(result.returncode, 0, result.stderr)
            found = json.loads(lockstep("trace", "--json", f"{folder}/trace").stdout)
            for rank in range(4):
                operations = found["ranks"][rank]["operations"]
                equal([one["site"].split(":")[0] for one in operations if one["kind"] == "all-reduce"], ["ranks_demo.c"] * rounds)
        matches(r"host1", lockstep("trace", f"{folder}/trace").stdout)
        matches("all ranks exited with 0", lockstep("diagnose", f"{folder}/trace").stdout)


def test_phases():
    result = lockstep(*BOTH, "--phases", sys.argv[2], "--rounds", 40, "--phases")
    equal(result.returncode, 0, result.stderr)
    matches(r"(?m)^  rank +data +data/image +backward +outside +waiting +skew\n"
            r"(?: +\d(?: +\d+\.\d\d){5} +[-+]\d+ %\n){4}\Z", result.stderr)


if __name__ == "__main__":
    begin(globals())
