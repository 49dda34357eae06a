#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test/net/demo_test.py TRAIN_DIGITS LOCKSTEP: what `make demo-hosts` runs: digits are trained on 2 hosts with the result of
one host, and ranks that fail end the ranks of both hosts. Says so where the system lets nobody make namespaces."""

import os
import re
import subprocess
import sys

DEMO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "demo-hosts")
SKIPPED = 77
EPOCHS = ["--epochs", "2"]
# What each of the ranks that take part in the failing all-reduce prints, and which they are.
FAULTS = {
    "killed": ("LS_PEER_DIED", (0, 1, 3), "host1: [2] was killed by SIGKILL"),
    "leave": ("LS_PEER_LEFT", (0, 1, 3), "rank 2 finished after all-reduce #100"),
    "cycle": ("LS_DEADLOCK", (0, 1, 2, 3), "ranks 0-3 wait for each other and can never go on"),
    "count": ("LS_MISMATCH", (0, 1, 2, 3), "host1: [2] exited with 1"),
}


class Skipped(Exception):
    pass


def run(*words):
    environment = {**os.environ, "LOCKSTEP_TIMEOUT_MS": "60000"}
    ran = subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         text=True, timeout=400, check=False)
    if ran.returncode == SKIPPED:
        raise Skipped(ran.stdout.strip())
    return ran


def trained(text):
    """Loss and accuracy of each epoch, and at the end."""
    return re.findall(r"loss \S+  test accuracy \S+|parameters are bitwise equal on all 4 ranks|\] test accuracy \S+", text)


def fault_shows(train, fault, status, ranks, line):
    ran = run(DEMO, train, *EPOCHS, "--fault", fault)
    failed = {int(rank) for rank in re.findall(rf"^host\d: \[(\d)\] rank \1: .*\({status}\)$", ran.stdout, re.MULTILINE)}
    return ran.returncode == 1 and failed == set(ranks) and line in ran.stdout, ran


def main():
    train, lockstep = map(os.path.abspath, sys.argv[1:])
    results = []

    def note(good, name, ran):
        results.append(good)
        print(f"{'ok' if good else 'not ok'} - {name}" + ("" if good else f"\n{ran.stdout}"), flush=True)

    try:
        ran = run(DEMO, train, *EPOCHS)
        here = run(lockstep, "run", "-n", "4", train, *EPOCHS)
        note(ran.returncode == 0 and len(trained(ran.stdout)) == 4 and trained(ran.stdout) == trained(here.stdout),
             "2 hosts of 2 ranks end as 4 ranks of one", ran)
        note("4 ranks on 2 hosts (host0: 0-1; host1: 2-3); data between hosts: TCP on device wire" in ran.stdout,
             "rank 0 says which ranks are where", ran)
        for fault, what in FAULTS.items():
            good, ran = fault_shows(train, fault, *what)
            note(good, f"a rank of one of 2 hosts: {fault}", ran)
        ran = run("env", "NETWORK=unplugged", "LOCKSTEP_UNREACHABLE_MS=1000", DEMO, train, "--epochs", "1000")
        note(ran.returncode == 1 and len(re.findall(r"\(LS_UNREACHABLE\)$", ran.stdout, re.MULTILINE)) == 4,
             "the cable of one of 2 hosts is unplugged", ran)
    except Skipped as reason:
        print(f"# skipped: {reason}")
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
