# SPDX-License-Identifier: BSD-3-Clause
"""A job on several hosts, to which faults come by commands to a process on each of them. Each line that a rank prints comes
with its time. As a program, commanded.py FOLDER RANKS_OF_EACH_HOST COMMAND… is what tools/hosts runs on each host."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import namedtuple

from cases import refusal, start_on_hosts, start_rank

BEGIN_S = 240  # a job that takes longer to begin or to end hangs


class Host:
    """The ranks of this host. Each of their lines is printed with the time at which it came. Commands come through a file."""

    def __init__(self, folder, per_host, words):
        self.lock, self.number = threading.Lock(), int(os.environ["HOST"])
        self.commands = os.path.join(folder, f"commands{self.number}")
        self.ranks = [start_rank(words, local, per_host, text=True, errors="replace", stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for local in range(per_host)]
        self.readers = [threading.Thread(target=self.copy, args=(self.number * per_host + local, rank))
                        for local, rank in enumerate(self.ranks)]
        for reader in self.readers:
            reader.start()

    def say(self, text, at_ns):
        with self.lock:
            sys.stdout.write(f"{at_ns} {text}\n")
            sys.stdout.flush()

    def copy(self, number, rank):
        self.say(f"rank {number} is {rank.pid}", time.monotonic_ns())
        for line in rank.stdout:
            self.say(line.rstrip("\n"), time.monotonic_ns())
        self.say(f"rank {number} ended with {rank.wait()}", time.monotonic_ns())

    def act(self, verb, *words):
        begin_ns = time.monotonic_ns()
        if verb == "signal":
            for local in map(int, words[1:]):
                self.ranks[local].send_signal(getattr(signal, words[0]))
        else:
            subprocess.run([verb, *words], check=True)
        self.say(f"acted {verb} {' '.join(words)}", begin_ns)

    def serve(self):
        try:
            with open(self.commands, encoding="utf-8") as commands:
                for line in commands:
                    self.act(*line.split())
        except (OSError, subprocess.CalledProcessError) as error:
            self.say(f"not possible here: {error}", time.monotonic_ns())
        for rank in self.ranks:
            rank.stdin.close()
        for reader in self.readers:
            reader.join()
        return 0


# ---- the job, seen from outside ----


class Failure(Exception):
    pass


class Skipped(Exception):
    pass


Line = namedtuple("Line", "host at_ns text")
Told = namedtuple("Told", "rank status at_ns blames pid host text")


class Job:
    """It is read until it ends. `start` is the number of lines before the fault that is being played."""

    def __init__(self, options, folder, arguments, settings):
        self.options, self.folder, self.lines, self.start = options, folder, [], 0
        self.size = options.hosts * options.ranks
        self.change = threading.Condition()
        self.ended = False
        for host in range(options.hosts):
            os.mkfifo(os.path.join(folder, f"commands{host}"), 0o666)
        words = [sys.executable, os.path.abspath(__file__), folder, str(options.ranks), options.rank, *arguments]
        self.process = start_on_hosts(options.hosts, folder, words, **settings)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        self.commands = []

    def read(self):
        for line in self.process.stdout:
            found = re.match(r"host(\d+): (\d+) (.*)", line)
            with self.change:
                self.lines.append(Line(int(found[1]), int(found[2]), found[3]) if found else Line(-1, 0, line.rstrip("\n")))
                self.change.notify()
        with self.change:
            self.ended = True
            self.change.notify()

    def text(self):
        return "\n".join(f"host{line.host}: {line.at_ns / 1e9:.3f} {line.text}" for line in self.lines)

    def find(self, pattern, host=None):
        """The lines of this play in which it is, with the match."""
        return [(line, found) for line in self.lines[self.start:] if host in (None, line.host)
                for found in [re.search(pattern, line.text)] if found]

    def wait(self, is_so, limit_s, what):
        end_s = time.monotonic() + limit_s
        with self.change:
            while not is_so():
                reason = refusal(self.process.poll(), "\n".join(line.text for line in self.lines if line.host < 0 or
                                                                "not possible" in line.text)) if self.ended else None
                if reason:
                    raise Skipped(reason)
                if self.ended or not self.change.wait(end_s - time.monotonic()):
                    raise Failure(f"waited in vain for {what}")

    def tell(self, host, *words):
        print(*words, file=self.commands[host], flush=True)

    def signal(self, name, ranks):
        for host in range(self.options.hosts):
            mine = [rank % self.options.ranks for rank in ranks if rank // self.options.ranks == host]
            if mine:
                self.tell(host, "signal", name, *mine)

    def ranks_of(self, host):
        return range(host * self.options.ranks, (host + 1) * self.options.ranks)

    def host_of(self, rank):
        return rank // self.options.ranks

    def begin(self):
        self.wait(lambda: len(self.find(r"^rank \d+ is there$")) == self.size, BEGIN_S, "the job's begin")
        self.pids = {int(found[1]): int(found[2]) for _, found in self.find(r"^rank (\d+) is (\d+)$")}

    def told(self, number):
        """What each rank was told in this play."""
        pattern = rf"^rank (\d+) got (\w+) at (\d+), play {number}, blames (-?\d+), pid (\d+) of '(.*?)': (.*)$"
        return {int(m[1]): Told(int(m[1]), m[2], int(m[3]), int(m[4]), int(m[5]), m[6], m[7]) for _, m in self.find(pattern)}

    def end(self):
        for file in self.commands:
            file.close()
        self.wait(lambda: self.ended, BEGIN_S, "the job's end")

    def __enter__(self):
        try:
            # For reading as well, or it waits until the host is there.
            self.commands = [open(os.open(os.path.join(self.folder, f"commands{host}"), os.O_RDWR), "w", encoding="utf-8")
                             for host in range(self.options.hosts)]
        except OSError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for file in self.commands:
            file.close()
        if self.process.poll() is None:
            self.process.terminate()
        self.reader.join()
        self.process.wait()


if __name__ == "__main__":
    sys.exit(Host(sys.argv[1], int(sys.argv[2]), sys.argv[3:]).serve())
