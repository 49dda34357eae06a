# SPDX-License-Identifier: BSD-3-Clause
"""Signals that ranks survive, and those that they avoid."""
import glob
import json
import os
import signal
import sys
import tempfile
import time

from harness import Job, equal, lockstep, main, matches

SURVIVED_S = 5  # LAUNCHER_SIGNAL_MS


def test_later_failure_has_evidence_of_its_own():
    ignores = ('sh', '-c', 'trap "" HUP; exec "$@"', 'sh')
    with tempfile.TemporaryDirectory() as place, \
            Job('run', '-n', 2, '--timeout', SURVIVED_S + 4, '--log-dir', place, *ignores, sys.argv[2]) as job:
        job.expect('[0] round 16', '[1] round 16')
        job.process.send_signal(signal.SIGHUP)
        time.sleep(SURVIVED_S + 0.5)  # it is this time that the job has to survive
        os.kill(job.ranks()[1], signal.SIGSTOP)
        status, _, errors = job.end()
        equal(status, 124, errors)
        found = json.loads(lockstep('diagnose', '--json', *glob.glob(place + '/*.snapshot')).stdout)
        verdict = found['jobs'][0]['verdict']
        equal((verdict['cause'], verdict['blamed']), ('stopped', 1), errors)
        matches(r'(?m)^rank 1 \(pid \d+\) is stopped', errors)


if __name__ == '__main__':
    main(globals())
