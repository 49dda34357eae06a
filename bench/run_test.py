#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The measuring itself: run_test.py BUILD. A small run with its tables, goals and limits; and what is said of
made-up figures."""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import curve
import figures
import goals
import point
import programs
import quiet
import run
import table
import ucx


def row(op="all-reduce", size=16 << 20, ranks=2, data="fresh", **values):
    return {"ranks": ranks, "data": data, "operation": op, "bytes": size, "us": {"mapped": 1.0}, "peers": {}, "limits": {},
            "quiet": True, "best_peer": None, "cpu_us": {}, **values}


def matches(us):
    """Rows of a match with 1, 10, 100 and 1000 outstanding receives, which takes so long."""
    return [row("match", size, data="hot", us={"mapped": time}) for size, time in zip(point.SIZES["match"], us)]


def groups(*ratios):
    """Rows of groups of 2 and 64 ranks, which take this part of Open MPI's best time."""
    peers = {"openmpi": 20.0, "openmpi ucx": 10.0, "mpich": 1.0}
    return [row("group", 0, ranks, "hot", us={"mapped": 10 * ratio}, peers=peers) for ranks, ratio in zip((2, 64), ratios)]


def met(rows, found=None):
    return [g["met"] for g in goals.of_report({"rows": rows, "figures": found or {}})]


def test_goals():
    assert met([]) == [None] * 19
    fine = [row(mapped_to_peer=2.0, plain_to_peer=1.0, mapped_to_limit=0.75, plain_to_limit=0.75),
            row(ranks=4, data="hot", mapped_to_limit=0.7), row("barrier", 0, data="hot", mapped_to_peer=0.996),
            row("ping-pong", 8, mapped_to_peer=1.5), row("ping-pong", 1024, mapped_to_peer=0.1), row("message-rate", 8, mapped_to_peer=1.2),
            *(row("bandwidth", size, mapped_to_peer=1.5, plain_to_peer=1.0) for size in point.SIZES["bandwidth"]),
            *matches((9, 1, 2, 3)), *groups(0.2, 0.1)]
    others = {"small": [{"operation": "all-reduce", "times": 2.2}, {"operation": "barrier", "times": 1.6}, {"operation": "ping-pong", "times": 1.6}],
              "overlap": {"overlapped": 1.1}, "idle_us": 0.0, "recorder_ns": 25.0}
    assert met(fine, others) == [True] * 19, met(fine, others)
    bad = [row(mapped_to_peer=1.99, plain_to_peer=0.99, mapped_to_limit=0.74, plain_to_limit=0.74),
           row(ranks=8, data="hot", mapped_to_limit=0.69), row("reduce", 8, 4, "hot", mapped_to_peer=0.99),
           row("ping-pong", 8, mapped_to_peer=1.49), row("message-rate", 8, mapped_to_peer=1.19),
           row("bandwidth", 1 << 20, mapped_to_peer=1.49, plain_to_peer=0.99), *matches((1, 1, 2.01, 3)), *groups(0.21, 0.11)]
    others = {"small": [{"operation": "all-reduce", "times": 2.21}, {"operation": "barrier", "times": 1.61}, {"operation": "ping-pong", "times": 1.61}],
              "overlap": {"overlapped": 1.11}, "idle_us": 11.0, "recorder_ns": 25.1}
    assert met(bad, others) == [False] * 19, met(bad, others)
    behind = goals.of_report({"rows": bad, "figures": {}})[0]["here"]
    assert behind == "1 of 2 points behind; worst 0.99× (reduce 8 B 4 ranks hot)", behind
    # Eight ranks are no part of the first goal, nor other sizes of the third.
    assert met([row(ranks=8, mapped_to_peer=0.1), row(size=128 << 20, mapped_to_limit=0.1)])[:3] == [None] * 3


def test_summary():
    rows = [row(mapped_to_peer=2.0), row("reduce", 8, 4, "hot", mapped_to_peer=0.9), row("reduce", 64, mapped_to_peer=1.1),
            row("reduce", 64, 8, mapped_to_peer=0.1), row("reduce", 512, plain_to_peer=0.2), row("match", 80, mapped_to_peer=0.5),
            row("ping-pong", 8, mapped_to_peer=1.0)]
    assert goals.summary(rows).splitlines() == [
        "- Collectives on **mapped** memory, 2 and 4 ranks: Lockstep is not behind the best peer in 2 of 3 points. Never behind: all-reduce. "
        "Behind at some points of these sizes: reduce (8 B).",
        "- Messages and groups, **mapped** memory: not behind: ping-pong (8 B). Behind: match (10 receives).",
        "- Collectives on **plain** memory, 2 and 4 ranks: Lockstep is not behind the best peer in 0 of 1 points. "
        "Behind at some points of these sizes: reduce (512 B)."]
    assert goals.summary([]) == ""
    assert goals.in_readme(goals.summary(rows)) == {
        "mapped": "at 2 of 3 points: always in all-reduce | some sizes below 1 KiB (reduce)",
        "plain": "at 0 of 1 points | some sizes below 1 KiB (reduce)"}
    behind = [row("reduce", size, plain_to_peer=0.2) for size in (512, 1 << 20)] + [row("gather", 4096, plain_to_peer=0.2)]
    assert goals.in_readme(goals.summary(behind)) == {
        "plain": "at 0 of 3 points | some sizes below 1 KiB (reduce), some above (reduce, gather)"}
    assert goals.in_readme(goals.summary([row(mapped_to_peer=2.0)])) == {"mapped": "at 1 of 1 points: always in all-reduce | -"}


def test_readme_has_the_figures_of_the_page():
    readme, page = run.README.read_text(), run.DOC.read_text()
    cells = goals.in_readme(page)
    assert set(cells) == set(run.ROWS), cells
    for memory, row_of in run.ROWS.items():
        assert f"{row_of}{cells[memory]} |\n" in readme, f"README.md lacks: {row_of}{cells[memory]} |"
    assert run.with_figures(readme, page) == readme
    assert run.with_figures(readme, re.sub(r"\d+ of \d+ points", "7 of 8 points", page)) != readme


def test_match_growth():
    assert point.match_growth([]) is None and point.match_growth(matches((1,))) is None
    assert abs(point.match_growth(matches((5, 2, 2, 3))) - 0.5) < 1e-9  # 2 for 100 is half of twice 2
    assert point.match_growth(matches((1, 1, 10, 100))) > 30  # a list that is searched


def test_table_of_messages():
    both = {"us": {"mapped": 4.0, "plain": 8.0}, "peers": {"ucx": 2.0}, "best_peer": "ucx", "mapped_to_peer": 0.5, "plain_to_peer": 0.25}
    rows = [row(), *groups(0.1, 0.2), *matches((1, 2)), row("message-rate", 8, **both), row("bandwidth", 64 << 10, **both),
            row("ping-pong", 8, quiet=False, **both)]
    assert point.tables([row()]) == []
    ((_, heads, lines),) = point.tables(rows)
    assert [line[:6] for line in lines] == [
        ["ping-pong", "8 B ~", "4.00 µs", "8.00 µs", "2.00 µs", "ucx"],
        ["bandwidth", "64 KiB", "16.4 GB/s", "8.2 GB/s", "32.8 GB/s", "ucx"],
        ["message-rate", "8 B", "0.25 M/s", "0.12 M/s", "0.50 M/s", "ucx"],
        ["match", "1 receive", "1.00 µs", "-", "-", "-"],
        ["match", "10 receives", "2.00 µs", "-", "-", "-"],
        ["group", "2 ranks", "1.00 µs", "-", "-", "-"],
        ["group", "64 ranks", "2.00 µs", "-", "-", "-"],
    ], lines
    assert lines[0][6:] == ["0.50", "0.25"] and {len(line) for line in lines} == {len(heads)}


def test_cells_of_messages():
    assert point.cells(["all-reduce", "match", "ping-pong"], None) == [(2, False, ("match", "ping-pong"))]
    assert point.cells(["group"], None) == [(2, False, ("group",)), (64, False, ("group",))]
    assert point.cells(["group", "barrier"], [3]) == [(3, False, ("group",))] and point.cells(["barrier"], [3]) == []
    assert point.points_of("bandwidth", [8]) == [("bandwidth", 8)] and point.points_of("message-rate", [64]) == [("message-rate", 8)]


def test_numbers_of_ucx():
    heads = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr"
    assert abs(ucx.micro(f"{heads}\n200000,0.155,0.178,0.178,42.84,42.84,5614884,5000000\n", 8) - 0.2) < 1e-9
    assert abs(ucx.micro(f"{heads}\n16,0.250,19095.376,19095.376,3351.60,3200.00,52,52\n", 64 << 20) - 20000) < 1e-6
    for text in ("", heads, f"{heads}\n[1795302342.462377] UCX  ERROR\n"):
        try:
            ucx.micro(text, 8)
        except quiet.Failed:
            continue
        assert False, text


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


def test_curves():
    assert curve.slower({8: 1.0, 12: 1.0, 16: 1.04, 24: 1.0}) == []
    # 11 B are not 1.5 times 8; of the sizes that are faster than 12 B the fastest counts.
    assert curve.slower({8: 1.0, 11: 0.5, 12: 3.0, 18: 2.0, 26: 1.0}) == [(12, 3.0, 26, 1.0)]
    steps = [b / a for a, b in zip(curve.SIZES, curve.SIZES[1:])]
    assert min(steps) > 1.1 and max(steps) <= 2 and any(size % 8 for size in curve.SIZES)
    rows = [row(size=size, ranks=3, us={"mapped": us, "plain": 1.0}) for size, us in ((8, 1.0), (64, 2.0), (512, 1.5))]
    ((title, heads, lines),) = curve.tables(rows)
    assert title.endswith("no, in 1 of 2 curves") and len(lines) == 1 and len(heads) == len(lines[0])
    assert lines[0][:6] == ["all-reduce", "3", "fresh", "mapped", "1", "64 B"] and lines[0][7] == "512 B", lines
    ((title, _, lines),) = curve.tables(rows[::2])
    assert title.endswith("yes, in 2 curves") and not lines
    assert curve.tables([row()]) == []


REALTIME = """
import quiet
try:
    quiet.become_realtime()
    print(quiet.output_of(["sh", "-c", "setsid sleep 1000 > /dev/null 2>&1 & chrt -p $$"]), quiet.children())
except quiet.Failed as error:
    print(error)
"""


def test_realtime():
    environment = {"PYTHONPATH": str(run.HERE)}
    text = quiet.output_of([sys.executable, "-c", REALTIME], environment)
    # The user has the right to it, or has not.
    assert re.search(r"SCHED_RR[^{]* 50\n set\(\)$", text) or "needs the right to real-time" in text, text
    assert "needs the program chrt" in quiet.output_of([sys.executable, "-c", REALTIME], {**environment, "PATH": ""})


def test_command():
    assert run.command(["build", "--json", "kept", "--minutes", "1"]) == "bench/run.py build --minutes 1"
    assert run.command(["--json=kept", "--full"]) == "bench/run.py --full"


def test_a_small_run(build):
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "kept.json"
        command = [sys.executable, run.HERE / "run.py", build, "--only", "allreduce,broadcast,barrier,ping-pong,bandwidth,message-rate,match,group",
                   "--sizes", "8,64K", "--ranks", "2,3",
                   "--rounds", "2", "--no-peers", "--no-figures", "--noisy", "--json", kept]
        text = quiet.output_of(command)
        report = json.loads(kept.read_text())
        again = quiet.output_of([sys.executable, run.HERE / "run.py", "--from", kept])
    points = {(r["ranks"], r["data"], r["operation"], r["bytes"]) for r in report["rows"]}
    wanted = {(n, data, op, size) for n in (2, 3) for data in ("hot", "fresh")
              for op, size in (("all-reduce", 8), ("all-reduce", 65536), ("broadcast", 8), ("broadcast", 65536), ("barrier", 0))
              if op != "barrier" or data == "hot"}
    wanted |= {(2, "hot", op, size) for op in point.MESSAGES for size in ((8, 65536) if op in point.SIZED else point.SIZES[op])}
    wanted |= {(n, "hot", "group", 0) for n in (2, 3)}
    assert points == wanted, points ^ wanted
    for r in report["rows"]:
        assert set(r["us"]) == {"mapped", "plain"} - ({"plain"} if r["operation"] == "group" else set()) and min(r["us"].values()) > 0, r
        if r["operation"] in point.OPS:
            assert r["limits"] == {}, r
            continue
        assert r["limits"]["direct (mapped)"] > 0 and r["mapped_to_limit"] > 0, r
    # A row that others disturbed has a mark, and its column more room.
    for title in ("2 ranks, hot data", "3 ranks, fresh data", "all-reduce +64 KiB", "Messages one way", "1000 receives", "Goals"):
        assert re.search(title, text) and re.search(title, again), title


def test_figures(build):
    assert 0 < figures.cache_line(build) < 1e5
    assert 0 <= figures.idle(build, 1) < 1e6
    effort = ["--repeats", "1", "--repeat-ms", "1", "--limit-ms", "10"]
    small = figures.small_operations(programs.lockstep_programs(build)[0], lambda: 0.5, effort, 2)
    assert [f["operation"] for f in small] == ["all-reduce", "barrier", "ping-pong"], small
    assert all(f["one_way_us"] == 0.5 and f["times"] == f["us"] / 0.5 > 0 for f in small), small
    lines, trace = figures.opening(programs.lockstep_programs(build)[:1], lambda program: (2,), 1)
    assert [line["ranks"] for line in lines] == [2] and lines[0]["ms"] > 0 and lines[0]["group_ms"] > 0 and trace > 0, lines
    found = figures.verdicts(build, (3,), 1)
    assert [f["cause"] for f in found] == list(figures.VERDICTS) and all(f["ms"] > 0 for f in found), found
    assert figures.terminal(figures.tables({"verdict": found, "open": lines, "idle_us": 1.0})).count("\n") > 5


def main():
    build = Path(sys.argv[1])
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test(*([build] if test.__code__.co_argcount else []))
            print(f"ok {name}", flush=True)


if __name__ == "__main__":
    main()
