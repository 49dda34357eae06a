# SPDX-License-Identifier: BSD-3-Clause
# What users call, for type checkers; python/tests/test_package.py compares it with the functions themselves.
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from lockstep.errors import Error

__all__ = [
    "MappedBuckets",
    "ProcessGroup",
    "dump_flight_recorder",
    "empty",
    "empty_like",
    "full",
    "mapped_buckets",
    "ones",
    "phase",
    "phase_report",
    "process_group",
    "share",
    "tensor",
    "zeros",
]

class ProcessGroup(dist.ProcessGroup):
    def abort(self, reason: str | None = None) -> None: ...
    def shutdown(self) -> None: ...
    def error(self) -> Error | None: ...
    def failure(self) -> str: ...
    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None: ...
    def set_timeout(self, timeout: timedelta) -> None: ...

class MappedBuckets:
    group: dist.ProcessGroup | None
    def __init__(self, group: dist.ProcessGroup | None = None) -> None: ...

def mapped_buckets(state: MappedBuckets, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]: ...
def empty(
    *size: Any, dtype: torch.dtype | None = None, group: dist.ProcessGroup | None = None, requires_grad: bool = False
) -> torch.Tensor: ...
def zeros(
    *size: Any, dtype: torch.dtype | None = None, group: dist.ProcessGroup | None = None, requires_grad: bool = False
) -> torch.Tensor: ...
def ones(
    *size: Any, dtype: torch.dtype | None = None, group: dist.ProcessGroup | None = None, requires_grad: bool = False
) -> torch.Tensor: ...
def full(
    size: Any,
    value: float,
    *,
    dtype: torch.dtype | None = None,
    group: dist.ProcessGroup | None = None,
    requires_grad: bool = False,
) -> torch.Tensor: ...
def empty_like(
    tensor: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    group: dist.ProcessGroup | None = None,
    requires_grad: bool = False,
) -> torch.Tensor: ...
def tensor(
    data: Any, *, dtype: torch.dtype | None = None, group: dist.ProcessGroup | None = None, requires_grad: bool = False
) -> torch.Tensor: ...
def share(buffer: torch.Tensor, group: dist.ProcessGroup | None = None) -> bool: ...
def phase(name: str, group: dist.ProcessGroup | None = None) -> AbstractContextManager[None]: ...
def phase_report(group: dist.ProcessGroup | None = None) -> str: ...
def process_group(store: dist.Store, rank: int, size: int, timeout: timedelta = ...) -> ProcessGroup: ...
def dump_flight_recorder(prefix: str) -> str: ...
