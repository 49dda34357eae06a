# SPDX-License-Identifier: BSD-3-Clause
"""Which rank lockstep run names when the ranks cannot open their group: blame_test.py PATH_OF_LOCKSTEP
PATH_OF_RANKS_DEMO [test_…]"""
import os
import sys
import tempfile

from harness import Job, all_processes, environ, equal, main, matches, parent, state, until

HOSTS = ['-n', '3'], ['--hosts', '127.0.0.1:3']


def ended_ranks(job):
    """A rank that has ended stays a child of the launcher, or of its daemon, until the end of the job."""
    above = [pid for pid in job.processes() if not any(entry.startswith(b'RANK=') for entry in environ(pid).split(b'\0'))]
    return [pid for pid in all_processes() if state(pid) == 'Z' and parent(pid) in above]


def run_with_late_end(where, limit):
    """Rank 1 has too few descriptors. Its shell ends when the test has seen the ends of the others. Returns what
    Job.end returns."""
    with tempfile.TemporaryDirectory() as place:
        fifo = os.path.join(place, 'fifo')
        os.mkfifo(fifo)
        code = ('if [ $RANK != 1 ]; then exec "$0" --rounds 1; fi; (ulimit -n %d; exec "$0" --rounds 1); '
                'code=$?; read x < %s; exit $((40 + code))' % (limit, fifo))
        with Job('run', *where, '--log-dir', place, 'sh', '-c', code, sys.argv[2]) as job:
            until(lambda: len(ended_ranks(job)) == 2, 'ranks 0 and 2 to end')
            with open(fifo, 'w', encoding='utf-8') as file:
                file.write('go\n')
            return job.end()


def test_cause_that_ends_last():
    """Other ranks end because of a rank whose end the launcher learns of last."""
    for where in HOSTS:
        for limit in 6, 12:
            status, _, errors = run_with_late_end(where, limit)
            matches(r'rank 1 \(pid \d+.*\) exited with 41; ranks 0, 2 then exited with 1 \[LS-RUN-FAILED\]', errors)
            equal(status, 41, errors)


if __name__ == '__main__':
    main(globals())
