#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What tools/hosts runs on each host for programs that have a launcher of their own, or none:

on_host.py launch FOLDER COMMAND…     COMMAND on host 0; it starts its processes on the others by FOLDER/agent, which is
                                      to it what ssh is elsewhere. FOLDER is one that all hosts see
on_host.py pair SERVER… -- CLIENT…    SERVER on host 0, and CLIENT on host 1, again and again until SERVER is there

FOLDER/agent HOST COMMAND… passes its standard streams to the host, which runs COMMAND by a shell and tells how it ended."""

import array
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

END = b"\0"  # in place of a command: the launcher has ended
REFUSED = "Connection refused"


# ---- launch ----


def run_for(connection):
    """Runs the command that one agent asks for. False: the launcher has ended, and no agent will ask any more."""
    command, streams, _, _ = socket.recv_fds(connection, 1 << 16, 3)
    if command == END:
        return False
    process = subprocess.Popen(["sh", "-c", command.decode()], stdin=streams[0], stdout=streams[1], stderr=streams[2])
    for stream in streams:
        os.close(stream)

    def tell():
        status = process.wait()
        try:
            connection.sendall(array.array("i", [status if status >= 0 else 128 - status]))
        except BrokenPipeError:
            pass  # the agent has been ended
        connection.close()

    thread = threading.Thread(target=tell)
    thread.start()
    return thread


def serve(folder, host):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"{folder}/host{host}")
        listener.listen()
        with open(f"{folder}/ready{host}", "w", encoding="utf-8"):  # waits for host 0
            pass
        threads = []
        while thread := run_for(listener.accept()[0]):
            threads.append(thread)
    for thread in threads:
        thread.join()
    return 0


def ask(folder, host, command, streams=()):
    """The connection to that host, which has got the command."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(f"{folder}/{host}")
    socket.send_fds(connection, [command], streams)
    return connection


def agent(folder, host, words):
    connection = ask(folder, host, " ".join(words).encode(), (0, 1, 2))
    answer = connection.recv(4)
    return array.array("i", answer)[0] if answer else 1


def launch(folder, words):
    host, hosts = int(os.environ["HOST"]), int(os.environ["HOSTS"])
    if host > 0:
        return serve(folder, host)
    for other in range(1, hosts):
        with open(f"{folder}/ready{other}", encoding="utf-8") as ready:
            ready.read()
    try:
        return abs(subprocess.run(words, check=False).returncode)
    finally:
        for other in range(1, hosts):
            ask(folder, f"host{other}", END).close()


def prepare(folder, hosts):
    """The caller of tools/hosts calls it first: makes the files of the folder."""
    os.symlink(os.path.abspath(__file__), f"{folder}/agent")
    for other in range(1, hosts):
        os.mkfifo(f"{folder}/ready{other}")


# ---- pair ----


def pair(server, client):
    if os.environ["HOST"] == "0":
        return abs(subprocess.run(server, stdout=subprocess.DEVNULL, check=False).returncode)
    while True:
        ran = subprocess.run(client, capture_output=True, text=True, check=False)
        if REFUSED not in ran.stdout + ran.stderr:
            break
    print(ran.stdout + (ran.stderr if ran.returncode else ""), end="")
    return abs(ran.returncode)


def main():
    if Path(sys.argv[0]).name == "agent":
        return agent(os.path.dirname(sys.argv[0]), sys.argv[1], sys.argv[2:])
    if sys.argv[1:2] == ["launch"] and len(sys.argv) > 3:
        return launch(sys.argv[2], sys.argv[3:])
    if sys.argv[1:2] == ["pair"] and "--" in sys.argv:
        middle = sys.argv.index("--")
        return pair(sys.argv[2:middle], sys.argv[middle + 1:])
    sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(main())
