# SPDX-License-Identifier: BSD-3-Clause
"""Refuses a PyTorch that is too old, in a sentence that says what to do."""

import torch

OLDEST = (2, 9)


def check(found):
    """`found`: such as "2.13.0+cpu"."""
    if tuple(int(number) for number in found.split(".")[:2]) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ImportError(f"lockstep: this is PyTorch {found}, and {oldest} is the oldest that works: pip install 'torch>={oldest}'")


check(torch.__version__)
