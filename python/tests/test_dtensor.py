# SPDX-License-Identifier: BSD-3-Clause
"""Tensors over several ranks, device meshes, tensor parallel and sequence parallel layers."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from training import state

CLOSE = 1e-5


def mesh_of(*shape):
    return init_device_mesh("cpu", shape, mesh_dim_names=("outer", "inner")[-len(shape) :])


def numbers(*shape):
    return torch.arange(float(torch.Size(shape).numel())).view(shape)


def redistributed(source, target):
    """Each way that a tensor lies on the ranks turned into each other."""
    placements = {"replicate": Replicate(), "rows": Shard(0), "columns": Shard(1), "partial": Partial()}
    mesh = mesh_of(dist.get_world_size())
    tensor = distribute_tensor(numbers(7, 5), mesh, [placements["replicate" if source == "partial" else source]])
    if source == "partial":
        tensor = type(tensor).from_local(tensor.to_local() * (dist.get_rank() + 1), mesh, [Partial()])
    moved = tensor.redistribute(mesh, [placements[target]])
    return moved.to_local().clone(), moved.full_tensor()


WAYS = [(a, b) for a in ("replicate", "rows", "columns", "partial") for b in ("replicate", "rows", "columns") if a != b]


@pytest.mark.parametrize("source,target", WAYS)
def test_redistribute(ranks, source, target):
    ranks.default_both(3, redistributed, source, target)


def operators():
    mesh = mesh_of(dist.get_world_size())
    left = distribute_tensor(numbers(6, 4), mesh, [Shard(0)])
    right = distribute_tensor(numbers(4, 6), mesh, [Shard(1)])
    product = left @ right
    total = distribute_tensor(numbers(6, 4), mesh, [Shard(1)]).sum()
    softmax = torch.softmax(distribute_tensor(numbers(3, 8), mesh, [Shard(1)]), dim=1)
    return product.full_tensor(), total.full_tensor(), softmax.full_tensor()


def test_operators(ranks):
    ranks.default_both(2, operators, tolerance=CLOSE)


def differentiated():
    mesh = mesh_of(dist.get_world_size())
    weight = distribute_tensor(numbers(4, 4) / 16, mesh, [Shard(0)]).requires_grad_()
    x = distribute_tensor(numbers(3, 4), mesh, [Replicate()])
    (x @ weight.t()).pow(2).sum().backward()
    return weight.grad.full_tensor()


def test_gradients(ranks):
    ranks.default_both(2, differentiated, tolerance=CLOSE)


def meshes():
    mesh = mesh_of(2, 2)
    facts = [(mesh[name].get_local_rank(), mesh[name].size(), mesh.get_coordinate()) for name in ("outer", "inner")]
    sums = []
    for name in ("outer", "inner"):
        tensor = torch.tensor([float(dist.get_rank())])
        dist.all_reduce(tensor, group=mesh.get_group(name))
        sums.append(tensor)
    flat = mesh["outer", "inner"]._flatten("all")
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=flat.get_group())
    return facts, sums, tensor


def test_device_mesh(ranks):
    ranks.default_both(4, meshes)


class Block(nn.Module):
    """What tensor parallel training is made for: a wide layer and a narrow one, with a norm before them."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)
        self.out = nn.Linear(8, 12)

    def forward(self, x):
        return self.out(x + self.down(torch.relu(self.up(self.norm(x)))))


def trained(model, data=None, classes=12, parallel_loss=False, split_input=False):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(3):
        generator = torch.Generator().manual_seed(step if data is None else 100 * data + step)
        x, y = torch.randn(2, 4, 8, generator=generator), torch.randint(0, classes, (8,), generator=generator)
        if split_input:
            x = x.chunk(dist.get_world_size(), 1)[dist.get_rank()]
        out = model(x)
        if parallel_loss:
            with loss_parallel():
                loss = nn.functional.cross_entropy(out.flatten(0, 1), y)
                loss.backward()
        else:
            loss = nn.functional.cross_entropy(out.flatten(0, 1), y)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.full_tensor().detach() if hasattr(loss, "full_tensor") else loss.detach())
    return losses, state(model)


def tensor_parallel(kind):
    torch.manual_seed(3)
    plans = {
        "tensor": {"up": ColwiseParallel(), "down": RowwiseParallel()},
        "loss": {
            "up": ColwiseParallel(),
            "down": RowwiseParallel(),
            "out": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
        },
    }
    model = parallelize_module(Block(), mesh_of(dist.get_world_size()), plans[kind])
    return trained(model, parallel_loss=kind == "loss")


def alone():
    torch.manual_seed(3)
    return trained(Block())


@pytest.mark.parametrize("kind", ["tensor", "loss"])
@pytest.mark.parametrize("size", [2, 4])
def test_tensor_parallel(ranks, kind, size):
    results = ranks.default_both(size, tensor_parallel, kind, tolerance=CLOSE)
    losses, _ = alone()
    for ours, _ in results:
        torch.testing.assert_close(ours, losses, rtol=1e-4, atol=1e-5)


class SequenceBlock(Block):
    def forward(self, x):
        return self.out(self.down(torch.relu(self.up(self.norm(x)))))


def sequence_parallel():
    torch.manual_seed(3)
    plan = {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Replicate()),
    }
    return trained(parallelize_module(SequenceBlock(), mesh_of(dist.get_world_size()), plan), split_input=True)


def test_sequence_parallel(ranks):
    ranks.default_both(2, sequence_parallel, tolerance=CLOSE)


def two_dimensional():
    """Tensor parallel within, sharded data parallel without."""
    torch.manual_seed(3)
    mesh = mesh_of(2, 2)
    model = parallelize_module(Block(), mesh["inner"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(model, mesh=mesh["outer"])
    return trained(model, data=mesh["outer"].get_local_rank())


def test_tensor_parallel_within_sharded_data_parallel(ranks):
    ranks.default_both(4, two_dimensional, tolerance=CLOSE)
