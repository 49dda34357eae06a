# SPDX-License-Identifier: BSD-3-Clause
"""Layers spread over the ranks by torch.distributed.pipelining: two stages on each, interleaved 1F1B.

    torchrun --nproc-per-node 2 pipeline.py [BACKEND]
    lockstep run -n 2 python pipeline.py [BACKEND]

Each rank ends by comparing the gradients of its stages, and the last one the losses, with those of one process.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B

import lockstep.torch  # noqa: F401

WIDTH = 64
STAGES_PER_RANK = 2
MICROBATCHES = 8
ROWS = 4  # of a micro-batch


def make_layers(count):
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)) for _ in range(count)]


def loss_fn(output, target):
    return nn.functional.mse_loss(output, target)


def make_batch():
    generator = torch.Generator().manual_seed(1)
    shape = (MICROBATCHES * ROWS, WIDTH)
    return torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)


def run_pipeline(layers, rank, size, inputs, targets):
    """The losses of the micro-batches, on the rank that has the last stage."""
    device = torch.device("cpu")
    mine = range(rank, len(layers), size)
    stages = [PipelineStage(layers[index], index, len(layers), device) for index in mine]
    schedule = ScheduleInterleaved1F1B(stages, MICROBATCHES, loss_fn=loss_fn)
    losses = []
    arguments = (inputs,) if rank == 0 else ()
    if rank == size - 1:
        schedule.step(*arguments, target=targets, losses=losses)
    else:
        schedule.step(*arguments)
    return losses


def run_alone(count, inputs, targets):
    layers = make_layers(count)
    losses = []
    for part, target in zip(inputs.chunk(MICROBATCHES), targets.chunk(MICROBATCHES)):
        for layer in layers:
            part = layer(part)
        loss = loss_fn(part, target)
        (loss / MICROBATCHES).backward()
        losses.append(loss.detach())
    return layers, losses


def main():
    dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "lockstep")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    inputs, targets = make_batch()
    layers = make_layers(STAGES_PER_RANK * size)
    losses = run_pipeline(layers, rank, size, inputs, targets)

    alone, expected = run_alone(len(layers), inputs, targets)
    difference = 0.0
    for index in range(rank, len(layers), size):
        for mine, its in zip(layers[index].parameters(), alone[index].parameters()):
            difference = max(difference, (mine.grad - its.grad).abs().max().item())
    for mine, its in zip(losses, expected):
        difference = max(difference, abs(mine.item() - its.item()))
    worst = torch.tensor([difference])
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    if rank == size - 1:
        print(f"{len(layers)} stages on {size} ranks; losses {', '.join(f'{loss.item():.4f}' for loss in losses)}")
        print(f"largest difference to one process: {worst.item():.1e}")
    dist.destroy_process_group()
    sys.exit(worst.item() > 1e-5)


if __name__ == "__main__":
    main()
