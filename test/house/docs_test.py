#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Files and functions that a page names must exist: a rename forgets pages, as no compiler reads them.

Looks at the comments of models; and at every Markdown file and manual page: at files and names with an underscore
between backticks, and anywhere at public names (LS_…, ls_…) and settings. A file may be named by the end of its path. A name that stands for many, and the
functions of other projects, are listed below. ARCHITECTURE.md stays one page, and its table has the rooms of
src/floors. lockstep(7) says of each public function where it may be called.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = re.compile(r"`([\w./-]+\.(?:c|h|py|sh|pml|def|txt|md|scd|svg))`")
NAME = re.compile(r"`([a-z]+(?:_[a-z0-9]+)+)(?:\(\))?`")
PUBLIC = re.compile(r"\b(?:LS|LOCKSTEP)_[A-Z0-9_]*[A-Z0-9]\b|\bls_[a-z0-9_]*[a-z0-9]\b")
PATTERNS = {"x_test.c", "NAME_cmd.c", "plan_x.c", "x_is_valid"}
ELSEWHERE = {"driver_sim", "release_cached_blocks", "process_events", "set_exception"}  # of PyTorch, and not chosen


def tracked():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True,
                            capture_output=True, check=True).stdout
    return [path for path in listed.splitlines() if (ROOT / path).is_file()]


def words(paths):
    found = set()
    for path in paths:
        if not path.endswith((".md", ".scd", ".svg", ".json")):
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
        named = NAME.findall(line) + PUBLIC.findall(line)
        found += [(number, name) for name in dict.fromkeys(named) if name not in names | PATTERNS | ELSEWHERE]
    return found


def marked(text):
    """The text with each file and each name between backticks: for a page that is nearly all names"""
    return re.sub(r"[\w./-]+\.[ch]\b|\b[a-z]+(?:_[a-z0-9]+)+\b", r"`\g<0>`", text.replace("`", ""))


def unplaced(page, headers):
    """The public functions that the section of lockstep(7) on where each call may be made does not name"""
    section = page.partition("# WHICH CALL MAY BE MADE WHERE\n")[2].partition("\n# ")[0]
    return sorted(set(re.findall(r"^LS_EXPORT\b[^(;]*?\b(ls_\w+)\(", headers, re.M)) - set(re.findall(r"\*(ls_\w+)\*", section)))


def unhoused(page, floors):
    """The (floor, room)s of src/floors that are not in the table of ARCHITECTURE.md, or only there"""
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", page, re.M)
    drawn = {(floor, room) for floor, text in rows for room in re.findall(r"(?:^|; )`(\w+)`:", text)}
    lines = [line.split() for line in floors.splitlines() if not line.startswith("#")]
    return sorted(drawn ^ {(line[0], room) for line in lines for room in line[1:]})


def missing_in_model(text, paths, names, rooms):
    """The same of a model's comments: files below src, and names that begin with that of a room."""
    found = []
    for comment in re.finditer(r"/\*.*?\*/", text, re.S):
        line = text.count("\n", 0, comment.start()) + 1
        named = [file for file in re.findall(r"src/[\w/.-]+\.[ch]\b", comment[0]) if file not in paths]
        named += [name for name in re.findall(r"\b[a-z0-9]+(?:_[a-z0-9]+)+\b", comment[0])
                  if name.split("_")[0] in rooms and name not in names]
        found += [(line, name) for name in dict.fromkeys(named)]
    return found


def is_one_page(text):
    lines = text.splitlines()
    return len(lines) <= 100 and all(len(line) <= 100 for line in lines)


def main():
    paths = tracked()
    names = words(paths)
    rooms = {path.split("/")[1] for path in paths if path.startswith("src/")}
    code = words([path for path in paths if path.startswith(("src/", "include/", "test/")) and not path.endswith(".pml")])
    # what it must find, and what not
    wrong = "see `base/nowhere.c`, `gone_with_the_wind()` and `wait.c`, `base/wait.h`, `wait_words`, LS_OK, ls_opne\n"
    gone = {"gone_with_the_wind", "ls_opne"}
    assert [name for _, name in missing(wrong, paths, names - gone)] == ["base/nowhere.c", "gone_with_the_wind", "ls_opne"]
    assert marked("ls_opne → base/nowhere.c") == "`ls_opne` → `base/nowhere.c`"
    assert is_one_page("x" * 100 + "\n") and not is_one_page("x" * 101) and not is_one_page("x\n" * 101)
    declared = "LS_EXPORT int ls_a(void);\nLS_EXPORT void\nls_b(int x);\n"
    assert unplaced("# WHICH CALL MAY BE MADE WHERE\n*ls_a*\n# NEXT\n*ls_b*", declared) == ["ls_b"]
    assert unhoused("| 1 | `a`: x `y`; `b`: z |\n| 1 | `c`: c |\n", "# x\n1 a c d\n") == [("1", "b"), ("1", "d")]
    nowhere = "_".join(("mailbox", "nowhere"))  # which stands in no file
    model = f"/* one\n * two: src/base/gone.c, {nowhere}, wait_words, local_name */\n{nowhere}()\n"
    assert missing_in_model(model, paths, code, rooms) == [(1, "src/base/gone.c"), (1, nowhere)]
    failures = 0
    for floor, room in unhoused((ROOT / "ARCHITECTURE.md").read_text(), (ROOT / "src/floors").read_text()):
        print(f"ARCHITECTURE.md:1: floor {floor}, room {room}: in its table or in src/floors, but not in both")
        failures += 1
    headers = "".join((ROOT / path).read_text() for path in paths if path.startswith("include/"))
    for name in unplaced((ROOT / "doc/man/lockstep.7.scd").read_text(), headers):
        print(f"doc/man/lockstep.7.scd: WHICH CALL MAY BE MADE WHERE lacks {name}; say what it waits for, and who may call it")
        failures += 1
    if not is_one_page((ROOT / "ARCHITECTURE.md").read_text()):
        print("ARCHITECTURE.md:1: at most 100 lines of at most 100 characters; shorten it")
        failures += 1
    for path in paths:
        if path.endswith((".md", ".scd")):
            text = (ROOT / path).read_text()
            for line, name in missing(marked(text) if path == "doc/paths.md" else text, paths, names):
                print(f"{path}:{line}: there is no {name}; name what took its place, or take the sentence out")
                failures += 1
        elif path.endswith(".pml"):
            for line, name in missing_in_model((ROOT / path).read_text(), paths, code, rooms):
                print(f"{path}:{line}: there is no {name} any more; the comment that begins here names it")
                failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
