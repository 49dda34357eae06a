#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the program says of operations on streams of a device, of ranks that run, are stopped, or are dead:
stream_test.py PATH_OF_LOCKSTEP PATH_OF_STREAM_DEMO [test_…]"""
import json
import os
import signal
import sys
import tempfile

from harness import Job, environment, equal, lockstep, main, matches, state, until

DEMO = os.path.abspath(sys.argv[2])
HELD = ', to which its stream has not come yet'
CALLED = ['[%d] called' % rank for rank in range(3)]


def words(name):
    """How far each rank's operation is."""
    [job] = json.loads(lockstep('diagnose', '--json', name).stdout)['jobs']
    return [one['operation']['stream'] for one in job['ranks']]


def drawn(name):
    """The same from the timeline, and what its text says of each operation that runs."""
    ranks = json.loads(lockstep('trace', '--json', name).stdout)['ranks']
    text = lockstep('trace', name).stdout
    matches(r'(?m)^  A all-reduce .*\(\) on a stream', text)
    return [one['operations'][-1]['stream'] for one in ranks], text


def check_timeline(name):
    """Of a job in which the stream of rank 1 has not come to its operation."""
    found, text = drawn(name)
    equal(found[1], 'launched')
    matches(r'(?m)^rank 1: all-reduce #1 of world \(stream_demo.c:\d+\)%s, still runs after ' % HELD, text)
    return found, text


def verdict(name, line):
    """The report, once it begins so."""
    def look():
        result = lockstep('diagnose', name)
        return result.returncode == 1 and line in result.stdout and result.stdout
    return until(look, 'a report with %r' % line)


def test_a_rank_whose_stream_does_not_come():
    with tempfile.TemporaryDirectory() as place, Job('run', '-n', 3, DEMO, env=environment(TMPDIR=place)) as job:
        job.expect(*CALLED)
        ranks = job.ranks()
        until(lambda: words(job.pid) == ['reached', 'launched', 'reached'], 'ranks 0 and 2 to reach it')
        found, text = check_timeline(job.pid)
        equal(found, ['reached', 'launched', 'reached'])
        matches(r'(?m)^rank 2: all-reduce #1 of world \(stream_demo.c:\d+\), on a stream, still runs after ', text)
        # The launcher would end the others.
        os.kill(job.pid, signal.SIGSTOP)
        os.kill(ranks[1], signal.SIGSTOP)
        until(lambda: state(ranks[1]) == 'T', 'rank 1 to stop')
        text = verdict(ranks[0], 'rank 1 (pid %d) is stopped in all-reduce #1' % ranks[1])
        line = r'(?m)^ +rank 1: %s, in all-reduce #1 of 1 int32, sum' + HELD + ', for '
        matches(line % 'stopped', text)
        matches(r'(?m)^ +ranks 0 and 2: waiting, in all-reduce #1 of 1 int32, sum, on a stream, for ', text)
        equal(words(ranks[0]), ['reached', 'launched', 'reached'])
        os.kill(ranks[1], signal.SIGKILL)
        until(lambda: state(ranks[1]) == 'Z', 'rank 1 to end')
        text = verdict(ranks[0], 'rank 1 (pid %d) was killed by SIGKILL (9) in all-reduce #1' % ranks[1])
        matches(line % 'dead', text)
        equal(words(ranks[0])[1], 'launched')
        check_timeline(ranks[0])
        os.kill(job.pid, signal.SIGCONT)
        job.end()
        [snapshot] = [os.path.join(place, name) for name in os.listdir(place)]
        matches(line % 'dead', lockstep('diagnose', snapshot).stdout)
        equal(words(snapshot)[1], 'launched')
        check_timeline(snapshot)


def test_a_result_that_is_not_taken():
    with Job('run', '-n', 3, DEMO) as job:
        job.expect(*CALLED)
        ranks = job.ranks()
        until(lambda: words(job.pid) == ['reached', 'launched', 'reached'], 'ranks 0 and 2 to reach it')
        os.kill(ranks[2], signal.SIGUSR1)
        job.expect('[2] busy')
        os.kill(ranks[1], signal.SIGUSR1)
        job.expect('[0] ended LS_OK', '[1] ended LS_OK')
        until(lambda: words(job.pid) == ['arrived'] * 3, 'the result to come')
        found, text = drawn(job.pid)
        equal(found, ['arrived'] * 3)
        [running] = [line for line in text.splitlines() if 'still runs' in line and line.startswith('rank')]
        matches(r'^rank 2: all-reduce #1 of world \(stream_demo.c:\d+\), whose result its stream has not taken yet, '
                'still runs after ', running)


if __name__ == '__main__':
    main(globals())
