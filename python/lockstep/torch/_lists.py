# SPDX-License-Identifier: BSD-3-Clause
"""Collectives with a list of tensors, one for each rank. The library knows parts that lie one behind the other, so what
does not lie so is copied."""

import ctypes
from functools import partial

import torch
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllToAllOptions,
    GatherOptions,
    ReduceScatterOptions,
    ScatterOptions,
)

from lockstep import errors
from lockstep._library import C
from lockstep.torch import _short
from lockstep.torch._tensors import (
    contiguous,
    copy_into,
    lie_in_a_row,
    of_the_host,
    reducible,
    same_dtype,
    shares,
    transfer_dtype,
)


def array(counts):
    return (ctypes.c_uint64 * len(counts))(*counts)


def only(tensors, call):
    if len(tensors) != 1:
        raise errors.BadArgument(f"{call}: one tensor, not {len(tensors)}")
    return tensors[0]


class Lists:
    """Part of Collectives, which says how an operation runs."""

    communicator = None

    def _gathering(self, send, outputs, call):
        """What this rank gives, where parts of all ranks can be received, what has to live, and what brings them to
        `outputs`."""
        if len(outputs) != self.communicator.size:
            raise errors.BadArgument(
                f"{call}: {len(outputs)} tensors in the list, and {self.communicator.size} ranks in the group"
            )
        same_dtype(outputs, call)
        outputs = of_the_host(outputs, call)
        if lie_in_a_row(outputs):
            if shares(send, outputs, self.communicator.rank):
                send = send.detach().clone()
            return send, outputs[0].data_ptr(), outputs, None
        counts = [output.numel() for output in outputs]
        room = torch.empty(sum(counts), dtype=outputs[0].dtype, device="cpu")

        def finish():
            for output, part in zip(outputs, room.split(counts)):
                copy_into(output, part)

        return send, room.data_ptr(), room, finish

    def _scattering(self, inputs, recv, call):
        """What is given to all ranks, part by part, what has to live, and where this rank can receive its own."""
        if len(inputs) != self.communicator.size:
            raise errors.BadArgument(
                f"{call}: {len(inputs)} tensors in the list, and {self.communicator.size} ranks in the group"
            )
        same_dtype(inputs, call)
        inputs = of_the_host(inputs, call)
        if lie_in_a_row(inputs):
            if shares(recv, inputs, self.communicator.rank):
                recv = torch.empty_like(recv, device="cpu")
            return inputs[0].data_ptr(), inputs, recv
        joined = torch.cat([contiguous(tensor, call).detach().reshape(-1) for tensor in inputs])
        return joined.data_ptr(), joined, recv

    def allgather(self, output_tensors, input_tensors=None, opts=None, timeout=None, *, input_tensor=None):
        if opts.__class__ is not AllgatherOptions:
            opts = _short.options(AllgatherOptions, opts, timeout)
        outputs, inputs = output_tensors, _short.given("allgather", input_tensors, input_tensor, "input_tensors")
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        call = "all_gather"
        if len(inputs) != 1:
            return self._each(self.allgather, outputs, inputs, opts)
        input, outputs = inputs[0], only(outputs, call)
        send = contiguous(input, call)
        send, where, keep, finish = self._gathering(send, outputs, call)
        same_dtype([input, outputs[0]], call)
        dtype, times = transfer_dtype(input)
        counts = [output.numel() * times for output in outputs]
        if all(count == counts[0] for count in counts) and counts[0] == send.numel() * times:
            function, arguments = C.ls_allgather, (send.data_ptr(), where, counts[0], dtype)
        elif counts[self.communicator.rank] != send.numel() * times:
            raise errors.BadArgument(
                f"{call}: rank {self.communicator.rank} gives {send.numel()} elements, and its place in the list has "
                f"{outputs[self.communicator.rank].numel()}"
            )
        else:
            function, arguments = C.ls_allgatherv, (send.data_ptr(), where, array(counts), dtype)
        return self._run(opts, function, arguments, outputs, (send, keep), finish)

    def gather(self, output_tensors, input_tensors=None, opts=None, timeout=None, root=None, *, input_tensor=None):
        if opts.__class__ is not GatherOptions:
            opts = _short.options(GatherOptions, opts, timeout, root)
        outputs, inputs = output_tensors, _short.given("gather", input_tensors, input_tensor, "input_tensors")
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        call = "gather"
        input = only(inputs, call)
        send = contiguous(input, call)
        where, keep, finish = None, None, None
        is_root = opts.rootRank == self.communicator.rank
        if is_root:
            outputs = only(outputs, call)
            send, where, keep, finish = self._gathering(send, outputs, call)
            same_dtype([input, outputs[0]], call)
            for output in outputs:
                if output.numel() != input.numel():
                    raise errors.BadArgument(f"{call}: all tensors must have as many elements as the input")
        dtype, times = transfer_dtype(input)
        arguments = send.data_ptr(), where, send.numel() * times, dtype, opts.rootRank
        return self._run(opts, C.ls_gather, arguments, outputs if is_root else (), (send, keep), finish)

    def scatter(
        self, output_tensors=None, input_tensors=None, opts=None, timeout=None, root=None, *, output_tensor=None
    ):
        if opts.__class__ is not ScatterOptions:
            opts = _short.options(ScatterOptions, opts, timeout, root)
        outputs, inputs = _short.given("scatter", output_tensors, output_tensor, "output_tensors"), input_tensors
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        call = "scatter"
        output = only(outputs, call)
        recv = contiguous(output, call)
        where, keep = None, None
        if opts.rootRank == self.communicator.rank:
            inputs = only(inputs, call)
            where, keep, recv = self._scattering(inputs, recv, call)
            same_dtype([output, inputs[0]], call)
            for input in inputs:
                if output.numel() != input.numel():
                    raise errors.BadArgument(f"{call}: all tensors must have as many elements as the output")
        dtype, times = transfer_dtype(output)
        finish = None if recv is output else partial(copy_into, output, recv)
        arguments = where, recv.data_ptr(), recv.numel() * times, dtype, opts.rootRank
        return self._run(opts, C.ls_scatter, arguments, outputs, (recv, keep), finish)

    def reduce_scatter(
        self, output_tensors=None, input_tensors=None, opts=None, timeout=None, op=None, *, output=None, input=None
    ):
        if opts.__class__ is not ReduceScatterOptions:
            opts = _short.options(ReduceScatterOptions, opts, timeout, op)
        outputs = _short.given("reduce_scatter", output_tensors, output, "output_tensors")
        inputs = _short.given("reduce_scatter", input_tensors, input, "input_tensors")
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        call = "reduce_scatter"
        if len(outputs) != 1:
            return self._each(self.reduce_scatter, outputs, inputs, opts)
        output, inputs = outputs[0], only(inputs, call)
        recv = contiguous(output, call)
        where, keep, recv = self._scattering(inputs, recv, call)
        same_dtype([output, inputs[0]], call)
        number, factor = self._reduction(opts, call)
        counts = [input.numel() for input in inputs]
        if counts[self.communicator.rank] != output.numel():
            raise errors.BadArgument(
                f"{call}: the output has {output.numel()} elements, and the part of rank {self.communicator.rank} has "
                f"{counts[self.communicator.rank]}"
            )
        dtype = reducible(output, call, number)
        if all(count == counts[0] for count in counts):
            function, arguments = C.ls_reduce_scatter, (where, recv.data_ptr(), counts[0], dtype, number)
        else:
            function, arguments = C.ls_reduce_scatterv, (where, recv.data_ptr(), array(counts), dtype, number)
        finish = None if recv is output else partial(copy_into, output, recv)
        return self._run(opts, function, arguments, outputs, (recv, keep), finish, factor)

    def alltoall(self, output_tensors, input_tensors, opts=None):
        opts, outputs, inputs = opts or AllToAllOptions(), output_tensors, input_tensors
        call = "all_to_all"
        size = self.communicator.size
        if len(outputs) != size or len(inputs) != size:
            raise errors.BadArgument(f"{call}: lists of {len(inputs)} and {len(outputs)} tensors, and {size} ranks")
        same_dtype([*outputs, *inputs], call)
        outputs = of_the_host(outputs, call)
        dtype, times = transfer_dtype(inputs[0])
        send = torch.cat([contiguous(tensor, call).detach().reshape(-1) for tensor in inputs])
        counts = [output.numel() for output in outputs]
        recv = torch.empty(sum(counts), dtype=send.dtype, device="cpu")

        def finish():
            for output, part in zip(outputs, recv.split(counts)):
                copy_into(output, part)

        given = array([tensor.numel() * times for tensor in inputs])
        taken = array([count * times for count in counts])
        arguments = send.data_ptr(), given, recv.data_ptr(), taken, dtype
        return self._run(opts, C.ls_alltoallv, arguments, outputs, (send, recv), finish)
