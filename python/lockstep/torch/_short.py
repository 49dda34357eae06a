# SPDX-License-Identifier: BSD-3-Clause
"""The short forms of ProcessGroup's methods: group.allreduce(tensor, op), group.broadcast(tensor, root), …"""

from datetime import timedelta

import torch
from torch._C._distributed_c10d import ReduceOp

_OPS = (ReduceOp, ReduceOp.RedOpType)


def options(kind, opts, *given):
    """opts, if it is of this kind or a subclass; otherwise new options. given: values for them, and opts, too, if it is not
    an options object: an operation, a root, a time limit, or None."""
    if not isinstance(opts, kind):
        opts, given = kind(), (opts, *given)
    for one in given:
        if isinstance(one, _OPS):
            opts.reduceOp = one
        elif isinstance(one, timedelta):
            opts.timeout = one
        elif one is not None:
            opts.rootRank = one
    return opts


def given(call, several, single, names):
    """What the caller has given under one of two names, as PyTorch has them for a list and for a tensor."""
    if several is None and single is None:
        raise TypeError(f"{call}() is called without {names}")
    return several if single is None else single


def listed(call, tensors, tensor):
    """A tensor stands for a list of it."""
    tensors = given(call, tensors, tensor, "tensors, or a tensor")
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors
