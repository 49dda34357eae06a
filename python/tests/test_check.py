# SPDX-License-Identifier: BSD-3-Clause
"""LOCKSTEP_CHECK=1: the usual mistake, a tensor that is changed while its operation is under way, is told with the
lines of the call and of the wait; and what makes no mistake gets the same results as ever."""

import json
import os
import subprocess
import sys

import processes
import pytest

LIMIT_S = 120

HEAD = """
import json, os, sys
import torch, torch.distributed as dist
import lockstep, lockstep.torch
from lockstep.torch._group import ProcessGroup

rank, path = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("lockstep", init_method=f"file://{path}", rank=rank, world_size=2)
result = {}


def told(name, function, *args):
    try:
        function(*args)
        result[name] = None
    except Exception as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        result[name] = {"text": str(error), "kinds": kinds, "status": getattr(error, "status", None)}
"""
END = """
dist.destroy_process_group()
print("RESULT", json.dumps(result))
"""

MISTAKES = """
def change(tensor):
    if rank == 1:
        tensor[5] = 7


def all_reduce():
    tensor = torch.ones(8)
    result["address"] = hex(tensor.data_ptr())
    work = dist.all_reduce(tensor, async_op=True)  # mark: call
    change(tensor)
    try:
        work.wait()  # mark: wait
    finally:
        result["left alone"] = tensor.tolist()


def again():
    tensor = torch.ones(8)
    work = dist.all_reduce(tensor, async_op=True)
    change(tensor)
    told("first wait", work.wait)
    work.wait()


def future():
    tensor = torch.ones(8)
    work = dist.all_reduce(tensor, async_op=True)
    change(tensor)
    future = work.get_future()
    told("future", future.wait)
    told("then", future.then(lambda done: done.value()).wait)
    work.wait()


def found_over():
    tensor = torch.ones(8)
    work = dist.all_reduce(tensor, async_op=True)
    change(tensor)
    while not work.is_completed():  # mark: found
        pass
    result["success"] = [work.is_success(), type(work.exception()).__name__]
    work.wait()


def isend():
    tensor, other = torch.arange(8.0), torch.empty(8)
    works = [dist.isend(tensor, 1 - rank), dist.irecv(other, 1 - rank)]
    change(tensor)
    works[1].wait()
    result["received"] = other.tolist()
    works[0].wait()


def irecv():
    tensor = torch.zeros(8)
    works = [dist.irecv(tensor, 1 - rank), dist.isend(torch.ones(8), 1 - rank)]
    change(tensor)
    for work in works:
        work.wait()


def long():
    tensor = torch.ones(1 << 20)
    work = dist.isend(tensor, 1 - rank)
    change(tensor)
    dist.recv(torch.empty(1 << 20), 1 - rank)
    work.wait()


def output():
    tensor = torch.zeros(16)
    work = dist.all_gather_into_tensor(tensor, torch.ones(8), async_op=True)
    change(tensor)
    work.wait()


def parts():
    parts = list(torch.zeros(16).chunk(2))
    work = dist.all_gather(parts, torch.ones(8), async_op=True)
    change(parts[1])
    work.wait()


def given_back():
    tensor = torch.ones(8)
    work = dist.all_reduce(tensor, async_op=True)
    if rank == 1:
        tensor.untyped_storage().resize_(0)
    work.wait()


def coalesced():
    tensors = [torch.ones(8), torch.ones(8)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    change(tensors[1])
    manager.wait()


def short():
    tensor = torch.ones(8)
    work = dist.group.WORLD.allreduce(tensor)
    change(tensor)
    work.wait()


def short_parts():
    parts = list(torch.zeros(16).chunk(2))
    work = dist.group.WORLD.allgather(parts, torch.ones(8))
    change(parts[1])
    work.wait()


def freed():
    tensor = torch.ones(8)
    tensor.untyped_storage().resize_(0)
    dist.all_reduce(tensor, async_op=True)


for mistake in (
    all_reduce, again, future, found_over, isend, irecv, long, output, parts, given_back, coalesced, short, short_parts,
    freed
):
    told(mistake.__name__, mistake)
dist.barrier()  # nothing is broken
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
loss = model(torch.ones(2, 4)).sum()
next(model.parameters()).register_hook(lambda gradient: None)
loss.backward()
"""

RIGHT = """
result["class"] = type(dist.group.WORLD).__name__


def results(async_op):
    found = []

    def over(work, *tensors):
        if async_op:
            work.wait()
        found.extend(tensors)

    for tensor in (
        torch.arange(6.0) + rank,
        torch.tensor([float("nan"), 1.0]),
        torch.tensor(3.5),
        torch.empty(0),
        (torch.arange(12.0) + rank).view(3, 4).t(),
        torch.ones(4, 2, dtype=torch.int64)[:, 1],
        torch.ones(3, dtype=torch.bfloat16),
        torch.tensor([1 + 2j, 3j]),
    ):
        over(dist.all_reduce(tensor, async_op=async_op), tensor)
    flag = torch.tensor([rank == 0, True])
    over(dist.broadcast(flag, 1, async_op=async_op), flag)
    one, both = torch.arange(4.0) + rank, torch.zeros(8)
    over(dist.all_gather_into_tensor(both, one, async_op=async_op), both)
    own = torch.zeros(8)
    own[4 * rank : 4 * rank + 4] = 1 + rank  # in its place
    over(dist.all_gather_into_tensor(own, own[4 * rank : 4 * rank + 4], async_op=async_op), own)
    over(dist.reduce_scatter_tensor(one, both, async_op=async_op), one)
    over(dist.all_to_all_single(both, own, [4, 4], [4, 4], async_op=async_op), both)
    uneven = [torch.zeros(i + 1) for i in range(2)]
    over(dist.all_gather(uneven, torch.ones(rank + 1), async_op=async_op), *uneven)
    part = torch.zeros(rank + 1)
    over(dist.reduce_scatter(part, uneven, async_op=async_op), part)
    lists = [torch.zeros(2), torch.zeros(2)]
    over(dist.all_to_all(lists, [torch.ones(2) * rank, torch.ones(2)], async_op=async_op), *lists)
    over(dist.reduce(one, 0, async_op=async_op), one if rank == 0 else torch.ones(1))
    parts = [torch.zeros(4), torch.zeros(4)]
    over(dist.gather(one, parts if rank == 0 else None, async_op=async_op), *parts)
    over(dist.scatter(one, [both[:4].clone(), both[4:].clone()] if rank == 0 else None, async_op=async_op), one)
    sparse = torch.eye(3).to_sparse()
    over(dist.all_reduce(sparse, async_op=async_op))
    return [*found, sparse.to_dense()]


torch.manual_seed(1)
for ours, theirs in zip(results(True), results(False)):
    assert ours.dtype == theirs.dtype and torch.equal(ours.nan_to_num(), theirs.nan_to_num()), (ours, theirs)

tensor = torch.ones(2)
work = dist.all_reduce(tensor, async_op=True)
dist.barrier()
assert tensor.tolist() == [1, 1]  # not before the wait, whatever the others do
assert work.get_future().wait()[0] is tensor and tensor.tolist() == [2, 2]
assert work.result()[0] is tensor

many = [torch.ones(3), torch.ones(5)]
dist.all_reduce_coalesced(many, async_op=True).wait()
assert all(tensor.eq(2).all() for tensor in many)

target = torch.empty(3, requires_grad=True)
with torch.no_grad():
    sent = torch.ones(3)
    peer = 1 - rank
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, peer), dist.P2POp(dist.irecv, target, peer)]):
        work.wait()
assert target.tolist() == [1, 1, 1]
dist.recv(sent, None) if rank == 0 else dist.send(sent * 5, 0)
assert sent.tolist() == ([5, 5, 5] if rank == 0 else [1, 1, 1])

torch.manual_seed(2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 300), torch.nn.Linear(300, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3):
    optimizer.zero_grad()
    loss = model(torch.full((2, 4), float(rank + step))).square().mean()
    loss.backward()
    optimizer.step()
result["weights"] = float(sum(parameter.double().sum() for parameter in model.parameters()))

mapped = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4), gradient_as_bucket_view=True)
mapped.register_comm_hook(lockstep.torch.MappedBuckets(), lockstep.torch.mapped_buckets)
mapped(torch.ones(2, 4) * (1 + rank)).sum().backward()
result["gradients"] = float(mapped.module.weight.grad.sum())

number = torch.tensor(1.0 + rank)
dist.group.WORLD.allreduce(number).wait()
assert number.item() == 3

work = dist.all_reduce(torch.ones(8 + rank), async_op=True)
told("mismatch", work.wait)
"""


def run(place, body, **environment):
    (place / "job.py").write_text(HEAD + body + END)
    env = processes.environment(**environment)
    store = place / f"store-{len(os.listdir(place))}"
    jobs = [
        processes.popen(
            [sys.executable, str(place / "job.py"), str(rank), str(store)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [job.communicate(timeout=LIMIT_S) for job in jobs]
    finally:
        for job in jobs:
            job.kill()
    assert all("RESULT" in output for output, _ in outputs), "\n".join(errors for _, errors in outputs)
    return [json.loads(output.split("RESULT", 1)[1]) for output, _ in outputs]


@pytest.fixture(scope="module")
def mistakes(tmp_path_factory):
    return run(tmp_path_factory.mktemp("check"), MISTAKES, LOCKSTEP_CHECK="1")


def line(mark):
    lines = (HEAD + MISTAKES).splitlines()
    return f"job.py:{1 + next(i for i, text in enumerate(lines) if text.endswith(f'# mark: {mark}'))}"


def test_a_tensor_changed_while_its_all_reduce_is_under_way(mistakes):
    innocent, culprit = mistakes
    assert innocent["all_reduce"] is None and innocent["left alone"] == [2] * 8
    assert culprit["left alone"] == [1] * 5 + [7, 1, 1]
    told = culprit["all_reduce"]
    assert {"BadArgument", "CallError", "Error", "ValueError", "DistBackendError"} <= set(told["kinds"])
    assert told["status"] == "BAD_ARGUMENT"
    text = told["text"]
    assert f"the tensor at {culprit['address']} (float32, 8) was changed while all_reduce was under way" in text
    assert "its element 5 (of 8) is not what it was" in text
    assert f"called from {line('call')} (all_reduce)" in text
    assert f"seen at {line('wait')} (all_reduce)" in text


def test_it_is_told_each_time_and_everywhere(mistakes):
    innocent, culprit = mistakes
    for name in ("again", "first wait", "future", "then", "found_over"):
        assert innocent[name] is None, name
        assert "its element 5 (of 8) is not what it was" in culprit[name]["text"], name
    assert innocent["success"] == [True, "NoneType"] and culprit["success"] == [False, "BadArgument"]
    assert f"seen at {line('found')} (found_over)" in culprit["found_over"]["text"]


def test_messages(mistakes):
    for told in mistakes:
        assert told["received"] == list(range(8))  # what was sent, whatever became of it
    innocent, culprit = mistakes
    for name, call in (("isend", "send"), ("long", "send"), ("irecv", "recv")):
        assert innocent[name] is None
        assert f"was changed while {call} was under way: its element 5" in culprit[name]["text"], name


def test_other_calls(mistakes):
    innocent, culprit = mistakes
    calls = {"output": "all_gather_into_tensor", "parts": "all_gather", "coalesced": "all_reduce"}
    for name, call in {**calls, "short": "all_reduce", "short_parts": "all_gather"}.items():
        assert innocent[name] is None
        assert f"was changed while {call}" in culprit[name]["text"], name
    assert innocent["given_back"] is None
    assert "its memory was given back" in culprit["given_back"]["text"]


def test_a_tensor_that_has_no_memory(mistakes):
    for told in mistakes:
        assert {"BadArgument"} <= set(told["freed"]["kinds"])


def test_what_makes_no_mistake(tmp_path):
    checked = run(tmp_path, RIGHT, LOCKSTEP_CHECK="1")
    plain = run(tmp_path, RIGHT.replace("assert tensor.tolist() == [1, 1]", ""), LOCKSTEP_CHECK="0")
    for ours, theirs in zip(checked, plain):
        assert (ours["class"], theirs["class"]) == ("CheckedGroup", "ProcessGroup")
        assert (ours["weights"], ours["gradients"]) == (theirs["weights"], theirs["gradients"])
        assert "Mismatch" in ours["mismatch"]["kinds"] and "called from job.py" in ours["mismatch"]["text"]


def test_a_value_that_is_none(tmp_path):
    (tmp_path / "job.py").write_text(HEAD.replace("world_size=2", "world_size=1") + END)
    command = [sys.executable, str(tmp_path / "job.py"), "0", str(tmp_path / "store")]
    ended = processes.run(command, LOCKSTEP_CHECK="2")
    assert ended.code == 1 and "LOCKSTEP_CHECK is '2'" in ended.text
