# SPDX-License-Identifier: BSD-3-Clause
import torch
import torch.distributed as dist

import lockstep.torch

dist.init_process_group("lockstep")
rank = dist.get_rank()


def evaluate(samples):
    if not samples:
        return  # nothing to evaluate here
    print(f"accuracy {sum(samples) / len(samples)}")
    dist.barrier()


evaluate([1, 0, 1] if rank == 0 else [])
dist.all_reduce(torch.ones(4))  # the next step
