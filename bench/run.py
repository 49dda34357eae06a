#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Lockstep beside its peers and the limits of this machine, interleaved in one run.

run.py [BUILD] [--full] [--only OPERATIONS] [--ranks …] [--sizes …] [--json FILE] [--write-doc]
run.py --from FILE [--write-doc]

Each round runs every program once for each number of ranks and kind of data, one after the other, so that
all of them meet the same neighbours; the order turns from round to round. What most is promised for comes
first, and nothing begins that would not end in the time that there is. A run during which other processes
took more than 3 % of the processors is repeated, and left out of the medians if it stays so (points where
nothing else is left carry a ~). From the second round on a variant of a peer only runs where it came within
half of the best peer. Ratios are peer ÷ Lockstep and limit ÷ Lockstep: above 1 Lockstep is faster."""

import argparse
import datetime
import json
import os
import platform
import re
import sys
import tempfile
import time
from pathlib import Path

import curve
import figures
import goals
import point
import programs
import quiet
import table

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
DOC = ROOT / "doc/performance.md"
README = ROOT / "README.md"
ROWS = {"mapped": "  | collectives on buffers of `ls_alloc` | ", "plain": "  | collectives on other buffers | "}  # of README.md
BEGIN = "<!-- begin: written by bench/run.py --write-doc -->"
END = "<!-- end: written by bench/run.py --write-doc -->"
NEAR = 1.5  # a variant this much behind the best peer is not tried again

SIZES = [8 << (3 * i) for i in range(8)]  # 8 B, 64 B, … 2 MiB, 16 MiB
FULL_SIZES = sorted({8 << (2 * i) for i in range(12)} | {64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20})
MORE = {("all-reduce", 2): [64 << 10, 1 << 20, 64 << 20]}  # where most is promised
RANKS = (2, 4, 8)
FIRST = ("all-reduce", "barrier")
FIGURES_S = 150  # about what the other figures take


def number_list(text):
    units = {"K": 10, "M": 20, "G": 30}
    found = []
    for word in text.split(","):
        match = re.fullmatch(r"(\d+)([KMG]?)", word)
        if not match:
            raise argparse.ArgumentTypeError(f"'{word}' is no number such as 8, 64K or 16M")
        found.append(int(match[1]) << units.get(match[2], 0))
    return found


def op_list(text):
    known = {op.replace("-", ""): op for op in programs.OPS + point.OPS}
    words = [word.replace("-", "").replace("_", "") for word in text.split(",")]
    for word in words:
        if word not in known:
            raise argparse.ArgumentTypeError(f"'{word}' is none of {', '.join(known.values())}")
    return [known[word] for word in words]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, nargs="?", default=ROOT / "build/release")
    parser.add_argument("--full", action="store_true", help="every size to 256 MiB, longer loops: hours")
    parser.add_argument("--only", type=op_list, default=[*programs.OPS, *point.OPS], metavar="OP,…",
                        help="of " + ", ".join(programs.OPS + point.OPS))
    parser.add_argument("--ranks", type=number_list, metavar="N,…", help="of collectives (2,4,8) and groups (2,64); messages have 2")
    parser.add_argument("--sizes", type=number_list, metavar="BYTES,…", help="such as 8,64K,16M; of collectives, ping-pong and bandwidth")
    parser.add_argument("--curve", action="store_true", help="collectives in steps of less than 2, 2 to 8 ranks, hot; tells where a curve falls")
    parser.add_argument("--data", choices=["hot", "fresh"])
    parser.add_argument("--rounds", type=int, help="at most so many (3, or 5 with --full)")
    parser.add_argument("--minutes", type=float, help="nothing begins that would not end in time (12, or 300 with --full)")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--no-limits", action="store_true")
    parser.add_argument("--no-figures", action="store_true", help="times of collectives, messages and groups only")
    parser.add_argument("--only-figures", action="store_true", help="all but these")
    parser.add_argument("--realtime", action="store_true", help="everything under SCHED_RR, for a machine with other users; they wait meanwhile")
    parser.add_argument("--noisy", action="store_true", help="does not repeat disturbed runs")
    parser.add_argument("--verbose", action="store_true", help="tells of every run how long it took")
    parser.add_argument("--yardsticks", type=Path, help="folder with limits.c, direct_p.c and c2c.c, for more limits")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keeps everything there")
    parser.add_argument("--from", type=Path, dest="kept", metavar="FILE", help="measures nothing: what --json has kept")
    parser.add_argument("--write-doc", action="store_true", help="writes tables and plots into doc/, and figures into README.md")
    options = parser.parse_args()
    if options.curve:
        options.only = [op for op in options.only if op in programs.OPS and op != "barrier"]
        options.sizes = options.sizes or curve.SIZES
        options.ranks = options.ranks or list(curve.RANKS)
        options.data = options.data or "hot"
        options.no_figures = True
    options.rounds = options.rounds or (5 if options.full else 3)
    options.minutes = options.minutes or (300 if options.full else 12)
    options.effort = ["--repeats", "7" if options.full else "5", "--repeat-ms", "20" if options.full else "8",
                      "--limit-ms", "500" if options.full else "100"]
    return options


def points_of(options, ranks, fresh, ops):
    found = []
    for op in ops:
        if op in point.OPS:
            found += point.points_of(op, options.sizes)
            continue
        if op == "barrier" and fresh:  # it has no data
            continue
        sizes = options.sizes or (FULL_SIZES if options.full else SIZES)
        if not options.sizes and not options.full:
            sizes = sorted(sizes + MORE.get((op, ranks), []))
        found += [(op, size) for size in (sizes if op != "barrier" else [0])]
    return found


class Session:
    def __init__(self, options):
        self.options = options
        self.results = table.Results()
        self.complained = set()
        self.failed = False  # Lockstep itself
        self.dropped = {}  # (program, ranks, fresh) -> points that it is not tried at again
        self.took = {}  # cell -> seconds
        self.figures = {}
        self.begin = time.monotonic()
        quiet.TRIES = 1 if options.noisy else 3
        out = options.build / "bench"
        out.mkdir(exist_ok=True)
        self.limits = []
        self.find_programs(out)

    def find_programs(self, out):
        options = self.options
        self.limit_binary = out / "limits"
        self.ours = programs.lockstep_programs(options.build)
        self.peers = [] if options.no_peers else programs.all_peers(options.build, out)
        self.programs = self.ours + self.peers
        if not options.no_limits:
            self.programs += programs.limit_programs(options.build)
            self.limits = programs.kernel_limits(options.build, options.full)
            if options.yardsticks and (options.yardsticks / "limits.c").exists():
                self.limits += programs.outside_limits(options.yardsticks, out)

    def complain(self, name, error):
        if (name, str(error)[:60]) not in self.complained:
            self.complained.add((name, str(error)[:60]))
            print(f"{name}: {error}", file=sys.stderr, flush=True)

    def run(self, name, ranks, fresh, function):
        begin = time.monotonic()
        result, foreign = quiet.quietly(function)
        if self.options.verbose:
            took = f"{time.monotonic() - begin:5.1f} s, others took {100 * foreign:2.0f} %"
            print(f"{took}: {ranks} ranks, {'fresh' if fresh else 'hot'}: {name}", file=sys.stderr, flush=True)
        return result, foreign

    def run_program(self, program, ranks, fresh, points):
        dropped = self.dropped.get((program.name, ranks, fresh), set())
        points = [p for p in points if p not in dropped and program.fits(ranks, *p)]
        if not points:
            return
        try:
            (times, cpu), foreign = self.run(program.name, ranks, fresh, lambda: program.times(ranks, fresh, points, self.options.effort))
        except quiet.Failed as error:
            self.complain(f"{program.name}, {ranks} ranks", error)
            self.failed |= program.kind == "lockstep"
            times, cpu = programs.parse([line.split() for line in error.output.split("\n") if line])
            foreign = 1.0
            if program.kind == "peer":
                self.dropped[program.name, ranks, fresh] = set(points)
        for (op, size), us in times.items():
            self.results.add((ranks, fresh, op, size), program.kind, program.name, us, foreign, cpu.get((op, size)))

    def run_limit(self, limit, ranks, fresh, points):
        points = [p for p in points if limit.fits(ranks, fresh, *p)]
        if not points:
            return
        try:
            times, foreign = self.run("limit " + limit.name, ranks, fresh, lambda: limit.times(ranks, fresh, points))
        except quiet.Failed as error:
            self.complain(f"limit {limit.name}", error)
            return
        for (op, size), us in times.items():
            if (op, size) in points:
                self.results.add((ranks, fresh, op, size), f"limit {limit.memory}", limit.name, us, foreign)

    def points_of(self, ranks, fresh, ops):
        return points_of(self.options, ranks, fresh, ops)

    def cells(self):
        """(ranks, fresh, operations), those first for which most is promised."""
        kinds = {None: (True, False), "hot": (False,), "fresh": (True,)}[self.options.data]
        only, ranks_of = self.options.only, self.options.ranks
        parts = [[op for op in only if op in FIRST], [op for op in only if op in programs.OPS and op not in FIRST]]
        first, rest = ([(ranks, fresh, tuple(ops)) for ranks in ranks_of or RANKS for fresh in kinds] if ops else [] for ops in parts)
        # Messages and groups are measured hot only.
        return first + (point.cells(only, ranks_of) if False in kinds else []) + rest

    def left_s(self):
        return self.options.minutes * 60 - (time.monotonic() - self.begin)

    def run_cell(self, cell, turn):
        """Runs every program once, one after the other."""
        ranks, fresh, ops = cell
        begin = time.monotonic()
        points = self.points_of(ranks, fresh, ops)
        jobs = [(self.run_program, p) for p in self.programs]
        jobs += [(self.run_limit, limit) for limit in self.limits if turn < limit.rounds]
        first = turn * len(jobs) // 3 % len(jobs)
        for run, what in jobs[first:] + jobs[:first]:
            run(what, ranks, fresh, points)
        self.took[cell] = time.monotonic() - begin

    def drop_hopeless(self):
        for (ranks, fresh, op, size), found in self.results.times.items():
            _, best = self.results.best((ranks, fresh, op, size), "peer")
            for (kind, name), samples in found.items():
                if kind == "peer" and samples.median() > NEAR * best:
                    self.dropped.setdefault((name, ranks, fresh), set()).add((op, size))

    def rounds(self):
        """How many rounds there was time for; the other figures are measured after the first."""
        cells = self.cells() if not self.options.only_figures else []
        later = 0 if self.options.no_figures else FIGURES_S
        for turn in range(self.options.rounds):
            begin, late = time.monotonic(), []
            for cell in cells:
                # The first time nobody knows how long a cell takes; later it is a little less than the last time.
                if self.left_s() - later < self.took.get(cell, 30) * 0.9:
                    late.append(cell)
                    continue
                self.run_cell(cell, turn)
            self.drop_hopeless()
            if turn == 0 and not self.options.no_figures:
                self.figures = self.measure_figures()
                later = 0
            print(f"round {turn + 1} took {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
            for ranks, fresh, ops in late if turn == 0 else ():
                left_out = f"{ranks} ranks, {'fresh' if fresh else 'hot'} data, {', '.join(ops)}"
                print(f"no time for: {left_out} (--minutes gives more)", file=sys.stderr)
            if len(late) == len(cells):
                return turn
        return self.options.rounds

    def measure_figures(self):
        """Measures the figures that need programs of their own. It reports those that fail, and leaves them out."""
        found, build, full = {}, self.options.build, self.options.full

        def ranks_of(program):
            if program.kind == "lockstep":
                return (2, 8, 64) if program.name == "mapped" else ()
            return (2, 8, 64) if full and program.name in ("openmpi", "mpich") else (2, 8) if program.name in ("openmpi", "mpich", "gloo ring") else ()

        def one_way():
            ours = figures.cache_line(build)
            return min(ours, figures.outside_cache_line(self.limit_binary)) if self.limit_binary.exists() else ours

        for name, make in (("small", lambda: figures.small_operations(self.ours[0], one_way, self.options.effort)),
                           ("overlap", lambda: figures.overlap(build)),
                           ("idle_us", lambda: figures.idle(build)),
                           ("recorder_ns", lambda: figures.recorder(build)),
                           ("open", lambda: figures.opening(self.ours + self.peers, ranks_of)),
                           ("verdict", lambda: figures.verdicts(build, (2, 8, 64))),
                           ("beside", lambda: figures.beside(self.ours + self.peers))):
            begin = time.monotonic()
            try:
                found[name] = make()
            except (quiet.Failed, OSError, ValueError, TypeError) as error:
                self.complain(name, error)
                self.failed = True
            if self.options.verbose:
                print(f"{time.monotonic() - begin:5.1f} s: {name}", file=sys.stderr, flush=True)
        found["open"], found["trace_bytes"] = found.get("open") or ([], 0)
        found["one_way_us"] = found["small"][0]["one_way_us"] if found.get("small") else None
        return found

    def facts(self, rounds):
        """What a report says of the run itself."""
        return {"machine": machine(), "versions": programs.versions(self.options.build), "date": datetime.date.today().isoformat(),
                "command": command(sys.argv[1:], Path(sys.argv[0]).name), "rounds": rounds, "noisy_runs": quiet.disturbed}

    def report(self, rounds):
        rows = self.results.rows()
        figures_too = dict(self.figures)
        if rows and not self.options.no_figures:
            figures_too["processor_time"] = figures.processor_time(rows)
        found = {**self.facts(rounds), "curve": self.options.curve, "realtime": quiet.realtime, "rows": rows, "figures": figures_too}
        found["goals"] = goals.of_report(found)
        return found


def command(arguments, program="run.py"):
    """What a person types to have the same; where one machine has kept it is not part of that."""
    words = [word for before, word in zip(["", *arguments], arguments)
             if "--json" not in (before, word) and not word.startswith("--json=")]
    return " ".join([f"bench/{program}", *words])


def machine():
    text = Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*: (.*)", text)
    memory = int(re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())[1])
    caches = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind = (index / "type").read_text().strip()
        if kind != "Instruction":
            caches[f"L{(index / 'level').read_text().strip()}"] = (index / "size").read_text().strip()
    return {"processor": model[1] if model else platform.machine(), "processors": os.cpu_count(), "caches": caches,
            "memory_gib": round(memory / (1 << 20)), "kernel": platform.release(),
            "isa": [w for w in ("avx2", "avx512f") if re.search(rf"\b{w}\b", text)]}


def head(report):
    host = report["machine"]
    caches = ", ".join(f"{name} {size}" for name, size in host["caches"].items())
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    return (f"Machine: {host['processor']}, {host['processors']} processors ({' '.join(host['isa'])}; {caches}), "
            f"{host['memory_gib']} GiB, Linux {host['kernel']}.\n\n"
            f"Versions: {versions}.\n\n"
            f"Command: `{report['command']}` on {report['date']}; {report['rounds']} rounds. "
            f"Other processes disturbed {report['noisy_runs']} runs; a point uses such a run only if it has no other."
            + (" Every program, peers and limits as well, ran under SCHED_RR." if report.get("realtime") else ""))


def curves_of(report):
    return curve.tables(collectives_of(report)) if report.get("curve") else []


def collectives_of(report):
    return [row for row in report["rows"] if row["operation"] in programs.OPS]


def draw(report, folder=DOC.parent):
    """Markdown of the pictures in this folder, drawn by whichever Python has matplotlib."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(report, file)
        file.flush()
        for python in (sys.executable, "/usr/bin/python3"):
            try:
                text = quiet.output_of([python, HERE / "plot.py", file.name, folder])
                return "\n".join(f"![{title}]({name})" for name, title in (line.split("\t") for line in text.splitlines()))
            except quiet.Failed as error:
                failed = error
    print(f"no pictures: {failed}", file=sys.stderr)
    return ""


def write_between(page, begin, end, body):
    """Replaces what stands between the two marks of a page."""
    text = page.read_text()
    before, rest = text.split(begin)
    page.write_text(f"{before}{begin}\n\n{body}\n\n{end}{rest.split(end)[1]}")


def with_figures(readme, summary):
    """The text of README.md with the figures of this summary."""
    for memory, cells in goals.in_readme(summary).items():
        readme = re.sub(rf"^{re.escape(ROWS[memory])}.*$", lambda _: f"{ROWS[memory]}{cells} |", readme, flags=re.M)
    return readme


def write_doc(report):
    body = "\n".join([head(report), "", "## In short", "", goals.summary(report["rows"]),
                      figures.markdown(goals.tables(report["goals"])).replace("\n### ", "\n## "), "",
                      "## Times", "", draw(report), table.markdown(collectives_of(report)), "", "## Point to point",
                      figures.markdown(point.tables(report["rows"])), "", "## Other figures",
                      figures.markdown(figures.tables(report["figures"]))])
    write_between(DOC, BEGIN, END, body)
    README.write_text(with_figures(README.read_text(), DOC.read_text()))


def main():
    options = parse()
    if options.kept:
        report, failed = json.loads(options.kept.read_text()), False
    else:
        if options.realtime:
            try:
                quiet.become_realtime()
            except quiet.Failed as error:
                print(f"run.py: {error}", file=sys.stderr)
                return 2
        session = Session(options)
        report = session.report(session.rounds())
        failed = session.failed
    print(head(report).replace("\n\n", "\n"))
    print(table.terminal(collectives_of(report)))
    print(figures.terminal(curves_of(report) + point.tables(report["rows"]) + figures.tables(report["figures"]) + goals.tables(report["goals"])))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    if options.write_doc:
        write_doc(report)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
