# SPDX-License-Identifier: BSD-3-Clause
"""Buckets of DistributedDataParallel that are moved to where peers reach them: nobody can tell, but by the time it takes.
Each training is done twice, with LOCKSTEP_BUCKETS=0 and 1, and must give the same bits."""

import copy
import ctypes
import gc
import io
import os

import lockstep
import pytest
import torch
import torch.distributed as dist
from lockstep._library import C, MemoryStats
from lockstep.torch import _buckets
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP

WIDTH = 256  # a layer is a bucket, and long enough
STEPS = 7  # from the fourth on sums lie apart

os.environ["LOCKSTEP_BUCKETS"] = "1"  # here, and in every process that imports this


class Chain(nn.Module):
    def __init__(self, skips=False, layers=3):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(layers))
        self.branch = nn.Linear(WIDTH, WIDTH) if skips else None

    def forward(self, x, use_branch=False):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x + self.branch(x) if use_branch else x


def make(skips=False, layers=3, **options):
    torch.manual_seed(11)
    return DDP(Chain(skips, layers), bucket_cap_mb=0.2, **options)


def loss_of(model, step, **options):
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    return model(torch.randn(8, WIDTH, generator=generator), **options).pow(2).mean()


def gradients_of(model):
    return [parameter.grad for parameter in model.parameters()]


def values(tensors):
    return [None if tensor is None else tensor.detach().clone() for tensor in tensors]


def moved(model):
    """How many of the model's buckets are moved, and of how many the newest sums lie apart."""
    watches = [hook.function.__self__ for hook in model._forward_pre_hooks.values() if hasattr(hook, "function")]
    known = [one for watch in watches for buckets in watch.buckets.values() for one in buckets.known.values()]
    return sum(one.is_moved for one in known), sum(one.kept > 0 for one in known)


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)


def steps(model, to_none=True, count=STEPS, each=None, **options):
    optimizer, seen = optimizer_of(model), []
    for step in range(count):
        optimizer.zero_grad(set_to_none=to_none)
        loss = loss_of(model, step, **options)
        loss.backward()
        seen += [loss.detach(), *values(gradients_of(model))]
        if each is not None:
            each(step)
        optimizer.step()
    return seen + values(model.parameters())


def same(ones, others):
    assert len(ones) == len(others)
    for one, other in zip(ones, others):
        assert one is other is None or torch.equal(one, other)


def on_and_off(function, *args, **options):
    """The same tensors with and without; and what function has counted with."""
    found = []
    for setting in "01":
        os.environ["LOCKSTEP_BUCKETS"] = setting
        try:
            found.append(function(*args, **options))
        finally:
            os.environ["LOCKSTEP_BUCKETS"] = "1"
    (plain, none), (ours, counts) = found
    same(ours, plain)
    assert none == (0, 0)
    return counts


def stats():
    out = MemoryStats(size=ctypes.sizeof(MemoryStats))
    communicator = dist.GroupMember.WORLD.communicator
    communicator.check(C.ls_memory_stats(communicator.handle, ctypes.byref(out)))
    return out


# ---- kinds of models ----


def train_one(options, to_none, call):
    skips = "find_unused_parameters" in options or bool(call)
    model = make(skips, **options)
    seen = steps(model, to_none, **call)
    return seen, moved(model)


KINDS = {
    "plain": ({}, {}, True),
    "views": ({"gradient_as_bucket_view": True}, {}, False),
    "unused": ({"find_unused_parameters": True}, {}, False),
    "static": ({"static_graph": True}, {}, False),
    "no_buffers": ({"broadcast_buffers": False}, {}, True),
    "branch": ({}, {"use_branch": True}, True),
}


@pytest.mark.parametrize("to_none", [False, True])
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("size", [2, 3])
def test_the_same_bits(ranks, kind, to_none, size):
    options, call, apart = KINDS[kind]
    for count, aside in ranks(size, on_and_off, train_one, options, to_none, call):
        assert count >= 3 and aside == (count if apart else 0)


def sub_group():
    group = dist.new_group([0, 2])
    if dist.get_rank() == 1:
        return [], (0, 0)
    model = make(process_group=group)
    return steps(model), moved(model)


def test_in_a_group_of_some_ranks(ranks):
    assert ranks(3, on_and_off, sub_group) == [(3, 3), (0, 0), (3, 3)]


def accumulated(to_none):
    model = make()
    optimizer, seen = optimizer_of(model), []
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=to_none)
        with model.no_sync():
            loss_of(model, 3 * step).backward()
        loss_of(model, 3 * step + 1).backward()
        loss_of(model, 3 * step + 2).backward()  # to what is there already
        seen += values(gradients_of(model))
        optimizer.step()
    return seen, moved(model)


@pytest.mark.parametrize("to_none", [False, True])
def test_gradients_add_up(ranks, to_none):
    assert ranks(2, on_and_off, accumulated, to_none) == [(3, 3)] * 2


def of_two_models():
    """In one backward pass, each alone, and a copy of one."""
    one, two = make(), make(layers=2)
    seen = []
    for step in range(6):
        (loss_of(one, step) + loss_of(two, step)).backward()
    seen += values(gradients_of(one) + gradients_of(two))
    for step in range(6):
        loss_of(one, step).backward()
        loss_of(two, step).backward()
        (loss_of(one, step) + loss_of(two, step)).backward()
    other = copy.deepcopy(one)
    for step in range(6):
        loss_of(one, step).backward()
        loss_of(other, step).backward()
    seen += values(gradients_of(one) + gradients_of(two) + gradients_of(other))
    return seen, moved(one)


def test_several_models(ranks):
    ranks(2, on_and_off, of_two_models)


def join_uneven():
    model = make()
    optimizer = optimizer_of(model)
    seen = steps(model, count=5)
    with model.join():
        for step in range(3 + 2 * dist.get_rank()):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
    return seen + steps(model, count=2), moved(model)


def test_uneven_inputs(ranks):
    assert ranks(3, on_and_off, join_uneven) == [(3, 3)] * 3


# ---- what a program keeps ----


def keep_gradients(to_none):
    """Each kind of hold on a gradient, from each step: shows what it would have shown."""
    model, held = make(), []

    def each(step):
        gradients = gradients_of(model)
        which = gradients[step % len(gradients)]
        held.append(which)
        held.append(which.view(-1)[1:])
        held.append(torch.from_numpy(which.numpy()))
        held.append(torch.from_dlpack(torch.utils.dlpack.to_dlpack(which)))

    seen = steps(model, to_none, each=each)
    return seen + values(held), moved(model)


@pytest.mark.parametrize("to_none", [False, True])
def test_gradients_that_are_kept(ranks, to_none):
    ranks(2, on_and_off, keep_gradients, to_none)


def keep_one(to_none, hold, when):
    model, held = make(), []

    def each(step):
        if step == when:
            held.extend(hold(gradient) for gradient in gradients_of(model)[2:4])

    seen = steps(model, to_none, count=9, each=each)
    return seen + values(map(torch.as_tensor, held)), moved(model)


def as_it_is(gradient):
    return gradient


def as_row(gradient):
    return gradient.view(-1)


def as_array(gradient):
    return gradient.numpy()


def as_export(gradient):
    return torch.from_dlpack(torch.utils.dlpack.to_dlpack(gradient))


@pytest.mark.parametrize("to_none", [False, True])
@pytest.mark.parametrize("hold", [as_it_is, as_row, as_array, as_export])
@pytest.mark.parametrize("when", [1, 4])
def test_gradients_of_one_step_are_kept(ranks, to_none, hold, when):
    """Before gradients become views, and after. Sums that are kept while others come are not overwritten."""
    apart = 2 if to_none and when == 4 else 3
    assert ranks(2, on_and_off, keep_one, to_none, hold, when) == [(3, apart)] * 2


def keep_for_ever():
    """A small gradient of each step does not keep a bucket of each."""
    model, history, sizes = make(), [], []

    def each(step):
        history.append(model.module.layers[0].bias.grad)
        sizes.append(stats().live_bytes)

    steps(model, count=12, each=each)
    return len(set(sizes[5:]))


def test_a_history_of_gradients_keeps_no_buckets(ranks):
    assert ranks(2, keep_for_ever) == [1, 1]


# ---- the model's life ----


def drop_model(to_none):
    before = stats().live_bytes
    model = make()
    steps(model, to_none)
    counts, live = moved(model), stats().live_bytes
    gradient = model.module.layers[0].bias.grad
    del model
    gc.collect()
    kept, value = stats().live_bytes, gradient.clone()
    assert torch.equal(gradient, value)
    del gradient
    gc.collect()
    return counts, live > kept > before, stats().live_bytes - before, len(_buckets._moved)


@pytest.mark.parametrize("to_none", [False, True])
def test_memory_is_given_back(ranks, to_none):
    assert ranks(2, drop_model, to_none, fresh=True) == [((3, 3), True, 0, 0)] * 2


def saved_and_copied():
    model, file = make(), io.BytesIO()
    seen = steps(model)
    torch.save(model, file)
    assert b"lockstep" not in file.getvalue()
    file.seek(0)
    loaded, copied = torch.load(file, weights_only=False), copy.deepcopy(model)
    state = model.state_dict()
    for one in (loaded, copied, model):
        seen += values(gradients_of(one)) + steps(one)
    return seen + values(state.values()), moved(model)


def test_saved_and_copied_whole(ranks):
    ranks(2, on_and_off, saved_and_copied)


def hooked_late(register):
    model = make()
    seen = steps(model)
    register(model)
    return seen + steps(model), moved(model)


def by_python(model):
    model.register_comm_hook(None, default_hooks.allreduce_hook)


def by_mapped_buckets(model):
    model.register_comm_hook(lockstep.torch.MappedBuckets(), lockstep.torch.mapped_buckets)


def built_in(model):
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)


@pytest.mark.parametrize("register", [by_python, by_mapped_buckets, built_in])
def test_a_hook_that_comes_later(ranks, register):
    assert ranks(2, on_and_off, hooked_late, register, fresh=True) == [(3, 3)] * 2


def interrupted(to_none):
    """An exception in the middle of a backward pass; the next ones are as ever."""
    model = make()
    optimizer, seen = optimizer_of(model), []

    def raises(gradient):
        raise KeyError("in the middle")

    for step in range(9):
        optimizer.zero_grad(set_to_none=to_none)
        if step == 5:
            handle = model.module.layers[0].weight.register_hook(raises)
            with pytest.raises(KeyError):
                loss_of(model, step).backward()
            handle.remove()
            dist.barrier()
            model = DDP(model.module, bucket_cap_mb=0.2)  # the old one's reducer waits for the rest of its pass
            optimizer = optimizer_of(model)
            continue
        loss_of(model, step).backward()
        seen += values(gradients_of(model))
        optimizer.step()
    return seen, moved(model)


@pytest.mark.parametrize("to_none", [False, True])
def test_an_exception_in_a_backward_pass(ranks, to_none):
    ranks(2, on_and_off, interrupted, to_none)


def in_a_child(model, work):
    """What it writes; the process must end well."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writes, repr(work(model)).encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writes)
    with os.fdopen(reads, "rb") as file:
        text = file.read().decode()
    assert os.waitpid(child, 0)[1] == 0
    return text


def look_and_change(model):
    before = [gradient.double().sum().item() for gradient in gradients_of(model)]
    for gradient in gradients_of(model):
        gradient.zero_()
    try:
        loss_of(model, 0).backward()
    except lockstep.Forked as error:
        return before, type(error).__name__
    return before, "no error"


def forked(options, to_none):
    model = make(**options)
    seen = steps(model, to_none)
    expected = [gradient.double().sum().item() for gradient in gradients_of(model)]
    text = in_a_child(model, look_and_change)
    assert text == repr((expected, "Forked")), text
    return seen + values(gradients_of(model)) + steps(model, to_none), moved(model)


@pytest.mark.parametrize("to_none", [False, True])
@pytest.mark.parametrize("kind", ["plain", "views", "unused"])
def test_a_forked_child_has_gradients_of_its_own(ranks, kind, to_none):
    """A child has no memory of ls_alloc, and gets copies; a backward pass in it is refused, and no crash."""
    ranks(2, on_and_off, forked, KINDS[kind][0], to_none)


def outlive(path):
    rank, size = int(os.environ["TEST_RANK"]), int(os.environ["TEST_SIZE"])
    dist.init_process_group("lockstep", init_method=f"file://{path}", rank=rank, world_size=size)
    model = make()
    steps(model)
    counts, before = moved(model), values(gradients_of(model))
    dist.destroy_process_group()
    same(gradients_of(model), before)
    model.zero_grad(set_to_none=False)
    model.module(torch.ones(2, WIDTH)).sum().backward()
    del model
    gc.collect()
    return counts


def test_gradients_outlive_the_group(ranks, tmp_path, capfd):
    assert ranks(2, outlive, str(tmp_path / "store"), backend=None) == [(3, 3)] * 2
    assert "LS-" not in capfd.readouterr().err


def survive():
    model = make()
    seen = steps(model)
    if dist.get_rank() == 1:
        os._exit(3)
    with pytest.raises(lockstep.PeerLost):
        loss_of(model, 9).backward()
    same(values(gradients_of(model)), gradients_of(model))
    model.zero_grad(set_to_none=False)
    return len(seen), moved(model)


def test_gradients_outlive_a_peer(ranks):
    survivor, dead = ranks.outcomes(2, survive, fresh=True)
    assert survivor.value == (STEPS * 7 + 6, (3, 3)) and dead.exitcode == 3


# ---- the setting ----


def set_by_rank():
    """Each rank decides for itself."""
    os.environ["LOCKSTEP_BUCKETS"] = str(dist.get_rank() % 2)
    try:
        model = make()
        seen = steps(model)
    finally:
        os.environ["LOCKSTEP_BUCKETS"] = "1"
    plain = on_and_off(train_one, {}, True, {})
    return seen, moved(model), plain


def test_ranks_that_differ(ranks):
    (one, none, _), (other, both, _), (third, again, _) = ranks(3, set_by_rank)
    assert none == again == (0, 0) and both == (3, 3)
    same(one[-6:], other[-6:])
    same(one[-6:], third[-6:])


def told(level):
    os.environ["LOCKSTEP_LOG"], _buckets._told = level, False
    try:
        for _ in range(2):
            steps(make())
    finally:
        del os.environ["LOCKSTEP_LOG"]
    return moved


@pytest.mark.parametrize("level, times", [("info", 1), ("warn", 0)])
def test_it_is_said_once(ranks, level, times):
    ranks(2, told, level)
    assert [text.count("[LS-BUCKETS-MOVED]") for text in ranks.written] == [times, 0]
