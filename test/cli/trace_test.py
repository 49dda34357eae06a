#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""lockstep trace, and what lockstep run --trace keeps for it:
trace_test.py PATH_OF_LOCKSTEP PATH_OF_RANKS_DEMO [test_…]"""
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as tree

from harness import Job, environment, equal, lockstep, main, matches, program, until

DEMO = os.path.abspath(sys.argv[2])
SVG = '{http://www.w3.org/2000/svg}'
ROUNDS = 20


def good(*arguments):
    result = lockstep(*arguments)
    equal((result.returncode, result.stderr), (0, ''), arguments)
    return result.stdout


def bars(svg):
    """(what is written about it, lines; class; x; end) of each bar of a picture, which must be well formed."""
    found = []
    chart = next(one for one in tree.fromstring(svg).iter(SVG + 'svg') if one.get('class') == 'chart')
    for rect in chart.iter(SVG + 'rect'):
        if 'bar' not in rect.get('class').split():
            continue
        x, width = float(rect.get('x')), float(rect.get('width'))
        assert 0 <= x <= float(chart.get('width')) and width > 0, rect.attrib
        begin, end = int(rect.get('data-b')), int(rect.get('data-e'))
        assert 0 <= begin <= end, rect.attrib
        lines = rect.find(SVG + 'title').text.split('\n')
        found.append((lines, rect.get('class'), rect.get('y'), begin, end))
    return found


class Place:
    """A folder with the trace of a job."""

    def __init__(self, *arguments, ranks=3, options=()):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, 'a.trace')
        # The warning level would tell of the ring of short sends, which goes well only as they are short.
        self.result = lockstep('run', '-n', ranks, '--trace', self.path, *options, DEMO, '--messages',
                               *arguments, env=environment(TMPDIR=self.folder.name, LOCKSTEP_LOG='error'))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def others(self):
        """What else was left in the folder."""
        return [os.path.join(self.folder.name, name) for name in os.listdir(self.folder.name)
                if name != 'a.trace']


def test_job_that_ended_well():
    with Place('--rounds', ROUNDS) as place:
        equal((place.result.returncode, place.result.stderr, place.others()), (0, '', []))
        equal(os.stat(place.path).st_mode & 0o777, 0o600)
        found = bars(good('trace', '--svg', '-', place.path))
        equal(len(found), 3 * 3 * ROUNDS)
        names = [lines[0] for lines, *_ in found]
        for number in range(1, ROUNDS + 1):
            equal(names.count('all-reduce #%d of world' % number), 3)
            for rank in range(3):
                equal(names.count('send #%d to %d, tag 7' % (number, rank)), 1)
                equal(names.count('receive #%d from %d, tag 7' % (number, rank)), 1)
        for lines, kind, *_ in found:
            if lines[0].startswith('all-reduce'):
                matches('^by [a-z]+$', lines[1])
                equal(lines[2], '1000 x float32, max')
                matches(r'^ranks_demo\.c:\d+$', lines[3])
            else:
                equal(lines[1:3], ['1 x float64', 'circle.py:3'])
            matches(r'^took [\d.]+ [mun]?s, begun at [\d.]+ [mun]?s$', lines[-2])
            matches(r'^rank [012], thread \d+$', lines[-1])
            assert 'run' not in kind.split() and 'failed' not in kind.split(), kind
        # One row each: what lies on it comes one after the other.
        for row in {bar[2] for bar in found}:
            spans = sorted(bar[3:] for bar in found if bar[2] == row)
            equal(len(spans), ROUNDS)
            assert all(one[1] <= next_one[0] for one, next_one in zip(spans, spans[1:])), spans
        code = lockstep('diagnose', place.path)
        equal(code.returncode, 0, code.stdout)
        matches('all ranks exited with 0\n', code.stdout)


def test_text():
    with Place('--rounds', ROUNDS) as place:
        text = good('trace', place.path)
        equal(text, good('trace', '--text', place.path))
        matches(r'^job [0-9a-f]{16}: ranks_demo, 3 ranks on \S+, 180 operations in [\d.]+ ms\n', text)
        for rank in range(3):
            # Operations that are short, or several in one column, have no letter.
            matches(r'(?m)^rank %d  world +\|.*[A#:].*\|\n +to %d tag 7 +\|.*[s#:].*\|\n +from %d tag 7 +\|.*[r#:].*\|$'
                    % (rank, (rank + 1) % 3, (rank + 2) % 3), text)
        matches('\n  A all-reduce  s send  r receive', text)
        assert max(map(len, text.splitlines())) <= 100 and text.isascii(), text


def test_json():
    with Place('--rounds', ROUNDS) as place:
        job = json.loads(good('trace', '--json', place.path))
        equal((job['program'], job['size']), ('ranks_demo', 3))
        equal([(one['name'], one['ranks'], one['entered']) for one in job['groups']],
              [('world', [0, 1, 2], [ROUNDS] * 3)])
        for number, rank in enumerate(job['ranks']):
            equal((rank['rank'], rank['readable'], rank['complete_since_ns']), (number, True, 0))
            assert rank['pid'] > 0 and rank['start_s'] > 1e9
            operations = rank['operations']
            equal([one['index'] for one in operations], list(range(1, 3 * ROUNDS + 1)))
            assert all(rank['start_ns'] <= one['begin_ns'] <= one['end_ns'] <= job['read_ns'] for one in operations)
            equal({one['thread'] for one in operations}, {rank['pid']})
            kinds = {}
            for one in operations:
                kinds.setdefault(one['kind'], []).append(one)
            for kind, constant in (
                    ('all-reduce', dict(count=1000, dtype='float32', reduce_op='max', peer=None, tag=None)),
                    ('send', dict(count=1, dtype='float64', reduce_op=None, peer=(number + 1) % 3, tag=7)),
                    ('receive', dict(count=1, dtype='float64', reduce_op=None, peer=(number + 2) % 3, tag=7))):
                equal([one['number'] for one in kinds[kind]], list(range(1, ROUNDS + 1)))
                for one in kinds[kind]:
                    equal({key: one[key] for key in constant}, constant)
                    equal((one['group'], one['state'], one['status']), (job['groups'][0]['id'], 'done', 'LS_OK'))
                    matches(r'^(ranks_demo\.c:\d+|circle\.py:3)$', one['site'])
        some = json.loads(good('trace', '--json', '--last', '0.000001', place.path))
        assert 0 < sum(len(rank['operations']) for rank in some['ranks']) < 9 * ROUNDS


def test_json_of_groups():
    with Place('--pairs', '--rounds', 2, ranks=4) as place:
        job = json.loads(good('trace', '--json', place.path))
        equal(sorted(one['ranks'] for one in job['groups']), [[0, 1, 2, 3], [1, 0], [3, 2]])


def test_page():
    with Place('--rounds', ROUNDS) as place:
        page = os.path.join(place.folder.name, 'x.html')
        equal(good('trace', '--html', page, place.path), '')
        with open(page, encoding='utf-8') as file:
            text = file.read()
        equal(text[text.index('<svg'):text.rindex('</svg>') + 7], good('trace', '--svg', '-', place.path))
        # It needs nothing from anywhere else.
        equal(re.findall('https?://[^"]*', text), ['http://www.w3.org/2000/svg'])
        equal(re.findall(r'\b(?:src|href)\s*=', text), [])


def test_last():
    with Place('--rounds', ROUNDS) as place:
        everything = bars(good('trace', '--svg', '-', place.path))
        end = max(bar[4] for bar in everything)
        some = bars(good('trace', '--svg', '-', '--last', '%.6f' % (end / 2e6), place.path))
        expected = [bar for bar in everything if bar[4] >= end - end // 2 - 1]
        assert abs(len(some) - len(expected)) <= 1 and len(some) < len(everything), (some, expected)


def test_job_that_hangs():
    with Place('away', 2, 6, options=('--timeout', 3)) as place:
        equal(place.result.returncode, 124)
        [snapshot] = place.others()
        for path in (place.path, snapshot):
            running = [lines for lines, kind, *_ in bars(good('trace', '--svg', '-', path))
                       if 'run' in kind.split()]
            listed = json.loads(good('trace', '--json', path))['ranks'][0]['operations']
            [last] = [one for one in listed if one['state'] == 'running']
            equal((last['kind'], last['number'], last['peer'], last['end_ns']), ('receive', 6, 2, None))
            names = sorted((lines[-1][:6], lines[0]) for lines in running)
            assert ('rank 0', 'receive #6 from 2, tag 7') in names, names
            equal([name for name in names if name[0] == 'rank 2'], [])
            for lines in running:
                matches(r'^still running after [\d.]+ m?s, begun at ', lines[-2])
            text = good('trace', path)
            matches(r'\nrank 0: receive #6 from 2, tag 7 \(circle.py:3\) still runs after [\d.]+ m?s\n', text)
            matches(r'(?m)^ +from 2 tag 7 +\|.*~>\|$', text)
            equal(lockstep('diagnose', path).returncode, 1)


def test_ring_that_is_too_short():
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, 'a.trace')
        equal(lockstep('run', '-n', 2, '--trace', path, DEMO, '--rounds', 100,
                       env=environment(LOCKSTEP_TRACE_RECORDS=16)).returncode, 0)
        svg = good('trace', '--svg', '-', path)
        equal(len(bars(svg)), 32)
        for rank in json.loads(good('trace', '--json', path))['ranks']:
            equal([one['number'] for one in rank['operations']], list(range(85, 101)))
            equal(rank['complete_since_ns'], rank['operations'][0]['begin_ns'])
        matches('no longer recorded', svg)


def test_running_job():
    with Job('run', '-n', 2, DEMO, '--messages') as job:
        job.expect('[0] round 16', '[1] round 16')
        rank = job.ranks()[1]
        number = re.search('job ([0-9a-f]{16})', good('trace', job.pid)).group(1)
        for name in (job.pid, rank, number):
            matches('^job %s: ranks_demo, 2 ranks ' % number, good('trace', name))
        assert len(bars(good('trace', '--svg', '-', rank))) >= 2 * 3 * 15
        with Job('run', '-n', 2, DEMO) as other:
            other.expect('[0] round 16')
            result = lockstep('trace')
            equal((result.returncode, result.stdout), (2, ''))
            matches(r'there are \d+ jobs, which one\?.* %s' % number, result.stderr)
        job.process.send_signal(signal.SIGTERM)
        job.end()
        # Whoever looks at all jobs just now, as another test may, still holds its memory for a moment.
        until(lambda: lockstep('trace', number).returncode == 3, 'the job to be forgotten')


def test_trace_that_cannot_be_kept():
    with tempfile.TemporaryDirectory() as place:
        pipe = os.path.join(place, 'pipe')
        os.mkfifo(pipe)
        for path in (place, os.path.join(place, 'none', 'x'), pipe, '/dev/null'):
            result = lockstep('run', '-n', 1, '--trace', path, 'echo', 'started')
            equal((result.returncode, result.stdout), (1, ''), path)
            matches('cannot keep the traces in %s: .*LS-RUN-TRACE-FAILED' % path, result.stderr)
        # Nobody has met, and so nothing is there to keep; that is no fault of the program.
        path = os.path.join(place, 'x')
        result = lockstep('run', '-n', 1, '--trace', path, 'true')
        equal(result.returncode, 0)
        matches('no ranks have met.*LS-RUN-TRACE-FAILED', result.stderr)
        equal(lockstep('trace', path).returncode, 3)


def test_trace_that_is_not_complete():
    # The launcher may write files of 2 KiB; the ranks raise that limit again.
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, 'x')
        result = subprocess.run(['sh', '-c', 'ulimit -S -f 4; exec "$@"', 'sh', program(), 'run', '-n', '2', '--trace', path,
                                 'sh', '-c', 'ulimit -S -f unlimited; exec "$@"', 'sh', DEMO, '--rounds', '2'],
                                env=environment(), capture_output=True, text=True)
        equal(result.returncode, 1, result.stderr)
        matches('cannot keep the traces in %s: File too large.*LS-RUN-TRACE-FAILED' % path, result.stderr)


def test_trace_replaces_what_was_there():
    with Place('--rounds', 1) as place:
        with open(place.path, 'ab') as file:
            file.write(b'x' * 1000000)
        equal(lockstep('trace', place.path).returncode, 3)
        equal(lockstep('run', '-n', 1, '--trace', place.path, DEMO, '--rounds', 2).returncode, 0)
        equal(len(bars(good('trace', '--svg', '-', place.path))), 2)


def test_wrong_words():
    for arguments in (('--last', '0'), ('--last', 'x'), ('--last', '0x10'), ('--last', '-1'), ('--text', '--svg', '-'), ('--json', '--text'),
                      ('--svg', 'a', '--html', 'b'), ('',), ('a', 'b')):
        result = lockstep('trace', *arguments)
        equal((result.returncode, result.stdout), (2, ''), arguments)
        matches('LS-USAGE', result.stderr)
    for name in ('0123456789abcdef', '999999999', '/there/is/none', '/dev/zero', '/'):
        result = lockstep('trace', name)
        equal((result.returncode, result.stdout), (3, ''), name)
        matches('LS-DIAGNOSE-(NOTHING|FILE)', result.stderr)


def test_output_that_cannot_be_written():
    with Place('--rounds', 1) as place:
        for option in ('--svg', '--html'):
            for path in ('/there/is/none', '/dev/full'):
                result = lockstep('trace', option, path, place.path)
                equal(result.returncode, 1)
                matches('cannot write the picture to %s: .*LS-TIMELINE-OUTPUT' % path, result.stderr)
        with open('/dev/full', 'w') as full:
            equal(subprocess.run([program(), 'trace', place.path], stdout=full).returncode, 1)


def test_damaged_traces():
    """Refused, or drawn as something that is well formed all the same."""
    random.seed(1)
    drawn = 0
    with Place('--rounds', ROUNDS) as place:
        with open(place.path, 'rb') as file:
            whole = file.read()
        damaged = place.path + '.damaged'
        for i in range(80):
            data = bytearray(whole)
            if i < 20:
                del data[random.randrange(len(data)):]
            else:
                for _ in range(random.randint(1, 2000)):
                    # Behind the head, half of the time in the last rank's records.
                    where = random.randrange(len(data) - 120000 if i % 2 else 12000, len(data))
                    data[where] = random.choice((0, 1, 0x7f, 0x80, 0xff, random.randrange(256)))
            with open(damaged, 'wb') as file:
                file.write(data)
            for option in (('--text',), ('--svg', '-'), ('--json',)):
                result = subprocess.run([program(), 'trace', *option, damaged], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
                assert result.returncode in (0, 3), (i, result)
                if i < 20:
                    equal(result.returncode, 3)
                if result.returncode == 3:
                    matches('LS-DIAGNOSE-FILE', result.stderr.decode())
                elif option[0] == '--svg':
                    drawn += 1
                    bars(result.stdout.decode())
                elif option[0] == '--json':
                    json.loads(result.stdout)
                else:
                    assert result.stdout.isascii(), result.stdout
    assert drawn > 20, drawn


if __name__ == '__main__':
    main(globals())
