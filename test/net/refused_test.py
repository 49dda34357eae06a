#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test/net/refused_test.py REFUSED_RANK [--all]: ranks of two hosts open groups while calls of the system fail in one of them, or
that rank ends: at its first such call, in the next opening at its second, and so on. All ranks get a status, the messages blame
that rank and no other, and after an error the same processes can open a group. --all: every call, in every rank. Says so where
the system lets nobody make namespaces."""

import argparse
import errno
import re
import signal
import sys
from collections import namedtuple

from cases import job_folder, play_all, refusal, run_on_hosts

LOCAL, SIZE, RANKS = 2, 4, range(4)
LIMIT_MS, LONG_S, ALL = 3000, 900, 10000
PROMPT_S = 5 * LIMIT_MS / 1000  # on a machine that is short of processors
EXIT = 0

# how: as in refused_rank.c. on: all later calls fail as well.
Case = namedtuple("Case", "rank call how first step last on", defaults=(1, 1, ALL, False))

SHORT = (
    Case(1, "accept4", errno.EMFILE), Case(2, "eventfd", errno.EMFILE, first=3),
    Case(0, "reset", errno.ECONNRESET), Case(1, "reset", errno.ECONNRESET), Case(3, "mmap", errno.ENOMEM, first=9, step=2),
    Case(1, "pthread_create", errno.EAGAIN, last=1, on=True), Case(2, "epoll_ctl", -signal.SIGKILL, step=11),
    Case(0, "accept4", EXIT, first=3, step=4), Case(3, "recvmsg", -signal.SIGABRT, first=4, step=12),
)

ERRORS = {
    "accept4": (errno.EMFILE, errno.ECONNABORTED), "bind": (errno.EADDRINUSE,),
    "connect": (errno.ENETUNREACH,), "dupfd": (errno.EMFILE,), "eventfd": (errno.EMFILE,),
    "ftruncate": (errno.ENOSPC,), "listen": (errno.EADDRINUSE,), "memfd_create": (errno.EMFILE,), "mmap": (errno.ENOMEM,),
    "open": (errno.EMFILE,), "opendir": (errno.EMFILE,), "recvmsg": (errno.EINTR, errno.ECONNRESET), "reset": (errno.ECONNRESET,),
    "sendmsg": (errno.ECONNRESET,), "setsockopt": (errno.ENOBUFS,), "socket": (errno.EMFILE,), "socketpair": (errno.EMFILE,),
}
ENDS = (-signal.SIGKILL, -signal.SIGABRT, EXIT)
# UCX 1.13 ends the process if it cannot start its thread (thread.c, ucs_async_thread_start), or read a file of the system, or
# if another connection comes while it fails to accept one (tcp_iface.c, uct_tcp_iface_connect_handler): at these calls only the
# end of the rank is played.
ONLY_ENDS = ("accept", "fopen", "epoll_create1", "epoll_ctl", "pipe", "pthread_create")


def all_cases():
    cases = [Case(rank, call, how) for call, errors in ERRORS.items() for how in errors for rank in RANKS]
    cases += [Case(rank, call, how) for call in (*ERRORS, *ONLY_ENDS) for how in ENDS for rank in RANKS if call != "reset"]
    return SHORT + tuple(cases)


def find_faults(case, text):
    """What is wrong, a line each."""
    ends = case.how <= 0
    plays, leaks = {}, {}
    for line in text.splitlines():
        ended = re.search(r"rank (\d): ended by signal (\d+)", line)
        if ended and (int(ended[1]), -int(ended[2])) != (case.rank, case.how):
            yield line
        if re.search(r"Assertion|ERROR: \w+Sanitizer|runtime error", line):
            yield line
        said = re.search(r"lockstep: rank (\d): (.*)", line)
        blames = rf"\branks? {case.rank}\b" + (r"|rank 0 \(or the launcher\)" if case.rank == 0 else "")
        # Where the end of rank 0 lets some ranks go on a step further than others, they meet the ends of those.
        if ends and case.rank == 0:
            blames += r"|ended or gave up while the ranks were connecting: see what it printed"
        # Of a connection that breaks between two ranks nobody can tell which of them has broken it.
        if case.call in ("sendmsg", "recvmsg") and case.how == errno.ECONNRESET:
            blames = ""
        if said and int(said[1]) != case.rank and not re.search(blames, said[2]):
            yield f"does not blame rank {case.rank}: {line}"
        got = re.search(r"rank (\d): play (\d+): (LS_\w+) in ([\d.]+) s", line)
        if got:
            plays.setdefault(int(got[2]), {})[int(got[1])] = got[3]
        if got and float(got[4]) > PROMPT_S:
            yield f"takes too long: {line}"
        after = re.search(r"rank (\d): after \d+: (LS_\w+), (\d+) files, (\d+) threads", line)
        if after and after[2] != "LS_OK":
            yield f"cannot open a group afterwards: {line}"
        if after:
            leaks.setdefault(int(after[1]), []).append((int(after[3]), int(after[4])))
    if not plays:
        yield "nothing was played"
    for number, got in plays.items():
        missing = set(RANKS) - set(got) - ({case.rank} if ends else set())
        if missing:
            yield f"opening {number}: nothing from ranks {missing}"
        if not ends and len({status == "LS_OK" for status in got.values()}) != 1:
            yield f"opening {number}: only some ranks have a group: {got}"
    for rank, held in leaks.items():
        if any(last > first for first, last in zip(held[0], held[-1])):
            yield f"rank {rank} holds more: {held[0]} files and threads became {held[-1]} in {len(held)} openings"


def play(program, case):
    with job_folder() as folder:
        words = [program, folder, case.rank, case.call, int(case.how), case.first, case.step, case.last]
        code, text = run_on_hosts(2, folder, list(map(str, words)), LONG_S, LOCAL=str(LOCAL), WORLD_SIZE=str(SIZE),
                                  MASTER_ADDR="198.18.0.1", LOCKSTEP_OPEN_TIMEOUT_MS=str(LIMIT_MS), **({"ON": "1"} if case.on else {}))
    if refusal(code, text):
        return None, refusal(code, text)
    faults = list(find_faults(case, text))
    return not faults, "\n".join(faults[:20] + ["", text[-20000:]])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", help="this call alone")
    options = parser.parse_args()
    cases = [case for case in (all_cases() if options.all else SHORT) if options.only in (None, case.call)]
    return play_all(cases, lambda case: play(options.program, case))


if __name__ == "__main__":
    sys.exit(main())
