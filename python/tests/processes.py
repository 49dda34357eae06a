# SPDX-License-Identifier: BSD-3-Clause
"""Scripts as processes of their own: started as users start them, or forked (fork_server.py), ended at a time limit, and
what they wrote."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import namedtuple

import fork_server

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIMIT_S = 180  # several times what a loaded machine needs

Ended = namedtuple("Ended", "code text")
_servers = {}  # the variables that one cannot change → it

_LAUNCHED = re.compile(r"^(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_\w+|LOCKSTEP_RENDEZVOUS|TORCHELASTIC_\w+)$")


def environment(**more):
    """Without what a launcher of the tests themselves has set."""
    kept = {name: value for name, value in os.environ.items() if not _LAUNCHED.match(name)}
    path = os.pathsep.join(filter(None, [os.path.join(ROOT, "python"), os.environ.get("PYTHONPATH")]))
    return {**kept, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **{name: str(value) for name, value in more.items()}}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def program(name):
    """Of the build that is tested, which lies beside its library, or of the virtual environment; None if missing."""
    folders = [os.environ.get("LD_LIBRARY_PATH", ""), os.path.dirname(sys.executable), os.environ.get("PATH", "")]
    return shutil.which(name, path=os.pathsep.join(filter(None, folders)))


def popen(command, anew=False, env=None, **options):
    """As subprocess.Popen, in a session of its own, so that its ranks can be ended with it. What imports PyTorch is forked
    from a process that has done so, unless it is to be started `anew`, as users do. Where that process must be another one
    than that of the first command, because of the environment, it pays for a command that starts ranks."""
    env = env or environment()
    if not anew and fork_server.can_fork(command):
        early = frozenset(fork_server.early(env).items())
        if early in _servers or not _servers or fork_server.starts_several(command):
            return _servers.setdefault(early, fork_server.Server()).popen(command, env, **options)
    return subprocess.Popen(command, env=env, start_new_session=True, **options)


def start(command, anew=False, **env):
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
    return popen(command, anew, environment(**env), text=True, errors="replace", **streams)


def descendants(pid):
    """It and all that it has started: torchrun gives each rank a session of its own, out of reach of its group's signals."""
    found = [pid]
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                for child in file.read().split():
                    found += descendants(int(child))
    except FileNotFoundError:
        pass  # it has ended
    return found


def kill(process):
    for pid in descendants(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def finish(process):
    try:
        text = process.communicate(timeout=LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        kill(process)
        raise AssertionError(f"not over after {LIMIT_S} s; it wrote:\n{process.communicate()[0]}") from None
    return Ended(process.returncode, text)


def run(command, **env):
    return finish(start(command, **env))


def run_until(pattern, command, **env):
    """What it wrote up to the line with `pattern`, after which it is killed: for those that do not always end by
    themselves."""
    process = start(command, **env)
    limit = threading.Timer(LIMIT_S, kill, [process])
    limit.start()
    text = ""
    with process:
        for line in process.stdout:
            text += line
            if re.search(pattern, line):
                kill(process)
                break
        limit.cancel()
    assert re.search(pattern, text), f"it did not write {pattern!r} within {LIMIT_S} s, but:\n{text}"
    return text


def run_ranks(script, ranks=(0, 1), world_size=None, port=None, anew=False, **env):
    """A process of `script` for each of `ranks`, as by hand. One that ends before all have ended may be killed."""
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port or free_port(), "WORLD_SIZE": world_size or len(ranks)}
    processes = [start([sys.executable, str(script)], anew, **common, RANK=rank, **env) for rank in ranks]
    try:
        return [finish(process) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
