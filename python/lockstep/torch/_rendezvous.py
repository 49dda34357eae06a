# SPDX-License-Identifier: BSD-3-Clause
"""init_process_group(…, init_method="lockstep://"): ranks meet by the library first, and by PyTorch's store then.

With env:// PyTorch's store comes first. It waits for half an hour for a rank that was never started, and cannot say
which; another program at MASTER_PORT makes it wait, and so do two ranks 0. The library knows all of them by name, at
once or after LOCKSTEP_OPEN_TIMEOUT_MS. The environment is that of env://.
"""

import ctypes
import os
from urllib.parse import parse_qsl, urlparse

import torch.distributed as dist
from torch.distributed.distributed_c10d import default_pg_timeout

from lockstep import errors
from lockstep._communicator import Communicator
from lockstep._library import C, OP_OPTIONS_BYTES, OpOptions
from lockstep._sites import addresses
from lockstep.torch import _store_rendezvous
from lockstep.torch._work import milliseconds

_UINT8 = 4
_STORE_BYTES = 64  # an address in numbers, a blank and a port


def _number(query, name):
    text = query.get(name.lower(), os.environ.get(name, ""))
    if not text.isdigit():
        raise errors.BadArgument(f"lockstep://: {name} is {text!r}: give a number, or tell it to init_process_group")
    return int(text)


def _place(url, query):
    """The address at which ranks meet. None: the library takes it from the launcher's environment."""
    if not url.netloc and not query:
        return None
    address = url.netloc or f"{os.environ.get('MASTER_ADDR', '')}:{os.environ.get('MASTER_PORT', '')}"
    return "tcp:" + address.replace("localhost", "127.0.0.1")


def _tell_store(communicator, address, port):
    """Tells all ranks where rank 0 keeps its store, and returns that."""
    bytes_of = ctypes.create_string_buffer(f"{address} {port}".encode(), _STORE_BYTES)
    options = OpOptions(size=OP_OPTIONS_BYTES, label=addresses[b"init_process_group"])
    where = ctypes.addressof(bytes_of)
    communicator.check(C.ls_broadcast(communicator.handle, where, where, _STORE_BYTES, _UINT8, 0, ctypes.byref(options)))
    address, port = bytes_of.value.decode().split()
    return address, int(port)


def _own_address(url):
    """The address at which the other ranks reach this host: that by which it reaches the rendezvous, which is on this
    host or near it."""
    name = url.hostname or os.environ.get("MASTER_ADDR", "")
    return _store_rendezvous.address_toward(name) or "127.0.0.1"


def meet(url, timeout=default_pg_timeout, **_):
    parts = urlparse(url)
    query = dict(parse_qsl(parts.query))
    rank, size = _number(query, "RANK"), _number(query, "WORLD_SIZE")
    limit_ms = 0 if timeout == default_pg_timeout else milliseconds(timeout)
    communicator = Communicator.open(rank, size, _place(parts, query), limit_ms, limit_ms)
    store = None
    if rank == 0:
        store = dist.TCPStore(_own_address(parts), 0, size, is_master=True, timeout=timeout, wait_for_workers=False)
    address, port = _tell_store(communicator, store.host if rank == 0 else "", store.port if rank == 0 else 0)
    if rank != 0:
        store = dist.TCPStore(address, port, size, is_master=False, timeout=timeout, wait_for_workers=False)
    _store_rendezvous.keep_met(communicator)
    yield store, rank, size
    raise RuntimeError("lockstep:// serves one init_process_group")
