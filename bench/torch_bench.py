#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed over Lockstep beside gloo and a process group in Python that does nothing, interleaved.

torch_bench.py [--rounds N] [--only "calls,interrupt,mlp,gpt,mlp views,…"] [--backends …] [--json FILE] [--write-doc]

Each round starts two fresh processes for each backend, one backend after the other; the order turns from round to
round. A figure of a round is that of the slower rank; ratios are of one round, tables show medians over the rounds.
Which Python and which library: those that run this (`make bench-torch`). --only begin: just until the first barrier.
"""

import argparse
import compileall
import datetime
import importlib.util
import json
import os
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import quiet

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
DOC = ROOT / "doc/performance-torch.md"
NAME = "bench/torch_bench.py --write-doc"
BEGIN = f"<!-- begin: written by {NAME} -->"
END = f"<!-- end: written by {NAME} -->"
BACKENDS = ("lockstep", "gloo", "inline")
PEERS = ("gloo", "inline")
LIMIT_S = 300
TRAININGS = {
    "mlp": "DDP, MLP with 32 MiB of gradients",
    "gpt": "DDP, GPT with 20 MiB of gradients",
    "mlp set": "the MLP, unchanged, with `LOCKSTEP_DDP=mapped`",
    "gpt set": "the GPT, unchanged, with `LOCKSTEP_DDP=mapped`",
    "mlp views": "the MLP with `gradient_as_bucket_view`",
    "gpt views": "the GPT with `gradient_as_bucket_view`",
    "mlp mapped": "the MLP with views and `mapped_buckets` (Lockstep)",
    "gpt mapped": "the GPT with views and `mapped_buckets` (Lockstep)",
}


# ---- running ----


def free_port():
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return place.getsockname()[1]


def run_ranks(backend, pairs, kinds):
    """What each of two ranks has written."""
    common = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    common.update(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", BORN=repr(time.monotonic()))
    ranks = [
        subprocess.Popen(
            [sys.executable, HERE / "torch_ranks.py", backend, str(pairs), ",".join(kinds)],
            env={**common, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    found = []
    try:
        for rank, process in enumerate(ranks):
            output, errors = process.communicate(timeout=LIMIT_S)
            if process.returncode:
                raise quiet.Failed(f"{backend}: rank {rank} ended with {process.returncode}: {errors.strip()[-800:]}")
            found.append(json.loads(output.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        raise quiet.Failed(f"{backend}: not done after {LIMIT_S} s") from None
    finally:
        for process in ranks:
            if process.poll() is None:
                process.kill()
                process.communicate()
    return found


def seconds_to_end(backend):
    """From Ctrl-C, which all processes of a terminal get, to the end of torchrun with two ranks that all-reduce."""
    torchrun = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        + [HERE / "torch_forever.py", backend],
        env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    try:
        if not torchrun.stdout.readline():
            raise quiet.Failed(f"{backend}: torchrun has started no ranks")
        begin = time.monotonic()
        os.killpg(torchrun.pid, signal.SIGINT)
        torchrun.communicate(timeout=LIMIT_S)
        return time.monotonic() - begin
    finally:
        if torchrun.poll() is None:
            os.killpg(torchrun.pid, signal.SIGKILL)
            torchrun.communicate()


def slower(ranks, *path, of_both=max):
    """The lower quartile of the slower rank's values: those far above it were disturbed by other programs."""
    for word in path:
        ranks = [rank[word] for rank in ranks]
    values = list(map(of_both, zip(*ranks)))
    return statistics.quantiles(values, n=4)[0] if len(values) > 1 else values[0]


def figures_of(ranks):
    """{figure: (value, unit)}"""
    found = {"begin": (max(rank["begin"] for rank in ranks), "ms")}
    for name in ranks[0].get("calls", ()):
        found[name] = (slower(ranks, "calls", name), "us")
    for model in TRAININGS:
        if model in ranks[0]:
            sync, alone = (slower(ranks, model, kind) for kind in ("sync", "no_sync"))
            found[f"{model} step"] = (sync, "ms")
            found[f"{model} no_sync"] = (alone, "ms")
            found[f"{model} excess"] = (sync - alone, "ms")
            cpu = [slower(ranks, model, f"{kind} cpu", of_both=sum) for kind in ("sync", "no_sync")]
            found[f"{model} cpu"] = (cpu[0] - cpu[1], "ms")
    return found


def measure(options):
    """One line for each round and backend."""
    runs = []
    for turn in range(options.rounds):
        order = options.backends[turn % len(options.backends) :] + options.backends[: turn % len(options.backends)]
        for backend in order:
            watch = quiet.Watch()
            kinds = [kind for kind in options.only if kind != "interrupt"]
            found = figures_of(run_ranks(backend, options.pairs, kinds)) if kinds else {}
            if kinds != options.only and backend != "inline":
                found["interrupt"] = (1e3 * seconds_to_end(backend), "ms")
            others, load = watch.foreign(), os.getloadavg()[0]
            runs.append({"round": turn, "backend": backend, "foreign": others, "load": load, "figures": found})
            if options.verbose:
                shown = "  ".join(f"{name} {value:.4g}" for name, (value, _) in found.items())
                print(f"{turn} {backend} (others {runs[-1]['foreign']:.0%}): {shown}", file=sys.stderr, flush=True)
    return runs


# ---- what it comes to ----


def by_round(runs, backend, name):
    own = [run for run in runs if run["backend"] == backend and name in run["figures"]]
    return {run["round"]: run["figures"][name][0] for run in own}


def median_of(runs, backend, name):
    values = by_round(runs, backend, name)
    return statistics.median(values.values()) if values else None


def ratio(runs, name, peer):
    """peer ÷ lockstep, above 1 Lockstep is faster: median of rounds, None if there is nothing to compare. Of
    differences that of the medians, as one of them alone may be near 0."""
    if name.endswith((" excess", " cpu")):
        ours, theirs = median_of(runs, "lockstep", name), median_of(runs, peer, name)
        return None if ours is None or theirs is None else theirs / ours if ours > 0 else float("inf")
    ours, theirs = by_round(runs, "lockstep", name), by_round(runs, peer, name)
    pairs = [theirs[turn] / max(ours[turn], 1e-9) for turn in ours if turn in theirs]
    return statistics.median(pairs) if pairs else None


def names_of(runs):
    return list(dict.fromkeys(name for run in runs for name in run["figures"]))


def shown(value, unit):
    if value is None:
        return "-"
    return f"{value:.3g} ms" if unit == "ms" else f"{value:.3g} µs" if value < 1000 else f"{value / 1000:.3g} ms"


TITLES = {
    "begin": "import, `init_process_group`, first barrier",
    "interrupt": "from Ctrl-C to the end of torchrun",
}
for _kind, _text in TRAININGS.items():
    TITLES[f"{_kind} step"] = f"{_text}: step"
    TITLES[f"{_kind} no_sync"] = "the same with `no_sync`"
    TITLES[f"{_kind} excess"] = "the excess of the step over `no_sync`"
    TITLES[f"{_kind} cpu"] = "the same in processor time of both ranks"


def table(runs):
    units = {name: unit for run in runs for name, (_, unit) in run["figures"].items()}
    rows = []
    for name in names_of(runs):
        times = ratio(runs, name, "gloo")
        cells = [shown(median_of(runs, backend, name), units[name]) for backend in BACKENDS]
        rows.append([TITLES.get(name, name), *cells, f"{times:.2f}" if times else "-"])
    return ["what", "lockstep", "gloo", "nothing", "gloo ÷ lockstep"], rows


def goals(runs):
    """[goal, wanted, here, met or missed]"""
    rows = []

    def add(what, wanted, value, text, met):
        if value is not None:
            rows.append([what, wanted, text.format(value), "met" if met(value) else "missed"])

    def beyond(name):
        ours, bare = by_round(runs, "lockstep", name), by_round(runs, "inline", name)
        both = [ours[turn] - bare[turn] for turn in ours if turn in bare]
        return statistics.median(both) if both else None

    small = "all_reduce 8 B"
    what = "`all_reduce` of 8 B, beyond a group in Python that does nothing"
    add(what, "≤ 6 µs", beyond(small), "{:.1f} µs", lambda v: v <= 6)
    add("the same: gloo ÷ Lockstep", "≥ 10", ratio(runs, small, "gloo"), "{:.1f}", lambda v: v >= 10)
    large = ratio(runs, "all_reduce 16 MiB", "gloo")
    add("`all_reduce` of 16 MiB, plain tensors: gloo ÷ Lockstep", "≥ 5", large, "{:.1f}", lambda v: v >= 5)
    for model, what, least in (("mlp", "MLP, 32 MiB of gradients", 5), ("gpt", "GPT, 20 MiB of gradients", 4)):
        excess = ratio(runs, f"{model} excess", "gloo")
        what = f"DDP step, {what}: excess over `no_sync`, gloo ÷ Lockstep"
        add(what, f"≥ {least}", excess, "{:.1f}", lambda v, m=least: v >= m)
        mapped = ratio(runs, f"{model} set excess", "gloo")
        add(f"{TRAININGS[f'{model} set']}: excess, gloo ÷ Lockstep", f"≥ {least}", mapped, "{:.1f}", lambda v, m=least: v >= m)
        for name, unit in ((f"{model} excess", "time"), (f"{model} cpu", "processor time")):
            ours, theirs, bare = (median_of(runs, backend, name) for backend in BACKENDS)
            if None not in (ours, theirs, bare) and ours > bare:
                # What DDP itself takes, as copies of gradients into buckets and back, is the same for all.
                beyond_bare = f"{(theirs - bare) / (ours - bare):.1f}"
                rows.append([f"the same less that with a group that does nothing: {unit}", "", beyond_bare, ""])
        for how in ("views", "mapped"):
            times = ratio(runs, f"{model} {how} excess", "gloo")
            if times is not None:
                rows.append([f"{TRAININGS[f'{model} {how}']}: excess, gloo ÷ Lockstep", "", f"{times:.1f}", ""])
    ended = median_of(runs, "lockstep", "interrupt")
    add("from Ctrl-C to the end of torchrun", "≤ 1.5 s", ended and ended / 1e3, "{:.2f} s", lambda v: v <= 1.5)
    add("import, init, first barrier: gloo ÷ Lockstep", "≥ 1", ratio(runs, "begin", "gloo"), "{:.2f}", lambda v: v >= 1)
    return ["figure", "goal", "here", ""], rows


def head(report):
    runs = report["runs"]
    shares = [run["foreign"] for run in runs]
    settings = " ".join(f"{name}={value}" for name, value in report.get("settings", {}).items())
    return (
        f"PyTorch {report['torch']}, Python {report['python']}, {report['processors']} processors, 2 ranks with one "
        f"thread each; {report['date']}, {report['rounds']} rounds{', with ' + settings if settings else ''}. Meanwhile other processes took "
        f"{statistics.median(shares):.0%} of the processors (between {min(shares):.0%} and {max(shares):.0%})."
    )


def terminal(heads, rows):
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in [heads, *rows]]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:], ""])


def markdown(heads, rows):
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def replace_between(path, begin, end, heading, body):
    """Puts `body` between the two marks; appends them under `heading` if they are not there."""
    text = path.read_text() if path.exists() else "<!-- SPDX-License-Identifier: BSD-3-Clause -->\n# PyTorch on Lockstep: figures\n"
    if begin not in text:
        text += f"\n## {heading}\n\n{begin}\n{end}\n"
    before, rest = text.split(begin)
    path.write_text(f"{before}{begin}\n\n{body}\n\n{end}{rest.split(end)[1]}")


def write_doc(report):
    how = (
        "Two fresh processes for each backend and round, one backend after the other; the slower rank counts, ratios "
        "are of one round, and everything is a median over the rounds. *nothing* is a process group in Python whose "
        "calls return at once. To repeat it: "
    )
    asked = report.get("asked", "")
    how += f"`make bench-torch BENCH='{asked}'`." if asked else "`make bench-torch`."
    body = "\n\n".join([how, head(report), markdown(*goals(report["runs"])), markdown(*table(report["runs"]))])
    replace_between(DOC, BEGIN, END, "Figures", body)


def words(text):
    return text.split(",")


def asked_of(arguments):
    """The arguments without those that say where the figures go."""
    kept, skip = [], False
    for word in arguments:
        if not skip and word not in ("--json", "--write-doc", "--verbose"):
            kept.append(word)
        skip = word == "--json"
    return kept


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pairs", type=int, default=25, help="training steps of each kind in a round")
    parser.add_argument("--only", type=words, default=["calls", "interrupt", *TRAININGS], metavar="calls,interrupt,mlp,gpt,…")
    parser.add_argument("--backends", type=words, default=list(BACKENDS), metavar=",".join(BACKENDS))
    parser.add_argument("--verbose", action="store_true", help="tells every run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keeps everything there")
    parser.add_argument("--from", type=Path, dest="kept", metavar="FILE", help="measures nothing: what --json has kept")
    parser.add_argument("--write-doc", action="store_true", help="writes the section Figures of doc/performance-torch.md")
    options = parser.parse_args()
    if options.kept:
        report = json.loads(options.kept.read_text())
    else:
        import torch

        (package,) = importlib.util.find_spec("lockstep").submodule_search_locations
        compileall.compile_dir(package, quiet=2)  # as pip does, which has PyTorch's files compiled
        report = {
            "torch": torch.__version__,
            "python": sys.version.split()[0],
            "processors": os.cpu_count(),
            "date": datetime.date.today().isoformat(),
            "rounds": options.rounds,
            "asked": " ".join(shlex.quote(word) for word in asked_of(sys.argv[1:])),
            "settings": {name: value for name, value in sorted(os.environ.items()) if name.startswith("LOCKSTEP_")},
            "runs": measure(options),
        }
    print(head(report) + "\n")
    print(terminal(*table(report["runs"])))
    print(terminal(*goals(report["runs"])))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    if options.write_doc:
        write_doc(report)


if __name__ == "__main__":
    main()
