#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test/net/hosts_test.py HOSTS_RANK: ranks on several hosts, which are network namespaces, exchange messages over UCX. Says
so where the system lets nobody make namespaces."""

import os
import re
import subprocess
import sys
import tempfile

HOSTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "hosts")
SKIPPED = 77
# Before its ranks start each host has these addresses as well; ranks meet at the last one.
FURTHER = {
    "": "",
    "IPv6 and IPv4 on one device": "fd00::$N/64",
    "the second IPv4 address of a device": "10.9.0.$N/24",
    "the second IPv6 address of a device": "fd00::$N/64 fd01::$N/64",
    "an IPv4 address with a label": "10.9.0.$N/24,label,wire:1",
}
CASES = [(2, 1, ""), (2, 2, ""), (3, 2, "")] + [(2, 1, name) for name in FURTHER if name]
PREPARE = """
N=$((HOST + 1))
for one in %s; do
	case $one in *::*) one=$one,nodad ;; esac
	ip addr add $(echo $one | tr , ' ') dev wire || exit
	ADDRESS=${one%%%%/*}
done
exec "$@"
"""


def run(words):
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(words + [os.path.join(folder, "meeting")],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=400, check=False)


def main():
    passed = failed = 0
    for hosts, ranks, name in CASES:
        ran = run([HOSTS, str(hosts), "sh", "-c", PREPARE % FURTHER[name], "sh", sys.argv[1], str(ranks)])
        if ran.returncode == SKIPPED:
            print(f"# skipped: {ran.stdout.strip()}")
            print("0 passed, 0 failed")
            return 0
        peers = ranks * (hosts - 1)
        # Three sockets for each peer, and one that listens for the network device.
        lines = re.findall(rf"rank \d: 602 messages from each of {peers} ranks, {3 * peers + 1} sockets", ran.stdout)
        good = ran.returncode == 0 and len(lines) == hosts * ranks
        passed, failed = passed + good, failed + (not good)
        print(f"{'ok' if good else 'not ok'} - {name or f'{hosts} hosts of {ranks} ranks'}")
        if not good:
            print(ran.stdout, ran.stderr)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
