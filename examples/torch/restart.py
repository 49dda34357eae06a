# SPDX-License-Identifier: BSD-3-Clause
"""Training that goes on after a failure: torchrun starts all ranks anew, and they load the last checkpoint.

    torchrun --nproc-per-node 2 --max-restarts 1 --shutdown-timeout 5 restart.py FILE [--fault killed|raises|stopped]

FILE is the checkpoint. In its first life the last rank breaks at a step. It ends by comparing the parameters with those
of one process that took the same steps without a break.
"""

import argparse
import os
import signal
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import lockstep.torch  # noqa: F401
from usual_ddp import load_data, make_model

STEPS, BATCH, KEPT_EVERY, FAULT_STEP = 24, 32, 5, 13
LIMIT = timedelta(seconds=10)  # of a wait for a rank that is stopped


def batch_of(data, step, part, parts):
    """The batch of a step, the same however often the step is taken."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(step))
    return data[order[: BATCH * parts][part::parts]]


def keep(path, step, model, optimizer):
    """Saves a checkpoint whole or not at all, because a rank may be killed while it writes."""
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path + ".new")
    os.replace(path + ".new", path)


def load(path, model, optimizer):
    """Loads the checkpoint, if there is one; returns the first step that is still to be taken."""
    if not os.path.exists(path):
        return 0
    kept = torch.load(path, weights_only=True)
    model.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    return kept["step"]


def break_down(fault):
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if fault == "raises":
        raise ValueError("no such image")


def take_step(model, optimizer, inputs, labels):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


def train_alone(data, parts):
    model, optimizer_of = make_model()
    optimizer = optimizer_of(model.parameters())
    for step in range(STEPS):
        batches = [batch_of(data, step, part, parts) for part in range(parts)]
        take_step(model, optimizer, *(torch.cat(tensors) for tensors in zip(*batches)))
    return model.state_dict()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint")
    parser.add_argument("--fault", choices=["killed", "raises", "stopped"])
    options = parser.parse_args()
    life = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    dist.init_process_group("lockstep", timeout=LIMIT)
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    data = load_data()
    model, optimizer_of = make_model()
    optimizer = optimizer_of(model.parameters())
    first = load(options.checkpoint, model, optimizer)
    if rank == 0:
        print(f"life {life} begins at step {first}", flush=True)
    ddp_model = DDP(model)
    for step in range(first, STEPS):
        if options.fault and life == 0 and step == FAULT_STEP and rank == size - 1:
            break_down(options.fault)
        loss = take_step(ddp_model, optimizer, *batch_of(data, step, rank, size))
        if rank == 0 and (step + 1) % KEPT_EVERY == 0:
            keep(options.checkpoint, step + 1, model, optimizer)
    dist.barrier()
    dist.destroy_process_group()
    if rank != 0:
        return 0
    alone = train_alone(data, size)
    difference = max((value - alone[name]).abs().max().item() for name, value in model.state_dict().items())
    print(f"loss {loss:.4f}, largest difference to one process: {difference:.1e}", flush=True)
    return int(difference > 1e-4)


if __name__ == "__main__":
    raise SystemExit(main())
