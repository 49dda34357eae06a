#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""reliability.py NAME COMMAND…: runs a campaign and shows what it prints; what it prints in lines "# figure: …" goes
into doc/reliability.md, between the marks of NAME. Ends as the command does."""

import os
import platform
import subprocess
import sys

DOC = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "doc", "reliability.md")
FIGURE = "# figure: "


def write(path, name, figures):
    """Puts the figures between the marks of the name."""
    begin, end = (f"<!-- {word}: {name}, written by make nightly -->" for word in ("begin", "end"))
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        sys.exit(f"reliability.py: {path} must have the lines '{begin}' and '{end}' once; put them there")
    before, rest = text.split(begin)
    body = "\n".join("- " + figure for figure in figures)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{before}{begin}\n\n{body}\n\n{end}{rest.split(end)[1]}")


def main(name, command):
    figures = []
    load = os.getloadavg()[0]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace")
    for line in program.stdout:
        print(line, end="", flush=True)
        if line.startswith(FIGURE):
            figures.append(line[len(FIGURE) :].strip())
    code = program.wait()
    if figures:
        figures.append(f"on {os.cpu_count()} processors ({platform.machine()}), load before that {load:.1f}")
        write(DOC, name, figures)
    return code


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
