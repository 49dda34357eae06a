#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test/net/launch_test.py LOCKSTEP RANKS_DEMO [test_…]: lockstep run --hosts, from its start to its end."""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile

from launch_hosts import BOTH, FOLDER, Far, SSH, WAITS, begin, daemons, network_of_ranks, refused
from harness import LIMIT_S, environment, equal, is_gone, lockstep, matches, parent, program, python, read, state, until


def test_ranks_of_two_hosts_meet():
    with tempfile.TemporaryDirectory() as logs:
        result = lockstep(*BOTH, "--log-dir", logs, sys.argv[2], "--rounds", 4)
        equal(result.returncode, 0, result.stderr)
        equal(sorted(result.stdout.splitlines()), sorted(f"[{rank}] round {n}" for rank in range(4) for n in (1, 2, 4)))
        equal(read(f"{logs}/rank-3.out"), b"round 1\nround 2\nround 4\n")


def test_more_ranks_than_one_host_can_have():
    result = lockstep("run", "--hosts", "host0:35,host1:35", "--ssh", SSH, sys.argv[2], "--rounds", 1)
    equal(result.returncode, 0, result.stderr)
    equal(sorted(result.stdout.splitlines()), sorted(f"[{rank}] round 1" for rank in range(70)))


def test_environment():
    names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR"]
    code = "import os, socket, hashlib\nprint(*[os.environ[n] for n in %r], socket.gethostname())\n" \
           "f = open(os.environ['LOCKSTEP_SECRET_FILE'], 'rb').read()\n" \
           "print('secret', len(f), hashlib.sha256(f).hexdigest(), os.environ['MASTER_PORT'])\n" \
           "print('meeting', os.environ.get('LOCKSTEP_RENDEZVOUS'))\n" \
           "print('rest', os.environ.get('UCX_X'), os.environ.get('MINE'), os.environ.get('OTHER'), os.environ.get('OMP_NUM_THREADS'), os.getcwd())" % names
    env = environment(LOCKSTEP_RENDEZVOUS="unix:x", UCX_X="a b", MINE="c'd", OTHER="e", LOCKSTEP_SECRET_FILE="/nonexistent")
    env.pop("OMP_NUM_THREADS", None)
    seen = set()
    for threads in "1", "3":
        if threads == "3":
            env["OMP_NUM_THREADS"] = threads
        result = lockstep(*BOTH, "--env", "MINE", *python(code), env=env, cwd=FOLDER)
        equal(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        for rank in range(4):
            host = rank // 2
            assert f"[{rank}] {rank} {rank % 2} 4 2 {host} 2 198.18.0.1 host{host}" in lines, lines
            assert f"[{rank}] meeting None" in lines, lines
            other = "None" if host else "e"
            assert f"[{rank}] rest a b c'd {other} {threads} {FOLDER}" in lines, lines
        secrets = {line[4:] for line in lines if "secret" in line}
        equal(len(secrets), 1, lines)
        seen |= secrets
        assert hashlib.sha256(bytes(32)).hexdigest() not in secrets.pop()
    equal(len(seen), 2)


def test_output_comes_whole():
    code = "import sys\nfor i in range(20000): print(i, 'x' * 100, file=sys.stderr if i % 2 else sys.stdout)"
    result = lockstep(*BOTH, *python(code))
    equal(result.returncode, 0, result.stderr[-1000:])
    for rank in range(4):
        for text, first in (result.stdout, 0), (result.stderr, 1):
            lines = [line for line in text.splitlines() if line.startswith(f"[{rank}] ")]
            equal(lines, [f"[{rank}] {i} {'x' * 100}" for i in range(first, 20000, 2)])


def test_input_goes_to_rank_0():
    text = "".join(f"line {i} {'y' * 50}\n" for i in range(20000)) + "no end"
    code = "if [ $RANK = 0 ]; then exec cat; elif read x; then echo some; else echo none; fi"
    result = subprocess.run([program(), *BOTH, "sh", "-c", code], input=text, env=environment(), capture_output=True, text=True,
                            timeout=LIMIT_S, check=False)
    equal(result.returncode, 0, result.stderr)
    lines = result.stdout.splitlines()
    equal([line[4:] for line in lines if line.startswith("[0] ")], text.splitlines())
    equal(sorted(line for line in lines if not line.startswith("[0] ")), [f"[{rank}] none" for rank in (1, 2, 3)])
    # On the other host; and one that reads a line of an input without end.
    for hosts in "host1:1,host0:1", "host0:1,host1:1":
        with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as endless:
            result = lockstep("run", "--hosts", hosts, "--ssh", SSH, "sh", "-c", "read x; echo $x; exec <&-; echo end",
                              stdin=endless.stdout)
            endless.kill()
        equal((result.returncode, sorted(result.stdout.splitlines())), (0, ["[0] end", "[0] y", "[1] ", "[1] end"]), result.stderr)


def test_reader_that_goes_away():
    code = "import sys\ntry:\n  while True: print('x' * 1000)\nexcept BrokenPipeError:\n  sys.stderr.close(); sys.exit(3)"
    with Far(*python(code)) as job:
        job.process.stdout.close()
        equal(job.process.wait(30), 3)


def test_names():
    refused("run", "--hosts", "host0:2,nosuch.invalid:1,localhost:1", "true",
            lines=[r"host nosuch.invalid: .* no address .*\[LS-RUN-HOST\]",
                   r"host localhost: this host takes the name for 127.0.0.1, .*correct /etc/hosts"])
    refused(*BOTH[:2], "host0:1,host1:1,198.18.0.2:1", *BOTH[3:], "true",
            lines=[r"host 198.18.0.2: is in --hosts twice \(as host1, and as 198.18.0.2\): name it once"])


def test_all_errors_at_once():
    text = refused("run", "--hosts", "host0:1,host1:1,host2:1,nosuch.invalid:1", "--ssh", SSH, "--lockstep", "/nowhere/lockstep",
                   "./nosuch", status=127,
                   lines=[r"host host0: cannot run './nosuch': there is no such file",
                          r"host host1: .*/nowhere/lockstep", r"host host1: ssh ended with 12\d before it was ready: "
                          r"lockstep cannot be run there: .*--lockstep PATH",
                          r"host host2: ssh: connect to host host2 port 2222: Connection refused",
                          r"host host2: ssh ended with 255 before it was ready: 'ssh -F .* host2 true' has to work",
                          r"host nosuch.invalid: ", r"because of 4 of 4 hosts: host0, host1, host2, nosuch.invalid"])
    assert "LS-RUN-FAILED" not in text, text


def test_other_version():
    refused(*BOTH, "--lockstep", f"{FOLDER}/other", "true", lines=[r"host host1: has lockstep 9.9, and this host \d+\.\d+\.\d+: "])


def test_few_descriptors_there():
    """What is said names the host or the rank, the limit, and what to do; and blames no program."""
    few, said = f"{FOLDER}/few", ""
    for files in range(5, 64):
        with open(os.open(few, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o755), "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\nulimit -n {files}; exec {program()} \"$@\"\n")
        result = lockstep(*BOTH, "--lockstep", few, "true")
        if result.returncode == 0:
            break
        matches(rf"(?m)^(\[host1\] lockstep: (the job|rank [23])|lockstep: host host1: the job) cannot be started: .*"
                rf"Too many open files: this process may have {files}, so raise the limit \(ulimit -n\)", result.stderr)
        assert "cannot run" not in result.stderr and "pid 0" not in result.stderr, result.stderr
        said += result.stderr
    matches(r"\[host1\] lockstep: rank 2 cannot be started: open failed", said)


def as_root():
    if os.getuid() == 0:
        return True
    print("# skipped: what is missing on one host only: that needs root")
    return False


def on_host1(*words):
    subprocess.run([*SSH.split(), "host1", *words], check=True, stdin=subprocess.DEVNULL)


def test_missing_there():
    if not as_root():
        return
    refused(*BOTH, f"{FOLDER}/only0/program", status=127, lines=[r"host host1: cannot run '.*/only0/program': there is no such"])
    result = subprocess.run([program(), *BOTH, "true"], cwd=f"{FOLDER}/only0", env=environment(), stdin=subprocess.DEVNULL,
                            capture_output=True, text=True, check=False)
    equal(result.returncode, 0, result.stderr)  # an empty folder of that name is there
    os.mkdir(f"{FOLDER}/only0/deeper")
    result = subprocess.run([program(), *BOTH, "true"], cwd=f"{FOLDER}/only0/deeper", env=environment(),
                            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    equal(result.returncode, 1, result.stderr)
    matches(r"host host1: there is no working directory '.*/only0/deeper' here \(No such file or directory\)", result.stderr)


def test_two_names_of_one_host():
    if not as_root():
        return
    on_host1("ip", "addr", "add", "198.18.9.9/15", "dev", "wire")
    refused(*BOTH[:2], "host1:1,198.18.9.9:1", *BOTH[3:], "true",
            lines=[r"host 198.18.9.9: is in --hosts twice \(as host1, and as 198.18.9.9\): name it once"])


def test_library_missing_there():
    if not as_root():
        return
    for library, message in ("libucp.so.0", "ranks on other hosts need UCX: .*LS-NET-MISSING"), ("libsodium.so.23", "libsodium"):
        found = subprocess.run(["sh", "-c", "PATH=$PATH:/sbin:/usr/sbin ldconfig -p"], capture_output=True, text=True, check=True)
        path = os.path.realpath(matches(rf"{library} .*=> (\S+)", found.stdout).group(1))
        on_host1("mount", "--bind", "/dev/null", path)
        try:
            refused(*BOTH, "true", lines=[rf"host host1: .*{message}"])
        finally:
            on_host1("umount", path)


def test_rank_there_is_killed():
    with Far(sys.argv[2], "--rounds", 0) as job:
        job.expect(*(f"[{rank}] round 1" for rank in range(4)))
        os.kill(job.ranks()[3], signal.SIGKILL)
        status, _, errors = job.end()
        equal(status, 137, errors)
        matches(r"rank 3 \(pid \d+ on host host1\) was killed by SIGKILL \(9\); ranks 0, 1, 2 then exited with 1 \[LS-RUN-FAILED\]",
                errors)


def test_difference_that_no_call_returns():
    """Rank 2 finds when it closes the group that the others have called one more collective, and all ranks exit with 0."""
    result = lockstep(*BOTH, sys.argv[2], "--rounds", 6, "missing", 2, 6)
    equal((result.returncode, "failed" in result.stdout), (1, False), result.stderr)
    matches(r"rank 2 finished after all-reduce #5 but ranks? .* called reduce #6", result.stderr)
    matches(r"all ranks exited with 0, but when rank \d closed a group .* \[LS-RUN-AT-CLOSE\]", result.stderr)


def test_difference_that_a_call_returns():
    """Rank 2 finds the others waiting when it closes the group, and no call of its own says so; but theirs do."""
    with Far(sys.argv[2], "--handles", "stop-leave", 2, 6) as job:
        job.expect(*(f"[{rank}] round 4" for rank in range(4)))
        ranks = job.ranks()

        def are_in_the_next_one():
            found = json.loads(lockstep("diagnose", "--json", ranks[0]).stdout)["jobs"][0]["ranks"]
            return all(found[rank]["operation"]["number"] == 6 for rank in (0, 1, 3))
        until(are_in_the_next_one, "three ranks to be in an all-reduce without rank 2")
        os.kill(ranks[2], signal.SIGCONT)
        status, out, errors = job.end()
    equal((status, out.count("failed LS_PEER_LEFT")), (0, 3), errors)
    equal((errors.count("[LS-VERDICT]"), "LS-RUN" in errors), (1, False), errors)


def test_rank_ends_before_all_have_met():
    """The others have much time, and do not need it."""
    for gone, line in (3, r"\[0\] .*rank 3 exited with 0 before it came to the rendezvous, so the 4 ranks cannot meet \[LS-RANK-MISSING\]"), \
            (0, r"\[3\] .*rank 0 exited with 0, and nobody listens at tcp:198.18.0.1:\d+, so the 4 ranks cannot meet \[LS-NO-MASTER\]"):
        result = lockstep(*BOTH, "sh", "-c", f'[ $RANK = {gone} ] || exec "$0" --rounds 1', sys.argv[2],
                          env=environment(LOCKSTEP_OPEN_TIMEOUT_MS=600000))
        equal(result.returncode, 1, result.stderr)
        matches(line, result.stderr)


SHORT = 'if [ $RANK != 3 ]; then exec "$0" --rounds 1; fi; (ulimit -n %d; exec "$0" --rounds 1); code=$?; %s; exit $((40 + code))'


def test_rank_there_is_the_cause():
    """It has too few descriptors to come to the meeting."""
    result = lockstep(*BOTH, "sh", "-c", SHORT % (5, ":"), sys.argv[2])
    equal(result.returncode, 41, result.stderr)
    matches(r"rank 3 \(pid \d+ on host host1\) exited with 41; rank", result.stderr)


def test_rank_there_is_the_cause_and_ends_last():
    """It has too few descriptors for the network. Its shell ends when the others have ended."""
    fifo = f"{FOLDER}/fifo"
    os.mkfifo(fifo)
    with Far("sh", "-c", SHORT % (14, f"read x < {fifo}"), sys.argv[2]) as job:
        until(lambda: len(job.ranks()) > 1, "the ranks to begin")
        until(lambda: set(job.ranks()) == {3}, "the others to end")
        with open(fifo, "w", encoding="utf-8") as file:
            file.write("go\n")
        status, _, errors = job.end()
    equal(status, 41, errors)
    matches(r"rank 3 \(pid \d+ on host host1\) exited with 41; rank", errors)


def test_rank_there_fails_and_others_stay():
    code = "echo ready; if [ $RANK = 2 ]; then exit 5; fi; trap '' TERM; sleep 1000 & wait; sleep 1000"
    with Far("sh", "-c", code) as job:
        status, _, errors = job.end()
        equal(status, 5, errors)
        matches(r"rank 2 \(pid \d+ on host host1\) exited with 5; ranks 0, 1, 3 did not end by themselves within 3 s, and were "
                r"then killed by SIGKILL \(9\)", errors)


def test_time_limit():
    result = lockstep(*BOTH, "--timeout", 0.5, *WAITS)
    equal(result.returncode, 124, result.stderr)
    matches(r"still running after 0.5 s \(--timeout\); ranks 0-3 were then killed by SIGTERM", result.stderr)


def test_launcher_is_killed():
    with Far(*WAITS) as job:
        ranks = job.begun()
        job.process.kill()
        until(lambda: all(is_gone(pid) for pid in ranks.values()), "all ranks to end")
        until(lambda: not daemons(), "all daemons to end")


def test_connection_is_cut():
    with Far(*WAITS) as job:
        ranks = job.begun()
        daemon = daemons(network_of_ranks(ranks, 3))
        equal(len(daemon), 1)
        session = parent(daemon[0])
        assert b"sshd" in read(f"/proc/{session}/cmdline"), read(f"/proc/{session}/cmdline")
        os.kill(session, signal.SIGKILL)
        status, _, errors = job.end()
        equal(status, 1, errors)
        matches(r"the connection to host host1 \(ranks 2-3\) has ended: ssh ended with \d+ \[LS-RUN-HOST-LOST\]", errors)
        matches(r"rank 2 \(pid \d+ on host host1\) was lost with the connection to the host; ranks 0, 1 did not end", errors)


def test_host_that_does_not_answer():
    with Far("--timeout", 1, *WAITS) as job:
        ranks = job.begun()
        daemon = daemons(network_of_ranks(ranks, 3))[0]
        os.kill(daemon, signal.SIGSTOP)
        status, _, errors = job.end()
        equal(status, 124, errors)
        matches(r"host host1: has not told that its ranks are killed; they may still run there", errors)
        matches(r"ranks 2, 3 were lost with the connection to the host", errors)
        os.kill(daemon, signal.SIGCONT)  # and it finds its channel closed


def test_daemon_there_is_silent():
    with Far(*WAITS, settings={"LOCKSTEP_UNREACHABLE_MS": 2000}) as job:
        ranks = job.begun()
        daemon = daemons(network_of_ranks(ranks, 3))[0]
        os.kill(daemon, signal.SIGSTOP)
        status, _, errors = job.end()
        equal(status, 1, errors)
        matches(r"host host1 \(ranks 2-3\): nothing has come from its daemon for [23]\.\d s, so the job has failed", errors)
        matches(r"rank 2 \(pid \d+ on host host1\) was lost with the connection to the host; ranks 0, 1 did not end", errors)
        equal([rank for rank, pid in ranks.items() if not is_gone(pid)], [2, 3])
        os.kill(daemon, signal.SIGCONT)
        until(lambda: all(is_gone(pid) for pid in ranks.values()), "the ranks there to end")


def inside(pid, *words):
    subprocess.run(["nsenter", "-t", str(pid), "-n", *words], check=True)


CUTS = {  # what host1 does, and what undoes it
    "the cable": ("ip link set wire down", "ip link set wire up"),
    "what goes from there": ("ip neigh replace 198.18.0.1 lladdr 02:00:00:00:00:99 dev wire nud permanent",
                             "ip neigh del 198.18.0.1 dev wire"),
}


def test_network_is_cut():
    """sshd notices nothing for hours. The daemon does, and ends its ranks."""
    if not as_root():
        return
    for cut, undo in CUTS.values():
        with Far(*WAITS, settings={"LOCKSTEP_UNREACHABLE_MS": 2000}) as job:
            ranks = job.begun()
            far = subprocess.Popen(["nsenter", "-t", str(ranks[3]), "-n", "sleep", "1000"])
            inside(ranks[3], *cut.split())
            try:
                status, _, errors = job.end()
                equal(status, 1, errors)
                matches(r"host host1 \(ranks 2-3\): nothing has come from its daemon for [23]\.\d s, so the job has failed", errors)
                until(lambda: all(is_gone(pid) for pid in ranks.values()), "all ranks to end")
                until(lambda: not daemons(), "all daemons to end")
            finally:
                inside(far.pid, *undo.split())
                far.kill()
                far.wait()


def test_launcher_is_stopped():
    """That is no cut: its host still acknowledges what is sent. Rank 3 outlives the limit by far."""
    outlived = f"{FOLDER}/outlived"
    with Far("sh", "-c", f"echo ready; [ $RANK = 3 ] && sleep 4 && echo >{outlived}; exec sleep 1000",
             settings={"LOCKSTEP_UNREACHABLE_MS": 1000}) as job:
        ranks = job.begun()
        job.process.send_signal(signal.SIGSTOP)
        until(lambda: os.path.exists(outlived) or is_gone(ranks[3]), "rank 3 to live on")
        job.process.send_signal(signal.SIGCONT)
        assert os.path.exists(outlived) and not any(is_gone(pid) for pid in ranks.values())
        job.process.send_signal(signal.SIGTERM)
        equal(job.end()[0], 128 + signal.SIGTERM)


def test_interrupt_while_a_name_is_looked_up():
    """By a server that does not answer."""
    if not as_root():
        return
    with tempfile.NamedTemporaryFile("w") as servers, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        servers.write("nameserver 127.0.0.1\noptions timeout:30\n")
        servers.flush()
        server.bind(("127.0.0.1", 53))
        run = subprocess.Popen(["unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/resolv.conf && exec "$@"', servers.name,
                                program(), "run", "--hosts", "host0:1,unknown.example:1", "true"], stdin=subprocess.DEVNULL)
        server.settimeout(60)
        server.recv(512)
        run.send_signal(signal.SIGINT)
        equal(run.wait(timeout=20), -signal.SIGINT)


def test_daemon_here_is_killed():
    with Far(*WAITS) as job:
        ranks = job.begun()
        os.kill(daemons(network_of_ranks(ranks, 0))[0], signal.SIGKILL)
        status, _, errors = job.end()
        equal(status, 1, errors)
        matches(r"connection to host host0 \(ranks 0-1\) has ended: lockstep there was killed by signal 9", errors)


def test_interrupt():
    with Far(*WAITS, start_new_session=True) as job:
        job.begun()
        os.killpg(job.pid, signal.SIGINT)
        status, _, errors = job.end()
        equal(status, 130, errors)
        matches(r"killed by SIGINT \(2\), which lockstep run was sent and passed on", errors)


def test_signals():
    code = "import os, signal, sys\nsignal.signal(signal.SIGUSR1, lambda *_: print('heard'))\nprint('ready')\n" \
           "while True: signal.pause()"
    with Far(*python(code), start_new_session=True) as job:
        ranks = job.begun()
        job.process.send_signal(signal.SIGUSR1)
        job.expect(*(f"[{rank}] heard" for rank in range(4)))
        job.process.send_signal(signal.SIGTSTP)
        until(lambda: all(state(pid) == "T" for pid in ranks.values()), "all ranks to stop")
        job.process.send_signal(signal.SIGCONT)
        until(lambda: all(state(pid) != "T" for pid in ranks.values()), "all ranks to go on")
        job.process.send_signal(signal.SIGTERM)
        equal(job.end()[0], 128 + signal.SIGTERM)


if __name__ == "__main__":
    begin(globals())
