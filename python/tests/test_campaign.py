# SPDX-License-Identifier: BSD-3-Clause
"""The short version of campaign.py: some ranks killed and stopped at random moments of a training."""

import os
import sys

import pytest
from processes import run

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "campaign.py")
COUNT = 5


@pytest.mark.parametrize("kind", ["kill", "stop", "pause"])
def test_survivors_learn_what_happened(kind):
    counts = [f"--{one}s={COUNT if one == kind else 0}" for one in ("kill", "stop", "pause")]
    ended = run([sys.executable, PROGRAM, "--limit=6", *counts])
    assert f": {COUNT} of {COUNT};" in ended.text, ended.text
    assert ended.code == 0, ended.text
