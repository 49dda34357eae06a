# SPDX-License-Identifier: BSD-3-Clause
"""For tests of lockstep run --hosts over a real sshd, which get LOCKSTEP RANKS_DEMO [test_…] as arguments. host0, where the
launcher runs, and host1, where sshd does, are network namespaces; on host2 nobody listens. Says so where there is no
sshd, or where the system lets nobody make namespaces."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cli"))
from harness import Job, all_processes, environment, equal, is_gone, lockstep, main, matches, program, read, until  # noqa: E402

HOSTS = os.path.join(HERE, "..", "..", "tools", "hosts")
SKIPPED = 77
FOLDER = os.environ.get("LAUNCH_FOLDER", "")
SSH = f"ssh -F {FOLDER}/config"
BOTH = ("run", "--hosts", "host0:2,host1:2", "--ssh", SSH)
CONFIG = """
Host *
Port 2222
IdentityFile {0}/key
IdentitiesOnly yes
UserKnownHostsFile /dev/null
StrictHostKeyChecking no
LogLevel ERROR
"""
SERVER = """
Port 2222
HostKey {0}/host_key
AuthorizedKeysFile {0}/key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PidFile none
AcceptEnv nothing
"""


# ---- hosts ----

def wait():
    """What host2 runs: nothing, until the tests have ended, which close their end of `door`."""
    with open(f"{FOLDER}/door", encoding="utf-8") as door:
        door.read()


def serve():
    """What host1 runs: sshd, as long."""
    if os.getuid() == 0:  # its own /run, and a folder that is not the one of host0
        for words in (["mount", "-t", "tmpfs", "tmpfs", "/run"], ["mount", "-t", "tmpfs", "tmpfs", f"{FOLDER}/only0"]):
            subprocess.run(words, check=True)
        os.mkdir("/run/sshd", 0o755)
    with open(f"{FOLDER}/sshd.log", "w", encoding="utf-8") as log:
        sshd = subprocess.Popen([shutil.which("sshd"), "-D", "-e", "-f", f"{FOLDER}/sshd_config"], stdout=log, stderr=log)
    wait()
    sshd.terminate()
    sshd.wait()


def look(tests):
    """What host0 runs: the tests, once sshd lets it in."""
    door = os.open(f"{FOLDER}/door", os.O_RDWR)  # not to wait for the reader
    os.environ["TMPDIR"] = FOLDER  # for snapshots
    tried = []

    def is_in():
        tried[:] = [subprocess.run([*SSH.split(), "-oBatchMode=yes", "host1", "hostname"], stdin=subprocess.DEVNULL,
                                   capture_output=True, text=True, check=False)]
        return tried[0].returncode == 0 or "refused" not in tried[0].stderr
    until(is_in, "sshd to listen")
    try:
        if tried[0].returncode != 0:
            with open(f"{FOLDER}/sshd.log", encoding="utf-8") as log:
                print(f"# skipped: sshd lets nobody in here: {tried[0].stderr.strip()}; {log.read().strip()}")
            print("0 passed, 0 failed")
            return
        equal(tried[0].stdout, "host1\n")
        main(tests)
    finally:
        os.close(door)


def prepare():
    """Keys and configuration in a folder, and the hosts."""
    missing = [name for name in ("sshd", "ssh", "ssh-keygen") if not shutil.which(name)]
    if missing:
        print(f"# skipped: there is no {missing[0]} (apt install openssh-server)\n0 passed, 0 failed")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/only0")
        for name in "key", "host_key":
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{name}"], check=True)
        for name, text in ("config", CONFIG), ("sshd_config", SERVER):
            with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
                file.write(text.format(folder))
        os.mkfifo(f"{folder}/door")
        for path, text in ("only0/program", "#!/bin/sh\n"), ("other", "#!/bin/sh\nprintf '\\nlockstep daemon 9.9\\n'; cat\n"):
            with open(os.open(f"{folder}/{path}", os.O_WRONLY | os.O_CREAT, 0o755), "w", encoding="utf-8") as file:
                file.write(text)
        words = [sys.executable, os.path.abspath(sys.argv[0]), *map(os.path.abspath, sys.argv[1:3]), *sys.argv[3:]]
        ran = subprocess.run([HOSTS, "3", *words], env={**os.environ, "LAUNCH_FOLDER": folder}, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    text = re.sub(r"^host\d: ", "", ran.stdout, flags=re.MULTILINE)
    if ran.returncode == SKIPPED:
        text = f"# skipped: {text.strip()}\n0 passed, 0 failed\n"
    print(text, end="")
    return 0 if ran.returncode in (0, SKIPPED) else 1


# ---- what the tests share ----

def marked(mark):
    """Processes of a job on any host; ranks on others get what begins with PYTHON."""
    return [pid for pid in all_processes() if f"PYTHON_MARK={mark}".encode() in read(f"/proc/{pid}/environ").split(b"\0")]


def daemons(network=None):
    """Daemons on the hosts of this test."""
    found = []
    for pid in all_processes():
        words = read(f"/proc/{pid}/cmdline").split(b"\0")
        try:
            if words[0] == program().encode() and b"--daemon" in words and not is_gone(pid) and \
                    b"guard" not in read(f"/proc/{pid}/comm") and \
                    (network is None or os.readlink(f"/proc/{pid}/ns/net") == network):
                found.append(pid)
        except OSError:
            pass
    return found


def network_of_ranks(ranks, rank):
    return os.readlink(f"/proc/{ranks[rank]}/ns/net")


class Far(Job):
    """A job on both hosts, of which nothing may stay behind on either."""

    def __init__(self, *words, settings=None, **options):
        self.far = uuid.uuid4().hex
        super().__init__(*BOTH, *words, env=environment(PYTHON_MARK=self.far, **(settings or {})), **options)

    def __exit__(self, *error):
        super().__exit__(*error)
        until(lambda: not [pid for pid in marked(self.far) if not is_gone(pid)], "all processes on both hosts to end")

    def ranks(self):
        found = {}
        for pid in marked(self.far):
            for entry in read(f"/proc/{pid}/environ").split(b"\0"):
                if entry.startswith(b"RANK=") and not is_gone(pid):
                    found.setdefault(int(entry[5:]), pid)
        return found

    def begun(self, word="ready"):
        self.expect(*(f"[{rank}] {word}" for rank in range(4)))
        return self.ranks()


WAITS = ["sh", "-c", "echo ready; exec sleep 1000"]


def refused(*words, lines, status=1):
    result = lockstep(*words)
    for line in lines:
        matches(line, result.stderr)
    equal((result.returncode, result.stdout), (status, ""), result.stderr)
    matches(r"no rank was started, because of \d of \d hosts: .*\[LS-RUN-HOSTS\]", result.stderr)
    until(lambda: not daemons(), "all daemons to end")
    return result.stderr


def begin(tests):
    """What a file of tests calls at its end, with its globals."""
    if "LAUNCH_FOLDER" not in os.environ:
        sys.exit(prepare())
    {"0": lambda: look(tests), "1": serve, "2": wait}[os.environ["HOST"]]()
