# SPDX-License-Identifier: BSD-3-Clause
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import lockstep.torch

dist.init_process_group("lockstep")
rank = dist.get_rank()

model = DistributedDataParallel(torch.nn.Linear(4, 1))
samples = torch.randn(9, 4)[rank :: dist.get_world_size()]  # 5 on rank 0, 4 on rank 1
for batch in torch.utils.data.DataLoader(samples):
    model(batch).sum().backward()
dist.destroy_process_group()
