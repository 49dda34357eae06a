# SPDX-License-Identifier: BSD-3-Clause
"""Scripts as processes that are forked from one which has imported PyTorch: each import takes more than a second.

popen() starts a script as subprocess.Popen would, in a session of its own. The script runs as `__main__`, with its own
arguments, environment, folder and standard streams, and loads Lockstep itself, which the server must not have loaded.
Some variables are read when PyTorch is imported, or earlier; with other values of these than the server has, no script
can be forked.

As a program this file is the server: it takes jobs from the socket whose descriptor is its argument, says how they end,
and ends with the socket.
"""

import atexit
import contextlib
import gc
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import types

_READ_EARLY = (
    *("ATEN_", "CUDA_", "GLIBC_", "GOMP_", "KMP_", "LANG", "LC_", "LD_", "MALLOC_", "MKL_", "OMP_", "OPENBLAS_"),
    *("PYTHON", "PYTORCH_", "TORCH_"),
)
_JOB_BYTES = 1 << 17  # the longest; the socket takes no more in one message
_NUMBER_BYTES = 4


# ---- for tests ----


class Server:
    """Its first job is what starts it, so that tests which fork nothing pay nothing."""

    def __init__(self):
        self.process = None
        self.early = {}

    def can_start(self, environment):
        return self.process is None or _early(environment) == self.early

    def popen(self, command, environment, **options):
        """command: [sys.executable, script, …]; options: those of subprocess.Popen for streams, text and folder."""
        if self.process is None:
            self._start(environment)
        return _Forked(command, env=environment, server=self.socket, **options)

    def _start(self, environment):
        self.early = _early(environment)
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, os.path.abspath(__file__), str(theirs.fileno())],
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the tests
            )


def _early(environment):
    return {name: value for name, value in environment.items() if name.startswith(_READ_EARLY)}


class _Forked(subprocess.Popen):
    """A child of the server, which says how it ended. All else is that of subprocess.Popen."""

    def __init__(self, command, server, **options):
        self._server = server
        super().__init__(command, **options)

    def _execute_child(
        self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell,
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *rest
    ):  # fmt: skip
        streams = [own if own != -1 else number for number, own in enumerate((p2cread, c2pwrite, errwrite))]
        report, theirs = os.pipe()
        self._report = open(report, "rb", buffering=0)
        job = pickle.dumps((args[1:], dict(env), os.path.abspath(cwd or os.curdir)))
        try:
            socket.send_fds(self._server, [job], [*streams, theirs])
        finally:
            os.close(theirs)
            self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)
        self.pid = self._told()
        self._child_created = True

    def _told(self):
        number = self._report.read(_NUMBER_BYTES)
        if not number:
            raise RuntimeError(f"the server that forks scripts has ended; what it started was {self.args}")
        return int.from_bytes(number, sys.byteorder)

    def _try_wait(self, wait_flags):
        if wait_flags & os.WNOHANG and not select.select([self._report], [], [], 0)[0]:
            return 0, 0
        return self.pid, self._told()

    def _internal_poll(self, _deadstate=None, **_):
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)
        return self.returncode


# ---- the server ----


def _tell(report, number):
    with contextlib.suppress(BrokenPipeError):  # nobody wants to know
        os.write(report, number.to_bytes(_NUMBER_BYTES, sys.byteorder))


def _serve(server):
    """Returns the job in each child."""
    running = {}  # descriptor of a process → (its number, where to say how it ended)
    while True:
        ready = select.select([server, *running], [], [])[0]
        for process in set(ready) - {server}:
            pid, report = running.pop(process)
            _tell(report, os.waitpid(pid, 0)[1])
            os.close(process)
            os.close(report)
        if server not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(server, _JOB_BYTES, 4, socket.MSG_CMSG_CLOEXEC)
        if not message:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            server.close()
            for process, (_, report) in running.items():
                os.close(process)
                os.close(report)
            for number, stream in enumerate(descriptors[:3]):
                os.dup2(stream, number)
            for descriptor in descriptors:
                os.close(descriptor)
            return pickle.loads(message)
        *streams, report = descriptors
        _tell(report, pid)
        running[os.pidfd_open(pid)] = pid, report
        for stream in streams:
            os.close(stream)


def _run(arguments, environment, folder):
    """As `python` runs a script. An exception is shown as from there, without this function."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = arguments
    sys.path[0] = os.path.dirname(os.path.realpath(arguments[0]))
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = arguments[0]
    try:
        with open(arguments[0], "rb") as file:
            code = compile(file.read(), arguments[0], "exec", dont_inherit=True)
        exec(code, main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__.tb_next
        sys.excepthook(type(error), error.with_traceback(sys.last_traceback), sys.last_traceback)
        sys.exit(1)


def _end_as_interrupted():
    """An interrupt that nobody has caught ends Python as the signal would."""
    if isinstance(getattr(sys, "last_value", None), KeyboardInterrupt):
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


def _check_that_it_may_fork():
    if os.listdir("/proc/self/task") != [str(os.getpid())] or "lockstep" in sys.modules:
        sys.exit("fork_server.py: PyTorch's import has started a thread, or loaded Lockstep; so nothing can be forked")


if __name__ == "__main__":
    atexit.register(_end_as_interrupted)  # the first that is registered is the last that is called
    import torch
    import torch._dynamo  # of which DistributedDataParallel needs a part
    import torch.distributed  # noqa: F401

    _check_that_it_may_fork()
    gc.freeze()  # a child's end would else touch, and so copy, all objects of PyTorch
    _run(*_serve(socket.socket(fileno=int(sys.argv[1]))))
