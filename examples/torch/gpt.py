# SPDX-License-Identifier: BSD-3-Clause
"""A small transformer that reads and writes characters, and the text that it learns from."""

import os

import torch
import torch.nn.functional as F
from torch import nn

TEXT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "genesis_john.txt")


class Text:
    """A text as numbers, one for each character."""

    def __init__(self, path=TEXT):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.characters = sorted(set(text))
        number = {character: i for i, character in enumerate(self.characters)}
        self.data = torch.tensor([number[character] for character in text])

    def batch(self, seed, first, count, context):
        """Sequences first to first + count of the batch of this seed, and what follows each of their characters."""
        generator = torch.Generator().manual_seed(seed)
        starts = torch.randint(len(self.data) - context - 1, (first + count,), generator=generator)[first:]
        rows = torch.stack([self.data[start : start + context + 1] for start in starts.tolist()])
        return rows[:, :-1], rows[:, 1:]

    def decode(self, numbers):
        return "".join(self.characters[number] for number in numbers)


class Block(nn.Module):
    """Attention to the characters before, then a layer for each of them by itself."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attention(self, x):
        batch, context, width = x.shape
        q, k, v = self.qkv(x).view(batch, context, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.project(x.transpose(1, 2).reshape(batch, context, width))

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    """Given targets it returns the loss, else what it expects next."""

    def __init__(self, characters, width=192, layers=4, heads=6, context=64):
        super().__init__()
        self.context = context
        self.embedding = nn.Embedding(characters, width)
        self.position = nn.Parameter(torch.zeros(context, width))
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, inputs, targets=None):
        x = self.embedding(inputs) + self.position[: inputs.shape[1]]
        logits = self.head(self.norm(self.blocks(x)))
        return logits if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def write(self, start, count, seed=0):
        """`count` characters that go on after `start`, a list of numbers."""
        generator = torch.Generator().manual_seed(seed)
        written = list(start)
        for _ in range(count):
            logits = self(torch.tensor([written[-self.context :]]))[0, -1]
            written.append(torch.multinomial(F.softmax(logits / 0.7, -1), 1, generator=generator).item())
        return written
