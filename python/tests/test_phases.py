# SPDX-License-Identifier: BSD-3-Clause
"""Phases of unmodified training loops, stragglers by name, and the hint at a forgotten set_epoch."""

import dataclasses
import gc
import re
import time
import warnings
from collections import UserDict

import lockstep.torch
import numpy
import pytest
import torch
import torch.distributed as dist
from lockstep.torch import _hints
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from training import WIDTH, Model, seeded

PHASES = ["data", "forward", "backward", "optimizer"]
TRIES = 5  # without a processor of its own any rank may be slow, in any phase, and is named
SLOW_S = 0.01  # what an image takes on the rank that is slow: work of the test, and no wait for anything


class Images(Dataset):
    """Decoding takes processor time on the ranks that are slow."""

    def __init__(self, slow, count=48):
        self.slow = slow
        self.images = torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(3))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        end = time.process_time() + (SLOW_S if dist.get_rank() in self.slow else 0)
        while time.process_time() < end:
            pass
        return self.images[index], index % 4


def wrap(kind):
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(seeded(Model))
    model = seeded(Model)
    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)


def train(kind, slow, passes=2, set_epoch=True):
    data = Images(slow)
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model = wrap(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(passes):
        if set_epoch:
            sampler.set_epoch(epoch)
        for image, label in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(image), label).backward()
            optimizer.step()
    dist.barrier()
    return lockstep.torch.phase_report()


def reports_of(ranks, size, kind, slow, is_right):
    """The reports of the first try that are all right, or else of the last one."""
    for _ in range(TRIES):
        reports = ranks(size, train, kind, slow, fresh=True)
        if all(map(is_right, reports)):
            break
    return reports


def names_both(report):
    return re.match(r"ranks 1 and 3 spend .* in data, (where .*, )?which costs \d+ % of the step", report.splitlines()[0])


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_the_straggler_is_named_with_its_phase(ranks, kind):
    for report in reports_of(ranks, 4, kind, (1, 3), names_both):
        assert names_both(report), report
        header = next(line for line in report.splitlines() if line.split()[:2] == ["rank", "data"])
        assert [word for word in header.split() if word in PHASES] == PHASES


def names_nobody(report):
    return all(int(cost) < 10 for cost in re.findall(r"in data, which costs (\d+) %", report))


def test_without_a_straggler_nobody_is_named(ranks):
    for report in reports_of(ranks, 2, "ddp", (), names_nobody):
        assert names_nobody(report), report


def own_phases():
    with lockstep.torch.phase("data"):
        with lockstep.torch.phase("data/image"):
            pass
    dist.barrier()
    return lockstep.torch.phase_report()


def test_phases_of_the_program(ranks):
    for report in ranks(2, own_phases, fresh=True):
        assert "data/image" in report


def warned(set_epoch, passes):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train("ddp", (), passes, set_epoch)
    return [(str(one.message), one.filename) for one in caught if "set_epoch" in str(one.message)]


def test_set_epoch_forgotten_is_told_once(ranks):
    first, second = ranks(2, warned, False, 3)
    assert len(first) == 1 and not second
    text, file = first[0]
    assert "same order" in text and file.endswith("test_phases.py")


def counted_searches(patch):
    """A list that gets an entry for each time that all objects are looked at."""
    searches, objects = [], gc.get_objects

    def get_objects(*generation):
        if not generation:
            searches.append(None)
        return objects(*generation)

    patch.setattr(_hints, "_searched", False)
    patch.setattr(gc, "get_objects", get_objects)
    return searches


def warned_of_three_models(old):
    """All are trained in each step. old: the collector has looked at the iterator of the first pass before."""
    with warnings.catch_warnings(record=True) as caught, pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("always")
        searches = counted_searches(patch)
        data = Images(())
        loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=True))
        models = [wrap("ddp") for _ in range(3)]
        for _ in range(3):
            for image, label in loader:
                if old:
                    gc.collect()
                for model in models:
                    nn.functional.cross_entropy(model(image), label).backward()
    return [str(one.message) for one in caught if "set_epoch" in str(one.message)], len(searches)


@pytest.mark.parametrize("old", [False, True])
def test_several_models_look_for_one_pass(ranks, old):
    (first, searches), (second, none) = ranks(2, warned_of_three_models, old)
    assert len(first) == 1 and searches == old
    assert not second and none == 0


def not_searched_again():
    """Models that are trained without a DataLoader."""
    with pytest.MonkeyPatch.context() as patch:
        searches = counted_searches(patch)
        for model in [wrap("ddp") for _ in range(3)]:
            model(torch.ones(2, WIDTH)).sum().backward()
    return len(searches)


def test_all_objects_are_looked_at_once(ranks):
    assert ranks(2, not_searched_again) == [1, 0]


def test_set_epoch_or_one_pass_is_not_told(ranks):
    assert ranks(2, warned, True, 3) == [[], []]
    assert ranks(2, warned, False, 1) == [[], []]


class Answers(nn.Module):
    """Gives more than tensors of this pass."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.layer = kind, nn.Linear(4, 2)

    def forward(self, image):
        answer = self.layer(image)
        others = {
            "text": lambda: {"name": "digits", "answer": answer},
            "iterator": lambda: iter([answer, answer]),
            "array": lambda: (numpy.array(3.0), answer),
            "parameter": lambda: (self.layer.weight, answer),
            "dataclass": lambda: Pair("digits", answer),
            "mapping": lambda: UserDict(name="digits", answer=answer),
        }
        return others[self.kind]()


@dataclasses.dataclass
class Pair:
    name: str
    answer: torch.Tensor


def answered(kind):
    """What comes of the answer, hooks on the parameter, and whether the backward pass is seen."""
    model = nn.parallel.DistributedDataParallel(Answers(kind))
    for _ in range(3):
        answer = model(torch.ones(2, 4))
        if kind == "iterator":
            return len(list(answer))
        named = {"text": lambda: answer["answer"], "mapping": lambda: answer["answer"], "dataclass": lambda: answer.answer}
        answer = named.get(kind, lambda: answer[1])()
        answer.sum().backward()
    dist.barrier()
    return len(model.module.layer.weight._backward_hooks or ()), "backward" in lockstep.torch.phase_report()


@pytest.mark.parametrize("kind", ["text", "iterator", "array", "parameter", "dataclass", "mapping"])
def test_models_that_give_more_than_tensors(ranks, kind):
    assert ranks(2, answered, kind, fresh=True) == [2 if kind == "iterator" else (0, True)] * 2
