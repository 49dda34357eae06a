# SPDX-License-Identifier: BSD-3-Clause
"""How the ranks of a process group find each other: through the store that torch.distributed gives them.

    lockstep/N/rank/R    how many processes have claimed rank R
    lockstep/N/here/R    its pid
    lockstep/N/wrong     why they cannot meet, written by the rank that finds out
    lockstep/N/meeting   from rank 0, when all ranks have come: the rendezvous address

N counts the meetings through this store, including those of earlier runs of the job: a launcher that restarts all
processes keeps its store, with the entries of the ended ones.

A rank that waits for long prints which ranks are missing. C would do that as well, but only after all have come.
"""

import json
import os
import socket
import sys
import time
import uuid
import zlib

import torch.distributed as dist

from lockstep import errors
from lockstep._communicator import Communicator

OWN_TAGS = 1 << 30  # tags from here on are of this package
_FIRST_LOOK_S = 0.0002  # most come at nearly the same time
_LOOK_S, _LOOK_OF_RANK_S = 0.003, 0.0004  # the store has to bear the looks of all ranks
_SOON_S, _LATE_LOOK_S = 1.0, 0.02
_LINGER_S = 2.0

_launched = False  # the launcher's meeting serves each process once
_met = None  # a group whose ranks have met without a store: see _rendezvous.py


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


def _patience_s():
    text = os.environ.get("LOCKSTEP_PATIENCE_MS", "")
    return int(text) / 1e3 if text.isdigit() else 10.0


def names_of(ranks):
    """ "rank 1", "ranks 1 and 2", "ranks 1, 2 and 3" """
    texts = [str(rank) for rank in ranks]
    if len(texts) == 1:
        return f"rank {texts[0]}"
    return f"ranks {', '.join(texts[:-1])} and {texts[-1]}"


class _Waiting:
    """The ranks that share a store, as one of them sees them while it waits."""

    def __init__(self, store, rank, size, timeout_ms):
        self.store = store
        self.rank = rank
        self.size = size
        self.timeout_ms = timeout_ms
        self.begin = time.monotonic()
        self.told = False
        self.life = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self.number = 0
        self.look_s = max(_LOOK_S, _LOOK_OF_RANK_S * size)

    def key(self, name):
        return f"lockstep/{self.life}.{self.number}/{name}"

    def claim(self):
        """This process is the rank, in the first meeting in which it has not been that before."""
        other = me = str(os.getpid())
        while other == me:
            if self.store.add(self.key(f"rank/{self.rank}"), 1) == 1:
                self.store.set(self.key(f"here/{self.rank}"), me)
                return
            other = self.store.get(self.key(f"here/{self.rank}")).decode()
            self.number += other == me
        text = (
            f"two processes claim rank {self.rank} of {self.size}, pid {other} and pid {os.getpid()}: give each its "
            f"own RANK, 0 to {self.size - 1}"
        )
        self.store.set(self.key("wrong"), text)
        self._give_up()

    def _give_up(self):
        """Rank 0 may keep the store, so it stays until the others have read why."""
        knowing = self.store.add(self.key("knowing"), 1)
        end = time.monotonic() + _LINGER_S
        while self.rank == 0 and knowing <= len(self._here()) and time.monotonic() < end:
            time.sleep(self.look_s)
            knowing = self.store.add(self.key("knowing"), 0)
        raise errors.DuplicateRank(self.store.get(self.key("wrong")).decode())

    def until(self, keys):
        """Returns when all keys are there."""
        pause_s = _FIRST_LOOK_S
        while not self.store.check(keys):
            if self.store.check([self.key("wrong")]):
                self._give_up()
            waited = time.monotonic() - self.begin
            if 1e3 * waited >= self.timeout_ms:
                raise errors.RankMissing(self._text(waited), self._missing()[0])
            if waited > _SOON_S:
                self.look_s = max(self.look_s, _LATE_LOOK_S)
            if not self.told and waited >= _patience_s():
                self.told = True
                if self.rank == min(self._here()):
                    print(f"lockstep: {self._text(waited)}", file=sys.stderr, flush=True)
            time.sleep(min(pause_s, self.look_s))
            pause_s *= 2

    def _here(self):
        return [rank for rank in range(self.size) if self.store.check([self.key(f"here/{rank}")])]

    def _missing(self):
        here = self._here()
        # All may have come at this very moment.
        return [rank for rank in range(self.size) if rank not in here] or [0]

    def _text(self, waited):
        here = self._here()
        late = f"rank {self.rank} has waited {waited:.1f} s for {names_of(self._missing())} of {self.size}"
        blame = ""
        if 0 not in here:
            blame = " (rank 0 may itself wait for the others, in PyTorch's store)"
        return (
            f"{late}{blame}; here: {names_of(here)}. See whether {self.size} processes were started, WORLD_SIZE, and "
            "what those that are missing printed. The time limit is the timeout of init_process_group, "
            f"{self.timeout_ms / 1e3:g} s"
        )


def open_all(store, rank, size, timeout_ms, open_timeout_ms):
    """The group of all ranks that share the store. Rank 0 says there where to meet; all look whether they can."""
    global _launched, _met
    if _met is not None and (_met.rank, _met.size) == (rank, size):
        communicator, _met = _met, None
        return communicator
    waiting = _Waiting(store, rank, size, open_timeout_ms)
    here = {"host": socket.gethostname(), "machine": _machine()}
    try:
        waiting.claim()
        if rank == 0:
            waiting.until([waiting.key(f"here/{other}") for other in range(size)])
            place = "" if _can_use_launcher(size) else f"unix:lockstep-{uuid.uuid4().hex}"
            store.set(waiting.key("meeting"), json.dumps({**here, "place": place}))
        else:
            waiting.until([waiting.key("meeting")])
        meeting = json.loads(bytes(store.get(waiting.key("meeting"))))
    except dist.DistNetworkError as error:
        raise errors.RankMissing(
            f"PyTorch's store is gone, which rank 0 or the launcher keeps: see what it printed ({error})", 0
        ) from error
    if meeting["machine"] != here["machine"]:
        raise errors.Unsupported(
            f"rank 0 is on {meeting['host']}, rank {rank} on {here['host']}: this version works on one machine"
        )
    communicator = Communicator.open(rank, size, meeting["place"] or None, timeout_ms, open_timeout_ms)
    if not meeting["place"]:
        _launched = True
    return communicator


def keep_met(communicator):
    """For the next call of open_all."""
    global _launched, _met
    _launched, _met = True, communicator


def tag_of(name):
    """Of the messages by which the members of a group called `name` make it: above those that programs may use."""
    return OWN_TAGS | (zlib.crc32(name.encode()) & (OWN_TAGS - 1))
