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


def listed(tensors):
    """A tensor stands for a list of it."""
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors
