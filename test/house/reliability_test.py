#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test/reliability.py: which lines of a campaign get into the document, and where."""

import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import reliability  # noqa: E402

MARKS = ["<!-- begin: {}, written by make nightly -->", "<!-- end: {}, written by make nightly -->"]
PAGE = "# Page\n" + "".join("\n".join([MARKS[0].format(n), "old", MARKS[1].format(n), "after\n"]) for n in ("a", "b"))


class ReliabilityTest(unittest.TestCase):
    def play(self, script, page=PAGE, name="b"):
        with tempfile.NamedTemporaryFile("w+", suffix=".md") as file:
            file.write(page)
            file.flush()
            reliability.DOC = file.name
            code = reliability.main(name, ["sh", "-c", script])
            with open(file.name, encoding="utf-8") as written:
                return code, written.read()

    def test_figures_are_written(self):
        code, text = self.play("echo '# figure: 5 of 5'; echo '# other'; echo 'ok 1'")
        self.assertEqual(code, 0)
        self.assertEqual(text.count("old"), 1)
        self.assertIn(f"{MARKS[0].format('b')}\n\n- 5 of 5\n- on ", text)
        self.assertNotIn("other", text)
        self.assertTrue(text.endswith("after\n"))

    def test_failure_is_passed_on(self):
        self.assertEqual(self.play("echo '# figure: 4 of 5'; exit 3")[0], 3)

    def test_nothing_to_write(self):
        self.assertEqual(self.play("exit 1"), (1, PAGE))

    def test_marks_must_be_there(self):
        with self.assertRaises(SystemExit):
            self.play("echo '# figure: 1'", name="c")


if __name__ == "__main__":
    result = unittest.main(verbosity=0, exit=False).result
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed} passed, {failed} failed")
    sys.exit(failed != 0)
