#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""torch_policy.py TRACE…: reserved ÷ peak of the rules that PyTorch documents for its allocator on CUDA.

Its notes on memory management say: sizes are rounded up to 512 B. Up to 1 MiB comes from segments of 2 MiB, up to 10 MiB
from segments of 20 MiB, and more from a segment of its own, rounded up to 2 MiB. The smallest cached block that is large
enough is used, and split if more than 1 MiB is left, or 512 B of a small one. Neighbours merge when they are freed.
"""

import sys

MIB = 1 << 20


class Block:
    def __init__(self, segment, at, size):
        self.segment, self.at, self.size, self.free = segment, at, size, True


class Pool:
    def __init__(self):
        self.reserved, self.free = 0, {True: [], False: []}

    def take(self, size, small):
        if small:
            size = 2 * MIB
        else:
            size = 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        self.reserved += size
        segment = []
        segment.append(Block(segment, 0, size))
        return segment[0]

    def alloc(self, size):
        size = max(512, -(-size // 512) * 512)
        small = size <= MIB
        free = self.free[small]
        block = min((one for one in free if one.size >= size), key=lambda one: one.size, default=None)
        if block is None:
            block = self.take(size, small)
        else:
            free.remove(block)
        rest = block.size - size
        if rest >= 512 if small else rest > MIB:
            after = Block(block.segment, block.at + size, rest)
            block.segment.insert(block.segment.index(block) + 1, after)
            block.size = size
            free.append(after)
        block.free = False
        return block, small

    def release(self, block, small):
        free, segment = self.free[small], block.segment
        at = segment.index(block)
        if at + 1 < len(segment) and segment[at + 1].free:
            free.remove(segment[at + 1])
            block.size += segment.pop(at + 1).size
        if at > 0 and segment[at - 1].free:
            free.remove(segment[at - 1])
            block.at = segment[at - 1].at
            block.size += segment.pop(at - 1).size
        block.free = True
        free.append(block)


def replay(path):
    pool, blocks, live, peak = Pool(), {}, 0, 0
    with open(path, encoding="utf-8") as lines:
        for words in (line.split() for line in lines if not line.startswith("#")):
            if words[0] == "a":
                blocks[words[1]] = *pool.alloc(int(words[2])), int(words[2])
                live += int(words[2])
                peak = max(peak, live)
            else:
                block, small, size = blocks.pop(words[1])
                pool.release(block, small)
                live -= size
    print(f"{path}: peak {peak // MIB} MiB, reserved {pool.reserved // MIB} MiB, ratio {pool.reserved / peak:.3f}")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        replay(name)
