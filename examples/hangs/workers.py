# SPDX-License-Identifier: BSD-3-Clause
import torch
import torch.distributed as dist

import lockstep.torch

dist.init_process_group("lockstep")
rank = dist.get_rank()


class Shard(torch.utils.data.IterableDataset):
    def __iter__(self):
        dist.barrier()  # all have opened their files
        yield from torch.randn(4, 4)


for batch in torch.utils.data.DataLoader(Shard(), num_workers=1):
    dist.all_reduce(batch)
dist.destroy_process_group()
