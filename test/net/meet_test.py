#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test/net/meet_test.py MEET_RANK: how ranks on several hosts, which are network namespaces, find each other: with a secret,
with another one, without one, and beside strangers. Says so where the system lets nobody make namespaces."""

import os
import subprocess
import sys
import tempfile

HOSTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "hosts")
SKIPPED = 77
PORT = "29511"
SILENT = """
import socket, sys
def connect():
    while True:
        try:
            return socket.create_connection(("198.18.0.1", int(sys.argv[1])))
        except ConnectionRefusedError:
            pass
kinds = [b"", b"GET / HTTP/1.1\\r\\n\\r\\n", b"LSRDV", b"LSRDV" + bytes(59), b"\\0" * 10000]
connections = [connect() for _ in range(300)]
for number, connection in enumerate(connections):
    try:
        connection.sendall(kinds[number % len(kinds)])
    except ConnectionError:
        pass
for connection in connections:
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        pass
print("300 strangers were sent away")
"""
FORWARD = """
import socket, sys, threading
def copy(one, other):
    try:
        while data := one.recv(4096):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        pass
here, there, port = sys.argv[1:]
door = socket.create_server((here, int(port)))
print("open", flush=True)
while True:
    one = door.accept()[0]
    other = socket.create_connection((there, int(port)))
    for pair in ((one, other), (other, one)):
        threading.Thread(target=copy, args=pair, daemon=True).start()
"""


class Skipped(Exception):
    pass


class Case:
    """One meeting. `scripts` are what each host runs, in a folder with the files one, two (secrets) and door (a FIFO)."""

    def __init__(self, name, scripts, lines, codes):
        self.name, self.scripts, self.lines, self.code = name, scripts, lines, codes

    def run(self, program):
        with tempfile.TemporaryDirectory() as folder:
            for secret, byte in ("one", b"1"), ("two", b"2"):
                with open(os.open(os.path.join(folder, secret), os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                    file.write(byte * 32)
            os.mkfifo(os.path.join(folder, "door"))
            with open(os.path.join(folder, "silent.py"), "w", encoding="utf-8") as file:
                file.write(SILENT)
            with open(os.path.join(folder, "forward.py"), "w", encoding="utf-8") as file:
                file.write(FORWARD)
            cases = " ".join(f"{number}) {script};;" for number, script in enumerate(self.scripts))
            ran = subprocess.run([HOSTS, str(len(self.scripts)), "sh", "-c", f"case $HOST in {cases} esac"], cwd=folder,
                                 env={**os.environ, "MEET": program, "PORT": PORT, "ONE": "LOCKSTEP_SECRET_FILE=one"},
                                 stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=400, check=False)
        if ran.returncode == SKIPPED:
            raise Skipped(ran.stdout.strip())
        missing = [line for line in self.lines if line not in ran.stdout]
        print(f"{'not ok' if missing or ran.returncode != self.code else 'ok'} - {self.name}")
        if missing or ran.returncode != self.code:
            print(f"{ran.returncode} instead of {self.code}, missing: {missing}", ran.stdout, ran.stderr, sep="\n")
        return not missing and ran.returncode == self.code


def met(hosts, per_host):
    addresses = "".join(f" 198.18.0.{host + 1}" * per_host for host in range(hosts))
    return [f"host{host}: rank {host * per_host + i}: met{addresses}, {hosts} hosts, job set"
            for host in range(hosts) for i in range(per_host)]


RANK = "exec env $ONE $MEET"
BRIEF = "export LIMIT=5000"  # for a rank that waits in vain
CASES = [
    Case("2 hosts of 2 ranks, one secret", [f"{RANK} 4 2 $PORT"] * 2, met(2, 2), 0),
    Case("5 hosts of 3 ranks, one secret", [f"{RANK} 15 3 $PORT"] * 5, met(5, 3), 0),
    Case("a network that is trusted", ["LOCKSTEP_TRUST_NETWORK=1 exec $MEET 4 2 $PORT"] * 2, met(2, 2), 0),
    Case("one host and its own address, no secret", ["exec $MEET 3 3 $PORT"],
         ["host0: rank 2: met 198.18.0.1 198.18.0.1 198.18.0.1, 1 hosts, job set"], 0),
    Case("another secret", [f"{BRIEF}; {RANK} 2 1 $PORT", "LOCKSTEP_SECRET_FILE=two exec $MEET 2 1 $PORT"],
         ["host1: rank 1: LS_UNTRUSTED_PEER", "does not know the secret of rank 1", "host0: rank 0: LS_RANK_MISSING",
          "1 connection did not prove that they know the secret"], 1),
    Case("no secret at the rank that comes", [f"{BRIEF}; {RANK} 2 1 $PORT", "exec $MEET 2 1 $PORT"],
         ["host1: rank 1: LS_UNTRUSTED_PEER", "is on another host than rank 1, which has no secret",
          "LOCKSTEP_TRUST_NETWORK=1", "host0: rank 0: LS_RANK_MISSING"], 1),
    Case("no secret at rank 0", [f"{BRIEF}; exec $MEET 2 1 $PORT", f"{RANK} 2 1 $PORT"],
         ["host1: rank 1: LS_UNTRUSTED_PEER", "has no secret, without which it lets no other host in",
          "host0: rank 0: LS_RANK_MISSING", "1 connection came from other hosts, while this process has no secret"], 1),
    Case("a secret that others may read", ["chmod 644 one; " + f"{RANK} 1 1 $PORT"], ["rank 0: LS_BAD_ARGUMENT", "chmod 600"], 1),
    Case("a group whose ranks are on one host, without loopback", ["exec $MEET 2 2 $PORT open"],
         ["host0: rank 0: LS_OK", "host0: rank 1: LS_OK"], 0),
    Case("a group whose ranks are on two hosts", [f"{RANK} 2 1 $PORT open"] * 2,
         ["host0: rank 0: LS_OK", "host1: rank 1: LS_OK"], 0),
    Case("a port that something forwards",
         [f"{BRIEF}; {RANK} 2 1 $PORT", "python3 forward.py 127.0.0.1 198.18.0.1 $PORT > door & read -r go < door; "
          "env MASTER=127.0.0.1 $ONE LIMIT=5000 $MEET 2 1 $PORT; kill $!; exit 1"],
         ["host1: rank 1: LS_UNTRUSTED_PEER", "rank 1 sees tcp:127.0.0.1:29511 on its own host, and rank 0",
          "there sees rank 1 on another one: something between them forwards"], 1),
    Case("hosts that do not know which they are, each a container",
         ["exec env KEY=0 $ONE $MEET 3 1 $PORT"] + ["exec env KEY=0 $ONE unshare --pid --fork --mount-proc $MEET 3 1 $PORT"] * 2,
         met(3, 1), 0),
    Case("a rank that cannot be reached by the others", [f"export BROKEN=2; {RANK} 4 2 $PORT"] * 2,
         [f"host{rank // 2}: rank {rank}: met, then LS_UNSUPPORTED" for rank in range(4)] +
         [" on host host1: no UCX here [LS-"], 1),
    Case("rank 0 cannot be reached by the others", [f"export BROKEN=0; {RANK} 4 2 $PORT"] * 2,
         [f"host{rank // 2}: rank {rank}: met, then LS_UNSUPPORTED" for rank in range(4)], 1),
    Case("a rank that ends when all have met", [f"export ENDED=3; {RANK} 4 2 $PORT"] * 2,
         [f"host{rank // 2}: rank {rank}: met, then LS_RANK_MISSING" for rank in range(3)] +
         ["on host host1 ended or gave up after all ranks had met"], 1),
    Case("rank 0 ends when all have met", [f"export ENDED=0; {RANK} 4 2 $PORT"] * 2,
         [f"host{rank // 2}: rank {rank}: met, then LS_NO_MASTER" for rank in range(1, 4)] +
         [", ended after all ranks had met, and before"], 1),
    Case("a rank that says nothing when all have met", [f"{BRIEF} MUTE=1; {RANK} 4 2 $PORT"] * 2,
         [f"host{rank // 2}: rank {rank}: met, then LS_RANK_MISSING" for rank in range(4)] +
         ["1 of 4 ranks met the others at tcp:198.18.0.1:29511", "how they can be reached: rank 1 (rank 1 (pid "], 1),
    Case("a rank whose words are changed on their way", [f"export CHANGED=3; {RANK} 4 2 $PORT"] * 2,
         [f"host{rank // 2}: rank {rank}: met, then LS_UNTRUSTED_PEER" for rank in range(4)] +
         ["on host host1 proved to tcp:198.18.0.1:29511 that it knows the secret of this job, but what came then",
          "after all ranks had met is not signed with the secret of this job"], 1),
    Case("two PID namespaces on a host that does not know which it is",
         [f"{BRIEF}; exec env KEY=0 $ONE $MEET 3 1 $PORT",
          f"{BRIEF}; for HOST in 1 2; do env HOST=$HOST KEY=0 $ONE unshare --pid --fork --mount-proc $MEET 3 1 $PORT & done; wait; exit 1"],
         ["rank 0: LS_UNSUPPORTED", "are in different PID namespaces"], 1),
    Case("the host of rank 0 cannot be reached",
         ["true", "ip route add unreachable 198.18.0.1/32 && exec env LIMIT=1000 $ONE $MEET 2 1 $PORT"],
         ["host1: rank 1: LS_NO_MASTER", "No route to host"], 1),
    Case("the host of rank 0 is silent",
         ["true", "ip neigh add 198.18.0.1 lladdr 02:00:00:00:00:01 nud permanent dev wire; exec env LIMIT=1000 $ONE $MEET 2 1 $PORT"],
         ["host1: rank 1: LS_NO_MASTER", "cannot reach the host of tcp:198.18.0.1:29511, Connection timed out"], 1),
    Case("a server that does not know the secret", ["exec $MEET 2 1 $PORT pose", f"{RANK} 2 1 $PORT"],
         ["host0: the rank went away", "host1: rank 1: LS_UNTRUSTED_PEER"], 1),
    Case("a table that is not signed", ["exec env $ONE $MEET 2 1 $PORT tamper", f"{RANK} 2 1 $PORT"],
         ["host0: the rank went away", "host1: rank 1: LS_UNTRUSTED_PEER", "does not know the secret"], 1),
    Case("strangers that say a hello", [f"{RANK} 2 1 $PORT", f"read -r go < door; {RANK} 2 1 $PORT",
                                        f"env $ONE $MEET 2 1 $PORT forge && echo go > door"],
         [line.replace("3 hosts", "2 hosts") for line in met(2, 1)] + ["5 strangers were sent away"], 0),
    Case("strangers that say nothing, or nonsense", [f"{RANK} 2 1 $PORT", f"read -r go < door; {RANK} 2 1 $PORT",
                                                     "python3 silent.py $PORT && echo go > door"],
         met(2, 1) + ["300 strangers were sent away"], 0),
]


def main():
    passed = failed = 0
    try:
        for case in CASES:
            good = case.run(os.path.abspath(sys.argv[1]))
            passed, failed = passed + good, failed + (not good)
    except Skipped as reason:
        print(f"# skipped: {reason}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
