# SPDX-License-Identifier: BSD-3-Clause
"""Scripts on several hosts, which are network namespaces: started by hand and by torchrun, and what is said of ranks
that cannot meet."""

import os
import re
import sys

import fork_server
import processes
import pytest

TOOLS = os.path.join(processes.ROOT, "tools")
EXAMPLES = os.path.join(processes.ROOT, "examples", "torch")
SKIPPED = 77
TRAIN = f"""
import os, sys
sys.path.insert(0, {EXAMPLES!r})
import torch, usual_ddp
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
usual_ddp.train(rank, size, "lockstep", sys.argv[1])
if rank == 0:
    trained = torch.load(sys.argv[1], weights_only=True)
    alone = usual_ddp.train_alone(size).state_dict()
    difference = max((trained[f"module.{{name}}"] - alone[name]).abs().max().item() for name in alone)
    print(f"largest difference to one process: {{difference:.1e}}")
    sys.exit(difference > 1e-4)
"""
MEET = """
import torch, torch.distributed as dist, lockstep.torch
dist.init_process_group("lockstep"{how})
x = torch.ones(1) * dist.get_rank()
dist.all_reduce(x)
print("sum", x.item(), flush=True)
"""
END = "dist.destroy_process_group()\n"
KILL = """
import os, signal
if dist.get_rank() == 2:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
"""
FORKING = [sys.executable, os.path.abspath(fork_server.__file__), "--run"]  # PyTorch is imported once on each host
BY_HAND = [*FORKING, os.path.join(TOOLS, "start-ranks"), "2", sys.executable]
ONE_EACH = [*FORKING, os.path.join(TOOLS, "start-ranks"), "1", sys.executable]
TORCHRUN = f"exec {' '.join(FORKING)} {sys.executable} -m torch.distributed.run --nnodes 2 --nproc-per-node 2 "
STATIC = TORCHRUN + '--node-rank "$HOST" --master-addr 198.18.0.1 --master-port 29500 "$@"'
DYNAMIC = TORCHRUN + '--rdzv-backend c10d --rdzv-endpoint 198.18.0.1:29400 --rdzv-id job --local-addr "$ADDRESS" "$@"'


@pytest.fixture
def hosts(tmp_path):
    """Runs words on each of 2 hosts. SCRIPT among them stands for a script of this text."""
    secret = tmp_path / "secret"
    secret.write_bytes(os.urandom(32))
    secret.chmod(0o600)

    def run(text, *words, **environment):
        script = tmp_path / "script.py"
        script.write_text(text)
        words = [str(script) if word == "SCRIPT" else str(word) for word in words]
        settings = {"LOCKSTEP_SECRET_FILE": secret, "PYTHONUNBUFFERED": 1, "START_GRACE_S": 60, **environment}
        ended = processes.run([os.path.join(TOOLS, "hosts"), "2", *words], **settings)
        if ended.code == SKIPPED:
            pytest.skip(ended.text)
        return ended

    return run


def check_sums(ended, ranks):
    assert ended.code == 0, ended.text
    assert re.findall(r"\bsum (\S+)$", ended.text, re.MULTILINE) == [str(float(sum(range(ranks))))] * ranks, ended.text


def check_trained(ended):
    assert ended.code == 0, ended.text
    assert "largest difference to one process: " in ended.text


def test_ddp_trains_as_one_process(hosts, tmp_path):
    check_trained(hosts(TRAIN, *BY_HAND, "SCRIPT", tmp_path / "model.pt"))


@pytest.mark.parametrize("how", [pytest.param(STATIC, id="static"), pytest.param(DYNAMIC, id="c10d", marks=pytest.mark.nightly)])
def test_torchrun_trains(hosts, tmp_path, how):
    check_trained(hosts(TRAIN, "sh", "-c", how, "sh", "SCRIPT", tmp_path / "model.pt"))


def test_torchrun_restarts(hosts, tmp_path):
    """Two agents that meet by c10d; one of them may not count the restart."""
    restart = os.path.join(EXAMPLES, "restart.py"), tmp_path / "kept.pt", "--fault", "killed"
    ended = hosts("", "sh", "-c", DYNAMIC, "sh", "--max-restarts", "1", "--shutdown-timeout", "5", *restart)
    assert re.search(r"life 0 begins at step 0\b.*life [01] begins at step 10\b", ended.text, re.DOTALL), ended.text
    check_trained(ended)


def test_torchrun_starts_programs_in_c(hosts):
    program = os.path.join(os.environ.get("LD_LIBRARY_PATH", "").split(":")[0], "examples", "hello")
    if not os.path.exists(program):
        pytest.skip("the examples are not beside the library")
    ended = hosts("", "sh", "-c", STATIC, "sh", "--no-python", program)
    assert ended.code == 0, ended.text
    assert len(re.findall(r"rank \d of 4: the sum of all ranks is 6\b", ended.text)) == 4, ended.text


def test_the_library_meets_first(hosts):
    """init_method="lockstep://", which needs no store of PyTorch's to begin with."""
    check_sums(hosts(MEET.format(how=', init_method="lockstep://"') + END, *BY_HAND, "SCRIPT"), ranks=4)


def test_addresses_of_ipv6(hosts):
    """They stand beside those of IPv4, on the same device."""
    script = 'ip addr add "fd00::$((HOST + 1))/64" dev wire nodad && MASTER_NAME=fd00::1 exec "$@"'
    check_sums(hosts(MEET.format(how="") + END, "sh", "-c", script, "sh", *ONE_EACH, "SCRIPT"), ranks=2)


def test_a_name_that_only_others_can_use(hosts):
    """A host often resolves its own name to an address of loopback."""
    choose = "case $HOST in 0) echo 127.0.1.1;; *) echo 198.18.0.1;; esac"
    names = f'cd "$(mktemp -d)" && ({choose}) | sed "s/$/ host0/" >names && '
    script = names + 'mount --bind names /etc/hosts && MASTER_NAME=host0 exec "$@"'
    check_sums(hosts(MEET.format(how="") + END, "sh", "-c", script, "sh", *ONE_EACH, "SCRIPT"), ranks=2)


def test_no_secret(hosts):
    ended = hosts(MEET.format(how=""), *BY_HAND, "SCRIPT", LOCKSTEP_SECRET_FILE="")
    assert ended.code == 1, ended.text
    hosts_of = "ranks 0 and 1 on host0, ranks 2 and 3 on host1"
    what = f"UntrustedPeer: the ranks are on several hosts ({hosts_of}), and ranks 0, 1, 2 and 3 have no secret"
    assert ended.text.count(what) == 4, ended.text
    assert "LOCKSTEP_SECRET_FILE" in ended.text and "LOCKSTEP_TRUST_NETWORK=1" in ended.text


def test_a_rank_that_is_killed(hosts):
    ended = hosts(MEET.format(how="") + KILL, *BY_HAND, "SCRIPT")
    assert ended.code == 1, ended.text
    assert len(re.findall(r"lockstep\.PeerDied: ", ended.text)) == 3, ended.text
