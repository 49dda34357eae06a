#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""lockstep run and diagnose with ranks that use Lockstep:
ranks_test.py PATH_OF_LOCKSTEP PATH_OF_RANKS_DEMO [test_…]"""
import json
import os
import random
import signal
import socket
import stat
import subprocess
import sys
import tempfile

from harness import Job, environment, equal, is_gone, lockstep, main, matches, named_memory, read, state, until

DEMO = os.path.abspath(sys.argv[2])
QUICK = environment(LOCKSTEP_PATIENCE_MS=100)  # diagnose shall not be patient


def diagnose(what, env=None):
    """(exit status, the one job that was found, or None)."""
    result = lockstep('diagnose', '--json', what, env=env)
    jobs = json.loads(result.stdout)['jobs']
    assert len(jobs) <= 1, jobs
    return result.returncode, jobs[0] if jobs else None


def demo(*arguments, ranks=4, env=None, options=()):
    return Job('run', '-n', ranks, *options, DEMO, *arguments, env=env)


def lines(word, ranks=4):
    return ['[%d] %s' % (rank, word) for rank in range(ranks)]


def until_diagnosed(what, right, env=None):
    def look():
        status, job = diagnose(what, env)
        return (status, job) if job and right(job) else None
    return until(look, 'the diagnosis to show it')


def waits(job, rank, for_whom):
    return job['ranks'][rank]['waits_for'] == for_whom


def test_healthy_job():
    with tempfile.TemporaryDirectory() as place:
        result = lockstep('run', '-n', 4, DEMO, '--rounds', 64, env=environment(TMPDIR=place))
        equal((result.returncode, result.stderr), (0, ''))
        equal(sorted(result.stdout.splitlines()),
              sorted(line for i in range(7) for line in lines('round %d' % 2 ** i)))
        equal(os.listdir(place), [])


def test_running_job():
    with demo() as job:
        job.expect(*lines('round 16'))
        status, found = diagnose(job.pid)
        equal((status, found['running'], found['size'], found['source']), (0, True, 4, 'memory'))
        equal(found['verdict']['healthy'], True)
        ranks = job.ranks()
        for rank in range(4):
            seen = found['ranks'][rank]
            equal((seen['rank'], seen['pid'], seen['readable'], seen['left']),
                  (rank, ranks[rank], True, False))
            equal((seen['operation']['kind'], seen['operation']['count']), ('all-reduce', 1000))
            matches('^ranks_demo.c:[0-9]+$', seen['operation']['site'])
            equal(seen['phases'], None)
        equal(found['stragglers'], [])
        # The same job by its number, by any rank, and among all.
        for name in (found['job'], ranks[0], ranks[3]):
            equal(diagnose(name)[1]['job'], found['job'])
        matches('job %s: running, ranks_demo, 4 ranks' % found['job'], lockstep('diagnose').stdout)
        everything = json.loads(lockstep('diagnose', '--json').stdout)['jobs']
        equal([one['job'] for one in everything].count(found['job']), 1)
        job.process.send_signal(signal.SIGTERM)
        job.end()
        # Whoever looks at all jobs just now, as another test may, still holds its memory for a moment.
        until(lambda: lockstep('diagnose', found['job']).returncode == 3, 'the job to be forgotten')


PHASES = ['data', 'data/image', 'backward', 'outside']


def phase(job, rank, name):
    return next(one for one in job['ranks'][rank]['phases'] if one['name'] == name)


def test_phases_of_a_running_job():
    with demo('--phases') as job:
        job.expect(*lines('round 16'))
        _, found = diagnose(job.pid)
        for seen in found['ranks']:
            equal([one['name'] for one in seen['phases']], PHASES)
            counts = [one['count'] for one in seen['phases']]
            assert 15 <= counts[2] <= counts[0] <= counts[1] <= counts[2] + 2, counts
            equal(counts[3], 0)
        text = lockstep('diagnose', job.pid).stdout
        matches(r'(?m)^  phases:\n(?:    .*\n)*'
                r'    +rank +data +data/image +backward +outside +waiting +skew\n'
                r'(?: +%s(?: +\d+\.\d\d){5} +[-+]\d+ %%(?:  in [a-z/]+)?\n){4}' % r'\d', text)


def test_phases_at_the_end():
    result = lockstep('run', '--phases', '-n', 3, DEMO, '--phases', '--rounds', 20)
    equal(result.returncode, 0)
    matches(r'(?m)^milliseconds of own work in each phase, of .*\n'
            r'  rank +data +data/image +backward +outside +waiting +skew\n'
            r'(?: +\d(?: +\d+\.\d\d){5} +[-+]\d+ %\n){3}\Z', result.stderr)
    equal(lockstep('run', '-n', 2, DEMO, '--phases', '--rounds', 2).stderr, '')
    equal(lockstep('run', '--phases', '-n', 2, DEMO, '--rounds', 2).stderr, 'no rank has begun a phase\n')
    with tempfile.TemporaryDirectory() as place:
        result = lockstep('run', '--phases', '-n', 3, DEMO, '--phases', 'exit', 1, 6,
                          env=environment(TMPDIR=place))
    equal(result.returncode, 7)
    matches(r'(?m)^     1 .*  in backward$', result.stderr)


def test_phases_of_a_stopped_rank():
    """It is in its phase and does not wait, so all the time is its own; what the others do is waiting."""
    with demo('--phases', 'stop', 1, 6) as job:
        job.expect(*lines('round 4'))

        def is_shown(found):
            others = [phase(found, rank, 'backward') for rank in (0, 2, 3)]
            return (found['ranks'][1]['process'] == 'stopped' and
                    all(waits(found, rank, [1]) for rank in (0, 2, 3)) and
                    all(other['waited_us'] > 3 * other['own_us'] for other in others) and
                    any((one['ranks'], one['phase']) == ([1], 'backward') for one in found['stragglers']))
        _, found = until_diagnosed(job.pid, is_shown)
        for rank in range(4):
            equal([one['name'] for one in found['ranks'][rank]['phases'] if one['running']], ['backward'])
            equal((phase(found, rank, 'data')['count'], phase(found, rank, 'backward')['count']), (6, 5))
        equal(phase(found, 1, 'outside')['running'], False)
        matches(r'rank 1 spends .* in backward, (where .*, )?which costs \d+ % of the step',
                lockstep('diagnose', job.pid).stdout)


def test_two_jobs():
    with demo(ranks=2) as one, demo(ranks=3) as other:
        one.expect(*lines('round 16', 2))
        other.expect(*lines('round 16', 3))
        first, second = diagnose(one.pid)[1], diagnose(other.pid)[1]
        equal((first['size'], second['size']), (2, 3))
        assert first['job'] != second['job']


def test_rank_elsewhere():
    with demo('away', 2, 6) as job:
        job.expect(*lines('round 4'))
        until_diagnosed(job.pid, lambda found: all(waits(found, rank, [2]) for rank in (0, 1, 3)))
        status, found = diagnose(job.pid)
        equal((status, found['verdict']['healthy']), (0, True), 'the patience is ten seconds')
        status, found = until_diagnosed(job.pid, lambda found: not found['verdict']['healthy'], QUICK)
        verdict = found['verdict']
        equal((status, verdict['cause'], verdict['blamed'], verdict['culprits'], verdict['waiting']),
              (1, 'elsewhere', 2, [2], [0, 1, 3]))
        equal((found['ranks'][0]['operation']['number'], found['ranks'][2]['operation']['number']), (6, 5))
        text = lockstep('diagnose', job.pid, env=QUICK).stdout
        matches(r'rank 0 +pid \d+ +\w+ +waits .* for rank 2 in all-reduce #6 \(ranks_demo.c:\d+\)', text)
        matches(r'verdict: rank 2 .*elsewhere', text)


def test_rank_elsewhere_in_a_group():
    """Of two groups of two the second waits; ranks are those of the job, whatever their rank in the group."""
    with demo('--pairs', 'away', 0, 6) as job:
        job.expect(*lines('round 4'))
        status, found = until_diagnosed(job.pid, lambda found: waits(found, 2, [3]) and
                                        not found['verdict']['healthy'], QUICK)
        verdict, operation = found['verdict'], found['ranks'][2]['operation']
        equal((status, verdict['cause'], verdict['blamed'], verdict['culprits'], verdict['waiting']),
              (1, 'elsewhere', 3, [3], [2]))
        equal((operation['number'], operation['group_ranks']), (6, [2, 3]))
        text = lockstep('diagnose', job.pid, env=QUICK).stdout
        matches(r'waits .* for rank 3 in all-reduce #6 of group %d, ranks 2, 3 \(ranks_demo.c' % operation['group'],
                text)
        matches(r'verdict: rank 3 .*while rank 2 waits in all-reduce #6 of group \d+ \(ranks 2 and 3\)', text)


def test_mismatch_in_a_group():
    status, _, errors, found, _ = fails('--pairs', 'count', 1, 6)
    equal(status, 1)
    verdict = found['verdict']
    equal((verdict['published'], verdict['cause'], verdict['culprits']), (True, 'mismatch', [2, 3]))
    matches(r'called all-reduce #6 of group \d+ \(ranks 2 and 3\) with different arguments', errors)
    equal(errors.count('LS-VERDICT'), 1)


def test_stopped_rank():
    with demo('stop', 1, 6) as job:
        job.expect(*lines('round 4'))
        status, found = until_diagnosed(
            job.pid, lambda found: found['verdict']['cause'] == 'stopped' and
            all(waits(found, rank, [1]) for rank in (0, 2, 3)))
        equal((status, found['verdict']['blamed'], found['ranks'][1]['process']), (1, 1, 'stopped'))


def test_all_stopped():
    with demo() as job:
        job.expect(*lines('round 16'))
        ranks = job.ranks()
        for pid in [*ranks.values(), job.pid]:
            os.kill(pid, signal.SIGSTOP)
        until(lambda: [state(pid) for pid in ranks.values()] == ['T'] * 4, 'all to stop')
        _, found = diagnose(job.pid)
        equal([rank['process'] for rank in found['ranks']], ['stopped'] * 4)
        equal(found['running'], True)


def test_dead_ranks_while_the_launcher_lives():
    # The others find out about the first at once, and would end by themselves.
    with demo('--linger') as job:
        job.expect(*lines('round 16'))
        number = until_diagnosed(job.pid, lambda found: True)[1]['job']
        ranks = job.ranks()
        os.kill(job.pid, signal.SIGSTOP)
        for pid in ranks.values():
            os.kill(pid, signal.SIGKILL)
        until(lambda: all(is_gone(pid) for pid in ranks.values()), 'the ranks to end')
        status, found = diagnose(number)
        equal((status, found['running'], found['size']), (1, False, 4))
        for rank in found['ranks']:
            equal((rank['process'], rank['signal'], rank['readable']), ('ended', 9, True))
            equal(rank['operation']['kind'], 'all-reduce')
        os.kill(job.pid, signal.SIGCONT)
        equal(job.end()[0], 137)


def by_hand(ranks, *arguments):
    """Ranks without a launcher, which meet at a port."""
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        port = probe.getsockname()[1]
    return [subprocess.Popen([DEMO, *map(str, arguments)], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, text=True,
                             env=environment(RANK=rank, WORLD_SIZE=ranks, MASTER_ADDR='127.0.0.1',
                                             MASTER_PORT=port)) for rank in range(ranks)]


def test_dead_rank_while_a_peer_lives():
    ranks = by_hand(3, '--linger')
    try:
        for rank in ranks:
            equal(rank.stdout.readline(), 'round 1\n')
        number = diagnose(ranks[0].pid)[1]['job']
        for rank in ranks[:2]:
            rank.send_signal(signal.SIGSTOP)
        until(lambda: all(state(rank.pid) == 'T' for rank in ranks[:2]), 'ranks 0 and 1 to stop')
        ranks[2].kill()
        ranks[2].wait()
        _, found = diagnose(number)
        equal([rank['process'] for rank in found['ranks']], ['stopped', 'stopped', 'ended'])
        equal((found['ranks'][2]['readable'], found['running']), (True, True))
        # They go on, find out, and keep the group open: now the cause that they published is shown.
        for rank in ranks[:2]:
            rank.send_signal(signal.SIGCONT)
        status, found = until_diagnosed(number, lambda found: found['verdict']['published'])
        equal((status, found['verdict']['status'], found['verdict']['blamed']), (1, 'LS_PEER_DIED', 2))
        matches('^rank 2 ', found['verdict']['text'])
        matches('the group has failed with LS_PEER_DIED:\n    rank 2 ', lockstep('diagnose', number).stdout)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
            rank.stdout.close()
    until(lambda: lockstep('diagnose', number).returncode == 3, 'the job to be forgotten')


def fails(*arguments, ranks=4, options=(), signal_first=None):
    """Runs a job that ends badly; (status, errors, the snapshot as JSON, its path, its text)."""
    with tempfile.TemporaryDirectory() as place:
        with demo(*arguments, ranks=ranks, env=environment(TMPDIR=place), options=options) as job:
            if signal_first:
                job.expect(*lines('round 16', ranks))
                job.process.send_signal(signal_first)
            status, out, errors = job.end()
            equal(job.processes(), [])
        names = os.listdir(place)
        equal(len(names), 1, errors)
        path = os.path.join(place, names[0])
        equal(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        matches('lockstep diagnose %s' % path, errors)
        code, found = diagnose(path)
        equal((code, found['source'], found['running']), (1, 'snapshot', False))
        matches('lockstep-%s.snapshot' % found['job'], path)
        text = lockstep('diagnose', path).stdout
        matches('job %s: snapshot of ' % found['job'], text)
        return status, out, errors, found, text


def test_killed_rank():
    status, out, errors, found, text = fails('kill', 2, 6)
    equal((status, errors.count('[LS-VERDICT]')), (137, 1))
    equal(sorted(line for line in out.splitlines() if 'failed' in line),
          ['[%d] failed LS_PEER_DIED' % rank for rank in (0, 1, 3)])
    matches(r'rank 2 \(pid \d+\) was killed by SIGKILL \(9\); ranks 0, 1, 3 then exited with 1', errors)
    verdict = found['verdict']
    equal((verdict['published'], verdict['status'], verdict['blamed']), (True, 'LS_PEER_DIED', 2))
    equal((found['ranks'][2]['process'], found['ranks'][2]['signal']), ('ended', 9))
    matches('was killed by SIGKILL', found['ended'])
    matches('failed with LS_PEER_DIED:\n    rank 2 ', text)


def test_phases_of_a_snapshot():
    _, _, _, found, text = fails('--phases', 'kill', 2, 6)
    for rank in range(4):
        equal([(one['name'], one['count']) for one in found['ranks'][rank]['phases']], list(zip(PHASES, [6, 6, 5, 0])))
    equal(phase(found, 2, 'backward')['running'], True)  # as it was when it died
    matches(r'(?m)^ +2 .*  in backward$', text)


def test_rank_that_exits():
    status, _, errors, found, _ = fails('exit', 0, 6, ranks=2)
    equal((status, found['verdict']['blamed']), (7, 0))
    matches(r'rank 0 \(pid \d+\) exited with 7; rank 1 then exited with 1', errors)


def test_first_failure_among_ends_found_at_once():
    """The launcher sees all three ends in one look; which was first only the survivors know."""
    with demo('stop-exit', 1, 6, ranks=3) as job:
        job.expect(*lines('round 4', ranks=3))
        ranks = job.ranks()
        until(lambda: state(ranks[1]) == 'T', 'rank 1 to stop')
        os.kill(job.pid, signal.SIGSTOP)
        until(lambda: state(job.pid) == 'T', 'the launcher to stop')
        os.kill(ranks[1], signal.SIGCONT)
        until(lambda: all(is_gone(pid) for pid in ranks.values()), 'all ranks to end')
        os.kill(job.pid, signal.SIGCONT)
        status, _, errors = job.end()
        equal(status, 7, errors)
        matches(r'rank 1 \(pid \d+\) exited with 7; ranks 0, 2 then exited with 1', errors)


def test_who_is_blamed_may_end_last():
    with demo('stop-abort-exit', 1, 6, ranks=3) as job:
        job.expect(*lines('round 4', ranks=3))
        ranks = job.ranks()
        for gone in (), (0, 2):
            until(lambda: state(ranks[1]) == 'T' and all(is_gone(ranks[q]) for q in gone), 'rank 1 to stop')
            os.kill(ranks[1], signal.SIGCONT)
        status, _, errors = job.end()
        equal(status, 7, errors)
        matches(r'rank 1 \(pid \d+\) exited with 7; ranks 0, 2 then exited with 1', errors)


def test_rank_that_leaves():
    status, _, errors, found, _ = fails('leave', 2, 6)
    equal((status, found['verdict']['status'], found['verdict']['blamed']), (1, 'LS_PEER_LEFT', 2))
    matches(r'rank 2 (had|then) exited with 0', errors)  # a leaver may be the last to end


def test_rank_that_leaves_others_who_know_what_to_do():
    """It finds them waiting when it closes the group, and no call of its own says so; but theirs do."""
    with demo('--handles', 'stop-leave', 2, 6) as job:
        job.expect(*lines('round 4'))
        ranks = job.ranks()
        until_diagnosed(job.pid, lambda found: all(waits(found, rank, [2]) for rank in (0, 1, 3)))
        os.kill(ranks[2], signal.SIGCONT)
        status, out, errors = job.end()
    equal((status, out.count('failed LS_PEER_LEFT')), (0, 3), errors)
    equal((errors.count('[LS-VERDICT]'), 'LS-RUN' in errors), (1, False), errors)


def test_mismatch():
    status, _, _, found, _ = fails('count', 1, 6)
    equal((status, found['verdict']['status'], found['verdict']['blamed']), (1, 'LS_MISMATCH', 1))
    equal(found['verdict']['operation'], 6)


def test_difference_that_no_call_returns():
    status, out, errors, found, text = fails('--rounds', 6, 'missing', 2, 6)
    said = r'rank 2 finished after all-reduce #5 but ranks 0, 1 and 3 called reduce #6, called from ranks_demo.c:\d+'
    equal((status, 'failed' in out), (1, False))
    matches(r'(?m)^\[2\] ' + said, errors)
    matches(r'all ranks exited with 0, but when rank 2 closed a group .* \[LS-RUN-AT-CLOSE\]', errors)
    equal((errors.count('[LS-VERDICT]'), errors.count('LS-RUN-FAILED')), (1, 0))
    verdict = found['verdict']
    equal((verdict['published'], verdict['status'], verdict['blamed'], verdict['operation']),
          (True, 'LS_PEER_LEFT', 2, 6))
    matches('all ranks exited with 0, but something had gone wrong', found['ended'])
    matches('failed with LS_PEER_LEFT:\n    ' + said, text)


def test_close_with_operations_under_way():
    status, _, errors, found, _ = fails('--rounds', 6, 'pending', 1, 6, ranks=2)
    equal((status, found['verdict']['status'], found['verdict']['blamed']), (1, 'LS_ABORTED', 1))
    matches(r'all ranks exited with 0, but when rank 1 closed a group .* \[LS-RUN-AT-CLOSE\]', errors)


def test_circle():
    status, _, _, found, _ = fails('circle', 0, 6, ranks=3)
    equal((status, found['verdict']['status']), (1, 'LS_DEADLOCK'))


def test_workers_of_a_killed_rank():
    for _ in range(3):
        equal(fails('workers', 1, 6, ranks=3)[0], 137)


def test_timeout_says_what_the_job_waited_for():
    status, _, errors, found, _ = fails('away', 2, 6, options=('--timeout', '3'))
    equal(status, 124)
    verdict = found['verdict']
    equal((verdict['published'], verdict['cause'], verdict['blamed']), (False, 'elsewhere', 2))
    matches(r'(?m)^rank 2 is elsewhere', errors)
    assert 'LS-VERDICT' not in errors, errors
    matches('ranks 0-3 were then killed by SIGTERM', errors)


def test_interrupt_makes_no_false_verdict():
    for _ in range(5):
        status, _, errors, found, _ = fails(signal_first=signal.SIGTERM)
        equal(status, 128 + signal.SIGTERM)
        assert 'LS-VERDICT' not in errors, errors
        matches(r'was killed by SIGTERM \(15\), which lockstep run was sent and passed on', errors)
        equal(found['verdict']['published'], False)


def test_snapshot_goes_to_the_log_dir():
    with tempfile.TemporaryDirectory() as place:
        lockstep('run', '-n', 2, '--log-dir', place, DEMO, 'exit', 1, 3)
        equal(sum(name.endswith('.snapshot') for name in os.listdir(place)), 1)


def test_damaged_snapshots():
    random.seed(1)
    with tempfile.TemporaryDirectory() as place:
        lockstep('run', '-n', 2, '--log-dir', place, DEMO, 'exit', 1, 3)
        path = next(os.path.join(place, name) for name in os.listdir(place) if 'snapshot' in name)
        with open(path, 'rb') as file:
            good = file.read()
        damaged = path + '.damaged'
        for i in range(120):
            data = bytearray(good)
            if i < 20:
                del data[random.randrange(len(data)):]
            else:
                # Mostly near the beginning, where the numbers are.
                for _ in range(random.randint(1, 200)):
                    where = random.randrange(len(data) if i % 2 else 12000)
                    data[where] = random.choice((0, 1, 0x7f, 0x80, 0xff, random.randrange(256)))
            with open(damaged, 'wb') as file:
                file.write(data)
            for option in ([], ['--json']):
                result = subprocess.run([sys.argv[1], 'diagnose', *option, damaged],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                assert result.returncode in (1, 3), (i, result)
                if i < 20:
                    equal(result.returncode, 3)
                if option:
                    json.loads(result.stdout.decode())


def test_rank_that_ends_before_it_comes():
    with demo('exit', 1, 0, env=environment(LOCKSTEP_OPEN_TIMEOUT_MS=600000)) as job:
        status, out, errors = job.end()
    equal(status, 7)
    equal(sorted(out.splitlines()), ['[%d] failed LS_RANK_MISSING' % rank for rank in (0, 2, 3)])
    equal(errors.count('rank 1 (pid'), 4, errors)
    matches(r'rank 1 \(pid \d+\) exited with 7 before it came to the rendezvous', errors)
    assert 'snapshot' not in errors


def has_socket(name):
    with open('/proc/net/unix', 'rb') as file:
        return b'@' + name in file.read().split()


def meeting_place(pid):
    """The abstract socket that a launched process was given, b'' until it runs the program."""
    for entry in read('/proc/%d/environ' % pid).split(b'\0'):
        if entry.startswith(b'LOCKSTEP_RENDEZVOUS=unix:'):
            return entry.partition(b':')[2]
    return b''


def test_launcher_killed_leaves_nothing():
    before = named_memory()
    for wait_for in (None, 'round 1', 'round 64'):
        for _ in range(3):
            with demo(ranks=3) as job:
                if wait_for:
                    job.expect(*lines(wait_for, 3))
                ranks = until(lambda: len(job.ranks()) == 3 and job.ranks(), 'the ranks')
                name = meeting_place(ranks[0])
                assert has_socket(name), name
                job.process.kill()
                job.process.wait()
                until(lambda: not job.processes(), 'everything to end')
                assert not has_socket(name), name
    equal(named_memory() - before, set())


if __name__ == '__main__':
    main(globals())
