# SPDX-License-Identifier: BSD-3-Clause
"""Messages of tensors: send and receive, also from any source."""

import ctypes
from functools import partial

from torch.autograd import profiler

from lockstep import errors
from lockstep._library import ANY, C, Message, call_options
from lockstep._sites import addresses, here
from lockstep.torch import _profile
from lockstep.torch._lists import only
from lockstep.torch._store_rendezvous import OWN_TAGS
from lockstep.torch._tensors import contiguous, copy_into, transfer_dtype
from lockstep.torch._work import Work


class Receive(Work):
    """Knows the source of its message."""

    def _source_rank(self):
        self.wait()
        return self.message.source

    source_rank = _source_rank


class PointToPoint:
    """The part of a ProcessGroup that two of its ranks call. None of it waits for anything else of the group."""

    communicator = None
    _coalescing, guards = {}, None  # as of Collectives

    def _begin(self, function, call, tensors, peer, tag, message=None):
        """message: for a receive, the struct that the library fills with the envelope."""
        tensor = only(tensors, call)
        if not 0 <= tag < OWN_TAGS:
            raise errors.BadArgument(f"tag {tag}: tags are numbers from 0 to {OWN_TAGS - 1}")
        buffer = contiguous(tensor, call)
        dtype, times = transfer_dtype(buffer)
        shown = _profile.Range(call) if profiler._is_profiler_enabled else None
        options, label = call_options(), here(2)
        options.tag, options.label = tag, addresses[label]
        kind, finish = Work, None
        if message is not None:
            options.message, kind = ctypes.addressof(message), Receive
            finish = None if buffer is tensor else partial(copy_into, tensor, buffer)
        work = kind(self.communicator, options, tensors, (buffer, message), finish, label)
        work.is_message, work.message = True, message
        if self.guards is not None:
            self.guards.watch(work)
        work.begin(function, buffer.data_ptr(), buffer.numel() * times, dtype, peer, options.where)
        if shown is not None:
            shown.end(work)
        if self._coalescing:
            self._collect(work)
        return work

    def send(self, tensors, dstRank, tag=0):
        return self._begin(C.ls_send, "send", tensors, dstRank, tag)

    def recv(self, tensors, srcRank, tag=0):
        return self._begin(C.ls_recv, "recv", tensors, srcRank, tag, Message(size=ctypes.sizeof(Message)))

    def recv_anysource(self, tensors, tag=0):
        return self.recv(tensors, ANY, tag)
