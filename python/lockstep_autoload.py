# SPDX-License-Identifier: BSD-3-Clause
"""What PyTorch calls at its own import, by the entry point "torch.backends": it makes the backend's name known. All else,
with the C library, is loaded when a group is made. Whatever fails here would fail `import torch`, so it stands outside the
package, and does nothing that can."""


def _create(*options):
    from lockstep.torch import _group

    return _group.create(*options)


def _rendezvous(*place, **options):
    from lockstep.torch import _rendezvous

    return _rendezvous.meet(*place, **options)


def register():
    import torch.distributed as dist

    if dist.is_available() and "lockstep" not in dist.Backend.backend_list:
        dist.Backend.register_backend("lockstep", _create, extended_api=True, devices=["cpu"])
        dist.register_rendezvous_handler("lockstep", _rendezvous)
