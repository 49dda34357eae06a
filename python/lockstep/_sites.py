# SPDX-License-Identifier: BSD-3-Clause
"""Where a program called: "train.py:42 (train_step)", for the records of operations.

It must cost little, as every operation has one: a frame's code object and the position in it are looked up by
identity, and the text is made only once for each place.

Some functions that are skipped call for a reason that their caller may not know of. Such a reason is added to the
text, and a report that has it explains it.
"""

import ctypes
import os
import sys
import threading

_LABEL_BYTES = 95  # what the library keeps of one

_TYPED = ("<string>", "<stdin>", "<ipython-input")  # what users type has no file; else "<" means made by a program
_OURS = os.path.dirname(__file__) + os.sep
# Skipped are this package, the entry point, which stands beside it, and Python's own library, whose threads, executors
# and context managers call what the user has handed them.
_skipped = [_OURS, os.path.dirname(__file__) + "_autoload.py"]
_LIBRARY = os.path.dirname(threading.__file__) + os.sep
_PACKAGES = _LIBRARY + "site-packages" + os.sep  # of others, within it
# id of a code object → (the object, so that its id stays its own; {position: text}, None: skipped; reason)
_codes = {}
_reasons = {}  # (end of a file's name, function) → reason
_explanations = {}  # reason → what a report says about it


class _Addresses(dict):
    def __missing__(self, text):
        self[text] = ctypes.cast(text, ctypes.c_void_p).value
        return self[text]


addresses = _Addresses({None: None})  # a text, such as here() gives → where it lies, for ever: for the library


def skip(path):
    """Code of this file, or below this folder, is not where a user calls."""
    _skipped.append(path if os.path.isfile(path) else path.rstrip(os.sep) + os.sep)
    _codes.clear()


def give_reason(file, function, reason, explanation=None):
    """Calls from within this function, of a file in a folder that is skipped, are made for this reason. If functions
    call each other, that of the innermost holds."""
    _reasons[file, function] = reason
    if explanation:
        _explanations[reason] = explanation
    _codes.clear()


def explain(report):
    """The report, followed by an explanation of each reason that it names."""
    return "\n".join([report, *(text for reason, text in _explanations.items() if reason in report)])


def _is_library(name):
    return name.startswith(_LIBRARY) and not name.startswith(_PACKAGES)


def _learn(code):
    name = code.co_filename
    skipped = name.startswith(("<", *_skipped)) and not name.startswith(_TYPED) or _is_library(name)
    found = (why for (file, function), why in _reasons.items() if function == code.co_name and name.endswith(file))
    entry = _codes[id(code)] = (code, None if skipped else {}, next(found, None) if skipped else None)
    return entry


def _text(frame, reason):
    code = frame.f_code
    name = getattr(code, "co_qualname", code.co_name)
    line = f"{os.path.basename(code.co_filename)}:{frame.f_lineno}"
    end = f" {reason}" if reason else ""
    text = f"{line} ({name})" if name != "<module>" else line
    return text.encode()[: _LABEL_BYTES - len(end)] + end.encode()


def is_user(code):
    """Whether this code belongs neither to PyTorch nor to this package."""
    return (_codes.get(id(code)) or _learn(code))[1] is not None


def frame():
    """The frame of the innermost place outside of PyTorch and this package; None if there is none."""
    found = sys._getframe(1)
    while found is not None and not is_user(found.f_code):
        found = found.f_back
    return found


def _of_nobody():
    """The place of a call that no code of the user's has made, as of a function that is attached to a future: the
    outermost function of PyTorch below this package, or below the thread, which has called it. None if it is in no file."""
    frame, found = sys._getframe(2), None
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith((_OURS, "<")) or _is_library(name):
            if found is not None:
                break
        elif not name.endswith("c10d_logger.py"):  # it wraps what users call
            found = frame
        frame = frame.f_back
    return _text(found, None) if found is not None else None


def here(above=1):
    """The innermost place outside of PyTorch, Python's library and this package; if there is none, that in PyTorch.
    The first `above` frames, the caller's among them, are of this package for sure."""
    frame = sys._getframe(above + 1)
    reason = None
    while frame is not None:
        code = frame.f_code
        entry = _codes.get(id(code)) or _learn(code)
        places = entry[1]
        if places is not None:
            where = (frame.f_lasti, reason) if reason else frame.f_lasti
            text = places.get(where)
            if text is None:
                text = places[where] = _text(frame, reason)
            return text
        reason = reason or entry[2]
        frame = frame.f_back
    return _of_nobody()


def called_by_library(name):
    """Whether C++ has called the caller, the function `name`, with nothing of Python in between: the code of the innermost
    Python function does not name it."""
    return name not in sys._getframe(2).f_code.co_names


def of_trace(trace):
    """Where an exception passed the innermost place that is not skipped, else the innermost of all: "train.py:42"."""
    place = inner = None
    while trace is not None:
        code = trace.tb_frame.f_code
        inner = f"{os.path.basename(code.co_filename)}:{trace.tb_lineno}"
        if (_codes.get(id(code)) or _learn(code))[1] is not None:
            place = inner
        trace = trace.tb_next
    return place or inner
