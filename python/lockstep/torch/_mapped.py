# SPDX-License-Identifier: BSD-3-Clause
"""DistributedDataParallel with buckets that the other ranks reach without a copy: the hook mapped_buckets, and
LOCKSTEP_DDP=mapped, which registers it for a script that says nothing.

A hook of the script's own comes after the constructor, and PyTorch takes one hook for each reducer. So what is registered
in the constructor calls the script's hook as soon as there is one, and numbers are those of that hook then.
"""

import functools
import inspect
import os
import sys
import weakref

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from lockstep.torch import _graphs, _phases
from lockstep.torch._memory import share

_SHARED_IN = (2, 3)  # passes: after the first one, or with static_graph the second, the reducer makes its buckets anew
_HALVED_EXACTLY = (torch.float32, torch.float64)  # by a power of two, before a sum or after it
# As in src/base/messages.h.
_TOLD = (
    "gradients of DistributedDataParallel are views of buckets that the other ranks reach; "
    "a backward pass overwrites gradients that the program has kept: clone them"
)

_states = weakref.WeakKeyDictionary()  # reducer → the state of its hook
_told = False


class MappedBuckets:
    """State of the hook mapped_buckets, for one model:
    `ddp.register_comm_hook(lockstep.torch.MappedBuckets(), lockstep.torch.mapped_buckets)`.

    group  of the model; None: the default group
    """

    def __init__(self, group=None):
        self.group = group
        self.passes = 0  # the same on all ranks, also on a rank that has joined and contributes zeros

    def joined(self):
        """By how many ranks an average divides: those that have not joined. None: by all ranks."""
        return None


def mapped_buckets(state, bucket):
    """A communication hook of DistributedDataParallel that averages gradients as it does itself, in buckets that the
    other ranks reach without a copy. With gradient_as_bucket_view=True gradients are views of them."""
    from lockstep.torch._group import default_group

    group, buffer = state.group or default_group(), bucket.buffer()
    if bucket.index() == 0:
        state.passes += 1
    if state.passes in _SHARED_IN:
        share(buffer, group)
    size, ranks, options = group.size(), state.joined(), dist.AllreduceOptions()
    if ranks is None and size & (size - 1) == 0 and buffer.dtype in _HALVED_EXACTLY:
        options.reduceOp = dist.ReduceOp.AVG  # scales each sum once
    else:
        options.reduceOp = dist._make_nccl_premul_sum(1.0 / (ranks or size))
    return group.allreduce([buffer], options).get_future().then(lambda future: future.value()[0])


# ---- LOCKSTEP_DDP=mapped ----


class _OfModel(MappedBuckets):
    def __init__(self, model):
        super().__init__(model.process_group)
        self.model = weakref.ref(model)
        self.theirs = None  # the script's hook, and its state

    def joined(self):
        model = self.model()
        if not _phases.tells_of_join(model) or model._divide_by_initial_world_size:
            return None
        notice = _phases.notices.get(model)
        if notice is None:
            return self.group.size()  # it has joined before its first step, and gives zeros
        notice.wait()
        return int(notice.result()[0].item())


def _hook(state, bucket):
    if state.theirs is None:
        return mapped_buckets(state, bucket)
    hook, own = state.theirs
    return hook(own, bucket)


_graphs.keep_out(MappedBuckets, _OfModel, functions=(mapped_buckets, _hook))


def wanted():
    """Whether the setting says mapped. The library has refused any value but plain and mapped."""
    return os.environ.get("LOCKSTEP_DDP", "").lower() == "mapped"


def _may_map(given):
    """Whether all of its gradients are in memory of the CPU, and in buckets that a hook gets."""
    from lockstep.torch._group import ProcessGroup

    if any(given.get(name) for name in ("mixed_precision", "delay_all_reduce_named_params", "batched_grad_copy")):
        return False
    module, mesh = given["module"], given.get("device_mesh")
    group = mesh.get_group(mesh_dim=0) if mesh is not None else given.get("process_group") or dist.GroupMember.WORLD
    if not isinstance(group, ProcessGroup) or torch._dynamo.utils.get_optimize_ddp_mode() == "python_reducer":
        return False
    if any(getattr(part, "sparse", False) for part in module.modules()):
        return False
    return all(parameter.is_cpu and parameter.layout is torch.strided for parameter in module.parameters())


def _tell(rank):
    global _told
    if not _told and rank == 0 and os.environ.get("LOCKSTEP_LOG") in ("info", "debug"):
        print(f"lockstep: {_TOLD} [LS-DDP-MAPPED]", file=sys.stderr, flush=True)
    _told = True


def _made(plain, signature):
    @functools.wraps(plain)
    def init(self, *arguments, **keywords):
        given = signature.bind(self, *arguments, **keywords)
        maps = wanted() and _may_map(given.arguments)
        if maps:
            given.arguments.setdefault("gradient_as_bucket_view", True)
        plain(*given.args, **given.kwargs)
        if maps:
            state = _states[self.reducer] = _OfModel(self)
            dist._register_comm_hook(self.reducer, state, _hook)
            _tell(dist.get_rank())

    return init


def _registered(plain):
    @functools.wraps(plain)
    def register_comm_hook(self, state, hook):
        ours = _states.get(getattr(self, "reducer", None))
        if ours is None or ours.theirs is not None:
            return plain(self, state, hook)  # which refuses a second one
        self._check_comm_hook(hook)
        self.logger._set_comm_hook_name(hook.__qualname__)
        self._comm_hooks.append((hook, state))
        ours.theirs = hook, state

    return register_comm_hook


def watch():
    """Call it before there is a model: the first group does."""
    if wanted() and not hasattr(DDP.__init__, "__wrapped__"):
        DDP.__init__ = _made(DDP.__init__, inspect.signature(DDP.__init__))
        DDP.register_comm_hook = _registered(DDP.register_comm_hook)
