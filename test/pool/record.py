#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Records the allocations of three training programs, for trace_test.c: record.py FOLDER

PyTorch's profiler gives each allocation and free of the CPU's allocator. Its sizes are those of the same program on a
device, because tensors have the same shapes there. The models are small enough for a CPU. SCALE multiplies each size of
at least SCALED bytes, as larger batches and layers would. Sizes below that are scalars, counters and the like, which do
not grow with a model.

A line is an event, in order of time: "a SLOT BYTES" allocates, "f SLOT" frees. A slot is used again after its free.
"""

import random
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

SCALED = 512


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.project(x).split(width, dim=2)
        )
        scores = q @ k.transpose(2, 3) / (width // self.heads) ** 0.5
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = self.dropout(scores.masked_fill(future, float("-inf")).softmax(dim=-1))
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = Attention(width, heads)
        self.wide = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1)
        )

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.wide(self.norms[1](x))


class Gpt(nn.Module):
    def __init__(self, words=4000, width=192, heads=6, layers=4, longest=320):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(longest, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def train_gpt(steps):
    """Sentences of other lengths in each batch; AdamW, and gradients that are clipped."""
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        tokens = torch.randint(4000, (4, random.randint(64, 321)))
        logits = model(tokens[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()


class Residual(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(after) for _ in range(2))
        self.short = nn.Sequential()
        if stride > 1:
            self.short = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        y = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.norms[1](self.second(y)) + self.short(x))


def resnet(widths=(32, 64, 128, 256), classes=100):
    layers = [nn.Conv2d(3, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU()]
    before = widths[0]
    for width in widths:
        layers += [Residual(before, width, 1 if width == before else 2), Residual(width, width, 1)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


def train_resnet(steps):
    """Images of other sizes in each batch; each third step ends an epoch: a smaller batch, then an evaluation."""
    model = resnet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    for step in range(steps):
        batch, side = 5 if step % 3 == 2 else 16, random.choice((32, 40, 48, 56))
        images, labels = torch.randn(batch, 3, side, side), torch.randint(100, (batch,))
        loss = functional.cross_entropy(model(images), labels, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        if step % 3 == 2:
            model.eval()
            with torch.no_grad():
                (model(torch.randn(24, 3, 48, 48)).argmax(1) == 0).sum().item()
            model.train()


class Recommender(nn.Module):
    def __init__(self, rows=(20000, 6000, 3000, 1200, 500, 90), width=48):
        super().__init__()
        self.rows = rows
        self.tables = nn.ModuleList(nn.EmbeddingBag(count, width, mode="sum") for count in rows)
        self.bottom = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        pairs = (len(rows) + 1) * len(rows) // 2
        self.top = nn.Sequential(
            nn.Linear(width + pairs, 512), nn.ReLU(), nn.Dropout(0.2), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)
        )

    def forward(self, numbers, bags):
        x = self.bottom(numbers)
        parts = torch.stack([x] + [table(bag) for table, bag in zip(self.tables, bags)], dim=1)
        products = torch.bmm(parts, parts.transpose(1, 2))
        first, second = torch.tril_indices(parts.shape[1], parts.shape[1], offset=-1)
        return self.top(torch.cat([x, products[:, first, second]], dim=1)).squeeze(1)


def train_recommender(steps):
    """Embeddings and linear layers; four batches of other sizes for each step of Adam."""
    model = Recommender()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(4):
            batch = random.randint(500, 4000)
            bags = [torch.randint(count, (batch, random.randint(1, 8))) for count in model.rows]
            logits = model(torch.randn(batch, 13), bags)
            loss = functional.binary_cross_entropy_with_logits(logits, torch.randint(2, (batch,)).float())
            (loss / 4).backward()
        optimizer.step()
        loss.item()


def events_of(train, steps):
    """(address, bytes) of each allocation and free (negative), in order of time."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        train(steps)
    found = []

    def walk(nodes):
        for node in nodes:
            if node.tag == torch._C._profiler._EventType.Allocation:
                found.append((node.start_time_ns, node.extra_fields.ptr, node.extra_fields.alloc_size))
            walk(node.children)

    walk(profiler.profiler.kineto_results.experimental_event_tree())
    found.sort(key=lambda event: event[0])
    return [(address, size) for _, address, size in found]


def write(path, train, steps, scale):
    slots, free, used, lines, live, peak = {}, [], 0, [], 0, 0
    sizes = {}
    for address, size in events_of(train, steps):
        if size > 0:
            assert address not in slots, "two live allocations at one address"
            if not free:
                free.append(used)
                used += 1
            slot = slots[address] = free.pop()
            sizes[slot] = size * scale if size >= SCALED else size
            lines.append(f"a {slot} {sizes[slot]}")
            live += sizes[slot]
            peak = max(peak, live)
        elif address in slots:
            slot = slots.pop(address)
            live -= sizes[slot]
            free.append(slot)
            lines.append(f"f {slot}")
    head = [
        f"# {train.__name__}: {steps} steps, recorded with PyTorch {torch.__version__}'s CPU memory profiler",
        f"# each size of at least {SCALED} bytes times {scale}; {len(lines)} events, peak {peak / 2**20:.0f} MiB",
        "# a SLOT BYTES: allocate; f SLOT: free",
    ]
    path.write_text("\n".join(head + lines) + "\n")
    print(path, len(lines), "events", f"{peak / 2**20:.0f} MiB", path.stat().st_size, "bytes", len(slots), "live")


def main():
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    for name, train, steps, scale in (
        ("gpt.txt", train_gpt, 8, 8),
        ("resnet.txt", train_resnet, 9, 16),
        ("recommender.txt", train_recommender, 8, 16),
    ):
        torch.manual_seed(17)
        random.seed(17)
        write(folder / name, train, steps, scale)


if __name__ == "__main__":
    main()
