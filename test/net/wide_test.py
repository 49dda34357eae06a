#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test/net/wide_test.py WIDE_RANK [--hosts N] [--ranks N: on each]: a job of more than 64 ranks on hosts that are network namespaces
makes every call once, with checked results; then one of its ranks is killed, and all others are told which. Says so where the
system lets nobody make namespaces."""

import argparse
import os
import re
import subprocess
import sys

from cases import HERE, job_folder, play_all, refusal, run_on_hosts

START = os.path.join(HERE, "..", "..", "tools", "start-ranks")
VICTIM = 70
LIMIT_S = 600  # of a job that hangs; no measure


def play(options):
    with job_folder() as folder:
        try:
            code, text = run_on_hosts(options.hosts, folder, [START, str(options.ranks), options.program, str(VICTIM)], LIMIT_S,
                                      LOCKSTEP_OPEN_TIMEOUT_MS="60000")
        except subprocess.TimeoutExpired as late:
            return False, f"it did not end in {LIMIT_S} s\n{late.stdout or ''}"
    if refusal(code, text):
        return None, refusal(code, text)
    ranks = {str(rank) for rank in range(options.hosts * options.ranks)}
    good = re.findall(r"\[(\d+)\] all right$", text, re.MULTILINE)
    told = re.findall(rf"\[(\d+)\] told of rank {VICTIM}$", text, re.MULTILINE)
    is_right = set(good) == ranks and set(told) == ranks - {str(VICTIM)} and f"[{VICTIM}] was killed by SIGKILL" in text
    return is_right and re.search(rf"rank {VICTIM} \(pid \d+ on host host2\) was killed by SIGKILL", text) is not None, text


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program")
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=24)
    options = parser.parse_args()
    case = f"{options.hosts} hosts of {options.ranks} ranks"
    return play_all([case], lambda _: play(options))


if __name__ == "__main__":
    sys.exit(main())
