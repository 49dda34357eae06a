# SPDX-License-Identifier: BSD-3-Clause
"""Runs a program and tells how much of the machine others took meanwhile.

With `realtime` programs run under SCHED_RR: other processes then get the processors only while a program leaves
them idle, and the little that the kernel keeps back for them."""

import ctypes
import os
import resource
import shutil
import signal
import subprocess
from pathlib import Path

FOREIGN_MAX = 0.03  # share of all processors above which a run does not count
TRIES = 3
PRIORITY = 50  # of real time; this process, which ends what hangs, is above it
REALTIME_S = 60  # after so long without a pause the kernel ends a program: others have nothing of the machine meanwhile
RLIMIT_RTTIME = 15  # the module resource has no name for it
PR_SET_CHILD_SUBREAPER = 36
realtime = False
disturbed = 0  # runs for which no quiet moment was found


class Failed(Exception):
    """A program that did not end well; `output` is what it had written."""

    def __init__(self, text, output=""):
        super().__init__(text)
        self.output = output


def busy_ticks():
    """Processor time of everybody so far, that of the hypervisor's other guests included; without that of
    interrupts, most of which the measured programs cause themselves. Only the guests', if nobody else is in the way."""
    user, nice, system, _, _, _, _, stolen = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
    return stolen if realtime else user + nice + system + stolen


def own_ticks():
    if realtime:
        return 0
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used) * os.sysconf("SC_CLK_TCK")


class Watch:
    """The share of the processors that others have taken since the watch was made. Children count as own once they
    have ended."""

    def __init__(self):
        self.busy, self.own, self.start = busy_ticks(), own_ticks(), os.times().elapsed

    def foreign(self):
        seconds = max(os.times().elapsed - self.start, 0.01)
        # The system's own count may be wrong by a tick.
        ticks = (busy_ticks() - self.busy) - (own_ticks() - self.own) - 1
        return max(0.0, ticks / (seconds * os.sysconf("SC_CLK_TCK") * os.cpu_count()))


def words_of(command):
    """The words that start a program that is measured."""
    return list(map(str, [*(["chrt", "--rr", PRIORITY] if realtime else []), *command]))


def become_realtime():
    """From now on programs run under SCHED_RR. Raises Failed without the right to do so. Programs that share a
    processor take turns: otherwise a thread for which another one spins would never run."""
    global realtime
    if not shutil.which("chrt"):
        raise Failed("--realtime needs the program chrt, of util-linux")
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(PRIORITY + 1))
    except PermissionError as error:
        raise Failed(f"--realtime needs the right to real-time priorities ({error}): run it as root, with CAP_SYS_NICE, "
                     f"or where `ulimit -r` allows {PRIORITY + 1}") from None
    resource.setrlimit(RLIMIT_RTTIME, (REALTIME_S * 1_000_000, REALTIME_S * 1_000_000))
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    realtime = True


def children():
    return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))


def end_children(kept):
    """Ends what a program has left behind: a launcher that is killed may leave ranks, which would spin in the way of
    everything that follows. Those whose parent has ended are children of this process; `kept` are others."""
    while left := children() - kept:
        for child in left:
            os.sched_setscheduler(child, os.SCHED_OTHER, os.sched_param(0))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def kill(process, grace_s):
    """Kills all of its process group, which first gets grace_s to tidy up."""
    if grace_s:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            return process.communicate(timeout=grace_s)
        except subprocess.TimeoutExpired:
            pass
    os.killpg(process.pid, signal.SIGKILL)
    return process.communicate()


def output_of(command, env=None, limit_s=300, enough=None, grace_s=0):
    """What the program writes, as text. `enough`: a function of a line; after a line for which it is true
    the program is ended. `grace_s`: how long a program that is ended before its time may take to end what it
    has started elsewhere. Raises Failed."""
    limit_s = min(limit_s, REALTIME_S) if realtime else limit_s
    others = children() if realtime else set()
    process = subprocess.Popen(
        words_of(command),
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
            kill(process, grace_s)
        if realtime:
            end_children(others)
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
