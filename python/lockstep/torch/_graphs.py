# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile: what this package does is never part of a graph.

Decorating with torch.compiler.disable says the same, but imports the compiler, which takes seconds, and costs half
a microsecond for each call. So the code objects are marked, if this version of PyTorch has what its own decorator
uses for that.
"""

import types

import torch

try:
    from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
except ImportError:
    set_code_exec_strategy = None


def keep_out(*classes):
    """The methods of these classes, and all that they call, run as they are."""
    for class_ in classes:
        for name, value in list(vars(class_).items()):
            if not isinstance(value, types.FunctionType):
                continue
            if set_code_exec_strategy is not None:
                skip = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
                set_code_exec_strategy(value.__code__, skip)
            elif not name.startswith("__"):
                setattr(class_, name, torch.compiler.disable(value))
