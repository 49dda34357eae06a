# SPDX-License-Identifier: BSD-3-Clause
"""What came of the tests: the last lines of a run, and the table in doc/torch-suite.md."""

import os

BEGIN = "<!-- begin: written by python/torch_suite/run.py --write-docs -->"
END = "<!-- end -->"

# Tests whose own body is about gloo by name, and what PyTorch itself says to any other backend there.
_REFUSAL = "monitored_barrier is only implemented for GLOO backend"
BY_NAME = {
    "test_monitored_barrier_failure_order": _REFUSAL,
    "test_monitored_barrier_gloo": _REFUSAL,
    "test_monitored_barrier_gloo_subgroup": _REFUSAL,
    "test_monitored_barrier_wait_all_ranks": _REFUSAL,
}


def count(results, outcome):
    return sum(test["outcome"] == outcome for test in results.tests.values())


def _line(results):
    skipped = count(results, "skip") + count(results, "by name")
    return f"{count(results, 'pass')} passed, {count(results, 'fail')} failed, {skipped} skipped"


def summary(results, seconds):
    """Prints it; 0 if nothing that gloo passes has failed."""
    ours = results.get("lockstep") or results["gloo"]
    gloo = results.get("gloo")
    bad = 0
    for name, test in sorted(ours.tests.items()):
        if test["outcome"] == "fail":
            beside = gloo.tests[name]["outcome"] if gloo and name in gloo.tests else "not run"
            bad += beside != "fail" or ours is gloo
            print(f"failed: {name} (gloo: {beside})")
    print(f"{seconds:.0f} s")
    for backend, those in results.items():
        if those is not ours:
            print(f"{backend}: {_line(those)}")
    print(_line(ours))
    return 1 if bad else 0


# ---- the document ----


def _counts(results):
    lines = ["| | passed | failed | asks for gloo by name | skipped |", "|---|---|---|---|---|"]
    for backend in ("lockstep", "gloo"):
        numbers = [count(results[backend], outcome) for outcome in ("pass", "fail", "by name", "skip")]
        lines.append(f"| {backend} | {' | '.join(map(str, numbers))} |")
    return lines


def _reason(test):
    return " ".join(test["reason"].split()) if test["outcome"] == "skip" else ""


def _skipped(ours, gloo, names):
    """One line for each pair of reasons, the most frequent first."""
    groups = {}
    for name in names:
        key = (_reason(ours[name]), _reason(gloo[name]))
        groups.setdefault(key, []).append(name)
    lines = ["| reason | tests | |", "|---|---|---|"]
    for (reason, of_gloo), those in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        text = reason if reason == of_gloo else f"lockstep: {reason or 'runs'}; gloo: {of_gloo or 'runs'}"
        lines.append(f"| {text} | {len(those)} | {', '.join(name[len('test_') :] for name in those)} |")
    return lines


def _text(version, results, chosen):
    ours, gloo = results["lockstep"].tests, results["gloo"].tests
    both = sorted(set(ours) & set(gloo))
    skipped = [name for name in both if "skip" == ours[name]["outcome"] == gloo[name]["outcome"]]
    lines = [f"PyTorch {version}, {len(both)} tests, on the CPU.", "", *_counts(results), ""]
    lines += ["### Tests that are run", "", "| test | ranks | lockstep | gloo | |", "|---|---|---|---|---|"]
    for name in both:
        if name in skipped:
            continue
        note = f"PyTorch: {BY_NAME[name]}" if ours[name]["outcome"] == "by name" else ""
        note = note or _reason(ours[name]) or _reason(gloo[name])
        if not note and chosen(name):
            note = "its body sees the name gloo, and runs on the backend"
        ranks = gloo[name]["ranks"]
        lines.append(f"| {name} | {ranks} | {ours[name]['outcome']} | {gloo[name]['outcome']} | {note} |")
    lines += ["", "### Tests that both skip, by the suite's own reason", "", *_skipped(ours, gloo, skipped)]
    return "\n".join(lines)


def write(path, version, results, chosen):
    """Between the two marks of the document. `chosen`: whether a test sees gloo's name (cases.py)."""
    if len(results) != 2:
        raise SystemExit("check-torch-suite: --write-docs needs both backends")
    with open(path, encoding="utf-8") as file:
        before, rest = file.read().split(BEGIN)
    after = rest.split(END)[1]
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(f"{before}{BEGIN}\n\n{_text(version, results, chosen)}\n\n{END}{after}")
    os.replace(path + ".new", path)
