# SPDX-License-Identifier: BSD-3-Clause
"""A script that does not end is ended with all that it has started."""

import os
import select

import processes
import pytest


def test_children_with_sessions_of_their_own_end_as_well(monkeypatch):
    process = processes.start(["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!; echo begun; wait"])
    child = int(process.stdout.readline())
    assert process.stdout.readline() == "begun\n"
    monkeypatch.setattr(processes, "LIMIT_S", 0.01)
    assert processes.descendants(process.pid) == [process.pid, child]
    descriptor = os.pidfd_open(child)
    try:
        with pytest.raises(AssertionError, match="not over after"):
            processes.finish(process)
        assert select.select([descriptor], [], [], 20)[0], "the child goes on"
    finally:
        os.close(descriptor)
