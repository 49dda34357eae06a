#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""lockstep memory: memory_test.py PATH_OF_LOCKSTEP PATH_OF_MEMORY_DEMO [test_…]"""
import json
import os
import signal
import sys
import tempfile
import xml.etree.ElementTree as tree

from harness import Job, environment, equal, lockstep, main, matches, read, state, until

DEMO = os.path.abspath(sys.argv[2])
SVG = '{http://www.w3.org/2000/svg}'
MIB = 1 << 20
READY = ['[%d] ready' % rank for rank in range(3)]


def good(*arguments):
    result = lockstep('memory', *arguments)
    equal((result.returncode, result.stderr), (0, ''), arguments)
    return result.stdout


def figures(*arguments):
    return json.loads(good('--json', *arguments))


def check_figures(job, states):
    """All that the ranks of a job hold, whoever is stopped or dead."""
    equal((job['size'], [one['process'] for one in job['ranks']]), (3, states))
    equal([one['device'] for one in job['ranks']], ['sim:0', 'sim:1', None])
    equal(job['ranks'][2]['memory'], None)
    for rank in (0, 1):
        live = 4 * MIB * (rank + 1)
        reserved = live + 28 * MIB
        seen = job['ranks'][rank]['memory']
        equal(seen['consistent'], True)
        equal({key: seen[key] // MIB for key in ('live', 'cached', 'pending', 'put_off', 'reserved')},
              dict(live=live // MIB, cached=20, pending=2, put_off=6, reserved=reserved // MIB))
        equal((seen['peak_live'], seen['peak_reserved']), (live + 20 * MIB, reserved))
        equal(seen['largest_cached'], 20 * MIB)
        equal((seen['live_blocks'], seen['segments'], seen['hits'] + seen['misses'], seen['failed']), (1, 3, 4, 0))


def check_text(text, states):
    matches(r'(?m)^  rank +device +in use +cached +largest +on streams +put off +reserved +peak in use +peak reserved +process$',
            text)
    matches(r'(?m)^  0 +sim:0 +4 MiB +20 MiB +20 MiB +2 MiB +6 MiB +32 MiB +24 MiB +32 MiB +%s$' % states[0], text)
    matches(r'(?m)^  1 +sim:1 +8 MiB +20 MiB +20 MiB +2 MiB +6 MiB +36 MiB +28 MiB +36 MiB +%s$' % states[1], text)
    matches(r'(?m)^  all +12 MiB +40 MiB +4 MiB +12 MiB +68 MiB$', text)
    matches(r'(?m)^  rank 2 has no device$', text)
    assert max(map(len, text.splitlines())) <= 120 and text.isascii(), text


def check_svg(picture):
    root = tree.fromstring(picture)
    width, height = float(root.get('width')), float(root.get('height'))
    bars = [group for group in root.iter(SVG + 'g') if group.find(SVG + 'title') is not None]
    equal([bar.find(SVG + 'title').text.split('\n')[0] for bar in bars], ['rank 0, sim:0', 'rank 1, sim:1'])
    lengths = []
    for bar in bars:
        parts = list(bar.iter(SVG + 'rect'))
        equal([part.get('class') for part in parts], ['live', 'pending', 'put', 'cached'])
        at = float(parts[0].get('x'))
        for part in parts:
            assert abs(float(part.get('x')) - at) < 0.02, part.attrib
            at += float(part.get('width'))
            assert at <= width and float(part.get('y')) + float(part.get('height')) <= height
        lengths.append([float(part.get('width')) for part in parts])
        equal(len(list(bar.iter(SVG + 'path'))), 2)
    scale = lengths[1][0] / 8
    for found, wanted in zip(lengths, ([4, 2, 6, 20], [8, 2, 6, 20])):
        for one, mib in zip(found, wanted):
            assert abs(one - mib * scale) < 0.05, lengths
    matches('rank 2: no device', picture)
    matches('prefers-color-scheme:dark', picture)


def test_running_stopped_dead_and_kept():
    with tempfile.TemporaryDirectory() as place, \
            Job('run', '-n', 3, DEMO, env=environment(TMPDIR=place)) as job:
        job.expect(*READY)
        ranks = job.ranks()
        asleep = ['asleep'] * 3
        until(lambda: [one['process'] for one in figures(job.pid)['ranks']] == asleep, 'all ranks to sleep')
        found = figures(job.pid)
        check_figures(found, asleep)
        equal((found['running'], found['source']), (True, 'memory'))
        equal([one['pid'] for one in found['ranks']], [ranks[rank] for rank in range(3)])
        for name in (ranks[0], ranks[2], found['job']):
            text = good(name)
            matches('^job %s: running, memory_demo, 3 ranks\n' % found['job'], text)
            check_text(text, asleep)
            check_svg(good(name, '--svg', '-'))
        path = os.path.join(place, 'picture.svg')
        equal(good('--svg', path, job.pid), '')
        check_svg(read(path).decode())
        # The launcher would end the others.
        os.kill(job.pid, signal.SIGSTOP)
        os.kill(ranks[1], signal.SIGSTOP)
        until(lambda: state(ranks[1]) == 'T', 'rank 1 to stop')
        check_figures(figures(ranks[0]), ['asleep', 'stopped', 'asleep'])
        check_text(good(ranks[1]), ['asleep', 'stopped'])
        os.kill(ranks[0], signal.SIGKILL)
        until(lambda: state(ranks[0]) == 'Z', 'rank 0 to end')
        until(lambda: figures(ranks[1])['ranks'][0]['process'] == 'ended', 'the end of rank 0 to be seen')
        check_figures(figures(ranks[1]), ['ended', 'stopped', 'asleep'])
        check_text(good(found['job']), ['killed by SIGKILL', 'stopped'])
        check_svg(good('--svg', '-', found['job']))
        os.kill(job.pid, signal.SIGCONT)
        os.kill(ranks[1], signal.SIGCONT)
        job.end()
        # Other tests' commands, which look at all jobs, may still hold its traces for a moment.
        until(lambda: lockstep('memory', found['job']).returncode == 3, 'the job to be forgotten')
        snapshot = [os.path.join(place, name) for name in os.listdir(place) if name != 'picture.svg']
        equal(len(snapshot), 1)
        kept = figures(snapshot[0])
        equal((kept['job'], kept['source'], kept['running']), (found['job'], 'snapshot', False))
        equal([one['memory'] for one in kept['ranks']], [one['memory'] for one in found['ranks']])
        check_svg(good('--svg', '-', snapshot[0]))


def test_a_rank_that_waits_for_memory():
    with Job('run', '-n', 3, DEMO, '1', env=environment(LOCKSTEP_PATIENCE_MS=100)) as job:
        call = 'ls_device_alloc (waiting for device memory)'

        def look():
            ranks = figures(job.pid)['ranks']
            return [one['call'] for one in ranks[1]['foreign_calls']] == [call] and ranks
        until(lambda: len(job.ranks()) == 3, 'the ranks')
        until(lambda: lockstep('memory', job.pid).returncode == 0, 'the job')
        ranks = until(look, 'rank 1 to wait for memory')
        equal(ranks[1]['memory']['pending'], 2 * MIB)
        words = r'its main thread has been in the foreign call ls_device_alloc \(waiting for device memory\) for '
        matches(r'(?m)^  rank 1: ' + words, good(job.pid))

        def blamed():
            result = lockstep('diagnose', job.pid, env=environment(LOCKSTEP_PATIENCE_MS=100))
            return result.returncode == 1 and result.stdout
        matches(words, until(blamed, 'a verdict'))


def test_wrong_use():
    for arguments, text in ((('--svg', '-', '--json'), 'one of --svg and --json at a time'),
                            (('1', '2'), 'one job, process or file at a time'),
                            (('',), 'an empty name is no job, process or file'),
                            (('--sgv', '-'), "did you mean '--svg'")):
        result = lockstep('memory', *arguments)
        equal((result.returncode, result.stdout), (2, ''), arguments)
        matches(text, result.stderr)
    for arguments in ((os.getpid(),), ('0123456789abcdef',), ('/dev/null',), ('no such file',)):
        result = lockstep('memory', *arguments)
        equal((result.returncode, result.stdout), (3, ''), arguments)
    matches('(?m)^usage: lockstep memory ', lockstep('memory', '--help').stdout)


if __name__ == '__main__':
    main(globals())
