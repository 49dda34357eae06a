# SPDX-License-Identifier: BSD-3-Clause
"""Errors on their way through PyTorch: whatever waits for an operation gets the report, and no process crashes."""

import os
import signal

import lockstep
import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel as DDP

from training import Model, loss_of, seeded

HERE = os.path.basename(__file__)


class Plain(Model):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.Identity()


def killed_or(call, first=True):
    """Rank 1 is gone before rank 0 calls; `first`: both have done it once together."""
    if first:
        call()
    dist.barrier()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    call()


def by_work():
    killed_or(lambda: dist.all_reduce(torch.ones(3), async_op=True).wait())


def by_functional():
    killed_or(lambda: functional.wait_tensor(functional.all_reduce(torch.ones(3), "sum", dist.group.WORLD)) + 1)


def by_functional_gather():
    killed_or(lambda: functional.all_gather_tensor(torch.ones(3), 0, dist.group.WORLD) + 1)


def by_future():
    killed_or(lambda: dist.all_reduce(torch.ones(3), async_op=True).get_future().wait())


def by_chained_future():
    def call():
        future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
        future.then(lambda f: f.value()[0] + 1).wait()

    killed_or(call)


def by_backward():
    model = DDP(seeded(Plain))
    killed_or(lambda: loss_of(model, 0).backward())


def by_backward_with_a_hook():
    def hook(state, bucket):
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0])

    model = DDP(seeded(Plain), bucket_cap_mb=0.001)
    model.register_comm_hook(None, hook)
    killed_or(lambda: loss_of(model, 0).backward())


def by_fsdp():
    model = fully_shard(seeded(Plain))
    killed_or(lambda: loss_of(model, 0).backward())


def by_dtensor():
    mesh = init_device_mesh("cpu", (2,))
    tensor = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
    killed_or(lambda: tensor.full_tensor() + 1)


def by_compiled_functional():
    graph = torch.compile(
        lambda x: functional.all_reduce(x, "sum", dist.group.WORLD) + 1, backend="aot_eager", fullgraph=True
    )
    killed_or(lambda: graph(torch.ones(3)))


def by_compiled_call():
    def function(x):
        dist.all_reduce(x)
        return x + 1

    graph = torch.compile(function, backend="aot_eager")
    killed_or(lambda: graph(torch.ones(3)))


def by_object():
    killed_or(lambda: dist.broadcast_object_list([1], src=1))


def by_barrier():
    killed_or(lambda: dist.group.WORLD.monitored_barrier())


# PyTorch makes a RuntimeError of what comes through a future of its own; else the class stays. The backward pass of
# DistributedDataParallel would wait for such futures, if the package had not waited for the operations before.
INTACT = [by_work, by_functional, by_functional_gather, by_fsdp, by_dtensor, by_compiled_functional]
INTACT += [by_compiled_call, by_object, by_barrier, by_backward, by_backward_with_a_hook]
TEXT = [by_future, by_chained_future]


@pytest.mark.parametrize("function", INTACT + TEXT)
def test_death_of_a_rank(ranks, function):
    first, second = ranks.outcomes(2, function, fresh=True)
    assert second.exitcode == -9
    assert first.exitcode is None, f"rank 0 ended with {first.exitcode}\n{ranks.written[0]}"
    if function in INTACT:
        assert isinstance(first.error, lockstep.PeerDied), first.trace
        assert first.error.rank == 1
    else:
        assert isinstance(first.error, RuntimeError) and "PeerDied" in str(first.error), first.trace
    assert "rank 1" in str(first.error) and ".py:" in str(first.error), first.trace


def mismatched(how):
    """Rank 1 has a model of another shape, so that gradients do not fit; or calls something else."""
    if how == "backward":
        model = DDP(seeded(Plain), init_sync=False)
        if dist.get_rank() == 1:
            dist.all_reduce(torch.ones(5))
        loss_of(model, 0).backward()
    elif how == "functional":
        tensor = functional.all_reduce(torch.ones(3 + dist.get_rank()), "sum", dist.group.WORLD)
        functional.wait_tensor(tensor)
    else:
        dist.all_gather_object([None, None], dist.get_rank()) if dist.get_rank() == 0 else dist.barrier()
    dist.barrier()
    dist.barrier()


@pytest.mark.parametrize("how", ["backward", "functional", "object"])
def test_mismatch(ranks, how):
    for outcome in ranks.outcomes(2, mismatched, how, fresh=True):
        assert outcome.exitcode is None and outcome.error is not None
        assert "mismatch" in str(outcome.error) and f"{HERE}:" in str(outcome.error), outcome.trace
        assert isinstance(outcome.error, lockstep.Mismatch) or how == "backward", outcome.trace


def attached():
    """Several callbacks on a future that fails: each sees the error, and one of them alone is no crash."""
    if dist.get_rank() == 1:
        dist.distributed_c10d._get_default_store().wait(["attached"])
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(torch.ones(3), async_op=True)
    future = work.get_future()
    seen = []
    future.add_done_callback(lambda f: seen.append("done"))
    chained = [future.then(lambda f: f.value()) for _ in range(3)]
    dist.distributed_c10d._get_default_store().set("attached", "1")
    for one in [future, *chained]:
        try:
            one.wait()
        except Exception as error:
            seen.append("PeerDied" in str(error))
    try:
        work.wait()
    except lockstep.PeerDied:
        seen.append("work")
    return seen, work.is_success(), type(work.exception()).__name__


def test_futures_that_fail(ranks):
    first, _ = ranks.outcomes(2, attached, fresh=True)
    assert not first.failed, first.trace
    seen, success, name = first.value
    assert sorted(map(str, seen)) == sorted(["done", "True", "True", "True", "True", "work"])
    assert (success, name) == (False, "PeerDied")
