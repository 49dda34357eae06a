# SPDX-License-Identifier: BSD-3-Clause
"""The tests of c10d that ship with PyTorch, as a class that can be run with any backend.

Their decorators compare the module's BACKEND with names of backends when the module is loaded, so it is loaded as
gloo's; then BACKEND becomes the name of the backend that is tested, which is what the ranks open their group with.

Ranks are forked from a process that has loaded PyTorch and has no other threads. That is what makes a test take
one second instead of ten; `spawn` makes them as PyTorch's own runs do. run.py sets the environment that all need.
"""

import atexit
import json
import multiprocessing
import os
import re
import sys
import time
import unittest

BACKEND = os.environ.get("LOCKSTEP_SUITE_BACKEND", "lockstep")
SPAWN = os.environ.get("LOCKSTEP_SUITE_SPAWN", "") == "1"

from torch.testing._internal.common_distributed import DistTestCases  # noqa: E402
from torch.testing._internal.distributed import distributed_test as suite  # noqa: E402

FEATURES = ("ddp", "subgroup")

# The bodies of these ask whether BACKEND is "gloo" in order to choose between CPU and GPU, and know no third answer.
# They see "gloo" there, and run on a group of the backend that is tested all the same.
CHOOSES_BY_NAME = re.compile("^test_accumulate_gradients_no_sync")


def enter(backend, test_name=""):
    """From here on the tests are of this backend, in this process."""
    if backend == "lockstep":
        import lockstep.torch  # noqa: F401

        for feature in FEATURES:
            DistTestCases.backend_feature[feature].add(backend)
    suite.BACKEND = "gloo" if CHOOSES_BY_NAME.match(test_name) else backend
    suite.INIT_METHOD = os.environ["INIT_METHOD"]


class _ForkedRank(multiprocessing.get_context("fork").Process):
    """Ends like a process that was started from a shell: what was registered with atexit runs."""

    def run(self):
        atexit._clear()  # of the parent: it would remove the temporary folders of the test
        try:
            super().run()
        finally:
            atexit._run_exitfuncs()


class DistTest(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    """One rank, or the process that started the ranks."""

    def setUp(self):
        super().setUp()
        if SPAWN:
            self._spawn_processes()
        else:
            self._start_processes(_ForkedRank)

    @classmethod
    def _run(cls, rank, test_name, file_name, pipe, **kwargs):
        enter(BACKEND, test_name)
        if suite.BACKEND != BACKEND:
            _open_others_as(BACKEND)
        super()._run(rank, test_name, file_name, pipe, **kwargs)


def _open_others_as(backend):
    """The first group of the process is of this backend, whatever the test calls it."""
    opened = suite.dist.init_process_group

    def open_group(*args, **kwargs):
        kwargs["backend"] = backend
        suite.dist.init_process_group = opened
        return opened(*args, **kwargs)

    suite.dist.init_process_group = open_group


def names():
    return unittest.TestLoader().getTestCaseNames(DistTest)


def skipped_by_decorator(name):
    """The reason, or None if the test is to be run."""
    method = getattr(DistTest, name)
    return str(method.__unittest_skip_why__) if getattr(method, "__unittest_skip__", False) else None


def run(name):
    """One test with its ranks: (outcome, what it says about it, seconds)."""
    result = unittest.TestResult()
    start = time.monotonic()
    DistTest(name).run(result)
    seconds = time.monotonic() - start
    if result.skipped:
        return "skip", result.skipped[0][1], seconds
    wrong = result.errors + result.failures
    if wrong:
        return "fail", wrong[0][1], seconds
    return "pass", "", seconds


def main():
    """For a process of its own: the name of the test → one line of JSON at the end of standard output."""
    outcome, text, seconds = run(sys.argv[1])
    print("\n" + json.dumps([outcome, text, seconds]), flush=True)


if __name__ == "__main__":
    import cases  # ranks look for the class in a module of this name

    cases.main()
