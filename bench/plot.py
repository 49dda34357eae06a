#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""plot.py FILE.json FOLDER: draws time against size, Lockstep beside its peers, from what run.py or hosts.py --json
has written, as FOLDER/performance-….svg; prints the names of the pictures. Needs matplotlib."""

import json
import sys
from pathlib import Path

import matplotlib

import point
from table import family

matplotlib.use("svg")
import matplotlib.pyplot as pyplot  # noqa: E402

CURVES = (  # name, color, line, what is drawn of a row
    ("Lockstep, mapped", "#0b5fa5", "-", lambda row: row["us"].get("mapped")),
    ("Lockstep, plain", "#58a6e0", "-", lambda row: row["us"].get("plain")),
    ("Open MPI", "#c1440e", "-", lambda row: family(row, "openmpi")),
    ("Open MPI, HAN", "#e39c37", "-", lambda row: family(row, "han")),
    ("MPICH", "#7a9a01", "-", lambda row: family(row, "mpich")),
    ("Gloo", "#8e5ea2", "-", lambda row: family(row, "gloo")),
    ("limit, mapped", "#0b5fa5", ":", lambda row: limit(row, "mapped")),
    ("limit, plain", "#58a6e0", ":", lambda row: limit(row, "plain")),
    ("TCP alone", "#666666", ":", lambda row: limit(row, "tcp")),
)


def limit(row, memory):
    return min((us for name, us in row["limits"].items() if name.endswith(f"({memory})")), default=None)


def size_name(size, _=None):
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.0f}{unit}"
    return f"{size:.0f}"


def time_name(us, _=None):
    for scale, unit in ((1e6, "s"), (1e3, "ms")):
        if us >= scale:
            return f"{us / scale:g} {unit}"
    return f"{us:g} µs"


def draw_panel(axes, rows, across, title):
    """One panel; `across` is what the horizontal axis shows of a row."""
    for name, color, line, pick in CURVES:
        points = sorted((row[across], pick(row)) for row in rows if pick(row))
        if points:
            xs, ys = zip(*points)
            axes.plot(xs, ys, line, color=color, label=name, marker="o" if line == "-" else None, markersize=2.5, linewidth=1.3)
    axes.set_title(title, fontsize=9)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(time_name)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(size_name)
    shown = sorted({row[across] for row in rows})
    axes.set_xticks(shown[:: 1 + len(shown) // 8])
    axes.minorticks_off()
    axes.tick_params(labelsize=7)
    axes.grid(True, linewidth=0.3, alpha=0.6)


def save(figure, panels, path):
    labels = {}
    for axes in panels:
        labels.update({label: line for line, label in zip(*axes.get_legend_handles_labels())})
    order = [name for name, *_ in CURVES if name in labels]
    width, height = figure.get_size_inches()
    columns = max(1, min(len(order), int(width / 1.5)))
    lines = -(-len(order) // columns)
    figure.legend([labels[name] for name in order], order, loc="lower center", ncol=columns, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.22 * lines / height, 1, 1))
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def draw_allreduce(rows, path):
    rows = [row for row in rows if row["operation"] == "all-reduce"]
    ranks = sorted({row["ranks"] for row in rows})
    kinds = [data for data in ("hot", "fresh") if any(row["data"] == data for row in rows)]
    if not ranks:
        return None
    figure, grid = pyplot.subplots(len(kinds), len(ranks), figsize=(3.6 * len(ranks), 2.9 * len(kinds) + 0.4), squeeze=False)
    for line, data in zip(grid, kinds):
        for axes, count in zip(line, ranks):
            here = [row for row in rows if row["ranks"] == count and row["data"] == data]
            draw_panel(axes, here, "bytes", f"all-reduce, {count} ranks, {data} data")
    save(figure, [axes for line in grid for axes in line], path)
    return "Time of an all-reduce against its size"


def draw_collectives(rows, path):
    data = "fresh" if any(row["data"] == "fresh" for row in rows) else "hot"
    barriers = [row for row in rows if row["operation"] == "barrier"]
    rows = [row for row in rows if row["data"] == data]
    ranks = min((row["ranks"] for row in rows), default=0)
    ops = [op for op in dict.fromkeys(row["operation"] for row in rows) if op not in ("all-reduce", "barrier")]
    wide = min(len(ops), 4)
    if not ops:
        return None
    tall = -(-len(ops) // wide)
    figure, grid = pyplot.subplots(tall, wide, figsize=(2.9 * wide, 2.7 * tall + 0.4), squeeze=False)
    panels = [axes for line in grid for axes in line]
    for axes, op in zip(panels, ops):
        draw_panel(axes, [row for row in rows if row["operation"] == op and row["ranks"] == ranks], "bytes", f"{op}, {ranks} ranks, {data} data")
    left = panels[len(ops):]
    if left and len(barriers) > 1:
        draw_panel(left[0], barriers, "ranks", "barrier against the number of ranks")
        left = left[1:]
    for axes in left:
        axes.set_visible(False)
    save(figure, panels, path)
    return f"Time of the other collectives on {ranks} ranks against the bytes of a rank's larger buffer"


def draw_hosts(rows, path):
    ops = list(dict.fromkeys(row["operation"] for row in rows if row["bytes"]))
    if not ops:
        return None
    figure, grid = pyplot.subplots(1, len(ops), figsize=(max(6.4, 3.2 * len(ops)), 4), squeeze=False)
    for axes, op in zip(grid[0], ops):
        here = [row for row in rows if row["operation"] == op]
        draw_panel(axes, here, "bytes", f"{op}, 2 hosts of {here[0]['ranks'] // 2} ranks, {here[0]['data']} data")
    save(figure, list(grid[0]), path)
    return "Time against size, on two hosts"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    report = json.loads(Path(sys.argv[1]).read_text())
    rows = [row for row in report["rows"] if row["operation"].split()[0] not in point.OPS]
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "lockstep", "font.family": "sans-serif"})
    pictures = (("hosts", draw_hosts),) if "hosts" in report else (("allreduce", draw_allreduce), ("collectives", draw_collectives))
    for name, draw in pictures:
        path = Path(sys.argv[2]) / f"performance-{name}.svg"
        title = draw(rows, path)
        if title:
            print(f"{path.name}\t{title}")


if __name__ == "__main__":
    main()
