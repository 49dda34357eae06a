# SPDX-License-Identifier: BSD-3-Clause
"""Sums of sparse tensors, as gradients of nn.Embedding(sparse=True) are.

Ranks have different numbers of elements, so they first tell each other how many, and the call blocks meanwhile, also
an asynchronous one: what follows must have its place in the order of the group's calls on all ranks. Then one
all-gather brings each rank's indices and values, which all add up in the same order.
"""

import ctypes

import torch
from torch._C._distributed_c10d import AllreduceOptions, ReduceOp

from lockstep import errors
from lockstep._library import C
from lockstep.torch._tensors import BYTES, contiguous, reducible, transfer_dtype

_INT64 = 3  # the library's number of it
_MOST_DIMENSIONS = 27  # with the five other numbers of a shape 256 bytes
_AVERAGE = 1  # as above
_HALVES = torch.float16, torch.bfloat16
_HOST = "cpu"  # a program may have set another device by default
_CALL = "all_reduce of sparse tensors"


def _shape(tensor):
    """Elements, dtype, bytes of a value, sparse and dense dimensions, sizes: ranks differ in the first alone."""
    if tensor.dim() > _MOST_DIMENSIONS:
        raise errors.Unsupported(f"{_CALL}: {tensor.dim()} dimensions, and at most {_MOST_DIMENSIONS} can be told")
    numbers = [tensor._nnz(), transfer_dtype(tensor)[0], tensor.element_size(), tensor.sparse_dim(), tensor.dense_dim()]
    padding = [0] * (_MOST_DIMENSIONS - tensor.dim())
    return torch.tensor(numbers + list(tensor.shape) + padding, dtype=torch.int64, device=_HOST)


def _shapes(group, tensor, opts):
    """Of all ranks, which have compared them."""
    own = _shape(tensor)
    every = torch.empty(group.communicator.size, own.numel(), dtype=torch.int64, device=_HOST)
    blocking = AllreduceOptions()
    blocking.timeout, blocking.asyncOp = opts.timeout, False
    group._run(blocking, C.ls_allgather, (own.data_ptr(), every.data_ptr(), own.numel(), _INT64), (), (own, every))
    for rank, numbers in enumerate(every):
        if not torch.equal(numbers[1:], every[0, 1:]):
            raise errors.Inconsistent(
                f"{_CALL}: ranks 0 and {rank} have tensors of different shapes, dtypes or sparse dimensions; "
                f"this rank's is {tensor.dtype}{list(tensor.shape)} with {tensor.sparse_dim()} sparse ones"
            )
    return every


def _extents(shapes, value_bytes):
    """[(bytes of values, where indices begin, where they end, bytes of both)] of each rank's part, which begins on a
    multiple of the largest element."""
    result = []
    for numbers in shapes.tolist():
        values = numbers[0] * value_bytes
        begin = (values + 7) // 8 * 8
        end = begin + numbers[0] * numbers[3] * 8
        result.append((values, begin, end, (end + 15) // 16 * 16))
    return result


def _packed(tensor, extent):
    values, begin, end, both = extent
    part = torch.zeros(both, dtype=torch.uint8, device=_HOST)
    if both:
        part[:values].view(tensor.dtype).copy_(contiguous(tensor._values(), _CALL).reshape(-1))
        part[begin:end].view(torch.int64).copy_(tensor._indices().reshape(-1))
    return part


def _sum(tensor, room, extents, divisor):
    """Of the parts of all ranks, in the order of ranks, so that it is the same everywhere. As dense tensors are summed:
    halves in float32, and divided when they are summed."""
    indices, values = [], []
    row = tensor.shape[tensor.sparse_dim() :]
    for part, (end_of_values, begin, end, _) in zip(room.split([extent[3] for extent in extents]), extents):
        if begin == end:
            continue
        indices.append(part[begin:end].view(torch.int64).view(tensor.sparse_dim(), -1))
        values.append(part[:end_of_values].view(tensor.dtype).view(indices[-1].shape[1], *row))
    if not indices:
        return tensor
    joined = torch.cat(values)
    wide = joined.float() if tensor.dtype in _HALVES else joined
    summed = torch.sparse_coo_tensor(torch.cat(indices, 1), wide, tensor.shape, device=_HOST, check_invariants=False).coalesce()
    whole = not (tensor.is_floating_point() or tensor.is_complex())
    result = summed.values()
    if divisor != 1:
        result = torch.div(result, divisor, rounding_mode="trunc" if whole else None)
    return torch.sparse_coo_tensor(
        summed.indices(),
        result.to(tensor.dtype),
        tensor.shape,
        device=_HOST,
        check_invariants=False,
        is_coalesced=True,
    )


def allreduce(group, tensor, opts):
    """The sum, or the average; it replaces the tensor's elements."""
    if not tensor.is_cpu:
        contiguous(tensor._values(), _CALL)
    op = opts.reduceOp.op
    if op not in (ReduceOp.SUM, ReduceOp.AVG):
        raise errors.Unsupported(f"{_CALL}: only SUM and AVG are defined where most elements are missing")
    if op == ReduceOp.AVG:
        reducible(tensor, _CALL, _AVERAGE)
    own = tensor.detach().coalesce()
    shapes = _shapes(group, own, opts)
    extents = _extents(shapes, own.shape[own.sparse_dim() :].numel() * own.element_size())
    part = _packed(own, extents[group.communicator.rank])
    room = torch.empty(sum(extent[3] for extent in extents), dtype=torch.uint8, device=_HOST)
    counts = (ctypes.c_uint64 * len(extents))(*[extent[3] for extent in extents])
    divisor = group.communicator.size if op == ReduceOp.AVG else 1

    def finish():
        with torch.no_grad():
            tensor.copy_(_sum(own, room, extents, divisor))

    arguments = part.data_ptr(), room.data_ptr(), counts, BYTES
    return group._run(opts, C.ls_allgatherv, arguments, [tensor], (part, room), finish)
