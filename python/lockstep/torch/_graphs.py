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


def _skip(function):
    set_code_exec_strategy(function.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))


def end_graph(*functions):
    """A call of one of these within code that is compiled ends the graph, and runs as it is. Without this the compiler
    would look into them, and fail where they look into a process group."""
    for function in functions:
        if set_code_exec_strategy is not None:
            _skip(function)
        function._torchdynamo_disable = True


def keep_out(*classes, functions=()):
    """The methods of these classes, these functions, and all that they call, run as they are. A program need not call them
    in what it compiles: the compiler looks at each frame below it, also at hooks that PyTorch calls."""
    if set_code_exec_strategy is not None:
        for function in functions:
            _skip(function)
    for class_ in classes:
        for name, value in list(vars(class_).items()):
            if not isinstance(value, types.FunctionType):
                continue
            if set_code_exec_strategy is not None:
                _skip(value)
            elif not name.startswith("__"):
                setattr(class_, name, torch.compiler.disable(value))
