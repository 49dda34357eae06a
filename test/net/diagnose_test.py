#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test/net/diagnose_test.py LOCKSTEP DIAGNOSE_RANK [CASE…]: `lockstep diagnose` on a host shows the ranks of all hosts of a
job, and says which hosts do not answer; `lockstep trace` draws all of them on one axis. Each host has processes and a clock of its own, too. With --host it is what runs on each host.
Says so where the system lets nobody make namespaces."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

from cases import job_folder, play_all, refusal, run_on_hosts, start_rank

PER_HOST = int(os.environ.get("PER_HOST", "2"))
LIMIT_S = 120  # of what never ends; no measure
AHEAD_S = 5000  # of the clock of host 1


class Host:
    """This host, its ranks, and commands on it."""

    def __init__(self, folder, lockstep, program):
        self.folder, self.lockstep, self.number = folder, lockstep, int(os.environ["HOST"])
        self.hosts = int(os.environ["HOSTS"])
        self.ranks = [start_rank([program, folder], local, PER_HOST, stdin=subprocess.DEVNULL) for local in range(PER_HOST)]
        self.together("begin", "\n".join(str(rank.pid) for rank in self.ranks))
        self.pids = [int(pid) for host in range(self.hosts) for pid in self.read(f"begin{host}").split()]

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return file.read()

    def make(self, name, text=""):
        path = os.path.join(self.folder, name)
        with open(f"{path}.{self.number}", "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(f"{path}.{self.number}", path)

    def until(self, look, what):
        end = time.monotonic() + LIMIT_S
        while not look():
            if time.monotonic() > end:
                raise AssertionError(f"waited {LIMIT_S} s for {what}")
            threading.Event().wait(0.01)

    def await_file(self, name):
        self.until(lambda: os.path.exists(os.path.join(self.folder, name)), name)

    def together(self, name, text=""):
        """All hosts have come so far."""
        self.make(f"{name}{self.number}", text)
        for host in range(self.hosts):
            self.await_file(f"{name}{host}")

    def signal(self, number, locals_=range(PER_HOST)):
        """Returns when ranks that are to stop have stopped."""
        for local in locals_:
            self.ranks[local].send_signal(number)
        if number == signal.SIGSTOP:
            self.until(lambda: all(self.state(self.ranks[local].pid) == "T" for local in locals_), "ranks to stop")

    def state(self, pid):
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0]

    def begin_diagnose(self, *options):
        return subprocess.Popen([self.lockstep, "diagnose", *options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def diagnose(self, *options):
        return self.begin_diagnose(*options).communicate(timeout=LIMIT_S)[0]

    def lockstep_says(self, *words):
        return subprocess.run([self.lockstep, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=LIMIT_S, check=False).stdout

    def job(self):
        return json.loads(self.diagnose("--json"))["jobs"][0]

    def end(self):
        return [rank.wait() for rank in self.ranks]


def line_of(text, rank):
    found = re.findall(rf"^  rank {rank} .*$", text, re.MULTILINE)
    assert len(found) == 1, f"rank {rank} is there {len(found)} times in\n{text}"
    return found[0]


def shows(text, host, rank, words):
    """The line of a rank begins with where it is, and goes on with these words."""
    line = line_of(text, rank)
    begin = rf"  rank {rank}   host{rank // PER_HOST}  pid {host.pids[rank]}\b"
    assert re.match(begin, line), f"{line!r} does not begin with {begin!r}"
    assert re.search(words, line), f"{words!r} is not in {line!r}"


WAITS = r"waits .* for ranks? [0-3, ]+ in all-reduce #11 \(diagnose_rank.c:\d+\)"
LATE = r"last was all-reduce #10 \(diagnose_rank.c:\d+\)"


def shows_all(host, text):
    for rank in range(3):
        shows(text, host, rank, WAITS)
    shows(text, host, 3, LATE)


def whole(host):
    """All ranks with their calls, on each host, for people and for programs."""
    host.await_file("going")
    host.until(lambda: host.job()["verdict"]["cause"] == "elsewhere" and host.job()["ranks"][2]["waits_for"] == [3], "waits")
    text = host.diagnose()
    shows_all(host, text)
    assert re.search(rf"^      rank 3: .*pid {host.pids[3]} on host host1", text, re.MULTILINE), text
    assert "has not answered" not in text and "did not answer" not in text, text
    job = host.job()
    assert [rank["host"] for rank in job["ranks"]] == ["host0", "host0", "host1", "host1"], job
    assert [rank["pid"] for rank in job["ranks"]] == host.pids, job
    assert all(rank["readable"] and rank["phases"][0]["name"] == "step" for rank in job["ranks"]), job
    assert [(one["host"], one["ranks"], one["asked"], one["answered"]) for one in job["hosts"]] == [
        ("host0", [0, 1], host.number == 0, True), ("host1", [2, 3], host.number == 1, True)], job
    host.together("seen")
    host.make("go")


def one_stopped(host, rank):
    """Another rank of that host answers, or asks."""
    host.await_file("going")
    mine = rank // PER_HOST == host.number
    if mine:
        host.signal(signal.SIGSTOP, [rank % PER_HOST])
    host.together("stopped")
    if host.number == 0:
        text = host.diagnose()
        shows(text, host, rank, " stopped ")
        for other in {0, 1, 2} - {rank}:
            shows(text, host, other, WAITS)
        shows(text, host, 3, LATE)
    host.together("seen")
    if mine:
        host.signal(signal.SIGCONT, [rank % PER_HOST])
    host.make("go")


def agent_stopped(host):
    one_stopped(host, 0)


def delegate_stopped(host):
    one_stopped(host, 2)


def first_ones_stopped(host):
    """Of three ranks of a host the first two, which are asked first: one command learns from the third one about all."""
    host.await_file("going")
    if host.number == 1:
        host.signal(signal.SIGSTOP, [0, 1])
    host.together("stopped")
    if host.number == 0:
        text = host.lockstep_says("trace")
        assert "has not answered" not in text and "cannot be read" not in text, text
    host.together("drawn")
    if host.number == 0:
        text = host.diagnose()
        for rank in (3, 4):
            shows(text, host, rank, " stopped ")
        shows(text, host, 5, LATE)
    host.together("seen")
    if host.number == 1:
        host.signal(signal.SIGCONT, [0, 1])
    host.make("go")


def host_stopped(host):
    """What is known of it is shown, and that it does not answer."""
    host.await_file("going")
    if host.number == 1:
        host.signal(signal.SIGSTOP)
    host.together("stopped")
    if host.number == 0:
        text = host.diagnose()
        assert re.search(r"^  host host1 \(ranks 2, 3\) did not answer within 300 ms", text, re.MULTILINE), text
        for rank in (0, 1):
            shows(text, host, rank, WAITS)
        shows(text, host, 2, r"its host has not answered; last heard of in all-reduce #11$")
        shows(text, host, 3, r"its host has not answered; last heard of in all-reduce #10$")
        assert "host1" in text.split("rank 3")[-1], text
        host.until(lambda: host.job()["hosts"][1]["unheard_ms"], "silence that heartbeats notice")
        job = host.job()
        assert [one["answered"] for one in job["hosts"]] == [True, False], job
        assert [rank["readable"] for rank in job["ranks"]] == [True, True, False, False], job
        text = host.diagnose()
        assert re.search(r"it and host host0 \(ranks 0, 1\) have not heard each other for \d+\.\d s$", text, re.MULTILINE), text
    host.together("seen")
    if host.number == 1:
        host.signal(signal.SIGCONT)
    host.make("go")


def all_here_stopped(host):
    """Nobody is there who could ask."""
    host.await_file("going")
    if host.number == 0:
        host.signal(signal.SIGSTOP)
        text = host.diagnose()
        assert re.search(r"^  no rank of host host0 \(ranks 0, 1\) has answered within \d+ ms, so the other hosts were not asked$",
                         text, re.MULTILINE), text
        shows(text, host, 0, " stopped ")
        shows(text, host, 2, r"its host has not answered; last heard of in all-reduce #11$")
        host.signal(signal.SIGCONT)
        host.until(lambda: host.job()["ranks"][3]["readable"], "an answer of ranks that go on")
    host.together("seen")
    host.make("go")


def answers_held(host):
    """Files for commands that the ranks of this host hold."""
    held = 0
    for rank in host.ranks:
        for name in os.listdir(f"/proc/{rank.pid}/fd"):
            try:
                held += "lockstep-shown" in os.readlink(f"/proc/{rank.pid}/fd/{name}")
            except OSError:
                pass
    return held


def many(host):
    """Commands on both hosts at once, and some are killed. Nothing stays behind."""
    host.await_file("going")
    host.until(lambda: host.job()["ranks"][2]["waits_for"] == [3], "waits")
    commands = [host.begin_diagnose() for _ in range(8)]
    for command in commands[::4]:
        command.kill()
    for number, command in enumerate(commands):
        text = command.communicate(timeout=LIMIT_S)[0]
        if number % 4:
            shows_all(host, text)
    host.until(lambda: not answers_held(host), "the end of files for commands")
    host.together("seen")
    host.make("go")


def timeline(host):
    """The clock of host 1 is ahead. What is said of it is true, and all ranks leave an all-reduce at about the same time."""
    host.await_file("going")
    true_ns = AHEAD_S * 10**9 * (1 if host.number == 0 else -1)
    job = json.loads(host.lockstep_says("trace", "--json"))
    assert [rank["host"] for rank in job["ranks"]] == ["host0", "host0", "host1", "host1"], job
    for rank in job["ranks"]:
        ahead_ns, error_ns = rank["clock_ahead_ns"], rank["clock_error_ns"]
        if rank["rank"] // PER_HOST == host.number:
            assert (ahead_ns, error_ns) == (0, 0), rank
        else:
            assert 0 < error_ns < 10**9 and abs(ahead_ns - true_ns) <= error_ns, (ahead_ns, error_ns)
        calls = [call for call in rank["operations"] if call["number"] <= 10]
        assert len(calls) == 10 and "diagnose_rank.c:" in calls[0]["site"], rank
    # Nobody is through before the last one has come, as far as the clocks are known.
    errors_ns = max(rank["clock_error_ns"] for rank in job["ranks"])
    for number in range(10):
        calls = [rank["operations"][number] for rank in job["ranks"]]
        assert max(call["begin_ns"] for call in calls) <= min(call["end_ns"] for call in calls) + errors_ns, calls
    text = host.lockstep_says("trace")
    assert "diagnose_rank, 4 ranks on 2 hosts, " in text, text
    assert f"times are those of host host{host.number} (" in text, text
    assert re.search(rf"the clock of host host{1 - host.number} \(ranks \d, \d\) is \d+\.\d+ s "
                     rf"{'behind' if host.number else 'ahead'}, give or take [\d.]+ [mu]s$", text, re.MULTILINE), text
    assert all(re.search(rf"^rank {rank}  world \|", text, re.MULTILINE) for rank in range(4)), text
    host.together("seen")
    if host.number == 1:
        host.signal(signal.SIGSTOP)
    host.together("stopped")
    if host.number == 0:
        text = host.lockstep_says("trace")
        assert re.search(r"^host host1 \(ranks 2, 3\) has not answered$", text, re.MULTILINE), text
        assert re.search(r"^rank 1  world \|", text, re.MULTILINE) and re.search(r"^rank 2 +cannot be read$", text, re.MULTILINE), text
    host.together("drawn")
    if host.number == 1:
        host.signal(signal.SIGCONT)
    host.make("go")


def cycle(host):
    """A deadlock over hosts, of which the ranks themselves do not look."""
    host.await_file("going")
    host.until(lambda: host.job()["verdict"]["cause"] == "deadlock", "a proof")
    text = host.diagnose()
    assert re.search("^  verdict: ranks 0-3 wait for each other and can never go on", text, re.MULTILINE), text
    for rank in range(4):
        shows(text, host, rank, rf"waits .* for rank {(rank + 1) % 4} in receive #1 \(diagnose_rank.c:\d+\)")
    host.together("seen")
    host.signal(signal.SIGKILL)


def dead(host):
    """Ranks learn the process that has died, and on which host it was."""
    host.await_file("going")
    if host.number == 1:
        host.signal(signal.SIGKILL, [1])


def after_dead(text, pids):
    for rank in range(3):
        name = "host1" if rank < PER_HOST else ""
        assert f"rank {rank} blames pid {pids[3]} of '{name}'" in text, text


CASES = {"whole": None, "agent_stopped": None, "delegate_stopped": None, "first_ones_stopped": None, "host_stopped": None,
         "all_here_stopped": None, "many": None, "timeline": None, "cycle": None, "dead": after_dead}


def on_host(case, folder, lockstep, program):
    host = Host(folder, lockstep, program)
    fails = case in ("cycle", "dead")
    good = False
    try:
        globals()[case](host)
        good = True
    finally:
        if not good:
            host.signal(signal.SIGKILL)
        codes = host.end()
    return 0 if fails or not any(codes) else 1


def run(case, lockstep, program):
    settings = {"LOCKSTEP_UNREACHABLE_MS": "60000", "LOCKSTEP_TIMEOUT_MS": "90000", "LOCKSTEP_PATIENCE_MS": "100"}
    if case == "first_ones_stopped":
        settings.update(PER_HOST="3")
    if case == "cycle":
        settings.update(CYCLE="1", LOCKSTEP_LOOK_MS="10000")
    with job_folder() as folder:
        words = ["sh", "-c",
                 f'exec unshare --time --monotonic $((HOST * {AHEAD_S})) --pid --fork --kill-child --mount-proc "$@"', "sh",
                 sys.executable, os.path.abspath(__file__), "--host", case, folder, lockstep, program]
        code, text = run_on_hosts(2, folder, words, 150, **settings)
        impossible = refusal(code, text)
        if impossible:
            return None, impossible
        if code == 0 and CASES[case]:
            pids = []
            for host in range(2):
                with open(os.path.join(folder, f"begin{host}"), encoding="utf-8") as file:
                    pids += map(int, file.read().split())
            try:
                CASES[case](text, pids)
            except AssertionError as error:
                return False, str(error)
        return code == 0, text


def main():
    if sys.argv[1] == "--host":
        return on_host(*sys.argv[2:])
    lockstep, program = map(os.path.abspath, sys.argv[1:3])
    return play_all(sys.argv[3:] or CASES, lambda case: run(case, lockstep, program))


if __name__ == "__main__":
    sys.exit(main())
