#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tools/verify with a Meson that only pretends: what is said while tests run, what of failures, what is counted."""

import importlib.machinery
import importlib.util
import io
import json
import os
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")

# Logs and prints what it is told.
MESON = """#!/bin/sh
case "$1" in
setup) mkdir -p "$2" ;;
introspect) cat "told$3" ;;
test)
	cd "$3" && mkdir -p meson-logs && cp told/log meson-logs/testlog.json && cat told/lines
	exit %(test)d ;;
esac
"""
NINJA = """#!/bin/sh
echo '[1/2] first'; echo '[2/2] second'; exit %(compile)d
"""


class VerifyTest(unittest.TestCase):
    def setUp(self):
        loader = importlib.machinery.SourceFileLoader("verify", os.path.join(TOOLS, "verify"))
        spec = importlib.util.spec_from_loader("verify", loader)
        self.verify = importlib.util.module_from_spec(spec)
        sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
        loader.exec_module(self.verify)
        sys.dont_write_bytecode = before
        self.folder = tempfile.TemporaryDirectory(prefix="verify-test-")
        self.verify.ROOT = self.folder.name
        self.path = os.environ["PATH"]
        os.environ["PATH"] = f"{self.folder.name}:{self.path}"

    def tearDown(self):
        os.environ["PATH"] = self.path
        self.folder.cleanup()

    def pretend(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def play(self, lines, records, compile=0, test=0):
        told = os.path.join(self.folder.name, "build", "gcc", "told")
        os.makedirs(told)
        with open(os.path.join(told, "lines"), "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))
        with open(os.path.join(told, "log"), "w", encoding="utf-8") as file:
            for name, result, text in records:
                file.write(json.dumps({"name": name, "result": result, "stdout": text, "command": [name]}) + "\n")
        self.pretend("meson", MESON % {"test": test})
        self.pretend("ninja", NINJA % {"compile": compile})
        with redirect_stdout(io.StringIO()) as output:
            self.verify.PROGRESS = self.verify.Progress()
            self.verify.PROGRESS.every_s = 0  # says everything
            status = self.verify.main(["gcc"])
        return status, output.getvalue()

    def test_progress(self):
        status, text = self.play(
            ["▶ 1/2 lockstep:ranks / long  RUNNING", "ok 1 - a (3 ms)", "ok 2 - b (4 ms)",
             "1/2 lockstep:ranks / long      OK    12.34s", "2/2 lockstep:unit+base / short OK 0.01s"],
            [("long", "OK", "ok 1 - a\nok 2 - b\n2 passed, 0 failed\n"), ("short", "OK", "[  PASSED  ] 3 test(s).\n")])
        self.assertEqual(status, 0, text)
        self.assertIn("gcc: building, 2 of 2 steps", text)
        self.assertRegex(text, r"\d+:\d\d  gcc: 0 of 2 test programs, 2 cases passed; now long")
        self.assertRegex(text, r"gcc: 2 of 2 test programs, 5 cases passed\n")
        self.assertTrue(text.endswith("\n5 passed, 0 failed\n"), text)

    def test_failure_is_told_before_the_end(self):
        status, text = self.play(
            ["1/2 lockstep:ranks / long  RUNNING", "not ok 1 - a (3 ms)", "ok 2 - b (4 ms)",
             "1/2 lockstep:ranks / long      FAIL    12.34s   exit status 1", "2/2 lockstep:unit+base / short SKIP 0.01s"],
            [("long", "FAIL", "not ok 1 - a\n# why\n1 passed, 1 failed\n"), ("short", "SKIP", "")], test=1)
        self.assertEqual(status, 1)
        at = [text.index(part) for part in ("gcc: not ok 1 - a (3 ms)", "0 of 2 test programs, 1 cases passed; now",
                                             "long: FAIL after 12.34 s", "# why", "skipped: short",
                                             "1 of 2 test programs, 1 cases passed, 1 FAILED")]
        self.assertEqual(at, sorted(at), text)
        self.assertTrue(text.endswith("\nfailed: gcc: long: FAIL (long)\n  not ok 1 - a\n  # why\n"
                                      "  1 passed, 1 failed\nfailed: gcc: long: FAIL\n1 passed, 1 failed\n"), text)

    def test_each_failure_is_repeated_at_the_end(self):
        noise = "".join(f"noise {n}\n" for n in range(100))
        _, text = self.play([], [
            ("unit", "FAIL", noise + "[  ERROR   ] --- 1 != 2\n[   LINE   ] --- unit.c:7\n" + noise),
            ("python", "FAIL", "t.py::a FAILED\n" + noise + "FAILED t.py::a - because\n1 passed, 1 failed\n"),
            ("crash", "FAIL", noise + "last words\n")], test=1)
        end = text[text.rindex("minutes\n"):]
        for part in ("failed: gcc: unit:", "1 != 2", "unit.c:7", "FAILED t.py::a - because", "last words"):
            self.assertIn(part, end)
        self.assertLess(len(end.splitlines()), 40)

    def test_no_tests_and_no_build(self):
        status, text = self.play([], [], test=0)
        self.assertEqual((status, text.splitlines()[-1]), (1, "0 passed, 1 failed"))

    def test_build_fails(self):
        status, text = self.play([], [], compile=1)
        self.assertEqual((status, text.splitlines()[-1]), (1, "0 passed, 1 failed"))
        self.assertIn("gcc: the build failed", text)

    def test_a_sanitizer_builds_what_its_tests_need(self):
        folder = os.path.join(self.folder.name, "build", "tsan")
        told = {
            "--targets": [{"id": name, "filename": [os.path.join(folder, name)]} for name in ("a", "b", "c", "d")],
            "--tests": [{"suite": ["lockstep:unit"], "depends": ["a", "b"]}, {"suite": ["lockstep:cli"], "depends": ["c"]},
                        {"suite": ["lockstep:unit", "lockstep:plan"], "depends": ["d"]}],
        }
        for what, answer in told.items():
            with open(os.path.join(self.folder.name, "told" + what), "w", encoding="utf-8") as file:
                json.dump(answer, file)
        self.pretend("meson", MESON % {"test": 0})
        with ThreadPoolExecutor(max_workers=1) as builders:
            self.assertEqual(self.verify.Build("gcc", builders).targets(folder), [])
            self.assertEqual(self.verify.Build("tsan", builders).targets(folder), ["a", "b"])

    def test_a_build_without_tests_makes_what_is_installed(self):
        folder = os.path.join(self.folder.name, "build", "clang")
        with open(os.path.join(self.folder.name, "told--targets"), "w", encoding="utf-8") as file:
            json.dump([{"filename": [os.path.join(folder, name)], "installed": name != "z"} for name in "yxz"], file)
        self.pretend("meson", MESON % {"test": 0})
        with ThreadPoolExecutor(max_workers=1) as builders:
            self.assertEqual(self.verify.Build("clang", builders).targets(folder), ["x", "y"])

    def test_log_gets_few_lines(self):
        lines = ["1/1 lockstep:ranks / long  RUNNING"] + [f"ok {n} - case" for n in range(1000)]
        lines += ["1/1 lockstep:ranks / long OK 1.00s"]
        before, self.verify.LOG_S = self.verify.LOG_S, 3600
        self.assertEqual(before, 30)
        with redirect_stdout(io.StringIO()) as output:
            self.verify.PROGRESS = self.verify.Progress()
            tests = self.verify.Tests("gcc")
            for line in lines:
                tests.see(line)
        self.assertEqual(output.getvalue(), "")


if __name__ == "__main__":
    result = unittest.main(verbosity=0, exit=False).result
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed} passed, {failed} failed")
    sys.exit(failed != 0)
