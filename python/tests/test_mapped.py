# SPDX-License-Identifier: BSD-3-Clause
"""LOCKSTEP_DDP=mapped: an unchanged script gets the same bits, in buckets that the other ranks reach."""

import contextlib
import copy
import os

import lockstep
import pytest
import torch
import torch.distributed as dist
from lockstep.torch import _mapped
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from test_ddp import python_hook
from training import Model, accumulate, loss_of, seeded, state, train

SMALL = {"bucket_cap_mb": 0.001}


@pytest.fixture(autouse=True)
def mapped(ranks):
    """Of the ranks, and of no other test."""
    with ranks.setting(LOCKSTEP_DDP="mapped"):
        yield


@contextlib.contextmanager
def plain():
    os.environ["LOCKSTEP_DDP"] = "plain"
    try:
        yield
    finally:
        os.environ["LOCKSTEP_DDP"] = "mapped"


def is_mapped(model):
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return bool(gradients) and all(gradient.is_shared() for gradient in gradients)


def same(ours, theirs):
    if isinstance(theirs, torch.Tensor):
        assert torch.equal(ours, theirs)
    elif isinstance(theirs, dict):
        same(list(ours.values()), list(theirs.values()))
    else:
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs):
            same(one, other)


def both(function, *args):
    """The same bits with and without; and whether the model was mapped. function: → (results, model)"""
    with plain():
        theirs, other = function(*args)
        assert not is_mapped(other)
    ours, model = function(*args)
    same(ours, theirs)
    return is_mapped(model)


def gradients_of(model):
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


# ---- kinds of models ----


def trained(options, to_none, skips, dtype):
    if not _mapped.wanted():
        options = {**options, "gradient_as_bucket_view": False}
    model = DDP(seeded(Model, skips=skips).to(dtype), **{**SMALL, **options})
    optimizer, seen = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(4):
        optimizer.zero_grad(set_to_none=to_none)
        x = torch.randn(8, 16, generator=generator).to(dtype)
        model(x, **({"use_branch": bool((step + dist.get_rank()) % 2)} if skips else {})).float().pow(2).mean().backward()
        seen += gradients_of(model)
        optimizer.step()
    return (seen, state(model)), model


KINDS = {
    "plain": {},
    "views": {"gradient_as_bucket_view": True},  # where PyTorch divides by the number of ranks; without, it multiplies
    "no_views": {"gradient_as_bucket_view": False},
    "unused": {"find_unused_parameters": True},
    "static": {"static_graph": True},
}


def all_kinds():
    for kind, options in KINDS.items():
        for to_none in (True, False):
            mapped = both(trained, options, to_none, kind == "unused", torch.float32)
            assert mapped == (kind != "no_views"), kind
    assert both(trained, {}, True, False, torch.bfloat16)


@pytest.mark.parametrize("size", [2, 3])
def test_the_same_bits(ranks, size):
    """3: a third is rounded before the sum as PyTorch does it."""
    ranks(size, all_kinds)


def accumulated():
    model = DDP(seeded(Model), **SMALL)
    accumulate(model, steps=4)
    loss_of(model, 9).backward()
    return state(model), model


def of_two_models():
    """One in a group of some ranks, both in one backward pass; and a copy, which has no hook."""
    some = dist.new_group([0, 2])
    one = DDP(seeded(Model), **SMALL)
    other = DDP(seeded(Model, depth=3), process_group=some, **SMALL) if dist.get_rank() != 1 else None
    seen = []
    for step in range(4):
        loss = loss_of(one, step) + (loss_of(other, step) if other else 0)
        loss.backward()
        seen += gradients_of(one) + (gradients_of(other) if other else [])
    copied = copy.deepcopy(one)
    seen += train(copied)
    if other is not None:
        assert is_mapped(other) == _mapped.wanted()
    return seen, one


def uneven(divide, lasts):
    model = DDP(seeded(Model), broadcast_buffers=False, **SMALL)
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    with model.join(divide_by_initial_world_size=divide):
        for step in range(lasts[dist.get_rank()]):
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    values = state(model)
    return (losses, [value for name, value in values.items() if "norm" not in name]), model


def ways_to_train():
    assert both(accumulated) and both(of_two_models)
    for lasts in ([2, 3, 5], [0, 4, 4], [5, 1, 0]):
        for divide in (True, False):
            assert both(uneven, divide, lasts) or lasts[dist.get_rank()] < 2


def test_ways_to_train(ranks):
    ranks(3, ways_to_train)


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.last = nn.Embedding(8, 4, sparse=True), nn.Linear(4, 1)

    def forward(self, x):
        return self.last(self.words(x))


def left_alone():
    sparse = DDP(seeded(Sparse))
    sparse(torch.arange(3)).sum().backward()
    of_gloo = DDP(seeded(Model), process_group=dist.new_group(backend="gloo"))
    return [model.gradient_as_bucket_view or model.reducer in _mapped._states for model in (sparse, of_gloo)]


def test_models_that_are_left_alone(ranks):
    assert ranks(2, left_alone) == [[False, False]] * 2


# ---- hooks of the script ----


def hooked(after):
    model = DDP(seeded(Model), **SMALL)
    seen = train(model, steps=after)
    model.register_comm_hook(None, python_hook)
    seen += train(model) + gradients_of(model)
    with pytest.raises(RuntimeError, match="only be called once"):
        model.register_comm_hook(None, python_hook)
    return seen, model


def hooks_of_the_script():
    both(hooked, 0)
    both(hooked, 3)


def test_a_hook_of_the_script_is_called(ranks):
    ranks(2, hooks_of_the_script)


# ---- what is different ----


def shared_parameters():
    """Gradients can be views of one bucket only: PyTorch refuses it, and no sum is wrong."""
    module = seeded(Model)
    one, other = DDP(module, **SMALL), DDP(module, **SMALL)
    with pytest.raises(RuntimeError, match="is not the expected DDP bucket view"):
        for step in range(3):
            (loss_of(one, step) + loss_of(other, step)).backward()
    dist.barrier()


def test_parameters_of_two_models_are_refused(ranks):
    ranks(2, shared_parameters, fresh=True)


def forked():
    """A child reads gradients, and they outlive the group of a peer that is dead."""
    model = DDP(seeded(Model), **SMALL)
    train(model)
    before = gradients_of(model)
    child = os.fork()
    if child == 0:
        os._exit(0 if all(map(torch.equal, gradients_of(model), before)) else 1)
    assert os.waitpid(child, 0)[1] == 0
    if dist.get_rank() == 1:
        os._exit(3)
    with pytest.raises(lockstep.PeerLost):
        loss_of(model, 9).backward()
    dist.destroy_process_group()
    model.zero_grad(set_to_none=False)
    assert not any(gradient.any() for gradient in gradients_of(model))
    return is_mapped(model)


def test_gradients_in_a_child_and_after_the_group(ranks):
    survivor, dead = ranks.outcomes(2, forked, fresh=True)
    assert survivor.value is True and dead.exitcode == 3, survivor.trace


# ---- the setting ----


def told(level):
    os.environ["LOCKSTEP_LOG"], _mapped._told = level, False
    try:
        for _ in range(2):
            train(DDP(seeded(Model), **SMALL))
    finally:
        del os.environ["LOCKSTEP_LOG"]


@pytest.mark.parametrize("level, times", [("info", 1), ("warn", 0)])
def test_it_is_said_once(ranks, level, times):
    ranks(2, told, level)
    assert [text.count("[LS-DDP-MAPPED]") for text in ranks.written] == [times, 0]


def set_by_rank():
    os.environ["LOCKSTEP_DDP"] = ("mapped", "plain")[dist.get_rank()]
    try:
        train(DDP(seeded(Model)))
    finally:
        os.environ["LOCKSTEP_DDP"] = "mapped"


def test_ranks_that_differ_are_told(ranks):
    for outcome in ranks.outcomes(2, set_by_rank, fresh=True):
        assert isinstance(outcome.error, lockstep.Mismatch), outcome.trace
        assert "different reduce ops: rank 0 has average, rank 1 has sum" in str(outcome.error)
