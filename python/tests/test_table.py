# SPDX-License-Identifier: BSD-3-Clause
"""Every public function of torch.distributed that communicates, called once; what came of it is a table in
doc/torch.md, which --write-docs writes and this test compares."""

import pathlib

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable

PAGE = pathlib.Path(__file__).parents[2] / "doc" / "torch.md"
BEGIN = "<!-- begin: written by pytest --write-docs -->"
END = "<!-- end: written by pytest --write-docs -->"


def ones(count=4):
    return torch.ones(count)


def lists(count=4):
    return [torch.zeros(count) for _ in range(2)]


def peer():
    return 1 - dist.get_rank()


def root(value):
    return value if dist.get_rank() == 0 else None


def one_way(send, receive):
    return send() if dist.get_rank() == 0 else receive()


def both_ways(*calls):
    for work in [call() for call in calls]:
        work.wait()


def batched():
    operations = [dist.P2POp(dist.isend, ones(), peer()), dist.P2POp(dist.irecv, ones(), peer())]
    both_ways(*[lambda work=work: work for work in dist.batch_isend_irecv(operations)])


def points():
    group = dist.group.WORLD
    received = torch.zeros(4)
    work = functional.irecv_inplace(received, peer(), 0, group)
    functional.isend_inplace(ones(), peer(), 0, group)
    return functional.wait_tensor(work)


DISTRIBUTED = {
    "all_gather": lambda: dist.all_gather(lists(), ones()),
    "all_gather_coalesced": lambda: dist.all_gather_coalesced([[t] for t in lists()], [ones()]),
    "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(ones(8), ones()),
    "all_gather_object": lambda: dist.all_gather_object([None, None], "x"),
    "all_gather_single": lambda: dist.all_gather_single(ones(8), ones()),
    "all_reduce": lambda: dist.all_reduce(ones()),
    "all_reduce_coalesced": lambda: dist.all_reduce_coalesced([ones(), ones(2)]),
    "all_to_all": lambda: dist.all_to_all(lists(), lists()),
    "all_to_all_single": lambda: dist.all_to_all_single(ones(), ones()),
    "barrier": lambda: dist.barrier(),
    "batch_isend_irecv": batched,
    "broadcast": lambda: dist.broadcast(ones(), 0),
    "broadcast_object_list": lambda: dist.broadcast_object_list(["x"], 0),
    "gather": lambda: dist.gather(ones(), root(lists())),
    "gather_object": lambda: dist.gather_object("x", root([None, None])),
    "irecv": lambda: both_ways(lambda: dist.isend(ones(), peer()), lambda: dist.irecv(ones(), peer())),
    "isend": lambda: both_ways(lambda: dist.irecv(ones(), peer()), lambda: dist.isend(ones(), peer())),
    "monitored_barrier": lambda: dist.monitored_barrier(),
    "new_group": lambda: dist.barrier(dist.new_group()),
    "new_subgroups": lambda: dist.barrier(dist.new_subgroups(1)[0]),
    "new_subgroups_by_enumeration": lambda: dist.barrier(dist.new_subgroups_by_enumeration([[1, 0]])[0]),
    "recv": lambda: one_way(lambda: dist.send(ones(), 1), lambda: dist.recv(ones())),
    "recv_object_list": lambda: one_way(
        lambda: dist.send_object_list(["x"], 1), lambda: dist.recv_object_list([None], 0)
    ),
    "reduce": lambda: dist.reduce(ones(), 0),
    "reduce_scatter": lambda: dist.reduce_scatter(ones(), lists()),
    "reduce_scatter_single": lambda: dist.reduce_scatter_single(ones(), ones(8)),
    "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(ones(), ones(8)),
    "scatter": lambda: dist.scatter(ones(), root(lists())),
    "scatter_object_list": lambda: dist.scatter_object_list([None], root(["x", "y"])),
    "send": lambda: one_way(lambda: dist.send(ones(), 1), lambda: dist.recv(ones(), 0)),
    "send_object_list": lambda: one_way(
        lambda: dist.send_object_list(["x"], 1), lambda: dist.recv_object_list([None], 0)
    ),
    "shrink_group": lambda: dist.shrink_group([1]),
    "split_group": lambda: dist.split_group(split_ranks=[[0, 1]]),
}
# The rest of torch.distributed is types, and functions that tell or set something; making and destroying the default
# group is what every test begins and ends with.
SILENT = """
    AllToAllOptions AllreduceCoalescedOptions AllreduceOptions Backend BackendConfig BarrierOptions BroadcastOptions
    DebugLevel GatherOptions GroupMember GroupName P2POp PrefixStore ProcessGroup ProcessGroupGloo ReduceOp
    ReduceOptions ReduceScatterOptions ScatterOptions Store Work default_pg_timeout destroy_process_group get_backend
    get_backend_config get_debug_level get_default_backend_for_device get_global_rank get_group_rank
    get_node_local_rank get_pg_count get_process_group_ranks get_rank get_world_size group init_process_group
    is_backend_available is_gloo_available is_initialized is_mpi_available is_nccl_available is_torchelastic_launched
    is_ucc_available is_xccl_available record_comm reduce_op supports_complex
""".split()

FUNCTIONAL = {
    "all_gather_single": lambda g: functional.all_gather_single(ones(), 0, g),
    "all_gather_single_coalesced": lambda g: functional.all_gather_single_coalesced([ones()], g),
    "all_gather_tensor": lambda g: functional.all_gather_tensor(ones(), 0, g),
    "all_gather_tensor_autograd": lambda g: functional.all_gather_tensor_autograd(ones(), 0, g),
    "all_gather_into_tensor_coalesced": lambda g: functional.all_gather_into_tensor_coalesced([ones()], g),
    "all_reduce": lambda g: functional.all_reduce(ones(), "sum", g),
    "all_reduce_coalesced": lambda g: functional.all_reduce_coalesced([ones()], "sum", g),
    "all_to_all_single": lambda g: functional.all_to_all_single(ones(), None, None, g),
    "all_to_all_single_autograd": lambda g: functional.all_to_all_single_autograd(ones(), None, None, g),
    "broadcast": lambda g: functional.broadcast(ones(), 0, g),
    "permute_tensor": lambda g: functional.permute_tensor(ones(), [1, 0], g),
    "reduce_scatter_single": lambda g: functional.reduce_scatter_single(ones(8), "sum", 0, g),
    "reduce_scatter_single_coalesced": lambda g: functional.reduce_scatter_single_coalesced([ones(8)], "sum", [0], g),
    "reduce_scatter_tensor": lambda g: functional.reduce_scatter_tensor(ones(8), "sum", 0, g),
    "reduce_scatter_tensor_autograd": lambda g: functional.reduce_scatter_tensor_autograd(ones(8), "sum", 0, g),
    "reduce_scatter_tensor_coalesced": lambda g: functional.reduce_scatter_tensor_coalesced([ones(8)], "sum", [0], g),
}
DIFFERENTIABLE = {
    "all_gather": lambda: differentiable.all_gather(ones()),
    "all_reduce": lambda: differentiable.all_reduce(ones()),
    "all_to_all": lambda: differentiable.all_to_all(lists(), lists()),
    "all_to_all_single": lambda: differentiable.all_to_all_single(ones(), ones()),
    "broadcast": lambda: differentiable.broadcast(ones(), 0),
    "gather": lambda: differentiable.gather(ones(), 0),
    "reduce": lambda: differentiable.reduce(ones(), 0),
    "reduce_scatter": lambda: differentiable.reduce_scatter(ones(), lists()),
    "scatter": lambda: differentiable.scatter(lists(), 0),
}

# What does not work → why, and what to do; the call must fail with the text in the second place.
REFUSED = {
    "monitored_barrier": (
        "PyTorch allows it for gloo alone; every barrier reports which ranks are missing, and `group.monitored_barrier(timeout)` "
        "has a limit of its own",
        "monitored_barrier is only implemented for GLOO",
    ),
    "shrink_group": ("PyTorch allows it for groups that can shrink, which is NCCL's; make a new group", "shrink"),
    "split_group": ("PyTorch wants a device that the default group is bound to; use `new_group`", "split"),
}


def attempt(kind, name):
    """None, or what the call raised, as text."""
    calls = {"distributed": DISTRIBUTED, "functional": FUNCTIONAL, "differentiable": DIFFERENTIABLE}[kind]
    try:
        value = calls[name](dist.group.WORLD) if kind == "functional" else calls[name]()
        for tensor in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(tensor, torch.Tensor):
                functional.wait_tensor(tensor).sum().item()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


ALL = [
    *[("distributed", name) for name in DISTRIBUTED],
    *[("functional", name) for name in FUNCTIONAL],
    *[("differentiable", name) for name in DIFFERENTIABLE],
]


@pytest.fixture(scope="module")
def results(ranks):
    return {key: ranks(2, attempt, *key) for key in ALL}


@pytest.mark.parametrize("kind,name", ALL)
def test_call(results, kind, name):
    reason, text = REFUSED.get(name, (None, None)) if kind == "distributed" else (None, None)
    for result in results[kind, name]:
        if reason is None:
            assert result is None
        else:
            assert result is not None, "works now; take it out of REFUSED"
            assert text in result


def test_no_function_is_forgotten():
    found = set(dist.distributed_c10d.__all__)
    assert found == set(DISTRIBUTED) | set(SILENT)


def table(results):
    modules = {
        "distributed": "torch.distributed",
        "functional": "torch.distributed._functional_collectives",
        "differentiable": "torch.distributed.nn.functional",
    }
    lines = []
    for kind, module in modules.items():
        works = [f"`{name}`" for kind_, name in ALL if kind_ == kind and results[kind, name] == [None, None]]
        lines += [f"| `{module}` | |", "|---|---|", f"| works | {', '.join(works)} |"]
        for kind_, name in ALL:
            if kind_ == kind and results[kind, name] != [None, None]:
                lines.append(f"| `{name}` | refused: {REFUSED.get(name, ('?',))[0]} |")
        lines.append("")
    return "\n".join(lines)


def test_the_table_in_the_documentation_is_current(results, request):
    section = f"{BEGIN}\n\n{table(results)}\n{END}"
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else "# PyTorch\n"
    if BEGIN in text and END in text:
        new = text.split(BEGIN)[0] + section + text.split(END)[1]
    else:
        new = f"{text}\n## What works\n\n{section}\n"
    if request.config.getoption("--write-docs"):
        PAGE.write_text(new, encoding="utf-8")
    else:
        assert new == text, f"{PAGE.name} has another table; run pytest --write-docs"
