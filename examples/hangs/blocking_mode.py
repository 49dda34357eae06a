# SPDX-License-Identifier: BSD-3-Clause
import torch
import torch.distributed as dist

import lockstep.torch

dist.init_process_group("lockstep")
rank = dist.get_rank()

groups = [dist.new_group(), dist.new_group()]
if rank == 1:
    groups.reverse()
works = []
for group in groups:
    works.append(dist.all_reduce(torch.ones(4), group=group, async_op=True))
for work in works:
    work.wait()
dist.destroy_process_group()
