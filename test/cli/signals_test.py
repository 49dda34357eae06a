# SPDX-License-Identifier: BSD-3-Clause
"""Signals that ranks survive, and those that they avoid; a launcher short of descriptors."""
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from harness import Job, environment, equal, lockstep, main, matches, program, until

SURVIVED_S = 5  # LAUNCHER_SIGNAL_MS


def test_later_failure_has_evidence_of_its_own():
    ignores = ('sh', '-c', 'trap "" HUP; exec "$@"', 'sh')
    with tempfile.TemporaryDirectory() as place, \
            Job('run', '-n', 2, '--timeout', SURVIVED_S + 12, '--log-dir', place, *ignores, sys.argv[2]) as job:
        job.expect('[0] round 16', '[1] round 16')
        job.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + SURVIVED_S + 0.5
        until(lambda: time.monotonic() > end, 'the job to survive the signal')
        os.kill(job.ranks()[1], signal.SIGSTOP)
        status, _, errors = job.end()
        equal(status, 124, errors)
        found = json.loads(lockstep('diagnose', '--json', *glob.glob(place + '/*.snapshot')).stdout)
        verdict = found['jobs'][0]['verdict']
        equal((verdict['cause'], verdict['blamed']), ('stopped', 1), errors)
        matches(r'(?m)^rank 1 \(pid \d+\) is stopped', errors)


def test_limit_of_file_sizes():
    # Files in memory count, too. Beyond the limit ftruncate ends a process by SIGXFSZ, without a word.
    for blocks in 4, 100, 10000:
        result = subprocess.run(['sh', '-c', 'ulimit -f %d; exec "$@"' % blocks, 'sh', program(), 'run', '-n', '2',
                                 sys.argv[2], '--rounds', '4'], env=environment(), capture_output=True, text=True)
        equal(result.returncode, 1, result.stderr)
        matches(r'ulimit -f', result.stderr)


def test_small_stack():
    # With a low soft limit the job runs, and its failure is reported; ranks get the limit of the caller.
    for where in ['-n', '2'], ['--hosts', '127.0.0.1:2']:
        run = ['sh', '-c', 'ulimit -Ss 64; exec "$@"', 'sh', program(), 'run', *where]
        result = subprocess.run([*run, 'sh', '-c', 'ulimit -s'], env=environment(), capture_output=True, text=True)
        equal((result.returncode, sorted(result.stdout.split())), (0, ['64', '64', '[0]', '[1]']), result.stderr)
        result = subprocess.run([*run, 'sh', '-c', 'ulimit -s unlimited; exec "$0" exit 1 16', sys.argv[2]],
                                env=environment(), capture_output=True, text=True)
        equal(result.returncode, 7, result.stderr)
        matches(r'rank 1 \(pid \d+.*\) exited with 7; .*\[LS-RUN-FAILED\]', result.stderr)
        run[2] = 'ulimit -s 64; exec "$@"'
        result = subprocess.run([*run, 'true'], env=environment(), capture_output=True, text=True)
        equal(result.returncode, 1, result.stderr)
        matches(r'64 KiB .*needs 512 KiB.*LS-RUN-STACK', result.stderr)


def test_too_few_descriptors():
    # With the least limit with which the job runs, the launcher cannot hold all that explains a failure.
    for limit in range(28, 60):
        with tempfile.TemporaryDirectory() as place:
            run = ['sh', '-c', 'ulimit -n %d; exec "$@"' % limit, 'sh', program(), 'run', '-n', '4', '--timeout', '1',
                   '--log-dir', place, sys.argv[2]]
            result = subprocess.run(run, env=environment(), capture_output=True, text=True)
            if result.returncode != 124:
                continue
            matches(r'LS-RUN-WITNESS', result.stderr)
            shown = lockstep('diagnose', *glob.glob(place + '/*.snapshot')).stdout
            matches(r'rank 3 .*cannot be read', shown)
            matches(r'no verdict: what \d ranks? waits? for is not known', shown)
            return
    raise AssertionError('the job never ran')


if __name__ == '__main__':
    main(globals())
