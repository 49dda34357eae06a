# SPDX-License-Identifier: BSD-3-Clause
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

import lockstep.torch

dist.init_process_group("lockstep")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))

data = torch.randn(16, 4)
loader = DataLoader(data, sampler=DistributedSampler(data, shuffle=True))
for epoch in range(3):
    for batch in loader:
        model(batch).sum().backward()
dist.destroy_process_group()
