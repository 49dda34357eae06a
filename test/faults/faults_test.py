#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Breaks jobs on purpose, and checks what every survivor learns: cause, rank, operation, call site.

faults_test.py LOCKSTEP RAW TRAIN [--repeat N] [--healthy N] [--paused N] [--only TEXT] [--promised]
--promised: within a second, too. Prints TAP and the closing line "N passed, N failed"."""

import argparse
import os
import re
import select
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jobs import TEMPORARY, environment, need, run_tests

HERE = Path(__file__).resolve().parent
LIMIT_S = 180  # a run that takes longer than this hangs
TOLD_MS = 1000  # within this everybody is told, as promised
# Time limits that are tried: on a machine short of processors nothing may be reported before the first.
LIMITS_MS = (2500, 10000, 40000)

# scenario: status of the survivors, words of the headline. R: the faulty rank; S: the others.
# Those in REPORTED only fail at their time limit, and are reported before.
SCENARIOS = {
    "leave": ("LS_PEER_LEFT", "rank {r} finished after all-reduce #1 while {s} wait{es} in all-reduce #2, called from raw.c:{reduce}"),
    "exit": ("LS_PEER_DIED", r"rank {r} \(pid \d+\) exited with code 7 after all-reduce #1 without closing its group while {s} wait{es} in all-reduce #2, called from raw.c:{reduce}"),
    "killed": ("LS_PEER_DIED", r"rank {r} \(pid \d+\) was killed by SIGKILL \(9\) after all-reduce #1 while {s} wait{es} in all-reduce #2, called from raw.c:{reduce}"),
    "workers": ("LS_PEER_DIED", r"rank {r} \(pid \d+\) was killed by SIGKILL \(9\) after all-reduce #1 while {s} wait{es} in all-reduce #2, called from raw.c:{reduce}"),
    "operation": ("LS_MISMATCH", r"rank {r} called broadcast #2 where {s} called all-reduce #2, called from raw.c:{broadcast} \(rank {r}\) and raw.c:{reduce}"),
    "count": ("LS_MISMATCH", "rank {r} called all-reduce #2 with count 999 where {s} have 1000, called from raw.c:{reduce}"),
    "dtype": ("LS_MISMATCH", "rank {r} called all-reduce #2 with dtype int32 where {s} have float32, called from raw.c:{reduce}"),
    "reduce": ("LS_MISMATCH", "rank {r} called all-reduce #2 with reduce op max where {s} have sum, called from raw.c:{reduce}"),
    "root": ("LS_MISMATCH", r"rank {r} called broadcast #2 with root {r} where {s} have \d, called from raw.c:{broadcast}"),
    "cycle": ("LS_DEADLOCK", "wait for each other and can never go on.*raw.c:{receive}"),
    "abort": ("LS_ABORTED", "rank {r} aborted the group.*: because the test says so"),
    "stopped": ("LS_TIMED_OUT", "rank {r} .*is stopped.* all-reduce #1 while {s} wait{es} in all-reduce #2.*raw.c:{reduce}"),
    "slow": ("LS_TIMED_OUT", "rank {r} is elsewhere .*all-reduce #1.* while {s} wait{es} in all-reduce #2.*raw.c:{reduce}"),
}
REPORTED = {"stopped", "slow"}
NO_OPERATION = {"cycle", "abort"}  # not a collective's number
# With two ranks nobody can say which of them is wrong.
PAIRS = {
    "operation": r"ranks 0 and 1 called different operations as #2: rank \d \S+, rank \d \S+, called from .*raw.c:{reduce}",
    "count": r"ranks 0 and 1 called all-reduce #2 with different counts: rank {r} has 999, rank \d has 1000|different counts: rank \d has 1000, rank {r} has 999",
    "dtype": r"all-reduce #2 with different dtypes: (rank {r} has int32, rank \d has float32|rank \d has float32, rank {r} has int32), called from raw.c:{reduce}",
    "reduce": r"all-reduce #2 with different reduce ops: (rank {r} has max, rank \d has sum|rank \d has sum, rank {r} has max), called from raw.c:{reduce}",
    "root": r"broadcast #2 with different roots: rank 0 has \d, rank 1 has \d, called from raw.c:{broadcast}",
}
# Faults of the training example: what its report must say, on top of the status.
TRAINING = {
    "leave": ("LS_PEER_LEFT", r"rank 2 finished after all-reduce #(\d+) while ranks 0, 1 and 3 wait in all-reduce #(\d+), called from train_digits.c:\d+"),
    "killed": ("LS_PEER_DIED", r"rank 2 \(pid \d+\) was killed by SIGKILL \(9\) after all-reduce #(\d+) while ranks 0, 1 and 3 wait in all-reduce #(\d+), called from train_digits.c:\d+"),
    "operation": ("LS_MISMATCH", r"rank 2 called broadcast #(\d+) where ranks 0, 1 and 3 called all-reduce #\1, called from fault.c:\d+ \(rank 2\) and train_digits.c:\d+"),
    "count": ("LS_MISMATCH", r"rank 2 called all-reduce #\d+ with count 9609 where ranks 0, 1 and 3 have 9610, called from fault.c:\d+ \(rank 2\) and train_digits.c:\d+"),
    "dtype": ("LS_MISMATCH", r"rank 2 called all-reduce #\d+ with dtype int32 where ranks 0, 1 and 3 have float32"),
    "reduce": ("LS_MISMATCH", r"rank 2 called all-reduce #\d+ with reduce op max where ranks 0, 1 and 3 have average"),
    "root": ("LS_MISMATCH", r"rank 2 called broadcast #\d+ with root 2 where ranks 0, 1 and 3 have 0, called from fault.c:\d+"),
    "cycle": ("LS_DEADLOCK", r"ranks 0-3 wait for each other and can never go on.*fault.c:\d+"),
    "stopped": ("LS_TIMED_OUT", r"rank 2 \(pid \d+\) is stopped after all-reduce #(\d+) while ranks 0, 1 and 3 wait in all-reduce #(\d+)"),
    "slow": ("LS_TIMED_OUT", r"rank 2 is elsewhere .* while ranks 0, 1 and 3 wait in all-reduce #(\d+)"),
}


def site_lines():
    """The lines of raw.c that follow a mark "site: NAME"."""
    lines = (HERE / "raw.c").read_text().split("\n")
    return {m[1]: n + 2 for n, line in enumerate(lines) if (m := re.search(r"/\* site: (\w+) \*/", line))}


def run(command, **settings):
    begin = time.monotonic()
    done = subprocess.run(command, env=environment(**settings), stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False)
    return done.returncode, done.stdout, time.monotonic() - begin


def ranks_text(ranks):
    """As reports list ranks: "rank 0", "ranks 0 and 2", "ranks 0, 1 and 3", "ranks 1-3"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"ranks {ranks[0]}-{ranks[-1]}"
    return "ranks " + ", ".join(map(str, ranks[:-1])) + f" and {ranks[-1]}"


def reports(output, identity):
    """The first lines of all reports with this id: each report ends in its id."""
    plain = [re.sub(r"^\[\d+\] ", "", line) for line in output.split("\n")]
    found, start = [], None
    for i, line in enumerate(plain):
        if start is None and re.match(r"(lockstep: )?ranks? \d", line) and not re.match(r"rank \d+: ", line):
            start = i
        if line.endswith("]") and (m := re.search(r"\[(LS-[A-Z-]+)\]$", line)):
            if m[1] == identity:
                found.append(plain[start if start is not None else i])
            start = None
    return found


def run_reported(*command):
    """A run that fails at its time limit: the first one that was reported before."""
    for limit_ms in LIMITS_MS:
        ended = run([LOCKSTEP, "run", *command], LOCKSTEP_TIMEOUT_MS=limit_ms, LOCKSTEP_PATIENCE_MS=300)
        if "[LS-WAITING]" in ended[1]:
            break
    return ended


def check_fault(scenario, size, faulty, lines, promised):
    status, headline = SCENARIOS[scenario]
    if size == 2:
        headline = PAIRS.get(scenario, headline)
    command = "-n", str(size), "--", RAW, scenario, str(faulty)
    code, output, _ = run_reported(*command) if scenario in REPORTED else run([LOCKSTEP, "run", *command])
    others = [r for r in range(size) if r != faulty]
    pattern = headline.format(r=faulty, s=ranks_text(others), es="s" if len(others) == 1 else "", **lines)
    verdicts = reports(output, "LS-VERDICT")
    need(code != 0, "the job ended with 0", output)
    need(len(verdicts) == 1, f"{len(verdicts)} verdicts instead of one", output)
    need(re.search(pattern, verdicts[0]), f"the headline does not match {pattern!r}: {verdicts[0]!r}", output)
    if scenario in REPORTED:
        need(any(re.search(pattern, r) for r in reports(output, "LS-WAITING")), "no report before the time limit", output)
    told = {int(m[1]): m for m in re.finditer(r"rank (\d+): (LS_\w+) blamed (-?\d+) operation (\d+) after (\d+) ms", output)}
    for r in others:
        need(r in told, f"rank {r} was told nothing", output)
        need(told[r][2] == status, f"rank {r} got {told[r][2]} instead of {status}", output)
        blamed, tie = int(told[r][3]), status == "LS_DEADLOCK" or (status == "LS_MISMATCH" and size == 2)
        need(blamed == (-1 if tie else faulty), f"rank {r} was told that rank {blamed} is to blame", output)
        if scenario not in NO_OPERATION:
            need(told[r][4] == "2", f"rank {r} was told of operation {told[r][4]}", output)
        if promised and scenario not in REPORTED:
            need(int(told[r][5]) < TOLD_MS, f"rank {r} was told after {told[r][5]} ms", output)


def test_fault(scenario, repeat, lines, promised):
    for i in range(repeat):
        size = 2 + i % 4
        check_fault(scenario, size, i % size, lines, promised)


def test_training(fault):
    status, pattern = TRAINING[fault]
    command = "-n", "4", "--", TRAIN, "--fault", fault
    code, output, _ = run_reported(*command) if fault in REPORTED else run(
        [LOCKSTEP, "run", *command], LOCKSTEP_TIMEOUT_MS=60000, LOCKSTEP_PATIENCE_MS=300)
    verdicts = reports(output, "LS-VERDICT")
    need(code != 0 and len(verdicts) == 1, f"exit {code}, {len(verdicts)} verdicts", output)
    match = re.search(pattern, verdicts[0])
    need(match, f"the headline does not match {pattern!r}: {verdicts[0]!r}", output)
    if fault in ("leave", "killed"):
        need(int(match[2]) == int(match[1]) + 1, "the operations do not follow each other", output)
    survivors = set(re.findall(rf"rank (\d): all-reduce of .*\({status}\)", output))
    need(survivors >= {"0", "1", "3"}, f"only ranks {sorted(survivors)} got {status}", output)


def test_healthy(count):
    """While nothing is wrong there is no report, although every rank is always late and a watch looks every
    ten milliseconds."""
    def one(i):
        code, output, _ = run([LOCKSTEP, "run", "-n", str(2 + i % 4), "--", RAW, "healthy", "0"], LOCKSTEP_LOOK_MS=10)
        need(code == 0 and output == "", f"run {i}: exit {code}", output)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(count)))


def start(arguments, **settings):
    return subprocess.Popen(arguments, env=environment(**settings), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, bufsize=0)


def read_until(process, pattern, limit_s=20):
    """Output up to a match of `pattern`."""
    text, deadline = "", time.monotonic() + limit_s
    while not re.search(pattern, text):
        ready, _, _ = select.select([process.stdout], [], [], max(0, deadline - time.monotonic()))
        need(ready, f"{pattern!r} did not come", text)
        piece = process.stdout.read(4096)
        need(piece, f"ended before {pattern!r}", text)
        text += piece.decode(errors="replace")
    return text


def state_of(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "?"


def await_state(pid, wanted, limit_s=20):
    deadline = time.monotonic() + limit_s
    while state_of(pid) not in wanted:
        need(time.monotonic() < deadline, f"process {pid} is {state_of(pid)}, not {wanted}")
        os.sched_yield()


def finish(process):
    output, _ = process.communicate(timeout=LIMIT_S)
    return process.returncode, output.decode(errors="replace")


def children(pid):
    return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


LATE_S = 0.5  # a rank that is stopped for so long is reported: STOPPED_MS, src/failure/look.c


def test_paused(count):
    """A rank that is stopped for nearly half a second, and then continues, is worth no line."""
    def one(i):
        size = 2 + i % 4
        pause_s = LATE_S
        while pause_s >= LATE_S:  # of this script, for want of a processor: that pause was another one
            process = start([LOCKSTEP, "run", "-n", str(size), "--", TRAIN, "--epochs", "30"])
            read_until(process, r"epoch  \d")
            victim = children(process.pid)[i % size]
            begin = time.monotonic()
            os.kill(victim, signal.SIGSTOP)
            await_state(victim, "T")
            # The length of the pause is what is tested, so it is measured and not awaited.
            until = begin + 0.8 * LATE_S
            select.select([], [], [], max(0, until - time.monotonic()))
            os.kill(victim, signal.SIGCONT)
            pause_s = time.monotonic() - begin
            code, output = finish(process)
            need(code == 0 and "test accuracy" in output, f"run {i}: exit {code}", output)
        need("LS-" not in output, f"run {i}: after {pause_s:.2f} s", output)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(count)))


def test_proof():
    """A rank that sleeps although its word has arrived is not in a cycle. Each rank in turn is stopped between its
    peer's store and its own wake-up, while its peer waits for it."""
    for faulty in (0, 1):
        fifo = os.path.join(TEMPORARY.name, f"go-{faulty}")
        os.mkfifo(fifo)
        process = start([LOCKSTEP, "run", "-n", "2", "--", RAW, "answer", str(faulty)], LOCKSTEP_LOOK_MS=20, RAW_GO=fifo)
        text = read_until(process, r"(?s)(?=.*rank 0 is \d+)(?=.*rank 1 is \d+)")
        pids = {int(m[1]): int(m[2]) for m in re.finditer(r"rank (\d) is (\d+)", text)}
        await_state(pids[faulty], "S")  # asleep in its receive
        os.kill(pids[faulty], signal.SIGSTOP)
        await_state(pids[faulty], "T")
        Path(fifo).write_text("g")
        text += read_until(process, r"rank \d has sent")
        await_state(pids[1 - faulty], "S")
        for _ in range(20):  # many looks, by the other rank's watch and by the command line
            done = subprocess.run([LOCKSTEP, "diagnose", "--json", str(pids[1 - faulty])], env=environment(), text=True,
                                  stdout=subprocess.PIPE, check=False)
            need("deadlock" not in done.stdout, "a deadlock was seen", done.stdout)
        os.kill(pids[faulty], signal.SIGCONT)
        code, output = finish(process)
        need(code == 0 and "LS-VERDICT" not in output, f"exit {code}", text + output)


def main():
    global LOCKSTEP, RAW, TRAIN
    parser = argparse.ArgumentParser()
    for name in ("lockstep", "raw", "train"):
        parser.add_argument(name)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--healthy", type=int, default=1000)
    parser.add_argument("--paused", type=int, default=25)
    parser.add_argument("--only", default="")
    parser.add_argument("--promised", action="store_true")
    options = parser.parse_args()
    LOCKSTEP, RAW, TRAIN = options.lockstep, options.raw, options.train
    lines = site_lines()
    tests = [(f"fault {s}", lambda s=s: test_fault(
        s, max(4, options.repeat // 4) if s in REPORTED else options.repeat, lines, options.promised)) for s in SCENARIOS]
    tests += [(f"training {f}", lambda f=f: test_training(f)) for f in TRAINING]
    tests += [("proof", test_proof), ("healthy", lambda: test_healthy(options.healthy)), ("paused", lambda: test_paused(options.paused))]
    return run_tests([t for t in tests if options.only in t[0]])


if __name__ == "__main__":
    sys.exit(main())
