# SPDX-License-Identifier: BSD-3-Clause
"""Groups: how they are made, from which stores, of which ranks, and how they end."""

import os
import re
import socket
import threading
import time
from datetime import timedelta

import lockstep
import lockstep.torch
import pytest
import torch
import torch.distributed as dist


def summed(group=None, value=None):
    tensor = torch.tensor([float(dist.get_rank() + 1 if value is None else value)])
    dist.all_reduce(tensor, group=group)
    return tensor.item()


# ---- groups without torch.distributed ----


def anew(address):
    """As torchft does it: three ranks; then, on the same store, the two that are left when one has given up."""
    rank, size = lone_rank()
    store = dist.TCPStore("127.0.0.1", address, size, is_master=rank == 0)
    group = lockstep.torch.process_group(dist.PrefixStore("first", store), rank, size)
    tensor = torch.ones(2)
    group.allreduce([tensor]).wait()
    store.set(f"added {rank}", "")
    if rank == 2:
        store.wait(["added 0", "added 1"])
        group.abort("it leaves")
        store.wait(["over"])
        return tensor.tolist(), str(group.error()), []
    try:
        group.barrier().wait()
    except lockstep.Aborted as error:
        report = str(error)
    again = lockstep.torch.process_group(dist.PrefixStore("second", store), rank, 2, timedelta(seconds=20))
    other = torch.ones(2)
    again.allreduce([other]).wait()
    again.shutdown()
    if rank == 0:
        store.set("over", "")
    assert not dist.is_initialized()
    return tensor.tolist(), report, other.tolist()


def test_groups_are_made_anew(ranks):
    results = ranks(3, anew, free_port(), backend=None)
    assert [first for first, _, _ in results] == [[3.0, 3.0]] * 3
    assert all("it leaves" in report for _, report, _ in results)
    assert [second for _, _, second in results] == [[2.0, 2.0]] * 2 + [[]]


# ---- the default group ----


def from_store(kind, name, address, backend):
    rank, size = lone_rank()
    if kind == "tcp":
        store = dist.TCPStore("127.0.0.1", address, size, is_master=rank == 0)
    elif kind == "file":
        store = dist.FileStore(name, size)
    else:
        store = dist.PrefixStore("deep", dist.PrefixStore("deeper", dist.FileStore(name, size)))
    results = []
    for round_ in range(3):
        dist.init_process_group(backend, store=dist.PrefixStore(str(round_), store), rank=rank, world_size=size)
        results.append((summed(), dist.get_backend()))
        dist.destroy_process_group()
    return results


def lone_rank():
    """Of a process that makes its own default group."""
    return int(os.environ["TEST_RANK"]), int(os.environ["TEST_SIZE"])


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("kind", ["tcp", "file", "prefix"])
@pytest.mark.parametrize("backend", ["lockstep", "cpu:lockstep"])
def test_init_and_destroy_three_times(ranks, tmp_path, kind, backend):
    for results in ranks(3, from_store, kind, str(tmp_path / "store"), free_port(), backend, backend=None):
        assert [value for value, _ in results] == [6.0] * 3
        assert "lockstep" in results[0][1]


def from_environment(port):
    rank, size = lone_rank()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size))
    try:
        dist.init_process_group("lockstep")
        return summed()
    finally:
        for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"):
            del os.environ[name]


def test_init_from_the_environment(ranks):
    assert ranks(2, from_environment, free_port(), backend=None) == [3.0] * 2


def from_url(path):
    rank, size = lone_rank()
    dist.init_process_group("lockstep", init_method=f"file://{path}", rank=rank, world_size=size)
    return summed()


def test_init_from_a_url(ranks, tmp_path):
    assert ranks(2, from_url, str(tmp_path / "store"), backend=None) == [3.0] * 2


def alone():
    dist.init_process_group("lockstep", store=dist.HashStore(), rank=0, world_size=1)
    gathered = [torch.zeros(1)]
    dist.all_gather(gathered, torch.ones(1))
    dist.barrier()
    return summed(), gathered[0].item()


def test_a_group_of_one_rank_with_a_hash_store(ranks):
    assert ranks(1, alone, backend=None) == [(1.0, 1.0)]


def same_rank_twice(path):
    store = dist.FileStore(path, 3)
    dist.init_process_group("lockstep", store=store, rank=0, world_size=2, timeout=timedelta(seconds=3))


def test_two_processes_with_one_rank(ranks, tmp_path):
    errors = [outcome.error for outcome in ranks.outcomes(2, same_rank_twice, str(tmp_path / "store"), backend=None)]
    assert any(isinstance(error, lockstep.DuplicateRank) for error in errors), errors
    assert "two processes claim rank 0" in str([str(error) for error in errors])


def missing_rank(path):
    dist.init_process_group(
        "lockstep", store=dist.FileStore(path, 3), rank=lone_rank()[0], world_size=3, timeout=timedelta(seconds=1)
    )


def test_a_rank_that_does_not_come(ranks, tmp_path):
    for outcome in ranks.outcomes(2, missing_rank, str(tmp_path / "store"), backend=None):
        assert isinstance(outcome.error, lockstep.Error), outcome.trace


# ---- further groups ----


def subsets():
    """Groups of some ranks, in their own order; a rank that is no member has no part."""
    results = []
    for members in ([0, 1], [1, 2], [2, 0, 1], [1]):
        group = dist.new_group(members)
        if dist.get_rank() in members:
            parts = [torch.zeros(1) for _ in members]
            dist.all_gather(parts, torch.tensor([float(dist.get_rank())]), group=group)
            results.append((summed(group), dist.get_rank(group), dist.get_process_group_ranks(group)))
            results.append([int(part) for part in parts])
        else:
            assert group == dist.GroupMember.NON_GROUP_MEMBER
    return results


def test_groups_of_some_ranks(ranks):
    ranks.default_both(3, subsets)


def local():
    """Only members make a group; others make theirs meanwhile. PyTorch names such a group by how many its members
    have made, so each rank makes as many."""
    rank = dist.get_rank()
    rounds = [[[0, 1], [2, 3]], [[0, 2], [1, 3]], [[0, 3], [1, 2]]]
    pairs = [pair for pairs in rounds for pair in pairs if rank in pair]
    return [summed(dist.new_group(pair, use_local_synchronization=True)) for pair in pairs]


def test_groups_that_only_members_make(ranks):
    ranks.default_both(4, local)


def many_groups(count):
    results = []
    for i in range(count):
        group = dist.new_group([0, 1] if i % 2 else [0, 1, 2])
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            results.append(summed(group))
            dist.destroy_process_group(group)
    return results, len(os.listdir("/proc/self/fd"))


def test_fifty_groups_one_after_the_other(ranks):
    first = ranks(3, many_groups, 2)
    results = ranks(3, many_groups, 50)
    assert [len(sums) for sums, _ in results] == [50, 50, 25]
    assert all(set(sums) <= {3.0, 6.0} for sums, _ in results)
    for (_, before), (_, after) in zip(first, results):
        assert after <= before + 2, "descriptors are left behind"


def many_at_once(count):
    groups = [dist.new_group() for _ in range(count)]
    sums = [summed(group) for group in reversed(groups)]
    for group in groups:
        dist.destroy_process_group(group)
    return sums


def test_many_groups_at_once(ranks):
    ranks.default_both(2, many_at_once, 20)


def subgroups():
    own, all_ = dist.new_subgroups(2)
    listed, _ = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
    return summed(own), len(all_), summed(listed)


def test_new_subgroups(ranks):
    ranks.default_both(4, subgroups)


def nested_backends(inner):
    group = dist.new_group([0, 1], backend=inner)
    first = summed()
    return first, summed(group), dist.get_backend(group), summed()


@pytest.mark.parametrize("default,inner", [("gloo", "lockstep"), ("lockstep", "gloo")])
def test_a_group_of_the_other_backend(ranks, default, inner):
    assert ranks(2, nested_backends, inner, backend=default) == [(3.0, 3.0, inner, 3.0)] * 2


def some_of_gloo():
    """The default group is gloo's, and the group of Lockstep has only some of its ranks."""
    group = dist.new_group([1, 2], backend="lockstep")
    if dist.get_rank() == 0:
        return None
    return summed(group), dist.get_process_group_ranks(group), dist.get_rank(group)


def test_a_group_of_some_ranks_of_a_gloo_group(ranks):
    assert ranks(3, some_of_gloo, backend="gloo") == [None, (5.0, [1, 2], 0), (5.0, [1, 2], 1)]


def beside_each_other():
    """Two groups of the same ranks, used by two threads in opposite order: neither waits for the other."""
    groups = [dist.new_group(), dist.new_group()]
    order = groups if dist.get_rank() == 0 else groups[::-1]
    sums = {}

    def use(group):
        sums[group] = [summed(group, 1) for _ in range(20)][-1]

    threads = [threading.Thread(target=use, args=(group,)) for group in order]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [sums[group] for group in groups]


def test_groups_used_by_several_threads(ranks):
    ranks.default_both(2, beside_each_other)


def described():
    group = dist.new_group([0, 1], group_desc="pairs")
    return {
        "backend": dist.get_backend(group),
        "rank": dist.get_rank(group),
        "size": dist.get_world_size(group),
        "ranks": dist.get_process_group_ranks(group),
        "desc": group.group_desc,
        "global": dist.get_global_rank(group, 1),
        "group": dist.get_group_rank(group, 0),
        "name": bool(group.group_name),
        "sizes": (group.size(), group.rank()),
        "device": torch.device("cpu") in group._device_types,
        "initialized": dist.is_initialized(),
    }


def test_what_a_group_tells_about_itself(ranks):
    theirs = ranks(2, described, backend="gloo")
    for one, other in zip(ranks(2, described), theirs):
        assert (one.pop("backend"), other.pop("backend")) == ("lockstep", "gloo")
        assert one == other


# ---- limits and ends ----


def too_late(milliseconds):
    """Rank 1 comes to no collective of this group; it waits in the store until rank 0 has seen that."""
    own = {} if milliseconds is None else {"timeout": timedelta(milliseconds=milliseconds)}
    group = dist.new_group(**own)
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 1:
        store.wait(["seen"])
        return summed()
    start = time.monotonic()
    try:
        summed(group)
    except lockstep.TimedOut as error:
        store.set("seen", "1")
        return summed(), str(error), time.monotonic() - start
    raise AssertionError("no error")


def test_a_limit_for_each_group(ranks):
    (total, text, seconds), _ = ranks(2, too_late, 500, fresh=True)
    assert total == 3.0, "the default group goes on"
    assert "test_groups.py" in text and "rank 1" in text
    assert 0.45 <= seconds < 10


def test_the_limit_of_a_group_without_one(ranks):
    """PyTorch passes 30 minutes for it: the setting holds, as it does for the default group."""
    with ranks.setting(LOCKSTEP_TIMEOUT_MS="500"):
        (total, text, seconds), _ = ranks(2, too_late, None, fresh=True)
    assert total == 3.0, "the default group goes on"
    assert "test_groups.py" in text and "rank 1" in text
    assert seconds >= 0.45


def call_too_late():
    """The same of one call, which its caller waits for later."""
    group, opts = dist.new_group(), dist.AllreduceOptions()
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 1:
        store.wait(["too late"])
        return None
    opts.timeout = timedelta(milliseconds=300)
    work = group.allreduce([torch.ones(1)], opts)
    try:
        work.wait()
    except lockstep.TimedOut as error:
        store.set("too late", "1")
        return str(error)
    raise AssertionError("no error")


def test_a_limit_for_each_call(ranks):
    text, _ = ranks(2, call_too_late, fresh=True)
    assert "rank 1" in text and "test_groups.py" in text


def monitored_too_late():
    """A barrier with a limit of its own, which rank 1 does not come to."""
    group = dist.new_group()
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 1:
        store.wait(["monitored"])
        return None
    try:
        group.monitored_barrier(timedelta(milliseconds=300))
    except lockstep.TimedOut as error:
        store.set("monitored", "1")
        return str(error)
    raise AssertionError("no error")


def test_monitored_barrier_tells_who_is_missing(ranks):
    text, _ = ranks(2, monitored_too_late, fresh=True)
    assert "rank 1" in text and "barrier" in text and "test_groups.py" in text


def aborted(reason):
    """Rank 1 gives up while rank 0 waits."""
    rank = dist.get_rank()
    try:
        if rank == 1:
            dist.group.WORLD.abort(reason)
        summed()
    except lockstep.Error as error:
        return type(error).__name__, str(error), dist.group.WORLD.failure()
    raise AssertionError("no error")


@pytest.mark.parametrize("reason", ["no more disk space", None])
def test_abort(ranks, reason):
    told = reason or r"the program called abort\(\) at test_groups\.py:\d+ \(aborted\)"
    for name, text, failure in ranks(2, aborted, reason, fresh=True):
        assert name == "Aborted"
        assert re.search(told, text) and re.search(told, failure)


def after_destroy():
    group = dist.new_group()
    summed(group)
    dist.destroy_process_group(group)
    try:
        group.allreduce([torch.ones(1)])
    except lockstep.Error as error:
        return str(error), summed()
    raise AssertionError("no error")


def test_a_destroyed_group_is_an_error_and_no_crash(ranks):
    for text, total in ranks(2, after_destroy):
        assert "destroyed" in text and total == 3.0


def destroyed_with_work():
    """Destroying waits for nobody and gives no buffer away that is in use."""
    group = dist.new_group()
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 0:
        works = [dist.all_reduce(torch.ones(100_000), group=group, async_op=True) for _ in range(3)]
        dist.destroy_process_group(group)
        store.set("gone", "1")
        errors = []
        for work in works:
            try:
                work.wait()
            except lockstep.Error as error:
                errors.append((type(error).__name__, str(error)))
        return errors
    store.wait(["gone"])
    try:
        summed(group)
    except lockstep.Error as error:
        return type(error).__name__, str(error)
    return None


def test_destroy_with_operations_under_way(ranks):
    errors, peer = ranks(2, destroyed_with_work, fresh=True)
    closed = r"a rank closed the group at test_groups\.py:\d+ \(destroyed_with_work\) with operations of its own under way"
    assert len(errors) == 3
    for name, text in [*errors, peer]:
        assert name == "PeerLeft" or (name == "Aborted" and re.search(closed, text)), text


def different_lists():
    """The library says what is wrong in the thread that makes the group, which is not the one that raises it."""
    members = [0, 1] if dist.get_rank() == 0 else [1, 0]
    dist.group.WORLD.communicator.from_members(members, 99, 0, b"here")


def test_members_that_differ_are_told_both_lists(ranks):
    for outcome in ranks.outcomes(2, different_lists, fresh=True):
        assert isinstance(outcome.error, lockstep.Inconsistent), outcome.trace
        assert "rank 0 gave 0, 1" in str(outcome.error) and "rank 1 gave 1, 0" in str(outcome.error), outcome.trace


def met_again(path):
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    shared, totals = dist.FileStore(path, size), []
    for _ in range(3):
        dist.init_process_group("lockstep", store=shared, rank=rank, world_size=size)
        total = torch.ones(1)
        dist.all_reduce(total)
        totals.append(total.item())
        dist.destroy_process_group()
    return totals


def test_one_store_serves_several_groups(ranks, tmp_path):
    assert ranks(2, met_again, str(tmp_path / "store"), fresh=True) == [[2.0] * 3] * 2


def in_a_run(path, counts, ending):
    """What torchrun's agents set: on several hosts they count the restarts of one job differently."""
    rank, size = lone_rank()
    if ending == "before" and rank == 1:
        os._exit(3)
    os.environ["TORCHELASTIC_RESTART_COUNT"] = counts[rank]
    try:
        limit = timedelta(seconds=1 if ending == "before" else 20)
        dist.init_process_group("lockstep", store=dist.FileStore(path, 9), rank=rank, world_size=size, timeout=limit)
        total = summed()
    finally:
        del os.environ["TORCHELASTIC_RESTART_COUNT"]
    if ending == "after":
        os._exit(3)
    return total


@pytest.mark.parametrize("ending", ["before", "after"])
def test_a_store_that_outlives_a_run(ranks, tmp_path, ending):
    """A run that ended before all its ranks had met, or after that, does not disturb the next one."""
    store = str(tmp_path / "store")
    first, second = ranks.outcomes(2, in_a_run, store, "00", ending, backend=None)
    assert second.exitcode == 3 and (first.exitcode == 3 or isinstance(first.error, lockstep.RankMissing)), first.trace
    assert ranks(2, in_a_run, store, "01", "", backend=None) == [3.0] * 2
