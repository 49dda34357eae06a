# SPDX-License-Identifier: BSD-3-Clause
"""The process group that torch.distributed gets: what it can do is in Collectives and PointToPoint; here is what it is
asked about itself, how it is made, and how it ends."""

from threading import get_ident
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from lockstep import errors
from lockstep._library import OK
from lockstep._sites import here
from lockstep.torch import _end, _mapped, _memory, _phases, _store_rendezvous
from lockstep.torch._collectives import Collectives
from lockstep.torch._p2p import PointToPoint
from lockstep.torch._work import Several, milliseconds

_DEFAULT_MS = milliseconds(distributed_c10d.default_pg_timeout)


class ProcessGroup(Collectives, PointToPoint, dist.ProcessGroup):
    """A group of ranks."""

    def __init__(self, communicator, store, timeout):
        dist.ProcessGroup.__init__(self, communicator.rank, communicator.size)
        self.communicator = communicator
        self._store = store
        self._timeout = timeout
        self._name = ""
        self._desc = ""
        self.looks = 0  # of _phases
        self._coalescing = {}
        _end.opened()
        _memory.at_end_of(self, communicator.let_go)

    # ---- what it is ----

    @property
    def group_name(self):
        return self._name

    @property
    def group_desc(self):
        return self._desc

    @property
    def pg_name(self):
        return self._name

    def _set_group_name(self, name):
        self._name = name

    def _set_group_desc(self, desc):
        self._desc = desc

    def name(self):
        return "lockstep"

    def getBackendName(self):
        return "lockstep"

    def _get_backend_name(self):
        return "lockstep"

    def get_group_store(self):
        return self._store

    def _get_backend(self, device):
        return self

    @property
    def _device_types(self):
        """None yet while PyTorch makes the group: from 2.15 on it would give it a recorder that asks C++ for its name."""
        return [torch.device("cpu")] if self in distributed_c10d._world.pg_map else []

    @property
    def options(self):
        return self

    def _id(self):
        return id(self)

    def _set_default_backend(self, backend_type):
        pass

    def _has_hooks(self):
        return False

    def _wait_for_pending_works(self):
        for work in list(self.communicator.pending.values()):
            work._await()

    def _get_sequence_number_for_group(self):
        return 0

    def _set_sequence_number_for_group(self):
        pass

    def set_timeout(self, timeout):
        self._timeout = timeout

    supports_splitting = False
    supports_coalescing = True
    supports_time_estimate = False
    supports_shrinking = False
    bound_device_id = None

    # ---- coalescing ----

    def _start_coalescing(self, device_type):
        self._coalescing[get_ident()] = []

    def _end_coalescing(self, device_type):
        return Several(self._coalescing.pop(get_ident(), []))

    def stop_collecting(self):
        self._coalescing.pop(get_ident(), None)

    def _collect(self, work):
        works = self._coalescing.get(get_ident())
        if works is not None:
            works.append(work)

    def all_gather_single(self, output, input, opts=None, timeout=None):
        if self.looks < _phases.LOOKS:
            _phases.look_for_model(self)
        return super().all_gather_single(output, input, opts, timeout)

    _allgather_base = all_gather_single

    # ---- the end ----

    def abort(self, reason=None):
        """Closes it on all ranks; their calls end with an error."""
        self.communicator.abort(reason or f"the program called abort() at {_place()}")

    def shutdown(self):
        self.communicator.close(f"a rank closed the group at {_place()} with operations of its own under way")

    def error(self):
        """The exception that calls of the closed group raise; None while it is open. For a program that has caught another
        exception, such as the RuntimeError of a future, which has only the text."""
        status, rank, operation, report = self.communicator.failure()
        return errors.class_of(status)(report, rank, operation) if status != OK else None

    def failure(self):
        """The report on why the group is closed, "" while it is open."""
        return self.communicator.failure()[3]


def _place():
    return (here() or b"an unknown place").decode(errors="replace")


def default_group():
    """The group of all ranks, if it is one of this package and open."""
    group = dist.GroupMember.WORLD
    return group if isinstance(group, ProcessGroup) and group.communicator.handle is not None else None


def _kind():
    from lockstep.torch import _check  # which is made of the class above

    return _check.CheckedGroup if _check.wanted() else ProcessGroup


def create(options, backend_options=None):
    """What torch.distributed calls for a new group, on its members alone."""
    timeout_ms = milliseconds(options.timeout)
    # PyTorch's default is no limit of the program's own. Then that of the default group holds, and for that one
    # LOCKSTEP_TIMEOUT_MS.
    own_ms = 0 if timeout_ms == _DEFAULT_MS else timeout_ms
    parent = default_group() if options.global_ranks_in_group else None
    if parent is not None:
        communicator = parent.communicator.from_members(
            list(options.global_ranks_in_group), _store_rendezvous.tag_of(options.group_id), own_ms, here()
        )
    else:
        communicator = _store_rendezvous.open_all(
            options.store, options.group_rank, options.group_size, own_ms, min(timeout_ms, 0xFFFFFFFF)
        )
    _mapped.watch()
    return _kind()(communicator, options.store, options.timeout)


def process_group(store, rank, size, timeout=distributed_c10d.default_pg_timeout):
    """A group that torch.distributed does not know, like ProcessGroupGloo(store, rank, size, timeout): for programs that
    make new groups while the job continues. Every group needs a store, or a prefix of one, that no other group has used.
    All of its ranks call it."""
    return create(
        SimpleNamespace(store=store, group_rank=rank, group_size=size, timeout=timeout, global_ranks_in_group=[])
    )
