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
from lockstep.torch import _end, _functional, _group, _phases
from lockstep.torch._memory import MappedBuckets, empty, empty_like, full, mapped_buckets, ones, share, tensor, zeros
from lockstep.torch._phases import phase, phase_report

__all__ = [
    "MappedBuckets",
    "ProcessGroup",
    "empty",
    "empty_like",
    "full",
    "mapped_buckets",
    "ones",
    "phase",
    "phase_report",
    "share",
    "tensor",
    "zeros",
]

ProcessGroup = _group.ProcessGroup

_sites.skip_folder(os.path.dirname(torch.__file__))
if "lockstep" not in dist.Backend.backend_list:
    dist.Backend.register_backend("lockstep", _group.create, extended_api=True, devices=["cpu"])
    _functional.register(lambda group: isinstance(group, ProcessGroup))
    _phases.watch()
    _end.watch()
