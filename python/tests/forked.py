# SPDX-License-Identifier: BSD-3-Clause
"""What a process does that fork_server.py has forked: it runs its command as `python` or `lockstep` would, and lets the
server fork what it starts itself of Python."""

import atexit
import ctypes
import fcntl
import io
import multiprocessing.popen_spawn_posix as spawn
import os
import runpy
import signal
import socket
import subprocess
import sys
import types

import fork_server


class _Server:
    """Where the server listens, the variables that it cannot change, and the names of the modules that it has imported."""

    address = None
    early = None
    imported = ()


# ---- what it starts ----


class _Popen(subprocess.Popen):
    """In the place of subprocess.Popen."""

    def __new__(cls, args, *more, **options):
        if cls is not _Popen:
            return object.__new__(cls)
        words = [os.fsdecode(word) for word in args] if isinstance(args, (list, tuple)) else []
        if not _can_fork(words, options.get("env")):
            return _started(args, *more, **options)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
            server.connect(_Server.address)
            process = fork_server.Forked(words, server, **options)
        _children[process.pid] = process
        return process


def _can_fork(words, environment):
    if not words or _Server.address is None:
        return False
    return fork_server.can_fork(words) and fork_server.early(environment or os.environ) == _Server.early


_started = subprocess.Popen
_waitid, _spawn, _poll = os.waitid, spawn.util.spawnv_passfds, spawn.Popen.poll
_children = {}  # by its number, each process that the server has forked for this one: it is none of this one's children


def _waitid_of_any(kind, number, options):
    if kind != os.P_PID or number not in _children:
        return _waitid(kind, number, options)
    code = _children[number].wait()
    return os.waitid_result((number, os.getuid(), signal.SIGCHLD, abs(code), os.CLD_EXITED if code >= 0 else os.CLD_KILLED))


def _spawnv_passfds(path, words, descriptors):
    if b"--multiprocessing-fork" not in map(os.fsencode, words):
        return _spawn(path, words, descriptors)
    return _Popen(words, pass_fds=tuple(map(int, descriptors))).pid


def _poll_of_any(self, flag=os.WNOHANG):
    if self.pid not in _children:
        return _poll(self, flag)
    process = _children[self.pid]
    self.returncode = process.poll() if flag == os.WNOHANG else process.wait()
    return self.returncode


def begin_as_forked():
    """In the server, before it imports PyTorch."""
    atexit.register(_end_as_interrupted)  # the first that is registered is the last that is called
    atexit.register(_leave_imported)
    subprocess.Popen = _Popen
    spawn.util.spawnv_passfds = _spawnv_passfds
    spawn.Popen.poll = _poll_of_any
    os.waitid = _waitid_of_any


def serve_at(address, early):
    """Also in the server, when it has imported all."""
    # What C++ has to do at the end of the process is left out, too, as far as it is that of PyTorch's libraries.
    libc = ctypes.CDLL(None)
    libc.on_exit(libc._exit, None)
    folder = os.path.dirname(os.path.dirname(sys.modules["torch"].__file__))
    modules = {name: module for name, module in sys.modules.items() if not name.startswith("torch.distributed")}
    modules = {name: module for name, module in modules.items() if (getattr(module, "__file__", None) or "").startswith(folder)}
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(modules))
    _Server.address, _Server.early, _Server.imported = address, early, list(modules)


def _leave_imported():
    """At the end of Python: what the server has imported is neither taken apart, nor so copied. Only PyTorch's groups are,
    with all that the program has made."""
    for name in _Server.imported:
        sys.modules[name] = None  # as the interpreter does
    ctypes.CDLL(None).fflush(None)


def _end_as_interrupted():
    """An interrupt that nobody has caught ends Python as the signal would."""
    if isinstance(getattr(sys, "last_value", None), KeyboardInterrupt):
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


# ---- lockstep run ----


class _Rank(ctypes.Structure):
    _fields_ = [("words", ctypes.POINTER(ctypes.c_char_p)), ("environment", ctypes.POINTER(ctypes.c_char_p))]


def _strings(pointer):
    found = []
    while pointer[len(found)] is not None:
        found.append(pointer[len(found)])
    return list(map(os.fsdecode, found))


def _launch(library, words):
    """Is the launcher, and ends as that does. Returns in each rank, which the launcher has forked, the words to run."""
    run = ctypes.PyDLL(library).forked_run
    rank = _Rank()
    arguments = (ctypes.c_char_p * (len(words) + 1))(*map(os.fsencode, words), None)
    code = run(len(words), arguments, ctypes.byref(rank))
    if not rank.words:
        ctypes.CDLL(None).fflush(None)
        os._exit(code & 0xFF)
    ctypes.pythonapi.PyOS_AfterFork_Child()
    _set_environment(dict(variable.split("=", 1) for variable in _strings(rank.environment)))
    words = _strings(rank.words)
    if fork_server.of_python(words) is None:
        os.execvp(words[0], words)
    _leave_what_exec_leaves()
    return words


def _leave_what_exec_leaves():
    """Descriptors that are closed then, and the launcher's handlers of signals."""
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if fcntl.fcntl(number, fcntl.F_GETFD) & fcntl.FD_CLOEXEC:
                os.close(number)
        except OSError:
            pass  # that of the folder
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        handler = signal.getsignal(number)
        if handler in (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler):
            signal.signal(number, handler)


# ---- python ----


def _set_environment(environment):
    os.environ.clear()
    os.environ.update(environment)


def _unbuffer():
    for name, number in (("stdout", 1), ("stderr", 2)):
        old = getattr(sys, name)
        raw = open(number, "wb", buffering=0, closefd=False)
        new = io.TextIOWrapper(raw, old.encoding, old.errors, newline="\n", write_through=True)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def run(job):
    """An exception is shown as from `python`, without these functions."""
    os.setsid()
    os.chdir(job["folder"])
    _set_environment(job["environment"])
    words = job["words"]
    library = fork_server.launcher(words)
    if library:
        words = _launch(library, words)
    options, words = fork_server.of_python(words) or ((), words)
    if os.environ.get("PYTHONUNBUFFERED") or "-u" in options:
        _unbuffer()
    elif os.isatty(1):
        sys.stdout.reconfigure(line_buffering=True)
    try:
        if words[0] == "-m":
            sys.argv, sys.path[0] = words[1:], os.getcwd()
            runpy._run_module_as_main(words[1])
        elif words[0] == "-c":
            sys.argv, sys.path[0] = ["-c", *words[2:]], ""
            exec(compile(words[1], "<string>", "exec", dont_inherit=True), _main().__dict__)
        else:
            sys.argv, sys.path[0] = words, os.path.dirname(os.path.realpath(words[0]))
            with open(words[0], "rb") as file:
                code = compile(file.read(), words[0], "exec", dont_inherit=True)
            exec(code, _main(words[0]).__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__.tb_next
        sys.excepthook(type(error), error.with_traceback(sys.last_traceback), sys.last_traceback)
        sys.exit(1)


def _main(path=None):
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    if path:
        module.__file__ = path
    return module
