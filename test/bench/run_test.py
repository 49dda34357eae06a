#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The measuring itself: run_test.py BUILD. A small run with its tables, goals and limits; and what is said of
made-up figures."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import figures
import goals
import programs
import quiet
import run
import table


def row(op="all-reduce", size=16 << 20, ranks=2, data="fresh", **ratios):
    return {"ranks": ranks, "data": data, "operation": op, "bytes": size, "us": {"mapped": 1.0}, "peers": {}, "limits": {},
            "quiet": True, "best_peer": None, "cpu_us": {}, **ratios}


def met(rows, found=None):
    return [g["met"] for g in goals.of_report({"rows": rows, "figures": found or {}})]


def test_goals():
    assert met([]) == [None] * 11
    fine = [row(mapped_to_peer=2.0, plain_to_peer=1.0, mapped_to_limit=0.75, plain_to_limit=0.75),
            row(ranks=4, data="hot", mapped_to_limit=0.7), row("barrier", 0, data="hot", mapped_to_peer=0.996)]
    others = {"small": [{"operation": "all-reduce", "times": 2.2}, {"operation": "barrier", "times": 1.6}],
              "overlap": {"overlapped": 1.1}, "idle_us": 0.0, "recorder_ns": 25.0}
    assert met(fine, others) == [True] * 11, met(fine, others)
    bad = [row(mapped_to_peer=1.99, plain_to_peer=0.99, mapped_to_limit=0.74, plain_to_limit=0.74),
           row(ranks=8, data="hot", mapped_to_limit=0.69), row("reduce", 8, 4, "hot", mapped_to_peer=0.99)]
    others = {"small": [{"operation": "all-reduce", "times": 2.21}, {"operation": "barrier", "times": 1.61}],
              "overlap": {"overlapped": 1.11}, "idle_us": 11.0, "recorder_ns": 25.1}
    assert met(bad, others) == [False] * 11, met(bad, others)
    behind = goals.of_report({"rows": bad, "figures": {}})[0]["here"]
    assert behind == "1 of 2 points behind; worst 0.99× (reduce 8 B 4 ranks hot)", behind
    # Eight ranks are no part of the first goal, nor other sizes of the third.
    assert met([row(ranks=8, mapped_to_peer=0.1), row(size=128 << 20, mapped_to_limit=0.1)])[:3] == [None] * 3


def test_medians_leave_out_what_was_disturbed():
    samples = table.Samples()
    for value, foreign in ((1.0, 0.0), (2.0, 0.02), (3.0, 0.03), (100.0, 0.5)):
        samples.add(value, foreign)
    assert samples.quiet() and samples.median() == 2.0
    noisy = table.Samples()
    noisy.add(5.0, 0.04)
    assert not noisy.quiet() and noisy.median() == 5.0


def test_rows():
    results = table.Results()
    where = (2, False, "all-reduce", 8)
    for kind, name, us in (("lockstep", "mapped", 2.0), ("peer", "a", 6.0), ("peer", "b", 4.0),
                           ("limit mapped", "direct", 1.0), ("limit plain", "kernel", 3.0)):
        results.add(where, kind, name, us, 0.0, 7.0 if kind == "lockstep" else None)
    (found,) = results.rows()
    assert found["best_peer"] == "b" and found["mapped_to_peer"] == 2.0 and found["mapped_to_limit"] == 0.5
    assert found["limits"] == {"direct (mapped)": 1.0, "kernel (plain)": 3.0} and found["cpu_us"] == {"mapped": 7.0}


def test_disturbed_runs_are_repeated():
    shares = iter([0.5, 0.2, 0.01])

    class Watch:
        def foreign(self):
            return next(shares)

    kept, quiet.Watch = quiet.Watch, Watch
    try:
        results = iter("abc")
        assert quiet.quietly(lambda: next(results)) == ("c", 0.01)
        shares = iter([0.5, 0.2, 0.3])
        results = iter("abc")
        assert quiet.quietly(lambda: next(results)) == ("b", 0.2)
    finally:
        quiet.Watch = kept


def test_others_are_noticed():
    watch = quiet.Watch()
    # A program that this process does not wait for counts as somebody else until it has ended.
    other = subprocess.Popen([sys.executable, "-c", "import time\nend = time.monotonic() + 0.6\nwhile time.monotonic() < end: pass"])
    while other.poll() is None and watch.foreign() <= quiet.FOREIGN_MAX:
        pass
    seen = watch.foreign()
    other.wait()
    assert seen > quiet.FOREIGN_MAX, seen


def test_a_small_run(build):
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "kept.json"
        command = [sys.executable, run.HERE / "run.py", build, "--only", "allreduce,broadcast,barrier", "--sizes", "8,64K", "--ranks", "2,3",
                   "--rounds", "2", "--no-peers", "--no-figures", "--noisy", "--json", kept]
        text = quiet.output_of(command)
        report = json.loads(kept.read_text())
        again = quiet.output_of([sys.executable, run.HERE / "run.py", "--from", kept])
    points = {(r["ranks"], r["data"], r["operation"], r["bytes"]) for r in report["rows"]}
    wanted = {(n, data, op, size) for n in (2, 3) for data in ("hot", "fresh")
              for op, size in (("all-reduce", 8), ("all-reduce", 65536), ("broadcast", 8), ("broadcast", 65536), ("barrier", 0))
              if op != "barrier" or data == "hot"}
    assert points == wanted, points ^ wanted
    for r in report["rows"]:
        assert set(r["us"]) == {"mapped", "plain"} and min(r["us"].values()) > 0, r
        assert r["limits"]["direct (mapped)"] > 0 and r["mapped_to_limit"] > 0, r
    for title in ("2 ranks, hot data", "3 ranks, fresh data", "all-reduce  64 KiB", "Goals"):
        assert title in text and title in again, title


def test_figures(build):
    assert 0 < figures.cache_line(build) < 1e5
    assert 0 <= figures.idle(build, 1) < 1e6
    effort = ["--repeats", "1", "--repeat-ms", "1", "--limit-ms", "10"]
    small = figures.small_operations(programs.lockstep_programs(build)[0], lambda: 0.5, effort, 2)
    assert [f["operation"] for f in small] == ["all-reduce", "barrier"], small
    assert all(f["one_way_us"] == 0.5 and f["times"] == f["us"] / 0.5 > 0 for f in small), small
    found = figures.verdicts(build, (3,), 1)
    assert [f["cause"] for f in found] == list(figures.VERDICTS) and all(f["ms"] > 0 for f in found), found
    assert figures.terminal(figures.tables({"verdict": found, "idle_us": 1.0})).count("\n") > 5


def main():
    build = Path(sys.argv[1])
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test(*([build] if test.__code__.co_argcount else []))
            print(f"ok {name}", flush=True)


if __name__ == "__main__":
    main()
