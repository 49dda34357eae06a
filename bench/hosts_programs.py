# SPDX-License-Identifier: BSD-3-Clause
"""The programs that hosts.py compares, and how each is started on several hosts: network namespaces of this machine, which
tools/hosts makes anew for each run.

Peers run at their best, as in programs.py: in several variants, of which the best counts. The ranks of all hosts share the
processors of one machine, so Open MPI yields when it has nothing to do, and most variants leave the binding to the system.
MPICH knows no yielding."""

import os
import re
import subprocess
import tempfile

import on_host
import point
import programs
import quiet
import ucx

ROOT = programs.ROOT
HOSTS = ROOT / "tools/hosts"
START_RANKS = ROOT / "tools/start-ranks"
FIRST = "198.18.0.1"  # the address of host 0
DEVICE = "wire"
ASLEEP = "ping-pong asleep"  # the same with receivers that sleep
SKIPPED = 77
GRACE_S = 10  # for tools/hosts to end its hosts
RESULT = re.compile(rf"^host\d+: (?:\[\d+\] )?((?:{'|'.join((*programs.OPS, *point.OPS, 'open'))}) \d+(?: [\d.]+)+)$", re.MULTILINE)
UCX_COUNT = 20000


class Skipped(Exception):
    """This system lets nobody make hosts."""


def output_of(hosts, command, env, limit_s):
    try:
        return quiet.output_of([HOSTS, hosts, *command], env, limit_s, grace_s=GRACE_S)
    except quiet.Failed as error:
        if f" ended with {SKIPPED}:" in str(error):
            raise Skipped(error.output.strip()) from None
        # tools/hosts passes on what went wrong in what its hosts print.
        raise quiet.Failed(f"{error} {error.output.strip()[-600:]}", "\n".join(RESULT.findall(error.output))) from None


def try_hosts():
    """Raises Skipped where there can be none."""
    output_of(2, ["true"], {}, 60)


class OnHosts(programs.Program):
    """A Program with the same number of ranks on each host. `start` gets a folder that all hosts see, and that number."""

    def __init__(self, name, start, fits=None, env=None, kind="peer", options=(), hosts=2):
        super().__init__(name, start, fits or (lambda ranks, op, size: op != ASLEEP), env, kind, options)
        self.hosts = hosts

    def lines(self, ranks, arguments, limit_s=120):
        with tempfile.TemporaryDirectory() as folder:
            on_host.prepare(folder, self.hosts)
            os.mkdir(f"{folder}/store")
            os.mkfifo(f"{folder}/place")
            with open(os.open(f"{folder}/secret", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as secret:
                secret.write(os.urandom(32))
            env = {"GLOO_STORE": f"{folder}/store", "LOCKSTEP_SECRET_FILE": f"{folder}/secret"}
            command = [*self.start(folder, ranks // self.hosts), *self.options, *arguments]
            text = output_of(self.hosts, command, {**self.env, **env}, limit_s)
            return [line.split() for line in RESULT.findall(text)]

    def times(self, ranks, fresh, points, effort):
        micro, cpu = super().times(ranks, fresh, [(op.split()[0], size) for op, size in points], effort)
        wanted = {(op.split()[0], size): (op, size) for op, size in points}
        return tuple({wanted[where]: us for where, us in found.items()} for found in (micro, cpu))


def asleep(ranks, op, size):
    return op == ASLEEP


def by_hand(program):
    return lambda folder, each: [START_RANKS, each, program]


def lockstep_programs(build):
    start, sleeps = by_hand(build / "bench/collectives"), {"LOCKSTEP_WAIT": "sleep"}
    return [
        OnHosts("mapped", start, kind="lockstep", options=["--free"]),
        OnHosts("mapped bound", start, kind="lockstep"),
        OnHosts("plain", start, kind="lockstep", options=["--plain", "--free"]),
        OnHosts("plain bound", start, kind="lockstep", options=["--plain"]),
        OnHosts("mapped", start, asleep, sleeps, "lockstep", ["--free"]),
        OnHosts("plain", start, asleep, sleeps, "lockstep", ["--plain", "--free"]),
    ]


def opening(build, hosts):
    return OnHosts("mapped", by_hand(build / "bench/collectives"), kind="lockstep", options=["--open", "--free"], hosts=hosts)


def mpi_programs(out):
    programs.build_mpi(out)

    def names(each):
        return f"host0:{each},host1:{each}"

    def openmpi(**parameters):
        network = {"btl_tcp_if_include": DEVICE, "oob_tcp_if_include": DEVICE, "mpi_yield_when_idle": 1}
        chosen = {"pml": "ob1", "btl": "tcp,vader,self", **network, **parameters}
        words = [w for key, value in chosen.items() for w in ("--mca", key, str(value))]
        start = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", *words]
        return lambda folder, each: [on_host.__file__, "launch", folder, *start, "--mca", "plm_rsh_agent", f"{folder}/agent",
                                     "--host", names(each), "-np", 2 * each, out / "openmpi"]

    def han(**parameters):
        return openmpi(coll_han_priority=100, **parameters)

    def tuned(algorithm):
        return openmpi(coll_tuned_use_dynamic_rules=1, coll_tuned_allreduce_algorithm=algorithm)

    def mpich(folder, each):
        return [on_host.__file__, "launch", folder, "mpirun.mpich", "-launcher", "rsh", "-launcher-exec", f"{folder}/agent",
                "-hosts", names(each), "-iface", DEVICE, "-np", 2 * each, out / "mpich"]

    collective, sizes = (lambda ranks, op, size: op in programs.OPS), programs.sizes
    large, small, allreduce, free = 64 << 10, 16 << 10, ("all-reduce",), ["--free"]
    # Without MPI_COPY an all-reduce has to be one segment of HAN's.
    whole = {"coll_han_allreduce_segsize": 1 << 30}
    adapt = {f"coll_han_{op}_up_module": 1 for op in ("allreduce", "bcast", "reduce")}
    han_ops = ("all-reduce", "reduce", "broadcast")
    network = {"UCX_TLS": "tcp,posix,cma,self", "UCX_NET_DEVICES": DEVICE, "UCX_WARN_UNUSED_ENV_VARS": "n"}
    over_ucx = {"pml": "ucx", "pml_ucx_tls": "any", "pml_ucx_devices": "any"}
    return [
        OnHosts("openmpi", openmpi(), options=free),
        OnHosts("openmpi bound keep", openmpi(), collective, programs.KEEP),
        OnHosts("openmpi keep", openmpi(), sizes(large), programs.KEEP, options=free),
        OnHosts("openmpi ucx keep", openmpi(**over_ucx), None, {**programs.KEEP, **network}, options=free),
        OnHosts("openmpi doubling", tuned(3), sizes(0, large, allreduce), options=free),
        OnHosts("openmpi ring keep", tuned(4), sizes(large, programs.ANY, allreduce), programs.KEEP, options=free),
        OnHosts("openmpi rabenseifner keep", tuned(6), sizes(small, programs.ANY, allreduce), programs.KEEP, options=free),
        OnHosts("han", han(), sizes(0, large, han_ops), options=free),
        OnHosts("han adapt", han(coll_adapt_priority=90, **adapt), sizes(0, large, han_ops), options=free),
        OnHosts("han whole keep", han(**whole), sizes(large + 1, ops=han_ops), programs.KEEP, options=free),
        OnHosts("han whole bound keep", han(**whole), sizes(large + 1, ops=han_ops), programs.KEEP),
        OnHosts("han segments keep", han(coll_han_allreduce_segsize=512 << 10), sizes(large + 1, ops=allreduce),
                {**programs.KEEP, "MPI_COPY": "1"}, options=free),
        OnHosts("mpich keep", mpich, collective, {**programs.KEEP, **network}, options=free),
        OnHosts("mpich bound keep", mpich, collective, {**programs.KEEP, **network}),
    ]


def gloo_programs(out):
    programs.build_gloo(out)
    start, collective, only = by_hand(out / "gloo"), (lambda ranks, op, size: op in programs.OPS), programs.sizes(0, ops=("all-reduce",))
    return [
        OnHosts("gloo ring", start, collective, programs.gloo_env("ring"), options=["--free"]),
        OnHosts("gloo bound", start, collective, programs.gloo_env("ring")),
        OnHosts("gloo bcube", start, only, programs.gloo_env("bcube"), options=["--free"]),
        OnHosts("gloo halving", start, only, programs.gloo_env("halving"), options=["--free"]),
    ]


class Perftest(OnHosts):
    """ucx_perftest between two hosts, which polls for messages or sleeps until they come."""

    def __init__(self, name, op, bound):
        env = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": DEVICE, "UCX_WARN_UNUSED_ENV_VARS": "n"}
        super().__init__(name, None, lambda ranks, what, size: what == op, env)
        self.options = ["-E", "sleep"] if op == ASLEEP else []
        self.bound = bound

    def times(self, ranks, fresh, points, effort):
        return {where: self.time(where[1]) for where in points}, {}

    def time(self, size):
        cores = sorted(os.sched_getaffinity(0))
        core = [["-c", cores[i % len(cores)]] if self.bound else [] for i in range(2)]
        test = ["-t", "tag_lat", "-s", size, "-n", UCX_COUNT, "-w", UCX_COUNT // 10, *self.options, "-f", "-v"]
        text = output_of(2, [on_host.__file__, "pair", "ucx_perftest", *core[0], "--", "ucx_perftest", FIRST, *core[1], *test], self.env, 60)
        return ucx.micro(re.sub(r"^host1: ", "", text, flags=re.MULTILINE), size)


def ucx_programs():
    subprocess.run(["ucx_perftest", "-h"], capture_output=True, check=False)
    return [Perftest(name, op, bound) for op in ("ping-pong", ASLEEP) for name, bound in (("ucx", True), ("ucx free", False))]


class Tcp(OnHosts):
    """TCP and nothing else, `streams` connections of it, whose data nobody touches. It has its own clock."""

    def __init__(self, build, way, streams, messages=None):
        def start(folder, _):
            return [build / "bench/tcp_limit", f"{folder}/place", FIRST, "--way", way, "--streams", streams]
        super().__init__(f"tcp {way} {streams}", start, lambda ranks, op, size: op in ("all-reduce", messages) and size > 0,
                         kind="limit tcp")

    def times(self, ranks, fresh, points, effort):
        return super().times(ranks, False, points, effort)


def limit_programs(build):
    return [Tcp(build, "blocking", 2, ASLEEP), Tcp(build, "blocking", 4), Tcp(build, "sleeping", 2), Tcp(build, "polling", 2, "ping-pong")]


def all_peers(out):
    return programs.those_built((("Open MPI and MPICH", lambda: mpi_programs(out)), ("Gloo", lambda: gloo_programs(out)),
                                 ("UCX", ucx_programs)))
