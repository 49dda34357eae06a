#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""lanes_test.py LOCKSTEP LANES: the example runs, and its timeline shows that the receive nobody answers spans what
the rank does meanwhile."""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

lockstep, lanes = sys.argv[1:3]


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, timeout=120)


def main():
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        kept, drawn = os.path.join(folder, "lanes.trace"), os.path.join(folder, "lanes.svg")
        done = run(lockstep, "run", "-n", "3", "--trace", kept, lanes)
        if done.returncode or "12 sums, sends and receives went on" not in done.stdout:
            failed.append(f"the example: {done.returncode} {done.stdout} {done.stderr}")
        text = run(lockstep, "trace", "--svg", drawn, kept)
        if text.returncode:
            failed.append(f"the drawing: {text.stderr}")
        titles = [t.text for t in xml.etree.ElementTree.parse(drawn).iter() if t.tag.endswith("title")]
        if not any("tag 99" in title for title in titles) or not any("all-reduce" in title for title in titles):
            failed.append(f"the titles: {titles[:20]}")
        few = run(lockstep, "run", "-n", "2", lanes)
        if few.returncode == 0 or "three ranks" not in few.stderr:
            failed.append(f"two ranks: {few.returncode} {few.stderr}")
    for line in failed:
        print("not ok -", line)
    print(f"{4 - len(failed)} passed, {len(failed)} failed")
    return bool(failed)


sys.exit(main())
