#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What explore refuses it calls by the name that `make explore` has for it: refusals_test.py EXPLORE."""
import os
import subprocess
import sys
import tempfile

EXPLORE = sys.argv[1]


def refused(*arguments):
    done = subprocess.run([EXPLORE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60,
                          check=False)
    assert done.returncode == 2 and not done.stdout, (arguments, done.returncode, done.stdout)
    return done.stderr


def test_numbers():
    said = refused("--seed", "x")
    assert said.startswith("explore: SEED (--seed) takes a whole number from 0 to 18446744073709551615, not 'x'\n"), said
    assert "usage: make explore [SEED=N]" in said, said
    said = refused("--schedules", "0")
    assert said.startswith("explore: SCHEDULES (--schedules) takes a whole number from 1 to "), said


def test_names_of_programs():
    known = subprocess.run([EXPLORE, "--list"], stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
    assert len(known.split()) > 3, known
    said = refused("--only", "nonsense")
    assert said == "explore: ONLY (--only) cannot be 'nonsense'; the sorts of programs are %s\n" % \
        ", ".join(known.split()), said


def test_findings():
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "finding")
        said = refused("--replay", path)
        assert said == f"explore: REPLAY (--replay): cannot read '{path}': No such file or directory\n", said
        said = refused("--replay", place)
        assert said == f"explore: REPLAY (--replay): cannot read '{place}': Is a directory\n", said
        for content in "", "nonsense", "\0\0", "lockstep explore 1\nbuild 12\nseed -\n":
            with open(path, "w", encoding="ascii") as file:
                file.write(content)
            said = refused("--folder", "findings", "--replay", path)
            assert said == f"explore: REPLAY (--replay): '{path}' is no finding. What make explore finds it keeps in " \
                "findings/explore-SEED.txt\n", said
        with open(path, "w", encoding="ascii") as file:
            file.write("lockstep explore 1\nbuild 0\nseed 7\nonly -\nprogram -\n")
        said = refused("--replay", path)
        assert "was found by another build" in said, said


def main():
    tests = [value for name, value in list(globals().items()) if name.startswith("test_")]
    failed = 0
    for test in tests:
        try:
            test()
        except Exception as error:
            failed += 1
            print(f"not ok - {test.__name__}\n# {error or repr(error)}")
    print(f"{len(tests) - failed} passed, {failed} failed")
    sys.exit(failed != 0)


main()
