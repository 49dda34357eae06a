# SPDX-License-Identifier: BSD-3-Clause
import torch
import torch.distributed as dist

import lockstep.torch

dist.init_process_group("lockstep")
rank = dist.get_rank()

mine, theirs = torch.ones(1_000_000), torch.empty(1_000_000)
dist.send(mine, 1 - rank)
dist.recv(theirs, 1 - rank)
