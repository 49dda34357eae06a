# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of the program share: running it, watching processes, and counting results.

A test is a function whose name begins with test_. It fails by an exception, also after LIMIT_S seconds.
States are waited for by looking, never by sleeping for a while and hoping."""
import os
import re
import signal
import subprocess
import sys
import time
import traceback
import uuid

LIMIT_S = 120  # of what never ends; no measure
MARK = 'CLI_TEST_MARK'


class Late(Exception):
    pass


def program():
    """The path of lockstep: the first argument, or the environment variable LOCKSTEP_PROGRAM's place."""
    return os.path.abspath(sys.argv[1])


def environment(**more):
    """This process' environment without settings that would change what is tested."""
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(('LOCKSTEP_', 'TORCHELASTIC_')) and k not in ('NO_COLOR', 'RANK')}
    env.update({k: str(v) for k, v in more.items() if v is not None})
    return env


def lockstep(*arguments, env=None, **options):
    """Runs lockstep to its end."""
    options.setdefault('stdin', subprocess.DEVNULL)
    return subprocess.run([program(), *map(str, arguments)], env=env or environment(), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT_S, **options)


def python(code):
    """A command that runs this code, with output that is written at once."""
    return [sys.executable, '-u', '-c', code]


def until(look, what, limit_s=LIMIT_S):
    """Looks until it sees something true, which it returns."""
    end = time.monotonic() + limit_s
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > end:
            raise Late('waited %s s for: %s' % (limit_s, what))
        time.sleep(0.005)  # between two looks only


def named_memory():
    """Names in /dev/shm, without those of UCX, which other tests may use meanwhile."""
    return {name for name in os.listdir('/dev/shm') if not name.startswith('ucx_')}


def environ(pid):
    """Of a process that calls exec just now it is empty for a moment."""
    while True:
        text = read('/proc/%d/environ' % pid)
        if text or state(pid) in ('Z', 'X', None):
            return text


class Job:
    """A running `lockstep run`, all of whose processes carry a mark in their environment."""

    def __init__(self, *arguments, **options):
        self.mark = uuid.uuid4().hex
        env = options.pop('env', None) or environment()
        env[MARK] = self.mark
        options.setdefault('stdin', subprocess.DEVNULL)
        options.setdefault('stdout', subprocess.PIPE)
        options.setdefault('stderr', subprocess.PIPE)
        self.process = subprocess.Popen([program(), *map(str, arguments)], env=env, **options)
        self.pid = self.process.pid
        self.text = b''

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                stream.close()
        until(lambda: not self.processes(), 'all processes of the job to end')

    def processes(self):
        """Process ids of everything the job has started and that has not ended, itself included."""
        return [pid for pid in all_processes() if state(pid) not in ('Z', 'X', None) and
                ('%s=%s' % (MARK, self.mark)).encode() in read('/proc/%d/environ' % pid).split(b'\0')]

    def ranks(self):
        """Process ids of the ranks by rank."""
        found = {}
        for pid in all_processes():
            if parent(pid) != self.pid:
                continue
            for entry in environ(pid).split(b'\0'):
                if entry.startswith(b'RANK='):
                    found[int(entry[5:])] = pid
        return found

    def expect(self, *lines, stream='stdout'):
        """Reads until each of these lines has come; returns all lines so far."""
        wanted = [line.encode() for line in lines]
        out = getattr(self.process, stream)
        os.set_blocking(out.fileno(), False)

        def look():
            part = out.read()
            self.text += part or b''
            return all(line in self.text.split(b'\n') for line in wanted)
        try:
            until(look, 'lines %r' % (lines,))
        except Late as error:
            raise Late('%s; have %r' % (error, self.text)) from None
        os.set_blocking(out.fileno(), True)
        return self.text.decode().splitlines()

    def end(self, limit_s=LIMIT_S):
        """Waits for the end; returns (exit status, output, errors)."""
        out, errors = self.process.communicate(timeout=limit_s)
        return self.process.returncode, (self.text + (out or b'')).decode(), (errors or b'').decode()


def all_processes():
    return [int(name) for name in os.listdir('/proc') if name.isdigit()]


def read(path):
    try:
        with open(path, 'rb') as file:
            return file.read()
    except OSError:
        return b''


def stat(pid):
    """Fields of /proc/PID/stat after the name; [] if there is no such process."""
    return read('/proc/%d/stat' % pid).rpartition(b')')[2].decode().split()


def state(pid):
    fields = stat(pid)
    return fields[0] if fields else None


def parent(pid):
    fields = stat(pid)
    return int(fields[1]) if fields else None


def is_gone(pid):
    """Its first thread may end before the others."""
    fields = stat(pid)
    return not fields or fields[0] == 'X' or (fields[0] == 'Z' and fields[17] == '1')


def equal(seen, wanted, *context):
    if seen != wanted:
        raise AssertionError('%r is not %r; %s' % (seen, wanted, context))


def matches(pattern, text):
    found = re.search(pattern, text)
    if not found:
        raise AssertionError('no %r in: %s' % (pattern, text))
    return found


def main(tests):
    """Runs the functions named test_… of a module, all or those named after the programs' paths."""
    chosen = [argument for argument in sys.argv[1:] if argument.startswith('test_')]
    passed = failed = 0

    def late(*_):
        raise Late('the test took more than %d s' % LIMIT_S)
    signal.signal(signal.SIGALRM, late)
    # The tests may have been started in the background, or by nohup; the launcher leaves ignored what its caller ignores.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    for name, test in list(tests.items()):
        if not name.startswith('test_') or (chosen and name not in chosen):
            continue
        began = time.monotonic()
        signal.alarm(LIMIT_S)
        try:
            test()
            passed += 1
            print('ok %s (%.1f s)' % (name, time.monotonic() - began))
        except Exception:
            failed += 1
            print('not ok %s' % name)
            traceback.print_exc(file=sys.stdout)
        finally:
            signal.alarm(0)
        sys.stdout.flush()
    print('%d passed, %d failed' % (passed, failed))
    sys.exit(1 if failed or not passed else 0)
