# SPDX-License-Identifier: BSD-3-Clause
"""Handwritten digits with Hugging Face's accelerate: the process group is made before the Accelerator, which takes the one
that is there, and by itself knows only gloo on the CPU.

    torchrun --nproc-per-node 2 accelerate_digits.py [BACKEND]
    lockstep run -n 2 python accelerate_digits.py [BACKEND]

Each rank ends by comparing its parameters with those of one process that took the same steps.
"""

import sys

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Subset
from usual_ddp import load_data, make_model

import lockstep.torch  # noqa: F401

EPOCHS = 2
BATCH = 32  # of each rank
STEPS = 20  # of an epoch


def train(size, backward, model, optimizer, loader):
    """Each step takes `size` batches of the loader, whose gradients are averaged."""
    loss_fn = nn.CrossEntropyLoss()
    for _ in range(EPOCHS):
        for number, (images, labels) in enumerate(loader):
            loss = loss_fn(model(images), labels) / size
            backward(loss)
            if (number + 1) % size == 0:
                optimizer.step()
                optimizer.zero_grad()


def main():
    dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "lockstep")
    accelerator = Accelerator(cpu=True)
    size = accelerator.num_processes
    torch.set_num_threads(1)
    digits = Subset(load_data(), range(STEPS * size * BATCH))
    loader = DataLoader(digits, batch_size=BATCH)

    model, optimizer_of = make_model()
    prepared = accelerator.prepare(model, optimizer_of(model.parameters()), loader)  # a rank gets every size-th batch
    train(1, accelerator.backward, *prepared)
    with torch.no_grad():
        found = [(prepared[0](images).argmax(1) == labels).float() for images, labels in prepared[2]]
    found = accelerator.gather_for_metrics(torch.cat(found))

    alone, optimizer_of = make_model()
    train(size, torch.Tensor.backward, alone, optimizer_of(alone.parameters()), loader)
    pairs = zip(accelerator.unwrap_model(prepared[0]).parameters(), alone.parameters())
    difference = max((one - other).abs().max().item() for one, other in pairs)
    accelerator.print(f"{dist.get_backend()}, {size} ranks: {found.mean().item():.4f} of {len(found)} digits recognised")
    accelerator.print(f"largest difference to one process: {difference:.1e}")
    # A thread of gloo may still wait for the interpreter, to drop the tensors of its last operation; destroying the group
    # then waits for that thread for ever, with the interpreter held. In a barrier it is not held, so that is rarer.
    dist.barrier()
    dist.destroy_process_group()
    sys.exit(difference > 1e-4)


if __name__ == "__main__":
    main()
