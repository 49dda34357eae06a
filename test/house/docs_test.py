#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Files and functions that a page names must exist: a rename forgets pages, as no compiler reads them.

Looks at what stands between backticks in every Markdown file: `room/file.c`, `file.py`, and names with an underscore. A
file may be named by the end of its path. A name with a capital letter or an x for a part stands for many, and a decision
may name functions of other projects, so both are left out where they are listed below.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = re.compile(r"`([\w./-]+\.(?:c|h|py|sh|pml|def|txt|md|scd|svg))`")
NAME = re.compile(r"`([a-z]+(?:_[a-z0-9]+)+)(?:\(\))?`")
PATTERNS = {"x_test.c", "NAME_cmd.c", "plan_x.c", "x_is_valid"}
ELSEWHERE = {"driver_sim", "release_cached_blocks", "process_events", "set_exception"}  # of PyTorch, and not chosen


def tracked():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True,
                            capture_output=True, check=True).stdout
    return [path for path in listed.splitlines() if (ROOT / path).is_file()]


def words(paths):
    found = set()
    for path in paths:
        if not path.endswith((".md", ".svg", ".json")):
            found.update(re.findall(r"\w{4,}", (ROOT / path).read_text(errors="replace")))
    return found


def missing(text, paths, names):
    """[(line, name)] of what the text names and nobody has"""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for named in FILE.findall(line):
            end = "/" + re.sub(r"^(\.\./)+", "", named)
            if named not in PATTERNS and not any(("/" + path).endswith(end) for path in paths):
                found.append((number, named))
        found += [(number, name) for name in NAME.findall(line) if name not in names | PATTERNS | ELSEWHERE]
    return found


def main():
    paths = tracked()
    names = words(paths)
    # what it must find, and what not
    wrong = "see `base/nowhere.c`, `gone_with_the_wind()` and `wait.c`, `base/wait.h`, `wait_words`\n"
    assert missing(wrong, paths, names - {"gone_with_the_wind"}) == [(1, "base/nowhere.c"), (1, "gone_with_the_wind")]
    failures = 0
    for path in paths:
        if path.endswith(".md"):
            for line, name in missing((ROOT / path).read_text(), paths, names):
                print(f"{path}:{line}: there is no {name}; name what took its place, or take the sentence out")
                failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
