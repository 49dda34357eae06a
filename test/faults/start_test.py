#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that are started by hand or by torchrun, and all that can then be wrong: each rank ends in time,
with the right status, and with a message that names rank, cause and remedy.

start_test.py START [--only TEXT]
Prints TAP and the closing line "N passed, N failed"."""

import argparse
import os
import re
import socket
import subprocess
import sys
import threading

from jobs import environment, need, run_tests

LIMIT_S = 60
LONG_MS = 120000  # where nobody should wait it out
SHORT_MS = 2000
# How long after its deadline a rank may wait for the verdict, and how late a busy box may run it.
GRACE_MS, BUSY_MS = 1000, 30000


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Rank:
    """One process; value: what it adds to the sum."""

    def __init__(self, value=0, under=(), **variables):
        variables = {k: v for k, v in variables.items() if v is not None}
        self.limit_ms = variables.setdefault("LOCKSTEP_OPEN_TIMEOUT_MS", LONG_MS)
        self.process = subprocess.Popen([*under, START, str(value)], env=environment(**variables), text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.pid = self.process.pid
        self.text = ""

    def await_sum(self):
        while line := self.process.stdout.readline():
            self.text += line
            if line.startswith("sum "):
                return
        need(False, "no sum came", self.text)

    def end(self):
        text, _ = self.process.communicate(timeout=LIMIT_S)
        self.text += text
        return self


def expect(rank, status, *patterns, limit_ms=None):
    """The rank has ended in time with this status, and has printed all these texts."""
    rank.end()
    found = re.search(r"^rank (\S+): (LS_\w+) after (\d+) ms$", rank.text, re.M)
    need(found, "no status", rank.text)
    need(found[2] == status, f"rank {found[1]} got {found[2]} instead of {status}", rank.text)
    limit_ms = (limit_ms or rank.limit_ms + GRACE_MS) + BUSY_MS
    need(int(found[3]) < limit_ms, f"rank {found[1]} took {found[3]} ms", rank.text)
    for pattern in patterns:
        need(re.search(pattern, rank.text), f"rank {found[1]} did not say {pattern!r}", rank.text)
    said = re.findall(r"\[LS-[A-Z-]+\]$", rank.text, re.M)
    need(len(said) == (status != "LS_OK"), f"rank {found[1]} said {len(said)} messages", rank.text)


def expect_sum(ranks, total):
    for rank in ranks:
        rank.process.stdin.close()
        rank.process.stdin = None  # communicate leaves it alone
    for rank in ranks:
        expect(rank, "LS_OK", rf"(?m)^sum {total} of {len(ranks)} ranks$", rf"(?m)^again {total}$")
        need(rank.process.returncode == 0, f"exit {rank.process.returncode}", rank.text)


def by_hand(port, rank, size, **more):
    return Rank(10**rank, **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": rank, "WORLD_SIZE": size, **more})


def by_torchrun(port, rank, size, run="r1", restart=0, **more):
    """The variables that torchrun --nproc-per-node SIZE sets."""
    return by_hand(port, rank, size, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=size, GROUP_RANK=0, GROUP_WORLD_SIZE=1, ROLE_RANK=rank,
                   ROLE_WORLD_SIZE=size, ROLE_NAME="default", TORCHELASTIC_RESTART_COUNT=restart, TORCHELASTIC_MAX_RESTARTS=3,
                   TORCHELASTIC_RUN_ID=run, TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_ERROR_FILE="/dev/null", **more)


class Listener:
    """Another program that listens on a port: it answers with `answer`, or says nothing if that is None."""

    def __init__(self, answer=None):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.answer = answer
        self.taken = []
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.taken.append(connection)
            if self.answer:
                connection.recv(4096)
                connection.sendall(self.answer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.shutdown(socket.SHUT_RDWR)  # ends accept
        self.thread.join()
        for each in [self.socket, *self.taken]:
            each.close()


# ---- what works ----


def test_by_hand():
    for size in (1, 2, 4):
        port, address = free_port(), "localhost" if size == 2 else "127.0.0.1"
        expect_sum([by_hand(port, r, size, MASTER_ADDR=address) for r in reversed(range(size))], int("1" * size))


def test_alone():
    expect_sum([Rank(7)], 7)


def test_torchrun():
    with Listener() as store:
        expect_sum([by_torchrun(store.port, r, 3) for r in range(3)], 111)
        need(not store.taken, "somebody connected to torchrun's own store")


def test_torchrun_jobs_apart():
    """Another run and a restart on the same port while the first job runs are jobs of their own."""
    with Listener() as store:
        jobs = []
        for run, restart, size in (("r1", 0, 2), ("r1", 1, 3), ("r2", 0, 4)):
            jobs.append([by_torchrun(store.port, r, size, run, restart) for r in range(size)])
            for rank in jobs[-1]:
                rank.await_sum()
        for job in jobs:
            expect_sum(job, int("1" * len(job)))


def test_second_job_while_first_runs():
    """Rank 0 of the first keeps the port, so the ranks of the two cannot meet each other; when the first is over, a third
    meets there."""
    port = free_port()
    first = [by_hand(port, r, 2) for r in range(2)]
    for rank in first:
        rank.await_sum()
    second = [by_hand(port, r, 3, LOCKSTEP_OPEN_TIMEOUT_MS=SHORT_MS) for r in range(3)]
    where = f"tcp:127.0.0.1:{port}"
    expect(second[0], "LS_PORT_TAKEN", f"rank 0: the rendezvous address {where} is in use by another program: choose a free MASTER_PORT")
    for rank in second[1:]:
        expect(rank, "LS_UNTRUSTED_PEER", f"something at {where} takes connections and says nothing .*"
               "such as a job that has begun without this rank")
    expect_sum(first, 11)
    third = [by_hand(port, r, 3) for r in range(3)]
    for rank in third:
        rank.await_sum()
    expect_sum(third, 111)


def test_strangers_knock():
    """Programs that connect to the port of rank 0 and say nothing, or nonsense, change nothing."""
    port = free_port()
    zero = by_hand(port, 0, 2)
    strangers = []
    while not strangers:
        try:
            strangers.append(socket.create_connection(("127.0.0.1", port)))
        except ConnectionRefusedError:
            need(zero.process.poll() is None, "rank 0 ended")
    for words in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 5000, b"LOCKSTEP"):
        strangers.append(socket.create_connection(("127.0.0.1", port)))
        strangers[-1].sendall(words)
    expect_sum([zero, by_hand(port, 1, 2)], 11)
    for stranger in strangers:
        stranger.close()


# ---- what does not ----


def test_wrong_world_size():
    for odd in (1, 2):
        port = free_port()
        ranks = [by_hand(port, r, 4 if r == odd else 3) for r in range(3)]
        for rank in ranks:
            expect(rank, "LS_WRONG_WORLD_SIZE", rf"rank {odd} \(pid {ranks[odd].pid}\) was started for 4 ranks, but rank 0 \(pid "
                   rf"{ranks[0].pid}\) at tcp:127.0.0.1:{port} for 3: give all processes the same WORLD_SIZE", limit_ms=LONG_MS / 2)


def test_duplicate_rank():
    port = free_port()
    ranks = [by_hand(port, r, 3) for r in (0, 1, 1)]
    pids = "|".join(str(r.pid) for r in ranks[1:])
    for rank in ranks:
        expect(rank, "LS_DUPLICATE_RANK", rf"say that they are rank 1 of 3, pid ({pids}) and pid ({pids}): give each its own RANK",
               limit_ms=LONG_MS / 2)


def test_duplicate_rank_0():
    port = free_port()
    ranks = [by_hand(port, r, 3) for r in (0, 0, 1)]
    pids = "|".join(str(r.pid) for r in ranks[:2])
    for rank in ranks:
        expect(rank, "LS_DUPLICATE_RANK", rf"say that they are rank 0 of 3, pid ({pids}) and pid ({pids}): give each its own RANK",
               limit_ms=LONG_MS / 2)


def test_second_job_while_first_meets():
    """The second rank 0 finds the first one, which still waits for its rank 1."""
    port = free_port()
    first = by_hand(port, 0, 2)
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except ConnectionRefusedError:
            need(first.process.poll() is None, "rank 0 ended")
    second = by_hand(port, 0, 3)
    for rank in (first, second):
        expect(rank, "LS_WRONG_WORLD_SIZE", rf"rank 0 \(pid {second.pid}\) was started for 3 ranks, but rank 0 \(pid {first.pid}\) at "
               rf"tcp:127.0.0.1:{port} for 2: give all processes the same WORLD_SIZE", limit_ms=LONG_MS / 2)
    # Rank 0 has ended with that error, so no rank is left that could answer.
    expect(by_hand(port, 1, 3, LOCKSTEP_OPEN_TIMEOUT_MS=SHORT_MS), "LS_NO_MASTER", "rank 0 .* has not come there, or has ended")


def test_missing_ranks():
    port = free_port()
    for rank in [by_hand(port, r, 4, LOCKSTEP_OPEN_TIMEOUT_MS=SHORT_MS) for r in (0, 2)]:
        expect(rank, "LS_RANK_MISSING", rf"2 of 4 ranks did not come to tcp:127.0.0.1:{port} within [12]\.\d s: ranks 1, 3 "
               r"\(here: 0, 2\).*See whether those ranks were started.*LOCKSTEP_OPEN_TIMEOUT_MS")


def test_impatient_rank_ends_all():
    port = free_port()
    ranks = [by_hand(port, 0, 3), by_hand(port, 1, 3, LOCKSTEP_OPEN_TIMEOUT_MS=SHORT_MS)]
    for rank in ranks:
        expect(rank, "LS_RANK_MISSING", r"1 of 3 ranks did not come.*: rank 2 \(here: 0, 1\)", limit_ms=SHORT_MS + GRACE_MS)


def test_master_is_not_there():
    port = free_port()
    for rank in [by_hand(port, r, 3, LOCKSTEP_OPEN_TIMEOUT_MS=SHORT_MS) for r in (1, 2)]:
        expect(rank, "LS_NO_MASTER", rf"nobody listens at tcp:127.0.0.1:{port} \(tried for [12]\.\d s\): rank 0 .* has not come there, "
               "or has ended. See whether it was started.*MASTER_ADDR and MASTER_PORT")


def test_port_is_taken_by_the_silent():
    with Listener() as other:
        ranks = [by_hand(other.port, r, 2, LOCKSTEP_OPEN_TIMEOUT_MS=SHORT_MS) for r in range(2)]
        where = f"tcp:127.0.0.1:{other.port}"
        silent = f"something at {where} takes connections and says nothing .*another program uses this address"
        expect(ranks[0], "LS_PORT_TAKEN", rf"rank 0: the rendezvous address {where} is in use by another program: choose a free "
               rf"MASTER_PORT, or end what uses this one \({silent}")
        expect(ranks[1], "LS_UNTRUSTED_PEER", f"rank 1: {silent}")


def test_port_is_taken_by_a_web_server():
    with Listener(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n") as other:
        ranks = [by_hand(other.port, r, 2) for r in range(2)]
        where = f"tcp:127.0.0.1:{other.port}"
        web = rf"what answers at {where} is not Lockstep: it says .HTTP/1.1 400.*web server. Choose another address \(MASTER_PORT\)"
        expect(ranks[0], "LS_PORT_TAKEN", rf"rank 0: the rendezvous address {where} is in use by another program: choose a free "
               rf"MASTER_PORT, or end what uses this one \({web}", limit_ms=LONG_MS / 2)
        expect(ranks[1], "LS_UNTRUSTED_PEER", f"rank 1: {web}", limit_ms=LONG_MS / 2)


def refused(status, *patterns, **variables):
    """This environment is refused at once."""
    full = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "RANK": 0, "WORLD_SIZE": 2, **variables}
    expect(Rank(**full), status, *patterns, limit_ms=SHORT_MS)


def test_rank_without_world_size():
    refused("LS_BAD_ARGUMENT", r"WORLD_SIZE is not set in the environment, but RANK is: start all ranks with.*or set", WORLD_SIZE=None)
    refused("LS_BAD_ARGUMENT", r"RANK is not set in the environment, but WORLD_SIZE is: start all ranks with.*or set", RANK=None)
    refused("LS_BAD_ARGUMENT", "MASTER_PORT is not set", MASTER_PORT=None)
    refused("LS_BAD_ARGUMENT", "MASTER_ADDR is not set", MASTER_ADDR=None)


def test_rank_outside():
    for rank in (2, 3):
        refused("LS_BAD_ARGUMENT", rf"RANK is {rank}: with 2 ranks it must be from 0 to 1", RANK=rank)
    refused("LS_BAD_ARGUMENT", "RANK is '-1', but must be", RANK=-1)
    refused("LS_BAD_ARGUMENT", "RANK is 'first', but must be", RANK="first")
    refused("LS_BAD_ARGUMENT", "WORLD_SIZE is '0', but must be", WORLD_SIZE=0)
    refused("LS_BAD_ARGUMENT", "WORLD_SIZE is 513: it must be from 1 to 512", WORLD_SIZE=513)
    refused("LS_BAD_ARGUMENT", "MASTER_PORT is '65536', but must be", MASTER_PORT=65536)


def test_other_hosts():
    refused("LS_BAD_ARGUMENT", r"this host has no address 192\.0\.2\.1, at which rank 0 has to listen", MASTER_ADDR="192.0.2.1")
    refused("LS_BAD_ARGUMENT", "MASTER_ADDR is 'no host', a name for which this host finds no address", MASTER_ADDR="no host")
    for address, fault in (("0.0.0.0", "stands for all addresses"), ("::", "stands for all addresses"), ("fe80::1", "is valid on one link")):
        refused("LS_BAD_ARGUMENT", rf"MASTER_ADDR is '{address}', and {address} {fault}.*127\.0\.0\.1 if all are on it", MASTER_ADDR=address)
    # torchrun on several hosts: rank 0 has to be on the host of MASTER_ADDR.
    refused("LS_BAD_ARGUMENT", r"this host has no address 192\.0\.2\.1", WORLD_SIZE=4, LOCAL_WORLD_SIZE=2,
            TORCHELASTIC_USE_AGENT_STORE="True", MASTER_ADDR="192.0.2.1")


def test_other_pid_namespaces():
    """A rank, or rank 0, which serves, or both, each in one of its own: all are told so at once."""
    can = ["unshare", "--user", "--map-current-user"] if os.geteuid() else ["unshare"]
    can += ["--pid", "--fork"]
    if subprocess.run([*can, "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
        print("# skipped: this system does not allow PID namespaces")
        return
    for apart in ([1], [0], [0, 1, 2]):
        port = free_port()
        ranks = [by_hand(port, r, 3, under=can if r in apart else []) for r in range(3)]
        for rank in ranks:
            expect(rank, "LS_UNSUPPORTED", r"rank \d and rank 0 \(pid \d+\) at tcp:\S+ are in different PID namespaces.*without unshare --pid")


def main():
    global START
    parser = argparse.ArgumentParser()
    parser.add_argument("start")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    START = os.path.abspath(options.start)
    tests = [(name[5:].replace("_", " "), function) for name, function in globals().items() if name.startswith("test_")]
    return run_tests([t for t in tests if options.only in t[0]])


if __name__ == "__main__":
    sys.exit(main())
