# SPDX-License-Identifier: BSD-3-Clause
import torch
import torch.distributed as dist

import lockstep.torch

dist.init_process_group("lockstep")
rank = dist.get_rank()

for batch in torch.randn(8 - rank, 4).split(2):  # the last batch of rank 1 is smaller
    outputs = [torch.empty_like(batch) for _ in range(dist.get_world_size())]
    dist.all_gather(outputs, batch)
