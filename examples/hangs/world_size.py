# SPDX-License-Identifier: BSD-3-Clause
import os
from datetime import timedelta

import torch.distributed as dist

import lockstep.torch

rank, limit = int(os.environ["RANK"]), timedelta(seconds=int(os.environ.get("SLOW_S", "8")))
dist.init_process_group("lockstep", rank=rank, world_size=3, timeout=limit)  # 2 were started
