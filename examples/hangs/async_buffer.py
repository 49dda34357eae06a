# SPDX-License-Identifier: BSD-3-Clause
import torch
import torch.distributed as dist

import lockstep.torch

dist.init_process_group("lockstep")
rank = dist.get_rank()

gradient = torch.ones(8)
work = dist.all_reduce(gradient, async_op=True)
gradient /= dist.get_world_size()  # before wait()
work.wait()
