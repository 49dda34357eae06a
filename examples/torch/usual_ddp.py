# SPDX-License-Identifier: BSD-3-Clause
"""The usual script with DistributedDataParallel: only the import and the backend's name are Lockstep's.

    python usual_ddp.py [BACKEND] [RANKS]

It learns handwritten digits, and ends by comparing its parameters with those of one process that took the same steps.
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import lockstep.torch  # noqa: F401

DIGITS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "digits.csv")
EPOCHS = 3
BATCH = 32


def load_data():
    with open(DIGITS, encoding="ascii") as file:
        rows = torch.tensor([[float(number) for number in line.split(",")] for line in file if line[0].isdigit()])
    return TensorDataset(rows[:, :64] / 16, rows[:, 64].long())


def make_model():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    return model, lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def setup(rank, world_size, backend):
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", "12355")
    dist.init_process_group(backend, rank=rank, world_size=world_size)


def train(rank, world_size, backend, checkpoint):
    setup(rank, world_size, backend)
    torch.set_num_threads(1)
    dataset = load_data()
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler)
    model, optimizer_of = make_model()
    ddp_model = DDP(model)
    optimizer = optimizer_of(ddp_model.parameters())
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = loss_fn(ddp_model(images), labels)
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch + 1}  loss of the last batch {loss.item():.4f}", flush=True)

    if rank == 0:
        torch.save(ddp_model.state_dict(), checkpoint)
    dist.barrier()  # nobody loads what is not yet written
    ddp_model.load_state_dict(torch.load(checkpoint, map_location="cpu", weights_only=True))
    dist.destroy_process_group()


def train_alone(world_size):
    """The same steps in one process: each of its batches is those of all ranks."""
    dataset = load_data()
    model, optimizer_of = make_model()
    optimizer = optimizer_of(model.parameters())
    loss_fn = nn.CrossEntropyLoss()
    samplers = [DistributedSampler(dataset, world_size, rank) for rank in range(world_size)]
    for epoch in range(EPOCHS):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        loaders = [DataLoader(dataset, batch_size=BATCH, sampler=sampler) for sampler in samplers]
        for parts in zip(*loaders):
            optimizer.zero_grad()
            for images, labels in parts:
                (loss_fn(model(images), labels) / world_size).backward()
            optimizer.step()
    return model


def main():
    backend = sys.argv[1] if len(sys.argv) > 1 else "lockstep"
    world_size = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = os.path.join(folder, "model.pt")
        mp.spawn(train, args=(world_size, backend, checkpoint), nprocs=world_size)
        trained = torch.load(checkpoint, weights_only=True)
    alone = train_alone(world_size).state_dict()
    difference = max((trained[f"module.{name}"] - alone[name]).abs().max().item() for name in alone)
    print(f"largest difference to one process: {difference:.1e}")
    sys.exit(difference > 1e-4)


if __name__ == "__main__":
    main()
