# SPDX-License-Identifier: BSD-3-Clause
"""Where a program called: "train.py:42 (train_step)", for the records of operations.

It must cost little, as every operation has one: a frame's code object and the position in it are looked up by
identity, and the text is made only once for each place.
"""

import os
import sys

_LABEL_BYTES = 95  # what the library keeps of one

_TYPED = ("<string>", "<stdin>", "<ipython-input")  # what users type has no file; else "<" means made by a program
_skipped_folders = [os.path.dirname(__file__) + os.sep]
_codes = {}  # id of a code object → (the object, so that its id stays its own; {position: text}, None: skipped)


def skip_folder(path):
    """Code below this folder is not where a user calls."""
    _skipped_folders.append(path.rstrip(os.sep) + os.sep)
    _codes.clear()


def _learn(code):
    name = code.co_filename
    skipped = name.startswith(("<", *_skipped_folders)) and not name.startswith(_TYPED)
    entry = _codes[id(code)] = (code, None if skipped else {})
    return entry


def _text(frame):
    code = frame.f_code
    name = getattr(code, "co_qualname", code.co_name)
    line = f"{os.path.basename(code.co_filename)}:{frame.f_lineno}"
    return f"{line} ({name})".encode()[:_LABEL_BYTES] if name != "<module>" else line.encode()[:_LABEL_BYTES]


def here():
    """The innermost place outside of PyTorch and this package; None if there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        entry = _codes.get(id(code)) or _learn(code)
        places = entry[1]
        if places is not None:
            text = places.get(frame.f_lasti)
            if text is None:
                text = places[frame.f_lasti] = _text(frame)
            return text
        frame = frame.f_back
    return None
