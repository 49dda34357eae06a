# SPDX-License-Identifier: BSD-3-Clause
"""A transformer whose parameters, gradients and optimizer states are spread over the ranks by fully_shard (FSDP2).

    torchrun --nproc-per-node 2 fsdp2.py [BACKEND]
    lockstep run -n 2 python fsdp2.py [BACKEND]

Each rank ends by comparing the losses and all parameters with those of one process that took the same steps.
"""

import sys

import torch
import torch.distributed as dist
from gpt import GPT, Text
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import lockstep.torch  # noqa: F401

STEPS = 5
BATCH = 4  # of each rank
CONTEXT = 32


def make_model(text):
    torch.manual_seed(0)
    return GPT(len(text.characters), width=96, layers=2, context=CONTEXT)


def shard(model, mesh):
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def train(model, batches):
    """The losses of all steps. Each batch is a list of parts, whose gradients are averaged."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for parts in batches:
        optimizer.zero_grad()
        loss = torch.zeros(())
        for inputs, targets in parts:
            part = model(inputs, targets) / len(parts)
            part.backward()
            loss += part.detach()
        optimizer.step()
        losses.append(loss)
    return torch.stack(losses)


def main():
    dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "lockstep")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    text = Text()
    batches = [[text.batch(step, part * BATCH, BATCH, CONTEXT) for part in range(size)] for step in range(STEPS)]

    model = make_model(text)
    shard(model, init_device_mesh("cpu", (size,)))
    losses = train(model, [[parts[rank]] for parts in batches])
    dist.all_reduce(losses)
    losses /= size

    alone = make_model(text)
    expected = train(alone, batches)
    difference = (losses - expected).abs().max().item()
    for sharded, whole in zip(model.parameters(), alone.parameters()):
        difference = max(difference, (sharded.full_tensor() - whole).abs().max().item())
    if rank == 0:
        mine = sum(parameter.to_local().numel() for parameter in model.parameters())
        every = sum(parameter.numel() for parameter in alone.parameters())
        print(f"rank 0 holds {mine:,} of {every:,} parameters; losses {', '.join(f'{x:.4f}' for x in losses.tolist())}")
        print(f"largest difference to one process: {difference:.1e}")
    dist.destroy_process_group()
    sys.exit(difference > 1e-4)


if __name__ == "__main__":
    main()
