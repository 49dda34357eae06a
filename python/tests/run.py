# SPDX-License-Identifier: BSD-3-Clause
"""python/tests/run.py BUILD [pytest's arguments]: the tests of the Python package with the library of a build folder,
in the virtual environment of tools/setup-torch. Ends with "N passed, N failed", or with 77, which Meson takes for
skipped, if PyTorch cannot be had.

Tests mostly wait, or use one processor. So two processes of pytest share the files; what each says of its failures is
shown when it has ended."""

import os
import re
import subprocess
import sys
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SKIPPED = 77


class Tests:
    """One process of pytest: its cases are printed at once, all that follows them in one piece."""

    def __init__(self, command, environment):
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, errors="replace"
        )
        self.counts = {}
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self):
        lines, summary = [], False
        for line in self.process.stdout:
            summary = summary or re.match(r"=+ (FAILURES|ERRORS|warnings summary|short test summary info) =", line)
            if summary:
                lines.append(line)
            else:
                print(line, end="", flush=True)
            if re.search(r"\d+ (passed|failed|error)", line):
                self.counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", line)}
        print(*lines, sep="", end="", flush=True)

    def finish(self):
        """(passed, failed)"""
        code = self.process.wait()
        self.thread.join()
        failed = self.counts.get("failed", 0) + self.counts.get("error", 0)
        if code and not failed:
            failed = 1
        return self.counts.get("passed", 0), failed


def main(build, arguments):
    options = ["--without-package", "--with-neighbours"]
    setup = subprocess.run([os.path.join(ROOT, "tools", "setup-torch"), *options], check=False)
    if setup.returncode:
        print("skipped: PyTorch cannot be had, so nothing of the Python package has been tested")
        return SKIPPED
    paths = {"LD_LIBRARY_PATH": os.path.abspath(build), "PYTHONPATH": os.path.join(ROOT, "python")}
    pytest = [os.path.join(ROOT, "build", "venv", "bin", "python"), "-m", "pytest", "-v"]
    pytest += ["-o", "console_output_style=classic"]  # no shares of all, as two work on them
    pytest += arguments or ["python/tests"]
    with tempfile.TemporaryDirectory() as folder:
        both = [
            Tests([*pytest, "--share", folder, *more], {**os.environ, **paths}) for more in ([], ["--scripts-first"])
        ]
        passed, failed = map(sum, zip(*(tests.finish() for tests in both)))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
