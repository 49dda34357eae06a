# SPDX-License-Identifier: BSD-3-Clause
"""Two functional operators whose kernels call a process group past Python: they get kernels here that do not. Groups
of other backends go where they went."""

import torch
from torch._C import _distributed_c10d as c10d
from torch._C._distributed_c10d import AllgatherOptions

_kept = []


def _resolve(group):
    return c10d._resolve_process_group(group) if isinstance(group, str) else group


def _all_gather_into_tensor_out(group, input, out):
    opts = AllgatherOptions()
    work = group.all_gather_single(out, input, opts)
    c10d._register_work(out, work)
    return out


def _batch_p2p_ops(group, kinds, peers, tags, tensors):
    results = []
    for kind, peer, tag, tensor in zip(kinds, peers, tags, tensors):
        if kind == "irecv":
            result, work = tensor, group.recv([tensor], peer, tag)
        else:
            result, work = tensor.new_empty(0), group.send([tensor], peer, tag)
        c10d._register_work(result, work)
        results.append(result)
    return results


def _split_gather(input, group_size, group_name, *, out):
    return _resolve(group_name), lambda group: _all_gather_into_tensor_out(group, input, out)


def _split_points(kinds, peers, tags, tensors, group_name):
    return _resolve(group_name), lambda group: _batch_p2p_ops(group, kinds, peers, tags, tensors)


def register(ours):
    """`ours` tells whether a process group is one of this package."""
    library = torch.library.Library("_c10d_functional", "IMPL")
    for name, split in (("all_gather_into_tensor_out", _split_gather), ("batch_p2p_ops", _split_points)):
        if not hasattr(torch.ops._c10d_functional, name):
            continue  # in a PyTorch that is older than the operator
        operator = getattr(torch.ops._c10d_functional, name).default
        before = torch.library.get_kernel(operator, "CPU")

        def kernel(keys, *args, _split=split, _before=before, **kwargs):
            group, run = _split(*args, **kwargs)
            return run(group) if ours(group) else _before.call_boxed(keys, *args, **kwargs)

        library.impl(name, kernel, "CPU", with_keyset=True)
        _kept.append((library, before))
