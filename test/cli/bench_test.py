#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""lockstep bench: bench_test.py PATH_OF_LOCKSTEP [test_…]"""
import json
import re

from harness import environment, equal, lockstep, main, matches

OPS = ['all-reduce', 'reduce', 'broadcast', 'all-gather', 'gather', 'scatter', 'reduce-scatter', 'all-to-all',
       'barrier']
SIZES = {'barrier': [0], 'message-rate': [8], 'match': [8, 8, 8, 8], 'group': [0]}  # of operations that have their own
MESSAGES = ['ping-pong', 'bandwidth', 'message-rate', 'match']
OPS += MESSAGES + ['group']


def bench(*arguments):
    result = lockstep('bench', *arguments)
    equal((result.returncode, result.stderr), (0, ''), arguments)
    return result.stdout


def wrong(*arguments):
    result = lockstep('bench', *arguments)
    equal((result.returncode, result.stdout), (2, ''), arguments)
    return result.stderr


def close(a, b):
    assert abs(a - b) <= 1e-4 * abs(b), (a, b)


def test_all_operations_as_json():
    ranks = 3
    for options, memory, data in (([], 'mapped', 'hot'), (['--plain', '--fresh'], 'plain', 'fresh')):
        report = json.loads(bench('all', '-n', ranks, '--bytes', '8,4K', '--json', *options))
        equal((report['ranks'], report['memory'], report['data'], report['dtype']), (ranks, memory, data, 'float32'))
        # Parts are equal, and have at least one element.
        parts = {8: 4 * ranks, 4096: 4096 // (4 * ranks) * 4 * ranks}
        whole = ('all-reduce', 'reduce', 'broadcast', 'ping-pong', 'bandwidth')
        equal([(line['operation'], line['bytes']) for line in report['results']],
              [(op, size if op in whole + tuple(SIZES) else parts[size]) for op in OPS for size in SIZES.get(op, (8, 4096))])
        equal([line['outstanding'] for line in report['results'] if line['operation'] == 'match'], [1, 10, 100, 1000])
        for line in report['results']:
            assert line['microseconds'] > 0, line
            if line['operation'] in ('barrier', 'group'):
                equal(sorted(line), ['bytes', 'microseconds', 'operation'])
                continue
            close(line['algorithm_gb_s'], line['bytes'] / line['microseconds'] / 1e3)
            part = (ranks - 1) / ranks
            factor = {'all-reduce': 2 * part, **dict.fromkeys(['reduce', 'broadcast', *MESSAGES], 1)}.get(line['operation'], part)
            close(line['bus_gb_s'], factor * line['algorithm_gb_s'])
            equal('messages_per_s' in line, line['operation'] in MESSAGES)
            close(line.get('messages_per_s', 1e6 / line['microseconds']), 1e6 / line['microseconds'])


def test_table():
    text = bench('-n', 2, '--bytes', '1K,64', '--fresh')
    lines = text.splitlines()
    equal(lines[0], '2 ranks, float32, mapped memory, fresh data')
    equal(lines[1].split(), ['operation', 'bytes', 'microseconds', 'GB/s'])
    equal([line.split()[:2] for line in lines[2:]], [['all-reduce', '1024'], ['all-reduce', '64']])
    equal(len({len(line) for line in lines[1:]}), 1, 'columns stand below each other')
    text = bench('barrier', '-n', 2)
    matches(r'(?m)^barrier +- +[0-9.]+ +-$', text)


def test_table_of_messages():
    text = bench('ping-pong', 'match', 'barrier', '-n', 2, '--bytes', '64')
    lines = text.splitlines()[1:]
    equal(lines[0].split(), ['operation', 'bytes', 'microseconds', 'GB/s', 'Mmsg/s'])
    equal([line.split()[:2] for line in lines[1:]],
          [['barrier', '-'], ['ping-pong', '64'], *(['match', str(count)] for count in (1, 10, 100, 1000))])
    equal([line.split()[2] for line in lines[3:]], ['8'] * 4)
    equal(len({len(line) for line in lines}), 1, 'columns stand below each other')


def test_words_in_any_order():
    text = bench('reducescatter', '--no-bind', 'broadcast', '-n', 2, '--bytes', '64')
    equal([line.split()[0] for line in text.splitlines()[2:]], ['broadcast', 'reduce-scatter'])


def test_one_rank():
    for op in MESSAGES:
        matches(f'{op} needs two ranks', wrong(op, '-n', 1))
    equal([line['operation'] for line in json.loads(bench('all', '-n', 1, '--bytes', 8, '--json'))['results']],
          [op for op in OPS if op not in MESSAGES])
    for op in [op for op in OPS if op not in MESSAGES]:
        matches(r'(?m)^%s ' % op, bench(op, '-n', 1, '--bytes', '64'))


def test_wrong_words():
    matches(r"no operation 'reducee' \(did you mean 'reduce'\?\)", wrong('reducee'))
    matches(r"no operation 'xyzzy'; see", wrong('all-reduce', 'xyzzy'))
    matches('-n needs a number of ranks from 1 to 64', wrong('-n', 65))
    matches('-n needs a number of ranks from 1 to 64', wrong('-n', 0))
    for sizes in ('0', '1x', '', '8,', ',8', '8,,8', '-1', '65G', '1T', ','.join(['8'] * 64)):
        matches('--bytes (needs|takes)', wrong('--bytes', sizes))


def test_job_that_cannot_run():
    # Settings reach the ranks, and their failure reaches the caller.
    result = lockstep('bench', '-n', 2, '--bytes', '64M', env=environment(LOCKSTEP_ARENA_BYTES='16M'))
    equal(result.returncode, 1)
    assert re.search(r'\[LS-\w+', result.stderr), result.stderr


if __name__ == '__main__':
    main(globals())
