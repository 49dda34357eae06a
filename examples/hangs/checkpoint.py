# SPDX-License-Identifier: BSD-3-Clause
import os
import time

import torch.distributed as dist

import lockstep.torch

SECONDS = int(os.environ.get("SLOW_S", "2"))
dist.init_process_group("lockstep")
rank = dist.get_rank()


def save():
    time.sleep(SECONDS)  # a large model, a slow file system


if rank == 0:
    save()
dist.barrier()
dist.destroy_process_group()
