# SPDX-License-Identifier: BSD-3-Clause
import os
import time

import torch
import torch.distributed as dist

import lockstep.torch

SECONDS = int(os.environ.get("SLOW_S", "2"))
dist.init_process_group("lockstep")
rank = dist.get_rank()

model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))


def load(images):
    if rank == 1:
        time.sleep(SECONDS / 2)  # they lie on a slow disk
    return torch.randn(len(images), 4)


for batch in torch.utils.data.DataLoader(range(4), collate_fn=load):
    model(batch).sum().backward()
dist.destroy_process_group()
