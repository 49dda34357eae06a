# SPDX-License-Identifier: BSD-3-Clause
"""UCX as a peer: its own benchmark, ucx_perftest, between two processes over shared memory. It has a clock and loops of
its own, and one buffer for all messages of a window, as ours; what it prints is the mean of one long loop."""

import os
import socket
import subprocess
import time

import quiet

TESTS = {"ping-pong": "tag_lat", "bandwidth": "tag_bw", "message-rate": "tag_bw"}
BYTES = 1 << 30  # that a loop sends, if it does not end with ITERATIONS
ITERATIONS = 200000
CONNECT_S = 10


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def micro(text, size):
    """Microseconds of a message of what -f -v prints: a line of names and one of numbers, of which the rate of
    small and the bandwidth of large messages (of 2^20 bytes) have the more digits."""
    lines = [line.split(",") for line in text.strip().split("\n") if "," in line]
    if len(lines) != 2:
        raise quiet.Failed(f"ucx_perftest did not print its numbers: {text}")
    values = dict(zip(lines[0], map(float, lines[1])))
    rate, bandwidth = values["overall_mr"], values["overall_bw"]
    return 1e6 / rate if size < 4096 else size / (bandwidth * (1 << 20)) * 1e6


class Ucx:
    """A Program (programs.py) for two ranks and what ucx_perftest has a test for."""

    kind = "peer"

    def __init__(self, name, transports):
        self.name = name
        self.env = {"UCX_TLS": transports, "UCX_WARN_UNUSED_ENV_VARS": "n"}

    def fits(self, ranks, op, size):
        return ranks == 2 and op in TESTS

    def times(self, ranks, fresh, points, effort):
        return {(op, size): self.time(op, size) for op, size in points}, {}

    def time(self, op, size):
        count = max(8, min(ITERATIONS, BYTES // size))
        cores = sorted(os.sched_getaffinity(0))
        port = free_port()
        command = ["ucx_perftest", "-p", str(port)]
        test = ["-t", TESTS[op], "-s", size, "-n", count, "-w", max(2, count // 10), "-f", "-v"]
        server = subprocess.Popen(quiet.words_of([*command, "-c", cores[0]]), env={**os.environ, **self.env}, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            text = self.connected([*command, "127.0.0.1", "-c", cores[1 % len(cores)], *test], server)
            server.wait(CONNECT_S)
        except subprocess.TimeoutExpired:
            raise quiet.Failed(f"{self.name}: the server of ucx_perftest did not end") from None
        finally:
            server.kill()
            server.wait()
        return micro(text, size)

    def connected(self, command, server):
        """What the client writes. It tries once only to reach the server, which may not have come that far."""
        end = time.monotonic() + CONNECT_S
        while True:
            try:
                return quiet.output_of(command, self.env, 60)
            except quiet.Failed as error:
                # It says what is wrong among its numbers, where nobody else would look for it.
                if "Connection refused" not in error.output or server.poll() is not None or time.monotonic() > end:
                    raise quiet.Failed(f"{error}{error.output.strip()[-600:]}") from None


def programs():
    """Raises OSError where it is not installed."""
    subprocess.run(["ucx_perftest", "-h"], capture_output=True, check=False)
    return [Ucx("ucx", "posix,cma,self"), Ucx("ucx no-cma", "posix,self")]
