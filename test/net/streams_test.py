#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test/net/streams_test.py STREAMS_RANK: collectives and messages on streams of a device, on two hosts."""

import os
import re
import sys

from cases import HERE, job_folder, play_all, refusal, run_on_hosts

START = os.path.join(HERE, "..", "..", "tools", "start-ranks")
HOSTS, LIMIT_S = 2, 400


def play(case):
    with job_folder() as folder:
        code, text = run_on_hosts(HOSTS, folder, [START, "1", os.path.abspath(sys.argv[1])], LIMIT_S)
    reason = refusal(code, text)
    if reason:
        return None, reason
    through = re.findall(rf"rank (\d) of {HOSTS} is through", text)
    return code == 0 and sorted(through) == ["0", "1"], text


if __name__ == "__main__":
    sys.exit(play_all(["collectives and messages on streams"], play))
