#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""All-reduce (float32, sum, ls_alloc memory) beside the limit of this machine, interleaved in one run.

run.py BUILD [--yardsticks DIR] [--rounds N] [--json]
DIR holds limits.c and direct_p.c, which measure what direct access to shared buffers reaches on this
machine without any runtime around it; without DIR only Lockstep's own times are printed. Ratios are
limit / Lockstep, medians over the rounds; 1.00 is the limit. A round in which other processes took
more than 3 % of the processor time is repeated, twice at most, and marked if it stays so."""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
from pathlib import Path

SIZES = [8, 1024, 65536, 262144, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
LIMIT_SIZES = {8, 1024, 65536, 1 << 20, 16 << 20, 64 << 20}  # those that limits.c measures


def build(yardsticks, out):
    out.mkdir(parents=True, exist_ok=True)
    for name in ("limits", "direct_p"):
        subprocess.run(["gcc", "-O3", "-march=native", "-w", "-o", out / name, Path(yardsticks) / f"{name}.c", "-lpthread"], check=True)


def jiffies():
    """(busy, own and children's) processor time so far, in clock ticks."""
    fields = list(map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9]))
    times = os.times()
    return sum(fields) - fields[3] - fields[4], sum(times[:4]) * os.sysconf("SC_CLK_TCK")


def foreign_share(function):
    """Runs function; returns its result and the share of the processors that others took meanwhile."""
    begin, start = jiffies(), os.times().elapsed
    result = function()
    end, seconds = jiffies(), os.times().elapsed - start
    foreign = (end[0] - begin[0]) - (end[1] - begin[1])
    return result, max(0.0, foreign / (seconds * os.sysconf("SC_CLK_TCK") * os.cpu_count()))


def run_lockstep(build_dir, ranks, sizes, fresh=False):
    command = [build_dir / "lockstep", "run", "--no-prefix", "-n", str(ranks), "--", build_dir / "test/bench/allreduce"]
    command += ["--fresh"] if fresh else []
    done = subprocess.run(command + [str(s) for s in sizes], stdout=subprocess.PIPE, text=True, check=True)
    return {int(a): float(b) for a, b in (line.split() for line in done.stdout.split("\n") if line)}


def run_direct(out, ranks, sizes):
    done = subprocess.run([out / "direct_p", str(ranks), "allreduce"] + [str(s) for s in sizes],
                          stdout=subprocess.PIPE, text=True, check=True)
    return {int(m[1]): float(m[2]) for m in re.finditer(r"(\d+) B +([\d.]+) us", done.stdout)}


def run_limits(out):
    """The two direct variants of `limits allreduce`; the rest of its output is not waited for."""
    best = {}
    with subprocess.Popen([out / "limits", "allreduce"], stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        for line in process.stdout:
            words = line.split()
            if words[0] not in ("variant", "direct", "direct_nt"):
                break
            if words[0] != "variant":
                size, us = int(words[1]), float(words[3])
                best[size] = min(us, best.get(size, us))
        os.killpg(process.pid, signal.SIGKILL)
    return best


def measure_round(build_dir, out, two_limits):
    figures = {}
    for ranks in (2, 4):
        sizes = SIZES
        figures[ranks] = {"lockstep": run_lockstep(build_dir, ranks, sizes)}
        if out:
            figures[ranks]["direct_p"] = run_direct(out, ranks, sizes)
        if out and ranks == 2 and two_limits:
            figures[ranks]["limits"] = run_limits(out)
    return figures


def median(rounds, ranks, program, size):
    values = [r[ranks][program][size] for r in rounds if program in r[ranks] and size in r[ranks][program]]
    return statistics.median(values) if values else None


def summarize(rounds):
    rows = []
    for ranks in (2, 4):
        for size in SIZES:
            ours = median(rounds, ranks, "lockstep", size)
            limits = {p: t for p in ("direct_p", "limits") if (t := median(rounds, ranks, p, size)) is not None}
            row = {"ranks": ranks, "bytes": size, "us": ours}
            if limits:
                name = min(limits, key=limits.get)
                row.update(limit=name, limit_us=limits[name], ratio=limits[name] / ours)
            rows.append(row)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--yardsticks", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    out = None
    if options.yardsticks and (options.yardsticks / "limits.c").exists():
        out = options.build / "yardsticks"
        build(options.yardsticks, out)
    rounds = []
    for i in range(options.rounds):
        for _ in range(3):
            figures, foreign = foreign_share(lambda: measure_round(options.build, out, i < 3))
            if foreign <= 0.03:
                break
            print(f"round {i + 1}: other processes took {100 * foreign:.0f} % of the processors", file=sys.stderr)
        rounds.append(figures)
    rows = summarize(rounds)
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    print("all-reduce, float32, sum, ls_alloc memory, same buffer again and again")
    print(f"{'ranks':>5} {'bytes':>10} {'lockstep us':>12} {'limit us':>12} {'limit':>9} {'ratio':>6}")
    for row in rows:
        tail = f"{row['limit_us']:12.2f} {row['limit']:>9} {row['ratio']:6.2f}" if "ratio" in row else ""
        print(f"{row['ranks']:>5} {row['bytes']:>10} {row['us']:12.2f} {tail}")


if __name__ == "__main__":
    main()
