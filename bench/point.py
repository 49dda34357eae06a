# SPDX-License-Identifier: BSD-3-Clause
"""Messages between two ranks, and groups: what is measured of them, their table and their goals.

Of rows with these operations `us` is the time of one message one way, of one match, or of opening and closing a
group. `bytes` are those of a message; of a match those of all outstanding messages, which have 8 each."""

import math

import table

SMALL = 8  # bytes of a message of message-rate and match
SIZES = {
    "ping-pong": [8, 1 << 10, 64 << 10, 1 << 20],
    "bandwidth": [64 << 10, 1 << 20, 64 << 20],
    "message-rate": [SMALL],
    "match": [SMALL * count for count in (1, 10, 100, 1000)],
    "group": [0],
}
OPS = tuple(SIZES)
MESSAGES = OPS[:-1]  # what takes two ranks
SIZED = ("ping-pong", "bandwidth")
GROUP_RANKS = (2, 64)


def points_of(op, sizes=None):
    return [(op, size) for size in (sizes if sizes and op in SIZED else SIZES[op])]


def cells(only, ranks):
    """(ranks, fresh, operations) of those in `only`. `ranks` is None or what the caller wants of groups."""
    messages = tuple(op for op in only if op in MESSAGES)
    groups = [(count, False, ("group",)) for count in ranks or GROUP_RANKS if "group" in only]
    return ([(2, False, messages)] if messages else []) + groups


# ---- table ----


def rate_text(row, us):
    """As its users know the operation: a time, GB/s or millions of messages in a second."""
    if us is None:
        return "-"
    if row["operation"] == "bandwidth":
        return f"{row['bytes'] / us / 1e3:.1f} GB/s"
    return f"{1 / us:.2f} M/s" if row["operation"] == "message-rate" else table.time_text(us)


def what_text(row):
    if row["operation"] == "group":
        return f"{row['ranks']} ranks"
    receives = row["bytes"] // SMALL
    return f"{receives} receive{'s' * (receives > 1)}" if row["operation"] == "match" else table.bytes_text(row["bytes"])


def tables(rows):
    lines = []
    for row in sorted((row for row in rows if row["operation"] in OPS), key=lambda row: (OPS.index(row["operation"]), row["ranks"], row["bytes"])):
        values = [rate_text(row, us) for us in (row["us"].get("mapped"), row["us"].get("plain"), row["peers"].get(row["best_peer"]))]
        lines.append([row["operation"], what_text(row) + ("" if row["quiet"] else " ~"), *values, row["best_peer"] or "-",
                      table.ratio(row.get("mapped_to_peer")), table.ratio(row.get("plain_to_peer"))])
    heads = ["operation", "of", "mapped", "plain", "best peer", "which", "mapped ×", "plain ×"]
    return [("Messages one way between 2 ranks, matches, and opening and closing a group", heads, lines)] if lines else []


# ---- for goals ----


def match_growth(rows):
    """How much faster the time of a match grows than the logarithm of the number of outstanding receives, from 10 of
    them on: (time ÷ time of 10) ÷ (log n ÷ log 10), the worst. One receive says nothing: it is a round trip."""
    times = {row["bytes"] // SMALL: row["us"]["mapped"] for row in rows if row["operation"] == "match" and "mapped" in row["us"]}
    return max((us / times[10] / math.log10(count) for count, us in times.items() if count > 10 and 10 in times), default=None)


def group_to_openmpi(rows, ranks):
    """Lockstep's time of opening and closing a group as a multiple of the best Open MPI's."""
    for row in rows:
        theirs = [us for name, us in row["peers"].items() if name.split()[0] == "openmpi"]
        if row["operation"] == "group" and row["ranks"] == ranks and theirs and "mapped" in row["us"]:
            return row["us"]["mapped"] / min(theirs)
    return None
