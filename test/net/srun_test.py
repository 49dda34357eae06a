#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test/net/srun_test.py LOCKSTEP RANKS_DEMO [test_…]: ranks that srun starts, under a real Slurm whose two nodes are network
namespaces. Says so where there is no Slurm, where the system lets nobody make namespaces, and without root's rights, which
Slurm needs."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cli"))
from harness import LIMIT_S, Late, environment, equal, main, matches, until  # noqa: E402

HOSTS = os.path.join(HERE, "..", "..", "tools", "hosts")
SKIPPED = 77
END_S = 30  # for a daemon that was told to end
FOLDER = os.environ.get("SRUN_FOLDER", "")
PROGRAMS = "munged slurmctld slurmd srun salloc sinfo"
CONFIG = """
ClusterName=test
SlurmctldHost=host0
AuthType=auth/munge
AuthInfo=socket=/run/munge/socket
CryptoType=crypto/munge
SlurmUser=root
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
StateSaveLocation={0}/state
SlurmdSpoolDir=/run/spool
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SchedulerType=sched/builtin
SelectType=select/linear
NodeName=host[0-1] CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


# ---- the cluster ----

def start(log, *words):
    with open(f"{FOLDER}/{log}", "w", encoding="utf-8") as file:
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=file)


def logs():
    texts = []
    for name in sorted(os.listdir(FOLDER)):
        if name.endswith(".log"):
            with open(f"{FOLDER}/{name}", encoding="utf-8", errors="replace") as file:
                texts.append(f"{name}: {file.read()[-2000:]}")
    return "\n".join(texts)


def end(process):
    """Slurm's daemons wait for steps, and sometimes for each other, before they end."""
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def be_node(host):
    """Both nodes have a slurmd; host0 the controller and the tests, too. The end of the tests closes `door`."""
    for words in (["mount", "-t", "tmpfs", "tmpfs", "/run"], ["mkdir", "-p", "/run/munge", "/run/spool"]):
        subprocess.run(words, check=True)
    started = [start(f"munged{host}.log", "munged", "--foreground", "--force", f"--key-file={FOLDER}/key", "--socket=/run/munge/socket",
                     "--pid-file=/run/munge/pid", "--log-file=/run/munge/log", "--seed-file=/run/munge/seed")]
    if host == 0:
        started.append(start("slurmctld.log", "slurmctld", "-D", "-i"))
    started.append(start(f"slurmd{host}.log", "slurmd", "-D"))
    try:
        if host == 0:
            look()
        else:
            with open(f"{FOLDER}/door", encoding="utf-8") as door:
                door.read()
    finally:
        for process in reversed(started):
            end(process)


def look():
    door = os.open(f"{FOLDER}/door", os.O_RDWR)
    try:
        until(lambda: subprocess.run(["sinfo", "-h", "-o", "%t%D"], capture_output=True, text=True, check=False,
                                     timeout=LIMIT_S).stdout.split() == ["idle2"], "both nodes to become idle")
    except (Late, subprocess.TimeoutExpired) as error:
        print(f"# skipped: Slurm does not run here: {error}\n{logs()}\n0 passed, 0 failed")
        os.close(door)
        return
    try:
        main(globals())
    finally:
        os.close(door)


def skip(reason):
    print(f"# skipped: {reason}\n0 passed, 0 failed")
    return 0


def begin():
    missing = [name for name in PROGRAMS.split() if not shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]
    if missing:
        return skip(f"there is no {missing[0]} (apt install munge slurm-client slurmctld slurmd)")
    if os.getuid() != 0:
        return skip("Slurm's nodes need root's rights")
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/state")
        os.mkfifo(f"{folder}/door")
        for name, data in (("key", os.urandom(1024)), ("secret", os.urandom(32)), ("cgroup.conf", b"CgroupPlugin=cgroup/v1\n"),
                           ("slurm.conf", CONFIG.format(folder).encode())):
            with open(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.write(data)
        words = [sys.executable, os.path.abspath(__file__), *map(os.path.abspath, sys.argv[1:3]), *sys.argv[3:]]
        ran = subprocess.run([HOSTS, "2", *words], env={**os.environ, "SRUN_FOLDER": folder, "SLURM_CONF": f"{folder}/slurm.conf"},
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if ran.returncode == SKIPPED:
        return skip(ran.stdout.strip())
    print(re.sub(r"^host\d: ", "", ran.stdout, flags=re.MULTILINE), end="")
    return 1 if ran.returncode else 0


# ---- tests ----

def command(*words, secret=True, **variables):
    env = environment(**variables)
    if secret:
        env["LOCKSTEP_SECRET_FILE"] = f"{FOLDER}/secret"
    return [*map(str, words)], env


def run(*words, **options):
    words, env = command(*words, **options)
    return subprocess.run(words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, timeout=50)


def rounds(count):
    return sorted(["round 1", "round 2", "round 4"] * count)


SRUN = ("srun", "--mpi=none", "--label")
DEMO = (sys.argv[2], "--rounds", 4)


def test_two_nodes():
    result = run(*SRUN, "-N2", "-n4", *DEMO, LOCKSTEP_LOG="info")
    equal(result.returncode, 0, result.stderr)
    equal(sorted(result.stdout.splitlines()), sorted(f"{rank}: round {n}" for rank in range(4) for n in (1, 2, 4)))
    matches(r"4 ranks on 2 hosts \(host0: 0-1; host1: 2-3\)", result.stderr)


def test_cyclic_tasks():
    result = run(*SRUN, "-N2", "-n4", "-m", "cyclic", *DEMO, LOCKSTEP_LOG="info")
    equal(result.returncode, 0, result.stderr)
    matches(r"4 ranks on 2 hosts \(host0: 0, 2; host1: 1, 3\)", result.stderr)


def test_one_node_needs_no_secret():
    result = run(*SRUN, "-N1", "-n2", *DEMO, secret=False)
    equal(result.returncode, 0, result.stderr)
    equal(len(result.stdout.splitlines()), 6, result.stdout)


def test_one_of_two_nodes():
    result = run("salloc", "-N2", "-n4", *SRUN, "-N1", "-n2", "-w", "host1", *DEMO, secret=False)
    equal(result.returncode, 0, result.stderr)
    equal(len(result.stdout.splitlines()), 6, result.stdout)


def test_two_steps_at_once():
    step = f"srun --mpi=none --overlap -N2 -n4 {sys.argv[2]} --rounds 4"
    result = run("salloc", "-N2", "-n4", "sh", "-c", f"{step} & {step} & wait")
    equal((result.returncode, sorted(result.stdout.splitlines())), (0, rounds(8)), result.stderr)


def test_program_outside_of_a_step():
    result = run("salloc", "-N2", "-n4", *DEMO)
    equal((result.returncode, result.stdout.splitlines()), (0, ["round 1", "round 2", "round 4"]), result.stderr)


def test_no_secret():
    # At once, and not when it gives up waiting for the others.
    result = run(*SRUN, "-N2", "-n2", *DEMO, secret=False, LOCKSTEP_OPEN_TIMEOUT_MS=600000)
    assert result.returncode != 0
    for rank in (0, 1):
        matches(rf"{rank}: lockstep: Slurm has started the ranks on several hosts, .* head -c 32 /dev/urandom, .*"
                r"LOCKSTEP_SECRET_FILE", result.stderr)
    result = run(*SRUN, "-N2", "-n2", *DEMO, secret=False, LOCKSTEP_TRUST_NETWORK=1)
    equal(result.returncode, 0, result.stderr)


def test_rank_dies():
    result = run(*SRUN, "-N2", "-n4", "--kill-on-bad-exit=0", sys.argv[2], "--rounds", 100, "kill", 3, 20)
    equal(result.returncode != 0, True)
    for rank in (0, 1, 2):
        matches(rf"{rank}: failed LS_PEER_DIED", result.stdout)


if __name__ == "__main__":
    if "SRUN_FOLDER" in os.environ:
        be_node(int(os.environ["HOST"]))
    else:
        sys.exit(begin())
