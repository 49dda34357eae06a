# SPDX-License-Identifier: BSD-3-Clause
"""Time against size in small steps, for counts of ranks that are no powers of two as well, and whether it only
rises. A size that takes longer than one 1.5 times as large shows a threshold in the wrong place: whoever hits
it would do better to send more."""

import table

# Powers of two, and between them sizes that are no multiples of 8.
SIZES = sorted({size for power in range(3, 21) for size in (1 << power, (3 << power - 1) + 4)})
RANKS = (2, 3, 4, 5, 7, 8)
FACTOR = 1.5
NOISE = 1.05  # a time that is less above another is not called slower


def slower(times):
    """[(size, us, other size, its us)] of {size: us}: each size that takes longer than one FACTOR times as large,
    with the fastest of these; the worst first."""
    found = []
    for size, us in times.items():
        other = min((s for s in times if s >= FACTOR * size), key=times.get, default=None)
        if other and us > NOISE * times[other]:
            found.append((size, us, other, times[other]))
    return sorted(found, key=lambda case: case[3] / case[1])


def curves(rows):
    """{(operation, ranks, data, memory): {bytes: us}} of what has sizes."""
    found = {}
    for row in rows:
        for memory, us in row["us"].items():
            found.setdefault((row["operation"], row["ranks"], row["data"], memory), {})[row["bytes"]] = us
    return {curve: times for curve, times in found.items() if len(times) > 1}


def tables(rows):
    """One table, whose title is the verdict on all curves, with those that fall."""
    found = {curve: slower(times) for curve, times in curves(rows).items()}
    if not found:
        return []
    falling = {curve: cases for curve, cases in found.items() if cases}
    verdict = f"no, in {len(falling)} of {len(found)} curves" if falling else f"yes, in {len(found)} curves"
    lines = [[op, str(ranks), data, memory, str(len(cases)), table.bytes_text(cases[0][0]), table.time_text(cases[0][1]),
              table.bytes_text(cases[0][2]), table.time_text(cases[0][3])]
             for (op, ranks, data, memory), cases in falling.items()]
    return [(f"No size slower than one {FACTOR} times as large: {verdict}",
             ["operation", "ranks", "data", "memory", "sizes", "worst", "time", "larger", "time"], lines)]
