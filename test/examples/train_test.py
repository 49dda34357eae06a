#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The training example does what the README says: train_test.py LOCKSTEP HELLO TRAIN TRAIN_F64."""

import os
import re
import subprocess
import sys
import tempfile

import outcome

LOCKSTEP, HELLO, TRAIN, TRAIN_F64 = sys.argv[1:5]


def run(program, ranks, *arguments):
    env = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")}
    done = subprocess.run([LOCKSTEP, "run", "--no-prefix", "-n", str(ranks), "--", program, *arguments], env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}"
    return done.stdout


def losses(program, ranks, directory):
    path = os.path.join(directory, f"{os.path.basename(program)}-{ranks}")
    run(program, ranks, "--losses", path)
    with open(path, encoding="ascii") as file:
        return [float(line) for line in file]


def largest_difference(a, b):
    assert len(a) == len(b) and a, f"{len(a)} and {len(b)} steps"
    return max(abs(x - y) / abs(x) for x, y in zip(a, b))


def test_hello():
    out = run(HELLO, 4)
    assert sorted(out.split("\n")[:-1]) == [f"rank {r} of 4: the sum of all ranks is 6" for r in range(4)], out


def test_accuracy():
    """One line an epoch with all that was promised, equal parameters, and the accuracy at the end."""
    lines = run(TRAIN, 4).strip().split("\n")
    epochs = [line for line in lines if re.fullmatch(
        r"epoch +\d+  loss \d\.\d{4}  test accuracy 0\.\d{4} +\d+ samples/s  communication +\d+\.\d %  slowest rank [0-3] \(\d+\.\d\dx\)", line)]
    assert len(epochs) == 20, lines
    assert lines[-2] == "parameters are bitwise equal on all 4 ranks", lines[-2]
    accuracy = re.fullmatch(r"test accuracy (0\.\d{4})", lines[-1])
    assert accuracy and float(accuracy[1]) >= 0.97, lines[-1]


def test_float64_same_losses():
    """Over the whole run, whatever the number of ranks."""
    with tempfile.TemporaryDirectory() as directory:
        one = losses(TRAIN_F64, 1, directory)
        for ranks in (2, 3, 4):
            difference = largest_difference(one, losses(TRAIN_F64, ranks, directory))
            assert difference <= 1e-9, f"{ranks} ranks: {difference}"


def test_float32_same_losses():
    """Over the first 50 steps; later rounding is amplified by the training itself."""
    with tempfile.TemporaryDirectory() as directory:
        difference = largest_difference(losses(TRAIN, 1, directory)[:50], losses(TRAIN, 4, directory)[:50])
        assert difference <= 1e-5, difference


def test_faults_are_known_by_name():
    """make demo-hang asks before it starts ranks, whose failures are what it is to show."""
    def ask(fault):
        done = subprocess.run([TRAIN, f"--fault={fault}", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr
    code, out, err = ask("nonsense")
    assert code == 2 and not out, (code, out)
    assert err.startswith("train_digits: --fault cannot be 'nonsense'\n"), err
    known = re.search("kinds of faults: (.*)", err)[1].split(", ")
    assert {"leave", "killed", "cycle"} <= set(known), err
    for fault in known:
        code, out, err = ask(fault)
        assert code == 0 and out.startswith("usage: ") and not err, (fault, code, err)


def test_a_fault_needs_no_third_rank():
    done = subprocess.run([LOCKSTEP, "run", "-n", "2", "--", TRAIN, "--fault", "leave", "--fault-step", "3"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False)
    assert done.returncode != 0, done.stdout
    assert "rank 1 finished" in done.stdout, done.stdout


outcome.main(globals())
