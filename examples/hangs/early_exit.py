# SPDX-License-Identifier: BSD-3-Clause
import sys

import torch
import torch.distributed as dist

import lockstep.torch

dist.init_process_group("lockstep")
rank = dist.get_rank()

for step in range(10):
    loss = torch.tensor(float("nan") if rank == 1 and step == 3 else 0.5)
    if loss.isnan():
        sys.exit("the loss is not a number")
    dist.all_reduce(loss)
