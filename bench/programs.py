# SPDX-License-Identifier: BSD-3-Clause
"""The programs that are compared: how each is built, started and read.

A point is (operation, bytes). Every program gives {point: microseconds}; Lockstep and its peers, but for UCX
(ucx.py), are timed by the same code (collectives.c), which also gives processor time.

Peers run at their best: the variants below are what their authors' documents and measurements recommend
on one machine, and of all that belong to one point the best counts. MPIs allocate a buffer of the size of
the message in each call, so they also run with a malloc that keeps such memory."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import point
import quiet
import ucx

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
KEEP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(8 << 30), "MALLOC_TOP_PAD_": str(256 << 20)}
OPS = ("all-reduce", "reduce", "broadcast", "all-gather", "gather", "scatter", "reduce-scatter", "all-to-all", "barrier")
ANY = 1 << 62
# What times a runtime, and knows none: built into the program of each.
TIMING = [HERE / "collectives.c", HERE / "beside.c"] + [ROOT / "src" / name for name in ("bench/measure.c", "bench/message.c", "bench/operations.c", "coll/coll.c")]
SHARED = "/dev/shm" if Path("/dev/shm").is_dir() else None


def parse(lines):
    """({point: microseconds}, {point: microseconds of processor time}) of what collectives.c prints."""
    micro = {(line[0], int(line[1])): float(line[2]) for line in lines}
    return micro, {(line[0], int(line[1])): float(line[3]) for line in lines if len(line) > 3}


class Program:
    """One way to run a runtime. `fits` tells which points are worth it: collectives, if nobody says else."""

    def __init__(self, name, start, fits=None, env=None, kind="peer", options=()):
        self.name, self.start, self.env, self.kind = name, start, env or {}, kind
        self.options = list(options)
        self.fits = fits or (lambda ranks, op, size: op in OPS)

    def command(self, ranks, arguments):
        return self.start(ranks) + self.options + list(map(str, arguments))

    def lines(self, ranks, arguments, limit_s=300):
        """The words of each line that it writes."""
        with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile(dir=SHARED) as file:
            places = {"GLOO_STORE": folder, "LIMIT_FILE": file.name}
            env = {name: places.get(name, value) for name, value in self.env.items()}
            return [line.split() for line in quiet.output_of(self.command(ranks, arguments), env, limit_s).split("\n") if line]

    def times(self, ranks, fresh, points, effort):
        """({point: microseconds}, {point: microseconds of processor time})"""
        words = [f"{op}:{size}" for op, size in points]
        return parse(self.lines(ranks, effort + (["--fresh"] if fresh else []) + words))


def compile_c(compiler, out, sources, flags=()):
    includes = [f"-I{HERE}", f"-I{ROOT / 'src'}", f"-I{ROOT / 'include'}"]
    own = ["-std=c17", "-O2", "-march=native", "-D_GNU_SOURCE", *includes]
    subprocess.run([compiler, *own, "-o", out, *sources, *flags, "-lpthread"], check=True)


def lockstep_start(build, program):
    """lockstep run starts any program, Gloo's as well."""
    return lambda ranks: [build / "lockstep", "run", "--no-prefix", "-n", str(ranks), "--", program]


def lockstep_programs(build):
    start = lockstep_start(build, build / "bench/collectives")
    return [
        Program("mapped", start, lambda *_: True, kind="lockstep"),
        Program("plain", start, lambda ranks, op, size: op != "group", kind="lockstep", options=["--plain"]),
    ]


def sizes(low, high=ANY, ops=OPS, ranks_max=ANY):
    return lambda ranks, op, size: low <= size <= high and op in ops and ranks <= ranks_max


def build_mpi(out):
    for name in ("openmpi", "mpich"):
        # MPICH's MPI_STATUSES_IGNORE is the address 1, which gcc takes for an array.
        compile_c(f"mpicc.{name}", out / name, [HERE / "peers/mpi.c", *TIMING], ["-Wno-stringop-overflow"])


def mpi_programs(out):
    build_mpi(out)

    def openmpi(**parameters):
        words = [w for key, value in parameters.items() for w in ("--mca", key, str(value))]
        start = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", *words]
        return lambda ranks: start + ["-np", str(ranks), out / "openmpi"]

    def mpich(ranks):
        return ["mpirun.mpich", "-np", str(ranks), out / "mpich"]

    def tuned(algorithm):
        return openmpi(coll_tuned_use_dynamic_rules=1, coll_tuned_allreduce_algorithm=algorithm)

    cores = os.cpu_count()
    gather = {f"MPIR_CVAR_{op}_POSIX_INTRA_ALGORITHM": "release_gather" for op in ("ALLREDUCE", "BCAST", "REDUCE", "BARRIER")}
    small, large = 16 << 10, 64 << 10
    shared = {"UCX_TLS": "posix,cma,self", "UCX_WARN_UNUSED_ENV_VARS": "n"}
    over_ucx = {"pml": "ucx", "pml_ucx_tls": "any", "pml_ucx_devices": "any"}

    def messages(ranks, op, size):
        return op in point.OPS and ranks == 2

    def not_crowded(ranks, op, size):
        return ranks <= max(cores, 2) or (op in OPS and not quiet.realtime)

    return [
        Program("openmpi", openmpi(), lambda *_: True),
        Program("openmpi ucx", openmpi(**over_ucx), messages, shared),
        Program("openmpi keep", openmpi(), sizes(large), KEEP),
        Program("openmpi no-cma keep", openmpi(btl_vader_single_copy_mechanism="none"), sizes(small, ANY, OPS + point.SIZED), KEEP),
        Program("openmpi adapt", openmpi(coll_adapt_priority=100), sizes(0, large, ("all-reduce", "reduce", "broadcast"))),
        Program("openmpi han", openmpi(coll_han_priority=100), sizes(0, ANY, ("all-reduce", "reduce", "broadcast")), KEEP),
        Program("openmpi sm", openmpi(coll_sm_priority=100), sizes(0, small, ("all-reduce", "broadcast", "barrier"), 2)),
        Program("openmpi doubling", tuned(3), sizes(0, large, ("all-reduce",))),
        Program("openmpi ring keep", tuned(4), sizes(large, ANY, ("all-reduce",)), KEEP),
        Program("openmpi rabenseifner keep", tuned(6), sizes(large, ANY, ("all-reduce",)), KEEP),
        Program("mpich", mpich, not_crowded),
        Program("mpich ucx", mpich, messages, {**shared, "MPIR_CVAR_NOLOCAL": "1"}),
        # MPICH spins for whole slices of the scheduler's where ranks share a processor, whatever is chosen.
        Program("mpich keep", mpich, sizes(large, ANY, OPS, cores), KEEP),
        Program("mpich release-gather", mpich, sizes(0, ANY, ("all-reduce", "reduce", "broadcast", "barrier"), cores), {**KEEP, **gather}),
    ]


def build_gloo(out):
    objects = []
    for source in TIMING:
        objects.append(out / (source.stem + ".o"))
        compile_c("gcc", objects[-1], [source], ["-c"])
    subprocess.run(
        ["g++", "-std=c++17", "-O2", "-march=native", f"-I{HERE}", f"-I{ROOT / 'src'}", "-o", out / "gloo"]
        + [HERE / "peers/gloo.cc", *objects, "-lgloo", "-lpthread"],
        check=True,
    )


def gloo_env(algorithm):
    return {"GLOO_STORE": "", "GLOO_ALGORITHM": algorithm}


def gloo_programs(build, out):
    build_gloo(out)
    start = lockstep_start(build, out / "gloo")

    def only_allreduce(ranks, op, size):
        return op == "all-reduce"

    return [
        Program("gloo ring", start, env=gloo_env("ring"), options=["--free"]),
        Program("gloo bound", start, env=gloo_env("ring")),
        Program("gloo bcube", start, only_allreduce, gloo_env("bcube"), options=["--free"]),
        Program("gloo halving", start, only_allreduce, gloo_env("halving"), options=["--free"]),
    ]


# ---- limits ----


class Limit:
    """A limit that has its own clock. `times` gives {point: microseconds}; `memory` is the kind of
    Lockstep's memory that it is a limit for; it takes part in the first `rounds`."""

    def __init__(self, name, memory, fits, times, rounds=ANY):
        self.name, self.memory, self.fits, self.times, self.rounds = name, memory, fits, times, rounds


def limit_programs(build):
    """Direct access to what all ranks have mapped, timed as Lockstep is."""
    start = lockstep_start(build, build / "bench/limit")

    def large(ranks, op, size):
        return size >= 64 << 10 and op in ("all-reduce", "reduce")

    return [
        Program("direct", start, env={"LIMIT_FILE": ""}, kind="limit mapped"),
        Program("direct nontemporal", start, large, {"LIMIT_FILE": "", "LIMIT_STORES": "nontemporal"}, kind="limit mapped"),
    ]


def kernel_limits(build, full):
    """Reading plain memory through the kernel, the best of many ways, which takes a while."""

    def times(ranks, fresh, points):
        found = {}
        command = [build / "bench/cma_limit", "-n", ranks, *(["--fresh"] if fresh else []), *[size for _, size in points]]
        for line in quiet.output_of(command).split("\n"):
            words = line.split()
            if len(words) == 3:
                point = ("all-reduce", int(words[1]))
                found[point] = min(float(words[2]), found.get(point, 1e30))
        return found

    def fits(ranks, fresh, op, size):
        return op == "all-reduce" and (size >= 64 << 10 if full else ranks == 2 and size == 16 << 20)

    return [Limit("kernel", "plain", fits, times, rounds=1)]


def direct_limits(binary):
    """direct_p: all-reduce by ranks that share memory, which yield when they are many. Hot only."""

    def times(ranks, _, points):
        text = quiet.output_of([binary, ranks, "allreduce", *[size for _, size in points]])
        found = {("all-reduce", int(m[1])): float(m[2]) for m in re.finditer(r"(\d+) B +([\d.]+) us", text)}
        return {point: us for point, us in found.items() if us > 0}

    def fits(ranks, fresh, op, size):
        return op == "all-reduce" and not fresh and size >= 64 << 10

    return [Limit("direct_p", "mapped", fits, times, rounds=2)]


def pair_limits(limits, transfer):
    """limits.c and c2c.c know two ranks and all-reduce only, and their own sizes; the first, fastest variants
    are read, and the rest of their output is not waited for."""

    def hot(*_):
        found = {}
        text = quiet.output_of([limits, "allreduce"], enough=lambda line: line.startswith("copyin"))
        for line in text.split("\n"):
            words = line.split()
            if words and words[0] in ("direct", "direct_nt"):
                point = ("all-reduce", int(words[1]))
                found[point] = min(float(words[3]), found.get(point, 1e30))
        return found

    def fresh(*_):
        found = {}
        text = quiet.output_of([transfer, "fresh"], enough=lambda line: line.startswith("direct, each"))
        for m in re.finditer(r"^direct halves[a-zA-Z, ]*? +(\d+) +([\d.]+) +[\d.]+ +[\d.]+ ok", text, re.M):
            point = ("all-reduce", int(m[1]))
            found[point] = min(float(m[2]), found.get(point, 1e30))
        return found

    return [
        Limit("halves", "mapped", lambda ranks, fresh, op, size: ranks == 2 and not fresh and op == "all-reduce", hot, rounds=1),
        Limit("halves", "mapped", lambda ranks, fresh, op, size: ranks == 2 and fresh and op == "all-reduce", fresh, rounds=1),
    ]


def outside_limits(yardsticks, out):
    """Programs of others that this one is given the sources of."""
    for name in ("limits", "direct_p", "c2c"):
        subprocess.run(["gcc", "-O3", "-march=native", "-w", "-o", out / name, yardsticks / f"{name}.c", "-lpthread"], check=True)
    return direct_limits(out / "direct_p") + pair_limits(out / "limits", out / "c2c")


def all_peers(build, out):
    return those_built((("Open MPI and MPICH", lambda: mpi_programs(out)), ("Gloo", lambda: gloo_programs(build, out)), ("UCX", ucx.programs)))


def those_built(makers):
    """The programs of those that can be built here; the others are named on standard error."""
    found = []
    for name, make in makers:
        try:
            found += make()
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"without {name}: {error}", file=sys.stderr, flush=True)
    return found


def versions(build):
    """{name: version} of what takes part."""
    def first(command, pattern):
        try:
            text = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}).stdout
            found = re.search(pattern, text)
            return found[1] if found else None
        except OSError:
            return None

    found = {
        "Lockstep": first([build / "lockstep", "--version"], r"lockstep (\S+)"),
        "Open MPI": first(["mpirun.openmpi", "--version"], r"\) (\S+)"),
        "MPICH": first(["mpichversion"], r"MPICH Version:\s+(\S+)"),
        "Gloo": first(["dpkg-query", "-W", "-f", "${Version}", "libgloo-dev"], r"(\S+)"),
        "UCX": first(["ucx_info", "-v"], r"[Vv]ersion:? (\d\S*)"),
        "gcc": first(["gcc", "-dumpfullversion"], r"(\S+)"),
    }
    return {name: version for name, version in found.items() if version}
