# SPDX-License-Identifier: BSD-3-Clause
"""Functional collectives, eager and compiled, and functions of torch.distributed in compiled code."""

import os
import sys
import types

import lockstep.torch
import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel as DDP

from training import WIDTH, Model, seeded, state, train


def mine(count=12):
    return torch.arange(float(count)) + dist.get_rank()


def permutation():
    size = dist.get_world_size()
    return [(rank + 1) % size for rank in range(size)]


CALLS = {
    "all_reduce": lambda g: functional.all_reduce(mine(), "sum", g),
    "all_reduce_avg": lambda g: functional.all_reduce(mine(), "avg", g),
    "all_reduce_max": lambda g: functional.all_reduce(mine(), "max", g),
    "all_reduce_coalesced": lambda g: functional.all_reduce_coalesced([mine(), mine(3)], "sum", g),
    "broadcast": lambda g: functional.broadcast(mine(), 1, g),
    "all_gather": lambda g: functional.all_gather_tensor(mine().view(4, 3), 0, g),
    "all_gather_columns": lambda g: functional.all_gather_tensor(mine().view(4, 3), 1, g),
    "all_gather_coalesced": lambda g: functional.all_gather_into_tensor_coalesced([mine(), mine(3)], g),
    "reduce_scatter": lambda g: functional.reduce_scatter_tensor(mine(24), "sum", 0, g),
    "reduce_scatter_columns": lambda g: functional.reduce_scatter_tensor(mine(24).view(2, 12), "sum", 1, g),
    "reduce_scatter_coalesced": lambda g: functional.reduce_scatter_tensor_coalesced(
        [mine(24), mine(12)], "sum", [0, 0], g
    ),
    "all_to_all": lambda g: functional.all_to_all_single(mine(), None, None, g),
    "permute": lambda g: functional.permute_tensor(mine(), permutation(), g),
}


def plain(value):
    return functional.wait_tensor(value).clone() if isinstance(value, torch.Tensor) else [plain(v) for v in value]


def eager(name):
    return plain(CALLS[name](dist.group.WORLD))


@pytest.mark.parametrize("name", list(CALLS))
def test_eager(ranks, name):
    if name == "all_reduce_avg":  # gloo has no averages
        assert all(torch.equal(value, torch.arange(12.0) + 0.5) for value in ranks(2, eager, name))
    else:
        ranks.default_both(2, eager, name)


def in_a_group():
    group = dist.new_group([1, 2])
    if dist.get_rank() == 0:
        return None
    return plain([functional.all_reduce(mine(), "sum", group), functional.all_gather_tensor(mine(), 0, group)])


def test_in_a_group_of_some_ranks(ranks):
    ranks.default_both(3, in_a_group)


def all_gather_out():
    size = dist.get_world_size()
    out = torch.zeros(12 * size)
    name = dist.group.WORLD.group_name
    result = torch.ops._c10d_functional.all_gather_into_tensor_out(mine(), size, name, out=out)
    torch.ops._c10d_functional.wait_tensor(result)
    return out


def test_all_gather_into_a_given_tensor(ranks):
    ranks.default_both(2, all_gather_out)


# ---- compiled ----


def compiled(function, *args):
    torch._dynamo.reset()
    return torch.compile(function, backend="aot_eager", fullgraph=True)(*args)


def functional_graph(x, y):
    group = dist.group.WORLD
    total = functional.all_reduce(x * 2, "sum", group)
    gathered = functional.all_gather_tensor(y, 0, group)
    part = functional.reduce_scatter_tensor(gathered * 3, "sum", 0, group)
    return total + 1, gathered + part.sum(), functional.all_to_all_single(x, None, None, group)


def compiled_functional():
    return compiled(functional_graph, mine(), mine(4))


def test_compiled_functional_collectives(ranks):
    ranks.default_both(2, compiled_functional)


def dist_graph(x):
    dist.all_reduce(x)
    out = torch.zeros(2 * x.numel())
    dist.all_gather_into_tensor(out, x + 1)
    part = torch.zeros_like(x)
    dist.reduce_scatter_tensor(part, out)
    swapped = torch.zeros_like(x)
    dist.all_to_all_single(swapped, part + dist.get_rank())
    return x + part, swapped


def compiled_dist():
    return compiled(dist_graph, mine())


def test_compiled_functions_of_torch_distributed(ranks):
    ranks.default_both(2, compiled_dist)


def asynchronous_graph(x):
    work = dist.all_reduce(x, async_op=True)
    y = torch.ones(3) * 2
    work.wait()
    return x.sum() + y


def compiled_asynchronous():
    torch._dynamo.reset()
    return torch.compile(asynchronous_graph, backend="aot_eager")(mine())


def test_compiled_asynchronous_operations(ranks):
    ranks.default_both(2, compiled_asynchronous)


def compiled_ddp():
    torch._dynamo.reset()
    model = torch.compile(DDP(seeded(Model)), backend="aot_eager")
    losses = train(model)
    return losses, state(model)


def test_compiled_ddp(ranks):
    ranks.default_both(2, compiled_ddp, tolerance=1e-5)


def code_of_the_package():
    """Of all its functions and methods."""
    folder = os.path.dirname(lockstep.__file__)
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] != "lockstep":
            continue
        things = list(vars(module).values())
        things += [thing for kind in things if isinstance(kind, type) for thing in vars(kind).values()]
        codes = (thing.__code__ for thing in things if isinstance(thing, types.FunctionType))
        yield from (code for code in codes if code.co_filename.startswith(folder))


def compiled_of_the_package():
    seen = {code for code in code_of_the_package() if _debug_get_cache_entry_list(code)}
    return sorted(f"{code.co_filename}: {code.co_name}" for code in seen)


def compiled_step(buckets):
    """The compiler sees also what PyTorch calls within: hooks of the model, of its buckets, of the optimizer."""
    torch._dynamo.reset()
    model = DDP(seeded(Model))
    if buckets == "of a hook":
        model.register_comm_hook(lockstep.torch.MappedBuckets(), lockstep.torch.mapped_buckets)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    @torch.compile(backend="eager")
    def step(batch):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

    for _ in range(4):
        step(torch.ones(2, WIDTH))
    model.eval()
    with torch.no_grad():
        torch.compile(model, backend="eager")(torch.ones(2, WIDTH))
    return compiled_of_the_package()


@pytest.mark.parametrize("buckets", ["plain", "of a hook", "mapped"])
def test_what_the_package_does_is_not_compiled(ranks, buckets):
    with ranks.setting(LOCKSTEP_DDP="mapped" if buckets == "mapped" else "plain"):
        assert ranks(2, compiled_step, buckets) == [[], []]


def in_a_phase(x):
    with lockstep.torch.phase("compiled"):
        y = x + 1
    return y * 2


def with_memory(x):
    lockstep.torch.share(x)
    return lockstep.torch.zeros(2) + lockstep.torch.tensor([1.0, 2.0]) + lockstep.torch.empty_like(x).fill_(1) + x


def compiled_calls_of_the_package():
    torch._dynamo.reset()
    results = [torch.compile(call, backend="eager")(torch.ones(2)) for call in (in_a_phase, with_memory)]
    report = torch.compile(lambda: lockstep.torch.phase_report(), backend="eager")()
    return results, "compiled" in report, compiled_of_the_package()


def test_what_users_call_of_the_package_in_compiled_code(ranks):
    for results, is_reported, seen in ranks(2, compiled_calls_of_the_package, fresh=True):
        assert [result.tolist() for result in results] == [[4.0, 4.0], [3.0, 4.0]] and is_reported
        assert seen == []


# ---- differentiable ----


def gradients():
    leaf = mine().requires_grad_()
    total = differentiable.all_reduce(leaf * 2)
    gathered = differentiable.all_gather(leaf)
    (total.sum() + sum((part * (i + 1)).sum() for i, part in enumerate(gathered))).backward()
    return total.detach(), leaf.grad


def test_differentiable_collectives(ranks):
    ranks.default_both(2, gradients)


def functional_gradients():
    leaf = mine().requires_grad_()
    gathered = functional.all_gather_tensor_autograd(leaf, 0, dist.group.WORLD)
    part = functional.reduce_scatter_tensor_autograd(gathered * 2, "sum", 0, dist.group.WORLD)
    exchanged = functional.all_to_all_single_autograd(part, None, None, dist.group.WORLD)
    (exchanged * mine()).sum().backward()
    return leaf.grad


def test_differentiable_functional_collectives(ranks):
    ranks.default_both(2, functional_gradients)


WITH_RESULTS = {
    "all_reduce": lambda tensor, group: dist.all_reduce(tensor, group=group),
    "max": lambda tensor, group: dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group),
    "broadcast": lambda tensor, group: dist.broadcast(tensor, 1, group=group),
    "all_gather": lambda tensor, group: dist.all_gather([torch.zeros(4) for _ in range(2)], tensor, group=group),
    "reduce_scatter": lambda tensor, group: dist.reduce_scatter_single(torch.zeros(2), tensor, group=group),
}


def called_with_a_result(group, call):
    """One that nobody has waited for."""
    result = functional.all_reduce(torch.arange(4.0) + dist.get_rank(group), "sum", group)
    assert isinstance(result, functional.AsyncCollectiveTensor)
    WITH_RESULTS[call](result, group)
    return result + 0


@pytest.mark.parametrize("call", list(WITH_RESULTS))
def test_calls_with_results_of_functional_collectives(ranks, call):
    ranks.both(2, called_with_a_result, call)


WITH_LISTS = {
    "all_gather": lambda results, plain, group: dist.all_gather(results, plain[0], group=group),
    "reduce_scatter": lambda results, plain, group: dist.reduce_scatter(plain[0], results, group=group),
    "gather": lambda results, plain, group: dist.gather(
        plain[0], results if dist.get_rank(group) == 0 else None, group_dst=0, group=group
    ),
    "scatter": lambda results, plain, group: dist.scatter(
        plain[0], results if dist.get_rank(group) == 0 else None, group_src=0, group=group
    ),
    "all_to_all": lambda results, plain, group: dist.all_to_all(plain, results, group=group),
    "all_to_all into them": lambda results, plain, group: dist.all_to_all(results, plain, group=group),
}


def called_with_a_list(group, call):
    """Of results that nobody has waited for; gloo takes no such list."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    plain = [torch.arange(4.0) * (rank + 1) + 10 * i for i in range(size)]
    results = [functional.all_reduce(tensor, "sum", group) for tensor in plain]
    if dist.get_backend(group) == "gloo":
        results = [functional.wait_tensor(result).clone() for result in results]
    WITH_LISTS[call](results, plain, group)
    return [tensor + 0 for tensor in [*results, *plain]]


@pytest.mark.parametrize("call", list(WITH_LISTS))
def test_calls_with_lists_of_results_of_functional_collectives(ranks, call):
    ranks.both(2, called_with_a_list, call)


def called_with_a_dtensor():
    tensor = distribute_tensor(torch.ones(4), init_device_mesh("cpu", (2,)), [Shard(0)])
    with pytest.raises(lockstep.Unsupported, match="DTensor.*to_local"):
        dist.all_reduce(tensor)


def test_dtensors_are_refused(ranks):
    ranks(2, called_with_a_dtensor, fresh=True)
