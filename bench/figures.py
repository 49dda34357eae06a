# SPDX-License-Identifier: BSD-3-Clause
"""The figures that are not times of a collective: processor time, compute beside communication, opening a
group, the verdict, the recorder, an idle group, training, and small operations against the time of a cache
line."""

import re
import statistics

import quiet
import table

VERDICTS = ("kill", "leave", "mismatch")


def processor_time(rows):
    """Picoseconds of processor time for each byte that one rank has reduced, all ranks together."""
    lines = []
    for row in rows:
        if row["operation"] != "all-reduce" or row["data"] != "hot" or row["bytes"] < 65536:
            continue
        cpu = {name: us * 1e6 / row["bytes"] for name, us in row["cpu_us"].items()}
        peers = {name: value for name, value in cpu.items() if name in row["peers"]}
        best = min(peers, key=peers.get, default=None)
        lines.append({"ranks": row["ranks"], "bytes": row["bytes"], "mapped": cpu.get("mapped"),
                      "plain": cpu.get("plain"), "peer": peers.get(best), "which": best})
    return lines


def beside(programs, rounds=3, sizes=(1 << 20, 32 << 20)):
    """A step of compute with an all-reduce beside it, 2 ranks: microseconds."""
    lines = []
    kinds = {"mapped": [[]], "plain": [[]], "openmpi keep": [[], ["--thread"]], "mpich keep": [[], ["--thread"]],
             "gloo ring": [["--thread"]]}
    for program in programs:
        for extra in kinds.get(program.name, []):
            found = {}
            for _ in range(rounds):
                arguments = ["--beside", *extra, *(f"all-reduce:{size}" for size in sizes)]
                words, _ = quiet.quietly(lambda: program.lines(2, arguments))
                for line in words:
                    found.setdefault(int(line[1]), []).append([float(w) for w in line[2:]])
            for size, all_of in found.items():
                compute, alone, step, slowed = (statistics.median(values) for values in zip(*all_of))
                lines.append({"program": program.name + (" (thread)" if extra and program.kind == "peer" else ""),
                              "bytes": size, "compute_us": compute, "allreduce_us": alone, "step_us": step,
                              "slowed_us": slowed, "step_to_compute": step / compute})
    return lines


def opening(programs, ranks_of, rounds=3):
    """How long opening takes, in milliseconds, from the last rank's entry into the call that joins to the last rank's
    return; and how long the slowest rank takes to open and close a first group of all ranks (0: there is none)."""
    lines, trace = [], 0
    for program in programs:
        for ranks in ranks_of(program):
            values, groups = [], []
            for _ in range(rounds if ranks < 64 else 2):
                (line,), _ = quiet.quietly(lambda: program.lines(ranks, ["--open"]))
                values.append(float(line[2]) / 1e3)
                groups.append(float(line[4]) / 1e3)
                trace = trace or int(line[3])
            lines.append({"program": program.name, "ranks": ranks, "ms": statistics.median(values),
                          "group_ms": statistics.median(groups)})
    return lines, trace


def verdicts(build, ranks_of, rounds=5):
    """How long it takes from the cause to the last survivor's error, in milliseconds."""
    lines = []
    for ranks in ranks_of:
        for cause in VERDICTS:
            values = []
            for _ in range(rounds if ranks < 64 else 3):
                command = [build / "lockstep", "run", "--no-prefix", "-n", ranks, "--", build / "bench/verdict", cause]
                try:
                    text = quiet.output_of(command)
                except quiet.Failed as error:
                    if cause != "kill":  # after which the launcher fails, as it should
                        raise
                    text = error.output
                moments = {what: [int(ns) for ns in re.findall(rf"^{what} (\d+)$", text, re.M)] for what in ("cause", "error")}
                if len(moments["error"]) != ranks - (cause != "mismatch"):
                    raise quiet.Failed(f"verdict {cause}: {len(moments['error'])} of {ranks} ranks told their error")
                values.append((max(moments["error"]) - max(moments["cause"])) / 1e6)
            lines.append({"cause": cause, "ranks": ranks, "ms": statistics.median(values)})
    return lines


def cache_line(build):
    """One way of a cache line between two cores, in microseconds."""
    return float(quiet.output_of([build / "bench/line"])) / 1e3


def outside_cache_line(limits):
    """The same by limits.c."""
    text = quiet.output_of([limits, "lat"], enough=lambda line: "no pause" in line)
    return min(float(ns) for ns in re.findall(r"cacheline ping-pong, 2 cores.* ([\d.]+) ns one way", text)) / 1e3


def under_run(build, ranks, program, *arguments):
    return quiet.output_of([build / "lockstep", "run", "--no-prefix", "-n", ranks, "--", build / "bench" / program, *arguments])


def overlap(build, rounds=3):
    """A step of training with its gradients averaged, as a multiple of one without, 2 ranks."""
    ratios = []
    for _ in range(rounds):
        text, _ = quiet.quietly(lambda: under_run(build, 2, "ddp_overlap"))
        ratios.append([float(ratio) for ratio in re.findall(r"\(([\d.]+)\)", text)])
    overlapped, afterwards = (statistics.median(values) for values in zip(*ratios))
    return {"overlapped": overlapped, "afterwards": afterwards}


def idle(build, seconds=10):
    """Microseconds of processor time that the busiest of 2 idle ranks takes in a second."""
    text = under_run(build, 2, "idle", seconds)
    return max(float(us) for us in re.findall(r"^idle ([\d.]+)$", text, re.M)) / seconds


def recorder(build, rounds=3):
    """Nanoseconds for recording an operation."""
    program = build / "src/trace-trace_bench"
    return statistics.median(float(re.search(r"begin \+ end +([\d.]+) ns", quiet.output_of([program]))[1]) for _ in range(rounds))


def small_operations(program, one_way, effort, rounds=9):
    """8 bytes in an all-reduce and a message, and a barrier, on 2 ranks, as multiples of the time of a cache line, which is measured before and after
    each of them: on a virtual machine it moves by the minute."""
    found, ways = {}, []
    for _ in range(rounds):
        before = one_way()
        times, _ = program.times(2, False, [("all-reduce", 8), ("barrier", 0), ("ping-pong", 8)], effort)
        ways.append((before + one_way()) / 2)
        for (op, _), us in times.items():
            found.setdefault(op, []).append((us, us / ways[-1]))
    return [{"operation": op, "us": statistics.median(us for us, _ in values), "one_way_us": statistics.median(ways),
             "times": statistics.median(times for _, times in values)} for op, values in found.items()]


# ---- text: [(title, heads, lines)] ----


def number(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}"


def tables(figures):
    found = []
    if figures.get("processor_time"):
        found.append(("Processor time of all-reduce: picoseconds for each byte of a rank, all ranks together, hot data",
                      ["ranks", "bytes", "mapped", "plain", "best peer", "which"],
                      [[str(f["ranks"]), table.bytes_text(f["bytes"]), number(f["mapped"], 0), number(f["plain"], 0),
                        number(f["peer"], 0), f["which"] or "-"] for f in figures["processor_time"]]))
    if figures.get("beside"):
        found.append(("All-reduce beside compute on the same two processors, 2 ranks",
                      ["program", "bytes", "compute", "all-reduce", "both", "both ÷ compute"],
                      [[f["program"], table.bytes_text(f["bytes"]), table.time_text(f["compute_us"]),
                        table.time_text(f["allreduce_us"]), table.time_text(f["step_us"]), number(f["step_to_compute"], 2)]
                       for f in figures["beside"]]))
    if figures.get("open"):
        found.append(("Joining: last return minus last entry; and opening and closing a first group of all ranks",
                      ["program", "ranks", "join, ms", "first group, ms"],
                      [[f["program"], str(f["ranks"]), number(f["ms"]), number(f["group_ms"]) if f["group_ms"] else "-"]
                       for f in figures["open"]]))
    if figures.get("verdict"):
        found.append(("Verdict: last survivor's error minus its cause", ["cause", "ranks", "ms"],
                      [[f["cause"], str(f["ranks"]), number(f["ms"])] for f in figures["verdict"]]))
    if figures.get("small"):
        found.append(("Small operations, 2 ranks, against one way of a cache line", ["operation", "time", "one way", "times"],
                      [[f["operation"], table.time_text(f["us"]), table.time_text(f["one_way_us"]), number(f["times"], 2)]
                       for f in figures["small"]]))
    rest = []
    if figures.get("one_way_us"):
        rest.append(["a cache line, one way", table.time_text(figures["one_way_us"])])
    if figures.get("trace_bytes"):
        rest.append(["memory of the recorder, per rank", f"{figures['trace_bytes'] / 1024:.0f} KiB"])
    if figures.get("recorder_ns"):
        rest.append(["recording an operation", f"{figures['recorder_ns']:.1f} ns"])
    if figures.get("idle_us") is not None:
        rest.append(["processor time of an idle rank, per second", f"{figures['idle_us']:.1f} µs"])
    if figures.get("overlap"):
        rest.append(["training step with gradients averaged meanwhile ÷ without", number(figures["overlap"]["overlapped"], 3)])
        rest.append(["the same, averaged afterwards", number(figures["overlap"]["afterwards"], 3)])
    if rest:
        found.append(("Cache line, recorder, progress thread, training", ["what", "here"], rest))
    return found


def terminal(tables_of):
    text = []
    for title, heads, lines in tables_of:
        widths = [max(len(line[i]) for line in lines + [heads]) for i in range(len(heads))]
        text.append("\n" + title)
        text += ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in [heads] + lines]
    return "\n".join(text)


def markdown(tables_of):
    text = []
    for title, heads, lines in tables_of:
        text += [f"\n### {title}\n", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
        text += ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join(text)
