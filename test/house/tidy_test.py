#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What tools/tidy refuses, by .clang-tidy and .clang-format: each rule that it has taken over from tools/check."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
HEAD = """#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

"""


def function(code):
    return HEAD + f"int f(int a);\nint f(int a)\n{{\n{code}\treturn a;\n}}\n"


class TidyTest(unittest.TestCase):
    def play(self, text, words=("", "")):
        with tempfile.TemporaryDirectory(prefix="tidy-test-") as root:
            for folder in ("tools", "src", "build"):
                os.mkdir(os.path.join(root, folder))
            for name in (".clang-tidy", ".clang-format", "tools/tidy"):
                shutil.copy(os.path.join(ROOT, name), os.path.join(root, name))
            path = os.path.join(root, "src", "a.c")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            with open(os.path.join(root, "build", "compile_commands.json"), "w", encoding="utf-8") as file:
                command = f"cc -std=c17 -D_GNU_SOURCE -Wall -Wextra -Wshadow -Werror -Wno-tsan %s -c {path} -o a.o"
                json.dump([{"directory": root, "file": path, "command": command % more} for more in words], file)
            done = subprocess.run([sys.executable, os.path.join(root, "tools/tidy"), os.path.join(root, "build")],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            return done.returncode, done.stdout

    def refused(self, rule, text, **options):
        code, said = self.play(text, **options)
        self.assertEqual(code, 1, said)
        self.assertIn(rule, said)
        self.assertTrue(said.endswith("\n0 passed, 1 failed\n"), said)

    def test_what_is_right(self):
        for code in ("", "\ta++;\n" * 66, '\ta = open("a", O_RDONLY | O_CLOEXEC);\n'):
            self.assertEqual(self.play(function(code)), (0, "1 passed, 0 failed\n"))

    def test_function_size(self):
        self.refused("readability-function-size", function("\ta++;\n" * 67))

    def test_layout(self):
        self.refused("clang-format", HEAD + "int f(int a);\nint f(int a) {\n\treturn a;\n}\n")
        self.refused("clang-format", function("    a++;\n"))

    def test_close_on_exec(self):
        for call in ('open("a", O_RDONLY)', 'openat(a, "a", O_RDONLY)', 'memfd_create("a", 0)', "epoll_create1(0)",
                     "epoll_create(1)", "dup(a)", "pipe(&a)", "pipe2(&a, 0)", 'fopen("a", "r") != NULL'):
            self.refused("android-cloexec", function(f"\ta = {call};\n"))

    def test_signal_handler(self):
        handler = "static void handle(int number)\n{\n\tprintf(\"%d\", number);\n}\n\n"
        self.refused("bugprone-signal-handler",
                     HEAD + handler + "void f(void);\nvoid f(void)\n{\n\tsignal(SIGUSR1, handle);\n}\n")

    def test_warnings_of_clang(self):
        lock = """struct __attribute__((capability("mutex"))) lock {
	int word;
};
extern struct lock lock;
extern int guarded __attribute__((guarded_by(lock)));

"""
        for warning, text in (
            ("unused-variable", function("\tint b = 1;\n")),
            ("shadow", function("\tif (a) {\n\t\tint a = 1;\n\t\treturn a;\n\t}\n")),
            ("self-assign", function("\ta = a;\n")),  # gcc has no such warning for C
            ("thread-safety-analysis", lock + "int f(void);\nint f(void)\n{\n\treturn guarded;\n}\n"),
        ):
            self.refused(f"[clang-diagnostic-{warning}", text)

    def test_all_macros_of_a_file(self):
        text = function("#ifdef MORE\n\tint b = 1;\n#endif\n")
        self.assertEqual(self.play(text), (0, "1 passed, 0 failed\n"))
        self.refused("clang-diagnostic-unused-variable", text, words=("", "-DMORE"))
        # test/explore compiles the library once more
        self.assertEqual(self.play(text, words=("-include stdio.h -DMORE", "")), (0, "1 passed, 0 failed\n"))


if __name__ == "__main__":
    result = unittest.main(verbosity=0, exit=False).result
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed} passed, {failed} failed")
    sys.exit(failed != 0)
