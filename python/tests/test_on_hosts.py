# SPDX-License-Identifier: BSD-3-Clause
"""What other files test on one host, with ranks on two: the results are those of gloo there."""

import os

import pytest
import torch
import torch.distributed as dist

import test_checkpoint
import test_ddp
import test_dtensor
import test_fsdp
import test_groups
import test_mapped
import test_points

CLOSE = 1e-5
HALVES, TURNS, UNEVEN = (0, 0, 1, 1), (0, 1, 0, 1), (0, 1, 1)


def all_of(*functions):
    return [function() for function in functions]


def places():
    """Where the ranks are, by what only those of one host share."""
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, os.readlink("/proc/self/ns/net"))
    return [found.index(one) for one in found]


def test_the_ranks_are_on_two_hosts(on_hosts):
    assert on_hosts(*HALVES)(4, places) == [[0, 0, 2, 2]] * 4


def objects():
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = {"rank": rank, "values": list(range(1000 * rank))}
    everybody, roots, gathered, scattered = [None] * size, [mine, rank], [None] * size, [None]
    dist.all_gather_object(everybody, mine)
    dist.broadcast_object_list(roots, 2)
    dist.gather_object(mine, gathered if rank == 1 else None, 1)
    dist.scatter_object_list(scattered, [[i, mine] for i in range(size)] if rank == 3 else None, 3)
    return everybody, roots, gathered, scattered


def test_objects(on_hosts):
    on_hosts(*HALVES).default_both(4, objects)


def ddp():
    return all_of(test_ddp.accumulated, test_ddp.unused, test_ddp.sub_group)


def test_ddp_models(on_hosts):
    """Gradients that are accumulated without synchronisation, unused parameters, a group of some ranks."""
    on_hosts(*UNEVEN).default_both(3, ddp, tolerance=CLOSE)


def fully_sharded():
    results = [test_fsdp.fsdp(options) for options in test_fsdp.OPTIONS.values() if "param_dtype" not in str(options)]
    return results + all_of(test_fsdp.accumulated, test_fsdp.clipped)


def hybrid():
    return test_fsdp.hybrid(False)


@pytest.mark.parametrize("layout", [HALVES, UNEVEN], ids=["halves", "uneven"])
def test_fsdp2(on_hosts, layout):
    on_hosts(*layout).default_both(len(layout), fully_sharded, tolerance=CLOSE)


@pytest.mark.parametrize("layout", [HALVES, TURNS], ids=["halves", "turns"])
def test_hybrid_sharding(on_hosts, layout):
    """Shards are inside a host and replicas across, or the other way round."""
    on_hosts(*layout).default_both(4, hybrid, tolerance=CLOSE)


def distributed_tensors():
    moved = [test_dtensor.redistributed(*way) for way in test_dtensor.WAYS]
    return moved, test_dtensor.operators(), test_dtensor.differentiated()


def parallel_layers():
    return test_dtensor.meshes(), test_dtensor.tensor_parallel("tensor"), test_dtensor.tensor_parallel("loss")


def test_dtensors(on_hosts):
    on_hosts(*UNEVEN).default_both(3, distributed_tensors, tolerance=CLOSE)


def test_meshes_and_parallel_layers(on_hosts):
    on_hosts(*TURNS).default_both(4, parallel_layers, tolerance=CLOSE)


def groups():
    return test_groups.local(), test_groups.subgroups(), test_groups.many_at_once(5)


def test_groups_of_some_ranks(on_hosts):
    on_hosts(*TURNS).default_both(4, groups)
    on_hosts(*TURNS).default_both(3, test_groups.subsets)


def pipelines():
    return [test_checkpoint.pipelined(schedule) for schedule in ("GPipe", "1F1B", "Interleaved1F1B")]


def test_pipelines(on_hosts):
    on_hosts(*HALVES).default_both(4, pipelines, tolerance=1e-6)


def messages(group):
    return [test_points.ring(group, "float32", count) for count in (0, 1, 1000, 1_000_000)]


def test_messages(on_hosts):
    on_hosts(*UNEVEN).both(3, messages)


def test_checkpoints(on_hosts, tmp_path):
    pool = on_hosts(*HALVES)
    first = pool(2, test_checkpoint.saved, str(tmp_path / "kept"))[0]
    for values in pool(4, test_checkpoint.loaded, str(tmp_path / "kept")):
        torch.testing.assert_close(values, first, rtol=0, atol=0)


@pytest.mark.parametrize("layout, function", [(HALVES, test_mapped.all_kinds), (UNEVEN, test_mapped.ways_to_train)])
def test_mapped_buckets_give_the_same_bits(on_hosts, layout, function):
    with on_hosts(*layout).setting(LOCKSTEP_DDP="mapped"):
        on_hosts(*layout)(len(layout), function)


def test_a_rank_that_does_not_come_is_named(on_hosts):
    text, _ = on_hosts(0, 1)(2, test_groups.monitored_too_late, fresh=True)
    assert "rank 1" in text and "barrier" in text
