# SPDX-License-Identifier: BSD-3-Clause
"""The usual mistakes of the usual script: each rank is told what is wrong, who, and in which line."""

import os
import re
import socket
import subprocess
import sys

import processes
import pytest

HEAD = """from datetime import timedelta
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
import lockstep.torch

def group_error(call):
    try:
        call()
    except RuntimeError:
        error = dist.group.WORLD.error()
        print("KNOWN", error.status, error.rank)
        raise

"""
SKEW_S = 12  # so much later one process may come than the other on a machine that is busy
BEGIN = HEAD + 'dist.init_process_group("lockstep")\nrank = dist.get_rank()\n'


class Script:
    """A script in a file, whose lines that end with a mark, "# a", are told by it."""

    def __init__(self, folder, body, begin=BEGIN):
        self.path = folder / "train.py"
        self.path.write_text(begin + body)

    def run(self, **options):
        return processes.run_ranks(self.path, LOCKSTEP_PATIENCE_MS=500, **options)

    def place(self, mark, function=""):
        lines = self.path.read_text().splitlines()
        number = 1 + next(i for i, line in enumerate(lines) if line.endswith(f"# {mark}"))
        return f"train.py:{number}{f' ({function})' if function else ''}"


def flat(ended):
    """What it wrote, without PyTorch's "[rank0]: " and line breaks."""
    return " ".join(line.split("]: ", 1)[-1].strip() for line in ended.text.splitlines())


# ---- ranks call different things ----


def test_a_collective_under_if_rank_0(tmp_path):
    script = Script(
        tmp_path,
        """if rank == 0:
    dist.all_reduce(torch.ones(1))  # a
dist.barrier()  # b
""",
    )
    for ended in script.run(anew=True):
        assert ended.code == 1
        assert (
            "lockstep.Mismatch: ranks 0 and 1 called different operations as #1: rank 0 all-reduce, rank 1 barrier, "
            f"called from {script.place('a')} (rank 0) and {script.place('b')} (rank 1)"
        ) in ended.text
        assert "All ranks must make the same calls in the same order" in ended.text


def test_a_collective_under_if_rank_0_that_is_the_last(tmp_path):
    """The other rank has ended without an error."""
    script = Script(
        tmp_path,
        """dist.barrier()  # a
if rank == 0:
    dist.all_reduce(torch.ones(1))  # b
dist.destroy_process_group()
""",
    )
    first, second = script.run()
    assert second.code == 0
    # Whoever sees it first reports it, and both may.
    assert second.text == "" or "rank 1 finished after barrier #1 while rank 0 waits in all-reduce #2" in second.text
    assert first.code == 1
    assert (
        f"lockstep.PeerLeft: rank 1 finished after barrier #1 while rank 0 waits in all-reduce #2, "
        f"called from {script.place('b')}"
    ) in first.text
    assert "Let all ranks make the same calls" in first.text


def test_the_wrapped_model_is_evaluated_on_rank_0_alone(tmp_path):
    """It has buffers, so its forward is a collective: of this nobody thinks who calls model.eval()."""
    script = Script(
        tmp_path,
        """model = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
def train_step():
    model(torch.randn(8, 4)).sum().backward()  # a
def evaluate():
    with torch.no_grad():
        return model(torch.randn(8, 4)).sum()  # b
train_step()
if rank == 0:
    model.eval()
    evaluate()
    model.train()
train_step()
""",
    )
    for ended in script.run():
        assert ended.code == 1
        assert "Mismatch: ranks 0 and 1 called broadcast #" in ended.text
        assert f"{script.place('b', 'evaluate')} for DDP's buffers (rank 0)" in ended.text
        assert f"{script.place('a', 'train_step')} for DDP's buckets (rank 1)" in ended.text
        assert "call it on all ranks, or the unwrapped one, model.module, on one" in flat(ended)


def test_memory_is_shared_on_one_rank_alone(tmp_path):
    script = Script(
        tmp_path,
        """def show(tensor):
    lockstep.torch.share(tensor)  # a
if rank == 0:
    show(torch.ones(1000))
dist.barrier()  # b
""",
    )
    for ended in script.run():
        assert ended.code == 1
        assert (
            "lockstep.Mismatch: ranks 0 and 1 called different operations as #1: rank 0 all-gather, rank 1 barrier, "
            f"called from {script.place('a', 'show')} (rank 0) and {script.place('b')} (rank 1)"
        ) in ended.text


def test_buckets_are_mapped_on_one_rank_alone(tmp_path):
    """By the hook, in the second backward pass."""
    script = Script(
        tmp_path,
        """def hook(state, bucket):
    work = dist.all_reduce(bucket.buffer(), dist.ReduceOp.AVG, async_op=True)  # a
    return work.get_future().then(lambda future: future.value()[0])
model = DDP(nn.Linear(4, 4))
mapped = lockstep.torch.MappedBuckets(), lockstep.torch.mapped_buckets
model.register_comm_hook(*(mapped if rank == 0 else (None, hook)))
def train_step():
    model(torch.randn(8, 4)).sum().backward()  # b
for step in range(3):
    train_step()
""",
    )
    for ended in script.run():
        assert ended.code == 1
        assert "lockstep.Mismatch: ranks 0 and 1 called different operations as #" in ended.text
        assert (
            "rank 0 all-gather, rank 1 all-reduce, "
            f"called from {script.place('b', 'train_step')} (rank 0) and {script.place('a', 'hook')} (rank 1)"
        ) in ended.text


def test_a_thread_that_only_pytorch_is_in(tmp_path):
    """Where the program has no line of its own, that of PyTorch is told."""
    script = Script(
        tmp_path,
        """import threading
if rank == 0:
    thread = threading.Thread(target=dist.barrier)
    thread.start()
    thread.join()
else:
    dist.all_reduce(torch.ones(1))  # a
""",
    )
    _, second = script.run()
    assert second.code == 1
    called = rf"called from distributed_c10d\.py:\d+ \(barrier\) \(rank 0\) and {re.escape(script.place('a'))} \(rank 1\)"
    assert re.search(called, second.text), second.text


def test_a_root_that_is_not_there(tmp_path):
    """Each rank is told by itself, and nothing of the group has failed."""
    script = Script(
        tmp_path,
        """try:
    dist.broadcast(torch.ones(1), 7)  # a
except ValueError as error:
    print(error)
dist.barrier()
dist.destroy_process_group()
""",
    )
    for ended in script.run():
        assert ended.code == 0
        assert f"{script.place('a')}: root is 7, but must be a rank of this group, 0 to 1" in ended.text
        assert "ls_broadcast" not in ended.text


def test_new_groups_of_different_ranks(tmp_path):
    """The rank that finds it sees both lines, in Python; it tells ranks that come later, and a rank that is in one list only."""
    script = Script(
        tmp_path,
        """if rank == 0:
    dist.new_group([0, 1])  # a
else:
    dist.new_group([0, 1, 2])  # b
""",
    )
    *two, third = script.run(ranks=(0, 1, 2))
    lists = (f"rank 0 gave 0, 1 (called from {script.place('a')})", f"rank 1 gave 0, 1, 2 (called from {script.place('b')})")
    found = 0
    for rank, ended in enumerate(two):
        assert ended.code == 1
        if f"lockstep.Inconsistent: {script.place('ab'[rank])}: ranks make different groups here: " in ended.text:
            assert all(text in ended.text for text in lists)
            found += 1
        else:
            assert "aborted the group: Inconsistent at train.py" in ended.text
    assert found
    assert third.code == 1
    assert "aborted the group: Inconsistent at train.py" in third.text
    for ended in (*two, third):
        assert "libffi" not in ended.text and "ls_group_from_members:" not in ended.text


def test_uneven_batches_and_then_the_end(tmp_path):
    script = Script(
        tmp_path,
        """model = DDP(nn.Linear(4, 4))
def train():
    for batch in range(5 - rank):
        model(torch.randn(8, 4)).sum().backward()  # a
group_error(train)
dist.destroy_process_group()
""",
    )
    first, second = script.run(anew=True)
    assert second.code == 0
    assert first.code == 1
    # Who has caught another exception meanwhile asks the group.
    assert "PeerLeft: rank 1 finished after all-reduce #" in first.text
    assert f"while rank 0 waits in all-reduce #10, called from {script.place('a', 'train')}" in first.text
    assert "give each the same number of batches, or let all agree when to stop" in flat(first)
    assert "KNOWN PEER_LEFT 1" in first.text


def test_uneven_batches_and_then_a_barrier(tmp_path):
    script = Script(
        tmp_path,
        """model = DDP(nn.Linear(4, 4))
for batch in range(5 - rank):
    model(torch.randn(8, 4)).sum().backward()  # a
dist.barrier()  # b
""",
    )
    for ended in script.run():
        assert ended.code == 1
        assert "called different operations as #10: rank 0 all-reduce, rank 1 barrier" in ended.text
        assert f"called from {script.place('a')} (rank 0) and {script.place('b')} (rank 1)" in ended.text


def test_a_parameter_that_only_some_ranks_use(tmp_path):
    """DDP sees it on the rank that does not use it, in its next forward; the other one waits meanwhile."""
    script = Script(
        tmp_path,
        """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x):
        return self.b(self.a(x)) if rank == 0 else self.a(x)
model = DDP(Net())
for batch in range(3):
    model(torch.randn(8, 4)).sum().backward()  # a
""",
    )
    first, second = script.run()
    assert first.code == second.code == 1
    assert "find_unused_parameters=True" in second.text
    assert "Parameter indices which did not receive grad for rank 1: 2 3" in second.text
    assert (
        f"Aborted: rank 1 aborted the group: RuntimeError at {script.place('a')}: Expected to have finished reduction "
        "in the prior iteration before starting a new one. This error indicates that your module has parameters that "
        "were not used in producing loss."
    ) in first.text
    # Whether rank 0 waits already, has begun, or is about to, is a matter of moments.
    assert re.search("rank 0: ((waiting|busy), in all-reduce #4|outside, last was) ", first.text), first.text


@pytest.mark.parametrize("end", ["", "dist.destroy_process_group()\n"], ids=["exit", "destroy"])
def test_the_last_broadcast_has_another_root(tmp_path, end):
    """Each rank takes itself for the root, sends, and needs nobody: only the end of the group can tell."""
    script = Script(
        tmp_path,
        f"""group = dist.new_group([0, 1])
dist.all_reduce(torch.ones(1), group=group)
dist.all_reduce(torch.ones(1))
dist.broadcast(torch.ones(3), src=rank)  # a
{end}""",
    )
    ended = processes.run(
        [processes.program("lockstep"), "run", "-n", "2", sys.executable, str(script.path)], TMPDIR=str(tmp_path)
    )
    assert ended.code != 0, ended.text
    assert "ranks 0 and 1 called broadcast #2 with different roots: rank 0 has 0, rank 1 has 1" in ended.text
    assert f"called from {script.place('a')}" in ended.text
    assert "LS-GROUP-LEFT-OPEN" not in ended.text


# ---- a rank does not come ----


def may_look():
    """Whether the system lets one process of a user look into another one."""
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
            return os.geteuid() == 0 or file.read().strip() == "0"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("launcher", ["lockstep run", "torchrun"])
def test_the_command_of_the_report_shows_the_line(tmp_path, launcher):
    program = processes.program("lockstep")
    if program is None or not may_look():
        pytest.skip("the program lockstep is neither beside the library nor in PATH, or may not look into processes")
    script = Script(
        tmp_path,
        """import os, time
def load_batch():
    any(time.sleep(0.01) or os.path.exists(os.environ["ENOUGH"]) for _ in range(6000))  # a
if rank == 1:
    load_batch()
dist.barrier()
dist.destroy_process_group()
""",
    )
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    start = torchrun if launcher == "torchrun" else [program, "run", "-n", "2", sys.executable]
    anew = launcher == "torchrun"  # one test starts it as users do
    process = processes.start([*start, str(script.path)], anew, LOCKSTEP_PATIENCE_MS=300, ENOUGH=tmp_path / "enough")
    said = ""
    try:
        while "[LS-WAITING]" not in said and (line := process.stdout.readline()):
            said += line
        command = re.search(r"`(lockstep diagnose --stacks \d+)`", said)
        assert command, said
        path = os.path.dirname(program) + os.pathsep + os.environ["PATH"]
        shown = subprocess.run(
            ["sh", "-c", command[1]], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
        ).stdout
    finally:
        (tmp_path / "enough").touch()
        ended = processes.finish(process)
    assert f"load_batch at {script.path}:{script.place('a').partition(':')[2]}\n" in shown, shown
    assert ended.code == 0, said + ended.text


# ---- ranks do not meet ----


def meeting(url=None, timeout_s=None):
    limit = f", timeout=timedelta(seconds={timeout_s})" if timeout_s else ""
    method = f', init_method="{url}"' if url else ""
    return HEAD + f'dist.init_process_group("lockstep"{method}{limit})\n'


def test_a_process_fewer_than_world_size(tmp_path):
    """Rank 0 is in PyTorch's store, which only counts; ranks that have got through it tell more, and before the time limit."""
    script = Script(tmp_path, "", meeting(timeout_s=SKEW_S))
    first, second = script.run(world_size=3)
    assert first.code == second.code == 1
    assert "waiting for clients. 2/3 clients joined." in first.text
    told = r"lockstep: rank 1 has waited \d\.\d s for ranks 0 and 2 of 3 \(rank 0 may itself wait"
    assert re.search(told, second.text), second.text
    assert "RankMissing" in second.text
    assert "See whether 3 processes were started" in second.text or "PyTorch's store is gone" in second.text


def test_a_process_fewer_than_world_size_without_the_store(tmp_path):
    script = Script(tmp_path, "", meeting("lockstep://"))
    for rank, ended in enumerate(script.run(world_size=3, LOCKSTEP_OPEN_TIMEOUT_MS=1000 * SKEW_S)):
        assert ended.code == 1
        assert f"lockstep: rank {rank}: 1 of 3 ranks did not come to" in ended.text
        # The limit of the one that came first.
        assert re.search(r"within \d+\.\d s: rank 2 \(here: 0, 1\)", ended.text), ended.text
        assert "lockstep.RankMissing: the world group cannot be opened" in ended.text


@pytest.fixture
def taken():
    """A port whose program says nothing."""
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 0))
        listener.listen(8)
        yield listener.getsockname()[1]


def test_the_port_is_taken(tmp_path, taken):
    """The other ranks wait in PyTorch's store, which asks what listens there who it is, and waits for the answer."""
    (ended,) = Script(tmp_path, "", meeting()).run(ranks=(0,), world_size=2, port=taken)
    assert ended.code == 1
    assert f"failed to listen on any local network address. port: {taken}" in ended.text
    assert "EADDRINUSE" in ended.text


def test_the_port_is_taken_without_the_store(tmp_path, taken):
    first, second = Script(tmp_path, "", meeting("lockstep://", 6)).run(port=taken)
    assert first.code == second.code == 1
    assert "lockstep.PortTaken" in first.text
    assert f"tcp:127.0.0.1:{taken} is in use by another program: choose a free MASTER_PORT" in first.text
    assert "lockstep.UntrustedPeer" in second.text
    assert "takes connections and says nothing" in second.text


@pytest.mark.parametrize("url", [None, "lockstep://"])
def test_two_processes_with_one_rank(tmp_path, url):
    """All are told, also those who have done nothing wrong."""
    for ended in Script(tmp_path, "", meeting(url, 60)).run(ranks=(0, 1, 1), world_size=3):
        assert ended.code == 1
        assert "lockstep.DuplicateRank" in ended.text
        assert "rank 1 of 3, pid" in ended.text
        assert "give each its own RANK, 0 to 2" in ended.text


def test_two_processes_with_rank_0(tmp_path):
    """With env:// the second one finds the port taken, and the first waits in the store."""
    for ended in Script(tmp_path, "", meeting("lockstep://", 60)).run(ranks=(0, 0)):
        assert ended.code == 1
        assert "lockstep.DuplicateRank" in ended.text
        assert "rank 0 of 2, pid" in ended.text


def test_ranks_meet_without_the_store(tmp_path):
    """Nothing is wrong, and groups of gloo find what they need."""
    body = """x = torch.ones(2)
dist.all_reduce(x)
dist.all_reduce(x, group=dist.new_group(backend="gloo"))
dist.all_reduce(x, group=dist.new_group([0, 1]))
print(x.tolist())
dist.destroy_process_group()
"""
    for ended in Script(tmp_path, body, meeting("lockstep://")).run(anew=True):
        assert (ended.code, ended.text.strip()) == (0, "[8.0, 8.0]")
