# SPDX-License-Identifier: BSD-3-Clause
"""Medians, ratios and tables of what run.py has measured."""

import statistics

import quiet

UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def bytes_text(size):
    for unit, name in UNITS:
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B" if size else ""


def time_text(us):
    """Three digits that count; µs, ms or s."""
    if us is None:
        return "-"
    for scale, unit in ((1, "µs"), (1e3, "ms"), (1e6, "s")):
        value = us / scale
        if value < 999.5 or unit == "s":
            digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:.{digits}f} {unit}"
    return "-"


class Samples:
    """All times of one program at one point, each with the share of the machine that others took."""

    def __init__(self):
        self.all = []

    def add(self, value, foreign):
        self.all.append((value, foreign))

    def quiet(self):
        return any(foreign <= quiet.FOREIGN_MAX for _, foreign in self.all)

    def median(self):
        """The median of the undisturbed samples; if there are none, of all."""
        good = [value for value, foreign in self.all if foreign <= quiet.FOREIGN_MAX]
        return statistics.median(good or [value for value, _ in self.all])


class Results:
    """times[(ranks, fresh, op, bytes)][kind, name]: Samples. Kinds: lockstep, peer, limit of mapped or plain memory."""

    def __init__(self):
        self.times, self.cpu = {}, {}

    def add(self, where, kind, name, us, foreign, cpu=None):
        self.times.setdefault(where, {}).setdefault((kind, name), Samples()).add(us, foreign)
        if cpu is not None:
            self.cpu.setdefault(where, {}).setdefault((kind, name), Samples()).add(cpu, foreign)

    def best(self, where, kind):
        """(name, median) of the fastest of this kind; (None, None) if there is none."""
        found = {name: samples.median() for (k, name), samples in self.times.get(where, {}).items() if k == kind}
        name = min(found, key=found.get, default=None)
        return name, found.get(name)

    def rows(self):
        """One dictionary a point: our times, all others', and the ratios that matter."""
        rows = []
        for where, programs in sorted(self.times.items(), key=lambda item: (item[0][0], item[0][1])):
            ranks, fresh, op, size = where
            row = {"ranks": ranks, "data": "fresh" if fresh else "hot", "operation": op, "bytes": size, "us": {},
                   "peers": {}, "limits": {}, "quiet": all(samples.quiet() for samples in programs.values())}
            groups = {"lockstep": row["us"], "peer": row["peers"]}
            for (kind, name), samples in programs.items():
                key = name if kind in groups else f"{name} ({kind.split()[-1]})"
                groups.get(kind, row["limits"])[key] = samples.median()
            row["best_peer"], peer = self.best(where, "peer")
            for memory, ours in row["us"].items():
                _, limit = self.best(where, f"limit {memory}")
                if peer:
                    row[f"{memory}_to_peer"] = peer / ours
                if limit:
                    row[f"{memory}_to_limit"] = limit / ours
            cpu = self.cpu.get(where, {})
            row["cpu_us"] = {name: samples.median() for (_, name), samples in cpu.items()}
            rows.append(row)
        return rows


def family(row, name):
    """The time of the best of a peer's variants."""
    return min((us for variant, us in row["peers"].items() if variant.split()[0] == name), default=None)


# ---- text ----


def ratio(value):
    return "-" if value is None else f"{value:.2f}" if value < 9.995 else f"{value:.0f}"


def cells(row):
    """What a table says of one point."""
    peer = row["peers"].get(row["best_peer"])
    return [
        time_text(row["us"].get("mapped")),
        time_text(row["us"].get("plain")),
        time_text(peer),
        row["best_peer"] or "-",
        ratio(row.get("mapped_to_peer")),
        ratio(row.get("plain_to_peer")),
        ratio(row.get("mapped_to_limit")),
        ratio(row.get("plain_to_limit")),
    ]


HEADS = ["operation", "bytes", "mapped", "plain", "best peer", "which", "mapped ×", "plain ×", "mapped lim.", "plain lim."]


def grid(rows):
    """[(title, [cells of a line])] for each number of ranks and kind of data."""
    tables = []
    for ranks, data in dict.fromkeys((row["ranks"], row["data"]) for row in rows):
        here = [row for row in rows if (row["ranks"], row["data"]) == (ranks, data)]
        lines = [[row["operation"], bytes_text(row["bytes"]) + ("" if row["quiet"] else " ~")] + cells(row) for row in here]
        tables.append((f"{ranks} ranks, {data} data", lines))
    return tables


def terminal(rows):
    text = []
    for title, lines in grid(rows):
        widths = [max(len(line[i]) for line in lines + [HEADS]) for i in range(len(HEADS))]
        text.append("\n" + title)
        for line in [HEADS] + lines:
            left = ("operation", "which")
            text.append("  ".join(c.ljust(w) if HEADS[i] in left else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths))))
    return "\n".join(text)


def markdown(rows):
    text = []
    for title, lines in grid(rows):
        text.append(f"\n### {title[0].upper()}{title[1:]}\n")
        text.append("| " + " | ".join(HEADS) + " |")
        text.append("|---|" + "---:|" * 4 + "---|" + "---:|" * 4)
        text += ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join(text)
