# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of training share: a small model, its data, and a loop whose results can be compared."""

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 16
STEPS = 3


class Model(nn.Module):
    """With a branch that can be left out, a parameter that nothing uses, and a buffer."""

    def __init__(self, skips=False, depth=2):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(depth))
        self.branch = nn.Linear(WIDTH, WIDTH) if skips else None
        self.norm = nn.BatchNorm1d(WIDTH)
        self.last = nn.Linear(WIDTH, 4)

    def forward(self, x, use_branch=True):
        for layer in self.layers:
            x = torch.relu(layer(x))
        if self.branch is not None and use_branch:
            x = x + self.branch(x)
        return self.last(self.norm(x))


def seeded(make, *args, **options):
    """The same model on all ranks."""
    torch.manual_seed(7)
    return make(*args, **options)


def batch(step, rank=None, count=8):
    generator = torch.Generator().manual_seed(1000 * step + (dist.get_rank() if rank is None else rank))
    return torch.randn(count, WIDTH, generator=generator), torch.randint(0, 4, (count,), generator=generator)


def loss_of(model, step, **options):
    x, y = batch(step)
    return nn.functional.cross_entropy(model(x, **options), y)


def train(model, optimizer=None, steps=STEPS, **options):
    """Losses of each step."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, step, **options)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def accumulate(model, steps=STEPS):
    """Two passes for each step of the optimizer, of which the first exchanges nothing. No gradients are left."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        with model.no_sync():
            loss_of(model, 2 * step).backward()
        loss_of(model, 2 * step + 1).backward()
        optimizer.step()
        optimizer.zero_grad()


def state(model):
    """Full values of all parameters and buffers, also of sharded ones."""
    whole = {}
    for name, value in model.state_dict().items():
        whole[name] = (value.full_tensor() if hasattr(value, "full_tensor") else value).detach().clone()
    return whole
