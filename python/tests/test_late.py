# SPDX-License-Identifier: BSD-3-Clause
"""A rank that does not come: the reports of those that wait for it tell its line of Python, which the program lockstep
reads for them. The script's lines that end with a comment "here" are where it stays."""

import os
import re
import shutil
import sys
import time

import processes
import pytest

SCRIPT = """
import os, signal, sys, threading
import torch, torch.distributed as dist, torch.multiprocessing as mp
import lockstep.torch

def load_batch():
    signal.pause()  # here

def children():  # also one that nobody has reaped
    found = []
    for thread in os.listdir("/proc/self/task"):
        try:
            found += open(f"/proc/self/task/{thread}/children").read().split()
        except FileNotFoundError:
            pass  # that thread has ended
    return found

def watched(call):
    signals, found, over = [], [], threading.Event()
    def look():
        while not over.is_set():
            try:
                found.append(os.waitpid(-1, os.WNOHANG))
            except ChildProcessError:
                pass
    signal.signal(signal.SIGCHLD, lambda *_: signals.append(1))
    thread = threading.Thread(target=look)
    thread.start()
    try:
        call()
    finally:
        over.set()
        thread.join()
        while children():
            pass
        print("NOTICED", signals, found, flush=True)

def work(rank, size):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size))
    dist.init_process_group("lockstep")
    dist.barrier()
    if rank == 1:
        load_batch()
    elif rank == 0:
        watched(lambda: dist.all_reduce(torch.ones(3)))
    else:
        dist.all_reduce(torch.ones(3))

if __name__ == "__main__":
    if sys.argv[1:] == ["spawn"]:
        mp.spawn(work, (3,), nprocs=3)
    else:
        work(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
"""
LINE = next(number for number, line in enumerate(SCRIPT.splitlines(), 1) if line.endswith("# here"))
WHERE = f"its main thread is in load_batch at train.py:{LINE}"
BUILD = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)[0]
NOTICED = "NOTICED [] []"
# The time limits of operations that are tried. Without a processor nothing may be told within one, and a report waits 250 ms
# for the line.
LIMITS_MS = (4000, 8000, 16000, 32000)

pytestmark = pytest.mark.skipif(
    not os.path.exists(os.path.join(BUILD, "lockstep")), reason="the program lockstep is not beside the library"
)


def run(folder, launcher="lockstep", limit_ms=LIMITS_MS[0], **env):
    script = folder / "train.py"
    script.write_text(SCRIPT)
    command = {
        "lockstep": [processes.program("lockstep"), "run", "-n", "3", sys.executable, script],
        "torchrun": [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", "--master-port", processes.free_port(), script],
        "spawn": [sys.executable, script, "spawn"],
    }[launcher]
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": processes.free_port()} if launcher == "spawn" else {}
    ended = processes.run(list(map(str, command)), LOCKSTEP_PATIENCE_MS=500, LOCKSTEP_TIMEOUT_MS=limit_ms, **rendezvous, **env)
    assert ended.code != 0, ended.text
    return ended.text


def run_until(is_told, folder, launcher="lockstep", **env):
    """What is written within the first limit in which it is told; or else within the last one."""
    for limit_ms in LIMITS_MS:
        text = run(folder, launcher, limit_ms, **env)
        if "[LS-WAITING]" in text and is_told(text):
            break
    return text


def reports(text):
    """The first lines of what is told while ranks wait, and of what fails them."""
    found = re.findall(r"(?m)^.*\brank 1 is elsewhere \(its last operation was barrier #1.*$", text)
    assert "[LS-WAITING]" in text and "[LS-VERDICT]" in text and len(found) >= 2, text
    return found


def test_the_launcher_tells_the_line(tmp_path):
    """At its own time limit, which grows until the ranks have come so far within it. They report nothing. The launcher
    starts its own program to read the line, so here it is a process of that program."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    for limit in (8, 32, 128):
        command = [processes.program("lockstep"), "run", "-n", "3", "--timeout", str(limit), "--log-dir", str(tmp_path / str(limit))]
        patient = {"LOCKSTEP_PATIENCE_MS": 600000, "LOCKSTEP_TIMEOUT_MS": 600000}
        ended = processes.run([*command, sys.executable, str(script)], anew=True, **patient)
        assert ended.code == 124 and "[LS-RUN-TIMEOUT]" in ended.text, ended.text
        if "while ranks 0 and 2 wait" in ended.text:  # both, and none is just on its way into its wait
            break
    (snapshot,) = (tmp_path / str(limit)).glob("*.snapshot")
    kept = processes.run([processes.program("lockstep"), "diagnose", str(snapshot)])
    for text in (ended.text, kept.text):
        assert re.search(rf"rank 1 is elsewhere .*; {WHERE}; it is sleeping in a system call\) while ranks 0 and 2 wait", text), text
        assert f"{WHERE} (pid " in text and "LS-WAITING" not in text, text


def with_program(folder, program):
    """A folder with the library, and beside it what is written there in place of the program."""
    shutil.copy(os.path.join(BUILD, "liblockstep.so.0"), folder)
    if program:
        (folder / "lockstep").write_text(program)
        (folder / "lockstep").chmod(0o755)
    return {"LD_LIBRARY_PATH": str(folder)}


@pytest.mark.parametrize("launcher", ["lockstep", *[pytest.param(other, marks=pytest.mark.nightly) for other in ("torchrun", "spawn")]])
def test_reports_tell_the_line(tmp_path, launcher):
    text = run_until(lambda text: all(WHERE in report for report in reports(text)), tmp_path, launcher)
    for report in reports(text):
        assert f"{WHERE}; it is sleeping in a system call) while rank" in report, text
    assert f"{WHERE} (pid " in text, text
    assert re.search(r"TimedOut: rank \d timed out in all-reduce #2: rank 1 is elsewhere .*; " + WHERE, text), text
    assert NOTICED in text, text


@pytest.mark.parametrize("program", [None, pytest.param("#!/bin/sh\necho hello\n", marks=pytest.mark.nightly)], ids=["missing", "another"])
def test_without_the_program(tmp_path, program):
    text = run_until(reports, tmp_path, **with_program(tmp_path, program))
    for report in reports(text):
        assert "its main thread" not in report and "hello" not in report, text
    assert "See what the rank does: `lockstep diagnose --stacks" in text, text
    assert NOTICED in text, text


def test_a_program_that_hangs(tmp_path):
    numbers = tmp_path / "numbers"
    text = run_until(reports, tmp_path, **with_program(tmp_path, f"#!/bin/sh\necho $$ >>{numbers}\nexec tail -f /dev/null\n"))
    for report in reports(text):
        assert "its main thread" not in report, text
    assert NOTICED in text, text
    until = time.monotonic() + processes.LIMIT_S
    for number in numbers.read_text().split():  # of what is told while ranks wait, and of what fails them
        while os.path.exists(f"/proc/{number}"):
            assert time.monotonic() < until, number
