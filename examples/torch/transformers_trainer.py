# SPDX-License-Identifier: BSD-3-Clause
"""A small GPT-2 with the Trainer of Hugging Face's transformers: the process group is made before the TrainingArguments,
which take the one that is there; their ddp_backend knows only gloo on the CPU.

    torchrun --nproc-per-node 2 transformers_trainer.py [BACKEND…]
    lockstep run -n 2 python transformers_trainer.py [BACKEND…]

It trains over Lockstep, then the same over Gloo, and ends by comparing losses and parameters.
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
from gpt import Text
from torch.nn.parallel import DistributedDataParallel
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
from transformers.trainer_callback import PrinterCallback

import lockstep.torch  # noqa: F401

STEPS = 12
BATCH = 4  # of each rank
CONTEXT = 32


def load_data(text):
    inputs, _ = text.batch(0, 0, 64, CONTEXT)
    return [{"input_ids": row, "labels": row} for row in inputs]


def train(backend, text, folder):
    """The loss of each step, and all parameters."""
    dist.init_process_group(backend)
    arguments = TrainingArguments(
        folder,
        use_cpu=True,
        per_device_train_batch_size=BATCH,
        max_steps=STEPS,
        learning_rate=3e-3,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        log_level="error",
    )
    set_seed(0)
    config = GPT2Config(vocab_size=len(text.characters), n_positions=CONTEXT, n_embd=48, n_layer=2, n_head=4)
    trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=load_data(text))
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    assert isinstance(trainer.model_wrapped, DistributedDataParallel)
    losses = torch.tensor([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    rank, used = dist.get_rank(), dist.get_backend()
    # A thread of gloo may still wait for the interpreter, to drop the tensors of its last operation; destroying the group
    # then waits for that thread for ever, with the interpreter held. In a barrier it is not held, so that is rarer.
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        print(f"{used}: loss {losses[0]:.4f} in the first of {len(losses)} steps, {losses[-1]:.4f} in the last", flush=True)
    return [losses, *(parameter.detach() for parameter in trainer.model.parameters())]


def main():
    torch.set_num_threads(1)
    text = Text()
    with tempfile.TemporaryDirectory() as folder:
        results = [train(backend, text, folder) for backend in sys.argv[1:] or ("lockstep", "gloo")]
    difference = max((one - other).abs().max().item() for one, other in zip(results[0], results[-1]))
    if os.environ["RANK"] == "0":
        print(f"largest difference between the backends: {difference:.1e}")
    sys.exit(difference > 1e-4)


if __name__ == "__main__":
    main()
