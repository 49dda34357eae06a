# SPDX-License-Identifier: BSD-3-Clause
"""Whom launchers name when one rank raises an exception: that one, not those that were told of it. With gloo, beside which
this is seen, that is a race between processes, and so not asked for."""

import os
import re
import subprocess
import sys

import pytest
from lockstep import errors
from lockstep.torch import _end

import processes

BACKENDS = ["lockstep", pytest.param("gloo", marks=pytest.mark.nightly)]
SCRIPT = """
import os, sys, time
import torch, torch.distributed as dist, torch.multiprocessing as mp
import lockstep.torch
from torch.distributed.elastic.multiprocessing.errors import record

def work(rank, size, backend):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size))
    dist.init_process_group(backend)
    dist.barrier()
    if rank == 1:
        raise ValueError("no such image")
    dist.all_reduce(torch.ones(3))
    dist.barrier()
    dist.destroy_process_group()

def launched():
    work(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), sys.argv[2])

if __name__ == "__main__":
    if sys.argv[1] == "spawn":
        mp.spawn(work, (3, sys.argv[2]), nprocs=3)
    elif sys.argv[1] == "record":
        record(launched)()
    else:
        launched()
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


@pytest.mark.parametrize("backend", BACKENDS)
def test_spawn_shows_the_exception(script, backend):
    command = [sys.executable, script, "spawn", backend]
    ended = processes.run(command, MASTER_ADDR="127.0.0.1", MASTER_PORT=processes.free_port())
    assert ended.code == 1, ended.text
    shown = ended.text[ended.text.index("ProcessRaisedException") :]
    if backend == "lockstep":
        assert "Process 1 terminated with the following error" in shown, ended.text
        assert "ValueError: no such image" in shown, ended.text


@pytest.mark.parametrize("how", ["plain", "record"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_torchrun_finds_the_root_cause(script, backend, how):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3"]
    ended = processes.run([*command, "--master-port", str(processes.free_port()), script, how, backend])
    assert ended.code == 1, ended.text
    cause = ended.text[ended.text.index("Root Cause") :]
    if backend == "gloo":
        return
    assert re.search(r"rank +: 1 ", cause), ended.text
    assert ("ValueError: no such image" in cause) == (how == "record"), ended.text


def test_lockstep_run_names_it(script):
    program = processes.program("lockstep")
    if program is None:
        pytest.skip("the program lockstep is neither beside the library nor in PATH")
    ended = processes.run([program, "run", "-n", "3", sys.executable, script, "plain", "lockstep"])
    assert ended.code == 1, ended.text
    # On a busy machine survivors may need longer to end than the launcher lets them; the first that is named counts.
    assert re.search(r"lockstep: rank 1 \(pid \d+\) exited with 1; .*\[LS-RUN-FAILED\]", ended.text), ended.text


@pytest.mark.parametrize(
    "error, waits", [(KeyboardInterrupt(), False), (None, False), (errors.Aborted("a peer gave up"), True)]
)
def test_who_waits_for_the_culprit(monkeypatch, error, waits):
    """Ctrl-C ends all ranks, so there is nobody to blame, and each one's time is added to the user's. A program that has
    caught the error goes its own way."""
    outlived = []
    monkeypatch.setattr(_end, "_outlive", lambda pids: outlived.append(set(pids)))
    monkeypatch.setattr(_end, "culprits", {os.getpid()})
    monkeypatch.setattr(_end, "_failed", error)
    _end._leave()
    assert outlived == ([{os.getpid()}] if waits else [])


def test_a_culprit_that_lives_on_is_left(monkeypatch):
    monkeypatch.setattr(_end, "_OUTLIVE_S", 0.0)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as culprit:
        _end._outlive({culprit.pid})
        assert culprit.poll() is None
        culprit.stdin.close()
