# SPDX-License-Identifier: BSD-3-Clause
"""lockstep run --hosts with a daemon or a launcher that does not run: daemon_test.py PATH_OF_LOCKSTEP PATH_OF_RANKS_DEMO
[test_…]"""
import os
import signal
import socket
import sys
import tempfile
import time

from harness import Job, all_processes, environ, environment, equal, main, matches, parent, read, state, until

LIMIT_MS = 2000
HERE = 'run', '--hosts', '127.0.0.1:2'


def endless(limit_ms=LIMIT_MS):
    return Job(*HERE, sys.argv[2], env=environment(LOCKSTEP_UNREACHABLE_MS=limit_ms))


def daemon_of(job):
    return next(pid for pid in all_processes() if parent(pid) == job.pid and b'--daemon' in read('/proc/%d/cmdline' % pid))


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state(pid) == 'T', 'process %d to stop' % pid)


def test_stopped_daemon():
    with endless() as job:
        job.expect('[0] round 16', '[1] round 16')
        began = time.monotonic()
        stop(daemon_of(job))
        status, _, errors = job.end()
        took = time.monotonic() - began
        equal(status, 1, errors)
        matches(r'host 127.0.0.1 \(ranks 0-1\): nothing has come from its daemon for 1\.\d s; whether its ranks still run '
                r'is not known\. After 2 s .*\[LS-RUN-HOST-SILENT\]', errors)
        matches(r'host 127.0.0.1 \(ranks 0-1\): nothing has come from its daemon for [23]\.\d s, so the job has failed.*'
                r'\[LS-RUN-HOST-GIVEN-UP\]', errors)
        matches(r'rank 0 \(pid \d+ on host 127.0.0.1\) was lost with the connection to the host; '
                r'rank 1 was .*lost.*\[LS-RUN-FAILED\]', errors)
        assert took > LIMIT_MS / 1000, took
        until(lambda: not job.processes(), 'the ranks to end')


def test_daemon_that_goes_on():
    with endless(20000) as job:
        job.expect('[0] round 16', '[1] round 16')
        daemon = daemon_of(job)
        stop(daemon)
        os.set_blocking(job.process.stderr.fileno(), False)
        text = b''

        def has(word):
            nonlocal text
            text += job.process.stderr.read() or b''
            return word in text
        until(lambda: has(b'LS-RUN-HOST-SILENT'), 'the report')
        os.kill(daemon, signal.SIGCONT)
        until(lambda: has(b'LS-RUN-HOST-HEARD'), 'the next report')
        job.process.send_signal(signal.SIGTERM)
        until(lambda: job.process.poll() is not None, 'the end')
        assert not has(b'GIVEN-UP'), text
        equal(job.process.returncode, 128 + signal.SIGTERM, text)


def test_stopped_launcher():
    """Time in which the launcher was stopped does not count, even if the daemon goes on later than the launcher."""
    with endless(4000) as job:
        job.expect('[0] round 16', '[1] round 16')
        daemon = daemon_of(job)
        stop(daemon)
        # So that a ping is on its way for which no answer can come.
        end = time.monotonic() + 1
        until(lambda: time.monotonic() > end, 'the next ping')
        stop(job.pid)
        end = time.monotonic() + 4.5
        until(lambda: time.monotonic() > end, 'more than the limit to pass')
        os.kill(job.pid, signal.SIGCONT)
        # The launcher looks before the daemon can answer.
        before = switches(job.pid)
        until(lambda: switches(job.pid) > before + 1, 'the launcher to look')
        os.kill(daemon, signal.SIGCONT)
        job.process.send_signal(signal.SIGTERM)
        status, _, errors = job.end()
        equal(status, 128 + signal.SIGTERM, errors)
        assert 'GIVEN-UP' not in errors, errors


def test_late_answer():
    """What stands for ssh says nothing. The address is for documentation, and no host has it."""
    with tempfile.NamedTemporaryFile('w') as ssh:
        ssh.write('exec sleep 1000\n')
        ssh.flush()
        with Job('run', '--hosts', '192.0.2.1:2', '--ssh', 'sh %s' % ssh.name, 'true') as job:
            matches(r'host 192.0.2.1: has not answered for 5 s; the launcher waits for up to 60 s \[LS-RUN-HOST-AWAITED\]',
                    job.process.stderr.readline().decode())
            job.process.send_signal(signal.SIGINT)
            equal(job.end()[0], 128 + signal.SIGINT)


def test_silent_callers():
    """Connections of the ranks' user to the daemon's socket that send nothing, as of ranks that are stopped."""
    with endless(5000) as job:
        job.expect('[0] round 16', '[1] round 16')
        rank = next(pid for pid in all_processes() if parent(pid) == daemon_of(job) and b'RANK=' in read('/proc/%d/environ' % pid))
        notes = next(entry[19:] for entry in environ(rank).split(b'\0') if entry.startswith(b'LOCKSTEP_RUN_NOTES='))
        callers = []
        for _ in range(100):
            callers.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            callers[-1].connect(b'\0lockstep-run:' + notes)
        job.expect('[0] round 4096')
        job.process.send_signal(signal.SIGTERM)
        status, _, errors = job.end()
        equal(status, 128 + signal.SIGTERM, errors)
        for caller in callers:
            caller.close()


def switches(pid):
    """How often the process has waited."""
    return int(dict(line.split(b':') for line in read('/proc/%d/status' % pid).splitlines())[b'voluntary_ctxt_switches'])


if __name__ == '__main__':
    main(globals())
