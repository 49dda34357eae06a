#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test/net/opening_test.py OPENING_RANK: a rank ends while the ranks of two hosts connect, or is stopped, or UCX cannot connect
them: whom the others blame. Says so where the system lets nobody make namespaces."""

import re
import signal
import sys

from cases import job_folder, refusal, run_on_hosts

LOCAL, SIZE = 2, 4
LIMIT_MS, LONG_S = 3000, 100


class Skipped(Exception):
    pass


class Failure(Exception):
    pass


def need(condition, what):
    if not condition:
        raise Failure(what)


def play(program, *fault, **variables):
    with job_folder() as folder:
        code, text = run_on_hosts(2, folder, [program, *map(str, fault)], LONG_S, LOCAL=str(LOCAL), WORLD_SIZE=str(SIZE),
                                  MASTER_ADDR="198.18.0.1", MASTER_PORT="29517", LOCKSTEP_OPEN_TIMEOUT_MS=str(LIMIT_MS), **variables)
    if refusal(code, text):
        raise Skipped(refusal(code, text))
    return text


def statuses(text):
    return {int(rank): status for rank, status in re.findall(r"rank (\d+): (LS_\w+)", text)}


def check_blamed(text, faulty):
    """All others get an error, and each line of the library blames the faulty rank and nobody else."""
    got = statuses(text)
    need(set(got) == set(range(SIZE)) - {faulty}, f"the others did not all return: {got}")
    need("LS_OK" not in got.values(), f"some ranks opened a group without rank {faulty}: {got}")
    for line in re.findall(r"lockstep: rank \d+: (.*)", text):
        need(re.search(rf"rank {faulty}\b", line), f"not rank {faulty}: {line}")
        need("LS-NET-BROKEN" not in line, f"a broken connection is blamed: {line}")


def test_one_dies(program):
    for faulty, call, number in ((0, "connect", 1), (1, "connect", 1), (1, "connect", 2), (2, "accept", 1), (2, "accept", 3),
                                 (3, "accept", 2)):
        text = play(program, faulty, call, number, int(signal.SIGKILL))
        need("signal 9" in text, f"rank {faulty} did not come to {call} {number}: {text}")
        try:
            check_blamed(text, faulty)
        except Failure as failure:
            raise Failure(f"rank {faulty} at {call} {number}: {failure}\n{text}") from failure


def test_ucx_cannot_connect(program):
    """No rank has ended, and none is said to have."""
    text = play(program, LOCKSTEP_NETWORK="ucx", UCX_TLS="self,sm")
    need(statuses(text) == dict.fromkeys(range(SIZE), "LS_NO_MASTER"), text)
    for line in re.findall(r"lockstep: rank \d+: (.*)", text):
        need(re.search(r"the connection to rank \d on another host broke before all ranks were connected: .*Whether that rank has "
                       "ended is not known here", line), f"{line}\n{text}")


def test_one_is_stopped(program):
    """A rank of its host reports it, and at the time limit nobody has a group."""
    # The last three: with its card, with its memory, and as the first rank of its host with the table of all memory.
    for faulty, call, number in ((0, "connect", 1), (2, "accept", 1), (1, "send", 2), (3, "send", 4), (2, "send", 4)):
        text = play(program, faulty, call, number, int(signal.SIGSTOP))
        need("stopped" in text, f"rank {faulty} did not come to {call} {number}: {text}")
        told = re.findall(r"lockstep: rank \d+: rank (\d+) \(pid (\d+)\) is stopped", text)
        need(len(told) in (1, 2) and {int(rank) for rank, _ in told} == {faulty}, f"rank {faulty} at {call} {number}: {text}")
        need(f"pid {told[0][1]}: stopped" in text, text)
        got = statuses(text)
        need(set(got) == set(range(SIZE)) - {faulty} and "LS_OK" not in got.values(), f"{got}\n{text}")


def test_short_of_files(program):
    """All learn which rank has too few descriptors, and how many it may have."""
    for faulty, call, number in ((3, "open", 10), (0, "open", 12), (1, "connect", 1)):
        text = play(program, faulty, call, number, 0)
        need(statuses(text) == dict.fromkeys(range(SIZE), "LS_OUT_OF_MEMORY"), f"rank {faulty} at {call} {number}: {text}")
        for line in re.findall(r"lockstep: rank \d+: (.*)", text):
            need(re.search(rf"the limit of rank {faulty} is \d+ open files, which is too few .* \(ulimit -n\)", line),
                 f"rank {faulty} at {call} {number}: {line}\n{text}")
    # From here on several threads open files, and any of them may be the one that has none. If that is UCX, it breaks a connection.
    text = play(program, 2, "accept", 1, 0)
    need(set(statuses(text)) == set(range(SIZE)) and "LS_OK" not in statuses(text).values(), text)
    need("ulimit -n" in text or "the connection to rank 2 on another host broke before all ranks were connected" in text, text)


def test_networks_differ(program):
    """All ranks say which setting differs."""
    text = play("sh", "-c", f"[ $HOST = 0 ] || export LOCKSTEP_NETWORK=ucx UCX_TLS=tcp; exec {program}")
    need(statuses(text) == dict.fromkeys(range(SIZE), "LS_INCONSISTENT"), text)
    need(text.count("rank 2 and rank 0 have different values of LOCKSTEP_NETWORK") == SIZE, text)


FULL = "mount -t tmpfs -o size=4k tmpfs /dev/shm || exec echo no mount; head -c 4096 /dev/zero > /dev/shm/full; exec "


def test_no_shared_memory(program):
    """UCX finds no memory in /dev/shm. By default it is not asked to."""
    text = play("sh", "-c", FULL + program, LOCKSTEP_NETWORK="ucx", UCX_TLS="all")
    if "no mount" in text:
        print(f"# no_shared_memory needs the right to mount: {text}")
        return
    need(statuses(text) == dict.fromkeys(range(SIZE), "LS_OUT_OF_MEMORY"), text)
    need("/dev/shm has only 0 bytes free, and UCX keeps its shared memory there [LS-NET-SHARED]" in text, text)
    text = play("sh", "-c", FULL + program)
    need(statuses(text) == dict.fromkeys(range(SIZE), "LS_OK"), text)


def main():
    passed = failed = 0
    for name, test in sorted(globals().items()):
        if not name.startswith("test_"):
            continue
        try:
            test(sys.argv[1])
            passed += 1
            print(f"ok - {name[5:]}", flush=True)
        except Skipped as reason:
            print(f"# skipped: {reason}\n0 passed, 0 failed")
            return 0
        except Failure as failure:
            failed += 1
            print(f"not ok - {name[5:]}: {failure}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
