# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints of sharded models and pipelines of stages: what is saved is loaded, and losses are gloo's."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

from training import Model, loss_of, state


class Plain(Model):
    def __init__(self):
        super().__init__()
        self.norm = nn.Identity()


def made(seed):
    torch.manual_seed(seed)
    model = fully_shard(Plain())
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def step_of(model, optimizer, step):
    optimizer.zero_grad()
    loss = loss_of(model, step)
    loss.backward()
    optimizer.step()
    return loss.detach()


def saved_and_loaded(folder, how):
    """Training goes on from a checkpoint as if it had not been interrupted."""
    model, optimizer = made(1)
    step_of(model, optimizer, 0)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    everything = {"model": model_state, "optimizer": optimizer_state}
    if how == "async":
        dcp.async_save(everything, checkpoint_id=folder).result()
    else:
        dcp.save(everything, checkpoint_id=folder)
    expected = step_of(model, optimizer, 1), state(model)
    model, optimizer = made(2)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    everything = {"model": model_state, "optimizer": optimizer_state}
    dcp.load(everything, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=everything["model"], optim_state_dict=everything["optimizer"])
    return expected, (step_of(model, optimizer, 1), state(model))


@pytest.mark.parametrize("how", ["sync", "async"])
def test_save_and_load(ranks, tmp_path, how):
    for backend in ("gloo", "lockstep"):
        results = ranks(2, saved_and_loaded, str(tmp_path / backend), how, backend=backend)
        for expected, found in results:
            torch.testing.assert_close(found, expected, rtol=0, atol=0)


def saved(folder):
    model, _ = made(1)
    dcp.save({"model": get_state_dict(model, ())[0]}, checkpoint_id=folder)
    return state(model)


def loaded(folder):
    model, _ = made(5)
    everything = {"model": get_state_dict(model, ())[0]}
    dcp.load(everything, checkpoint_id=folder)
    model.load_state_dict(everything["model"])
    return state(model)


def test_a_checkpoint_of_two_ranks_loaded_by_three(ranks, tmp_path):
    first = ranks(2, saved, str(tmp_path / "c"))[0]
    for values in ranks(3, loaded, str(tmp_path / "c")):
        torch.testing.assert_close(values, first, rtol=0, atol=0)


def full():
    """The whole state of rank 0 becomes everybody's."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    whole = get_model_state_dict(made(1)[0], options=options)
    model = made(2)[0]
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, whole, options=options)
    return state(model)


def test_full_state_dicts(ranks):
    ranks.default_both(2, full)


# ---- pipelines ----

WIDTH = 8
MICROBATCHES = 4


def stage_module(index):
    torch.manual_seed(index)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())


def pipelined(schedule):
    rank, size = dist.get_rank(), dist.get_world_size()
    chunks = 2 if schedule == "Interleaved1F1B" else 1
    modules = [stage_module(rank + size * i) for i in range(chunks)]
    stages = [
        PipelineStage(module, rank + size * i, size * chunks, torch.device("cpu")) for i, module in enumerate(modules)
    ]
    kinds = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B, "Interleaved1F1B": ScheduleInterleaved1F1B}
    runner = kinds[schedule](stages if chunks > 1 else stages[0], MICROBATCHES, loss_fn=nn.functional.mse_loss)
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(8, WIDTH, generator=generator)
    y = torch.randn(8, WIDTH, generator=generator)
    losses = []
    for _ in range(2):
        args, options = ((x,) if rank == 0 else ()), {}
        if rank == size - 1:
            options = {"target": y, "losses": losses}
        runner.step(*args, **options)
    gradients = [parameter.grad.clone() for module in modules for parameter in module.parameters()]
    return [loss.detach() for loss in losses], gradients


@pytest.mark.parametrize("schedule", ["GPipe", "1F1B", "Interleaved1F1B"])
@pytest.mark.parametrize("size", [2, 4])
def test_pipelines(ranks, schedule, size):
    ranks.default_both(size, pipelined, schedule, tolerance=1e-6)
