#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What a job says of its settings: settings_test.py LOCKSTEP RANKS_DEMO."""
import os
import socket
import subprocess
import sys

from harness import environment, equal, lockstep, main, matches

DEMO = os.path.abspath(sys.argv[2])


def test_misspelt_setting_is_said_once_a_job():
    misspelt = environment(LOCKSTEP_TIEMOUT_MS=5)
    result = lockstep('run', '-n', 3, DEMO, '--rounds', 1, env=misspelt)
    equal(result.returncode, 0)
    equal(result.stderr, '[0] lockstep: LOCKSTEP_TIEMOUT_MS is not a setting, so it is ignored; did you mean '
          'LOCKSTEP_TIMEOUT_MS? `lockstep settings` lists all [LS-SETTING-UNKNOWN]\n')
    # The same without a launcher.
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    by_hand = dict(misspelt, MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), WORLD_SIZE='2')
    ranks = [subprocess.Popen([DEMO, '--rounds', '1'], env=dict(by_hand, RANK=str(r)), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) for r in range(2)]
    said = [rank.communicate(timeout=60)[1] for rank in ranks]
    equal([rank.returncode for rank in ranks], [0, 0])
    matches('^lockstep: LOCKSTEP_TIEMOUT_MS is not a setting', said[0])
    equal(said[1], '')


if __name__ == '__main__':
    main(globals())
