# SPDX-License-Identifier: BSD-3-Clause
"""The backend "lockstep" of torch.distributed.

    import lockstep.torch
    dist.init_process_group("lockstep")     # or "cpu:lockstep"

That is all that changes in a script.
"""

import os

import torch.distributed as dist

import torch
from lockstep import _sites
from lockstep.torch import _end, _functional, _group, _rendezvous

__all__ = ["ProcessGroup"]

ProcessGroup = _group.ProcessGroup

_sites.skip_folder(os.path.dirname(torch.__file__))
_DDP = "nn/parallel/distributed.py"
_sites.give_reason(_DDP, "_pre_forward", "for DDP's buckets")
_sites.give_reason(
    _DDP,
    "_sync_buffers",
    "for DDP's buffers",
    "DistributedDataParallel sends the buffers of the model, such as those of BatchNorm, in each forward of the\n"
    "wrapped model, also when it is only evaluated: call it on all ranks, or the unwrapped one, model.module, on one.",
)
if "lockstep" not in dist.Backend.backend_list:
    dist.Backend.register_backend("lockstep", _group.create, extended_api=True, devices=["cpu"])
    _functional.register(lambda group: isinstance(group, ProcessGroup))
    _rendezvous.register()
    _end.watch()
