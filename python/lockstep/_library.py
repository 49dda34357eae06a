# SPDX-License-Identifier: BSD-3-Clause
"""The C library: its structs as in include/lockstep, and its functions. Every call lets go of the GIL."""

import ctypes
import glob
import os
from ctypes import c_char, c_char_p, c_double, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

VERSION = "0.1.0"

OK, FORKED, ABORTED, PENDING = 0, 4, 12, 22
ANY = -1  # source or tag


class GroupOptions(ctypes.Structure):
    _fields_ = [
        ("size", c_uint32),
        ("timeout_ms", c_uint32),
        ("open_timeout_ms", c_uint32),
        ("rank", c_int32),
        ("world_size", c_int32),
        ("resume_after_signals", c_uint32),
        ("rendezvous", c_char_p),
        ("keep_memory", c_uint32),
    ]


class Failure(ctypes.Structure):
    _fields_ = [
        ("size", c_uint32),
        ("status", c_int),
        ("rank", c_int32),
        ("pid", c_int32),
        ("operation", c_uint64),
        ("text", c_char * 2048),
        ("host", c_char * 64),
    ]


class Message(ctypes.Structure):
    _fields_ = [
        ("size", c_uint32),
        ("source", c_int32),
        ("tag", c_int32),
        ("dtype", c_uint32),
        ("count", c_uint64),
    ]


class OpOptions(ctypes.Structure):
    """struct ls_call_options, and behind it where the call puts the handle."""

    _fields_ = [
        ("size", c_uint32),
        ("timeout_ms", c_uint32),
        ("tag", c_int32),
        ("resumable", c_uint32),
        ("label", c_void_p),  # of _sites.addresses
        ("stream", c_void_p),
        ("request", c_void_p),
        ("callback", c_void_p),
        ("callback_data", c_void_p),
        ("factor", c_double),
        ("message", c_void_p),
        ("handle", c_void_p),
    ]


OP_OPTIONS_BYTES = OpOptions.handle.offset


def call_options(resumable=0):
    """The options of a call that gives a handle; the same object has room for it. `where` is the object's address, as a
    call takes it without conversion."""
    options = OpOptions(OP_OPTIONS_BYTES, resumable=resumable)
    where = ctypes.addressof(options)
    options.request = where + OpOptions.handle.offset
    options.where = c_void_p(where)
    return options


class Buffers(ctypes.Structure):
    _fields_ = [("send", c_void_p), ("recv", c_void_p), ("count", c_uint64)]


class MemoryStats(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("unused", c_uint32)] + [
        (name, c_uint64)
        for name in (
            "arena_bytes live_bytes cached_bytes hits misses registered registered_bytes registered_again registrable"
        ).split()
    ]


def _find():
    """The library that was installed with this package; for an editable installation the built one, which its loader
    knows; otherwise "", and the system finds one."""
    beside = sorted(glob.glob(os.path.join(os.path.dirname(__file__), "liblockstep.so*")))
    if not beside:
        from importlib import resources

        beside = [str(file) for file in resources.files(__package__).iterdir() if file.name.startswith("liblockstep.so")]
    return beside[0] if beside else ""


def _load(path):
    try:
        return ctypes.CDLL(path or "liblockstep.so.0")
    except OSError as error:
        raise ImportError(
            f"lockstep: the C library cannot be loaded ({error}). `pip install .` in the sources brings it along; "
            "one that was built by hand is found through LD_LIBRARY_PATH"
        ) from error


def load_with_python(name):
    """A library of this package that calls Python, and so runs with the GIL held. None where it was not built."""
    try:
        return ctypes.PyDLL(os.path.join(FOLDER, name))
    except OSError:
        return None


_path = _find()
FOLDER = os.path.dirname(_path)  # "" if the system has found it
C = _load(_path)

_buffers = [c_void_p, c_void_p, c_void_p, c_uint64, c_int]  # group, send, recv, count, dtype
_counted = [c_void_p, c_void_p, c_void_p, c_void_p, c_int]  # the same with a count for each rank
_many = [c_void_p, c_void_p, c_int, c_int]  # group, buffers, how many, dtype
_message = [c_void_p, c_void_p, c_uint64, c_int, c_int, c_void_p]

_FUNCTIONS = {
    "ls_version": (c_char_p, []),
    "ls_status_name": (c_char_p, [c_int]),
    "ls_status_text": (c_char_p, [c_int]),
    "ls_last_error": (c_size_t, [c_char_p, c_size_t]),
    "ls_group_open": (c_int, [c_void_p, c_void_p]),
    "ls_group_from_members": (c_int, [c_void_p, c_void_p, c_int, c_void_p, c_void_p]),
    "ls_group_close": (None, [c_void_p]),
    "ls_group_abort": (c_int, [c_void_p, c_char_p]),
    "ls_group_failure": (c_int, [c_void_p, c_void_p]),
    "ls_test": (c_int, [c_void_p]),
    "ls_wait": (c_int, [c_void_p, c_uint32]),
    "ls_request_free": (None, [c_void_p]),
    "ls_allreduce": (c_int, [*_buffers, c_int, c_void_p]),
    "ls_reduce": (c_int, [*_buffers, c_int, c_int, c_void_p]),
    "ls_broadcast": (c_int, [*_buffers, c_int, c_void_p]),
    "ls_allgather": (c_int, [*_buffers, c_void_p]),
    "ls_allgatherv": (c_int, [*_counted, c_void_p]),
    "ls_gather": (c_int, [*_buffers, c_int, c_void_p]),
    "ls_scatter": (c_int, [*_buffers, c_int, c_void_p]),
    "ls_reduce_scatter": (c_int, [*_buffers, c_int, c_void_p]),
    "ls_reduce_scatterv": (c_int, [*_counted, c_int, c_void_p]),
    "ls_alltoall": (c_int, [*_buffers, c_void_p]),
    "ls_alltoallv": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p]),
    "ls_barrier": (c_int, [c_void_p, c_void_p]),
    "ls_allreduce_many": (c_int, [*_many, c_int, c_void_p]),
    "ls_send": (c_int, _message),
    "ls_recv": (c_int, _message),
    "ls_alloc": (c_int, [c_void_p, c_size_t, c_void_p]),
    "ls_free": (c_int, [c_void_p, c_void_p]),
    "ls_register": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_uint64, c_void_p]),
    "ls_deregister": (c_int, [c_void_p, c_void_p]),
    "ls_memory_stats": (c_int, [c_void_p, c_void_p]),
    "ls_phase_begin": (c_int, [c_void_p, c_char_p]),
    "ls_phase_end": (c_int, [c_void_p, c_char_p]),
    "ls_phase_report": (c_int, [c_void_p, c_char_p, c_size_t]),
}

for _name, (_result, _arguments) in _FUNCTIONS.items():
    _function = getattr(C, _name)
    _function.restype = _result
    _function.argtypes = _arguments

_found = C.ls_version().decode()
if _found != VERSION:
    raise ImportError(f"lockstep: this is the package of version {VERSION}, and the C library is {_found}")
