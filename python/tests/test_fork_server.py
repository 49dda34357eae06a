# SPDX-License-Identifier: BSD-3-Clause
"""A script that is forked cannot tell it from one that is started, and neither can who started it."""

import json
import os
import signal
import subprocess
import sys

import fork_server
import processes
import pytest

TELLS = """
import json, os, signal, sys, threading
if __name__ == "__main__":
    print(json.dumps({
        "main": [__file__, os.path.basename(vars(sys.modules["__main__"])["__file__"])],
        "arguments": sys.argv,
        "path": sys.path,
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "input": sys.stdin.read(),
        "session": [os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()],
        "descriptors": [n for n in map(int, os.listdir("/proc/self/fd")) if os.path.exists(f"/proc/self/fd/{n}")],
        "threads": [threading.active_count(), len(os.listdir("/proc/self/task"))],
        "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)],
        "buffered": [sys.stdout.line_buffering, sys.stdout.write_through],
        "loaded": "lockstep" in sys.modules,
    }))
    print("to standard error", file=sys.stderr)
"""
ENDS = """
import atexit, os, signal, sys
atexit.register(print, "at exit")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it runs in the background ignore it
def fails():
    raise KeyError("no such sample")
def kill(number):
    sys.stdout.flush()
    os.kill(os.getpid(), number)
{"returns": int, "exit": lambda: sys.exit(5), "text": lambda: sys.exit("a reason"), "raises": fails,
 "killed": lambda: kill(signal.SIGKILL), "interrupted": lambda: kill(signal.SIGINT)}[sys.argv[1]]()
"""
ALL = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


@pytest.fixture
def script(tmp_path):
    def write(text):
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "script.py").write_text(text)
        return [sys.executable, str(tmp_path / "folder" / "script.py")]

    return write


def forked(command, **options):
    process = processes.popen(command, **options)
    assert isinstance(process, fork_server.Forked)
    return process


def both(command, given="", **options):
    """Exit code and output of one that is forked, then of one that is started."""
    for process in (forked(command, **options, **ALL), processes.popen(command, anew=True, **options, **ALL)):
        yield *process.communicate(given, timeout=processes.LIMIT_S), process.returncode


def test_it_has_all_that_is_its_own(script, tmp_path):
    env = processes.environment(ONE="1", HOME=str(tmp_path))
    told = both([*script(TELLS), "an argument", "--option"], "from standard input", cwd=str(tmp_path), env=env)
    (ours, ours_err, _), (theirs, theirs_err, _) = told
    assert ours_err == theirs_err == "to standard error\n"
    ours, theirs = json.loads(ours), json.loads(theirs)
    assert (ours["environment"], ours["folder"], ours["input"]) == (env, str(tmp_path), "from standard input")
    assert ours == theirs


def told_by_ranks(script, tmp_path, options):
    """What one rank under `lockstep run` tells of itself, forked and started."""
    words = [processes.program("lockstep"), "run", "-n", "1", sys.executable, *options, *script(TELLS)[1:], "an argument"]
    env = processes.environment(HOME=str(tmp_path))
    env.pop("PYTHONUNBUFFERED", None)
    for output, errors, code in both(words, "from standard input", cwd=str(tmp_path), env=env):
        assert (code, errors) == (0, "[0] to standard error\n"), errors
        yield json.loads(output.removeprefix("[0] "))


@pytest.mark.parametrize("options", [[], ["-u"]], ids=["plain", "unbuffered"])
def test_a_rank_of_the_launcher_has_all_that_is_its_own(script, tmp_path, options):
    ours, theirs = told_by_ranks(script, tmp_path, options)
    for told in (ours, theirs):
        for name in ("LOCKSTEP_RENDEZVOUS", "LOCKSTEP_RUN_NOTES", "MASTER_PORT", "TORCHELASTIC_RUN_ID"):
            assert told["environment"].pop(name)  # of this start alone
    assert ours["environment"]["WORLD_SIZE"] == "1" and ours["input"] == "from standard input"
    assert ours == theirs


SPAWNS = """
import multiprocessing, os, signal, subprocess, sys
def spawned(how):
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(3)
if __name__ == "__main__":
    processes = [multiprocessing.get_context("spawn").Process(target=spawned, args=(how,)) for how in ("exits", "killed")]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    started = subprocess.run([sys.executable, "-c", "import sys; print(sys.argv, flush=True); sys.exit(4)", "word"])
    print([process.exitcode for process in processes], started.returncode, "torch" in sys.modules)
"""


def test_what_it_starts_is_forked_too(script):
    ours, theirs = both(script(SPAWNS))
    assert ours == ("['-c', 'word']\n[3, -9] 4 True\n", "", 0)
    assert theirs == ("['-c', 'word']\n[3, -9] 4 False\n", "", 0)


def test_what_it_starts_ends_with_it(script):
    """As it is no child of the one that has started it, its death is seen otherwise."""
    text = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'print(1, flush=True); input()']).wait()"
    process = forked(script(text), **ALL)
    assert process.stdout.readline() == "1\n"
    process.kill()
    assert process.wait(processes.LIMIT_S) == -signal.SIGKILL
    assert process.stdout.read() == ""  # the other one has the same output


CODES = {"returns": 0, "exit": 5, "text": 1, "raises": 1, "killed": -signal.SIGKILL, "interrupted": -signal.SIGINT}


@pytest.mark.parametrize("how, code", CODES.items())
def test_its_end(script, how, code):
    ours, theirs = both([*script(ENDS), how])
    assert ours == theirs and ours[2] == code


def test_others_go_on_when_one_is_killed(script):
    command = script("import sys; print(sys.stdin.readline(), end='', flush=True); print(sys.stdin.readline(), end='')")
    first, second = forked(command, **ALL), forked(command, **ALL)
    for process in (first, second):
        process.stdin.write("begun\n")
        process.stdin.flush()
        assert process.stdout.readline() == "begun\n" and process.poll() is None
    first.kill()
    assert first.wait(processes.LIMIT_S) == first.returncode == -signal.SIGKILL
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(0.01)
    assert second.communicate("on\n", timeout=processes.LIMIT_S)[0] == "on\n" and second.returncode == 0


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "OMP_NUM_THREADS", "LD_LIBRARY_PATH", "TORCH_SHOW_CPP_STACKTRACES"])
def test_what_is_read_when_pytorch_is_imported_is_not_changed(script, name):
    command = script("import os, sys; print(os.environ[sys.argv[1]])") + [name]
    assert forked(command, **ALL).communicate(timeout=processes.LIMIT_S)
    process = processes.start(command, **{name: "2"})
    assert not isinstance(process, fork_server.Forked)
    assert processes.finish(process) == (0, "2\n")


def test_the_end_of_the_server_is_told(script):
    server = fork_server.Server()
    process = server.popen(script("import sys; sys.stdin.read()"), processes.environment(), **ALL)
    os.killpg(server.process.pid, signal.SIGKILL)
    try:
        with pytest.raises(RuntimeError, match="the server that forks scripts has ended"):
            process.wait(processes.LIMIT_S)
    finally:
        process.returncode = 0  # so that nobody asks again
        process.stdin.close()
        server.process.wait()
