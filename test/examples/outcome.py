# SPDX-License-Identifier: BSD-3-Clause
"""Runs the functions of a module whose names begin with test_, and says how they ended."""
import sys


def main(module):
    tests = [value for name, value in list(module.items()) if name.startswith("test_")]
    failed = 0
    for test in tests:
        try:
            test()
            print(f"ok - {test.__name__}")
        except Exception as error:
            failed += 1
            print(f"not ok - {test.__name__}\n# {error or repr(error)}")
        sys.stdout.flush()
    print(f"{len(tests) - failed} passed, {failed} failed")
    sys.exit(failed != 0)
