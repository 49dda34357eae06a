# SPDX-License-Identifier: BSD-3-Clause
import torch
import torch.distributed as dist

import lockstep.torch

dist.init_process_group("lockstep")
rank = dist.get_rank()

for step in range(10):
    try:
        if rank == 1 and step == 3:
            raise RuntimeError("out of memory")
        dist.all_reduce(torch.ones(1000))
    except RuntimeError:
        failed = torch.ones(1)
        dist.all_reduce(failed)  # to tell the others
