# SPDX-License-Identifier: BSD-3-Clause
"""Programs as processes that are forked from one which has imported PyTorch: each import takes more than a second.

popen() starts a program as subprocess.Popen would, in a session of its own: a script of Python, a module (`-m`), or
`lockstep run`. It has its own arguments, environment, folder and descriptors, and loads Lockstep itself, which the
server must not have loaded. What it starts of Python is forked in the same way (forked.py): by subprocess, as torchrun
does, by multiprocessing's "spawn", and by `lockstep run`. Some variables are read when PyTorch is imported, or earlier;
with other values of these than the server has, another server is needed.

As a program this file is the server: it takes jobs from the socket whose descriptor is its argument, and from its
children, says how they end, and ends with the socket. With `--run COMMAND` it is the server of this command alone, and
ends as that does.
"""

import contextlib
import gc
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys

_READ_EARLY = (
    *("ATEN_", "CUDA_", "GLIBC_", "GOMP_", "KMP_", "LANG", "LC_", "LD_", "MALLOC_", "MKL_", "OMP_", "OPENBLAS_"),
    *("PYTHON", "PYTORCH_", "TORCH_"),
)
_READ_LATE = ("PYTHONUNBUFFERED", "TORCH_NCCL_")
# Of a server. A launcher, and the ranks that it forks, load the library twice.
_TUNABLES = ("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=16384")
_JOB_BYTES = 1 << 17  # the longest; the socket takes no more in one message
_NUMBER_BYTES = 4
_DESCRIPTORS = 32


# ---- for tests ----


class Server:
    """Its first job is what starts it, so that tests which fork nothing pay nothing."""

    def __init__(self):
        self.process = None

    def popen(self, command, environment, **options):
        """command: as can_fork() wants it; options: those of subprocess.Popen for streams, text and folder."""
        if self.process is None:
            self._start(environment)
        return Forked(command, env=environment, server=self.socket, **options)

    def _start(self, environment):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours = {name: value for name, value in environment.items() if name != "PYTHONUNBUFFERED"}
        ours.setdefault(*_TUNABLES)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, os.path.abspath(__file__), str(theirs.fileno())],
                env=ours,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the tests
            )


def early(environment):
    """The variables that a server cannot change for its children."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_EARLY) and not name.startswith(_READ_LATE) and (name, value) != _TUNABLES
    }


def of_python(words):
    """(options of the interpreter, what follows them), None if this is another command. A forked process knows -u; the
    server has the others."""
    if words[0] != sys.executable:
        return None
    count = next((i for i, word in enumerate(words[1:]) if word not in ("-B", "-u")), len(words) - 1)
    return words[1 : 1 + count], words[1 + count :]


def can_fork(words):
    """Whether PyTorch would be imported by this command, or by what it starts, as far as one sees here."""
    words = [os.fspath(word) for word in words]
    if launcher(words):
        return can_fork(words[words.index(sys.executable) :]) if sys.executable in words else False
    _, rest = of_python(words) or ((), ())
    if not rest:
        return False
    return rest[0].endswith(".py") or rest[0] == "-c" or rest[:2] == ["-m", "torch.distributed.run"]


def starts_several(words):
    """Whether a command that can be forked starts ranks."""
    return bool(launcher(words)) or words[1] == "-m"


def launcher(words):
    """Of the command `lockstep run`: the library that has it as a function (forked_run.c), if it is there."""
    if os.path.basename(words[0]) != "lockstep" or words[1:2] != ["run"]:
        return None
    library = os.path.join(os.path.dirname(words[0]), "liblockstep-forked-run.so")
    return library if os.path.exists(library) else None


class Forked(subprocess.Popen):
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
        job = {
            "words": [os.fspath(word) for word in args],
            "environment": dict(os.environ if env is None else env),
            "folder": os.path.abspath(cwd or os.curdir),
            "numbers": [0, 1, 2, *pass_fds],
        }
        try:
            socket.send_fds(self._server, [pickle.dumps(job)], [theirs, *streams, *pass_fds])
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


def _of_this_user(end):
    return struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1] == os.geteuid()


class _Children:
    """The processes that the server has forked."""

    def __init__(self, *sockets):
        self.sockets = sockets
        self.poll = select.poll()
        self.pids = {}  # descriptor of a process → (its number, where to say how it ended)
        self.reports = {}  # where to say it → descriptor of the process
        for one in sockets:
            self.poll.register(one, select.POLLIN)

    def add(self, pid, report):
        _tell(report, pid)
        process = os.pidfd_open(pid)
        self.pids[process], self.reports[report] = (pid, report), process
        self.poll.register(process, select.POLLIN)
        self.poll.register(report, 0)  # an error: the other end is closed

    def look(self, descriptor):
        """A process has ended, or the one that has started it has."""
        if descriptor in self.reports:
            signal.pidfd_send_signal(self.reports[descriptor], signal.SIGKILL)
            self.poll.unregister(descriptor)
        elif descriptor in self.pids:
            pid, report = self.pids.pop(descriptor)
            del self.reports[report]
            self.poll.unregister(descriptor)
            with contextlib.suppress(KeyError):
                self.poll.unregister(report)
            _tell(report, os.waitpid(pid, 0)[1])
            os.close(descriptor)
            os.close(report)

    def leave(self):
        """In a child."""
        for one in self.sockets:
            one.close()
        for process, (_, report) in self.pids.items():
            os.close(process)
            os.close(report)


def _take(descriptors, numbers):
    """In a child: the descriptors get these numbers. No other is open."""
    high = [_above(descriptor) for descriptor in descriptors]
    for descriptor, number in zip(high, numbers):
        os.dup2(descriptor, number)
        os.close(descriptor)


def _above(descriptor):
    import fcntl

    number = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 500)
    os.close(descriptor)
    return number


def _receive(end):
    """(a job, its descriptors), or None at the end of the socket."""
    message, descriptors, _, _ = socket.recv_fds(end, _JOB_BYTES, _DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
    return (message, descriptors) if message else None


def _received(children, descriptor, server, listener):
    if descriptor == server.fileno():
        return _receive(server) or os._exit(0)
    if descriptor != listener.fileno():
        return children.look(descriptor)
    with listener.accept()[0] as end:
        return _receive(end) if _of_this_user(end) else None


def _serve(server, listener):
    """Returns the job in each child."""
    children = _Children(server, listener)
    while True:
        descriptor = children.poll.poll()[0][0]  # one: the numbers of the others may get another meaning
        received = _received(children, descriptor, server, listener)
        if not received:
            continue
        message, (report, *descriptors) = received
        pid = os.fork()
        if pid == 0:
            os.close(report)
            children.leave()
            job = pickle.loads(message)
            _take(descriptors, job["numbers"])
            return job
        children.add(pid, report)
        for one in descriptors:
            os.close(one)


def _command_alone(listener, words):
    """The same for the server of one command: that is its first job."""
    server, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        theirs.close()
        return _serve(server, listener)
    for end in (server, listener):
        end.close()
    code = Forked(words, theirs).wait()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _check_that_it_may_fork():
    if os.listdir("/proc/self/task") != [str(os.getpid())] or "lockstep" in sys.modules:
        sys.exit("fork_server.py: PyTorch's import has started a thread, or loaded Lockstep; so nothing can be forked")


def _main():
    import forked

    forked.begin_as_forked()
    gc.disable()  # nothing of the imports is garbage
    import torch
    import torch._dynamo  # of which DistributedDataParallel needs a part
    import torch.distributed
    import torch.distributed.launcher.api  # noqa: F401  most of torchrun

    _check_that_it_may_fork()
    gc.enable()
    gc.freeze()  # a child's end would else touch, and so copy, all objects of PyTorch
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind("")  # a name that the kernel chooses
        listener.listen(64)
        forked.serve_at(listener.getsockname(), early(os.environ))
        if sys.argv[1] == "--run":
            job = _command_alone(listener, sys.argv[2:])
        else:
            job = _serve(socket.socket(fileno=int(sys.argv[1])), listener)
    forked.run(job)


if __name__ == "__main__":
    _main()
