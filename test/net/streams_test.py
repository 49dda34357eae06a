#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test/net/streams_test.py STREAMS_RANK: collectives and receives on streams of a device, on two hosts; a send on a stream to
another host is refused."""

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
    refused = re.findall(r"refused: .*is on another host, which a send on a stream cannot reach yet", text)
    return code == 0 and sorted(through) == ["0", "1"] and len(refused) == HOSTS, text


if __name__ == "__main__":
    sys.exit(play_all(["collectives, receives and refused sends on streams"], play))
