# SPDX-License-Identifier: BSD-3-Clause
"""torch_forever.py BACKEND: a rank of torchrun that all-reduces until it is interrupted. Rank 0 says when it begins."""

import sys

import torch
import torch.distributed as dist

if sys.argv[1] == "lockstep":
    import lockstep.torch  # noqa: F401  registers the backend

dist.init_process_group(sys.argv[1])
tensor = torch.ones(1000)
dist.barrier()
if dist.get_rank() == 0:
    print("begun", flush=True)
while True:
    dist.all_reduce(tensor)
    tensor.fill_(1)
