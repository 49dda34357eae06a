# SPDX-License-Identifier: BSD-3-Clause
"""DistributedDataParallel and what belongs to it: losses and parameters are those that gloo gives."""

import copy
import io

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

import training
import worker
from training import Model, accumulate, loss_of, seeded, state, train

CLOSE = 1e-6  # sums in another order

OPTIONS = {
    "plain": {},
    "find_unused_parameters": {"find_unused_parameters": True},
    "static_graph": {"static_graph": True},
    "gradient_as_bucket_view": {"gradient_as_bucket_view": True},
    "small_buckets": {"bucket_cap_mb": 0.0005},
    "views_of_small_buckets": {"bucket_cap_mb": 0.0005, "gradient_as_bucket_view": True, "static_graph": True},
    "no_buffers": {"broadcast_buffers": False},
    "sync_module_states": {"init_sync": True},
}


def plain(options):
    model = DDP(seeded(Model), **options)
    return train(model), state(model)


@pytest.mark.parametrize("options", list(OPTIONS))
@pytest.mark.parametrize("size", [2, 3])
def test_options(ranks, options, size):
    ranks.default_both(size, plain, OPTIONS[options], tolerance=CLOSE)


def saved_whole():
    """A model is often saved with all that it is made of, and copied; what is saved must be read without this package."""
    model, file = DDP(seeded(Model)), io.BytesIO()
    train(model)
    torch.save(model, file)
    assert b"lockstep" not in file.getvalue()
    file.seek(0)
    loaded, copied = torch.load(file, weights_only=False), copy.deepcopy(model)
    return [(train(one), state(one)) for one in (loaded, copied, model)]


def test_saved_and_copied_whole(ranks):
    ranks.default_both(2, saved_whole, tolerance=CLOSE)


def from_different_starts():
    """Parameters of rank 0 are everybody's."""
    torch.manual_seed(dist.get_rank())
    model = DDP(Model())
    return train(model), state(model)


def test_parameters_of_rank_0_are_broadcast(ranks):
    ranks.default_both(2, from_different_starts, tolerance=CLOSE)


def unused():
    model = DDP(seeded(Model, skips=True), find_unused_parameters=True)
    return train(model, use_branch=dist.get_rank() == 0), state(model)


def test_parameters_that_some_ranks_do_not_use(ranks):
    ranks.default_both(2, unused, tolerance=CLOSE)


def accumulated():
    model = DDP(seeded(Model))
    accumulate(model)
    return state(model)


def test_no_sync(ranks):
    ranks.default_both(2, accumulated, tolerance=CLOSE)


def python_hook(bucket_state, bucket):
    work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def two_steps_hook(bucket_state, bucket):
    """What is chained communicates as well, and waits for it in the callback."""
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()

    def halve(done):
        tensor = done.value()[0].div_(dist.get_world_size() * 2)
        dist.all_reduce(tensor, async_op=True).wait()
        return tensor

    return future.then(halve)


def bf16_hook(bucket_state, bucket):
    """Under a name of its own, as PyTorch refuses bf16_compress_hook where there is no GPU."""
    return default_hooks.bf16_compress_hook(bucket_state, bucket)


HOOKS = {
    "python": lambda: (None, python_hook),
    "two_steps": lambda: (None, two_steps_hook),
    "allreduce": lambda: (None, default_hooks.allreduce_hook),
    "fp16": lambda: (None, default_hooks.fp16_compress_hook),
    "bf16": lambda: (None, bf16_hook),
    "fp16_wrapper": lambda: (None, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)),
    "power_sgd": lambda: (
        powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2),
        powerSGD_hook.powerSGD_hook,
    ),
}


def hooked(name):
    model = DDP(seeded(Model), bucket_cap_mb=0.002)
    model.register_comm_hook(*HOOKS[name]())
    return train(model, steps=5), state(model)


HALVES = {"fp16": 1e-2, "fp16_wrapper": 1e-2, "bf16": 5e-2}


@pytest.mark.parametrize("name", list(HOOKS))
def test_hooks(ranks, name):
    ranks.default_both(2, hooked, name, tolerance=HALVES.get(name, 1e-5))


def built_in_hook(name):
    model = DDP(seeded(Model), bucket_cap_mb=0.002)
    model._register_builtin_comm_hook(getattr(dist.BuiltinCommHookType, name))
    return train(model), state(model)


BUILT_IN = pytest.mark.parametrize("name, tolerance", [("ALLREDUCE", CLOSE), ("FP16_COMPRESS", HALVES["fp16"])])


@BUILT_IN
def test_built_in_hooks(ranks, name, tolerance):
    ranks.default_both(2, built_in_hook, name, tolerance=tolerance)


@BUILT_IN
def test_built_in_hooks_with_check(ranks, name, tolerance):
    with ranks.setting(LOCKSTEP_CHECK="1"):
        ranks.default_both(2, built_in_hook, name, tolerance=tolerance)


def uneven(divide_by_initial_world_size, hook=None):
    """Ranks have 2, 3, … batches; a rank that has none left follows the others, and averages are of all or of those that go on."""
    model = DDP(seeded(Model))
    if hook is not None:
        model._register_builtin_comm_hook(getattr(dist.BuiltinCommHookType, hook))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with model.join(divide_by_initial_world_size=divide_by_initial_world_size):
        for step in range(2 + dist.get_rank()):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
    return {name: value for name, value in state(model).items() if "norm.running" not in name}


@pytest.mark.parametrize("divide_by_initial_world_size", [True, False])
def test_join(ranks, divide_by_initial_world_size):
    ranks.default_both(3, uneven, divide_by_initial_world_size, tolerance=CLOSE)


@BUILT_IN
def test_join_with_built_in_hooks(ranks, name, tolerance):
    ranks.default_both(3, uneven, True, name, tolerance=tolerance)


def uneven_sharded():
    """Join of two things at once."""
    model = DDP(seeded(Model))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    with Join([model, optimizer]):
        for step in range(2 + dist.get_rank()):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
    return {name: value for name, value in state(model).items() if "norm.running" not in name}


def test_join_with_a_sharded_optimizer(ranks):
    ranks.default_both(2, uneven_sharded, tolerance=CLOSE)


def zero(overlap):
    model = DDP(seeded(Model), gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.Adam, lr=0.01, parameters_as_bucket_view=overlap
    )
    losses = train(model, optimizer)
    optimizer.consolidate_state_dict(to=0)
    steps = [value["step"] for value in optimizer.state_dict()["state"].values()] if dist.get_rank() == 0 else None
    return losses, state(model), steps


@pytest.mark.parametrize("views", [False, True])
def test_zero_redundancy_optimizer(ranks, views):
    ranks.default_both(2, zero, views, tolerance=1e-5)


def averaged():
    model = seeded(Model)
    averager = PeriodicModelAverager(period=2, warmup_steps=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
        averager.average_parameters(model.parameters())
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_model_averaging(ranks):
    ranks.default_both(2, averaged, tolerance=CLOSE)


def sub_group():
    group = dist.new_group([0, 1])
    if dist.get_rank() == 2:
        return None
    model = DDP(seeded(Model), process_group=group)
    return train(model), state(model)


def test_in_a_group_of_some_ranks(ranks):
    ranks.default_both(3, sub_group, tolerance=CLOSE)


def lockstep_in_gloo():
    model = DDP(seeded(Model), process_group=dist.new_group(backend="lockstep"))
    return train(model), state(model)


def test_a_lockstep_group_under_a_default_group_of_gloo(ranks):
    theirs = ranks(2, plain, {}, backend="gloo")
    ours = ranks(2, lockstep_in_gloo, backend="gloo")
    for one, other in zip(ours, theirs):
        worker.same(one, other, CLOSE)


def same_on_all_ranks():
    model = DDP(seeded(Model))
    train(model)
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_all_ranks_end_with_the_same_parameters(ranks):
    first, *others = ranks(4, same_on_all_ranks)
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other))


def as_one_process():
    """Training of 2 ranks is that of one process with both batches."""
    model = DDP(seeded(Model), broadcast_buffers=False)
    model.module.norm.eval()
    train(model)
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_gradients_are_averages(ranks):
    model = seeded(Model)
    model.norm.eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(training.STEPS):
        optimizer.zero_grad()
        for rank in range(2):
            x, y = training.batch(step, rank)
            (torch.nn.functional.cross_entropy(model(x), y) / 2).backward()
        optimizer.step()
    for values in ranks(2, as_one_process):
        for ours, expected in zip(values, model.parameters()):
            torch.testing.assert_close(ours, expected.detach(), rtol=1e-5, atol=1e-6)


def beside_a_future_of_the_program():
    """A message whose future was asked for, and that comes only after what this rank does behind the backward pass."""
    model = DDP(seeded(Model))
    train(model)
    message, go = torch.full((2,), 3.0), torch.ones(1)
    if dist.get_rank() == 0:
        future = dist.irecv(message.zero_(), 1, tag=7).get_future()
        train(model)
        dist.send(go, 1, tag=8)
        future.wait()
    else:
        train(model)
        dist.recv(go, 0, tag=8)
        dist.send(message, 0, tag=7)
    return message.tolist()


def test_a_backward_pass_waits_for_nothing_else(ranks):
    assert ranks(2, beside_a_future_of_the_program, fresh=True) == [[3.0, 3.0]] * 2
