# SPDX-License-Identifier: BSD-3-Clause
"""What goes wrong between ranks: every survivor gets the same cause, as an exception that names call sites."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import lockstep
import pytest
import torch
import torch.distributed as dist
from torch import nn

from training import Model, loss_of, seeded

HERE = os.path.basename(__file__)


def line_of(text):
    """The line of this file with this text, which stands in it once behind '# at:'."""
    with open(__file__, encoding="utf-8") as file:
        (number,) = [i for i, line in enumerate(file, 1) if line.rstrip().endswith(f"# at: {text}")]
    return f"{HERE}:{number}"


def expect(outcome, kind, *texts):
    assert isinstance(outcome.error, kind), outcome.trace or f"no error, exit code {outcome.exitcode}"
    assert isinstance(outcome.error, lockstep.Error) and isinstance(outcome.error, dist.DistBackendError)
    for text in texts:
        assert text in str(outcome.error), f"{text!r} is not in:\n{outcome.error}"


# ---- which line is named ----


def freed(count=2):
    """Refused at once, on this rank alone."""
    tensor = torch.ones(count)
    tensor.untyped_storage().resize_(0)
    return tensor


def coalesced():
    with dist._coalescing_manager():  # at: coalesced
        dist.all_reduce(freed())
        dist.all_reduce(freed())


def in_an_executor():
    with ThreadPoolExecutor(1) as executor:
        executor.submit(dist.all_reduce, freed()).result()


def call(name):
    if name == "all_reduce":
        dist.all_reduce(freed())  # at: all_reduce
    elif name == "all_reduce beside":
        dist.all_reduce(freed(), async_op=True)  # at: all_reduce beside
    elif name == "all_gather":
        dist.all_gather_into_tensor(freed(4), torch.ones(2))  # at: all_gather
    elif name == "reduce_scatter":
        dist.reduce_scatter_tensor(freed(2), torch.ones(4))  # at: reduce_scatter
    elif name == "refused send":
        dist.send(freed(), 1 - dist.get_rank())  # at: refused send
    elif name == "coalesced":
        coalesced()
    else:
        in_an_executor()


LINES = ["all_reduce", "all_reduce beside", "all_gather", "reduce_scatter", "refused send", "coalesced"]


def refused(name):
    dist.all_reduce(torch.ones(1))  # so that a second one takes the shortest way
    try:
        call(name)
    except lockstep.BadArgument as error:
        return str(error)
    return "no error"


@pytest.mark.parametrize("name", LINES)
def test_the_line_is_that_of_the_program(ranks, name):
    """Not of a wrapper of PyTorch's functions, of Python's library, or of what calls the library in C."""
    for text in ranks(2, refused, name):
        assert text.startswith(f"{line_of(name)} (") and "called from" not in text, text


def test_where_no_line_of_the_program_is_that_of_pytorch_is_named(ranks):
    for text in ranks(2, refused, "executor"):
        assert text.startswith("distributed_c10d.py:") and "(all_reduce): " in text, text


# ---- mismatches ----


def mismatch(how):
    first = dist.get_rank() == 0
    tensor = torch.ones(10)
    if how == "operation":
        if first:
            dist.all_reduce(tensor)  # at: operation 0
        else:
            dist.broadcast(tensor, 0)  # at: operation 1
    elif how == "shape":
        tensor = tensor if first else torch.ones(11)
        dist.all_reduce(tensor)  # at: shape
    elif how == "dtype":
        tensor = tensor if first else torch.ones(10, dtype=torch.float64)
        dist.all_reduce(tensor)  # at: dtype
    elif how == "root":
        dist.broadcast(tensor, 0 if first else 1)  # at: root
    elif how == "reduction":
        dist.all_reduce(tensor, dist.ReduceOp.SUM if first else dist.ReduceOp.MAX)  # at: reduction
    else:
        parts = [torch.zeros(10), torch.zeros(10 if first else 20)]
        dist.all_gather(parts, parts[dist.get_rank()])  # at: uneven
    dist.barrier()
    dist.barrier()


def averaged_on_one_rank(options, over):
    """over: it has failed before its future is asked for, or only before a callback is added to that."""

    def hook(state, bucket):
        work = dist.all_reduce(bucket.buffer(), (dist.ReduceOp.SUM, dist.ReduceOp.AVG)[dist.get_rank()], async_op=True)
        while over == "asked for" and not work.is_completed():
            pass
        future = work.get_future()
        while over == "called back" and not future.done():
            pass
        return future.then(lambda future: future.value()[0])

    model = nn.parallel.DistributedDataParallel(seeded(Model), **options)
    model.register_comm_hook(None, hook)
    loss_of(model, 0).backward()


@pytest.mark.parametrize("over", ["", "asked for", "called back"])
@pytest.mark.parametrize("options", [{}, {"static_graph": True}], ids=["plain", "static"])
def test_a_backward_pass_raises_what_its_buckets_ended_with(ranks, options, over):
    """Futures, which DistributedDataParallel waits for, keep the text alone."""
    for outcome in ranks.outcomes(2, averaged_on_one_rank, options, over, fresh=True):
        expect(outcome, lockstep.Mismatch, "with different reduce ops: rank 0 has sum, rank 1 has average")


SITES = {"operation": ("operation 0", "operation 1")}


@pytest.mark.parametrize("how", ["operation", "shape", "dtype", "root", "reduction", "uneven"])
def test_mismatch(ranks, how):
    sites = [line_of(text) for text in SITES.get(how, (how, how))]
    for outcome in ranks.outcomes(2, mismatch, how, fresh=True):
        expect(outcome, lockstep.Mismatch, *sites, "rank 0", "rank 1", "(mismatch)")


def split_on_one_rank():
    sizes = ([2, 2], [2, 2]) if dist.get_rank() == 1 else ()
    dist.all_to_all_single(torch.empty(4), torch.ones(4), *sizes)


def test_split_sizes_on_some_ranks_only(ranks):
    for outcome in ranks.outcomes(2, split_on_one_rank, fresh=True):
        expect(outcome, lockstep.Mismatch, "either all ranks give split sizes, or none does")


def message_mismatch(how):
    if dist.get_rank() == 0:
        dist.send(torch.ones(10), 1)  # at: send
        dist.barrier()
    else:
        dist.recv(torch.ones(5) if how == "shorter" else torch.ones(10, dtype=torch.int32), 0)  # at: recv
    dist.barrier()


@pytest.mark.parametrize("how", ["shorter", "dtype"])
def test_messages_that_do_not_fit(ranks, how):
    for outcome in ranks.outcomes(2, message_mismatch, how, fresh=True):
        expect(outcome, (lockstep.Mismatch, lockstep.Truncated), line_of("send"), line_of("recv"))


# ---- ranks that are gone ----


def summed():
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    return tensor[0].item()


def leaves():
    summed()
    if dist.get_rank() == 1:
        dist.destroy_process_group()
        return
    summed()  # at: survivor of leave


def test_a_rank_that_leaves(ranks):
    first, second, third = ranks.outcomes(3, leaves, fresh=True)
    assert not second.failed, second.trace
    for outcome in (first, third):
        expect(outcome, lockstep.PeerLeft, "rank 1", "summed", f"{HERE}:")
        assert outcome.error.rank == 1 and outcome.error.status == "PEER_LEFT"
        assert isinstance(outcome.error, lockstep.PeerLost)


def dies(how):
    summed()
    if dist.get_rank() == 1:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(7)
    summed()


@pytest.mark.parametrize("how", ["kill", "exit"])
def test_a_rank_that_dies(ranks, how):
    first, second, third = ranks.outcomes(3, dies, how, fresh=True)
    assert second.exitcode == (-9 if how == "kill" else 7)
    for outcome in (first, third):
        expect(outcome, lockstep.PeerDied, "rank 1", f"{HERE}:")
        assert outcome.error.rank == 1 and outcome.error.status == "PEER_DIED"


def peer_is_killed(operation):
    """Rank 1 is killed; the error that rank 0 gets, and after how long."""
    calls = {
        "recv": lambda: dist.recv(torch.ones(3), 1),
        "barrier": lambda: dist.barrier(),
        "long": lambda: dist.all_reduce(torch.ones(2_000_000)),
        "irecv": lambda: dist.irecv(torch.ones(3), 1).wait(),
        "async": lambda: dist.all_reduce(torch.ones(3), async_op=True).wait(),
        "future": lambda: dist.all_reduce(torch.ones(3), async_op=True).get_future().wait(),
    }
    dist.barrier()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    try:
        calls[operation]()
    except Exception as error:
        return error, time.monotonic() - start
    raise AssertionError("no error")


@pytest.mark.parametrize("operation", ["recv", "barrier", "long", "irecv", "async", "future"])
def test_every_wait_ends_when_a_rank_is_killed(ranks, operation):
    first, second = ranks.outcomes(2, peer_is_killed, operation, fresh=True)
    assert second.exitcode == -9 and not first.failed, first.trace
    error, seconds = first.value
    assert "rank 1" in str(error) and f"{HERE}:" in str(error) and "peer_is_killed" in str(error)
    if operation == "future":  # PyTorch makes the exception, and keeps the text
        assert "PeerDied" in str(error)
    else:
        assert isinstance(error, lockstep.PeerDied)
    assert seconds < 100


def raises():
    summed()
    if dist.get_rank() == 1:
        raise KeyError("no such sample")
    summed()


def test_a_rank_that_raises_and_ends_its_group(ranks):
    """As a program does whose `finally` destroys the group."""
    first, second = ranks.outcomes(2, raises_and_destroys, fresh=True)
    assert isinstance(second.error, KeyError)
    expect(first, lockstep.PeerLeft, "rank 1")


def raises_and_destroys():
    try:
        raises()
    finally:
        dist.destroy_process_group()


# ---- deadlocks ----


def two_receives(how):
    peer = 1 - dist.get_rank()
    if how == "blocking":
        dist.recv(torch.zeros(3), peer)  # at: blocking
    elif how == "waited":
        dist.irecv(torch.zeros(3), peer).wait()  # at: waited
    else:
        if dist.get_rank() == 0:
            dist.recv(torch.zeros(3), peer)  # at: mixed 0
        dist.all_reduce(torch.zeros(3))  # at: mixed 1


@pytest.mark.parametrize("how", ["blocking", "waited", "mixed"])
def test_deadlock(ranks, how):
    start = time.monotonic()
    sites = [line_of(text) for text in (("mixed 0", "mixed 1") if how == "mixed" else (how,))]
    for outcome in ranks.outcomes(2, two_receives, how, fresh=True):
        expect(outcome, lockstep.Deadlock, *sites, "rank 0", "rank 1", "wait for each other")
    assert time.monotonic() - start < 100


def across_groups():
    """Two groups, two collectives, in opposite order, each in the one thread of its rank."""
    groups = [dist.new_group(), dist.new_group()]
    for group in groups if dist.get_rank() == 0 else groups[::-1]:
        dist.all_reduce(torch.ones(3), group=group)  # at: across


def test_deadlock_across_groups(ranks):
    for outcome in ranks.outcomes(2, across_groups, fresh=True):
        expect(outcome, lockstep.Deadlock, line_of("across"))


# ---- afterwards ----


def again():
    """After an error both ranks destroy and init, in the same processes."""
    try:
        two_receives("blocking")
    except lockstep.Deadlock as error:
        first = str(error)
    try:
        summed()
    except lockstep.Deadlock as error:
        assert str(error) == first, "the first cause is what every later call tells"
    store = dist.distributed_c10d._get_default_store()
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    dist.init_process_group("lockstep", store=dist.PrefixStore("again", store), rank=rank, world_size=size)
    return summed()


def test_init_again_after_an_error(ranks):
    assert ranks(2, again, fresh=True) == [2.0, 2.0]


def one_of_two_groups():
    """An error of one group leaves the other one alone."""
    group = dist.new_group()
    try:
        dist.all_reduce(torch.ones(3 + dist.get_rank()), group=group)
        dist.barrier(group=group)
    except lockstep.Mismatch:
        return summed()
    raise AssertionError("no error")


def test_an_error_closes_its_group_alone(ranks):
    assert ranks(2, one_of_two_groups, fresh=True) == [2.0, 2.0]
