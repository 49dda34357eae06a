#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""torch_ranks.py BACKEND: one rank of what torch_bench.py measures; writes its times as one line of JSON.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are as for any script of PyTorch; BORN is when the process was started.
Backends: lockstep, gloo, and inline, a process group in Python that does nothing: what PyTorch itself costs.
"""

import json
import os
import sys
import time

import torch.distributed as dist

import torch

SMALL = 2  # float32: 8 B
LARGE = 4 << 20  # float32: 16 MiB


# ---- the group that does nothing ----


class Nothing(dist.Work):
    def __init__(self, result):
        super().__init__()
        self._result = result

    def wait(self, timeout=None):
        return True

    def is_completed(self):
        return True

    def result(self):
        return self._result

    def get_future(self):
        future = torch.futures.Future()
        future.set_result(self._result)
        return future


def nothing(opts, tensors):
    """A blocking call needs no Work."""
    return Nothing(tensors) if opts is None or opts.asyncOp else None


class Inline(dist.ProcessGroup):
    """Its results are wrong with more than one rank, and its time is what nobody can do without."""

    group_name = group_desc = ""
    _device_types = [torch.device("cpu")]

    def name(self):
        return "inline"

    def getBackendName(self):
        return "inline"

    def _set_group_name(self, name):
        self.group_name = name

    def _set_group_desc(self, desc):
        pass

    def allreduce(self, tensors, opts=None):
        return nothing(opts, tensors)

    def broadcast(self, tensors, opts=None):
        return nothing(opts, tensors)

    def barrier(self, opts=None):
        return nothing(opts, [])

    def allgather(self, outputs, inputs, opts=None):
        for output in outputs[0]:
            output.copy_(inputs[0])
        return nothing(opts, outputs[0])


def register(backend):
    if backend == "lockstep":
        import lockstep.torch  # noqa: F401
    elif backend == "inline":
        dist.Backend.register_backend(
            "inline",
            lambda options, _: Inline(options.group_rank, options.group_size),
            extended_api=True,
            devices=["cpu"],
        )


# ---- calls ----


def microseconds(call, loops, budget_s):
    """The time of one call: means of so many loops, which together take about budget_s. They are short, so that some of
    them are undisturbed by others on the same processors."""
    for _ in range(3):
        call()
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(5):
        call()
    # The same on all ranks, or they would not call equally often.
    once = torch.tensor([(time.perf_counter() - begin) / 5], dtype=torch.float64)
    dist.broadcast(once, 0)
    count = max(1, min(20000, int(budget_s / loops / once.item())))
    found = []
    for _ in range(loops):
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(count):
            call()
        found.append((time.perf_counter() - begin) / count * 1e6)
    return found


def ping_pong(tensor, rank):
    if rank == 0:
        dist.send(tensor, 1)
        dist.recv(tensor, 1)
    else:
        dist.recv(tensor, 0)
        dist.send(tensor, 0)


def call_site():
    """The time of lockstep._sites.here in all_reduce: three frames of PyTorch and two of the package below the user."""
    from lockstep import _sites

    def pass_by(frame):
        return frame

    inner, frames = _sites.here, []
    source = "def step(inner):\n    return inner()\n"
    for folder in (os.path.dirname(_sites.__file__),) * 2 + (os.path.dirname(torch.__file__),) * 3:
        space = {}
        exec(compile(source, os.path.join(folder, "bench.py"), "exec"), space)
        frames.append(space["step"])
    call = inner
    for step in frames:
        call = lambda step=step, below=call: step(below)  # noqa: E731
    empty = lambda: None  # noqa: E731
    bare = empty
    for step in frames:
        bare = lambda step=step, below=bare: step(below)  # noqa: E731
    return call, bare


def calls(backend, rank):
    """{figure: microseconds of loops}"""
    from torch.distributed import _functional_collectives as functional

    small, large, found = torch.ones(SMALL), torch.ones(LARGE), {}
    check = torch.full((SMALL,), float(rank + 1))
    dist.all_reduce(check)
    if backend != "inline" and check[0].item() != 3:
        raise SystemExit(f"{backend}: the sum of 1 and 2 is {check[0].item()}")
    found["all_reduce 8 B"] = microseconds(lambda: dist.all_reduce(small), 100, 0.4)
    found["async all_reduce 8 B + wait"] = microseconds(lambda: dist.all_reduce(small, async_op=True).wait(), 60, 0.3)
    found["functional all_reduce 8 B + wait_tensor"] = microseconds(
        lambda: functional.wait_tensor(functional.all_reduce(small, "sum", dist.group.WORLD)), 60, 0.3
    )
    if backend == "inline":
        return found
    large.zero_()
    found["all_reduce 16 MiB"] = microseconds(lambda: dist.all_reduce(large), 40, 0.8)
    found["ping-pong 8 B"] = microseconds(lambda: ping_pong(small, rank), 60, 0.3)
    if backend == "lockstep":
        with_site, without = call_site()
        found["call site"] = [a - b for a, b in zip(*(sorted(microseconds(c, 50, 0.1)) for c in (with_site, without)))]
    return found


# ---- training ----


class Gpt(torch.nn.Module):
    """A decoder small enough that its gradients are 20 MiB."""

    def __init__(self, words=4096, width=256, layers=4, heads=4, length=64):
        super().__init__()
        self.words = torch.nn.Embedding(words, width)
        self.places = torch.nn.Parameter(torch.zeros(length, width))
        layer = torch.nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, layers)
        self.head = torch.nn.Linear(width, words)

    def forward(self, text):
        return self.head(self.layers(self.words(text) + self.places))


def mlp():
    """32 MiB of gradients; (model, what makes a batch)"""
    linear, relu = torch.nn.Linear, torch.nn.ReLU
    model = torch.nn.Sequential(linear(1024, 2048), relu(), linear(2048, 2048), relu(), linear(2048, 1024))
    return model, lambda: torch.randn(64, 1024)


def gpt():
    return Gpt(), lambda: torch.randint(0, 4096, (4, 64))


def wrap(model, how, backend):
    """how: "" for plain DDP; "views": gradients are views of DDP's buckets; "mapped": and the other ranks reach these
    buckets, which no other backend offers; "set": the same, but the setting asks for it, and not the script."""
    group = None
    if how == "set" and backend == "lockstep":
        os.environ["LOCKSTEP_DDP"] = "mapped"
        group = dist.new_group()
    said = {"gradient_as_bucket_view": True} if how in ("views", "mapped") else {}
    trained = torch.nn.parallel.DistributedDataParallel(model, process_group=group, **said)
    os.environ.pop("LOCKSTEP_DDP", None)
    if how == "mapped" and backend == "lockstep":
        import lockstep.torch

        trained.register_comm_hook(lockstep.torch.MappedBuckets(), lockstep.torch.mapped_buckets)
    return trained


MODELS = {"mlp": mlp, "gpt": gpt}


def steps(make, how, backend, rank, pairs):
    """{"sync": milliseconds of each step, "no_sync": …, "sync cpu": those of the processor, "no_sync cpu": …}: one
    of each in turn, so that both meet the same neighbours."""
    torch.manual_seed(0)
    model, batch = make()
    trained = wrap(model, how, backend)
    optimizer = torch.optim.SGD(trained.parameters(), lr=1e-3)
    torch.manual_seed(rank)

    def step():
        optimizer.zero_grad(set_to_none=False)
        trained(batch()).float().pow(2).mean().backward()
        optimizer.step()

    found = {"sync": [], "no_sync": [], "sync cpu": [], "no_sync cpu": []}
    for turn in range(pairs + 3):
        for kind in ("sync", "no_sync"):
            dist.barrier()
            begin, cpu = time.perf_counter(), time.process_time()
            if kind == "sync":
                step()
            else:
                with trained.no_sync():
                    step()
            if turn >= 3:  # in the first ones DDP arranges its buckets anew
                found[kind].append((time.perf_counter() - begin) * 1e3)
                found[f"{kind} cpu"].append((time.process_time() - cpu) * 1e3)
    return found


def main(backend, pairs, kinds):
    torch.set_num_threads(1)
    register(backend)
    dist.init_process_group(backend)
    dist.barrier()
    rank = dist.get_rank()
    found = {"begin": (time.monotonic() - float(os.environ["BORN"])) * 1e3}
    if "calls" in kinds:
        found["calls"] = calls(backend, rank)
    for kind in kinds:
        model, _, how = kind.partition(" ")
        if model in MODELS:
            found[kind] = steps(MODELS[model], how, backend, rank, pairs)
    dist.barrier()
    if backend != "inline":
        dist.destroy_process_group()
    print(json.dumps(found), flush=True)
    if backend == "inline":
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3].split(","))
