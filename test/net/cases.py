# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of ranks on several hosts share: a job with a secret on hosts that tools/hosts makes, and a runner of cases."""

import contextlib
import os
import re
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
HOSTS = os.path.join(HERE, "..", "..", "tools", "hosts")
SKIPPED = 77  # what it ends with where nobody may make namespaces
GRACE_S = 60  # for ranks that end by themselves, however little processor time they get


@contextlib.contextmanager
def job_folder():
    """A folder that all ranks share, with the job's secret in it."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        with open(os.open(os.path.join(folder, "secret"), os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(os.urandom(32))
        yield folder


def start_on_hosts(hosts, folder, words, **settings):
    """The words on each host, with these settings of Lockstep (LOCKSTEP_…) and further variables."""
    return subprocess.Popen(
        [HOSTS, str(hosts), *words],
        env={**os.environ, "LOCKSTEP_SECRET_FILE": os.path.join(folder, "secret"), "START_GRACE_S": str(GRACE_S), **settings},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")


def run_on_hosts(hosts, folder, words, limit_s, **settings):
    """Returns what start_on_hosts ends with, and what it has printed."""
    with start_on_hosts(hosts, folder, words, **settings) as process:
        try:
            text = process.communicate(timeout=limit_s)[0]
        except subprocess.TimeoutExpired:
            process.terminate()
            raise
    return process.returncode, text


def refusal(code, text):
    """Why the case cannot be played here; None: it can."""
    impossible = re.search(r"not possible here: .*|^host.: unshare: .*", text, re.MULTILINE)
    if code == SKIPPED:
        return text.strip()
    return impossible[0] if impossible else None


def start_rank(words, local, per_host, **options):
    """On a host: the rank with that number among those of this host."""
    host, hosts = int(os.environ["HOST"]), int(os.environ["HOSTS"])
    variables = {"RANK": str(host * per_host + local), "WORLD_SIZE": str(hosts * per_host), "MASTER_ADDR": "198.18.0.1",
                 "MASTER_PORT": "29500"}
    return subprocess.Popen(words, env={**os.environ, **variables}, **options)


def play_all(cases, play):
    """play(case) returns whether it went right and what was printed, or None and why it cannot be played here. Returns the
    exit status."""
    results = []
    for case in cases:
        good, text = play(case)
        if good is None:
            print(f"# skipped: {case}: {text}")
            continue
        results.append(good)
        print(f"{'ok' if good else 'not ok'} - {case}" + ("" if good else f"\n{text}"), flush=True)
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1
