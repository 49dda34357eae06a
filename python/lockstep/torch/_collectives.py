# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of tensors, by the names and shapes that ProcessGroup gives them."""

import sys
from ctypes import c_int, c_void_p, cast, py_object
from datetime import timedelta
from functools import partial
from threading import get_ident

import torch
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
)
from torch.autograd import profiler

from lockstep import errors
from lockstep._library import C, OK, PENDING, Buffers, call_options, load_with_python
from lockstep._sites import addresses, here
from lockstep.torch import _profile, _short, _sparse
from lockstep.torch._lists import Lists, array
from lockstep.torch._tensors import (
    DTYPES,
    are_apart,
    contiguous,
    copy_into,
    overlap,
    reducible,
    same_dtype,
    shared_elements,
    shares,
    transfer_dtype,
)
from lockstep.torch._work import Several, Work, bring, milliseconds

# By the numbers of enum ls_reduce_op.
_REDUCE_NAMES = "SUM AVG MIN MAX PRODUCT BAND BOR BXOR PREMUL_SUM".split()
_REDUCE_OPS = {getattr(ReduceOp, name): number for number, name in enumerate(_REDUCE_NAMES)}
_SHORTEST = timedelta(milliseconds=1)  # 0 would be no limit to the library
_PREMUL_SUM = _REDUCE_OPS[ReduceOp.PREMUL_SUM]
_SUM = ReduceOp.SUM
_STRIDED = torch.strided
# Real numbers, which are never conjugated: their numbers in the library.
_SUMMED = {dtype: c_int(number) for dtype, number in DTYPES.items() if not dtype.is_complex}
_SUMS = c_int(_REDUCE_OPS[ReduceOp.SUM])  # as above: what a call takes without conversion
_NUMBERS = {op.value: number for op, number in _REDUCE_OPS.items()}  # enums of pybind11 are slow as keys

_FREE_THREADED = "t" in sys.abiflags  # a Python with another binary interface


def _find_short():
    """allreduce(Collectives, tensors, options) of torch_short.c: returns whether it could do the call, and has done it.
    Without that library, or if PyTorch does not describe its tensors to C, a function that returns False."""
    library = None if _FREE_THREADED else load_with_python("liblockstep_torch.so")
    found = None
    if library is not None:
        library.lockstep_torch_allreduce.restype = py_object
        library.lockstep_torch_allreduce.argtypes = [py_object]
        parts = torch.Tensor, torch.nn.Parameter, _SUM, profiler, here, addresses, cast(C.ls_allreduce, c_void_p).value
        found = library.lockstep_torch_allreduce((AllreduceOptions, *parts))
    return found or (lambda *_: False)


_allreduce_in_c = _find_short()
# Operations of blocking calls that go on, while their Work is made: a second handler of a signal may keep them from one
# for ever. By the addresses of their options.
_going_on = {}
_spare = []  # options of blocking calls that have returned. Taking and giving back are atomic


def _listed(sizes):
    """Of split sizes in any sequence: an array of numpy has no truth value."""
    return [] if sizes is None else list(sizes)


class Collectives(Lists):
    """The part of a ProcessGroup that all its ranks call together. `communicator` is the group of the library."""

    communicator = None
    _limit = (None, 0)  # the time limit of the last call, and its milliseconds
    _coalescing = {}  # threads that collect what they call → their works
    guards = None  # of _check.py: of the call that is being made

    # ---- how each of them runs ----

    def _run(self, opts, function, arguments, result=(), keep=None, finish=None, factor=1.0):
        """Calls a function of the library, with the group before the arguments and options after them. An asynchronous call
        returns a Work; a call that is complete returns None, because torch.distributed has nothing to wait for. result,
        keep, finish: as of a Work."""
        if opts.asyncOp:
            return self._run_beside(opts, function, arguments, (result, keep, finish), factor)
        shown = _profile.of_caller() if profiler._is_profiler_enabled else None
        communicator, me, work, label = self.communicator, get_ident(), None, here(2)
        try:
            options = _spare.pop()
        except IndexError:
            options = call_options(resumable=1)
        timeout, limit_ms = self._limit
        options.timeout_ms = limit_ms if opts.timeout == timeout else self._limit_ms(opts)
        options.label, options.factor = addresses[label], factor
        try:
            communicator.inside.append(me)
            status = function(communicator.handle, *arguments, options.where)
            if status == PENDING:  # handlers of signals run here
                work = Work(communicator, options, result, keep, finish, label)
                work.outlast()
            elif status != OK:
                raise communicator.error(status)
        except BaseException:
            if work is None and options.handle is not None:  # it goes on
                # No handler runs before this is stored: until then nothing is called.
                _going_on[options.request] = options, result, keep
                Work(communicator, options, result, keep, finish, label)
                del _going_on[options.request]
            raise
        finally:
            communicator.inside.remove(me)
            if communicator.ending is not None:
                communicator.left()
        if work is None:
            if finish is not None:
                bring(finish)
            _spare.append(options)
        if shown is not None:
            shown.end()

    def _goes_on(self, handle, tensors, label):
        """The Work of a sum that was begun in C."""
        options = call_options(resumable=1)
        options.handle = handle
        return Work(self.communicator, options, tensors, tensors[0], None, label)

    def _run_beside(self, opts, function, arguments, of_work, factor):
        shown = _profile.of_caller(3) if profiler._is_profiler_enabled else None
        options, label = call_options(), here(3)
        options.timeout_ms, options.label, options.factor = self._limit_ms(opts), addresses[label], factor
        work = Work(self.communicator, options, *of_work, label)
        if self.guards is not None:
            self.guards.watch(work)
        work.begin(function, *arguments, options.where)
        if self.communicator.kept is not None:
            self.communicator.kept.append(work)
        if self._coalescing:
            self._collect(work)
        if shown is not None:
            shown.end(work)
        return work

    def _limit_ms(self, opts):
        timeout, limit = opts.timeout, self._limit
        if timeout != limit[0]:  # hardly ever another one than before
            limit = self._limit = (timeout, milliseconds(timeout))
        return limit[1]

    def _reduction(self, opts, call):
        """(number of the operation, factor)"""
        op = opts.reduceOp
        if op == _SUM:
            return 0, 1.0
        number = _NUMBERS.get(op.op.value)
        if number is None:
            raise errors.Unsupported(f"{call}: no such reduction: {op}")
        if number != _PREMUL_SUM:
            return number, 1.0
        factor = op.factor
        return number, float(factor.item() if isinstance(factor, torch.Tensor) else factor)

    # ---- the same on all ranks ----

    def allreduce(self, tensors=None, opts=None, timeout=None, op=None, *, tensor=None):
        if opts.__class__ is not AllreduceOptions:
            opts = _short.options(AllreduceOptions, opts, timeout, op)
            tensors = _short.listed("allreduce", tensors, tensor)
        if _allreduce_in_c(self, tensors, opts):
            return None
        if len(tensors) != 1:
            return self.allreduce_coalesced(tensors, opts)
        tensor = tensors[0]
        number = _SUMMED.get(tensor.dtype)
        if (  # what it nearly always is, looked at in the shortest way
            number is not None
            and tensor.is_cpu
            and tensor.layout is _STRIDED
            and tensor.is_contiguous()
            and not tensor.is_neg()
            and opts.reduceOp == _SUM
        ):
            where, count = tensor.data_ptr(), tensor.numel()
            if where or not count:
                return self._run(opts, C.ls_allreduce, (where, where, count, number, _SUMS), tensors, tensor)
        if tensor.is_sparse:
            return _sparse.allreduce(self, tensor, opts)
        buffer = contiguous(tensor, "all_reduce")
        number, factor = self._reduction(opts, "all_reduce")
        where = buffer.data_ptr()
        arguments = where, where, buffer.numel(), reducible(tensor, "all_reduce", number), number
        finish = None if buffer is tensor else partial(copy_into, tensor, buffer)
        return self._run(opts, C.ls_allreduce, arguments, tensors, buffer, finish, factor)

    def allreduce_coalesced(self, tensors, opts=None):
        opts = opts or AllreduceCoalescedOptions()
        call = "all_reduce_coalesced"
        same_dtype(tensors, call)
        buffers = [contiguous(tensor, call) for tensor in tensors]
        number, factor = self._reduction(opts, call)
        if overlap(buffers):  # each gets the sum of what it was; a sum of sums would depend on their order
            buffers = [buffer.detach().clone() for buffer in buffers]
        many = (Buffers * len(buffers))(*[(b.data_ptr(), b.data_ptr(), b.numel()) for b in buffers])
        arguments = many, len(buffers), reducible(tensors[0], call, number), number
        finish = self._copies(tensors, buffers)
        return self._run(opts, C.ls_allreduce_many, arguments, tensors, buffers, finish, factor)

    def broadcast(self, tensors=None, opts=None, timeout=None, root=None, *, tensor=None):
        if opts.__class__ is not BroadcastOptions:
            opts = _short.options(BroadcastOptions, opts, timeout, root)
            tensors = _short.listed("broadcast", tensors, tensor)
        tensor = tensors[opts.rootTensor]
        buffer = contiguous(tensor, "broadcast")
        dtype, times = transfer_dtype(tensor)
        where = buffer.data_ptr()
        is_root = opts.rootRank == self.communicator.rank
        finish = None if buffer is tensor or is_root else partial(copy_into, tensor, buffer)
        arguments = where, where, buffer.numel() * times, dtype, opts.rootRank
        return self._run(opts, C.ls_broadcast, arguments, tensors, buffer, finish)

    def reduce(self, tensors=None, opts=None, op=None, timeout=None, root=None, *, tensor=None):
        if opts.__class__ is not ReduceOptions:
            opts = _short.options(ReduceOptions, opts, op, timeout, root)
            tensors = _short.listed("reduce", tensors, tensor)
        tensor = tensors[opts.rootTensor]
        buffer = contiguous(tensor, "reduce")
        number, factor = self._reduction(opts, "reduce")
        where = buffer.data_ptr()
        is_root = opts.rootRank == self.communicator.rank
        finish = partial(copy_into, tensor, buffer) if is_root and buffer is not tensor else None
        target, dtype = where if is_root else None, reducible(tensor, "reduce", number)
        arguments = where, target, buffer.numel(), dtype, number, opts.rootRank
        return self._run(opts, C.ls_reduce, arguments, tensors, buffer, finish, factor)

    def barrier(self, opts=None, timeout=None):
        if opts.__class__ is not BarrierOptions:
            opts = _short.options(BarrierOptions, opts, timeout)
        return self._run(opts, C.ls_barrier, ())

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """Every call reports which ranks are missing; this one has a time limit of its own, and the name of gloo's."""
        opts = BarrierOptions()
        if timeout is not None:
            opts.timeout = max(timeout, _SHORTEST)
        opts.asyncOp = False
        try:
            self.barrier(opts)
        except errors.TimedOut as error:
            text = f"Rank {self.communicator.rank} timed out in monitoredBarrier: {error.report}"
            raise errors.TimedOut(text, error.rank, error.operation) from None

    # ---- parts of ranks, one behind the other ----

    def all_gather_single(self, output, input, opts=None, timeout=None):
        if opts.__class__ is not AllgatherOptions:
            opts = _short.options(AllgatherOptions, opts, timeout)
        call = "all_gather_into_tensor"
        same_dtype([output, input], call)
        if output.numel() != input.numel() * self.communicator.size:
            raise errors.BadArgument(
                f"{call}: the output has {output.numel()} elements, and must have {self.communicator.size} times the "
                f"{input.numel()} of the input"
            )
        send, recv = contiguous(input, call), contiguous(output, call)
        if not are_apart(send, recv) and shares(send, [recv], self.communicator.rank):
            send = send.detach().clone()
        dtype, times = transfer_dtype(input)
        finish = None if recv is output else partial(copy_into, output, recv)
        arguments = send.data_ptr(), recv.data_ptr(), send.numel() * times, dtype
        return self._run(opts, C.ls_allgather, arguments, [output], (send, recv), finish)

    def reduce_scatter_single(self, outputTensor, inputTensor, opts=None, timeout=None, op=None):
        output, input = outputTensor, inputTensor
        if opts.__class__ is not ReduceScatterOptions:
            opts = _short.options(ReduceScatterOptions, opts, timeout, op)
        call = "reduce_scatter_tensor"
        same_dtype([output, input], call)
        if input.numel() != output.numel() * self.communicator.size:
            raise errors.BadArgument(
                f"{call}: the input has {input.numel()} elements, and must have {self.communicator.size} times the "
                f"{output.numel()} of the output"
            )
        send, recv = contiguous(input, call), contiguous(output, call)
        if not are_apart(send, recv) and shares(recv, [send], self.communicator.rank):
            recv = torch.empty_like(recv, device="cpu")
        number, factor = self._reduction(opts, call)
        finish = None if recv is output else partial(copy_into, output, recv)
        arguments = send.data_ptr(), recv.data_ptr(), recv.numel(), reducible(input, call, number), number
        return self._run(opts, C.ls_reduce_scatter, arguments, [output], (send, recv), finish, factor)

    def all_to_all_single(self, output, input, output_split_sizes=(), input_split_sizes=(), opts=None, timeout=None):
        """No rank knows whether all others have equal parts. So ranks must agree whether they give sizes: for those that
        give none, the exchange of equal parts is faster."""
        if opts.__class__ is not AllToAllOptions:
            opts = _short.options(AllToAllOptions, opts, timeout)
        call = "all_to_all_single"
        same_dtype([output, input], call)
        send, recv = contiguous(input, call), contiguous(output, call)
        if not are_apart(send, recv) and shared_elements(send, recv):
            send = self._apart(send, recv, call)
        dtype, times = transfer_dtype(input)
        output_split_sizes, input_split_sizes = _listed(output_split_sizes), _listed(input_split_sizes)
        if not output_split_sizes and not input_split_sizes and input.numel() == output.numel():
            parts = self._equal_parts(input, call)
            function, arguments = C.ls_alltoall, (send.data_ptr(), recv.data_ptr(), parts * times, dtype)
        else:
            given = array(self._splits(input, input_split_sizes, times, call))
            taken = array(self._splits(output, output_split_sizes, times, call))
            function, arguments = C.ls_alltoallv, (send.data_ptr(), given, recv.data_ptr(), taken, dtype)
        finish = None if recv is output else partial(copy_into, output, recv)
        return self._run(opts, function, arguments, [output], (send, recv), finish)

    def _apart(self, send, recv, call):
        """Gloo and NCCL give anything here; only a group of one has nothing to exchange."""
        if self.communicator.size == 1:
            return send.detach().clone()
        raise errors.BadArgument(
            f"{call}: output and input share memory ({send.numel()} and {recv.numel()} elements, of which "
            f"{shared_elements(send, recv)} are the same), so that parts would be overwritten before they are sent; "
            "give it an output of its own, or input.clone()"
        )

    def _equal_parts(self, tensor, call):
        size = self.communicator.size
        if tensor.dim() > 0 and tensor.size(0) % size != 0:
            raise errors.BadArgument(
                f"{call}: {tensor.size(0)} rows cannot be divided equally among {size} ranks; give split sizes"
            )
        return tensor.numel() // size

    def _splits(self, tensor, sizes, times, call):
        """Elements of each rank's part; `sizes` are rows."""
        if not sizes:
            return [self._equal_parts(tensor, call) * times] * self.communicator.size
        rows = tensor.size(0) if tensor.dim() > 0 else 1
        if len(sizes) != self.communicator.size or sum(sizes) != rows or min(sizes) < 0:
            raise errors.BadArgument(
                f"{call}: split sizes {list(sizes)} must be {self.communicator.size} numbers whose sum is {rows}"
            )
        row = tensor.numel() // rows * times if rows else 0
        return [size * row for size in sizes]

    # ---- several in one call ----

    @staticmethod
    def _copies(tensors, buffers):
        moved = [(tensor, buffer) for tensor, buffer in zip(tensors, buffers) if tensor is not buffer]
        if not moved:
            return None

        def finish():
            for tensor, buffer in moved:
                copy_into(tensor, buffer)

        return finish

    def _each(self, call, outputs, inputs, opts):
        if len(outputs) != len(inputs):
            raise errors.BadArgument(f"{call.__name__}: {len(inputs)} inputs and {len(outputs)} outputs")
        if call in (self.allgather, self.reduce_scatter):
            works = [call([o], [i], opts) for o, i in zip(outputs, inputs)]
        else:
            works = [call(o, i, opts) for o, i in zip(outputs, inputs)]
        return Several(works) if opts.asyncOp else None

    def allgather_coalesced(self, output_lists, input_list, opts=None):
        """output_lists[rank][i] = input_list[i] of that rank."""
        opts = opts or AllgatherOptions()
        return self._each(self.allgather, list(zip(*output_lists)), input_list, opts)

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        return self._each(self.all_gather_single, outputs, inputs, opts or AllgatherOptions())

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        return self._each(self.reduce_scatter_single, outputs, inputs, opts or ReduceScatterOptions())

    # ---- the names they had before ----

    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
