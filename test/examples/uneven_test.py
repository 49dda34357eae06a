#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The example with uneven inputs: uneven_test.py LOCKSTEP TRAIN_UNEVEN."""

import os
import re
import subprocess
import sys

import outcome

LOCKSTEP, TRAIN = sys.argv[1:3]


def run(ranks, *arguments, **settings):
    env = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")}
    env.update(settings)
    done = subprocess.run([LOCKSTEP, "run", "--no-prefix", "-n", str(ranks), "--", TRAIN, *arguments], env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
    return done.returncode, done.stdout


def check_trains(ranks, *arguments):
    code, out = run(ranks, *arguments)
    assert code == 0, f"exit {code}\n{out}"
    lines = out.strip().split("\n")
    epochs = [re.fullmatch(r"epoch +\d+  loss (\d\.\d{4})  test accuracy 0\.\d{4}  batches((?: \d+)+)", line) for line in lines[:-2]]
    assert len(epochs) == 30 and all(epochs), out
    counts = [int(n) for n in epochs[0][2].split()]
    assert len(counts) == ranks and counts == sorted(set(counts), reverse=True), f"batches {counts}"
    assert float(epochs[-1][1]) < float(epochs[0][1]) / 5, out
    assert lines[-2] == f"parameters are bitwise equal on all {ranks} ranks", lines[-2]
    accuracy = re.fullmatch(r"test accuracy (0\.\d{4})", lines[-1])
    assert accuracy and float(accuracy[1]) >= 0.95, lines[-1]


def test_shadow():
    for ranks in (1, 2, 4):
        check_trains(ranks)


def test_divided_by_active_ranks():
    check_trains(4, "--by-active")


def test_error():
    """Every rank is told, and one message says who ran out."""
    code, out = run(3, LOCKSTEP_JOIN="error")
    assert code != 0, out
    assert len(re.findall(r"uneven inputs: rank 2 ended after \d+ batches, while ranks 0 and 1 have more \[LS-JOIN-UNEVEN\]", out)) == 1, out
    told = set(re.findall(r"rank (\d): a step of training: .* \(LS_UNEVEN\)", out))
    assert told, out  # the launcher ends those that are slower to tell


outcome.main(globals())
