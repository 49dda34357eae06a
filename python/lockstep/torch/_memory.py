# SPDX-License-Identifier: BSD-3-Clause
"""Tensors in memory that the other ranks of this machine reach without a copy."""

import ctypes
import os
import weakref

import torch

from lockstep import errors
from lockstep._library import C, OK, OP_OPTIONS_BYTES, MemoryStats, OpOptions
from lockstep._sites import addresses, here


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
        return torch.empty(shape, dtype=dtype, device="cpu", requires_grad=requires_grad)
    address = ctypes.c_void_p()
    communicator.check(communicator.visit(C.ls_alloc, count * dtype.itemsize, ctypes.byref(address)))
    kind = type("Block", (ctypes.c_char * (count * dtype.itemsize),), {})
    block = kind.from_address(address.value)
    at_end_of(block, communicator.free, address.value)
    tensor = torch.frombuffer(block, dtype=dtype, count=count).view(shape)
    return tensor.requires_grad_(requires_grad)


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
    source = torch.as_tensor(data, dtype=dtype, device="cpu")
    copy = empty(source.shape, dtype=source.dtype, group=group)
    copy.copy_(source.detach())
    return copy.requires_grad_(requires_grad)


# ---- memory that is there already ----


def _deregister(communicator, address):
    communicator.shared.pop(address, None)
    communicator.visit(C.ls_deregister, address)


def _is_shared(storage, root):
    before = root.shared.get(storage.data_ptr())
    alive = before.peek() if before is not None else None
    return alive is not None and alive[0] is storage


def _has_place(storage, root):
    """Whether the library can register it. The first time that it cannot, the library is called all the same, and says so:
    once."""
    if not root.told or _is_shared(storage, root):
        return True
    stats = MemoryStats(size=ctypes.sizeof(MemoryStats))
    return root.visit(C.ls_memory_stats, ctypes.byref(stats)) != OK or stats.registrable > 0


def _deregister_with(storage, communicator):
    """The registration ends with the storage, of which views may live on when the tensor is gone; one for each."""
    communicator = communicator.root()  # memory is registered for all groups
    address = storage.data_ptr()
    if _is_shared(storage, communicator):
        return
    before = communicator.shared.get(address)
    if before is not None:
        before.detach()  # what was there has lost its memory, and must not end what is there now
    communicator.shared[address] = at_end_of(storage, _deregister, communicator, address)


def _has_file(storage):
    """Moves it into memory of a file: PyTorch itself would take a file in /dev/shm, which is small in containers, and a
    write to a page that it has no room for kills the process. False if there is not enough memory."""
    if storage.is_shared():
        return True
    file = os.memfd_create("lockstep-tensor")
    try:
        os.posix_fallocate(file, 0, storage.nbytes())
        moved = torch.UntypedStorage._new_shared_fd_cpu(file, storage.nbytes())
    except OSError:
        return False
    finally:
        os.close(file)
    storage._swap_data_ptr_(moved.copy_(storage))
    return True


def share(buffer, group=None):
    """Moves the tensor's storage into shared memory, so that the other ranks access it without a copy until it is freed.
    All tensors with this storage go on as before. Collective: all ranks call it, each with a tensor of its own. Returns
    True if the other ranks access it now; False if the system, or the limit of 64 ranges of a rank, does not allow that:
    then everything works as before, with copies. A rank that has reached its limit keeps no other rank from sharing."""
    communicator = _communicator(group)
    storage = buffer.untyped_storage()
    descriptor, size = -1, 0
    if storage.nbytes() and _has_place(storage, communicator.root()) and _has_file(storage):
        # It belongs to the storage, and has no name in any file system.
        descriptor, size = storage._share_fd_cpu_()
    options = OpOptions(OP_OPTIONS_BYTES, label=addresses[here()])
    status = communicator.enter(C.ls_register, storage.data_ptr(), size, descriptor, 0, ctypes.byref(options))
    if status != OK and not issubclass(errors.class_of(status), errors.CallError):
        raise communicator.error(status)
    if status != OK:
        communicator.root().told = True
    if status == OK and size:
        _deregister_with(storage, communicator)
    return status == OK and (size > 0 or storage.nbytes() == 0)
