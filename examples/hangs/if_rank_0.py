# SPDX-License-Identifier: BSD-3-Clause
import torch
import torch.distributed as dist

import lockstep.torch

dist.init_process_group("lockstep")
rank = dist.get_rank()

loss = torch.tensor(0.5)
for step in range(10):
    if rank == 0 and step == 9:  # only rank 0 prints, so only rank 0 needs the average
        dist.all_reduce(loss)
        print(f"loss {loss.item() / dist.get_world_size()}")
dist.barrier()
