#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs the c10d tests that ship with PyTorch with Lockstep, and with gloo beside it.

    run.py                              all tests, both backends
    run.py --backend lockstep --only broadcast
    run.py --only test_name --spawn     ranks that are started as PyTorch's own runs start them

Each test is a tree of processes of its own with a time limit. Results are kept in a folder; --resume goes on there.
The last line says "N passed, N failed, N skipped", of Lockstep unless only gloo was run.
"""

import argparse
import atexit
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time

import table

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(os.path.dirname(_HERE))
# Before the tests are loaded. More threads would not survive a fork, and ranks have few processors anyway.
_SETTINGS = {
    "BACKEND": "gloo",  # see cases.py
    "INIT_METHOD": "file:///",  # each test makes its own; some only run with a file
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": "120",
}
_RANKS = 4  # some tests want exactly so many
_MORE_RANKS = 8  # of tests that say they need more, which PyTorch's own runs skip
_LOG_BYTES = 20000  # what is kept of what a failed test wrote


def _arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="tests whose names contain it")
    parser.add_argument("--backend", choices=["lockstep", "gloo", "both"], default="both")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="tests at a time, each of four ranks or eight")
    parser.add_argument("--limit", type=float, default=180, metavar="SECONDS", help="for one test (180)")
    parser.add_argument("--spawn", action="store_true", help="ranks load PyTorch each for itself: ten times slower")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="each test so many times")
    parser.add_argument("--results", default=os.path.join(_ROOT, "build", "torch-suite"), metavar="FOLDER")
    parser.add_argument("--resume", action="store_true", help="keep the results that are in the folder")
    parser.add_argument("--write-docs", action="store_true", help="write the table into doc/torch-suite.md")
    return parser.parse_args()


# ---- results ----


class Results:
    """{test: {outcome, reason, ranks, seconds}} of one backend, in a file that is whole after each test."""

    def __init__(self, folder, backend, version, resume):
        self.backend = backend
        self.path = os.path.join(folder, f"{backend}.json")
        self.version = version
        self.tests = {}
        if resume and os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                kept = json.load(file)
            if kept["torch"] == version:
                self.tests = kept["tests"]

    def add(self, name, ranks, outcome, reason, seconds):
        before = self.tests.get(name)
        if before is None or before["outcome"] != "fail":  # one failure in many runs is a failure
            self.tests[name] = {
                "outcome": outcome,
                "reason": reason,
                "ranks": ranks,
                "seconds": round(seconds, 2),
            }
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            json.dump({"torch": self.version, "tests": self.tests}, file, indent=1, sort_keys=True)
        os.replace(self.path + ".new", self.path)


# ---- one test ----


class Tree:
    """A test under way: the process that started its ranks leads the group of all of them."""

    def __init__(self, cases, backend, name, ranks, logs, spawn):
        self.backend = backend
        self.name = name
        self.ranks = ranks
        self.start = time.monotonic()
        self.log = os.path.join(logs, f"{backend}-{name}.log")
        self.process = None
        self.pid = self._spawn() if spawn else self._fork(cases)
        self.end = os.pidfd_open(self.pid)

    def _spawn(self):
        own = {"LOCKSTEP_SUITE_BACKEND": self.backend, "LOCKSTEP_SUITE_SPAWN": "1", "WORLD_SIZE": str(self.ranks)}
        environment = {**os.environ, **own}
        with open(self.log, "wb") as log:
            command = [sys.executable, os.path.join(_HERE, "cases.py"), self.name]
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
            )
        return self.process.pid

    def _fork(self, cases):
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            os.setsid()
            log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.environ["WORLD_SIZE"] = str(self.ranks)
            cases.BACKEND = self.backend
            sys.argv = ["cases.py", self.name]
            cases.main()
            code = 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def over(self, limit_s):
        """(outcome, reason, seconds) once it is."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        late = not pid and time.monotonic() - self.start > limit_s
        if not pid and not late:
            return None
        self._end_all()
        if late:
            os.waitpid(self.pid, 0)
        os.close(self.end)
        with open(self.log, encoding="utf-8", errors="replace") as file:
            text = file.read()
        seconds = time.monotonic() - self.start
        if late:
            return "fail", f"not over after {limit_s:g} s\n{text[-_LOG_BYTES:]}", seconds
        try:
            outcome, reason, seconds = json.loads(text.strip().rsplit("\n", 1)[-1])
        except ValueError:
            return "fail", f"ended with {os.waitstatus_to_exitcode(status)}\n{text[-_LOG_BYTES:]}", seconds
        return (*self._judged(outcome, reason, text), seconds)

    def _end_all(self):
        """Ranks that are left over, and the leader if it is still there."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def _judged(self, outcome, reason, text):
        """(outcome, reason), once it is known what was written."""
        if outcome == "fail":
            expected = table.BY_NAME.get(self.name)
            if self.backend == "lockstep" and expected and expected in reason + text:
                return "by name", expected
            return outcome, f"{reason}\n---- output ----\n{text[-_LOG_BYTES:]}"
        if outcome == "skip" and "subprocess log" in reason:
            found = re.search(r"for following reason: (.*)", text)
            return outcome, found.group(1) if found else reason
        return outcome, reason


# ---- all of them ----


def _say(tree, outcome, reason, seconds):
    short = reason.strip().splitlines()[-1 if outcome == "skip" else 0][:90] if reason.strip() else ""
    print(f"{tree.backend:<9} {outcome:<7} {seconds:6.1f} s  {tree.name}  {short}", flush=True)
    if outcome == "fail":
        print(f"          see {tree.log}", flush=True)


def _run_all(arguments, cases, wanted, results, logs):
    under_way = []
    wanted = list(reversed(wanted))
    while wanted or under_way:
        while wanted and len(under_way) < arguments.jobs:
            under_way.append(Tree(cases, *wanted.pop(), logs, arguments.spawn))
        poll = select.poll()
        for tree in under_way:
            poll.register(tree.end, select.POLLIN)
        poll.poll(1000)  # a look at the time limit each second
        for tree in list(under_way):
            result = tree.over(arguments.limit)
            if result is None:
                continue
            under_way.remove(tree)
            if "small world size" in result[1] and tree.ranks == _RANKS:
                wanted.append((tree.backend, tree.name, _MORE_RANKS))
                continue
            results[tree.backend].add(tree.name, tree.ranks, *result)
            _say(tree, *result)
            if result[0] != "fail":
                os.remove(tree.log)


def _loads_lockstep():
    """Whether the package and its library are there; asked by a child, as this process stays without them."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            import lockstep.torch  # noqa: F401

            code = 0
        except ImportError as error:
            print(f"check-torch-suite: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def _load(arguments):
    """(the tests, PyTorch's version); says so aloud if they are not there."""
    scratch = os.path.join(arguments.results, "tmp")
    os.makedirs(scratch, exist_ok=True)
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    os.environ.update(_SETTINGS, WORLD_SIZE=str(_RANKS), TMPDIR=scratch)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_HERE, os.environ.get("PYTHONPATH")]))
    try:
        import cases
        import torch
    except ImportError as error:
        sys.exit(f"check-torch-suite: NOT RUN: {error}. It needs PyTorch, numpy, expecttest and hypothesis")
    if arguments.backend != "gloo" and not _loads_lockstep():
        sys.exit("check-torch-suite: NOT RUN: the package lockstep cannot be loaded")
    if not arguments.spawn and len(os.listdir("/proc/self/task")) != 1:
        sys.exit("check-torch-suite: NOT RUN: loading PyTorch started threads, which a fork would lose; use --spawn")
    return cases, torch.__version__


def main():
    arguments = _arguments()
    backends = ["gloo", "lockstep"] if arguments.backend == "both" else [arguments.backend]
    arguments.results = os.path.abspath(arguments.results)
    logs = os.path.join(arguments.results, "logs")
    os.makedirs(logs, exist_ok=True)
    start = time.monotonic()
    cases, version = _load(arguments)
    results = {name: Results(arguments.results, name, version, arguments.resume) for name in backends}
    wanted = []
    for name in cases.names():
        if arguments.only not in name:
            continue
        reason = cases.skipped_by_decorator(name)
        for backend in backends:
            if name in results[backend].tests:
                continue
            if reason is not None:
                results[backend].add(name, _RANKS, "skip", reason, 0)
            else:
                wanted += [(backend, name, _RANKS)] * arguments.repeat
    _run_all(arguments, cases, wanted, results, logs)
    if arguments.write_docs:
        table.write(os.path.join(_ROOT, "doc", "torch-suite.md"), version, results, cases.CHOOSES_BY_NAME.match)
    sys.exit(table.summary(results, time.monotonic() - start))


if __name__ == "__main__":
    main()
