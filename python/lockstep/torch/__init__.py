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
from lockstep.torch import _end, _functional, _group
from lockstep.torch._recorder import dump_flight_recorder

__all__ = ["ProcessGroup", "dump_flight_recorder"]

ProcessGroup = _group.ProcessGroup

_sites.skip_folder(os.path.dirname(torch.__file__))
if "lockstep" not in dist.Backend.backend_list:
    dist.Backend.register_backend("lockstep", _group.create, extended_api=True, devices=["cpu"])
    _functional.register(lambda group: isinstance(group, ProcessGroup))
    _end.watch()
