# SPDX-License-Identifier: BSD-3-Clause
"""What Lockstep records, as files of PyTorch's flight recorder: torchfrtrace reads them.

    _read      lockstep trace --json: all ranks, also those that are stopped or dead
    _dumps     its operations as entries, ranks compared, as a file cannot say what has been lost from it
    write      one pickle for each rank

torchfrtrace looks for the other half of an entry among those with the same collective_seq_id in the same group, on
all of its ranks. So two ranks that exchange messages are a group of their own here, and both halves of a message get
one number. The library's name before the operation must be one that all versions of it know: "nccl".
"""

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter

from lockstep import _library, errors

_VERSION = "2.10"  # of the format
_EACH, _ALL = 1, 0  # a size is the count, or that of all ranks together

# kind: (name, in PyTorch before 2.13 if that is another one, input, output)
_NAMES = {
    "all-reduce": ("all_reduce", None, _EACH, _EACH),
    "reduce": ("reduce", None, _EACH, _EACH),
    "broadcast": ("broadcast", None, _EACH, _EACH),
    "all-gather": ("all_gather", None, _EACH, _ALL),
    "all-gatherv": ("all_gather_v", "_all_gather_base", _EACH, _EACH),
    "gather": ("gather", None, _EACH, _ALL),
    "gatherv": ("gather", None, _EACH, _EACH),
    "scatter": ("scatter", None, _ALL, _EACH),
    "scatterv": ("scatter", None, _EACH, _EACH),
    "reduce-scatter": ("reduce_scatter", None, _ALL, _EACH),
    "reduce-scatterv": ("reduce_scatter_v", "reduce", _EACH, _EACH),
    "all-to-all": ("all_to_all_single", "all_to_all", _ALL, _ALL),
    "all-to-allv": ("all_to_all", None, _EACH, _EACH),
    "barrier": ("all_reduce_barrier", None, _EACH, _EACH),
}
_DTYPES = {
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "uint8": "Byte",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "float32": "Float",
    "float64": "Double",
    "bool": "Bool",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}
# What failed has not been completed: torchfrtrace knows no other word for it.
_STATES = {"running": "started", "failed": "started", "done": "completed"}


# ---- reading ----


def program():
    """The path of the program lockstep that belongs to the library: installed with it, or built beside it."""
    folders = [_library.FOLDER, sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) + folders + os.get_exec_path()
    found = shutil.which("lockstep", path=os.pathsep.join(folder for folder in folders if folder))
    if found is None:
        raise errors.Unsupported("the program lockstep is neither installed with this package nor in PATH")
    return found


def _read(name):
    """The records of a job: its number, a process of it, or a file that lockstep run has kept."""
    result = subprocess.run([program(), "trace", "--json", name], stdin=subprocess.DEVNULL, capture_output=True)
    if result.returncode != 0:
        raise errors.BadArgument(result.stderr.decode(errors="replace").strip())
    return json.loads(result.stdout)


# ---- entries ----


def _known_collectives():
    """The names that the torchfrtrace of this PyTorch takes; None if it has none."""
    try:
        from torch.distributed.flight_recorder.components.types import COLLECTIVES
    except ImportError:
        return None
    return COLLECTIVES


def _frames(site):
    """Of "train.py:42 (train_step) for DDP's buckets", "train.py:42" or "module+0x1234 (function)"."""
    match = re.fullmatch(r"(.*?)(?::(\d+))?(?: \(([^)]*)\)?)?( for .*)?", site)
    if not site or not match:
        return []
    return [{"name": (match[3] or "<module>") + (match[4] or ""), "filename": match[1], "line": int(match[2] or 0)}]


def _entry(rank, operation, name, group, number, sizes, p2p=False):
    dtype = _DTYPES.get(operation["dtype"], operation["dtype"] or "Byte")
    to_wall = rank["start_s"] * 10**9 - rank["start_ns"]
    begin, end = operation["begin_ns"], operation["end_ns"]
    return {
        "record_id": operation["index"] - 1,
        "pg_id": operation["group"],
        "process_group": group,
        "collective_seq_id": number,
        "p2p_seq_id": number if p2p else 0,
        "op_id": number,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": begin + to_wall,
        "time_discovered_started_ns": begin + to_wall,
        "time_discovered_completed_ns": None if end is None else end + to_wall,
        "duration_ms": None if end is None else (end - begin) / 1e6,
        "input_sizes": [[sizes[0]]],
        "input_dtypes": [dtype],
        "output_sizes": [[sizes[1]]],
        "output_dtypes": [dtype],
        "state": _STATES[operation["state"]],
        "timeout_ms": 0,
        "is_p2p": p2p,
        "retired": operation["state"] == "done",
        "thread_id": str(operation["thread"]),
        "frames": _frames(operation["site"]),
    }


class _Job:
    """The entries of all ranks of a job, made from its records."""

    def __init__(self, records):
        self.records = records
        self.groups = {group["id"]: group for group in records["groups"]}
        self.ranks = [rank for rank in records["ranks"] if rank["readable"]]
        self.entries = {rank["rank"]: [] for rank in self.ranks}
        self.pg_config = {rank["rank"]: {} for rank in self.ranks}
        for group in records["groups"]:
            for rank in group["ranks"]:
                self._join(rank, *self._title(group), group["ranks"])
        self._add_collectives()
        self._add_messages()
        self._renumber()

    @staticmethod
    def _title(group):
        return (group["name"], "default_pg" if group["name"] == "world" else "undefined")

    def _join(self, rank, name, desc, ranks):
        if rank in self.pg_config:
            self.pg_config[rank][name] = {"name": name, "desc": desc, "ranks": str(sorted(ranks))}

    # ---- what all ranks of a group call ----

    def _add_collectives(self):
        known = _known_collectives()
        present = Counter()  # (group, number) → on how many ranks
        for rank in self.ranks:
            for operation in rank["operations"]:
                if operation["kind"] in _NAMES:
                    present[operation["group"], operation["number"]] += 1
        for rank in self.ranks:
            for operation in rank["operations"]:
                group = self.groups.get(operation["group"])
                if operation["kind"] not in _NAMES or not group or not self._is_whole(group, operation, present):
                    continue
                name, older, *factors = _NAMES[operation["kind"]]
                if older and known is not None and name not in known:
                    name = older
                count, size = operation["count"] or 0, len(group["ranks"])
                sizes = [count if factor == _EACH else count * size for factor in factors]
                entry = _entry(rank, operation, name, self._title(group), operation["number"], sizes)
                self.entries[rank["rank"]].append(entry)

    def _is_whole(self, group, operation, present):
        """Whether all ranks still have their records of this collective. One without seems not to have called it."""
        if not group["ranks"]:
            return False
        entered = 0
        for rank, count in zip(group["ranks"], group["entered"]):
            if rank in self.entries:
                entered += count is None or count >= operation["number"]
        return present[operation["group"], operation["number"]] >= entered

    # ---- messages ----

    def _add_messages(self):
        """For each sender, receiver and tag, the first send matches the first receive, and so on. That can be counted only
        if both ranks have all records; otherwise only messages that are not complete are listed."""
        lossy = {rank["rank"] for rank in self.ranks if rank["complete_since_ns"]}
        counts, halves, places = Counter(), {}, []
        for rank in self.ranks:
            me = rank["rank"]
            for operation in rank["operations"]:
                group = self.groups.get(operation["group"])
                if operation["kind"] not in ("send", "receive") or not group or not group["ranks"]:
                    continue
                if operation["status"] == "LS_CANCELLED":
                    continue
                sends = operation["kind"] == "send"
                peer = group["ranks"][operation["peer"]] if 0 <= operation["peer"] < len(group["ranks"]) else None
                if operation["state"] == "done" and (lossy & {me, peer} or peer is None):
                    continue
                if peer is None or operation["tag"] < 0:
                    place = (group["id"], me, me, "any", len(places))
                else:
                    stream = (group["id"], *((me, peer) if sends else (peer, me)), operation["tag"])
                    counts[stream, sends] += 1
                    place = (*stream, counts[stream, sends])
                halves[place, sends] = operation
                places.append((rank, operation, place))
        numbers = {}
        for rank, operation, place in places:
            key = (place, operation["kind"]) if place[1] == place[2] else place
            self._add_message(rank, operation, place, halves, numbers.setdefault(key, len(numbers) + 1))

    def _add_message(self, rank, operation, place, halves, number):
        group_id, source, target, tag, _ = place
        pair = sorted({source, target})
        sends = operation["kind"] == "send"
        name = f"{self.groups[group_id]['name']}, " + (
            f"rank {pair[0]} from any" if tag == "any" else "ranks " + " and ".join(map(str, pair))
        )
        group = (name, "messages")
        self._join(rank["rank"], *group, pair)
        count = operation["count"]
        sent = halves.get((place, True))
        if not sends and sent and operation["state"] == "done":
            count = sent["count"]  # the receive had room for more
        source, target = pair.index(source), pair.index(target)
        title = f"send {source}->{target}" if sends else f"recv {target}<-{source}"
        self.entries[rank["rank"]].append(_entry(rank, operation, title, group, number, (count, count), True))

    # ---- all of it ----

    def _renumber(self):
        """Numbers the entries of each rank from 0. torchfrtrace drops those with a smaller record_id than the first of
        another rank has, but what has to be dropped is left out already."""
        for entries in self.entries.values():
            entries.sort(key=lambda entry: entry["record_id"])
            for number, entry in enumerate(entries):
                entry["record_id"] = number

    def dump(self, rank):
        return {
            "version": _VERSION,
            "comm_lib_version": "lockstep",
            "rank": rank,
            "pg_config": self.pg_config[rank],
            "pg_status": {},
            "entries": self.entries[rank],
        }


# ---- writing ----


def _write(job, prefix, ranks):
    paths = [f"{prefix}{rank}" for rank in ranks]
    for rank, path in zip(ranks, paths):
        with open(path, "wb") as file:
            pickle.dump(job.dump(rank), file)
    return paths


def write(name, prefix):
    """The files of all ranks of a job; returns (their paths, ranks of which nothing is known)."""
    job = _Job(_read(name))
    unknown = [rank["rank"] for rank in job.records["ranks"] if not rank["readable"]]
    return _write(job, prefix, sorted(job.entries)), unknown


def dump_flight_recorder(prefix):
    """Writes what this rank has done to the file PREFIX<rank>, as PyTorch's flight recorder would; returns its path.

    torchfrtrace reads the files of all ranks: `torchfrtrace -p NAME DIRECTORY`. Those of ranks that can no longer
    write theirs come from outside: `python -m lockstep.torch.flight_recorder`."""
    records = _read(str(os.getpid()))
    ranks = [rank["rank"] for rank in records["ranks"] if rank["readable"] and rank["pid"] == os.getpid()]
    if not ranks:
        raise errors.BadArgument("no group of this process is open")
    return _write(_Job(records), prefix, ranks[:1])[0]
