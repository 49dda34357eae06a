# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of faults share: how a test fails, the environment of its programs, TAP."""
import os
import subprocess
import tempfile


class Failure(Exception):
    pass


def need(condition, what, output=""):
    if not condition:
        raise Failure(f"{what}\n{output}")


# Its programs' TMPDIR; removed when the test ends.
TEMPORARY = tempfile.TemporaryDirectory(prefix="lockstep-faults-")


def environment(**more):
    """The environment of this process, without variables that would change the job, and with a TMPDIR of the test."""
    ours = ("LOCKSTEP_", "TORCHELASTIC_", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    env["TMPDIR"] = TEMPORARY.name
    env.update({k: str(v) for k, v in more.items()})
    return env


def run_tests(tests):
    """Runs pairs of name and function; prints TAP and "N passed, N failed"; returns the exit status."""
    failed = 0
    print(f"1..{len(tests)}")
    for number, (name, function) in enumerate(tests, 1):
        try:
            function()
            print(f"ok {number} - {name}", flush=True)
        except (Failure, subprocess.TimeoutExpired) as failure:
            failed += 1
            print(f"not ok {number} - {name}")
            print("\n".join("# " + line for line in str(failure).split("\n")), flush=True)
    TEMPORARY.cleanup()
    print(f"{len(tests) - failed} passed, {failed} failed")
    return failed != 0
