#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""lockstep run with programs that do not use Lockstep: run_test.py PATH_OF_LOCKSTEP [test_…]"""
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

from harness import (Job, environment, equal, is_gone, lockstep, main, matches, named_memory, parent, program,
                     python, read, state, until)


def test_command_line():
    for arguments, message in (
            (['run'], 'which program'),
            (['run', 'true'], 'how many ranks'),
            (['run', '-n'], "option '-n' needs a value"),
            (['run', '-n', '0', 'true'], 'from 1 to 64'),
            (['run', '-n', '65', 'true'], 'from 1 to 64'),
            (['run', '-n', '2x', 'true'], 'from 1 to 64'),
            (['run', '-n', '-1', 'true'], 'from 1 to 64'),
            (['run', '-x', 'true'], "no option '-x'"),
            (['run', '--timeot', '1', 'true'], "did you mean '--timeout'"),
            (['run', '-n', '1', '--timeout', '0', 'true'], '--timeout needs'),
            (['run', '-n', '1', '--timeout', 'soon', 'true'], '--timeout needs'),
            (['run', '-n', '1', '--no-prefix=3', 'true'], 'takes no value'),
            (['run', '--hosts', 'a:0', 'true'], "--hosts: 'a:0': each host has 1 to 64 ranks"),
            (['run', '--hosts', '-oX=y:1', 'true'], "--hosts: '-oX=y:1' is no host"),
            (['run', '--hosts', 'a:1', '-n', '2', 'true'], '-n is for one host'),
            (['run', '--hosts', 'a:1', '--env', 'A=b', 'true'], '--env needs the name'),
            (['run', '-n', '1', '--ssh', 'ssh -v', 'true'], 'go with --hosts')):
        result = lockstep(*arguments)
        equal((result.returncode, result.stdout), (2, ''), arguments)
        matches(re.escape(message) + r'.*see .lockstep run --help. \[LS-USAGE\]', result.stderr)


def order(size=1, first=0, count=1, host=0, hosts=1, variables=1, words=1, address=b'127.0.0.1', strings=b'/\0A=b\0true\0'):
    return 1, struct.pack('5i2I32s64s32s', first, count, size, host, hosts, variables, words, bytes(32), address, b'') + strings


def test_daemon_refuses_nonsense():
    go = 2, struct.pack('I', 20000)
    for name, frames in (
            ('no frame', [(0, b'')]), ('a frame of the daemon', [(8, bytes(16))]), ('too long', [(1, None)]),
            ('half an order', [(1, bytes(20))]), ('two orders', [order(), order()]),
            ('no ranks', [order(count=0)]), ('too many ranks', [order(size=65, count=65)]),
            ('ranks beyond the last', [order(size=2, first=1, count=2)]), ('a rank below 0', [order(first=-1)]),
            ('a host beyond the last', [order(host=1)]), ('an address without end', [order(address=b'1' * 64)]),
            ('no command', [order(words=0, strings=b'/\0A=b\0')]), ('fewer strings', [order(words=2)]),
            ('more strings', [order(words=2**31)]), ('a string without end', [order(strings=b'/\0A=b\0true')]),
            ('no strings', [order(strings=b'')]), ('go before an order', [go]),
            ('a wrong port', [order(), (2, struct.pack('I', 0))]), ('go twice', [order(words=2, strings=b'/\0A=b\0sleep\0100\0'), go, go]),
            ('a wrong signal', [(3, struct.pack('iI', 0, 1))]), ('another', [(3, struct.pack('iI', 1000, 1))]),
            ('too much credit', [(4, struct.pack('Q', 1))]), ('output of nobody', [(5, struct.pack('iI', 0, 0))]),
            ('too much input', [(6, bytes(2**16 + 1))])):
        sent = b''.join(struct.pack('2I', kind, 2**31 if data is None else len(data)) + (data or b'') for kind, data in frames)
        result = subprocess.run([program(), 'run', '--daemon'], input=sent, env=environment(), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, timeout=20, check=False)
        equal(result.returncode, 1, name, result.stderr)
        assert b'[LS-RUN-CHANNEL]' in result.stderr, (name, result.stderr)
        assert result.stdout.startswith(b'\nlockstep daemon '), (name, result.stdout)
    result = subprocess.run([program(), 'run', '--daemon'], input=b'', env=environment(), stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, timeout=20, check=False)
    equal((result.returncode, result.stderr), (1, b''))


def test_options_of_the_program_are_its_own():
    result = lockstep('run', '-n', 1, 'echo', '-n', '--timeout', 'x')
    equal((result.returncode, result.stdout), (0, '[0] --timeout x\n'))
    result = lockstep('run', '-n', 1, '--', 'echo', '--', 'x')
    equal((result.returncode, result.stdout), (0, '[0] -- x\n'))


def test_environment():
    names = ['RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE', 'GROUP_RANK', 'MASTER_ADDR']
    code = 'import os; print(*[os.environ[n] for n in %r]); ' \
           'print("run", os.environ["TORCHELASTIC_RUN_ID"], os.environ["MASTER_PORT"], ' \
           'os.environ["LOCKSTEP_RENDEZVOUS"]); ' \
           'print("store", os.environ.get("TORCHELASTIC_USE_AGENT_STORE")); ' \
           'print("kept", os.environ["KEPT"])' % names
    env = environment(TORCHELASTIC_USE_AGENT_STORE='True', RANK='7', KEPT='a b', MASTER_PORT='1')
    result = lockstep('run', '-n', 3, *python(code), env=env)
    equal(result.returncode, 0, result.stderr)
    lines = result.stdout.splitlines()
    for rank in range(3):
        assert '[%d] %d 3 %d 3 0 127.0.0.1' % (rank, rank, rank) in lines, lines
        assert '[%d] store None' % rank in lines and '[%d] kept a b' % rank in lines, lines
    same = {line[4:] for line in lines if ' run ' in line}
    equal(len(same), 1, lines)
    run, port, place = matches(r'run (\w+) (\d+) unix:(\S+)', same.pop()).groups()
    assert 1024 <= int(port) <= 65535 and len(run) == 16 and len(place) > 32
    other = lockstep('run', '-n', 1, 'sh', '-c', 'echo $TORCHELASTIC_RUN_ID')
    assert run not in other.stdout


def test_threads_of_openmp():
    """As torchrun: one for each rank, unless the user says how many or there is one rank."""
    for ranks, said, threads in ((2, None, '1'), (2, '3', '3'), (2, '', ''), (1, None, 'unset'), (1, '3', '3')):
        env = environment()
        env.pop('OMP_NUM_THREADS', None)
        if said is not None:
            env['OMP_NUM_THREADS'] = said
        result = lockstep('run', '-n', ranks, 'sh', '-c', 'echo "${OMP_NUM_THREADS-unset}"', env=env)
        equal(sorted(result.stdout.splitlines()), [f'[{rank}] {threads}' for rank in range(ranks)], ranks, said)


def test_output_that_cannot_be_written():
    with open('/dev/full', 'w', encoding='utf-8') as full:
        result = subprocess.run([program(), 'run', '-n', '1', 'echo', 'hi'], stdout=full, stderr=subprocess.PIPE, text=True,
                                env=environment(), stdin=subprocess.DEVNULL, check=False)
    equal(result.returncode, 1, result.stderr)
    matches('standard output.*No space left', result.stderr)


def test_exit_status():
    equal(lockstep('run', '-n', 4, 'true').returncode, 0)
    equal(lockstep('run', '-n', 2, 'sh', '-c', 'exit $((RANK * 7))').returncode, 7)
    result = lockstep('run', '-n', 2, 'sh', '-c', 'kill -SEGV $$')
    equal(result.returncode, 128 + signal.SIGSEGV)
    matches(r'rank \d \(pid \d+\) was killed by SIGSEGV \(11\)', result.stderr)


def test_first_failure_counts():
    with tempfile.TemporaryDirectory() as place:
        fifo = os.path.join(place, 'fifo')
        os.mkfifo(fifo)
        # Rank 0 fails only once rank 1 has ended, which nobody but the launcher's end of it shows.
        code = 'if [ $RANK = 1 ]; then exit 3; fi; read x < %s; exit 4' % fifo
        with Job('run', '-n', 2, 'sh', '-c', code) as job:
            def rank_1_is_zombie():
                ranks = [pid for pid in children(job.pid) if state(pid) == 'Z']
                return len(ranks) == 1
            until(rank_1_is_zombie, 'rank 1 to end')
            with open(fifo, 'w') as file:
                file.write('go\n')
            status, _, errors = job.end()
        equal(status, 3, errors)
        matches(r'rank 1 \(pid \d+\) exited with 3; rank 0 then exited with 4 \[LS-RUN-FAILED\]', errors)


def test_signal_counts_before_exit_status():
    # Both ends are found in one look: that the signal came first is the better guess.
    code = 'echo ready; if [ $RANK = 0 ]; then read x; exit 4; fi; exec sleep 1000'
    with Job('run', '-n', 2, 'sh', '-c', code, stdin=subprocess.PIPE) as job:
        job.expect('[0] ready', '[1] ready')
        ranks = job.ranks()
        os.kill(job.pid, signal.SIGSTOP)
        until(lambda: state(job.pid) == 'T', 'the launcher to stop')
        job.process.stdin.close()
        job.process.stdin = None
        os.kill(ranks[1], signal.SIGKILL)
        until(lambda: is_gone(ranks[0]) and is_gone(ranks[1]), 'both ranks to end')
        os.kill(job.pid, signal.SIGCONT)
        status, _, errors = job.end()
        equal(status, 137, errors)
        matches(r'rank 1 \(pid \d+\) was killed by SIGKILL \(9\); rank 0 then exited with 4', errors)


def children(pid):
    return [child for child in map(int, filter(str.isdigit, os.listdir('/proc')))
            if parent(child) == pid]


def test_zero_is_no_failure():
    with Job('run', '-n', 2, *python('import os, sys\nif os.environ["RANK"] == "0":\n'
                                     '  print("ready"); sys.stdin.read(); print("done")'),
             stdin=subprocess.PIPE) as job:
        job.expect('[0] ready')
        until(lambda: any(state(pid) == 'Z' for pid in children(job.pid)), 'rank 1 to end')
        equal(job.end()[0:2], (0, '[0] ready\n[0] done\n'))


def test_standard_input_goes_to_rank_0():
    result = lockstep('run', '-n', 3, 'sh', '-c', 'echo "<$(cat)>"', stdin=None, input='hello')
    equal(sorted(result.stdout.splitlines()), ['[0] <hello>', '[1] <>', '[2] <>'])


def test_program_that_cannot_run():
    with tempfile.TemporaryDirectory() as place:
        plain = os.path.join(place, 'plain')
        script = os.path.join(place, 'script')
        with open(plain, 'w') as file:
            file.write('x')
        with open(script, 'w') as file:
            file.write('#!/there/is/no/interpreter\n')
        os.chmod(script, 0o755)
        for name, status, message in (('there-is-no-such', 127, 'on PATH'),
                                      ('/there/is/no/such', 127, 'no such file'),
                                      (script, 127, 'interpreter'),
                                      (plain, 126, 'Permission denied'),
                                      (place, 126, 'Permission denied')):
            result = lockstep('run', '-n', 3, name)
            equal((result.returncode, result.stdout), (status, ''), name)
            matches('cannot run .*%s.*LS-RUN-' % message, result.stderr)
            equal(len(result.stderr.splitlines()), 1, result.stderr)
        for name, status in ('', 127), (plain, 126), (place, 126):
            result = lockstep('run', '--hosts', '127.0.0.1:3', name)
            equal((result.returncode, result.stdout), (status, ''), name)
            matches('no rank was started', result.stderr)


HANDLER = '''
import os, signal, sys
def handler(number, frame):
    print("got", signal.Signals(number).name)
    if number == signal.SIGTERM: sys.exit(5)
for name in ("INT", "TERM", "HUP", "USR1", "USR2"):
    signal.signal(getattr(signal, "SIG" + name), handler)
print("ready")
while True: signal.pause()
'''


def test_signals_are_passed_on():
    with Job('run', '-n', 2, *python(HANDLER)) as job:
        job.expect('[0] ready', '[1] ready')
        for name in ('USR1', 'USR2', 'HUP', 'INT', 'TERM'):
            job.process.send_signal(getattr(signal, 'SIG' + name))
            job.expect('[0] got SIG' + name, '[1] got SIG' + name)
        equal(job.end()[0], 5)


def test_second_interrupt_kills():
    with Job('run', '-n', 2, *python(HANDLER)) as job:
        job.expect('[0] ready', '[1] ready')
        job.process.send_signal(signal.SIGINT)
        job.expect('[0] got SIGINT', '[1] got SIGINT')
        job.process.send_signal(signal.SIGINT)
        status, _, errors = job.end()
        equal(status, 130)
        matches(r'second SIGINT; ranks 0, 1 were then killed by SIGKILL \(9\)', errors)


def test_stop_and_go_on():
    with Job('run', '-n', 2, *python(HANDLER)) as job:
        job.expect('[0] ready', '[1] ready')
        ranks = job.ranks().values()
        job.process.send_signal(signal.SIGTSTP)
        until(lambda: [state(pid) for pid in [job.pid, *ranks]] == ['T'] * 3, 'all to stop')
        job.process.send_signal(signal.SIGCONT)
        until(lambda: 'T' not in [state(pid) for pid in [job.pid, *ranks]], 'all to go on')
        job.process.send_signal(signal.SIGTERM)
        equal(job.end()[0], 5)


def test_rank_killed():
    code = 'if [ $RANK = 1 ]; then echo ready; exec sleep 1000; fi; ' \
           'trap "echo told; exit 9" TERM; echo ready; while :; do sleep 0.1; done'
    with Job('run', '-n', 3, 'sh', '-c', code) as job:
        job.expect('[0] ready', '[1] ready', '[2] ready')
        began = time.monotonic()
        os.kill(job.ranks()[1], signal.SIGKILL)
        status, out, errors = job.end()
        took = time.monotonic() - began
        equal(status, 128 + signal.SIGKILL)
        assert took > 2.9, took
        assert '[0] told' in out and '[2] told' in out
        matches(r'rank 1 \(pid \d+\) was killed by SIGKILL \(9\); ranks 0, 2 did not end by '
                r'themselves within 3 s, and then exited with 9 \[LS-RUN-FAILED\]', errors)


def test_survivors_that_end_by_themselves():
    with tempfile.TemporaryDirectory() as place:
        fifo = os.path.join(place, 'fifo')
        os.mkfifo(fifo)
        code = 'if [ $RANK = 1 ]; then echo ready; exec sleep 1000; fi; ' \
               'trap "echo told; exit 9" TERM; echo ready; read x < %s; exit 1' % fifo
        with Job('run', '-n', 2, 'sh', '-c', code) as job:
            job.expect('[0] ready', '[1] ready')
            killed = job.ranks()[1]
            os.kill(killed, signal.SIGKILL)
            until(lambda: is_gone(killed), 'rank 1 to end')
            with open(fifo, 'w') as file:
                file.write('go\n')
            status, out, errors = job.end()
        equal(status, 137)
        assert 'told' not in out, out
        matches(r'was killed by SIGKILL \(9\); rank 0 then exited with 1', errors)


WORKERS = 'sleep 1001 & sleep 1001 & echo ready; wait'


def test_workers_of_a_killed_rank_end():
    with Job('run', '-n', 2, 'sh', '-c', WORKERS) as job:
        job.expect('[0] ready', '[1] ready')
        equal(len(job.processes()), 8, 'launcher, guard, 2 ranks, 4 workers')
        os.kill(job.ranks()[0], signal.SIGKILL)
        equal(job.end()[0], 137)
        equal(job.processes(), [])


def test_worker_left_behind_ends():
    code = 'sh -c "trap \\"echo told; exit\\" TERM; echo ready; while :; do sleep 0.1; done" & exit 0'
    with Job('run', '-n', 1, 'sh', '-c', code) as job:
        status, out, _ = job.end()
        equal((status, 'told' in out), (0, True))
        equal(job.processes(), [])


def test_launcher_killed_leaves_nothing():
    before = named_memory()
    for _ in range(5):
        with Job('run', '-n', 4, 'sh', '-c', WORKERS) as job:
            job.expect('[0] ready', '[1] ready', '[2] ready', '[3] ready')
            equal(len(job.processes()), 14)
            job.process.kill()
            job.process.wait()
            until(lambda: not job.processes(), 'everything to end')
    equal(named_memory() - before, set())


def test_launcher_killed_while_it_starts():
    for _ in range(10):
        with Job('run', '-n', 64, 'sh', '-c', WORKERS) as job:
            until(lambda: len(children(job.pid)) > 8, 'some ranks')
            job.process.kill()
            job.process.wait()
            until(lambda: not job.processes(), 'everything to end')


def guard_of(launcher):
    """It may get its name later than ranks say something."""
    def find():
        return [pid for pid in children(launcher) if read('/proc/%d/comm' % pid) == b'lockstep-guard\n']
    guards = until(find, 'the guard')
    equal(len(guards), 1)
    return guards[0]


def test_guard_killed_changes_nothing():
    with Job('run', '-n', 2, *python(HANDLER)) as job:
        job.expect('[0] ready', '[1] ready')
        os.kill(guard_of(job.pid), signal.SIGKILL)
        job.process.send_signal(signal.SIGTERM)
        equal(job.end()[0], 5)


def test_guard_and_launcher_killed():
    with Job('run', '-n', 4, 'sh', '-c', 'echo ready; exec sleep 1000') as job:
        job.expect('[0] ready', '[1] ready', '[2] ready', '[3] ready')
        for pid in [guard_of(job.pid), job.pid]:
            os.kill(pid, signal.SIGKILL)
        job.process.wait()
        until(lambda: not job.processes(), 'the kernel to end the ranks')


def test_timeout():
    began = time.monotonic()
    result = lockstep('run', '-n', 3, '--timeout', '0.3', 'sleep', 1000)
    took = time.monotonic() - began
    equal(result.returncode, 124)
    assert took >= 0.3, took
    matches(r'still running after 0.3 s \(--timeout\); ranks 0, 1, 2 were then killed by SIGTERM '
            r'\(15\) \[LS-RUN-TIMEOUT\]', result.stderr)
    equal(lockstep('run', '-n', 3, '--timeout', '30', 'true').returncode, 0)


def test_timeout_of_ranks_that_do_not_listen():
    code = 'if [ $RANK = 0 ]; then kill -STOP $$; fi; trap "" TERM; while :; do sleep 0.1; done'
    result = lockstep('run', '-n', 2, '--timeout', '0.3', 'sh', '-c', code)
    equal(result.returncode, 124)
    matches(r'rank 0 was then killed by SIGTERM \(15\); rank 1 was then killed by SIGKILL', result.stderr)


def test_terminal():
    code = 'import os, sys\nif os.environ["RANK"] == "0": print("got", input())\n' \
           'print("waits")\nimport signal\nsignal.pause()'
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(program(), ['lockstep', 'run', '-n', '2', *python(code)], environment(TERM='xterm'))
    text = b''

    def look_for(*parts):
        nonlocal text
        text += os.read(terminal, 4096)
        return all(part in text for part in parts)
    os.write(terminal, b'hello\n')
    until(lambda: look_for(b'[0]\033[0m got hello', b'[0]\033[0m waits', b'[1]\033[0m waits'),
          'the prompt')
    os.write(terminal, b'\x03')
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    equal(os.waitstatus_to_exitcode(status), 128 + signal.SIGINT, text)


def test_closed_standard_descriptors():
    for closed in ('0<&-', '1>&-', '2>&-', '0<&- 1>&- 2>&-'):
        with tempfile.TemporaryDirectory() as place:
            command = '%s run -n 2 --log-dir %s sh -c "echo x; echo y >&2" %s' % (program(), place, closed)
            equal(subprocess.run(['sh', '-c', command], env=environment(),
                                 capture_output=True).returncode, 0, closed)
            equal(read(place + '/rank-1.out'), b'x\n', closed)
            equal(read(place + '/rank-1.err'), b'y\n', closed)


def test_ignored_signals_stay_ignored():
    # As under nohup; what the launcher itself ignores or blocks must not leak into ranks.
    code = 'import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, ' \
           'signal.pthread_sigmask(signal.SIG_BLOCK, []))'
    run = subprocess.run(['sh', '-c', 'trap "" HUP; exec "$@"', 'sh', program(), 'run', '-n', '1',
                          *python(code)], env=environment(), capture_output=True, text=True)
    equal(run.stdout, '[0] True set()\n')
    result = lockstep('run', '-n', 1, 'sh', '-c', 'grep SigIgn /proc/self/status')
    ignored = int(result.stdout.split()[-1], 16)
    equal(ignored >> (signal.SIGPIPE - 1) & 1, 0, 'SIGPIPE')


def test_ignored_ends_of_children():
    # A caller that ignores SIGCHLD: the system must not reap the ranks before the launcher has seen how they ended.
    code = 'import os, signal; print(signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN); exit(int(os.environ["RANK"]) * 7)'
    for where in ('-n', '2'), ('--hosts', '127.0.0.1:2'):
        run = subprocess.run([program(), 'run', *where, *python(code)], env=environment(), capture_output=True, text=True,
                             preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        equal((run.returncode, sorted(run.stdout.splitlines())), (7, ['[0] True', '[1] True']), where, run.stderr)
        matches(r'rank 1 \(pid \d+.*\) exited with 7; rank 0 (had|then) exited with 0 \[LS-RUN-FAILED\]', run.stderr)


def test_ignored_signals_are_not_obeyed():
    # As under nohup, or in the background of a script: two SIGINTs would kill the ranks. The launcher hears signals
    # in the order of their numbers, so SIGUSR1 comes last.
    code = 'import signal\nsignal.signal(signal.SIGUSR1, lambda *_: exit(5))\nprint("ready")\nwhile True: signal.pause()'
    with Job('run', '-n', 1, *python(code), preexec_fn=lambda: [
            signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGHUP)]) as job:
        job.expect('[0] ready')
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):
            job.process.send_signal(number)
            until(lambda: not pending(job.pid), 'the launcher to hear the signal')
        equal(job.end()[0], 5)


def pending(pid):
    """The signals that wait for this process, as a bit mask."""
    return int(dict(line.split(b':') for line in read('/proc/%d/status' % pid).splitlines()).get(b'ShdPnd', b'0'), 16)


def test_limit_of_file_sizes():
    # The log of the rank is beyond the limit: the launcher loses the log, and not its life.
    with tempfile.TemporaryDirectory() as place:
        run = subprocess.run(['sh', '-c', 'ulimit -f 4; exec "$@"', 'sh', program(), 'run', '-n', '1', '--log-dir', place,
                              'sh', '-c', 'grep SigIgn /proc/self/status; head -c 100000 /dev/zero; exit 3'],
                             env=environment(), capture_output=True)
        equal(run.returncode, 3, run.stderr)
        matches('the log of rank 0.*File too large', run.stderr.decode())
        ignored = int(run.stdout.split()[2], 16)
        equal(ignored >> (signal.SIGXFSZ - 1) & 1, 0, 'SIGXFSZ')
        # A job that ends well has failed all the same if its log is not complete.
        run = subprocess.run(['sh', '-c', 'ulimit -f 4; exec "$@"', 'sh', program(), 'run', '-n', '1', '--log-dir', place,
                              'head', '-c', '100000', '/dev/zero'], env=environment(), capture_output=True)
        equal(run.returncode, 1, run.stderr)


def test_no_descriptors_leak_into_ranks():
    with tempfile.TemporaryDirectory() as place:
        result = lockstep('run', '-n', 2, '--log-dir', place, 'sh', '-c', 'ls /proc/self/fd')
    # ls has one more open: the folder it lists.
    equal(sorted(result.stdout.splitlines()), sorted('[%d] %d' % (r, fd) for r in (0, 1) for fd in range(4)))


if __name__ == '__main__':
    main(globals())
