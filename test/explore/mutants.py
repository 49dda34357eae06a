#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test/explore/mutants.py [--schedules N] [--seed N] [--only TEXT] [--list] [--folder DIR] [--write-doc] [--again]
[--minutes N]: breaks the library in one place after the other, in a copy of the tree, and prints after how many schedules
`explore` finds the defect. Ends with "N passed, N failed": a mutant passes if explore finds it, or if mutants.txt gives a
reason why not. A schedule in which the unbroken library fails is a failure, and finds no mutant. Results are kept as long
as the sources are the same, so that a run can be stopped and continued; --again tries all anew. --minutes: begins no mutant
after so long; mutants that are left count as failures."""

import argparse
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TABLE = os.path.join(HERE, "mutants.txt")

# Each call of these functions is removed in turn: then a sleeping thread is not woken, or the wait table does not show what
# a thread does. Definitions do not match, because they begin in the first column.
TAKEN_OUT = {
    "wake-up": r"wait_wake(?:_topic)?|wait_request_progress|wait_wake_progress|wait_arm|futex_wake|wait_wake_watch|wake_followers|p2p_wake_followers|p2p_wake_all|progress_lane_release_to_others|transport_notify(?:_all|_host|_world|_message)?|transport_request_progress"
    r"|wake|wake_bell|hosts_pump_wake|wake_peers|wake_watch|wake_all|progress_thread_wake|p2p_recheck|p2p_arm|want_urgent",
    "entry": r"wait_thread_enter|wait_thread_leave|wait_show|wait_slot_publish|wait_slot_clear|wait_item_show|wait_item_hide|show|show_call|show_words|hide_words|disarm_bell|show_file|note_mapped|mark_woken",
}
PATTERNS = {kind: re.compile(rf"^(\t+)((?:{names})\([^;]*\);)$") for kind, names in TAKEN_OUT.items()}
FOLDERS = ("base", "transport", "hosts", "op", "engine", "mailbox", "world", "failure", "progress", "p2p", "group")


class Mutant:
    """Changes of one file: replaces each old text, which must occur once, by a new one."""

    def __init__(self, name, path, changes, fields):
        self.name, self.path, self.changes = name, path, changes
        self.reason, self.past = fields.get("reason", ""), fields.get("past", "")
        self.where = fields.get("subject", ""), fields.get("test", "")

    def apply(self, text):
        for old, new in self.changes:
            if text.count(old) != 1:
                sys.exit(f"mutants: {self.name}: found {text.count(old)} times in {self.path}, not once:\n{old}")
            text = text.replace(old, new)
        return text


class TakenOut(Mutant):
    """A call that is removed. Its name is its file, its function and its number there."""

    def __init__(self, name, kind, path, line, code, fields):
        super().__init__(name, path, [(code, "")], fields)
        self.kind, self.line = kind, line

    def apply(self, text):
        lines = text.split("\n")
        code = self.changes[0][0]
        lines[self.line] = lines[self.line].replace(code, "(void)0;")
        return "\n".join(lines)


def read_table():
    """mutants.txt: blocks of "name: …" (what the broken library does wrong), "file: …", "reason: …" (the mutant need not be
    found, and why), "subject: …" (the sort of programs that finds it; without it all are tried), "test: …" (for `ranks`: a
    part of the names of the tests to run), "past: …" (it was a defect once: what users saw). Then for each place the old
    lines after "<<<", the new lines after "===", and ">>>". A block without lines belongs to a removed call."""
    mutants, of_calls = [], {}
    with open(TABLE, encoding="utf-8") as file:
        text = "\n".join(line for line in file.read().split("\n") if not line.startswith("# "))
    for block in re.split(r"^(?=name: )", text, flags=re.M)[1:]:
        head = block.split("\n<<<\n")[0].strip()
        fields = dict(line.split(": ", 1) for line in head.split("\n"))
        changes = re.findall(r"^<<<\n(.*?)\n===\n(.*?)\n?>>>$", block, flags=re.M | re.S)
        if changes:
            mutants.append(Mutant(fields["name"], fields["file"], changes, fields))
        else:
            of_calls[fields["name"]] = fields
    return mutants, of_calls


def find_calls(of_calls):
    found = []
    for folder in FOLDERS:
        for name in sorted(os.listdir(os.path.join(ROOT, "src", folder))):
            if not name.endswith(".c") or name.endswith("_test.c"):
                continue
            path = f"src/{folder}/{name}"
            function, counts = "?", {}
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                lines = file.read().split("\n")
            for number, line in enumerate(lines):
                begin = re.match(r"^[a-z].*?\b(\w+)\(", line)
                if begin and not line.rstrip().endswith(";"):
                    function = begin.group(1)
                for kind, pattern in PATTERNS.items():
                    call = pattern.match(line)
                    if not call or lines[number - 1].endswith(("=", ",", "(")):
                        continue
                    counts[kind, function] = counts.get((kind, function), 0) + 1
                    title = f"{folder}/{name[:-2]} {function} {kind} {counts[kind, function]}"
                    found.append(TakenOut(title, kind, path, number, call.group(2), of_calls.pop(title, {})))
    if of_calls:
        sys.exit(f"mutants: there are no such calls: {', '.join(of_calls)}")
    return found


def run(command, **options):
    return subprocess.run(command, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False, **options)


def copy_tree(folder):
    tree = os.path.join(folder, "tree")
    os.makedirs(folder, exist_ok=True)
    if os.path.exists(tree):
        shutil.rmtree(tree)
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", "build", "__pycache__"))
    # Only this program is needed, so nothing else is built.
    done = run(["meson", "setup", os.path.join(tree, "build")], cwd=tree, env={**os.environ, "CC": "gcc"})
    if done.returncode:
        sys.exit(f"mutants: meson setup failed\n{done.stdout}")
    built, output = build(tree)
    if not built:
        sys.exit(f"mutants: the build failed\n{output}")
    return tree


def build(tree):
    done = run(["meson", "compile", "-C", os.path.join(tree, "build"), "explore"])
    return done.returncode == 0, done.stdout


def explore(tree, where, seed, schedules, how):
    """[(seed, what was found)]"""
    subject, test = where
    done = run([os.path.join(tree, "build/test/explore/explore"), "--seed", str(seed), "--schedules", str(schedules),
                how, "--folder", tree] + (["--only", subject] if subject else []),
               env={**os.environ, "EXPLORE_TEST": test})
    hits = [(int(number), what) for number, what in re.findall(r"^seed (\d+): (.*)$", done.stdout, re.M)]
    return sorted(hits) or ([(seed, f"explore ended with {done.returncode}")] if done.returncode else [])


def find(tree, mutant, options, known):
    """(number of schedules until it was found or 0, what was found)"""
    seed, end = options.seed, options.seed + options.schedules
    while seed < end:
        count = min(500, end - seed)
        hits = explore(tree, mutant.where, seed, count, "--first")
        new = [hit for hit in hits if hit[0] not in {number for number, _ in known}]
        if new:
            return new[0][0] - options.seed + 1, new[0][1]
        seed = hits[0][0] + 1 if hits else seed + count
    return 0, "not found"


def try_mutant(tree, mutant, options, known):
    path = os.path.join(tree, mutant.path)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(mutant.apply(text))
        built, output = build(tree)
        if not built:
            return 0, "does not compile: " + "; ".join(re.findall(r"error: .*", output)[:2])
        return find(tree, mutant, options, known)
    finally:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


class Kept:
    """What was found out so far, in a file: {key: [count, what]}. A key has all that it depends on."""

    def __init__(self, folder, options):
        self.path = os.path.join(folder, "found.json")
        self.found = {}
        if not options.again and os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                self.found = json.load(file)
        digest = hashlib.sha256(f"{options.seed} {options.schedules}".encode())
        for place in ("include", "src", "test/explore", "test/ranks"):
            for at, _, names in sorted(os.walk(os.path.join(ROOT, place))):
                for name in sorted(name for name in names if name.endswith((".c", ".h", ".def"))):
                    with open(os.path.join(at, name), "rb") as file:
                        digest.update(f"{at[len(ROOT):]}/{name}".encode() + file.read())
        self.sources = digest.hexdigest()

    def get(self, name, what, work, until=float("inf")):
        """work(), unless its result is known; None if it is too late for that."""
        key = hashlib.sha256(f"{self.sources} {name} {what}".encode()).hexdigest()
        if key not in self.found and time.monotonic() > until:
            return None
        if key not in self.found:
            self.found[key] = work()
            with open(self.path + ".new", "w", encoding="utf-8") as file:
                json.dump(self.found, file)
            os.replace(self.path + ".new", self.path)
        return self.found[key]


def median(counts):
    return sorted(counts)[len(counts) // 2] if counts else "none"


def write_doc(rows, options):
    """Writes doc/reliability.md, between the marks: mutants of mutants.txt one by one, removed calls in sum."""
    path = os.path.join(ROOT, "doc/reliability.md")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    begin, end = (f"<!-- {word}: mutants, written by make explore-mutants -->\n" for word in ("begin", "end"))
    table = f"Of at most {options.schedules:,} schedules each, from seed {options.seed}:\n\n"
    table += "| what the broken library does wrong | found after so many schedules |\n|---|---|\n"
    for mutant, count, what in rows:
        if not isinstance(mutant, TakenOut) and count is not None:
            past = f" (once a defect: {mutant.past})" if mutant.past else ""
            table += f"| {mutant.name}{past} | {count or 'not: ' + what} |\n"
    left = sum(count is None and not isinstance(mutant, TakenOut) for mutant, count, _ in rows)
    table += f"| {left} others that have a name | were not tried |\n" if left else ""
    for kind in TAKEN_OUT:
        of_kind = [row for row in rows if isinstance(row[0], TakenOut) and row[0].kind == kind]
        found = [count for _, count, _ in of_kind if count]
        missed = [mutant for mutant, count, _ in of_kind if count == 0]
        table += f"| one of {len(of_kind)} calls removed ({kind}) | {len(found)} are found{f', half of them after {median(found)}' if found else ''}; "
        table += f"for {sum(bool(mutant.reason) for mutant in missed)} `test/explore/mutants.txt` gives a reason; "
        table += f"{sum(not mutant.reason for mutant in missed)} are not found, "
        table += f"{sum(count is None for _, count, _ in of_kind)} were not tried |\n"
    head, _, rest = text.partition(begin)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{head}{begin}\n{table}\n{end}{rest.partition(end)[2]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--schedules", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--folder", default=os.path.join(ROOT, "build/mutants"))
    parser.add_argument("--write-doc", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--minutes", type=float, default=1e9)
    options = parser.parse_args()
    mutants, reasons = read_table()
    mutants = [m for m in mutants + find_calls(reasons) if options.only in m.name]
    if not mutants:
        parser.error(f"ONLY (--only): no place has '{options.only}' in its name; test/explore/mutants.py --list names all")
    if options.list:
        for mutant in mutants:
            with open(os.path.join(ROOT, mutant.path), encoding="utf-8") as file:
                mutant.apply(file.read())  # ends with a message if the place no longer exists
            print(mutant.name + (f" (need not be found: {mutant.reason})" if mutant.reason else ""))
        return 0
    # Only if something has to be tried.
    tree = functools.lru_cache(maxsize=None)(lambda: copy_tree(options.folder))
    known, kept = {}, Kept(options.folder, options)
    for where in sorted({mutant.where for mutant in mutants}):
        known[where] = kept.get("", where, lambda where=where: explore(tree(), where, options.seed, options.schedules,
                                                                       "--all"))
        for seed, what in known[where]:
            print(f"NOT OK: the unbroken library fails at seed {seed} of {' '.join(where) or 'all sorts'}: {what}",
                  flush=True)
    passed, failed, rows = 0, sum(map(len, known.values())), []
    until = time.monotonic() + 60 * options.minutes
    mutants.sort(key=lambda mutant: not mutant.past)
    for number, mutant in enumerate(mutants):
        begin = time.monotonic()
        found = kept.get(mutant.name, [mutant.changes, mutant.where],
                         lambda mutant=mutant: try_mutant(tree(), mutant, options, known[mutant.where]), until)
        count, what = found or (None, "not tried")
        good = bool(count or (found and mutant.reason))
        passed += good
        failed += not good
        rows.append((mutant, count, found and mutant.reason or what))
        print(f"{number + 1}/{len(mutants)} {'ok' if good else 'NOT OK'}: {mutant.name}: "
              f"{f'found after {count} schedules: {what}' if count else rows[-1][2]}"
              f" ({time.monotonic() - begin:.0f} s)", flush=True)
    if options.write_doc:
        write_doc(rows, options)
    print(f"{passed} passed, {failed} failed")
    return failed > 0 or not mutants


if __name__ == "__main__":
    sys.exit(main())
