# SPDX-License-Identifier: BSD-3-Clause
"""Sharded data parallel training: losses and full parameters are those that gloo gives."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, ShardingStrategy, fully_shard

from training import Model, batch, loss_of, seeded, state, train

CLOSE = 1e-5


class Plain(Model):
    """Without batch statistics, which sharded training does not bring together."""

    def __init__(self, **options):
        super().__init__(**options)
        self.norm = torch.nn.LayerNorm(self.last.in_features)


def sharded(mesh=None, **options):
    model = seeded(Plain)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def fsdp(options):
    model = sharded(mesh=init_device_mesh("cpu", (dist.get_world_size(),)), **options)
    return train(model), state(model)


OPTIONS = {
    "plain": {},
    "keep_after_forward": {"reshard_after_forward": False},
    "bfloat16": {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)},
    "float64_sums": {"mp_policy": MixedPrecisionPolicy(reduce_dtype=torch.float64)},
}


@pytest.mark.parametrize("options", list(OPTIONS))
@pytest.mark.parametrize("size", [2, 3])
def test_fully_shard(ranks, options, size):
    ranks.default_both(size, fsdp, OPTIONS[options], tolerance=2e-2 if options == "bfloat16" else CLOSE)


def default_mesh():
    model = sharded()
    return train(model), state(model)


def test_default_mesh(ranks):
    ranks.default_both(2, default_mesh, tolerance=CLOSE)


def hybrid(precision):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16) if precision else MixedPrecisionPolicy()
    model = sharded(mesh=mesh, mp_policy=policy)
    return train(model), state(model)


@pytest.mark.parametrize("precision", [False, True])
def test_hybrid_sharding(ranks, precision):
    ranks.default_both(4, hybrid, precision, tolerance=5e-2 if precision else CLOSE)


def accumulated():
    model = sharded()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        model.set_requires_gradient_sync(False)
        loss_of(model, 2 * step).backward()
        model.set_requires_gradient_sync(True)
        loss_of(model, 2 * step + 1).backward()
        optimizer.step()
        optimizer.zero_grad()
    return state(model)


def test_gradients_that_are_accumulated(ranks):
    ranks.default_both(2, accumulated, tolerance=CLOSE)


def clipped():
    model = sharded()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_of(model, 0).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    return norm.full_tensor(), state(model)


def test_norms_of_sharded_gradients(ranks):
    ranks.default_both(2, clipped, tolerance=CLOSE)


def old(strategy):
    model = FullyShardedDataParallel(
        seeded(Plain), device_id=torch.device("cpu"), sharding_strategy=getattr(ShardingStrategy, strategy)
    )
    losses = train(model)
    with FullyShardedDataParallel.summon_full_params(model):
        return losses, [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"])
def test_first_version(ranks, strategy):
    ranks.default_both(2, old, strategy, tolerance=CLOSE)


def inference():
    model = sharded()
    with torch.no_grad():
        return model(batch(0)[0])


def test_forward_alone(ranks):
    ranks.default_both(2, inference, tolerance=CLOSE)
