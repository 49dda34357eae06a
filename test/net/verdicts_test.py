#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""One fault at a moment drawn from a seed, in a job on several hosts that calls small collectives: which error each survivor
gets, and how soon. A wrong verdict fails; times are figures.

verdicts_test.py VERDICTS_RANK [FAULT…] [--hosts N] [--ranks N: on each] [--times N: of each fault] [--seed N] [--show]
A failure prints its seed: FAULT --times 1 --seed SEED plays it again. Says so where the system lets nobody make namespaces."""

import argparse
import os
import random
import re
import sys
import threading

from cases import HERE, job_folder, play_all
from commanded import BEGIN_S, Failure, Job, Skipped

PATIENCE_S = 60  # the same for ranks that get no error
LATEST_S = 0.5  # when the fault is played, after all have begun
QUIET_S = 1.5  # in which a wrong verdict about a host would come
STOP_LIMIT_MS = 5000  # the time limit of operations with a rank that is stopped
UNREACHABLE_MS = 2000  # that of hosts that are silent
OPERATIONS = {"allreduce": "all-reduce", "barrier": "barrier", "broadcast": "broadcast", "allgather": "all-gather",
              "recv": "receive"}


# ---- faults ----


class Play:
    """What is drawn from a seed."""

    def __init__(self, seed, options):
        draw = random.Random(seed)
        hosts = draw.sample(range(options.hosts), options.hosts)
        self.seed, self.delay_s = seed, draw.uniform(0, LATEST_S)
        self.host, self.other = hosts[:2]
        self.rank = self.host * options.ranks + draw.randrange(options.ranks)
        self.agent = self.host * options.ranks
        self.cycle = sorted(host * options.ranks + draw.randrange(options.ranks) for host in hosts[:3])
        self.times = {}  # of this play: name → seconds

    def __str__(self):
        return f"seed {self.seed}"


def need(condition, what):
    if not condition:
        raise Failure(what)


def sites():
    """Where the program calls each operation, by its name in reports."""
    found = {}
    with open(os.path.join(HERE, "verdicts_rank.c"), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            for name in re.findall(r"\bls_(\w+)\(", line):
                found.setdefault(OPERATIONS.get(name), set()).add(str(number))
    return found


def need_sites(text):
    """Each line about a rank in an operation has the operation's call site; one line at least."""
    right = sites()
    operation = "|".join(OPERATIONS.values())
    lines = [line for line in text.split("|") if re.match(rf"  ranks? \d[^:]*: [^:]*?(?:in|last was) (?:{operation}) #", line)]
    need(lines, f"no operation in {text}")
    for line in lines:
        name = re.search(rf"\b({operation}) #", line)[1]
        site = re.search(r"called from verdicts_rank\.c:(\d+)", line)
        need(site and site[1] in right[name], f"not the call site of {name}: {line}")


def host_words(job, host):
    ranks = job.ranks_of(host)
    return f"host host{host} \\(rank" + (f"s {ranks[0]}-{ranks[-1]}\\)" if len(ranks) > 1 else f" {ranks[0]}\\)")


def survivors(job, play, dead=()):
    """Waits until all have got an error, and returns the errors."""
    expected = set(range(job.size)) - set(dead)
    job.wait(lambda: expected <= set(job.told(play.number)), PATIENCE_S, f"what {len(expected)} ranks are told")
    told = job.told(play.number)
    return [told[rank] for rank in sorted(expected)]


def acted_ns(job):
    return min(line.at_ns for line, _ in job.find(r"^acted "))


def begun_ns(job, ranks):
    """When the last of these ranks began the wrong call."""
    begins = {int(found[1]): int(found[2]) for _, found in job.find(r"^rank (\d+) begins at (\d+)$")}
    need(set(ranks) == set(begins), f"{sorted(begins)} made the wrong call, and {ranks} were to")
    return max(begins.values())


def seconds(told, begin_ns):
    return [(one.at_ns - begin_ns) * 1e-9 for one in told]


def need_told(job, one, status, culprits, words):
    """Checks the error that a rank got: status, rank at fault, where its process is, and the text of the report."""
    where = f"rank {one.rank} got {one.status}, blames {one.blames}, pid {one.pid} of '{one.host}': {one.text}"
    need(one.status == status, f"not {status}: {where}")
    need(re.search(words, one.text), f"'{words}' is not in: {where}")
    need_sites(one.text)
    if not culprits:
        need((one.blames, one.pid, one.host) == (-1, 0, ""), f"no single rank is to blame: {where}")
        return
    need(one.blames in culprits, f"{one.blames} is not to blame: {where}")
    role = {"LS_PEER_DIED": "dead", "LS_TIMED_OUT": "stopped", "LS_MISMATCH": "differing"}[status]
    line = re.search(rf"\|  ranks? [^:|]*: {role}, ([^|]*)", one.text)
    need(line, f"no line of the rank: {where}")
    # Where a rank was that has died is known to its own host, whose report may come second.
    far = status == "LS_PEER_DIED" and line[1].startswith(f"on host host{job.host_of(one.blames)} ")
    need(far or re.match(r"(?:in|last was) .*, called from verdicts_rank\.c:\d+", line[1]), f"not where the rank was: {where}")
    here = job.host_of(one.rank) == job.host_of(one.blames)
    need(one.pid == job.pids[one.blames] and one.host == ("" if here else f"host{job.host_of(one.blames)}"), f"not the process: {where}")


def need_no_host_verdict(job, but="$^"):
    lines = [line.text for line, _ in job.find("LS-HOST-") if not re.search(but, line.text)]
    need(not lines, f"a host is accused: {lines}")


def kill(job, play, ranks, but="$^"):
    job.signal("SIGKILL", ranks)
    told = survivors(job, play, ranks)
    for one in told:
        need_told(job, one, "LS_PEER_DIED", ranks, rf"^rank {one.blames} ")
    play.times["errors"] = seconds(told, acted_ns(job))
    need_no_host_verdict(job, but)


def killed(job, play):
    kill(job, play, [play.rank])


def host_killed(job, play):
    """That it is silent is true as well, and said where its end is noticed later than that."""
    kill(job, play, list(job.ranks_of(play.host)), silent(job, play.host))


def agent_killed(job, play):
    """Another rank sends its host's heartbeats, so nobody misses that host."""
    kill(job, play, [play.agent])
    threading.Event().wait(QUIET_S)
    need_no_host_verdict(job)


def stop(job, play, rank):
    job.signal("SIGSTOP", [rank])
    report = rf"^rank {rank} \(pid {job.pids[rank]} on host host{job.host_of(rank)}\) is stopped"
    job.wait(lambda: job.find(report), PATIENCE_S, f"a report that rank {rank} is stopped")
    play.times["reported"] = [(job.find(report)[0][0].at_ns - acted_ns(job)) * 1e-9]
    for one in survivors(job, play, [rank]):
        need_told(job, one, "LS_TIMED_OUT", [rank], rf"^rank \d+ timed out in .*: rank {rank} \(pid \d+ on host \w+\) is stopped")
    need_no_host_verdict(job)
    need(len(job.find(report)) <= job.options.hosts, f"{len(job.find(report))} reports")
    job.signal("SIGCONT", [rank])
    survivors(job, play)


def stopped(job, play):
    stop(job, play, play.rank)


def agent_stopped(job, play):
    stop(job, play, play.agent)


def mismatch(job, play):
    """A host that hears too little of the others compares two ranks, and blames no single one."""
    job.signal("SIGUSR1", [play.rank])
    told = survivors(job, play)
    for one in told:
        words = rf"\branks? (?:\d+ and )?{play.rank}\b.* called "
        if one.blames < 0:
            need_told(job, one, "LS_MISMATCH", (), words)
        else:
            need_told(job, one, "LS_MISMATCH", [play.rank], words)
    play.times["errors"] = seconds(told, begun_ns(job, [play.rank]))
    need_no_host_verdict(job)


def cycle(job, play):
    job.signal("SIGUSR2", play.cycle)
    names = f"{', '.join(map(str, play.cycle[:-1]))} and {play.cycle[-1]}"
    told = survivors(job, play)
    for one in told:
        need_told(job, one, "LS_DEADLOCK", (), f"^ranks {names} wait for each other and can never go on: ")
        for rank, source in zip(play.cycle, play.cycle[1:] + play.cycle[:1]):
            words = rf"rank {rank} waits for rank {source} \(receive #1"
            need(re.search(words, one.text), f"'{words}' is not in {one.text}")
    play.times["errors"] = seconds(told, begun_ns(job, play.cycle))
    need_no_host_verdict(job)


# ---- what cannot be proved: hosts that are silent, links that are broken ----

REPORT = r"^lockstep: rank \d+: "
SINCE = r"since \d\d:\d\d:\d\d\.\d, for \d+\.\d s"


def silent(job, host):
    """The errors of the ranks that fail; a report has a prefix."""
    return f"{host_words(job, host)} has been silent {SINCE}"


def link(job, source, target):
    return f"what {host_words(job, source)} sends to {host_words(job, target)} has not arrived {SINCE}"


def out_of_reach(job, host):
    return f"^{host_words(job, host)} cannot be reached: "


def note_reports(job, play, expected):
    """expected: for each host what it has to say, once; no host says more than that about hosts."""
    for host, patterns in expected.items():
        job.wait(lambda: len(job.find("LS-HOST-", host)) >= len(patterns), PATIENCE_S, f"what host {host} says of hosts: {patterns}")
        for pattern in patterns:
            need(len(job.find(REPORT + pattern, host)) == 1, f"host {host} does not say once: {pattern}")
        lines = job.find("LS-HOST-", host)
        need(len(lines) == len(patterns), f"host {host} says of hosts {[line.text for line, _ in lines]}, and was to say {patterns}")
        first_ns = min(line.at_ns for line, _ in lines)
        play.times.setdefault("hosts that reported", []).append((first_ns - acted_ns(job)) * 1e-9)


def note_unreachable(job, play, dead, words):
    """words(host): the error that the ranks of that host get."""
    told = survivors(job, play, dead)
    for one in told:
        pattern = words(job.host_of(one.rank))
        need(one.status == "LS_UNREACHABLE" and re.search(pattern, one.text), f"not '{pattern}': {one}")
    play.times["ranks that failed"] = seconds(told, acted_ns(job))


def others_than(job, *hosts):
    return [host for host in range(job.options.hosts) if host not in hosts]


def cut(job, play):
    """The link of a host is down: nobody hears it, and it hears nobody."""
    job.tell(play.host, "ip", "link", "set", "wire", "down")
    others = others_than(job, play.host)
    note_unreachable(job, play, (), lambda host: "^" + (
        f"(?:{'|'.join(silent(job, other) for other in others)})" if host == play.host else silent(job, play.host)))
    note_reports(job, play, {play.host: [silent(job, other) for other in others], **{
        other: [silent(job, play.host)] for other in others}})


def frozen(job, play):
    """All ranks of a host are stopped."""
    ranks = list(job.ranks_of(play.host))
    job.signal("SIGSTOP", ranks)
    note_unreachable(job, play, ranks, lambda _: "^" + silent(job, play.host))
    note_reports(job, play, {other: [silent(job, play.host)] for other in others_than(job, play.host)})
    job.signal("SIGKILL", ranks)


def one_way(job, play):
    """What a host sends to another one goes to nobody."""
    job.tell(play.host, "ip", "neigh", "replace", f"198.18.0.{play.other + 1}", "lladdr", "02:00:00:00:00:99", "dev", "wire", "nud",
             "permanent")
    ends = f"(?:{out_of_reach(job, play.host)}|{out_of_reach(job, play.other)})"
    note_unreachable(job, play, (), lambda _: ends)
    note_reports(job, play, {host: [link(job, play.host, play.other)] for host in range(job.options.hosts)})


def deaf(job, play):
    """What all others send to a host goes to nobody, and they hear it."""
    others = others_than(job, play.host)
    for other in others:
        job.tell(other, "ip", "neigh", "replace", f"198.18.0.{play.host + 1}", "lladdr", "02:00:00:00:00:99", "dev", "wire", "nud",
                 "permanent")
    note_unreachable(job, play, (), lambda host: f"(?:{'|'.join('^' + silent(job, other) for other in others)})"
                     if host == play.host else out_of_reach(job, play.host))
    note_reports(job, play, {play.host: [silent(job, other) for other in others], **{
        other: [link(job, another, play.host) for another in others] for other in others}})


def slow(job, play):
    """What a host sends is slow, and heartbeats pass: nothing is reported, and a mismatch is reported over the slow link."""
    rate = f"{2 * (job.options.hosts - 1)}mbit"  # a tenth of that is heartbeats
    job.tell(play.host, "tc", "qdisc", "replace", "dev", "wire", "root", "tbf", "rate", rate, "burst", "10kb", "latency", "200ms")
    threading.Event().wait(QUIET_S)
    need_no_host_verdict(job)
    need(not job.find(r"\[LS-"), "something is reported")
    mismatch(job, play)


FAULTS = {
    "killed": (killed, {}),
    "host_killed": (host_killed, {}),
    "agent_killed": (agent_killed, {}),
    "stopped": (stopped, {"LOCKSTEP_TIMEOUT_MS": str(STOP_LIMIT_MS)}),
    "agent_stopped": (agent_stopped, {"LOCKSTEP_TIMEOUT_MS": str(STOP_LIMIT_MS)}),
    "mismatch": (mismatch, {}),
    "cycle": (cycle, {}),
    "frozen": (frozen, {"LOCKSTEP_UNREACHABLE_MS": str(UNREACHABLE_MS)}),
    "cut": (cut, {"LOCKSTEP_UNREACHABLE_MS": str(UNREACHABLE_MS)}),
    "one_way": (one_way, {"LOCKSTEP_UNREACHABLE_MS": str(UNREACHABLE_MS)}),
    "deaf": (deaf, {"LOCKSTEP_UNREACHABLE_MS": str(UNREACHABLE_MS)}),
    "slow": (slow, {}),
}
TOGETHER = ("stopped", "agent_stopped", "mismatch", "cycle")  # after these all ranks live, and the job plays the next
SETTINGS = {"LOCKSTEP_OPEN_TIMEOUT_MS": str(BEGIN_S * 1000), "LOCKSTEP_TIMEOUT_MS": "120000", "LOCKSTEP_UNREACHABLE_MS": "60000"}


def play_job(options, fault, seeds):
    """Plays the fault with each of the seeds in one job. Returns the plays that went right, and what is wrong."""
    function, settings = FAULTS[fault]
    plays, arguments = [], [str(len(seeds)), str(min(3, options.hosts))]
    with job_folder() as folder, Job(options, folder, arguments, {**SETTINGS, **settings}) as job:
        try:
            job.begin()
            for number, seed in enumerate(seeds):
                play = Play(seed, options)
                play.number = number
                job.wait(lambda: job.find(rf"^rank 0 goes on, play {number}$"), BEGIN_S, f"play {number}")
                job.start = len(job.lines)
                threading.Event().wait(play.delay_s)
                function(job, play)
                plays.append(play)
            job.end()
        except Failure as failure:
            return plays, f"seed {seeds[len(plays)] if len(plays) < len(seeds) else seeds[-1]}: {failure}\n{job.text()}"
        finally:
            if options.show:
                print(job.text())
    return plays, ""


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] * 1e3


def play_fault(options, fault):
    seeds = list(range(options.seed, options.seed + options.times))
    together = 10 if fault in TOGETHER else 1
    right, wrong, played = [], [], 0
    try:
        for first in range(0, len(seeds), together):
            plays, what = play_job(options, fault, seeds[first:first + together])
            right += plays
            played += len(plays) + bool(what)
            wrong += [what] if what else []
    except Skipped as reason:
        return None, str(reason)
    times = {}
    for play in right:
        for name, values in play.times.items():
            times.setdefault(name, []).extend(values)
    said = "".join(f"; {len(values)} {name} after p50 {percentile(values, .5):.0f} ms, p99 {percentile(values, .99):.0f} ms, "
                   f"max {max(values) * 1e3:.0f} ms" for name, values in times.items())
    print(f"# figure: {fault}: {len(right)} of {played} right{said}", flush=True)
    return not wrong, "\n".join(wrong[:3])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rank", type=os.path.abspath)
    parser.add_argument("faults", nargs="*")
    for name, number in (("hosts", 8), ("ranks", 8), ("times", 1), ("seed", random.SystemRandom().randrange(10**6) * 1000)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    print(f"# seed {options.seed}, {options.hosts} hosts of {options.ranks} ranks")
    return play_all(options.faults or FAULTS, lambda fault: play_fault(options, fault))


if __name__ == "__main__":
    sys.exit(main())
