# SPDX-License-Identifier: BSD-3-Clause
"""python/tests/run.py BUILD [pytest's arguments]: the tests of the Python package with the library of a build folder,
in the virtual environment of tools/setup-torch. Ends with "N passed, N failed", or with 77, which Meson takes for
skipped, if PyTorch cannot be had."""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SKIPPED = 77


def main(build, arguments):
    options = ["--without-package", "--with-neighbours"]
    setup = subprocess.run([os.path.join(ROOT, "tools", "setup-torch"), *options], check=False)
    if setup.returncode:
        print("skipped: PyTorch cannot be had, so nothing of the Python package has been tested")
        return SKIPPED
    paths = {"LD_LIBRARY_PATH": os.path.abspath(build), "PYTHONPATH": os.path.join(ROOT, "python")}
    program = subprocess.Popen(
        [os.path.join(ROOT, "build", "venv", "bin", "python"), "-m", "pytest", "-v", "-p", "no:cacheprovider"]
        + (arguments or ["python/tests"]),
        cwd=ROOT,
        env={**os.environ, **paths},
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    last = ""
    for line in program.stdout:
        print(line, end="", flush=True)
        last = line if re.search(r"\d+ (passed|failed|error)", line) else last
    code = program.wait()
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", last)}
    failed = counts.get("failed", 0) + counts.get("error", 0)
    if code and not failed:
        failed = 1
    print(f"{counts.get('passed', 0)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
