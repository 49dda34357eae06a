# SPDX-License-Identifier: BSD-3-Clause
import torch
import torch.distributed as dist

import lockstep.torch

dist.init_process_group("lockstep")
rank = dist.get_rank()

tensor_parallel, data_parallel = dist.new_group(), dist.new_group()
groups = [tensor_parallel, data_parallel]
if rank == 1:
    groups.reverse()
for group in groups:
    dist.all_reduce(torch.ones(4), group=group)
