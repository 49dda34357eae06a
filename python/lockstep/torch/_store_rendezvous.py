# SPDX-License-Identifier: BSD-3-Clause
"""How the ranks of a process group find each other: through the store that torch.distributed gives them.

    lockstep/N/rank/R    how many processes have claimed rank R
    lockstep/N/here/R    its pid, and what rank 0 has to know of its host
    lockstep/N/wrong     why they cannot meet, written by the rank that finds out
    lockstep/N/meeting   from rank 0, when all ranks have come: the rendezvous address

N counts the meetings through this store, including those of earlier runs of the job: a launcher that restarts all
processes keeps its store, with the entries of the ended ones. A process that finds its rank taken by one that has ended
goes on to the next meeting; if that one's meeting had not come about, so do all who wait there. No number tells the runs
apart: the agents of torchrun on different hosts count restarts differently.

If the ranks are on several hosts, they meet at an address of rank 0's host and a free port there, since PyTorch's store
has MASTER_PORT. The address is the one from which rank 0 reaches the store, as all ranks do.

A rank that waits for long prints which ranks are missing. C would do that as well, but only after all have come.
"""

import contextlib
import ipaddress
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
_OVER = "- - -"  # where else stands why a run cannot meet

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


def _born(pid):
    """When a process of this host was started, which tells it from another one that has its number later; "" if it has
    ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rsplit(")", 1)[1].split()[19]
    return ""


def _can_use_launcher(size):
    return not _launched and "LOCKSTEP_RENDEZVOUS" in os.environ and os.environ.get("WORLD_SIZE") == str(size)


def _setting_ms(name, default):
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else default


def _patience_s():
    return _setting_ms("LOCKSTEP_PATIENCE_MS", 10000) / 1e3


# ---- hosts ----


def _host_of(store):
    """Of the process that keeps the store, by the name that the program or the launcher gave; "" if it has none."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return store.host if isinstance(store, dist.TCPStore) else os.environ.get("MASTER_ADDR", "")


def _resolved(name):
    """Its first address, in numbers; "" if it has none."""
    with contextlib.suppress(OSError):
        return socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0] if name else ""
    return ""


def address_toward(name):
    """Of this host, from which it reaches the one with this name; "" if it does not."""
    with contextlib.suppress(OSError):
        family, kind, _, _, where = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(where)  # sends nothing
            return probe.getsockname()[0]
    return ""


def _is_reachable(address):
    """From other hosts, as far as the address tells."""
    if not address:
        return False
    number = ipaddress.ip_address(address.split("%")[0])
    return not number.is_loopback and not (number.version == 6 and number.is_link_local)


def _has_secret():
    return bool(os.environ.get("LOCKSTEP_SECRET_FILE")) or os.environ.get("LOCKSTEP_TRUST_NETWORK") == "1"


def reserve(address):
    """A socket that keeps a port there until it is closed, and which the library may use meanwhile; and the port."""
    keeper = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind((address, 0))
    return keeper, keeper.getsockname()[1]


def _choose(ranks):
    """(address at which ranks on several hosts meet, "") or ("", why they cannot, as the class of an error and its text).
    ranks: what each has said of itself, in order."""
    without = [rank for rank, here in enumerate(ranks) if not here["secret"]]
    if without:
        return "", (
            f"UntrustedPeer the ranks are on several hosts ({_hosts(ranks)}), and {names_of(without)} "
            f"{'has' if len(without) == 1 else 'have'} no secret by which they could know each other: give all ranks "
            "LOCKSTEP_SECRET_FILE, a file of 32 random bytes, the same on every host; or, in a network that nobody else can "
            "reach, LOCKSTEP_TRUST_NETWORK=1"
        )
    far = next(here for here in ranks if here["machine"] != ranks[0]["machine"])
    # A host often has its own name for an address that only it can use.
    for address in ranks[0]["address"], far["store"]:
        if _is_reachable(address):
            return address, ""
    return "", (
        f"BadArgument the ranks are on several hosts ({_hosts(ranks)}), and no address is known at which they reach that of "
        "rank 0: give MASTER_ADDR an address of it in their network, or give all ranks "
        "LOCKSTEP_RENDEZVOUS=tcp:ADDRESS:PORT"
    )


def _hosts(ranks):
    """ "ranks 0 and 1 on a, rank 2 on b" """
    hosts = {}
    for rank, here in enumerate(ranks):
        hosts.setdefault((here["machine"], here["host"]), []).append(rank)
    return ", ".join(f"{names_of(found)} on {host}" for (_, host), found in hosts.items())


# ---- the meeting ----


def names_of(ranks):
    """ "rank 1", "ranks 1 and 2", "ranks 1, 2 and 3" """
    texts = [str(rank) for rank in ranks]
    if len(texts) == 1:
        return f"rank {texts[0]}"
    return f"ranks {', '.join(texts[:-1])} and {texts[-1]}"


class _Over(Exception):
    """This meeting is one of an earlier run, which has not come about."""


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
        host = _host_of(store)
        self.me = {
            "pid": os.getpid(),
            "born": _born(os.getpid()),
            "life": self.life,
            "host": socket.gethostname(),
            "machine": _machine(),
            "secret": _has_secret(),
            "store": _resolved(host),
            "address": address_toward(host) if host else "",
        }

    def key(self, name):
        return f"lockstep/{self.number}/{name}"

    def claim(self):
        """This process is the rank, in the first meeting in which no other has been that in this run."""
        while self.store.add(self.key(f"rank/{self.rank}"), 1) != 1:
            other = self._claimer()
            if other is not None and not self._is_earlier(other):
                self._refuse_twin(other)
            if not self.store.check([self.key("meeting")]):
                self.store.set(self.key("wrong"), _OVER)
            self.number += 1
        self.store.set(self.key(f"here/{self.rank}"), json.dumps(self.me))

    def _claimer(self):
        """Who has claimed the rank before; None if it has ended before it could say so: it does that at once."""
        key, end = self.key(f"here/{self.rank}"), time.monotonic() + _LINGER_S
        while not self.store.check([key]):
            if time.monotonic() >= end:
                return None
            time.sleep(self.look_s)
        return json.loads(bytes(self.store.get(key)))

    def _is_earlier(self, other):
        """Whether that process, which has been this rank, will not be it again: it is this one, or has ended. On another
        host that can be told only from its run, or if its ranks have met."""
        if other["life"] != self.life:
            return True
        if other["machine"] != self.me["machine"]:
            return self.store.check([self.key("meeting")])
        return other["pid"] == self.me["pid"] or other["born"] != _born(other["pid"])

    def _refuse_twin(self, other):
        places = [f"pid {one['pid']}" for one in (other, self.me)]
        if other["machine"] != self.me["machine"]:
            places = [f"{place} on {one['host']}" for place, one in zip(places, (other, self.me))]
        self.refuse(
            f"DuplicateRank two processes claim rank {self.rank} of {self.size}, {' and '.join(places)}: give each its "
            f"own RANK, 0 to {self.size - 1}"
        )

    def refuse(self, why):
        """For all ranks. why: the class of an error, and its text."""
        self.store.set(self.key("wrong"), f"{self.life} {why}")
        self._give_up()

    def ranks(self):
        """What all ranks have said of themselves, once all have come."""
        return [json.loads(bytes(self.store.get(self.key(f"here/{other}")))) for other in range(self.size)]

    def _give_up(self):
        """Rank 0 may keep the store, so it stays until the others have read why."""
        life, kind, text = self.store.get(self.key("wrong")).decode().split(" ", 2)
        if life != self.life:
            raise _Over
        knowing = self.store.add(self.key("knowing"), 1)
        end = time.monotonic() + _LINGER_S
        while self.rank == 0 and knowing <= len(self._here()) and time.monotonic() < end:
            time.sleep(self.look_s)
            knowing = self.store.add(self.key("knowing"), 0)
        raise getattr(errors, kind)(text)

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


def _find_place(waiting, held):
    """Rank 0, when all ranks have come: where they meet. held: an ExitStack for what has to last as long as the meeting."""
    if _can_use_launcher(waiting.size):
        return ""
    ranks = waiting.ranks()
    if all(here["machine"] == ranks[0]["machine"] for here in ranks):
        return f"unix:lockstep-{uuid.uuid4().hex}"
    address, why = _choose(ranks)
    if why:
        waiting.refuse(why)
    try:
        keeper, port = reserve(address)
    except OSError as error:
        waiting.refuse(
            f"BadArgument the ranks are on several hosts ({_hosts(ranks)}), and rank 0 cannot listen at {address}, by which "
            f"they know its host ({error}): give MASTER_ADDR an address of the host of rank 0, or give all ranks "
            "LOCKSTEP_RENDEZVOUS=tcp:ADDRESS:PORT"
        )
    held.enter_context(keeper)
    return f"tcp:[{address}]:{port}" if ":" in address else f"tcp:{address}:{port}"


def _meet(waiting, held):
    """The place of the first meeting that is of this run, once all have come."""
    while True:
        try:
            waiting.claim()
            if waiting.rank == 0:
                waiting.until([waiting.key(f"here/{other}") for other in range(waiting.size)])
                waiting.store.set(waiting.key("meeting"), json.dumps(_find_place(waiting, held)))
            else:
                waiting.until([waiting.key("meeting")])
            return json.loads(bytes(waiting.store.get(waiting.key("meeting"))))
        except _Over:
            waiting.number += 1


def open_all(store, rank, size, timeout_ms, open_timeout_ms):
    """The group of all ranks that share the store. Rank 0 says there where to meet."""
    global _launched, _met
    if _met is not None and (_met.rank, _met.size) == (rank, size):
        communicator, _met = _met, None
        return communicator
    waiting = _Waiting(store, rank, size, open_timeout_ms)
    with contextlib.ExitStack() as held:
        try:
            place = _meet(waiting, held)
        except dist.DistNetworkError as error:
            raise errors.RankMissing(
                f"PyTorch's store is gone, which rank 0 or the launcher keeps: see what it printed ({error})", 0
            ) from error
        # All are here, and have only to connect. Between hosts a firewall may forbid it.
        if place.startswith("tcp:"):
            open_timeout_ms = min(open_timeout_ms, _setting_ms("LOCKSTEP_OPEN_TIMEOUT_MS", 60000))
        communicator = Communicator.open(rank, size, place or None, timeout_ms, open_timeout_ms)
    if not place:
        _launched = True
    return communicator


def keep_met(communicator):
    """For the next call of open_all."""
    global _launched, _met
    _launched, _met = True, communicator


def tag_of(name):
    """Of the messages by which the members of a group called `name` make it: above those that programs may use."""
    return OWN_TAGS | (zlib.crc32(name.encode()) & (OWN_TAGS - 1))
