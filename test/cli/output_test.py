#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""lockstep run: what ranks write, and who reads it: output_test.py PATH_OF_LOCKSTEP [test_…]"""
import os
import re
import signal
import subprocess
import sys
import tempfile

from harness import Job, environment, equal, is_gone, lockstep, main, matches, program, python, read, until

def test_prefixes():
    code = 'echo out; echo err >&2; printf end'
    result = lockstep('run', '-n', 2, 'sh', '-c', code)
    equal(sorted(result.stdout.splitlines()), ['[0] end', '[0] out', '[1] end', '[1] out'])
    equal(sorted(result.stderr.splitlines()), ['[0] err', '[1] err'])
    assert result.stdout.endswith('\n')
    result = lockstep('run', '-n', 2, '--no-prefix', 'sh', '-c', code)
    equal(sorted(re.findall('out\n|end|.', result.stdout)), ['end', 'end', 'out\n', 'out\n'])
    result = lockstep('run', '-n', 2, 'sh', '-c', code, env=environment(LOCKSTEP_COLOR='always'))
    assert '\033[31m[0]\033[0m out' in result.stdout and '\033[32m[1]\033[0m out' in result.stdout
    equal(lockstep('run', '-n', 1, 'true').stdout, '')


WRITER = r'''
import os, random
rank = int(os.environ["RANK"])
random.seed(rank)
fd = 1 + rank % 2
data = b"".join(b"%d:%d:%s\n" % (rank, i, b"x" * random.choice((0, 1, 60, 300, 9000)))
                for i in range(3000))
data += b"%d:last" % rank
while data:
    sent = os.write(fd, data[:random.randint(1, 20000)])
    data = data[sent:]
'''


def test_lines_are_whole():
    result = lockstep('run', '-n', 8, *python(WRITER))
    equal(result.returncode, 0)
    check_lines(result.stdout.splitlines(), (0, 2, 4, 6))
    check_lines(result.stderr.splitlines(), (1, 3, 5, 7))


def test_lines_of_both_streams_are_whole():
    # Both end in one pipe, as they do on a terminal.
    run = subprocess.run([program(), 'run', '-n', '4', *python(WRITER)], env=environment(),
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    equal(run.returncode, 0)
    check_lines(run.stdout.splitlines(), range(4))


def check_lines(lines, ranks):
    expected = dict.fromkeys(ranks, 0)
    for line in lines:
        found = re.fullmatch(r'\[(\d)\] (\d):(\d+|last)(:x*)?', line)
        assert found and found[1] == found[2], 'mixed: %r' % line[:200]
        rank = int(found[1])
        wanted = 'last' if expected[rank] == 3000 else str(expected[rank])
        equal(found[3], wanted, rank)
        assert wanted == 'last' or len(found[4]) - 1 in (0, 1, 60, 300, 9000), len(found[4])
        expected[rank] += 1
    equal(expected, dict.fromkeys(ranks, 3001))


def test_long_lines():
    code = 'import os; os.write(1, b"a" * 700000); os.write(1, b"b\\n")'
    equal(lockstep('run', '-n', 1, *python(code)).stdout, '[0] ' + 'a' * 700000 + 'b\n')
    code = 'import sys; sys.stdout.write("a" * 3000000 + "b\\nc\\n")'
    lines = lockstep('run', '-n', 1, *python(code)).stdout.splitlines()
    assert all(line.startswith('[0] ') and len(line) <= (1 << 20) + 4 for line in lines)
    equal(''.join(line[4:] for line in lines), 'a' * 3000000 + 'bc')
    equal(lines[-1], '[0] c')


def test_slow_reader_slows_ranks():
    lines = 200000
    code = 'import sys\nfor i in range(%d): sys.stdout.write("x" * 99 + "\\n")' % lines
    with Job('run', '-n', 2, *python(code)) as job:
        def blocked():
            ranks = job.ranks()
            return len(ranks) == 2 and all(
                read('/proc/%d/wchan' % pid) in (b'pipe_write', b'anon_pipe_write') or
                read('/proc/%d/syscall' % pid).startswith(b'1 ') for pid in ranks.values())
        until(blocked, 'both ranks to wait in write')
        pages = int(read('/proc/%d/statm' % job.pid).split()[1])
        assert pages * os.sysconf('SC_PAGE_SIZE') < 40 << 20, 'the launcher holds %d pages' % pages
        status, out, _ = job.end()
        equal((status, out.count('\n')), (0, 2 * lines))


def test_reader_that_leaves():
    with Job('run', '-n', 2, 'yes') as job:
        equal(job.process.stdout.readline()[3:], b' y\n')
        job.process.stdout.close()
        job.process.stdout = None
        equal(job.end()[0], 128 + signal.SIGPIPE)


def unread(*options):
    """A launcher that cannot write all that its rank says, and its standard error, which nobody reads."""
    reader, writer = os.pipe()
    code = 'head -c 100000 /dev/zero | tr "\\0" x >&2; echo over $$'
    command = [program(), 'run', '-n', '1', *options, 'sh', '-c', code]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writer, text=True)
    os.close(writer)
    rank = int(process.stdout.readline().removeprefix('[0] over '))
    until(lambda: is_gone(rank), 'the rank to end')
    return process, reader


def test_who_reads_nothing_holds_up_no_time_limit():
    process, reader = unread('--timeout', '0.5')
    equal(process.wait(60), 124)
    os.close(reader)


def test_who_reads_nothing_holds_up_no_signal():
    process, reader = unread()
    process.send_signal(signal.SIGTERM)
    equal(process.wait(60), 0)
    os.close(reader)


def test_log_dir():
    with tempfile.TemporaryDirectory() as place:
        logs = os.path.join(place, 'new')
        code = 'echo out $RANK; printf "err %s" $RANK >&2'
        for _ in range(2):  # the second run replaces the logs of the first
            equal(lockstep('run', '-n', 2, '--log-dir', logs, 'sh', '-c', code).returncode, 0)
        equal(sorted(os.listdir(logs)), ['rank-0.err', 'rank-0.out', 'rank-1.err', 'rank-1.out'])
        equal(read(logs + '/rank-1.out'), b'out 1\n')
        equal(read(logs + '/rank-0.err'), b'err 0')
        result = lockstep('run', '-n', 2, '--log-dir', logs + '/rank-0.out', 'true')
        equal(result.returncode, 1)
        matches("cannot write to %s/rank-0.out: Not a directory.*LS-RUN-LOG" % re.escape(logs), result.stderr)


def test_traps_in_the_log_dir():
    """A name that others can guess may be a link to something dear, or a file or pipe of theirs."""
    def refused(trap, why, *arguments):
        with tempfile.TemporaryDirectory() as place:
            dear, name = os.path.join(place, 'dear'), os.path.join(place, 'rank-1.out')
            with open(dear, 'w', encoding='ascii') as file:
                file.write('dear')
            trap(dear, name)
            arguments = [place if a == 'DIR' else name if a == 'FILE' else a for a in arguments]
            result = lockstep('run', '-n', 2, *arguments, 'echo', 'lost')
            equal(result.returncode, 1)
            matches(why.replace('DIR', re.escape(place)), result.stderr)
            equal(read(dear), b'dear')

    def other_user(dear, name):
        os.symlink(dear, name)
        os.lchown(name, 65534, 65534)

    refused(os.symlink, 'cannot write to DIR/rank-1.out: it is a link', '--log-dir', 'DIR')
    refused(os.link, 'cannot write to DIR/rank-1.out: it is a link', '--log-dir', 'DIR')
    refused(lambda _, name: os.mkfifo(name), 'cannot write to DIR/rank-1.out: ', '--log-dir', 'DIR')
    refused(lambda _, name: os.mkfifo(name), 'cannot keep the traces in ', '--trace', 'FILE')
    if os.geteuid() == 0:
        refused(other_user, 'cannot keep the traces in .*: it is a link', '--trace', 'FILE')
        refused(lambda _, name: (os.close(os.open(name, os.O_CREAT)), os.chown(name, 65534, 65534)),
                "cannot write to DIR/rank-1.out: it is another user's file", '--log-dir', 'DIR')


def test_trace_through_an_own_link():
    with tempfile.TemporaryDirectory() as place:
        os.symlink('target', place + '/link')
        lockstep('run', '-n', 1, '--trace', place + '/link', 'true')
        equal(sorted(os.listdir(place)), ['link', 'target'])


def test_no_prefix_changes_nothing():
    """Not even at the end of output that has no newline there, or none for long."""
    for where in ['-n', '1'], ['--hosts', '127.0.0.1:1']:
        for text in b'no newline', b'a\n\nb', b'', b'\n', b'\0\r\xff', b'x' * 3000000, b'x' * 3000000 + b'\ny':
            with tempfile.NamedTemporaryFile() as file:
                file.write(text)
                file.flush()
                run = subprocess.run([program(), 'run', *where, '--no-prefix', 'cat', file.name], env=environment(),
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
            equal((run.returncode, len(run.stdout), run.stdout == text), (0, len(text), True), text[:20], run.stderr)


if __name__ == '__main__':
    main(globals())
