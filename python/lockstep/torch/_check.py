# SPDX-License-Identifier: BSD-3-Clause
"""LOCKSTEP_CHECK=1: finds tensors that are changed before the program has waited for their asynchronous operation.

Each operation works on private copies, and a second copy keeps the original values. When the operation is complete:

    the caller's tensor == the original    otherwise an error names the tensor, the line and the call
    a private copy != the original         it is a result, and is copied into the caller's tensor

So the caller's tensors never depend on when the operation ran, and a mistake shows each time, not once in a while.

The error is a BadArgument, also a ValueError: nothing is broken, and other ranks have their results. The program has
used a tensor that belonged to the operation, and only its own code can be corrected.
"""

import os
import threading

import torch

from lockstep import errors
from lockstep._sites import here
from lockstep.torch import _graphs, _profile
from lockstep.torch._group import ProcessGroup


def wanted():
    """The library has refused what is neither 0 nor 1."""
    return os.environ.get("LOCKSTEP_CHECK", "").lstrip("0") == "1"


def _bytes(tensor):
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8)


def _has_memory(tensor):
    """Whether its storage has all of its elements: a tensor does not notice that its storage was made smaller."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    end = (tensor.storage_offset() + last + 1) * tensor.element_size()
    return tensor.numel() == 0 or end <= tensor.untyped_storage().nbytes()


class _Guard:
    """One tensor of an operation."""

    brought = False  # it may have the result, or a part of it

    def __init__(self, tensor):
        self.tensor = tensor
        self.copy = tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
        self.given = _bytes(self.copy).clone()
        self.address = tensor.data_ptr()

    def change(self):
        """What has happened to it; None: nothing but its result."""
        if self.brought:
            return None
        if not _has_memory(self.tensor) or (self.tensor.data_ptr() != self.address):
            return "its memory was given back or replaced"
        now = _bytes(self.tensor)
        if now.numel() != self.given.numel():
            return "it got another size"
        if torch.equal(now, self.given):
            return None
        first = int((now != self.given).nonzero()[0]) // self.tensor.element_size()
        return f"its element {first} (of {self.tensor.numel()}) is not what it was"

    def bring(self):
        """Copies the result into the caller's tensor. The counter by which autograd sees changes stays as it is, as it
        does when an operation writes to the tensor itself."""
        if not torch.equal(_bytes(self.copy), self.given):
            self.brought = True
            self.tensor.data.copy_(self.copy)

    def __str__(self):
        shape = "x".join(map(str, self.tensor.shape)) or "one number"
        return f"the tensor at {self.address:#x} ({str(self.tensor.dtype).replace('torch.', '')}, {shape})"


class _Guards:
    """All tensors of an operation."""

    def __init__(self, communicator, call):
        self.communicator = communicator
        self.call = call
        self.by_id = {}
        self.originals = {}

    def swap(self, value):
        """The value with a copy in place of each tensor that can be sent at all."""
        if isinstance(value, torch.Tensor):
            if not value.is_cpu or value.layout is not torch.strided or not _has_memory(value):
                return value  # the call refuses it
            guard = self.by_id.get(id(value))
            if guard is None:
                guard = self.by_id[id(value)] = _Guard(value)
                self.originals[id(guard.copy)] = value
            return guard.copy
        return [self.swap(one) for one in value] if isinstance(value, (list, tuple)) else value

    def back(self, value):
        if isinstance(value, torch.Tensor):
            return self.originals.get(id(value), value)
        return [self.back(one) for one in value]

    def watch(self, work):
        """Call it before the operation begins: a signal handler may raise an exception at any time after that, and an
        operation that has begun goes on."""
        _of_thread.guards = None  # of one Work
        work.attach(self.finish, self.back)

    def finish(self, label):
        """What the operation calls when it is over, and again if a signal has interrupted it: none of its tensors gets a
        result if one was changed."""
        guards = list(self.by_id.values())
        for guard in guards:
            change = guard.change()
            if change is not None:
                raise self._error(guard, change, label)
        for guard in guards:
            guard.bring()

    def _error(self, guard, change, label):
        seen = here()
        called = label.decode(errors="replace") if label else "an unknown place"
        return errors.BadArgument(
            f"{guard} was changed while {self.call} was under way: {change}\n"
            f"  {self.call} was called from {called}\n"
            f"  the change was seen {f'at {seen.decode()}' if seen else 'by a thread that completes futures'}, "
            "where the operation was waited for or found to be over\n"
            "Leave tensors of an asynchronous operation alone until its wait() has returned, or give it a clone.",
            self.communicator.rank,
        )


_of_thread = threading.local()


class CheckedGroup(ProcessGroup):
    """A process group whose asynchronous operations work on copies."""

    @property
    def guards(self):
        return getattr(_of_thread, "guards", None)


def _is_split(name, args, named):
    """Whether the call has several tensors, or lists of them, and is a call for each, which come here by themselves."""
    place, keyword = _SPLIT.get(name, (0, ""))
    given = args[place] if len(args) > place else named.get(keyword)
    return name in _SPLIT and isinstance(given, (list, tuple)) and len(given) != 1


def _checked(name):
    method = getattr(ProcessGroup, name)

    def call(self, *args, **named):
        opts = named.get("opts", args[-1] if args else None)
        if not getattr(opts, "asyncOp", True) or _is_split(name, args, named):
            return method(self, *args, **named)
        guards = _Guards(self.communicator, _profile.name_of(name))
        args = [guards.swap(arg) for arg in args]
        named = {key: guards.swap(arg) for key, arg in named.items()}
        return _call_with(guards, method, self, *args, **named)

    call.__name__ = name  # for messages
    return call


def _call_with(guards, method, *args, **named):
    """A signal handler may call in the middle of another call: that one keeps its guards."""
    interrupted = getattr(_of_thread, "guards", None)
    try:
        _of_thread.guards = guards
        return method(*args, **named)
    finally:
        _of_thread.guards = interrupted


def _barrier(self, *args, **named):
    return _call_with(None, ProcessGroup.barrier, self, *args, **named)


# Which argument says how many calls it is: its place, and its name.
_SPLIT = {"allreduce": (0, "tensors"), "allgather": (1, "input_tensors"), "reduce_scatter": (0, "output_tensors")}
_ALIASES = {
    "_allgather_base": "all_gather_single",
    "_reduce_scatter_base": "reduce_scatter_single",
    "alltoall_base": "all_to_all_single",
}
for _name in (
    "allreduce allreduce_coalesced broadcast reduce all_gather_single reduce_scatter_single all_to_all_single "
    "allgather gather scatter reduce_scatter alltoall send recv"
).split():
    setattr(CheckedGroup, _name, _checked(_name))
for _alias, _name in _ALIASES.items():
    setattr(CheckedGroup, _alias, getattr(CheckedGroup, _name))
CheckedGroup.barrier = _barrier
_graphs.keep_out(CheckedGroup)
