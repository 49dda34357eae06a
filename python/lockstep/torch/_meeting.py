# SPDX-License-Identifier: BSD-3-Clause
"""How the ranks of a process group find each other: through the store that torch.distributed gives them."""

import json
import os
import socket
import uuid
import zlib

from lockstep import errors
from lockstep._communicator import Communicator

_launched = False  # the launcher's meeting serves each process once


def _machine():
    """The same for all processes that can reach each other's abstract sockets."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
    except OSError:
        boot = ""
    try:
        network = os.readlink("/proc/self/ns/net")
    except OSError:
        network = ""
    return f"{boot} {network}"


def _can_use_launcher(size):
    return not _launched and "LOCKSTEP_RENDEZVOUS" in os.environ and os.environ.get("WORLD_SIZE") == str(size)


def open_all(store, rank, size, timeout_ms, open_timeout_ms):
    """The group of all ranks that share the store. Rank 0 says there where to meet; all look whether they can."""
    global _launched
    here = {"host": socket.gethostname(), "machine": _machine()}
    if store.add(f"lockstep/rank/{rank}", 1) != 1:
        raise errors.DuplicateRank(f"two processes claim rank {rank}: each needs a RANK of its own")
    if rank == 0:
        place = "" if _can_use_launcher(size) else f"unix:lockstep-{uuid.uuid4().hex}"
        store.set("lockstep/meeting", json.dumps({**here, "place": place}))
    meeting = json.loads(bytes(store.get("lockstep/meeting")))
    if meeting["machine"] != here["machine"]:
        raise errors.Unsupported(
            f"rank 0 is on {meeting['host']}, rank {rank} on {here['host']}: this version works on one machine"
        )
    communicator = Communicator.open(rank, size, meeting["place"] or None, timeout_ms, open_timeout_ms)
    if not meeting["place"]:
        _launched = True
    return communicator


def tag_of(name):
    """Of the messages by which the members of a group called `name` make it: above those that programs use."""
    return 0x40000000 | (zlib.crc32(name.encode()) & 0x3FFFFFFF)
