# SPDX-License-Identifier: BSD-3-Clause
"""torch.profiler shows each call and each wait, and nothing is added while it does not run."""

import subprocess
import sys

import processes
import pytest

LIMIT_S = 120

JOB = """
import json, sys
import torch, torch.distributed as dist
from torch.profiler import ProfilerActivity, profile
import lockstep.torch

rank, path = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("lockstep", init_method=f"file://{path}", rank=rank, world_size=2)
result = {}


def shown(name, function):
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        function()
    events = [event for event in profiler.events() if event.name.startswith("lockstep:")]
    result[name] = [(event.name, event.time_range.start, event.time_range.end) for event in events]


def blocking():
    one, both = torch.ones(4), torch.ones(8)
    lists = [torch.ones(4), torch.ones(4)]
    dist.all_reduce(one)
    dist.broadcast(one, 0)
    dist.reduce(one, 0)
    dist.all_gather_into_tensor(both, one)
    dist.all_gather(lists, one)
    dist.reduce_scatter_tensor(one, both)
    dist.reduce_scatter(one, lists)
    dist.all_to_all_single(one, one.clone())
    dist.all_to_all(lists, [torch.ones(4), torch.ones(4)])
    dist.gather(one, lists if rank == 0 else None)
    dist.scatter(one, lists if rank == 0 else None)
    dist.barrier()


def beside():
    work = dist.all_reduce(torch.ones(4), async_op=True)
    torch.ones(10).sum()
    work.wait()


def messages():
    works = [dist.isend(torch.ones(4), 1 - rank), dist.irecv(torch.ones(4), 1 - rank)]
    for work in works:
        work.wait()


def wrong():
    try:
        dist.all_gather_into_tensor(torch.ones(3), torch.ones(4))
    except ValueError:
        pass
    try:
        dist.all_to_all_single(torch.ones(4), torch.ones(4), [1, 2], [3, 4])
    except ValueError:
        pass
    dist.barrier()


unprofiled = dist.all_reduce(torch.ones(4), async_op=True)
shown("later", unprofiled.wait)
shown("blocking", blocking)
shown("beside", beside)
shown("messages", messages)
shown("wrong", wrong)
shown("sparse", lambda: dist.all_reduce(torch.eye(3).to_sparse()))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
shown("model", lambda: model(torch.ones(2, 4)).sum().backward())
result["without"] = dist.all_reduce(torch.ones(4), async_op=True).call
dist.barrier()
dist.destroy_process_group()
print("RESULT", json.dumps(result))
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What each rank's profiler has seen: {case: [(name, begin, end)]}."""
    import json

    place = tmp_path_factory.mktemp("profile")
    (place / "job.py").write_text(JOB)
    command = [sys.executable, str(place / "job.py")]
    jobs = [
        processes.popen([*command, str(rank), str(place / "store")], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        outputs = [job.communicate(timeout=LIMIT_S)[0] for job in jobs]
    finally:
        for job in jobs:
            job.kill()
    return [json.loads(output.split("RESULT", 1)[1]) for output in outputs]


def names(seen):
    return [name for name, *_ in seen]


def test_blocking_calls(shown):
    expected = (
        "all_reduce broadcast reduce all_gather_into_tensor all_gather reduce_scatter_tensor reduce_scatter "
        "all_to_all_single all_to_all gather scatter barrier"
    ).split()
    for seen in shown:
        assert names(seen["blocking"]) == [f"lockstep:{name}" for name in expected]
        ranges = seen["blocking"]
        assert all(one[1] < one[2] <= after[1] for one, after in zip(ranges, ranges[1:])), ranges


def test_asynchronous_calls(shown):
    for seen in shown:
        submission, wait = seen["beside"]
        assert (submission[0], wait[0]) == ("lockstep:all_reduce", "lockstep:all_reduce (wait)")
        assert submission[2] <= wait[1]
        assert names(seen["later"]) == ["lockstep:operation (wait)"]


def test_messages(shown):
    for seen in shown:
        expected = ["lockstep:send", "lockstep:recv", "lockstep:send (wait)", "lockstep:recv (wait)"]
        assert names(seen["messages"]) == expected


def test_calls_that_fail(shown):
    """The range of a call that raises ends before the next one begins."""
    for seen in shown:
        assert names(seen["wrong"])[-1] == "lockstep:barrier"
        assert all(one[2] <= seen["wrong"][-1][1] for one in seen["wrong"][:-1])


def test_sparse_tensors_and_models(shown):
    for seen in shown:
        assert names(seen["sparse"]) == ["lockstep:all_reduce"] * 2
        # The bucket may be over before backward waits for it.
        assert names(seen["model"]) in (["lockstep:all_reduce"], ["lockstep:all_reduce", "lockstep:all_reduce (wait)"])


def test_nothing_without_a_profiler(shown):
    for seen in shown:
        assert seen["without"] is None
