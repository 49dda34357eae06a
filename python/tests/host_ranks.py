# SPDX-License-Identifier: BSD-3-Clause
"""The pool of ranks whose processes are on several hosts, which are network namespaces (tools/hosts).

On each host this file runs as a program: it imports PyTorch once, and forks a rank for each connection. The pool holds
the first connection; when that ends, the program does.
"""

import gc
import importlib
import os
import signal
import socket
import sys
from multiprocessing.connection import Connection, wait

import pool
import processes

SKIPPED = 77
_TOOL = os.path.join(processes.ROOT, "tools", "hosts")
_HOSTS = 2


class NoHosts(Exception):
    """This system lets nobody make namespaces."""


class _Process:
    """What Rank asks of its process, which is no child of this one. Its parent says in a file how it ended."""

    def __init__(self, pipe, messages):
        self.pid, self.code = pipe.recv(), messages + ".code"
        self.handle = os.pidfd_open(self.pid)

    def is_alive(self):
        return not wait([self.handle], 0)

    def join(self, seconds=None):
        wait([self.handle], seconds)

    def kill(self):
        signal.pidfd_send_signal(self.handle, signal.SIGKILL)

    @property
    def exitcode(self):
        with open(self.code, encoding="ascii") as file:
            return int(file.read())


class HostRank(pool.Rank):
    def __init__(self, path, messages):
        self.messages = messages
        self.pipe = _connect(path)
        self.pipe.send(messages)
        self.process = _Process(self.pipe, messages)


class HostPool(pool.Pool):
    """Of two hosts. on() says which ranks are where."""

    def __init__(self, folder, secret):
        super().__init__(folder)
        self.places = ()
        settings = {"LOCKSTEP_SECRET_FILE": secret, "MASTER_ADDR": "198.18.0.1"}
        program = [sys.executable, os.path.abspath(__file__), folder]
        self.hosts = processes.start([_TOOL, str(_HOSTS), *program], **settings)
        lines = []
        while sum(line.endswith(": ready\n") for line in lines) < _HOSTS:
            lines.append(self.hosts.stdout.readline())
            if not lines[-1]:
                told, code = "".join(lines), self.hosts.wait()
                raise NoHosts(told) if code == SKIPPED else AssertionError(told)
        self.held = [_connect(self._path(host)) for host in range(_HOSTS)]

    def on(self, *places):
        """The pool, whose rank 0 is on host places[0] from now on, and so forth."""
        if places != self.places:
            super().close()
            self.world, self.places = None, places
        return self

    def close(self):
        super().close()
        for connection in self.held:
            connection.close()
        self.hosts.communicate()

    def _path(self, host):
        return os.path.join(self.folder, f"host{host}")

    def _make(self, number):
        return HostRank(self._path(self.places[number]), self._messages(number))


def _connect(path):
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(path)
        return Connection(end.detach())


# ---- on each host ----


def _be_rank(connection):
    """A child that waits for the rank, which is its own child, and says how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    messages = connection.recv()
    rank = os.fork()
    if rank == 0:
        connection.send(os.getpid())
        file = os.open(messages, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, 1)
        import worker

        worker.serve(connection, messages)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1])
    with open(messages + ".code", "w", encoding="ascii") as file:
        file.write(str(code))
    os._exit(0)


def main(folder):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.join(folder, f"host{os.environ['HOST']}"))
        listener.listen()
        gc.disable()  # nothing of the imports is garbage
        for name in pool.PRELOAD:
            importlib.import_module(name)
        gc.enable()
        gc.freeze()  # else ranks would look through, and so copy, all of it
        print("ready", flush=True)
        held = listener.accept()[0]
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while held not in wait([held, listener]):
            connection = Connection(listener.accept()[0].detach())
            if os.fork() == 0:
                held.close()
                listener.close()
                _be_rank(connection)
            connection.close()


if __name__ == "__main__":
    main(sys.argv[1])
