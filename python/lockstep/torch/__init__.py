# SPDX-License-Identifier: BSD-3-Clause
"""The backend "lockstep" of torch.distributed.

    import lockstep.torch
    dist.init_process_group("lockstep")     # or "cpu:lockstep"

That is all that changes in a script. Where the package is installed the name alone does, see lockstep_autoload.
"""

import os

import lockstep_autoload
import torch
import typing_extensions

from lockstep import _sites
from lockstep.torch import _versions  # first, as it refuses what the others cannot be loaded with
from lockstep.torch import _coalescing, _collectives, _end, _functional, _graphs, _group, _p2p, _phases, _work
from lockstep.torch._mapped import MappedBuckets, mapped_buckets
from lockstep.torch._memory import empty, empty_like, full, ones, share, tensor, zeros
from lockstep.torch._phases import phase, phase_report
from lockstep.torch._recorder import dump_flight_recorder

__all__ = [
    "MappedBuckets",
    "ProcessGroup",
    "dump_flight_recorder",
    "empty",
    "empty_like",
    "full",
    "mapped_buckets",
    "ones",
    "phase",
    "phase_report",
    "process_group",
    "share",
    "tensor",
    "zeros",
]

ProcessGroup = _group.ProcessGroup
process_group = _group.process_group

_sites.skip(os.path.dirname(torch.__file__))
_sites.skip(typing_extensions.__file__)  # it wraps what PyTorch calls deprecated, such as all_gather_into_tensor
_DDP = "nn/parallel/distributed.py"
_sites.give_reason(_DDP, "_pre_forward", "for DDP's buckets")
_sites.give_reason(
    _DDP,
    "_sync_buffers",
    "for DDP's buffers",
    "DistributedDataParallel sends the buffers of the model, such as those of BatchNorm, in each forward of the\n"
    "wrapped model, also when it is only evaluated: call it on all ranks, or the unwrapped one, model.module, on one.",
)
lockstep_autoload.register()
_functional.register(lambda group: isinstance(group, ProcessGroup))
_coalescing.watch(lambda group: isinstance(group, ProcessGroup))
_works = (_work.Work, _p2p.Receive, _work.Several)
_graphs.keep_out(ProcessGroup, _collectives.Collectives, _collectives.Lists, _p2p.PointToPoint, *_works)
_graphs.end_graph(empty, empty_like, full, ones, share, tensor, zeros)
_graphs.end_graph(dump_flight_recorder, phase, phase.__wrapped__, phase_report, process_group)
_phases.watch()
_end.watch()
