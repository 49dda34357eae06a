#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Lockstep beside its peers and the limits of TCP between two hosts, which are network namespaces of this machine, interleaved
in one run.

hosts.py [BUILD] [--only OPERATIONS] [--sizes …] [--rounds …] [--json FILE] [--write-doc]
hosts.py --from FILE [--write-doc]

Collectives have 2 ranks on each host, messages 1. As in run.py each round runs every program once, one after the other, and
medians over the rounds count. Ratios are peer ÷ Lockstep and TCP ÷ Lockstep, as in run.py: above 1 Lockstep is faster. Ends
with 0, and says why, where this system lets nobody make hosts."""

import argparse
import json
import statistics
import sys
from pathlib import Path

import figures
import goals
import hosts_programs
import programs
import quiet
import run
import table
from hosts_programs import ASLEEP

DOC = run.ROOT / "doc/performance-hosts.md"
BEGIN = "<!-- begin: written by bench/hosts.py --write-doc -->"
END = "<!-- end: written by bench/hosts.py --write-doc -->"
SIZES = [8, 64, 512, 4 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20]
RANKS, EACH = 4, 2  # of collectives, in all and on each host
OPEN_HOSTS, OPEN_EACH = 8, 8
MEMORIES = ("mapped", "plain")
FAMILIES = (("Open MPI", "openmpi"), ("HAN", "han"), ("MPICH", "mpich"), ("Gloo", "gloo"))
SMALL = 8


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [*programs.OPS, "ping-pong"]
    parser.add_argument("build", type=Path, nargs="?", default=run.ROOT / "build/release")
    parser.add_argument("--only", type=run.op_list, default=["all-reduce", "ping-pong"], metavar="OP,…",
                        help="of " + ", ".join(known) + "; all-reduce and ping-pong, if nothing is said")
    parser.add_argument("--sizes", type=run.number_list, metavar="BYTES,…", default=SIZES, help="such as 8,64K,16M; of collectives")
    parser.add_argument("--data", choices=["hot", "fresh"], default="hot")
    parser.add_argument("--rounds", type=int, default=3, help="at most so many (3)")
    parser.add_argument("--minutes", type=float, default=20, help="nothing begins that would not end in time (20)")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--no-limits", action="store_true")
    parser.add_argument("--no-figures", action="store_true", help="without opening 64 ranks on 8 hosts")
    parser.add_argument("--noisy", action="store_true", help="does not repeat disturbed runs")
    parser.add_argument("--verbose", action="store_true", help="tells of every run how long it took")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keeps everything there")
    parser.add_argument("--from", type=Path, dest="kept", metavar="FILE", help="measures nothing: what --json has kept")
    parser.add_argument("--write-doc", action="store_true", help="writes tables and plot into doc/")
    options = parser.parse_args()
    unknown = [op for op in options.only if op not in known]
    if unknown:
        parser.error(f"--only: between hosts nothing times {', '.join(unknown)}")
    options.only_figures = False
    options.effort = ["--repeats", "7", "--repeat-ms", "20", "--limit-ms", "300"]
    return options


class Session(run.Session):
    def find_programs(self, out):
        options = self.options
        self.programs = hosts_programs.lockstep_programs(options.build)
        self.programs += [] if options.no_peers else hosts_programs.all_peers(out)
        self.programs += [] if options.no_limits else hosts_programs.limit_programs(options.build)

    def cells(self):
        fresh, only = self.options.data == "fresh", self.options.only
        collectives = tuple(op for op in only if op in programs.OPS)
        # Messages are measured hot only.
        messages = [(2, False, ("ping-pong", ASLEEP))] if "ping-pong" in only else []
        return messages + ([(RANKS, fresh, collectives)] if collectives else [])

    def points_of(self, ranks, fresh, ops):
        return [(op, size) for op in ops
                for size in ([SMALL] if op in ("ping-pong", ASLEEP) else [0] if op == "barrier" else self.options.sizes)]

    def drop_hopeless(self):
        """Drops variants that are far behind the best one of the same peer: every peer keeps its column."""
        for (ranks, fresh, op, size), found in self.results.times.items():
            for (kind, name), samples in found.items():
                best = min(s.median() for (k, n), s in found.items() if k == kind and n.split()[0] == name.split()[0])
                if kind == "peer" and samples.median() > run.NEAR * best:
                    self.dropped.setdefault((name, ranks, fresh), set()).add((op, size))

    def measure_figures(self):
        found = []
        try:
            for _ in range(self.options.rounds):
                (line,), _ = self.run("opening", OPEN_HOSTS * OPEN_EACH, False, lambda: hosts_programs.opening(
                    self.options.build, OPEN_HOSTS).lines(OPEN_HOSTS * OPEN_EACH, []))
                found.append(tuple(map(float, line[2:])))
        except quiet.Failed as error:
            self.complain("opening", error)
            self.failed = True
        if not found:
            return {}
        us, _, group_us, before, after = zip(*found)
        return {"open_s": statistics.median(us) / 1e6, "group_ms": statistics.median(group_us) / 1e3,
                "sockets": [max(before), max(after)]}

    def report(self, rounds):
        found = {**self.facts(rounds), "hosts": 2, "rows": fold(self.results.rows()), "figures": self.figures}
        found["goals"] = goals_of(found)
        return found


def fold(rows):
    """Of Lockstep's variants the best one counts as well, for each kind of memory."""
    for row in rows:
        variants = row["us"]
        row["variants"] = dict(variants)
        row["us"] = {memory: min(us for name, us in variants.items() if name.split()[0] == memory)
                     for memory in MEMORIES if any(name.split()[0] == memory for name in variants)}
    return rows


# ---- goals ----


def find(rows, op, size):
    return next((row for row in rows if row["operation"] == op and row["bytes"] == size), None)


def beside_peer(rows, what, op, size, least, peers=None):
    """The best peer's time ÷ Lockstep's, with the memory that is slower."""
    row = find(rows, op, size)
    theirs = {name: us for name, us in (row or {"peers": {}})["peers"].items() if peers is None or name.split()[0] in peers}
    wanted = f"≥ {least:.2f}"
    if not theirs or not row["us"]:
        return goals.missing(what, wanted)
    best, memory = min(theirs, key=theirs.get), max(row["us"], key=row["us"].get)
    ratio = theirs[best] / row["us"][memory]
    return goals.goal(what, wanted, f"{ratio:.2f} ({memory} memory; best peer {best})", ratio >= least)


def beside_tcp(rows, size, least):
    what, wanted = f"all-reduce of {table.bytes_text(size)}: TCP with all data once each way ÷ Lockstep", f"≥ {least:.2f}"
    row = find(rows, "all-reduce", size)
    if not row or not row["limits"] or not row["us"]:
        return goals.missing(what, wanted)
    memory = max(row["us"], key=row["us"].get)
    ratio = min(row["limits"].values()) / row["us"][memory]
    return goals.goal(what, wanted, f"{ratio:.2f} ({memory} memory)", ratio >= least)


def same_sockets(figures_of):
    what, wanted = "sockets of 64 ranks on 8 hosts, after all have exchanged data with all", "as many as when opened"
    if not figures_of.get("sockets"):
        return goals.missing(what, wanted)
    before, after = figures_of["sockets"]
    return goals.goal(what, wanted, f"{before:.0f}, then {after:.0f}", before == after > 0)


def goals_of(report):
    rows, figures_of = report["rows"], report["figures"]
    allreduce = [beside_peer(rows, f"all-reduce of {table.bytes_text(size)}, 2 hosts of 2 ranks: best peer ÷ Lockstep", "all-reduce", size, least)
                 for size, least in ((8, 1.25), (64 << 10, 1.43), (16 << 20, 1.43))]
    messages = [beside_peer(rows, f"message of 8 B one way between hosts, {how}: ucx_perftest ÷ Lockstep", op, SMALL, 0.77, ("ucx",))
                for how, op in (("polling", "ping-pong"), ("asleep", ASLEEP))]
    return [*allreduce, beside_tcp(rows, 16 << 20, 0.85), *messages,
            goals.at_most("opening a group of 64 ranks on 8 hosts", figures_of.get("open_s"), 3, 2, " s"), same_sockets(figures_of)]


# ---- text ----


def ratio(theirs, ours):
    return table.ratio(theirs / ours if theirs and ours else None)


def tables(rows, figures_of):
    heads = ["operation", "bytes", *MEMORIES, *(title for title, _ in FAMILIES), "UCX", "TCP", "best peer",
             *(f"{memory} ×" for memory in MEMORIES), *(f"{memory} lim." for memory in MEMORIES)]
    lines = []
    for row in rows:
        ours = [row["us"].get(memory) for memory in MEMORIES]
        peer, limit = row["peers"].get(row["best_peer"]), min(row["limits"].values(), default=None)
        times = [*ours, *(table.family(row, name) for _, name in (*FAMILIES, ("UCX", "ucx"))), limit]
        lines.append([row["operation"], table.bytes_text(row["bytes"]) + ("" if row["quiet"] else " ~"), *map(table.time_text, times),
                      row["best_peer"] or "-", *(ratio(peer, us) for us in ours), *(ratio(limit, us) for us in ours)])
    found = [("Times on 2 hosts: collectives with 2 ranks on each, messages one way with 1", heads, lines)] if lines else []
    if figures_of.get("open_s"):
        found.append(("64 ranks on 8 hosts", ["what", "here"], [
            ["opening: last return minus last entry", f"{figures_of['open_s']:.2f} s"],
            ["opening and closing a second group", f"{figures_of['group_ms']:.0f} ms"],
            ["sockets, then and later", " ".join(f"{count:.0f}" for count in figures_of["sockets"])]]))
    return found


def write_doc(report):
    body = "\n".join([run.head(report), figures.markdown(goals.tables(report["goals"])), "", run.draw(report, DOC.parent),
                      figures.markdown(tables(report["rows"], report["figures"]))])
    run.write_between(DOC, BEGIN, END, body)


def measure(options):
    try:
        hosts_programs.try_hosts()
    except hosts_programs.Skipped as reason:
        print(f"hosts.py: nothing is measured: {reason}", flush=True)
        return None, False
    session = Session(options)
    return session.report(session.rounds()), session.failed


def main():
    options = parse()
    report, failed = (json.loads(options.kept.read_text()), False) if options.kept else measure(options)
    if not report:
        return 0
    print(run.head(report).replace("\n\n", "\n"))
    print(figures.terminal(tables(report["rows"], report["figures"]) + goals.tables(report["goals"])))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    if options.write_doc:
        write_doc(report)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
