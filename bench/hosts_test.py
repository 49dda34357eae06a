#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What bench/hosts.py measures with: hosts_test.py BUILD. A small run of Lockstep and of TCP between hosts, what starts programs
there, and what is said of made-up figures. Says so where the system lets nobody make namespaces."""

import json
import os
import re
import sys
import tempfile
from pathlib import Path

import hosts
import hosts_programs
import on_host
import quiet
from hosts_programs import ASLEEP

EFFORT = ["--repeats", "1", "--repeat-ms", "1", "--limit-ms", "10"]


def row(op="all-reduce", size=16 << 20, ours=(1.0, 1.0), peers=None, tcp=None):
    found = {"ranks": 4, "data": "hot", "operation": op, "bytes": size, "us": dict(zip(hosts.MEMORIES, ours)), "peers": peers or {},
             "limits": {"tcp blocking 2 (tcp)": 9.0, "tcp polling 2 (tcp)": tcp} if tcp else {}, "quiet": True, "best_peer": None}
    found["best_peer"] = min(found["peers"], key=found["peers"].get, default=None)
    return found


def verdicts(rows, figures=None):
    return [goal["met"] for goal in hosts.goals_of({"rows": rows, "figures": figures or {}})]


def test_goals():
    assert verdicts([]) == [None] * 8
    rows = [row(size=8, ours=(0.7, 0.8), peers={"openmpi": 1.0, "mpich keep": 9.0}), row(size=64 << 10, ours=(0.7,), peers={"han keep": 1.01}),
            row(ours=(0.7, 0.7), peers={"gloo ring": 1.01}, tcp=0.6), row("ping-pong", 8, (1.0,), {"ucx free": 0.77, "openmpi": 0.1}),
            row(ASLEEP, 8, (1.0,), {"ucx": 0.77})]
    assert verdicts(rows, {"open_s": 3.0, "sockets": [8, 8]}) == [True] * 8
    rows = [row(size=8, ours=(0.7, 0.81), peers={"openmpi": 1.0}), row(size=64 << 10, ours=(0.71,), peers={"openmpi": 2.0, "han keep": 1.0}),
            row(ours=(0.71, 0.1), peers={"gloo ring": 1.0}, tcp=0.6), row("ping-pong", 8, (1.0,), {"ucx": 0.76}),
            row(ASLEEP, 8, (1.0,), {"ucx": 2.0, "ucx free": 0.76})]
    bad = {"open_s": 3.01, "sockets": [8, 9]}
    assert verdicts(rows, bad) == [False] * 8
    assert hosts.goals_of({"rows": rows, "figures": bad})[1]["here"] == "1.41 (mapped memory; best peer han keep)"
    # Without a socket nothing was counted, and other libraries' messages are no limit for ours.
    assert verdicts([row("ping-pong", 8, (1.0,), {"openmpi": 9.0})], {"sockets": [0, 0]})[4::3] == [None, False]


def test_variants():
    (found,) = hosts.fold([{"us": {"mapped": 3.0, "mapped bound": 2.0, "plain": 5.0}}])
    assert found["us"] == {"mapped": 2.0, "plain": 5.0} and found["variants"]["mapped"] == 3.0, found
    (found,) = hosts.fold([{"us": {"mapped bound": 2.0}}])
    assert found["us"] == {"mapped": 2.0}


def test_table():
    rows = [row(size=8, ours=(1.0, 2.0), peers={"openmpi keep": 4.0, "openmpi": 5.0, "han keep": 3.0}, tcp=0.5), row("barrier", 0, (7.0,))]
    (_, heads, lines), (_, _, others) = hosts.tables(rows, {"open_s": 1.0, "group_ms": 2.0, "sockets": [8, 9]})
    assert {len(line) for line in lines} == {len(heads)}
    assert lines[0][1:6] == ["8 B", "1.00 µs", "2.00 µs", "4.00 µs", "3.00 µs"], lines
    assert lines[0][9:] == ["0.50 µs", "han keep", "3.00", "1.50", "0.50", "0.25"], lines
    assert lines[1][:3] == ["barrier", "", "7.00 µs"] and set(lines[1][3:]) == {"-"}, lines
    assert others[2][1] == "8 9" and hosts.tables([], {}) == []


def test_lines_of_hosts():
    text = "host0: all-reduce 8 1.5 2.5\nhost1: [2] open 0 3.0 8 1.0 4 4\nhost0: mpirun: 8 9\nhost0: ping-pong 8 late\nhost10: [0] barrier 0 2.0\n"
    assert hosts_programs.RESULT.findall(text) == ["all-reduce 8 1.5 2.5", "open 0 3.0 8 1.0 4 4", "barrier 0 2.0"]


def test_launcher_on_other_hosts():
    with tempfile.TemporaryDirectory() as folder:
        on_host.prepare(folder, 3)
        script = f"""for host in 1 2; do {folder}/agent host$host 'echo "$(hostname) has $(cat)"; exit' 4 <"$0" && exit 1; [ $? = 4 ] || exit 2; done
            {folder}/agent host1 'kill -9 $$'; [ $? = 137 ] && echo "$(hostname) ends"; exit 5"""
        with open(f"{folder}/input", "w", encoding="utf-8") as file:
            file.write("its input")
        try:
            hosts_programs.output_of(3, [on_host.__file__, "launch", folder, "sh", "-c", script, f"{folder}/input"], {}, 60)
            assert False
        except quiet.Failed as error:
            assert "ended with 5" in str(error), error
            for line in ("host0: host1 has its input", "host0: host2 has its input", "host0: host0 ends"):
                assert line in str(error), (line, error)


def test_client_waits_for_its_server():
    with tempfile.TemporaryDirectory() as folder:
        os.mkfifo(f"{folder}/door")
        client = f"if [ -e {folder}/tried ]; then echo $(hostname); echo in >{folder}/door; else touch {folder}/tried; echo 'Connection refused'; fi"
        text = hosts_programs.output_of(2, [on_host.__file__, "pair", "cat", f"{folder}/door", "--", "sh", "-c", client], {}, 60)
        assert text == "host1: host1\n", text


def test_a_run_that_lasts_too_long_leaves_nothing():
    with tempfile.TemporaryDirectory() as folder:
        mark = f"{folder}/x"
        os.mkfifo(mark)
        try:
            hosts_programs.output_of(2, ["sh", "-c", f"setsid cat {mark}"], {}, 2)
            assert False
        except quiet.Failed as error:
            assert "not done after 2 s" in str(error), error
    while any(mark.encode() in command_of(pid) for pid in os.listdir("/proc") if pid.isdigit()):
        pass  # what has been killed takes a moment to be gone; what has not been is there for ever


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_opening(build):
    (line,) = hosts_programs.opening(build, 2).lines(4, [])
    assert line[0] == "open" and float(line[2]) > 0 and float(line[4]) > 0, line
    assert int(line[5]) == int(line[6]) > 0, line  # between hosts there are no data without sockets


def test_tcp(build):
    for program in hosts_programs.limit_programs(build):
        points = [("all-reduce", 8), ("all-reduce", 100001)] + ([(ASLEEP, 8)] if program.fits(2, ASLEEP, 8) else [])
        times, _ = program.times(4, True, points, EFFORT)
        assert set(times) == set(points) and min(times.values()) > 0, (program.name, times)


def test_a_small_run(build):
    with tempfile.TemporaryDirectory() as folder:
        kept, page = Path(folder) / "kept.json", Path(folder) / "page.md"
        text = quiet.output_of([sys.executable, hosts.__file__, build, "--only", "allreduce,barrier,ping-pong", "--sizes", "8,64K",
                                "--rounds", "1", "--no-peers", "--no-figures", "--noisy", "--json", kept])
        report = json.loads(kept.read_text())
        page.write_text(f"before {hosts.BEGIN} old {hosts.END} behind")
        hosts.DOC = page
        hosts.write_doc(report)
        written = page.read_text()
        again = quiet.output_of([sys.executable, hosts.__file__, "--from", kept])
    points = {(r["ranks"], r["operation"], r["bytes"]) for r in report["rows"]}
    assert points == {(4, "all-reduce", 8), (4, "all-reduce", 65536), (4, "barrier", 0), (2, "ping-pong", 8), (2, ASLEEP, 8)}, points
    for r in report["rows"]:
        assert set(r["us"]) == set(hosts.MEMORIES) and min(r["us"].values()) > 0, r
        assert len(r["variants"]) == (2 if r["operation"] == ASLEEP else 4), r
        assert bool(r["limits"]) == (r["operation"] != "barrier"), r
    for title in ("Times on 2 hosts", "all-reduce +64 KiB", "Goals"):
        assert re.search(title, text) and re.search(title, again) and re.search(title.replace(" +", " . "), written), title
    assert written.startswith("before ") and written.endswith(" behind") and " old " not in written, written


def main():
    build, passed = Path(sys.argv[1]), 0
    try:
        hosts_programs.try_hosts()
    except hosts_programs.Skipped as reason:
        print(f"# skipped: {reason}\n0 passed, 0 failed")
        return
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test(*([build] if test.__code__.co_argcount else []))
            passed += 1
            print(f"ok {name}", flush=True)
    print(f"{passed} passed, 0 failed")


if __name__ == "__main__":
    main()
