# SPDX-License-Identifier: BSD-3-Clause
"""What the library needs to know of tensors: where their elements lie, how many, of which type."""

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from lockstep import errors

DTYPES = {
    torch.int8: 0,
    torch.int16: 1,
    torch.int32: 2,
    torch.int64: 3,
    torch.uint8: 4,
    torch.uint16: 5,
    torch.uint32: 6,
    torch.uint64: 7,
    torch.float16: 8,
    torch.bfloat16: 9,
    torch.float32: 10,
    torch.float64: 11,
    torch.bool: 12,
    torch.complex64: 13,
    torch.complex128: 14,
}
_STRIDED = torch.strided
BYTES = DTYPES[torch.uint8]
# Reductions by their numbers in the library → dtypes for which they mean nothing.
_FLOATING = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
_COMPLEX = frozenset((torch.complex64, torch.complex128))
_UNDEFINED = {
    1: ("average", frozenset((torch.bool,))),
    2: ("min", _COMPLEX),
    3: ("max", _COMPLEX),
    4: ("product", _COMPLEX),
    5: ("band", _FLOATING | _COMPLEX),
    6: ("bor", _FLOATING | _COMPLEX),
    7: ("bxor", _FLOATING | _COMPLEX),
    8: ("premultiplied sum", frozenset(DTYPES) - _FLOATING - _COMPLEX),
}


def refuse(tensor, call):
    """Raises what is wrong with a tensor that is not strided and in host memory."""
    if tensor.layout is not torch.strided:
        raise errors.Unsupported(
            f"{call}: the tensor is {str(tensor.layout).replace('torch.', '')}, and only dense ones can be sent, and "
            "sparse_coo by all_reduce; use tensor.to_dense()"
        )
    raise errors.Unsupported(f"{call}: the tensor is on {tensor.device}, and this version moves memory of the host")


def _with_elements(tensor, call):
    """The tensor itself, or what it stands for: the result of a functional collective, which is waited for."""
    while hasattr(tensor, "trigger_wait"):
        tensor = tensor.trigger_wait()
    if is_traceable_wrapper_subclass(tensor):
        raise errors.Unsupported(
            f"{call}: the tensor is a {type(tensor).__name__}, which has no elements of its own; a DTensor gives its part "
            "by to_local()"
        )
    return tensor


def of_the_host(tensors, call):
    """The tensors, or what they stand for, in a list; an error if one is not in memory of the host, strided."""
    for tensor in tensors:
        if not tensor.is_cpu or tensor.layout is not _STRIDED:
            refuse(tensor, call)
    return [tensor if tensor.__class__ is torch.Tensor else _with_elements(tensor, call) for tensor in tensors]


def contiguous(tensor, call):
    """The tensor itself, if its elements lie one behind the other; else a copy of it that does."""
    if not tensor.is_cpu or tensor.layout is not _STRIDED:
        refuse(tensor, call)
    if tensor.__class__ is not torch.Tensor:
        tensor = _with_elements(tensor, call)
    if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        return tensor.detach().resolve_conj().resolve_neg().contiguous()
    return tensor


def reducible(tensor, call, op):
    """The library's number of the tensor's dtype; an error if it cannot reduce that dtype by `op`."""
    dtype = DTYPES.get(tensor.dtype)
    if op and op in _UNDEFINED and tensor.dtype in _UNDEFINED[op][1]:
        raise errors.Unsupported(f"{call}: {_UNDEFINED[op][0]} is not defined for elements of {tensor.dtype}")
    if dtype is None:
        raise errors.Unsupported(
            f"{call}: {tensor.dtype} cannot be reduced; convert the tensor, for example to float32"
        )
    return dtype


def transfer_dtype(tensor):
    """(dtype, elements of it in one of the tensor's) for operations that only move: what is unknown moves as bytes."""
    dtype = DTYPES.get(tensor.dtype)
    return (BYTES, tensor.element_size()) if dtype is None else (dtype, 1)


def copy_into(target, source):
    """For a result that the library could not write where the caller wants it."""
    target, source = target.detach(), source.view(target.shape) if source.shape != target.shape else source
    if 0 in target.stride():
        target, source = _without_expanded(target, source)
    target.copy_(source)


def _without_expanded(target, source):
    """Both with one element for all those that share memory in the target, as expand() makes them; an error if these were
    to get different values."""
    first = source
    for dim, stride in enumerate(target.stride()):
        if stride == 0 and target.size(dim) > 1:
            target, first = target.narrow(dim, 0, 1), first.narrow(dim, 0, 1)
    bits = [tensor.contiguous().view(torch.uint8) for tensor in (first.expand_as(source), source)]
    if not torch.equal(*bits):
        raise errors.BadArgument(
            f"the result has different values for elements that share memory in a tensor of shape {list(source.shape)}, as "
            "expand() makes them; use tensor.clone()"
        )
    return target, first


def lie_in_a_row(tensors):
    """Whether each begins where the one before it ends, in one storage, and all elements are in memory as they are."""
    first = tensors[0]
    storage, step = first.untyped_storage().data_ptr(), first.nbytes
    where = first.data_ptr()
    for tensor in tensors:
        if (
            tensor.data_ptr() != where
            or tensor.nbytes != step
            or not tensor.is_contiguous()
            or tensor.is_conj()
            or tensor.is_neg()
            or tensor.untyped_storage().data_ptr() != storage
        ):
            return False
        where += step
    return True


def overlap(tensors):
    """Whether two of them, each with its elements in a row, share memory; one without memory does not."""
    spans = sorted((tensor.data_ptr(), tensor.nbytes) for tensor in tensors if tensor.data_ptr())
    return any(where + size > following for (where, size), (following, _) in zip(spans, spans[1:]))


def are_apart(one, other):
    """Whether two tensors, each with its elements in a row, share no memory."""
    where, there = one.data_ptr(), other.data_ptr()
    return where + one.nbytes <= there or there + other.nbytes <= where


def shared_elements(one, other):
    """How many elements two tensors share, each with its elements in a row."""
    begin, end = max(one.data_ptr(), other.data_ptr()), min(one.data_ptr() + one.nbytes, other.data_ptr() + other.nbytes)
    return max(0, end - begin) // one.element_size()


def shares(part, tensors, place):
    """Whether the part, one for a rank, shares memory with the tensors, which lie in a row, and is not just the one at its
    own place: elsewhere the library does not take it."""
    where, begin, step = part.data_ptr(), tensors[0].data_ptr(), part.nbytes
    return where < begin + len(tensors) * tensors[0].nbytes and begin < where + step and where != begin + place * step


def same_dtype(tensors, call):
    if not tensors:
        raise errors.BadArgument(f"{call}: the list of tensors is empty")
    dtype = tensors[0].dtype
    for tensor in tensors:
        if tensor.dtype != dtype:
            raise errors.BadArgument(f"{call}: tensors of one call must have one dtype, not {dtype} and {tensor.dtype}")
