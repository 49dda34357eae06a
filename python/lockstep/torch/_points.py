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
from lockstep.torch._meeting import OWN_TAGS
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

    def _begin(self, function, work, options, buffer, peer, tag):
        """A message of the buffer's elements."""
        if not 0 <= tag < OWN_TAGS:
            raise errors.BadArgument(f"tag {tag}: tags are numbers from 0 to {OWN_TAGS - 1}")
        dtype, times = movable(buffer)
        return work.begin(function, buffer.data_ptr(), buffer.numel() * times, dtype, peer, options.where)

    def send(self, tensors, dst, tag=0):
        tensor = only(tensors, "send")
        buffer = plain(tensor, "send")
        shown = _profile.Range("send") if profiler._is_profiler_enabled else None
        options, label = call_options(), here()
        options.tag, options.label = tag, addresses[label]
        work = Work(self.communicator, options, tensors, buffer, None, label)
        self._begin(C.ls_send, work, options, buffer, dst, tag)
        if shown is not None:
            shown.end(work)
        return work

    def recv(self, tensors, src, tag=0):
        tensor = only(tensors, "recv")
        buffer = plain(tensor, "recv")
        shown = _profile.Range("recv") if profiler._is_profiler_enabled else None
        message = Message(size=ctypes.sizeof(Message))
        options, label = call_options(), here()
        options.tag, options.label, options.message = tag, addresses[label], ctypes.addressof(message)
        finish = None if buffer is tensor else partial(copy_into, tensor, buffer)
        work = Receive(self.communicator, options, tensors, (buffer, message), finish, label)
        work._message = message
        self._begin(C.ls_recv, work, options, buffer, src, tag)
        if shown is not None:
            shown.end(work)
        return work

    def recv_anysource(self, tensors, tag=0):
        return self.recv(tensors, ANY, tag)
