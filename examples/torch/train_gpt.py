# SPDX-License-Identifier: BSD-3-Clause
"""Trains a small transformer on two ranks with DistributedDataParallel over Lockstep, then the same on Gloo.

    python train_gpt.py                             starts its ranks by itself
    torchrun --nproc-per-node 2 train_gpt.py        or is started by a launcher
    lockstep run -n 2 python train_gpt.py

Both trainings take the same steps, so they must end with the same loss. With --fault one rank does something
wrong, and the others show what they are told about it.
"""

import argparse
import logging
import os
import shutil
import signal
import socket
import sys
import textwrap
import time
import traceback
from datetime import timedelta

# The report of a demonstrated fault need not come as late as that of a job that runs for days.
if any(argument.startswith("--fault") for argument in sys.argv):
    os.environ.setdefault("LOCKSTEP_PATIENCE_MS", "700")
    os.environ.setdefault("LOCKSTEP_TIMEOUT_MS", "5000")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from display import Meter, show_side_by_side  # noqa: E402
from gpt import GPT, Text  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import lockstep.torch  # noqa: E402  registers the backend

FAULTS = {
    "none": "nothing goes wrong",
    "leave": "a rank ends its training some steps early",
    "killed": "a rank is killed, as by the system when memory is short",
    "stopped": "a rank is stopped, as by Ctrl-Z or a debugger",
    "operation": "a rank calls another collective than the others",
    "shape": "a rank gives a tensor of another shape",
    "slow": "a rank takes too long to load its data",
}
TOLERANCE = 1e-5  # between the losses of two backends
SEED = 1611


class Training:
    """What one rank needs for its steps on one backend."""

    def __init__(self, options, text, group, meter):
        torch.manual_seed(SEED)
        self.options = options
        self.text = text
        self.group = group
        self.meter = meter
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        self.gpt = GPT(len(text.characters), options.width, options.layers, context=options.context)
        self.model = DistributedDataParallel(self.gpt, process_group=group)
        self.optimizer = torch.optim.AdamW(self.gpt.parameters(), lr=2e-3, weight_decay=0.01)
        self.last_gradient = 0.0
        for parameter in self.gpt.parameters():
            parameter.register_post_accumulate_grad_hook(self.note_gradient)

    def note_gradient(self, parameter):
        self.last_gradient = time.monotonic()

    def load_batch(self, step):
        if self.strikes("slow", step):
            time.sleep(60)
        count = self.options.batch // self.size
        return self.text.batch(SEED + step, self.rank * count, count, self.options.context)

    def strikes(self, fault, step):
        options = self.options
        return options.fault == fault and self.rank == options.fault_rank and step == options.fault_step

    def average(self, loss, step):
        """The mean of the losses of all ranks."""
        if self.strikes("operation", step):
            dist.broadcast(loss, 0, group=self.group)
        if self.strikes("shape", step):
            loss = loss.repeat(3)
        dist.all_reduce(loss, group=self.group)
        return loss.item() / self.size

    def step(self, step):
        start = time.monotonic()
        inputs, targets = self.load_batch(step)
        loss = self.model(inputs, targets)
        self.optimizer.zero_grad()
        loss.backward()
        # How long the averaging of gradients goes on after the last gradient is complete.
        waited = time.monotonic() - self.last_gradient
        self.optimizer.step()
        begin = time.monotonic()
        mean = self.average(loss.detach().clone(), step)
        end = time.monotonic()
        self.meter.step(mean, end - start, waited + end - begin)

    def run(self):
        for step in range(self.options.steps):
            if self.strikes("leave", step):
                return
            if self.strikes("killed", step):
                os.kill(os.getpid(), signal.SIGKILL)
            if self.strikes("stopped", step):
                os.kill(os.getpid(), signal.SIGSTOP)
            self.step(step)


def show_error(error, group, step):
    """Prints the error of this rank in one piece, because other ranks write too."""
    place = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == __file__][-1]
    # DistributedDataParallel raises a RuntimeError with the text; the group knows the exception itself.
    known = group.error() if isinstance(group, lockstep.torch.ProcessGroup) else None
    error = known or error
    name = f"{type(error).__module__}.{type(error).__name__}".removeprefix("builtins.")
    lines = [f"rank {dist.get_rank(group)}: {name} in step {step}, raised at train_gpt.py:{place.lineno}"]
    columns = shutil.get_terminal_size().columns if sys.stderr.isatty() else sys.maxsize
    for line in str(error).strip().splitlines():
        indent = " " * (4 + len(line) - len(line.lstrip()))
        lines += textwrap.wrap(line.strip(), columns - 1, initial_indent=indent[2:], subsequent_indent=indent)
    sys.stderr.write("\n" + "\n".join(lines) + "\n")
    sys.stderr.flush()


def train(options, text, backend, group):
    """The meter of a training, or None if it has failed."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    meter = Meter(backend, options.steps, options.batch // size * size * options.context, rank == 0)
    training = None
    try:
        training = Training(options, text, group, meter)
        training.run()
    except RuntimeError as error:
        show_error(error, group, meter.done)
        return None
    if rank == 0 and backend == options.backends[-1] and options.fault == "none":
        start = text.data[: options.context].tolist()
        meter.sample = text.decode(training.gpt.write(start, 200)[len(start) :])
    return meter


def compare(meters):
    """Whether all trainings ended with the same loss; says so."""
    show_side_by_side(meters)
    sample = getattr(meters[-1], "sample", "").strip()
    print(f"\nIt writes: {sample}\n")
    if len(meters) < 2:
        return True
    difference = abs(meters[0].loss - meters[1].loss)
    same = difference <= TOLERANCE
    what = "The same loss on both" if same else "THE LOSSES DIFFER"
    print(f"{what}: {meters[0].loss:.7f}, difference {difference:.1e}")
    return same


def run_rank(rank, size, options):
    """One rank, from the meeting of all to its exit status. Rank and size None: the environment tells them."""
    if rank is not None:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(size))
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(max(1, cores // int(os.environ["WORLD_SIZE"])))
    first = options.backends[0]
    limit = timedelta(seconds=15) if options.fault != "none" and first == "gloo" else None
    dist.init_process_group(first, timeout=limit)
    rank, size = dist.get_rank(), dist.get_world_size()
    text = Text()
    if rank == 0:
        gpt = GPT(len(text.characters), options.width, options.layers, context=options.context)
        count = sum(parameter.numel() for parameter in gpt.parameters())
        print(
            f"{len(text.data):,} characters, {count / 1e6:.1f} M parameters, {size} ranks with "
            f"{torch.get_num_threads()} thread{'s' if torch.get_num_threads() > 1 else ''} each",
            flush=True,
        )
    meters = []
    for backend in options.backends:
        group = dist.group.WORLD if backend == first else dist.new_group(backend=backend)
        meter = train(options, text, backend, group)
        if meter is None:
            sys.exit(1)
        meters.append(meter)
        if options.fault == "leave" and rank == options.fault_rank:
            break
    ok = True
    if rank == 0 and options.fault == "none":
        ok = compare(meters)
    dist.destroy_process_group()
    if not ok:
        sys.exit(1)


def start_ranks(options):
    """Starts the ranks as processes; returns the exit status."""
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ["MASTER_PORT"] = str(free.getsockname()[1])
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)  # it would warn that it ends the other ranks
    context = mp.spawn(run_rank, (options.ranks, options), nprocs=options.ranks, join=False)
    try:
        # Ranks that survive a fault have some time to print their errors.
        while not context.join(grace_period=3):
            pass
    except mp.ProcessExitedException as error:
        print(f"train_gpt: {error}", file=sys.stderr)
        return 1
    return 0


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--backend", choices=["lockstep", "gloo", "both"], help="default: both, lockstep with a fault")
    parser.add_argument("--ranks", type=int, default=2, help="if it starts them by itself")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch", type=int, default=16, help="sequences of all ranks in one step")
    parser.add_argument("--context", type=int, default=64, help="characters of a sequence")
    parser.add_argument("--width", type=int, default=192, help="a multiple of 6, the number of heads")
    parser.add_argument("--layers", type=int, default=4)
    faults = "; ".join(f"{name}: {what}" for name, what in FAULTS.items())
    parser.add_argument("--fault", choices=FAULTS, default="none", help=faults)
    parser.add_argument("--fault-rank", type=int, default=1)
    parser.add_argument("--fault-step", type=int, default=10)
    options = parser.parse_args()
    backend = options.backend or ("both" if options.fault == "none" else "lockstep")
    options.backends = ["lockstep", "gloo"] if backend == "both" else [backend]
    return options


def main():
    options = read_options()
    if "RANK" in os.environ:  # of a launcher
        run_rank(None, None, options)
        return 0
    return start_ranks(options)


if __name__ == "__main__":
    sys.exit(main())
