# SPDX-License-Identifier: BSD-3-Clause
"""Messages of tensors: send and receive, also from any source."""

import ctypes
from functools import partial

from torch.autograd import profiler

from lockstep._library import ANY, C, OK, OP_OPTIONS_BYTES, Message, OpOptions
from lockstep._sites import addresses, here
from lockstep.torch import _profile
from lockstep.torch._tensors import copy_into, movable, plain
from lockstep.torch._work import Work


class Receive(Work):
    """Knows whom it has met."""

    def _source_rank(self):
        self.wait()
        return self._message.source

    source_rank = _source_rank


class Points:
    """The part of a ProcessGroup that two of its ranks call. None of it waits for anything else of the group."""

    communicator = None

    def _begin(self, function, buffer, peer, options):
        """The handle of a message of the buffer's elements."""
        dtype, times = movable(buffer)
        op = ctypes.c_void_p()
        status = function(
            self.communicator.handle,
            buffer.data_ptr(),
            buffer.numel() * times,
            dtype,
            peer,
            ctypes.byref(options),
            ctypes.byref(op),
        )
        if status != OK:
            raise self.communicator.error(status)
        return op.value

    def send(self, tensors, dst, tag=0):
        (tensor,) = tensors
        buffer = plain(tensor, "send")
        shown = _profile.Range("send") if profiler._is_profiler_enabled else None
        label = here()
        options = OpOptions(size=OP_OPTIONS_BYTES, tag=tag, label=addresses[label])
        op = self._begin(C.ls_isend, buffer, dst, options)
        work = Work(self.communicator, op, tensors, buffer, None, label)
        if shown is not None:
            shown.end(work)
        return work

    def recv(self, tensors, src, tag=0):
        (tensor,) = tensors
        buffer = plain(tensor, "recv")
        shown = _profile.Range("recv") if profiler._is_profiler_enabled else None
        message = Message(size=ctypes.sizeof(Message))
        label = here()
        options = OpOptions(size=OP_OPTIONS_BYTES, tag=tag, label=addresses[label], message=ctypes.addressof(message))
        op = self._begin(C.ls_irecv, buffer, src, options)
        finish = None if buffer is tensor else partial(copy_into, tensor, buffer)
        work = Receive(self.communicator, op, tensors, (buffer, message), finish, label)
        work._message = message
        if shown is not None:
            shown.end(work)
        return work

    def recv_anysource(self, tensors, tag=0):
        return self.recv(tensors, ANY, tag)
