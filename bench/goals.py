# SPDX-License-Identifier: BSD-3-Clause
"""What this project wants to reach, and whether it did: one line a goal, from what run.py has measured."""

import re

import point
import table

IDLE_US = 10  # of a second: nothing but the measuring itself
EVEN = 0.995  # a ratio that is rounded to 1.00


def rows_of(rows, operation, ranks, data=None, low=0, high=1 << 62):
    return [row for row in rows if row["operation"] == operation and row["ranks"] in ranks
            and (data is None or row["data"] == data) and low <= row["bytes"] <= high]


def words(row):
    return " ".join(filter(None, (row["operation"], table.bytes_text(row["bytes"]), f"{row['ranks']} ranks", row["data"])))


def goal(what, wanted, here, met):
    return {"figure": what, "goal": wanted, "here": here, "met": met}


def missing(what, wanted):
    return goal(what, wanted, "not measured", None)


def not_behind(rows, memory):
    """Every collective beside the best peer."""
    what, wanted = f"every collective and size, 2 and 4 ranks, {memory} memory", "not behind the best peer"
    key = f"{memory}_to_peer"
    found = [row for row in rows if row["ranks"] in (2, 4) and key in row and row["operation"] not in point.OPS]
    if not found:
        return missing(what, wanted)
    behind = sorted((row for row in found if row[key] < EVEN), key=lambda row: row[key])
    here = f"{len(behind)} of {len(found)} points behind"
    if behind:
        here += f"; worst {behind[0][key]:.2f}× ({words(behind[0])})"
    return goal(what, wanted, here, not behind)


def at_least(what, found, key, least):
    """The worst of these rows."""
    wanted, found = f"≥ {least:.2f}", [row for row in found if key in row]
    if not found:
        return missing(what, wanted)
    worst = min(found, key=lambda row: row[key])
    return goal(what, wanted, f"{worst[key]:.2f} at worst ({words(worst)}), {len(found)} points", worst[key] >= least)


def at_most(what, value, most, digits=2, unit=""):
    wanted = f"≤ {most:g}{unit}"
    if value is None:
        return missing(what, wanted)
    return goal(what, wanted, f"{value:.{digits}f}{unit}", value <= most)


def small(figures, operation, most):
    times = {f["operation"]: f["times"] for f in figures.get("small") or []}
    size = "" if operation == "barrier" else " of 8 B"
    return at_most(f"{operation}{size}, 2 ranks, ÷ one way of a cache line", times.get(operation), most)


def of_messages(rows, figures):
    large = rows_of(rows, "bandwidth", (2,), low=64 << 10, high=64 << 20)
    growth = point.match_growth(rows)
    return [
        small(figures, "ping-pong", 1.6),
        at_least("ping-pong of 8 B, mapped: best peer ÷ Lockstep", rows_of(rows, "ping-pong", (2,), high=8), "mapped_to_peer", 1.5),
        at_least("bandwidth, mapped, 64 KiB to 64 MiB: Lockstep ÷ best peer", large, "mapped_to_peer", 1.5),
        at_least("bandwidth, plain, 64 KiB to 64 MiB: Lockstep ÷ best peer", large, "plain_to_peer", 1),
        at_least("messages of 8 B in a second, mapped: Lockstep ÷ best peer", rows_of(rows, "message-rate", (2,)), "mapped_to_peer", 1.2),
        at_most("time of a match: growth from 10 to 1,000 outstanding receives ÷ that of the logarithm", growth, 1),
        at_most("opening and closing a group, 2 ranks ÷ Open MPI's", point.group_to_openmpi(rows, 2), 0.2),
        at_most("the same, 64 ranks", point.group_to_openmpi(rows, 64), 0.1),
    ]


def of_report(report):
    """One dictionary a goal; met is None where nothing was measured."""
    rows, figures = report["rows"], report["figures"]
    pair = rows_of(rows, "all-reduce", (2,), "fresh", 64 << 10, 64 << 20)
    middle = {"low": 16 << 20, "high": 16 << 20}
    overlap = figures.get("overlap") or {}
    return [
        not_behind(rows, "mapped"),
        not_behind(rows, "plain"),
        at_least("all-reduce, mapped, fresh, 64 KiB to 64 MiB, 2 ranks: limit ÷ Lockstep", pair, "mapped_to_limit", 0.75),
        at_least("the same: best peer ÷ Lockstep", pair, "mapped_to_peer", 2),
        small(figures, "all-reduce", 2.2),
        small(figures, "barrier", 1.6),
        at_least("all-reduce of 16 MiB, plain, 2 ranks: best limit that only reads ÷ Lockstep",
                 rows_of(rows, "all-reduce", (2,), **middle), "plain_to_limit", 0.75),
        at_least("all-reduce of 16 MiB, mapped, hot, 4 and 8 ranks: limit ÷ Lockstep",
                 rows_of(rows, "all-reduce", (4, 8), "hot", **middle), "mapped_to_limit", 0.7),
        at_most("training step with 32 MiB of gradients averaged ÷ without", overlap.get("overlapped"), 1.1),
        at_most("idle rank: processor time of a second", figures.get("idle_us"), IDLE_US, 1, " µs"),
        at_most("recording an operation", figures.get("recorder_ns"), 25, 1, " ns"),
        *of_messages(rows, figures),
    ]


def places(rows):
    """Each operation of these rows with its sizes."""
    found = {}
    for row in sorted(rows, key=lambda row: row["bytes"]):
        place = point.what_text(row) if row["operation"] in point.OPS else table.bytes_text(row["bytes"])
        found.setdefault(row["operation"], {})[place] = None
    return "; ".join(f"{name} ({', '.join(found[name])})" for name in dict.fromkeys(row["operation"] for row in rows))


def summary(rows):
    """The results beside the best peer in words."""
    lines = []
    for memory in ("mapped", "plain"):
        key = f"{memory}_to_peer"
        beside = [row for row in rows if key in row]
        collectives = [row for row in beside if row["operation"] not in point.OPS and row["ranks"] in (2, 4)]
        behind = [row for row in collectives if row[key] < EVEN]
        if collectives:
            late = {row["operation"] for row in behind}
            never = [name for name in dict.fromkeys(row["operation"] for row in collectives) if name not in late]
            lines.append(f"- Collectives on **{memory}** memory, 2 and 4 ranks: Lockstep is not behind the best peer in "
                         f"{len(collectives) - len(behind)} of {len(collectives)} points."
                         + (f" Never behind: {', '.join(never)}." if never else "")
                         + (f" Behind at some points of these sizes: {places(behind)}." if behind else ""))
        messages = [row for row in beside if row["operation"] in point.OPS]
        if messages:
            ahead, late = ([row for row in messages if (row[key] >= EVEN) == met] for met in (True, False))
            lines.append(f"- Messages and groups, **{memory}** memory: not behind: {places(ahead) or '-'}. Behind: {places(late) or '-'}.")
    return "\n".join(lines)


BESIDE = re.compile(r"- Collectives on \*\*(\w+)\*\* memory, .* in (\d+ of \d+) points\.(?: Never behind: (.*?)\.)?"
                    r"(?: Behind at some points of these sizes: (.*)\.)?")


def in_readme(summary):
    """{memory: the cells of README.md's table} from what summary() returned, also if it is in a page already."""
    cells = {}
    for memory, points, never, behind in BESIDE.findall(summary):
        below, above = [], []
        for name, sizes in (place[:-1].split(" (") for place in filter(None, behind.split("; "))):
            kinds = {size.endswith(" B") for size in sizes.split(", ")}
            below += [name] * (True in kinds)
            above += [name] * (False in kinds)
        slower = [f"{where} ({', '.join(names)})" for where, names in (("below 1 KiB", below), ("above", above)) if names]
        cells[memory] = (f"at {points} points" + (f": always in {never}" if never else "")
                         + (f" | some sizes {', some '.join(slower)}" if slower else " | -"))
    return cells


def tables(goals):
    verdicts = {True: "met", False: "missed", None: "-"}
    return [("Goals", ["figure", "goal", "here", ""], [[g["figure"], g["goal"], g["here"], verdicts[g["met"]]] for g in goals])]
