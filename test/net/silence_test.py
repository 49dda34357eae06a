#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test/net/silence_test.py SILENCE_RANK [CASE…]: hosts that freeze, are cut off or hear each other in one direction only, and
what the ranks of all hosts are told. With --host it is what tools/hosts runs on each host. Says so where the system lets
nobody make namespaces."""

import os
import re
import signal
import subprocess
import sys
import threading

from cases import job_folder, play_all, refusal, run_on_hosts, start_rank

PER_HOST = 2
QUIET_S = 3  # in which a wrong verdict would come
LIMIT_MS = 8000  # where that of operations counts
PAUSES = 3  # then a verdict is taken back only when the host has been heard for 4.8 s


class Ranks:
    """The ranks of this host. Their lines are printed, and remembered."""

    def __init__(self, folder, program):
        self.folder, self.host, self.text = folder, int(os.environ["HOST"]), ""
        self.processes = [self.start(program, local) for local in range(PER_HOST)]
        self.readers = [threading.Thread(target=self.copy, args=(process,)) for process in self.processes]
        for reader in self.readers:
            reader.start()

    def start(self, program, local):
        return start_rank([program, self.folder], local, PER_HOST, text=True, errors="replace", stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def copy(self, process):
        for line in process.stdout:
            self.text += line
            sys.stdout.write(line)
            sys.stdout.flush()

    def signal(self, number, locals_=range(PER_HOST)):
        for local in locals_:
            self.processes[local].send_signal(number)

    def make(self, name):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8"):
            pass

    def await_file(self, name):
        while not os.path.exists(os.path.join(self.folder, name)) and self.live():
            threading.Event().wait(0.01)

    def await_line(self, words, times=1):
        while self.text.count(words) < times and self.live():
            threading.Event().wait(0.01)

    def live(self):
        return any(process.poll() is None for process in self.processes)

    def end(self):
        for reader in self.readers:
            reader.join()
        codes = [process.wait() for process in self.processes]
        self.make(f"ended{self.host}")
        return codes


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def deafen(host):
    """What this host sends to that one goes to nobody."""
    ip("neigh", "replace", f"198.18.0.{host + 1}", "lladdr", "02:00:00:00:00:99", "dev", "wire", "nud", "permanent")


def silent_for_good(ranks, act):
    """Host 1 falls silent, and the others end. Then its own are killed."""
    ranks.await_file("going")
    if ranks.host == 1:
        act()
        for host in range(int(os.environ["HOSTS"])):
            if host != 1:
                ranks.await_file(f"ended{host}")
        ranks.signal(signal.SIGKILL)


def frozen(ranks):
    silent_for_good(ranks, lambda: ranks.signal(signal.SIGSTOP))


def given_up(ranks):
    """Host 1 goes on when it has been given up."""
    ranks.await_file("going")
    if ranks.host == 1:
        ranks.signal(signal.SIGSTOP)
        ranks.await_file("given up")
        ranks.signal(signal.SIGCONT)
        ranks.await_line("rank 2 got")
        ranks.await_line("rank 3 got")
        ranks.make("stop")
    else:
        ranks.await_line("rank 0 got")
        ranks.await_line("rank 1 got")
        ranks.make("given up")


def unplugged(ranks):
    ranks.await_file("going")
    if ranks.host == 1:
        ip("link", "set", "wire", "down")


def resumed(ranks):
    ranks.await_file("going")
    if ranks.host == 1:
        ranks.signal(signal.SIGSTOP)
        ranks.await_file("silent")
        ranks.signal(signal.SIGCONT)
    else:
        ranks.await_line("LS-HOST-SILENT")
        ranks.make("silent")
        ranks.await_line("LS-HOST-HEARD")
        ranks.make("stop")


def paused(ranks):
    """Host 1 pauses again and again. It is heard again for longer each time until its silence is taken back; meanwhile nobody
    gives it up."""
    ranks.await_file("going")
    for n in range(1, PAUSES + 1):
        if ranks.host == 1:
            ranks.signal(signal.SIGSTOP)
            ranks.await_file(f"silent{n}")
            ranks.signal(signal.SIGCONT)
            ranks.await_file(f"heard{n}")
        else:
            ranks.await_line("LS-HOST-SILENT", n)
            ranks.make(f"silent{n}")
            ranks.await_line("LS-HOST-HEARD", n)
            ranks.make(f"heard{n}")
    ranks.make("stop")


def one_way(ranks):
    ranks.await_file("going")
    if ranks.host == 1:
        deafen(0)


def one_way_first(ranks):
    """Host 0 gives up first, and its ranks end. To host 1 the link is the reason, and not their end."""
    one_way(ranks)


def link(ranks):
    ranks.await_file("going")
    if ranks.host < 2:
        deafen(1 - ranks.host)


def agent_stopped(ranks):
    """The job waits for that rank, its host is heard."""
    ranks.await_file("going")
    if ranks.host == 1:
        ranks.signal(signal.SIGSTOP, [0])
        threading.Event().wait(QUIET_S)
        ranks.signal(signal.SIGCONT, [0])
        ranks.make("stop")


def agents_stopped(ranks):
    """The first ranks of both hosts at once: on each another rank takes over, finds that of the other host, and hears it. Then
    it misses it."""
    ranks.await_file("going")
    ranks.signal(signal.SIGSTOP, [0])
    threading.Event().wait(QUIET_S)
    if ranks.host == 1:
        print("no cable", flush=True)
        ip("link", "set", "wire", "down")
    ranks.await_line(f"rank {2 * ranks.host + 1} got")
    ranks.signal(signal.SIGKILL, [0])


def stopped_in_the_middle(ranks):
    """A rank stops itself while its bytes are on the way. It is killed once the ranks of the other host have ended."""
    stopped = int(os.environ["STOPS"])
    if ranks.host == stopped // PER_HOST:
        ranks.await_file(f"ended{1 - ranks.host}")
        ranks.signal(signal.SIGKILL, [stopped % PER_HOST])


source_stopped = target_stopped = root_stopped = stopped_in_the_middle


def transfer_cut(ranks):
    unplugged(ranks)


def agent_killed(ranks):
    """The others keep their groups open, and another rank of its host sends heartbeats."""
    ranks.await_file("going")
    if ranks.host == 1:
        ranks.signal(signal.SIGKILL, [0])
        threading.Event().wait(QUIET_S)
        ranks.make("stop")


def healthy(ranks):
    ranks.await_file("going")
    if ranks.host == 0:
        threading.Event().wait(QUIET_S)
        ranks.make("stop")


def flaky(ranks):
    """Host 0 does not hear this host for a moment, again and again."""
    ranks.await_file("going")
    if ranks.host == 1:
        found = subprocess.run(["ip", "neigh", "show", "198.18.0.1"], check=True, capture_output=True, text=True).stdout
        there = re.search(r"lladdr (\S+)", found)[1]
        for _ in range(20):
            deafen(0)
            threading.Event().wait(0.1)
            ip("neigh", "replace", "198.18.0.1", "lladdr", there, "dev", "wire", "nud", "permanent")
            threading.Event().wait(0.1)
        ranks.make("stop")


def on_host(case, folder, program):
    if case == "one_way_first" and os.environ["HOST"] == "1":
        os.environ["LOCKSTEP_UNREACHABLE_MS"] = "60000"
    ranks = Ranks(folder, program)
    try:
        globals()[case](ranks)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"not possible here: {error}")
        ranks.make("stop")
    codes = ranks.end()
    return 0 if not any(codes) else 1


def reported(text, host, words):
    """The seconds after which that host said this; None: it did not, or again without taking it back."""
    found = re.findall(rf"^host{host}: lockstep: rank \d+: {words}.*?, for (\d+\.\d) s", text, re.MULTILINE)
    taken_back = re.findall(rf"^host{host}: .*\[LS-HOST-HEARD\]$", text, re.MULTILINE)
    return float(found[0]) if found and len(found) <= 1 + len(taken_back) else None


def got(text, rank, status, words):
    return re.search(rf"^host\d: rank {rank} got {status}: {words}", text, re.MULTILINE)


SILENT = r"host host{0} \(ranks {1}-{2}\) has been silent since \d\d:\d\d:\d\d\.\d"
LINK = r"what host host{0} \(ranks \d-\d\) sends to host host{1} \(ranks \d-\d\) has not arrived since \d\d:\d\d:\d\d\.\d"


def after_a_second(text, host, words):
    """Not before; how much later depends on the processor time that the host gets."""
    seconds = reported(text, host, words)
    return seconds is not None and seconds >= 1


def none(text):
    """Nothing of the network. A host that gets no processor for a second is silent; then it says afterwards that it did not
    run."""
    said = re.findall(r"^.*\[LS-HOST-.*\]$", text, re.MULTILINE)
    silent = [line for line in said if "[LS-HOST-SILENT]" in line]
    stood = [line for line in said if "it was stopped, or short of processors [LS-HOST-HEARD]" in line]
    return len(silent) == len(stood) and len(said) == 2 * len(stood)


def went_on(text, ranks=4):
    return len(re.findall(r"^host\d: rank \d went on$", text, re.MULTILINE)) == ranks


def silence_of_1(text):
    words = SILENT.format(1, 2, 3)
    return after_a_second(text, 0, words) and all(got(text, rank, "LS_UNREACHABLE", words) for rank in (0, 1))


def silence_of_both(text):
    words = SILENT.format(0, 0, 1)
    return silence_of_1(text) and after_a_second(text, 1, words) and all(got(text, rank, "LS_UNREACHABLE", words) for rank in (2, 3))


def stopped_and_told(text, stopped, operation):
    """First a report, and all others fail at the time limit."""
    words = rf"rank {stopped} \(pid \d+ on host host\d\) is stopped in {operation} #"
    return none(text) and re.search(rf"^host\d: {words}.* for [\d.]+ m?s, called", text, re.MULTILINE) and all(
        got(text, rank, "LS_TIMED_OUT", rf"rank \d timed out in .*: {words}.* for \d+\.\d s")
        for rank in range(4) if rank != stopped)


def agents_taken_over(text):
    before, _, after = text.partition("no cable")
    report = re.search(r"^host\d: (?:ranks 0 and 2 are|rank [02] \(.*\) is) stopped .* for [\d.]+ m?s, called", before, re.MULTILINE)
    return report and none(before) and all(
        after_a_second(after, host, SILENT.format(*other)) and got(after, 2 * host + 1, "LS_UNREACHABLE", SILENT.format(*other))
        for host, other in ((0, (1, 2, 3)), (1, (0, 0, 1))))


CASES = {
    "healthy": (2, lambda text: none(text) and went_on(text)),
    "frozen": (2, silence_of_1),
    "given_up": (2, lambda text: silence_of_1(text) and all(got(text, rank, r"LS_(UNREACHABLE|PEER_DIED)", "") for rank in (2, 3))),
    "unplugged": (2, silence_of_both),
    "resumed": (2, lambda text: after_a_second(text, 0, SILENT.format(1, 2, 3)) and went_on(text) and re.search(
        r"has heard host host1 \(ranks 2-3\) again .*: it was stopped, or short of processors", text)),
    "paused": (2, lambda text: went_on(text) and text.count("LS-HOST-HEARD") >= PAUSES),
    "one_way": (2, lambda text: after_a_second(text, 1, LINK.format(1, 0)) and after_a_second(text, 0, SILENT.format(1, 2, 3)) and all(
        got(text, rank, "LS_UNREACHABLE", "host host") for rank in range(4))),
    "one_way_first": (2, lambda text: all(got(text, rank, "LS_UNREACHABLE", "host host") for rank in range(4))),
    "link": (3, lambda text: all(after_a_second(text, host, LINK.format(*ends)) for host, ends in (
        (0, (1, 0)), (1, (0, 1)), (2, (0, 1)), (2, (1, 0)))) and "LS-HOST-SILENT" not in text and all(
            got(text, rank, "LS_UNREACHABLE", r"host host\d \(ranks \d-\d\) cannot be reached") for rank in range(6))),
    "agent_stopped": (2, lambda text: none(text) and went_on(text)),
    "agents_stopped": (2, agents_taken_over),
    "source_stopped": (2, lambda text: stopped_and_told(text, 3, "send")),
    "target_stopped": (2, lambda text: stopped_and_told(text, 1, "receive")),
    "root_stopped": (2, lambda text: stopped_and_told(text, 3, "scatter")),
    "transfer_cut": (2, silence_of_both),
    "agent_killed": (2, lambda text: none(text) and all(got(text, rank, "LS_PEER_DIED", "") for rank in (0, 1, 3))),
    "flaky": (2, lambda text: none(text) and went_on(text)),
}


# In the middle of long payloads.
MOVING = {
    "source_stopped": {"MOVES": "messages", "STOPS": "3", "LOCKSTEP_TIMEOUT_MS": str(LIMIT_MS)},
    "target_stopped": {"MOVES": "messages", "STOPS": "1", "LOCKSTEP_TIMEOUT_MS": str(LIMIT_MS)},
    "root_stopped": {"MOVES": "scatter", "STOPS": "3", "LOCKSTEP_TIMEOUT_MS": str(LIMIT_MS)},
    "transfer_cut": {"MOVES": "messages"},
}


def run(case, program):
    hosts, is_right = CASES[case]
    unreachable_ms = {"resumed": "60000", "agent_stopped": "60000", "paused": "4000"}.get(case, "2000")
    settings = {"LOCKSTEP_UNREACHABLE_MS": unreachable_ms, "LOCKSTEP_TIMEOUT_MS": "60000"}
    settings.update(MOVING.get(case, {}))
    if case in ("agent_killed", "given_up"):
        settings["LINGERS"] = "1"
    with job_folder() as folder:
        words = [sys.executable, os.path.abspath(__file__), "--host", case, folder, program]
        code, text = run_on_hosts(hosts, folder, words, 400, **settings)
    impossible = refusal(code, text)
    return (None, impossible) if impossible else (bool(is_right(text)), text)


def main():
    if sys.argv[1] == "--host":
        return on_host(*sys.argv[2:])
    program = os.path.abspath(sys.argv[1])
    return play_all(sys.argv[2:] or CASES, lambda case: run(case, program))


if __name__ == "__main__":
    sys.exit(main())
