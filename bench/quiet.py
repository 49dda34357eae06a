# SPDX-License-Identifier: BSD-3-Clause
"""Runs a program and tells how much of the machine others took meanwhile."""

import os
import resource
import signal
import subprocess
from pathlib import Path

FOREIGN_MAX = 0.03  # share of all processors above which a run does not count
TRIES = 3
disturbed = 0  # runs for which no quiet moment was found


class Failed(Exception):
    """A program that did not end well; `output` is what it had written."""

    def __init__(self, text, output=""):
        super().__init__(text)
        self.output = output


def busy_ticks():
    """Processor time of everybody so far, that of the hypervisor's other guests included; without that of
    interrupts, most of which the measured programs cause themselves."""
    user, nice, system, _, _, _, _, stolen = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
    return user + nice + system + stolen


def own_ticks():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used) * os.sysconf("SC_CLK_TCK")


class Watch:
    """The share of the processors that was taken by others since it was made. Children count as own when
    they have ended."""

    def __init__(self):
        self.busy, self.own, self.start = busy_ticks(), own_ticks(), os.times().elapsed

    def foreign(self):
        seconds = max(os.times().elapsed - self.start, 0.01)
        # One tick is what the system's own count is rough by.
        ticks = (busy_ticks() - self.busy) - (own_ticks() - self.own) - 1
        return max(0.0, ticks / (seconds * os.sysconf("SC_CLK_TCK") * os.cpu_count()))


def output_of(command, env=None, limit_s=300, enough=None):
    """What the program writes, as text. `enough`: a function of a line; after a line for which it is true
    the program is ended. Raises Failed."""
    process = subprocess.Popen(
        list(map(str, command)),
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    ended = False
    output = errors = ""
    try:
        if enough:
            for line in process.stdout:
                output += line
                if enough(line):
                    ended = True
                    os.killpg(process.pid, signal.SIGKILL)
                    break
        rest, errors = process.communicate(timeout=limit_s)
        output += rest
    except subprocess.TimeoutExpired:
        raise Failed(f"not done after {limit_s} s: {' '.join(map(str, command))}", output) from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode != 0 and not ended:
        words = " ".join(map(str, command))
        raise Failed(f"{words} ended with {process.returncode}: {errors.strip()[-600:]}", output)
    return output


def quietly(function):
    """(result, foreign share) of the first call of `function` that was not disturbed, or else of the least
    disturbed one of TRIES."""
    global disturbed
    best = None
    for _ in range(TRIES):
        watch = Watch()
        result = function()
        foreign = watch.foreign()
        if best is None or foreign < best[1]:
            best = (result, foreign)
        if foreign <= FOREIGN_MAX:
            break
    disturbed += best[1] > FOREIGN_MAX
    return best
