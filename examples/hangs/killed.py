# SPDX-License-Identifier: BSD-3-Clause
import os
import signal

import torch
import torch.distributed as dist

import lockstep.torch

dist.init_process_group("lockstep")
rank = dist.get_rank()

for step in range(10):
    if rank == 1 and step == 3:
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory runs out
    dist.all_reduce(torch.ones(4))
