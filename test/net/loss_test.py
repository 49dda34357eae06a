#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test/net/loss_test.py LOSS_RANK SECONDS [--busy]: the network between two hosts loses one packet of twenty, in both
directions, and nothing may be said of that. --busy: two processes that compute take the processors meanwhile. With --host it
is what tools/hosts runs on each host. Says so where the system lets nobody make namespaces, or has no nft."""

import os
import re
import subprocess
import sys
import threading
import time

from cases import job_folder, play_all, refusal, run_on_hosts
from silence_test import Ranks, none

HOSTS, LOST_PERCENT = 2, 5
BUSY = 2
MARGIN_S = 120


def lose():
    """What comes to this host."""
    rules = ("add table inet loss", "add chain inet loss in { type filter hook input priority 0; }",
             f"add rule inet loss in numgen random mod 100 < {LOST_PERCENT} counter drop")
    for rule in rules:
        subprocess.run(["nft", rule], check=True)


def lost():
    """How many packets; -1: none could be."""
    try:
        rules = subprocess.run(["nft", "list", "chain", "inet", "loss", "in"], check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return -1
    return int(re.search(r"counter packets (\d+)", rules)[1])


def on_host(folder, program, seconds, busy):
    ranks = Ranks(folder, program)
    computing = []
    try:
        ranks.await_file("going")
        lose()
        if ranks.host == 0:
            computing = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY * int(busy))]
            end_s = time.monotonic() + float(seconds)
            while ranks.live() and time.monotonic() < end_s:
                threading.Event().wait(0.1)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"not possible here: {error}")
    if ranks.host == 0:
        ranks.make("stop")
    codes = ranks.end()
    for process in computing:
        process.kill()
    print(f"lost {lost()} packets", flush=True)
    return 0 if not any(codes) else 1


def no_verdicts(text):
    return none(text) and not re.search(r"\[LS-(?!HOST-)", text)


def is_right(text):
    packets = re.findall(r"^host\d: lost ([1-9]\d*) packets$", text, re.MULTILINE)
    went_on = re.findall(r"^host\d: rank \d went on for \d+ rounds$", text, re.MULTILINE)
    return len(packets) == HOSTS and len(went_on) == 2 * HOSTS and no_verdicts(text)


def run(program, seconds, busy):
    with job_folder() as folder:
        words = [sys.executable, os.path.abspath(__file__), "--host", folder, program, str(seconds), str(int(busy))]
        code, text = run_on_hosts(HOSTS, folder, words, seconds + MARGIN_S, LOCKSTEP_TIMEOUT_MS="60000")
    impossible = refusal(code, text)
    if impossible:
        return None, impossible
    good = code == 0 and is_right(text)
    rounds = re.search(r"went on for (\d+) rounds", text)
    if good:
        print(f"# figure: {seconds} s, {rounds[1]} rounds, {'the processors busy' if busy else 'nothing beside it'}: 0 verdicts")
    return good, text


def main():
    if sys.argv[1] == "--host":
        return on_host(*sys.argv[2:5], sys.argv[5] == "1")
    program, seconds = os.path.abspath(sys.argv[1]), int(sys.argv[2])
    return play_all(["loss"], lambda case: run(program, seconds, "--busy" in sys.argv))


if __name__ == "__main__":
    sys.exit(main())
