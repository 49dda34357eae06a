#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""device_test.py LOCKSTEP DEVICE: the example on a simulated device has the right averages, and gives all memory back;
with LOCKSTEP_CHECK=1 nothing is reported, as its streams have an order."""

import os
import re
import subprocess
import sys

import outcome

LOCKSTEP, DEVICE = sys.argv[1:3]


def run(ranks, **settings):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LOCKSTEP_")}
    done = subprocess.run([LOCKSTEP, "run", "--no-prefix", "-n", str(ranks), DEVICE], env={**environment, **settings},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr == "", f"{done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_every_rank_has_the_averages():
    for ranks in (1, 2, 4):
        said = run(ranks)
        for rank in range(ranks):
            mean = (ranks - 1) / 2
            line = f"rank {rank}: the averages of {ranks} ranks are {mean:g} and {mean + 1:g}: right"
            assert line in said, said


def test_memory_is_in_use_then_free_then_given_back():
    said = run(2)
    lines = re.findall(r"rank 0: (.*): (\d+) bytes in use, (\d+) free, (\d+) reserved", said)
    assert len(lines) == 3, said
    (_, *working), (_, *freed), (_, *trimmed) = lines
    working, freed, trimmed = ([int(number) for number in numbers] for numbers in (working, freed, trimmed))
    assert working[0] >= 1 << 20 and working[2] == sum(working[:2]), said
    assert freed == [0, working[2], working[2]], said
    assert trimmed == [0, 0, 0], said


def test_its_streams_have_an_order():
    run(2, LOCKSTEP_CHECK="1")


def test_it_runs_where_calls_wait():
    run(2, LOCKSTEP_BLOCKING="1")


outcome.main(globals())
