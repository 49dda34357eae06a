#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The commands of lockstep that start nothing: tools_test.py PATH_OF_LOCKSTEP [test_…]"""
import json
import os
import re
import subprocess
import tempfile

from harness import environment, equal, lockstep, main, matches, program

COMMANDS = ('run', 'diagnose', 'trace', 'plan', 'bench', 'tune', 'settings', 'explain')


def good(*arguments, **options):
    result = lockstep(*arguments, **options)
    equal((result.returncode, result.stderr), (0, ''), arguments)
    return result.stdout


def wrong(status, *arguments, **options):
    result = lockstep(*arguments, **options)
    equal(result.returncode, status, arguments, result.stderr)
    equal(result.stdout, '', arguments)
    return result.stderr


def test_help_and_version():
    for option in ('--help', '-h'):
        text = good(option)
        for command in COMMANDS:
            matches(r'(?m)^  %s +\w' % command, text)
            matches(r'^usage: lockstep %s ' % command, good(command, option))
    matches(r'^lockstep \d+\.\d+\.\d+\n$', good('--version'))
    equal(good('-V'), good('--version'))
    matches('^usage: lockstep COMMAND', wrong(2))


def test_every_option_is_in_the_help():
    # Whatever the help lists exists: it is refused for its value or its context, not as unknown.
    for command in COMMANDS:
        for option in re.findall(r'(?m)^  (?:-\w, )?(--[\w-]+)', good(command, '--help')):
            result = lockstep(command, option, 'xyzzy')
            assert 'there is no option' not in result.stderr, (command, option)


def test_unknown_words():
    matches(r"no command 'rnu' \(did you mean 'run'\?\)", wrong(2, 'rnu'))
    matches(r"no command 'diagnos' \(did you mean 'diagnose'\?\)", wrong(2, 'diagnos', 'x'))
    matches(r"no command 'xyzzy'; see 'lockstep --help'", wrong(2, 'xyzzy'))
    matches(r"no option '--versoin' \(did you mean '--version'\?\)", wrong(2, '--versoin'))
    for command in COMMANDS:
        matches(r"no option '--hepl' \(did you mean '--help'\?\); see 'lockstep %s --help'" % command,
                wrong(2, command, '--hepl'))
        matches(r"no option '-z'", wrong(2, command, '-z'))
    for command in ('diagnose', 'trace', 'settings', 'explain'):
        wrong(2, command, 'a', 'b')


def test_output_that_cannot_be_written():
    with open('/dev/full', 'w') as full:
        run = subprocess.run([program(), 'settings'], env=environment(), stdout=full, stderr=subprocess.PIPE, text=True)
    equal(run.returncode, 1)
    equal(run.stderr, 'lockstep: cannot write to standard output: No space left on device [LS-OUTPUT]\n')


def plan(*arguments):
    """The head, and {rank: [step, …]}."""
    head, *ranks = good('plan', *arguments).split('\nrank ')
    steps = {}
    for text in ranks:
        rank, *lines = text.strip('\n').split('\n')
        if lines == ['  nothing to do']:
            lines = []
        steps[int(rank.split(':')[0])] = [line[7:] for line in lines]
        equal([line[:7] for line in lines], ['  %3d  ' % i for i in range(len(lines))])
    return head, steps


def test_plan():
    head, steps = plan('allreduce', '-n', 4, '--algorithm', 'direct')
    matches('^all-reduce of 1 MiB on 4 ranks: direct\n', head)
    matches('chosen by --algorithm', head)
    matches('4 blocks of about 256 KiB', head)
    equal(sorted(steps), [0, 1, 2, 3])
    for rank in range(4):
        assert 'reduce block %d of all ranks to all ranks' % rank in steps[rank], steps
    head, steps = plan('-n', 3, 'broadcast', '--root', 2, '--bytes', '64K', '--algorithm', 'tree')
    matches('^broadcast of 64 KiB on 3 ranks from rank 2: tree\n', head)
    assert any(step.startswith('send ') for step in steps[2])
    assert all(not step.startswith('send ') for step in steps[1])
    assert any('from rank 2' in step for rank in (0, 1) for step in steps[rank])
    head, steps = plan('alltoall', '-n', 4, '--algorithm', 'direct', '--bytes', '64K')
    matches('^all-to-all of 64 KiB on 4 ranks: direct\n', head)
    matches('4 parts of about 16 KiB each; peers read', head)
    assert 'copy part 1 of the input of rank 3 to part 3 of my output' in steps[1], steps
    head, steps = plan('gather', '-n', 3, '--root', 1, '--algorithm', 'pairwise', '--bytes', '64K')
    matches('^gather of 64 KiB from each of 3 ranks to rank 1: pairwise\n', head)
    matches('3 parts of 64 KiB each; data travels in messages', head)
    equal(steps[0], ['send part 0 of my input to rank 1'])
    assert 'receive part 2 from rank 2 into my output' in steps[1], steps
    text = good('plan', 'allreduce', '-n', 2, '--algorithm', 'pull')
    matches('\nrank 0: peers read its input, peers read its output\n', text)
    text = good('plan', 'reduce-scatter', '-n', 2, '--algorithm', 'pairwise', '--in-place')
    matches('\nrank 1: its input is mapped, needs scratch\n    0  send part 0', text)
    head, steps = plan('barrier', '-n', 2, '--algorithm', 'doubling', '--rank', 1)
    equal(list(steps), [1])
    matches('^barrier on 2 ranks: doubling\n', head)


def test_plan_over_hosts():
    head, steps = plan('allreduce', '--hosts', 'a:2,user@b:2', '--bytes', 8)
    matches('^all-reduce of 8 B on 4 ranks of 2 hosts: leaders\n  chosen by size: leaders up to 32 KiB, then rails\n', head)
    equal(steps[1], ['send all of my input to rank 0', 'receive all from rank 0 into my output'])
    assert 'send all of my output to rank 2, to host user@b' in steps[0], steps
    assert 'receive all from rank 0 into my scratch, from host a' in steps[2], steps
    matches('\nrank 3: on host user@b, its input is mapped\n', good('plan', 'allreduce', '--hosts', 'a:2,user@b:2', '--bytes', 8))
    head, steps = plan('all-gather', '--hosts', 'a:2,b:2', '--bytes', 8)
    assert 'receive parts 2 to 3 from rank 2 into my output, from host b' in steps[0], steps
    head, steps = plan('allreduce', '--hosts', 'a:2,b:2')
    matches('ranks of 2 hosts: rails\n(.*\n)*.*on each host peers read the buffers, between hosts data travels in messages', head)
    assert 'reduce block 1 of all ranks here to my output' in steps[3], steps
    head, steps = plan('allreduce', '--hosts', 'a:4', '--algorithm', 'direct')
    matches('on 4 ranks of 1 host: direct\n', head)
    equal(steps, plan('allreduce', '-n', 4, '--algorithm', 'direct')[1])
    text = good('plan', 'barrier', '--hosts', 'a,b,c', env=environment(LOCKSTEP_ALGORITHM='direct'))
    matches('^barrier on 3 ranks of 3 hosts: doubling\n  chosen by size: doubling for every size', text)


def test_plan_by_size():
    head = plan('allreduce', '-n', 8, '--bytes', 8)[0]
    small, limit = matches(r'^all-reduce of 8 B on 8 ranks: (\w+)\n  chosen by size: \w+ up to (\d+) B, then',
                           head).groups()
    head = plan('allreduce', '-n', 8, '--bytes', limit)[0]
    matches(r'ranks: %s\n' % small, head)
    above = matches(r'ranks: (\w+)\n', plan('allreduce', '-n', 8, '--bytes', int(limit) + 1)[0])[1]
    assert above != small
    matches('then %s' % above, head)
    head = plan('allreduce', '-n', 4, '--bytes', 2**64 - 1)[0]
    matches(r'4 blocks of about 4\.194e\+06 TiB each', head)


def test_plan_by_setting():
    text = good('plan', 'allreduce', '-n', 4, env=environment(LOCKSTEP_ALGORITHM='ring'))
    matches('^all-reduce of 1 MiB on 4 ranks: ring\n  chosen by LOCKSTEP_ALGORITHM', text)
    text = good('plan', 'allreduce', '-n', 4, '--algorithm', 'tree',
                env=environment(LOCKSTEP_ALGORITHM='ring'))
    matches('^all-reduce of 1 MiB on 4 ranks: tree\n  chosen by --algorithm', text)


def test_every_plan_can_be_printed():
    collectives = matches('only (.*); see', wrong(2, 'plan', 'xyzzy', '-n', 5))[1].split(', ')
    equal(len(collectives), 9)
    for collective in collectives:
        message = wrong(2, 'plan', collective, '-n', 5, '--algorithm', 'xyzzy')
        for algorithm in matches('only (.*); see', message)[1].split(', '):
            size = [] if collective == 'barrier' else ['--bytes', '100']
            for ranks in (1, 2, 5, 64):
                steps = plan(collective, '-n', ranks, '--algorithm', algorithm, *size)[1]
                equal(sorted(steps), list(range(ranks)))


def test_plan_by_table():
    defaults = good('plan', '--table')
    matches('LOCKSTEP_TABLE is not set', defaults)
    read = r'scatter +any +128K +direct +64K +auto +copy\nscatter +any +max +direct +64K +auto +512K\n'
    matches(r'\nany +any +4K +inline +64K +auto +copy\n' + read, defaults)
    matches(r'\nany +any +max +direct +64K +auto +copy\n# .*more ranks than processors', defaults)
    matches(r'\n# any +any +16K +inline +64K +auto +copy\n# ' + read.replace(r'\nscatter', r'\n# scatter'), defaults)
    matches(r'\n# any +any +max +direct +64K +auto +copy\n$', defaults)
    with tempfile.NamedTemporaryFile('w') as file:
        file.write('# mine\nallreduce 2-4 64K tree 32K nontemporal 128K\n\nbarrier any max doubling 64K plain 256K\n')
        file.flush()
        env = environment(LOCKSTEP_TABLE=file.name)
        text = good('plan', '--table', env=env)
        matches(r'LOCKSTEP_TABLE is %s;' % file.name, text)
        matches(r'\nall-reduce +2-4 +64K +tree +32K +nontemporal +128K\nbarrier +any +max +doubling .*\nall-reduce +2 .* inline ', text)
        matches(r'LOCKSTEP_ALGORITHM: ring', good('plan', '--table', env={**env, 'LOCKSTEP_ALGORITHM': 'ring'}))
        text = good('plan', 'allreduce', '-n', 4, '--bytes', '4K', env=env)
        matches(r'ranks: tree\n  chosen by size: tree up to 64 KiB, then direct\n', text)
        matches(r'ranks: direct\n', good('plan', 'allreduce', '-n', 4, '--bytes', '65K', env=env))
        matches(r'ranks: inline\n', good('plan', 'allreduce', '-n', 5, '--bytes', 8, env=env))
        matches(r': doubling\n', good('plan', 'barrier', '-n', 5, env=env))
        # What is printed can be used.
        with tempfile.NamedTemporaryFile('w') as again:
            again.write(good('plan', '--table', env=env))
            again.flush()
            wanted, seen = (good('plan', '--table', env=environment(LOCKSTEP_TABLE=name)).splitlines()
                            for name in (file.name, again.name))
            equal(seen[2:6], wanted[2:6])
        file.write('allreduce 2-4 64K tree\n')
        file.flush()
        matches(r'%s, line 5: 4 words instead of 7: .* \[LS-TABLE-LINE\]' % file.name,
                wrong(2, 'plan', '--table', env=env))
    matches(r"'%s', which LOCKSTEP_TABLE names: No such file .*LS-TABLE-FILE" % file.name,
            wrong(2, 'plan', 'allreduce', '-n', 2, env=env))
    matches(r'on 1 rank .*: inline\n', good('plan', 'broadcast', '-n', 1, '--bytes', '6K'))
    matches(r'on 1 rank .*: direct\n', good('plan', 'broadcast', '-n', 1, '--bytes', '7K'))
    crowded = len(os.sched_getaffinity(0)) < 64
    matches(r'ranks .*: inline\n' if crowded else r'ranks .*: direct\n', good('plan', 'broadcast', '-n', 64, '--bytes', '7K'))
    matches('--table prints all', wrong(2, 'plan', '--table', 'allreduce'))


def test_plan_errors():
    for arguments, message in (
            ([], 'which collective'),
            (['allreduce'], 'how many ranks'),
            (['allredcue', '-n', 2], r"no collective 'allredcue' \(did you mean 'all-reduce'\?\)"),
            (['xyzzy', '-n', 2], "no collective 'xyzzy', only all-reduce, reduce, broadcast, .*, barrier"),
            (['allreduce', 'barrier', '-n', 2], "not also 'barrier'"),
            (['allreduce', '-n', 513], 'from 1 to 512'),
            (['allreduce', '-n', 4, '--hosts', 'a:4'], '-n is for one host'),
            (['allreduce', '--hosts', 'a:0'], 'each host has 1 to 64 ranks'),
            (['allreduce', '--hosts', 'a:2,b:2', '--rank', 4], 'no rank 4'),
            (['reduce', '--hosts', 'a:2,b:2', '--algorithm', 'direct'], 'direct works on one host only'),
            (['allreduce', '-n', 2, '--bytes', '1X'], '--bytes needs'),
            (['allreduce', '-n', 2, '--bytes', '99999999999G'], '--bytes needs'),
            (['allreduce', '-n', 2, '--rank', 2], 'no rank 2'),
            (['allreduce', '-n', 2, '--root', 1], 'has no root'),
            (['allgather', '-n', 2, '--root', 1], 'has no root'),
            (['gather', '-n', 2, '--root', 2], 'no root 2'),
            (['alltoall', '-n', 2, '--in-place'], 'never in place'),
            (['reduce', '-n', 2, '--algorithm', 'pull'], 'no reduce algorithm'),
            (['broadcast', '-n', 2, '--root', 2], 'no root 2'),
            (['broadcast', '-n', 2, '--algorithm', 'doubling'], 'no broadcast algorithm'),
            (['allreduce', '-n', 2, '--algorithm', 'rign'], r"did you mean 'ring'"),
            (['allreduce', '-n', 2, '--algorithm', 'inline'], 'at most'),
            (['barrier', '-n', 2, '--bytes', 1], 'moves no bytes')):
        matches(message, wrong(2, 'plan', *arguments))


def setting(name, **env):
    lines = good('settings', name, env=environment(**env)).splitlines()
    equal(len(lines), 2, lines)
    return lines[1].split()[:4]


def test_settings():
    names = re.findall(r'(?m)^  (LOCKSTEP_\w+) ', good('settings'))
    assert 10 <= len(names) <= 30 and len(set(names)) == len(names)
    equal(setting('LOCKSTEP_LOG'), ['LOCKSTEP_LOG', 'warn', 'warn', 'default'])
    equal(setting('log', LOCKSTEP_LOG='debug'), ['LOCKSTEP_LOG', 'debug', 'warn', 'environment'])
    equal(setting('TIMEOUT_MS', LOCKSTEP_TIMEOUT_MS=5),
          ['LOCKSTEP_TIMEOUT_MS', '5', '600000', 'environment'])
    for name in names:
        equal(setting(name)[3], 'default', name)


def test_settings_errors():
    matches(r"no setting 'timeot_ms' \(did you mean 'TIMEOUT_MS'\?\)", wrong(2, 'settings', 'timeot_ms'))
    result = lockstep('settings', env=environment(LOCKSTEP_LOG='loud'))
    equal(result.returncode, 1)
    matches('LOCKSTEP_LOG.*loud', result.stderr)
    matches('loud +warn +environment', result.stdout)
    result = lockstep('settings', env=environment(LOCKSTEP_TIMEOT_MS='1'))
    equal(result.returncode, 0)
    matches('LOCKSTEP_TIMEOT_MS.*LOCKSTEP_TIMEOUT_MS', result.stderr)
    # A bad setting also stops what would use it.
    result = lockstep('run', '-n', 1, 'true', env=environment(LOCKSTEP_LOG='loud'))
    equal(result.returncode, 1)
    # The variable that run sets for ranks is none of the settings, and known.
    equal(lockstep('run', '-n', 1, program(), 'settings').stderr, '')


def test_explain():
    matches(r'^LS_TIMED_OUT \(6\): .', good('explain', 'LS_TIMED_OUT'))
    equal(good('explain', 'timed_out'), good('explain', 'LS_TIMED_OUT'))
    equal(good('explain', '6'), good('explain', 'LS_TIMED_OUT'))
    matches(r'^LS_OK \(0\)', good('explain', '0'))
    matches('^LS-RUN-FAILED:\nHow the job ended', good('explain', 'LS-RUN-FAILED'))
    equal(good('explain', 'run-failed'), good('explain', 'LS-RUN-FAILED'))
    ids = re.findall(r'(?m)^  (LS[-_][A-Z-_]+)', good('explain'))
    assert len(ids) > 40
    for one in ids:
        text = good('explain', one)
        matches('^' + one, text)
        assert len(text) > len(one) + 20 and max(map(len, text.splitlines())) <= 100, text
    matches(r'(?m)^- "Too many open files"', good('explain', 'LS-TRANSPORT-SYSTEM'))
    matches('there is no group: correct the cause', good('explain', 'LS_RANK_MISSING'))
    matches(r"did you mean 'LS-RUN-FAILED'", wrong(2, 'explain', 'LS-RUN-FAILD'))
    matches(r"did you mean 'LS_MISMATCH'", wrong(2, 'explain', 'LS_MISSMATCH'))
    wrong(2, 'explain', '99999')
    wrong(2, 'explain', 'xyzzy')


def test_diagnose_without_a_job():
    for name, message in (('0123456789abcdef', 'of 0123456789abcdef'), (os.getpid(), 'of process'),
                          ('999999999', 'of process 999999999')):
        matches(message + r'.*LS-DIAGNOSE-NOTHING', wrong(3, 'diagnose', name))
    result = lockstep('diagnose', '--json', '0123456789abcdef')
    equal((result.returncode, json.loads(result.stdout)), (3, {'jobs': []}))
    matches('empty', wrong(2, 'diagnose', ''))


def test_diagnose_of_files_that_are_none():
    with tempfile.TemporaryDirectory() as place:
        name = os.path.join(place, 'x')
        os.mkfifo(name + '.fifo')
        for content in (b'', b'x', b'LSSNAP\0\0', b'LSSNAP\0\0' + b'\0' * 100000,
                        b'LSSNAP\0\0\1\0\0\0' + b'\xff' * 100000):
            with open(name, 'wb') as file:
                file.write(content)
            matches('LS-DIAGNOSE-FILE', wrong(3, 'diagnose', name))
        for path in (place, name + '.fifo', '/dev/zero', '/there/is/none'):
            matches('LS-DIAGNOSE-FILE', wrong(3, 'diagnose', path))


if __name__ == '__main__':
    main(globals())
