# SPDX-License-Identifier: BSD-3-Clause
"""Phases of a training step by themselves: data, forward, backward, optimizer.

Whose models they are is learned from PyTorch's own hooks: DistributedDataParallel when it takes the module in, FSDP2
at the first collective in its forward pass, optimizers by their step hooks. From then on

    data       from the end of the optimizer's step (or of backward, or of an evaluation) to the next forward
    forward    from there to the first gradient of the output, so that the loss counts as forward
    backward   to the end of autograd's run
    optimizer  its step

so no time of a training loop is left out, and none counted twice.
"""

import contextlib
import dataclasses
import sys
import threading
import weakref
from collections.abc import Mapping

import torch
from torch.nn.modules import module as _modules
from torch.optim import optimizer as _optimizers

from lockstep._library import OK, C
from lockstep.torch import _graphs
from lockstep.torch._hints import EpochWatch

LOOKS = 16  # so many collectives of a group are looked at for a model of FSDP2 that has none yet

notices = weakref.WeakKeyDictionary()  # model → its last notice that this rank has not joined yet

_current = None  # (communicator, name, thread): the phase that has been begun here


def _end():
    global _current
    current, _current = _current, None
    if current is None or current[2] != threading.get_ident():
        return
    communicator, name, _ = current
    communicator.visit(C.ls_phase_end, name)


def _begin(communicator, name):
    """Ends the phase that this thread is in, and begins another one. Another thread's stays as it is."""
    global _current
    me = threading.get_ident()
    if _current is not None and _current[2] != me:
        return
    _end()
    if communicator.visit(C.ls_phase_begin, name) == OK:
        _current = (communicator, name, me)


class _Hook:
    """On a model, but no part of it: a copy has the same one, and a file has in its place what may be called with
    anything, does nothing, and is there without this package."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *arguments):
        return self.function(*arguments)

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return getattr, (contextlib.nullcontext(), "__exit__")


class _Watch:
    """What the hooks on one model do."""

    def __init__(self, model, communicator):
        self.communicator = communicator
        self.in_backward = False
        self.before = ()  # messages that were under way when the backward pass began
        self.begins_late = False  # in this pass DistributedDataParallel begins all buckets behind the gradients
        self.epochs = EpochWatch(silent=communicator.rank != 0)
        model.register_forward_pre_hook(_Hook(self._before_forward), prepend=True)
        model.register_forward_hook(_Hook(self._after_forward))

    def _before_forward(self, model, inputs):
        if self.in_backward and torch._C._current_graph_task_id() == -1:
            self.in_backward = self.communicator.awaits = False  # it has ended with an exception
        if model.training:
            self.epochs.look()
        self.communicator.kept = [] if tells_of_join(model) else None
        _begin(self.communicator, b"forward")

    def _after_forward(self, model, inputs, output):
        kept, self.communicator.kept = self.communicator.kept, None
        if kept:
            notices[model] = kept[0]
        enqueued = getattr(model, "_static_graph_delay_allreduce_enqueued", False)  # in its first pass
        self.begins_late = getattr(model, "static_graph", False) and not enqueued
        tensor = _first_with_gradient(output)
        if tensor is None:
            _begin(self.communicator, b"data")  # an evaluation
        else:
            tensor.register_hook(self._first_gradient)

    def _first_gradient(self, gradient):
        if not self.in_backward:
            self.in_backward, self.communicator.lost = True, None
            self.before = [work for work in list(self.communicator.pending.values()) if work.is_message]
            _begin(self.communicator, b"backward")
            torch.autograd.Variable._execution_engine.queue_callback(self._end_of_gradients)

    def _end_of_gradients(self):
        """DistributedDataParallel waits for its buckets in a callback that comes after this one, without Python. Waited
        for here, it is this thread that goes on with them, its wait is seen, and counted as one."""
        before, self.before = self.before, ()  # of the program's own, and perhaps over only after what it does next
        for work in list(self.communicator.pending.values()):
            if work.has_future() and work not in before:
                work.settle()
        error, self.communicator.lost = self.communicator.lost, None
        if error is not None:
            raise error.with_traceback(None)  # a future would tell its text alone
        self.communicator.awaits = self.begins_late  # and waits for them without Python
        torch.autograd.Variable._execution_engine.queue_callback(self._after_backward)

    def _after_backward(self):
        self.in_backward = self.communicator.awaits = False
        _begin(self.communicator, b"data")


def tells_of_join(model):
    """Whether each forward pass of the model begins with an all-reduce that counts the ranks with batches left. The reducer
    asks it for its result in the backward pass, and only the object that Python knows can answer."""
    config = getattr(model, "_join_config", None)
    return config is not None and config.enable and config.is_first_joinable


def _parts(output):
    """Of what DistributedDataParallel itself looks into, and of mappings: to look into anything else, such as an iterator,
    may use it up."""
    if isinstance(output, Mapping):
        return output.values()
    if dataclasses.is_dataclass(output) and not isinstance(output, type):
        return (getattr(output, field.name, None) for field in dataclasses.fields(output))
    return output if isinstance(output, (list, tuple)) else ()


def _first_with_gradient(output):
    """That was computed in this pass: a parameter that the model gives back would collect a hook with each of them."""
    if isinstance(output, torch.Tensor):
        return output if output.grad_fn is not None else None
    found = (_first_with_gradient(part) for part in _parts(output))
    return next((tensor for tensor in found if tensor is not None), None)


def _communicator_of(group):
    communicator = getattr(group, "communicator", None)
    return communicator if communicator is not None and communicator.handle is not None else None


# ---- models ----


def _registered(module, name, submodule):
    """Of each submodule that any module takes in: DistributedDataParallel takes in its model as `module`."""
    if name == "module" and isinstance(module, torch.nn.parallel.DistributedDataParallel):
        communicator = _communicator_of(getattr(module, "process_group", None))
        if communicator is None:
            from lockstep.torch._group import default_group

            communicator = _communicator_of(default_group())
        if communicator is not None:
            _Watch(module, communicator)


def look_for_model(group):
    """In a collective: whether it is part of the forward pass of a model of FSDP2 that is not watched yet. That is
    the outermost module on the stack which is one."""
    group.looks += 1
    kind = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", None)
    if group.looks > LOOKS or kind is None:
        group.looks = LOOKS
        return
    frame, root = sys._getframe(1), None
    while frame is not None:
        if frame.f_code.co_name == "_call_impl" and isinstance(frame.f_locals.get("self"), kind):
            root = frame.f_locals["self"]
        frame = frame.f_back
    if root is not None:
        group.looks = LOOKS
        watch = _Watch(root, group.communicator)
        watch._before_forward(root, ())


# ---- optimizers ----


def _before_step(optimizer, arguments, keywords):
    if _current is not None:
        _begin(_current[0], b"optimizer")


def _after_step(optimizer, arguments, keywords):
    if _current is not None and _current[1] == b"optimizer":
        _begin(_current[0], b"data")


# ---- what users call ----


@contextlib.contextmanager
def phase(name, group=None):
    """A phase of the program's own, such as "data/image": `with lockstep.torch.phase("data/image"): …`. The name of a
    phase inside another one begins with the outer name and a slash."""
    from lockstep.torch._group import default_group

    communicator = _communicator_of(group or default_group())
    begun = communicator is not None and communicator.visit(C.ls_phase_begin, name.encode()) == OK
    try:
        yield
    finally:
        if begun:
            communicator.visit(C.ls_phase_end, name.encode())


def phase_report(group=None):
    """Which ranks keep the others waiting, in which phase, and what that costs; then a table of all ranks and phases. Any
    rank may call it at any time; the others need not take part."""
    import ctypes

    from lockstep.torch._group import default_group

    communicator = _communicator_of(group or default_group())
    if communicator is None:
        return ""
    text = ctypes.create_string_buffer(1 << 16)
    status = communicator.visit(C.ls_phase_report, text, len(text))
    if status is None:  # another thread has destroyed the group just now
        return ""
    communicator.check(status)
    return text.value.decode(errors="replace")


def watch():
    _graphs.keep_out(_Hook, _Watch, functions=(_registered, _before_step, _after_step))
    _modules.register_module_module_registration_hook(_registered)
    _optimizers.register_optimizer_step_pre_hook(_before_step)
    _optimizers.register_optimizer_step_post_hook(_after_step)
