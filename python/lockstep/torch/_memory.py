# SPDX-License-Identifier: BSD-3-Clause
"""Tensors in memory that the other ranks of this machine reach without a copy."""

import ctypes
import weakref

import torch

from lockstep import errors
from lockstep._library import C, OK


def at_end_of(owner, function, *arguments):
    """A finaliser. It may run in any thread, at any point of the program, and not at all once the interpreter ends, as
    groups end then."""
    finaliser = weakref.finalize(owner, function, *arguments)
    finaliser.atexit = False
    return finaliser


def _communicator(group):
    from lockstep.torch._group import default_group

    group = group or default_group()
    communicator = getattr(group, "communicator", None)
    if communicator is None or communicator.handle is None:
        raise errors.BadArgument("memory is given by a process group of the backend lockstep; open one first")
    return communicator


def _size_of(size):
    return torch.Size(size[0]) if len(size) == 1 and not isinstance(size[0], int) else torch.Size(size)


def block(communicator, count, dtype):
    """A tensor of so many elements, at least one."""
    address = ctypes.c_void_p()
    communicator.check(communicator.visit(C.ls_alloc, count * dtype.itemsize, ctypes.byref(address)))
    kind = type("Block", (ctypes.c_char * (count * dtype.itemsize),), {})
    memory = kind.from_address(address.value)
    at_end_of(memory, communicator.free, address.value)
    return torch.frombuffer(memory, dtype=dtype, count=count)


def empty(*size, dtype=None, group=None, requires_grad=False):
    """As torch.empty, on the CPU. Collectives of such tensors copy nothing on the way. A tensor may outlive its process
    group, and is as any other one then."""
    communicator = _communicator(group)
    dtype = dtype or torch.get_default_dtype()
    shape = _size_of(size)
    count = shape.numel()
    if any(length < 0 for length in shape):
        raise errors.BadArgument(f"empty: the shape {list(shape)} has a negative length")
    if count == 0:
        return torch.empty(shape, dtype=dtype, requires_grad=requires_grad)
    return block(communicator, count, dtype).view(shape).requires_grad_(requires_grad)


def zeros(*size, dtype=None, group=None, requires_grad=False):
    """As torch.zeros; see empty."""
    return empty(*size, dtype=dtype, group=group).zero_().requires_grad_(requires_grad)


def ones(*size, dtype=None, group=None, requires_grad=False):
    """As torch.ones; see empty."""
    return empty(*size, dtype=dtype, group=group).fill_(1).requires_grad_(requires_grad)


def full(size, value, *, dtype=None, group=None, requires_grad=False):
    """As torch.full; see empty."""
    return empty(size, dtype=dtype, group=group).fill_(value).requires_grad_(requires_grad)


def empty_like(tensor, *, dtype=None, group=None, requires_grad=False):
    """As torch.empty_like, always contiguous; see empty."""
    return empty(tensor.shape, dtype=dtype or tensor.dtype, group=group, requires_grad=requires_grad)


def tensor(data, *, dtype=None, group=None, requires_grad=False):
    """A copy of `data` (whatever torch.as_tensor takes) in such memory."""
    source = torch.as_tensor(data, dtype=dtype)
    copy = empty(source.shape, dtype=source.dtype, group=group)
    copy.copy_(source.detach())
    return copy.requires_grad_(requires_grad)


# ---- memory that is there already ----


def _deregister(communicator, address):
    communicator.shared.pop(address, None)
    communicator.visit(C.ls_deregister, address)


def _deregister_with(storage, communicator):
    """The registration ends with the storage, of which views may live on when the tensor is gone; one for each."""
    while communicator.parent is not None:
        communicator = communicator.parent  # memory is registered for all groups
    address = storage.data_ptr()
    before = communicator.shared.get(address)
    alive = before.peek() if before is not None else None
    if alive is not None and alive[0] is storage:
        return
    if before is not None:
        before.detach()  # what was there has lost its memory, and must not end what is there now
    communicator.shared[address] = at_end_of(storage, _deregister, communicator, address)


def share(buffer, group=None):
    """Moves the tensor's storage into shared memory, where it stays for all that look at it, and shows it to the other
    ranks until it is freed. Collective: all ranks share a tensor of theirs at the same point. True if peers reach it now;
    False if the system, or the limit of 64 ranges of a rank, does not allow that: then everything works as before, with
    copies."""
    communicator = _communicator(group)
    storage = buffer.untyped_storage()
    descriptor, size = -1, 0
    if storage.nbytes():
        # It belongs to the storage, and has no name in any file system.
        descriptor, size = storage._share_fd_cpu_()
    status = communicator.enter(C.ls_register, storage.data_ptr(), size, descriptor, 0)
    if status != OK and not issubclass(errors.class_of(status), errors.CallError):
        raise communicator.error(status)
    if status == OK and size:
        _deregister_with(storage, communicator)
    return status == OK


class MappedBuckets:
    """State of the hook mapped_buckets: `ddp.register_comm_hook(lockstep.torch.MappedBuckets(), mapped_buckets)`.

    group  of the model; None: the default group

    Buckets are kept, so that those of a model that gets new ones lie elsewhere, on all ranks alike.
    """

    def __init__(self, group=None):
        self.group = group
        self.shared = {}  # a bucket's number → the tensor that has been shared


def mapped_buckets(state, bucket):
    """A communication hook of DistributedDataParallel that averages gradients as it does itself, in buckets that the
    other ranks reach without a copy. With gradient_as_bucket_view=True gradients are views of them."""
    from lockstep.torch._group import default_group

    group = state.group or default_group()
    buffer = bucket.buffer()
    shared = state.shared.get(bucket.index())
    if shared is None or shared.data_ptr() != buffer.data_ptr() or shared.nbytes != buffer.nbytes:
        share(buffer, group)
        state.shared[bucket.index()] = buffer
    options = torch.distributed.AllreduceOptions()
    options.reduceOp = torch.distributed.ReduceOp.AVG
    return group.allreduce([buffer], options).get_future().then(lambda future: future.value()[0])
