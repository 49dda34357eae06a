#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""lockstep tune: tune_test.py PATH_OF_LOCKSTEP [test_…]"""
import re
import tempfile

from harness import environment, equal, lockstep, main, matches, program

COLLECTIVES = ['all-reduce', 'reduce', 'broadcast', 'all-gather', 'gather', 'scatter', 'reduce-scatter', 'all-to-all',
               'barrier']


def tune(*arguments, **options):
    result = lockstep('tune', *arguments, **options)
    equal((result.returncode, result.stderr), (0, ''), arguments)
    return result.stdout


def wrong(*arguments):
    result = lockstep('tune', *arguments)
    equal((result.returncode, result.stdout), (2, ''), arguments)
    return result.stderr


def lines_of(text):
    return [line.split() for line in text.splitlines() if line and not line.startswith('#')]


def test_the_table_can_be_used():
    text = tune('-n', '2,3', '--bytes', '64,256K', '--rounds', 1,
                env=environment(LOCKSTEP_ALGORITHM='ring'))
    matches(r'^# lockstep \d\S+ tune, on .* with \d+ processors\n# collective +ranks +up to', text)
    lines = lines_of(text)
    for ranks in ('1-2', '3-64'):
        mine = [line for line in lines if line[1] == ranks]
        equal(list(dict.fromkeys(line[0] for line in mine)), COLLECTIVES)
        for collective in COLLECTIVES:
            # Growing sizes, the last without an end.
            ends = [line[2] for line in mine if line[0] == collective]
            equal(ends[-1], 'max', collective, text)
    equal(len(lines), len([line for line in lines if line[1] in ('1-2', '3-64')]))
    with tempfile.NamedTemporaryFile('w') as file:
        file.write(text)
        file.flush()
        env = environment(LOCKSTEP_TABLE=file.name)
        table = lockstep('plan', '--table', env=env)
        equal((table.returncode, table.stderr), (0, ''))
        defaults = lines_of(lockstep('plan', '--table').stdout)
        equal(lines_of(table.stdout), lines + defaults)
        plan = lockstep('plan', 'allreduce', '-n', 2, '--bytes', '256K', env=env)
        wanted = [line for line in lines if line[:2] == ['all-reduce', '1-2']][-1][3]
        matches(r'ranks: %s\n' % wanted, plan.stdout)
        result = lockstep('bench', 'all', '-n', 2, '--bytes', '64,256K', env=env)
        equal((result.returncode, result.stderr), (0, ''))


def test_ranks_with_different_tables_are_refused():
    with tempfile.NamedTemporaryFile('w') as file:
        file.write('allreduce any max tree 64K plain 256K\n')
        file.flush()
        script = '[ $RANK = 0 ] || export LOCKSTEP_TABLE=%s; exec "$0" bench --rank --bytes 64' % file.name
        result = lockstep('run', '-n', 2, '--', 'sh', '-c', script, program())
        equal((result.returncode, result.stdout), (1, ''), result.stderr)
        matches(r'rank 1 and rank 0 have different values of LOCKSTEP_TABLE.*\[LS-GROUP-SETTINGS\]', result.stderr)
        # The same content is the same table, wherever it lies.
        with tempfile.NamedTemporaryFile('w') as other:
            other.write('# a comment\nallreduce 1-4096 max tree 65536 plain 256K')
            other.flush()
            script = script.replace('||', '&& export LOCKSTEP_TABLE=%s ||' % other.name)
            result = lockstep('run', '-n', 2, '--', 'sh', '-c', script, program())
            equal((result.returncode, result.stderr), (0, ''))


def test_wrong_words():
    for ranks in ('1', '0', '65', '4,2', '2,2', '2,', 'x', ''):
        matches('-n needs growing numbers of ranks', wrong('-n', ranks))
    for sizes in ('0', '8,4', '1x', '', '8,', '1G', ','.join(str(i + 1) for i in range(17))):
        matches('--bytes needs up to 16 growing numbers', wrong('--bytes', sizes))
    for rounds in ('0', '16', 'x'):
        matches('--rounds needs a number from 1 to 15', wrong('--rounds', rounds))
    matches("'all' is too much", wrong('all'))


def test_job_that_cannot_run():
    result = lockstep('tune', '-n', '2', '--bytes', '64M', '--rounds', 1, env=environment(LOCKSTEP_ARENA_BYTES='16M'))
    equal(result.returncode, 1)
    assert re.search(r'\[LS-\w+', result.stderr), result.stderr
    equal(lines_of(result.stdout), [])


if __name__ == '__main__':
    main(globals())
