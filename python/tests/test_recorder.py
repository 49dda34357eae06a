# SPDX-License-Identifier: BSD-3-Clause
"""What Lockstep records, as torchfrtrace reads it: the rank that called something else, or nothing, is named."""

import gc
import os
import pickle
import re
import signal
import subprocess
import sys

import processes
import pytest
from torch.distributed.flight_recorder import fr_trace

from lockstep.torch import flight_recorder
from lockstep.torch._recorder import _frames, program

LIMIT_S = 90

JOB = """
import os, signal, sys
import torch, torch.distributed as dist
import lockstep.torch

fault, prefix = sys.argv[1:3]
dist.init_process_group("lockstep")
rank, size = dist.get_rank(), dist.get_world_size()
culprit = 1
data = torch.ones(8)


def before():
    for _ in range(3):
        dist.all_reduce(data)
    odd = dist.new_group([0, size - 1])
    if rank in (0, size - 1):
        dist.all_gather_into_tensor(torch.empty(16), data, group=odd)
    dist.reduce_scatter_tensor(torch.empty(2), torch.ones(2 * size))
    dist.all_to_all_single(torch.empty(2 * size), torch.ones(2 * size))
    dist.all_gather([torch.empty(i + 1) for i in range(size)], torch.ones(rank + 1))
    dist.gather(data, [torch.empty(8) for _ in range(size)] if rank == 0 else None)
    dist.scatter(data, [torch.empty(8) for _ in range(size)] if rank == 0 else None)


def messages():
    # Received in another order than they are sent, one from any source, one with room for more.
    work = [dist.isend(torch.ones(4 + tag), (rank + 1) % size, tag=tag) for tag in range(3)]
    for tag in (2, 0):
        dist.recv(torch.empty(4 + tag), (rank - 1) % size, tag=tag)
    dist.recv(torch.empty(5), tag=1)
    for one in work:
        one.wait()
    if rank < 2:  # so that rings do not go back equally far
        work = dist.isend(data, 1 - rank)
        dist.recv(torch.empty(8), 1 - rank)
        work.wait()


def step():
    if fault == "count":
        dist.all_reduce(torch.ones(9 if rank == culprit else 8))
    elif fault == "dtype":
        dist.all_reduce(torch.ones(8, dtype=torch.int32 if rank == culprit else torch.float32))
    elif fault == "kind" and rank == culprit:
        dist.broadcast(data, 0)
    elif fault == "kill" and rank == culprit:
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "message" and rank != culprit:
        dist.recv(torch.empty(3), culprit)
    elif fault not in ("missing", "message") or rank != culprit:
        dist.all_reduce(data)


def all_others_wait():
    from lockstep.torch import _recorder

    others = [one for one in _recorder._read(str(os.getpid()))["ranks"] if one["rank"] != rank]
    newest = [one["operations"][-1] for one in others]
    return all(last["state"] == "running" and last["count"] == 3 for last in newest)


before()
messages()
for _ in range(int(os.environ.get("MORE", "0"))):
    messages()
    dist.all_reduce(data)
if fault == "inside":
    assert lockstep.torch.dump_flight_recorder(prefix) == f"{prefix}{rank}"
if fault == "live":
    print("ready", flush=True)
    if rank == culprit:
        os.kill(os.getpid(), signal.SIGSTOP)
step()
if fault == "message" and rank == culprit:
    # Before, what fails one of them would end all that the other has not done yet.
    while not all_others_wait():
        pass
    sys.exit(3)
dist.destroy_process_group()
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "out").mkdir()
    return tmp_path


def launch(place, fault, size, **environment):
    command = [program(), "run", "-n", str(size), "--trace", str(place / "kept"), sys.executable, "-u"]
    command += [str(place / "job.py"), fault, str(place / "out" / "rank_")]
    env = processes.environment(TMPDIR=place, **environment)
    return processes.popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=place)


def run(place, fault, size, **environment):
    with launch(place, fault, size, **environment) as job:
        output, errors = job.communicate(timeout=LIMIT_S)
    assert (job.returncode == 0) == (fault in ("none", "inside")), errors
    return errors


def export(place, source):
    return flight_recorder.main([str(source), str(place / "out" / "rank_")])


def analyse(place, log, *options):
    """What torchfrtrace says."""
    log.clear()
    try:
        fr_trace.main(["-p", "rank_", *options, str(place / "out")])
    except SystemExit as end:
        assert end.code == 0
    finally:
        gc.enable()  # which it does not do itself
    return "\n".join(record.getMessage() for record in log.records)


def entries(place, rank):
    with open(place / "out" / f"rank_{rank}", "rb") as file:
        return pickle.load(file)["entries"]


def first_finding(text):
    """The first thing that torchfrtrace says, with what belongs to it."""
    return re.split(r"(?m)^(?=Collective sequence number|Not all ranks joining)", text)[1]


@pytest.mark.parametrize("size,records", ((2, 1024), (3, 16)))
def test_healthy(place, caplog, size, records):
    run(place, "none", size, LOCKSTEP_TRACE_RECORDS=str(records), MORE="5")
    assert export(place, place / "kept") == 0
    assert analyse(place, caplog).strip() == ""
    for rank in range(size):
        for entry in entries(place, rank):
            assert entry["state"] == "completed" and entry["retired"], entry
            if entry["profiling_name"] == "nccl:all_reduce":
                assert entry["frames"][0]["filename"] == "job.py" and entry["frames"][0]["line"] > 0
    listed = analyse(place, caplog, "-j")
    assert listed.count("all_reduce(input_sizes=[[8]], state=completed)") >= size
    if records == 1024:
        names = {entry["profiling_name"].split()[0] for entry in entries(place, 0)}
        kinds = "all_reduce all_gather reduce_scatter all_to_all_single all_gather_v gather scatter send recv".split()
        assert {f"nccl:{kind}" for kind in kinds} <= names


# torchfrtrace calls culprit who differs from the rank whose file the system lists first.
CASES = (
    pytest.param(2, "count", r"Expected input sizes: '\[\[(9|8)\]\]' does not match found input sizes: '\[\[(9|8)\]\]'", marks=pytest.mark.nightly),
    (2, "dtype", r"COLLECTIVE_DTYPE_MISMATCH"),
    (3, "count", r"Expected input sizes: '\[\[(9|8)\]\]' does not match found input sizes: '\[\[(9|8)\]\]'"),
    (3, "kind", r"COLLECTIVE_TYPE_MISMATCH.*'(broadcast|all_reduce)' does not match"),
)


@pytest.mark.parametrize("size,fault,says", CASES)
def test_mismatch(place, caplog, size, fault, says):
    run(place, fault, size)
    assert export(place, place / "kept") == 0
    found = first_finding(analyse(place, caplog))
    culprits = {int(rank) for rank in re.findall(r"Culprit rank (\d)", found)}
    assert culprits in ({1}, set(range(size)) - {1}), found
    assert re.search(says, found), found
    assert re.search(r"step at job\.py:\d+", found), found


@pytest.mark.parametrize("size,fault", (pytest.param(2, "missing", marks=pytest.mark.nightly), (3, "missing"), (3, "kill")))
def test_missing(place, caplog, size, fault):
    run(place, fault, size)
    [snapshot] = place.glob("lockstep-*.snapshot")
    for source in (place / "kept", snapshot):
        assert export(place, source) == 0
        found = first_finding(analyse(place, caplog))
        assert "missing ranks: {1}" in found and "nccl:all_reduce" in found, found


def test_missing_when_records_are_lost(place, caplog):
    run(place, "missing", 3, LOCKSTEP_TRACE_RECORDS="16", MORE="10")
    assert export(place, place / "kept") == 0
    assert "missing ranks: {1}" in first_finding(analyse(place, caplog))


def test_missing_message(place, caplog):
    run(place, "message", 3)
    assert export(place, place / "kept") == 0
    text = analyse(place, caplog)
    for rank in (0, 2):
        pair = " and ".join(map(str, sorted((rank, 1))))
        where = f"group info: world, ranks {pair}:messages"
        assert re.search(rf"{where}\ncollective: nccl:recv .*\nmissing ranks: {{1}}", text)


def test_live_job_with_a_stopped_rank(place, caplog):
    with launch(place, "live", 3) as job:
        try:
            for _ in range(3):
                assert "ready" in job.stdout.readline()
            assert export(place, job.pid) == 0
        finally:
            job.send_signal(signal.SIGTERM)
            job.communicate(timeout=LIMIT_S)
    assert sorted(os.listdir(place / "out")) == ["rank_0", "rank_1", "rank_2"]
    assert len(entries(place, 1)) >= 14
    assert analyse(place, caplog, "-j")


def test_from_inside(place):
    run(place, "inside", 3)
    assert sorted(os.listdir(place / "out")) == ["rank_0", "rank_1", "rank_2"]
    assert len(entries(place, 1)) >= 14


def test_as_programs(place):
    """The command lines that the documentation names."""
    run(place, "missing", 2)
    command = [sys.executable, "-m", "lockstep.torch.flight_recorder"]
    command += [str(place / "kept"), str(place / "out" / "rank_")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert (result.returncode, result.stderr) == (0, "")
    assert f"torchfrtrace -p 'rank_' {place / 'out'}" in result.stdout
    command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", "-p", "rank_", str(place / "out")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert result.returncode == 0 and "missing ranks: {1}" in result.stderr
    assert export(place / "nowhere", place / "kept") == 1


def test_what_is_no_job(place, capsys):
    assert export(place, place / "job.py") == 1
    assert "LS-DIAGNOSE-FILE" in capsys.readouterr().err


def test_frames():
    assert _frames("train.py:42 (Net.step)") == [{"name": "Net.step", "filename": "train.py", "line": 42}]
    assert _frames("train.py:4 (f) for DDP's buckets")[0]["name"] == "f for DDP's buckets"
    assert _frames("train.py:4 (f.<locals>.g")[0] == {"name": "f.<locals>.g", "filename": "train.py", "line": 4}
    assert _frames("train.py:42") == [{"name": "<module>", "filename": "train.py", "line": 42}]
    assert _frames("libx.so+0x12 (f)") == [{"name": "f", "filename": "libx.so+0x12", "line": 0}]
    assert _frames("") == []
