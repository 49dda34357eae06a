#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""layers_test.py BUILD: the files of a room form layers: no two call each other, directly or through others. The symbols of
the room's objects show which file calls which."""

import glob
import os
import re
import subprocess
import sys


def symbols(archive, room):
    """{file: (names it defines, names it uses)}"""
    text = subprocess.run(["nm", "-A", "-P", "-g", archive], capture_output=True, text=True, check=True).stdout
    files = {}
    for member, name, kind in re.findall(r"^[^\[\n]*\[([^\]\n]+)\]: (\S+) (\S)", text, re.M):
        file = member.split("/")[-1].removesuffix(".c.o").removeprefix(f"{room}_")
        defines, uses = files.setdefault(file, (set(), set()))
        (uses if kind == "U" else defines).add(name)
    return files


def calls_of(files):
    """{file: files that it calls}"""
    owner = {name: file for file, (defines, _) in files.items() for name in defines}
    return {file: {owner[name] for name in uses if owner.get(name, file) != file} for file, (_, uses) in files.items()}


def cycles_of(calls):
    """The files that call themselves through others."""

    def reaches(file, goal):
        seen, left = set(), [file]
        while left:
            for called in calls[left.pop()] - seen:
                seen.add(called)
                left.append(called)
        return goal in seen

    return {file for file in calls if reaches(file, file)}


def main():
    passed, failed = 0, 0

    def judge(title, good, text):
        nonlocal passed, failed
        passed, failed = passed + good, failed + (not good)
        if not good:
            print(f"not ok - {title}: {text}")

    judge("a cycle is found", cycles_of({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}) == {"a", "b", "c"}, "")
    rooms = sorted(glob.glob(os.path.join(sys.argv[1], "src", "lib*.a")))
    edges = 0
    for archive in rooms:
        room = os.path.basename(archive)[3:-2]
        calls = calls_of(symbols(archive, room))
        edges += sum(map(len, calls.values()))
        found = cycles_of(calls)
        judge(room, not found, f"{', '.join(sorted(found))} call each other. "
              "Move what several of them need into a file below them")
    judge("rooms have files that call others", len(rooms) > 20 and edges > 300, f"{len(rooms)} rooms, {edges} calls")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
