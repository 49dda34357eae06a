#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""lockstep diagnose --stacks, and the line of Python in reports, with ranks in Python and in C:
stacks_test.py PATH_OF_LOCKSTEP PATH_OF_RANKS_DEMO PATH_OF_LIBLOCKSTEP [test_…]
STACKS_PYTHONS names interpreters, between colons, that are tried in place of the one that runs this."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from harness import Job, environment, equal, lockstep, main, matches, program, read, state, until

DEMO, LIBRARY = (os.path.abspath(path) for path in sys.argv[2:4])
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'stacks_job.py')
PYTHONS = os.environ.get('STACKS_PYTHONS', sys.executable).split(':')
PLACE = tempfile.TemporaryDirectory()
SCRIPT = os.path.join(PLACE.name, 'größe.py')
shutil.copy(SOURCE, SCRIPT)
with open(SOURCE, encoding='utf-8') as file:
    LINES = {m[1]: i for i, m in enumerate((re.search(r'# here (\w+)$', line) for line in file), 1) if m}


def python_job(mode, python=PYTHONS[0], ranks=3, before=(), **settings):
    job = Job('run', '-n', ranks, *before, python, SCRIPT, LIBRARY, mode, env=environment(**settings))
    job.expect(*('[%d] ready' % rank for rank in range(ranks)))
    return job


def diagnose(what, *prefix):
    result = subprocess.run([*prefix, program(), 'diagnose', '--stacks', '--json', str(what)], env=environment(),
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    return json.loads(result.stdout)['jobs'][0]


def frames(thread, language='python'):
    """As "function:line", those of the test's own file for Python."""
    return ['%s:%d' % (frame['function'].rpartition('.')[2], frame['line']) for frame in thread[language]['frames']
            if language == 'c' or frame['file'] == SCRIPT]


def here(*functions):
    return ['%s:%d' % (name, LINES['module' if name == '<module>' else name]) for name in functions]


def inner(thread):
    return frames(thread)[0].partition(':')[0] if frames(thread) else None


def test_every_thread():
    for python in PYTHONS:
        with python_job('threads', python) as job:
            found = diagnose(job.pid)
            threads = found['ranks'][1]['threads']
            equal(sum(thread['main'] for thread in threads), 1)
            equal(threads[0]['main'], True)
            matches('^lade_stapel:%d$' % LINES['lade_stapel'], frames(threads[0])[0])
            seen = {tuple(frames(thread)) for thread in threads}
            for wanted in (here('stay', 'generate', 'innen', 'füttern'), here('stay', 'wait_inside', 'wait_outside')):
                assert any(list(one[:len(wanted)]) == wanted for one in seen), (python, wanted, seen)
            deep = [thread for thread in threads if here('recurse')[0] in frames(thread)]
            equal([(len(thread['python']['frames']), thread['python']['more']) for thread in deep], [(64, True)])
            equal({(thread['python']['problem'], thread['python']['moving']) for thread in threads}, {('', False)})
            roles = [thread['role'] for thread in threads]
            assert "Lockstep's watch" in roles, roles
            equal(frames(found['ranks'][0]['threads'][0]), here('meet', '<module>'))
            matches('^in barrier #3', found['ranks'][0]['threads'][0]['role'])
            matches('wait_words|futex', ' '.join(frames(found['ranks'][0]['threads'][0], 'c')))
            for thread in threads:
                assert thread['c']['frames'] and thread['c']['problem'] == '', thread
            matches('pause', ' '.join(frames(threads[0], 'c')))


def test_text():
    with python_job('threads') as job:
        text = lockstep('diagnose', '--stacks', job.pid, env=environment()).stdout
        matches(r'rank 1 is elsewhere .*; its main thread is in lade_stapel at größe.py:%d' % LINES['lade_stapel'], text)
        matches(r'(?m)^  stacks of rank 1, pid \d+\n    thread \d+ \(main, [^,\n]+\), asleep: last was barrier #1', text)
        matches(r'(?m)^     Python:\n      \S*stay at \S+/größe.py:%d\n      \S*generate at ' % LINES['stay'], text)
        matches(r"\n    thread \d+ \(.*\), asleep: Lockstep's watch\n     C:\n      ", text)
        equal(lockstep('diagnose', '--stacks', SOURCE).returncode, 2)


def test_elsewhere_is_told_with_its_line():
    line = LINES['lade_stapel']
    for python in PYTHONS:
        with python_job('threads', python, LOCKSTEP_PATIENCE_MS=300) as job:
            job.text = b''
            for said in (until_said(job, r'LS-WAITING'), lockstep('diagnose', job.pid).stdout):
                matches(r'rank 1 is elsewhere \(its last operation was barrier #2, .*; its main thread is in lade_stapel at '
                        r'größe.py:%d; it is sleeping' % line, said)
                matches(r'rank 1: elsewhere, last was .*; its main thread is in lade_stapel at größe.py:%d \(pid' % line, said)
            found = json.loads(lockstep('diagnose', '--json', job.pid).stdout)['jobs'][0]
            equal([rank['python'] for rank in found['ranks']],
                  [None, 'its main thread is in lade_stapel at größe.py:%d' % line, None])


def until_said(job, pattern):
    out = job.process.stderr
    os.set_blocking(out.fileno(), False)

    def look():
        job.text += out.read() or b''
        return re.search(pattern, job.text.decode()) and job.text.decode()
    return until(look, pattern)


def test_locks_in_a_cycle():
    with python_job('locks', LOCKSTEP_PATIENCE_MS=300) as job:
        job.text = b''
        until_said(job, r"rank 1 is elsewhere .*; its main thread is in \S*cross at größe.py:%d; its threads \d+ and \d+ are "
                   "in a deadlock of the program's own mutexes" % LINES['cross'])
        until_said(job, r'It can never continue, and no time limit helps')
        found = lockstep('diagnose', job.pid, env=environment(LOCKSTEP_PATIENCE_MS=60000))
        equal(found.returncode, 1)
        matches(r'verdict: rank 1 is elsewhere', found.stdout)
        pid = job.ranks()[1]
        matches(r'^%d\* its main thread is in cross' % pid, lockstep('diagnose', '--python', pid).stdout)

        def look():
            threads = diagnose(job.pid)['ranks'][1]['threads']
            locked = [thread for thread in threads if thread['lock'] and thread['lock']['deadlock']]
            return len(locked) == 3 and sorted(locked, key=lambda thread: (thread['lock']['owner'] == thread['tid'],
                                                                           not thread['main']))
        one, other, alone = until(look, 'two threads in a cycle, and one by itself')
        equal([one['lock']['owner'], other['lock']['owner']], [other['tid'], one['tid']])
        equal(one['main'], True)
        equal(frames(one)[:2], here('cross', 'cross_locks'))
        text = lockstep('diagnose', '--stacks', job.pid, env=environment()).stdout
        matches(r'(?m)^    deadlock: thread %d \(main, .*\), thread %d \(.*\) wait for each other\'s mutexes and can '
                'never continue' % (one['tid'], other['tid']), text)
        matches(r'(?m)^    deadlock: thread %d \(.*\) waits for a mutex that it holds itself, and can never continue$' %
                alone['tid'], text)
        matches(r'(?m)^     waits for the mutex .*0x[0-9a-f]+.*, which thread %d \(.*\) holds$' % other['tid'], text)


def test_a_rank_that_locked_itself_up_is_told_at_once():
    """Long before it counts as late."""
    with python_job('locks', LOCKSTEP_PATIENCE_MS=600000) as job:
        job.text = b''
        until_said(job, r'(?s)rank 1 is elsewhere .*mutexes.*It can never continue, .*LS-WAITING')
    with python_job('threads', LOCKSTEP_PATIENCE_MS=4000) as job:
        job.text = b''
        said = until_said(job, r'LS-WAITING')
        matches(r'rank 1 is elsewhere .* while ranks 0 and 2 wait in barrier #3 for [4-9]\.\d s', said)
        matches(r'Nothing has failed yet. If the rank is only slow, wait', said)


def test_the_thread_that_called():
    with python_job('caller', LOCKSTEP_PATIENCE_MS=300) as job:
        job.text = b''
        reports = until_said(job, r'LS-WAITING'), lockstep('diagnose', job.pid).stdout
        found = diagnose(job.pid)
        caller = next(thread['tid'] for thread in found['ranks'][1]['threads'] if inner(thread) == 'stay')
        for said in reports:
            matches(r'rank 1 is elsewhere .*; its thread %d is in stay at größe.py:%d' % (caller, LINES['stay']), said)


def test_a_snapshot_has_the_line():
    """Of a job that its user ends, because it hangs."""
    for number in (signal.SIGTERM, signal.SIGINT):
        with python_job('threads', LOCKSTEP_PATIENCE_MS=300) as job:
            job.text = b''
            until_said(job, r'LS-WAITING')
            job.process.send_signal(number)
            os.set_blocking(job.process.stderr.fileno(), True)
            said = job.end()[2]
            path = matches(r'(\S+\.snapshot)', said)[1]
            try:
                matches(r'rank 1 is elsewhere .*; its main thread is in lade_stapel at größe.py:%d' % LINES['lade_stapel'],
                        lockstep('diagnose', path).stdout)
            finally:
                os.unlink(path)


def test_the_answer_to_ranks():
    """One line for each process that runs Python, and none for others."""
    with python_job('threads') as job:
        rank = job.ranks()[1]
        found = lockstep('diagnose', '--python', rank, job.pid, '%d:1' % rank)
        line = '%d its main thread is in lade_stapel at größe.py:%d' % (rank, LINES['lade_stapel'])
        equal((found.returncode, found.stdout, found.stderr), (0, '%s\n%s\n' % (line, line), ''))
        for wrong in ('x', '1x', '0', '1:', '1:x', '-1', '99999999999'):
            equal(lockstep('diagnose', '--python', wrong).returncode, 2, wrong)


def test_who_runs():
    """What is told of a thread that calls and returns all the time is so."""
    for python in PYTHONS:
        with python_job('spin', python) as job:
            spin = 'spin:%d' % LINES['spin']
            for _ in range(10):
                found = diagnose(job.pid)
                thread = next(thread for thread in found['ranks'][1]['threads'] if not thread['main'] and thread['role'] == '')
                seen = [frame.partition(':')[0] for frame in frames(thread)]
                assert seen in (['call_next', 'spin'], ['spin'], []), (python, seen)
                if 'call_next' in seen:
                    equal(frames(thread)[1], spin)
                assert seen or thread['python']['problem'], thread


def test_no_python():
    with Job('run', '-n', 3, DEMO, 'away', 1, 6, env=environment(LOCKSTEP_PATIENCE_MS=300)) as job:
        said = until_said(job, r'LS-WAITING')
        assert 'its main thread' not in said, said
        found = diagnose(job.pid)
        for rank in found['ranks']:
            main_thread = rank['threads'][0]
            equal((main_thread['python']['frames'], main_thread['python']['problem'], rank['python']), ([], '', None))
            names = [(frame['function'], os.path.basename(frame['file'])) for frame in main_thread['c']['frames']]
            assert ('main', 'ranks_demo.c') in names, names


def tracers(job):
    """States of all threads of the ranks, and who traces them."""
    seen = set()
    for pid in job.ranks().values():
        for tid in os.listdir('/proc/%d/task' % pid):
            text = read('/proc/%d/task/%s/status' % (pid, tid)).decode()
            seen.add((matches(r'State:\t(\w)', text)[1], matches(r'TracerPid:\t(\d+)', text)[1]))
    return seen


def test_nobody_is_disturbed():
    """A job that computes goes on, and one that is stopped stays so."""
    with Job('run', '-n', 3, DEMO, '--rounds', 200000) as job:
        job.expect('[0] round 16')
        looks = 0
        while job.process.poll() is None and looks < 20:
            lockstep('diagnose', '--stacks', job.pid)
            looks += 1
        equal((job.end()[0], job.end()[2]), (0, ''))
        assert looks > 0
    with Job('run', '-n', 3, DEMO, 'stop', 1, 6) as job:
        job.expect('[0] round 4')
        stopped = until(lambda: next((pid for pid in job.ranks().values() if state(pid) == 'T'), None), 'rank 1 to stop')
        text = lockstep('diagnose', '--stacks', job.pid).stdout
        matches(r'thread %d \(main, .*\), stopped' % stopped, text)
        matches(r'raise|kill|pause', text)
        equal(state(stopped), 'T')
        equal({tracer for _, tracer in tracers(job)}, {'0'})


def test_who_may_not_be_looked_into():
    """Not even by the same user: but its trace is held by others, and so its state is told."""
    before = [] if os.geteuid() else ['setpriv', '--bounding-set', '-sys_ptrace', '--inh-caps', '-sys_ptrace']
    with python_job('hidden', before=before) as job:
        result = subprocess.run([*before, program(), 'diagnose', '--stacks', str(job.ranks()[0])], env=environment(),
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        matches(r'stacks of rank 1, pid \d+\n    the system does not let this user look into the process.*\n    thread \d+ \(main, '
                r'.*\n    thread', result.stdout)
        matches(r'stacks of rank 0, pid \d+\n    thread ', result.stdout)
        matches(r'(?s)rank 1 .* last was barrier #1', result.stdout)


if __name__ == '__main__':
    if os.geteuid() != 0 and read('/proc/sys/kernel/yama/ptrace_scope').strip() not in (b'', b'0'):
        print('skipped: the system does not let one process look into another')
        sys.exit(77)
    main(globals())
