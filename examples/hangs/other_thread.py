# SPDX-License-Identifier: BSD-3-Clause
import threading

import torch
import torch.distributed as dist

import lockstep.torch

dist.init_process_group("lockstep")
rank = dist.get_rank()

gradient = torch.ones(1_000_000)
clip = threading.Thread(target=lambda: gradient.clamp_(max=0.5))  # as a custom operation on a stream of its own
clip.start()
dist.all_reduce(gradient)  # without clip.join()
clip.join()
dist.destroy_process_group()
