#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints sampler_table.inc: index lists as PyTorch's own DistributedSampler gives them.

    python3 -m venv venv && venv/bin/pip install torch==2.13.0
    venv/bin/python test/ddp/sampler_table.py > src/ddp/sampler_table.inc

With --long it compares, in place of that, the way in which long data sets are shuffled (about a minute, 4 GiB):
the lists in the table stand for it with the algorithm written out below, which torch must agree with.
"""

import sys

import torch
from torch.utils.data import DistributedSampler

HEAD = """/* SPDX-License-Identifier: BSD-3-Clause
 * Index lists of PyTorch %s; written by test/ddp/sampler_table.py, which says how.
 * SAMPLER(length, num_replicas, rank, shuffle, seed, epoch, drop_last, count, indices…)
 * HASHED(…, count, hash of the indices): hash = hash * 6364136223846793005 + index, from 0.
 * WIDE(length, seed, indices…): as sets of more than 214748363 samples are shuffled. */"""

# length, num_replicas, shuffle, seed, epoch, drop_last; of each the ranks up to 8, and the last
LISTS = [
    (10, 1, False, 0, 0, False),
    (10, 3, False, 0, 0, False),
    (10, 3, False, 5, 9, True),
    (12, 4, False, 0, 0, True),
    (2, 5, False, 0, 0, False),
    (2, 5, False, 0, 0, True),
    (1, 4, True, 0, 0, False),
    (3, 8, True, 1, 2, False),
    (0, 2, True, 0, 0, False),
    (0, 3, False, 4, 5, True),
    (1, 1, True, 3, 1, False),
    (1, 1, True, 3, 1, True),
    (1, 2, True, 0, 7, True),
    (2, 2, True, 0, 0, True),
    (5, 64, True, 3, 1, False),
    (63, 64, True, 8, 2, False),
    (63, 64, True, 8, 2, True),
    (64, 64, True, 8, 2, True),
    (65, 64, True, 8, 2, False),
    (65, 64, True, 8, 3, False),
    (65, 64, True, 8, 3, True),
    (127, 64, True, 8, 2, True),
    (129, 64, False, 0, 0, False),
    (10, 3, True, 0, 0, False),
    (10, 3, True, 0, 1, False),
    (10, 3, True, 0, 1, True),
    (16, 2, True, 7, 0, False),
    (17, 4, True, 7, 3, False),
    (17, 4, True, 7, 3, True),
    (11, 2, True, 2**32 - 1, 1, False),
    (11, 2, True, 2**32 + 5, 0, False),
    (11, 2, True, 2**63, 123456789, True),
]
# Longer than the generator's state, and one list of each size that training sets have.
HASHES = [
    (623, 1, 0, True, 3, 0, False),
    (625, 2, 1, True, 3, 0, False),
    (1797, 4, 3, True, 7, 11, False),
    (60000, 8, 5, True, 0, 2, True),
    (1281167, 64, 63, True, 42, 89, False),
]
WIDE = [(1, 0), (2, 0), (30, 0), (30, 12345)]


def indices(length, num_replicas, rank, shuffle, seed, epoch, drop_last):
    sampler = DistributedSampler(range(length), num_replicas, rank, shuffle, seed, drop_last)
    sampler.set_epoch(epoch)
    found = list(sampler)
    assert len(found) == len(sampler)
    return found


def hashed(found):
    value = 0
    for index in found:
        value = (value * 6364136223846793005 + index) % 2**64
    return value


def draw(count, generator):
    """64 bits each, as signed numbers."""
    return torch.empty(count, dtype=torch.int64).random_(-(2**63), None, generator=generator)


def wide(length, seed):
    """torch.randperm from 2^32 / 20 numbers on, with the same generator."""
    generator = torch.Generator()
    generator.manual_seed(seed)
    order = torch.empty(length, dtype=torch.int64)
    drawn = draw(length, generator)
    for i in range(length):
        at = int(drawn[i]) % 2**64 % (i + 1)
        order[i] = order[at]
        order[at] = i
    return order.tolist()


def compare_long():
    """All numbers of a list depend on all draws, so the last draws are taken back from torch's own list."""
    length, seed = 2**32 // 20, 42
    generator = torch.Generator()
    generator.manual_seed(seed)
    order = torch.randperm(length, generator=generator)
    generator.manual_seed(seed)
    drawn = draw(length, generator)
    for i in range(length - 1, length - 200001, -1):
        at = int(drawn[i]) % 2**64 % (i + 1)
        if int(order[at]) != i:
            return f"differs at {i}"
        order[at] = order[i]
    return "the last 200000 draws agree"


def main():
    if sys.argv[1:] == ["--long"]:
        print(compare_long())
        return
    print(HEAD % torch.__version__.split("+")[0])
    for length, replicas, *rest in LISTS:
        for rank in [*range(min(replicas, 8)), *range(max(replicas - 1, 8), replicas)]:
            found = indices(length, replicas, rank, *rest)
            shuffle, seed, epoch, drop_last = rest
            numbers = ", ".join(map(str, found + ([] if found else [0])))
            print(f"SAMPLER({length}, {replicas}, {rank}, {shuffle:d}, UINT64_C({seed}), {epoch}, {drop_last:d}, "
                  f"{len(found)}, {numbers})")
    for length, replicas, rank, shuffle, seed, epoch, drop_last in HASHES:
        found = indices(length, replicas, rank, shuffle, seed, epoch, drop_last)
        print(f"HASHED({length}, {replicas}, {rank}, {shuffle:d}, {seed}, {epoch}, {drop_last:d}, {len(found)}, "
              f"UINT64_C({hashed(found)}))")
    for length, seed in WIDE:
        print(f"WIDE({length}, {seed}, {', '.join(map(str, wide(length, seed)))})")


main()
