# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of DistributedDataParallel where the other ranks reach them, for a script that says nothing.

Its reducer copies gradients into buckets, has these summed, and copies the sums back. A bucket that has been seen in
two backward passes is moved into memory of ls_alloc, in place: tensors look at a storage, and it is the storage that
gets other memory. The sums go into a second block; the gradients are views of it as soon as nobody can tell, and the
reducer finds nothing to copy. Each rank does that for itself, as others need not know where a buffer lies.

    a bucket is moved          while nobody but the reducer looks at its storage
    a gradient becomes a view  while nobody else looks at its storage
    sums are written           while whoever looks at them is a gradient of now, or nobody

The counts of references to storages and tensors tell that; where there is more than there should be, the reducer copies.
"""

import os
import sys
import weakref

import torch

from lockstep import errors
from lockstep.torch import _memory

SHORTEST = 1 << 18  # bytes of a bucket that is worth the while
_can = all(
    hasattr(kind, name)
    for kind, name in (
        (torch.UntypedStorage, "_swap_data_ptr_"),
        (torch._C, "_storage_Use_Count"),
        (torch.Tensor, "_use_count"),
    )
)
_moved = {}  # id of a storage in memory that a forked child lacks → (the storage, whether what is there matters)
_copies = []  # of them, while the process forks
_told = False
# As in src/base/messages.h.
_MOVED = "gradients of DistributedDataParallel lie where the other ranks reach them from now on"


def wanted():
    """The library has refused what is neither 0 nor 1."""
    return _can and os.environ.get("LOCKSTEP_BUCKETS", "0").lstrip("0") == "1"


def _users(storage):
    return torch._C._storage_Use_Count(storage._cdata)


def _block(communicator, count, dtype):
    """A tensor in memory that the other ranks reach; None if there is none left."""
    try:
        return _memory.block(communicator, count, dtype)
    except errors.Error:
        return None


def _note(storage, matters):
    _moved[id(storage)] = weakref.ref(storage), weakref.WeakMethod(matters)
    _memory.at_end_of(storage, _moved.pop, id(storage), None)


def _tell(communicator):
    """Once, for who wants to know: nothing else shows it."""
    global _told
    if not _told and communicator.rank == 0 and os.environ.get("LOCKSTEP_LOG") in ("info", "debug"):
        print(f"lockstep: {_MOVED} [LS-BUCKETS-MOVED]", file=sys.stderr, flush=True)
    _told = True


class _Bucket:
    """One of a reducer's."""

    def __init__(self, storage, layout, communicator, model):
        self.storage = weakref.ref(storage)
        self.communicator = communicator
        self.has_views = model.gradient_as_bucket_view
        # Where no rank uses a parameter its gradient is left alone, so no sum may lie there.
        self.stays = self.has_views or model.find_unused_parameters or model.static_graph
        self.parameters = layout.parameters()
        self.offsets = [gradient.storage_offset() for gradient in layout.gradients()]
        self.dtype = layout.buffer().dtype
        self.is_moved = self.is_off = False
        self.aside = None  # where sums go
        self.views = []  # (parameter, its view of `aside`, the view's address)
        self.own = 0  # users of the storage of `aside` that are known here
        self.kept = 0  # views of it that the reducer has
        self.placed = None  # in this backward pass: where the sum goes

    # ---- the bucket ----

    def _is_reducers_own(self, storage):
        """Its storage has, beside the object by which Python knows it and the tensor of the whole bucket, two views of each
        gradient: where it is copied to, and where it is copied from."""
        if not storage.resizable() or _users(storage) != 2 + 2 * len(self.parameters):
            return False
        if not self.has_views:
            return True
        size, begin = self.dtype.itemsize, storage.data_ptr()
        gradients = [parameter.grad for parameter in self.parameters]
        return all(
            gradient is not None and gradient.data_ptr() == begin + offset * size and gradient._use_count() == 3
            for gradient, offset in zip(gradients, self.offsets)
        )

    def _move(self, tensor, storage):
        block = _block(self.communicator, tensor.numel(), tensor.dtype)
        if block is None:
            self.is_off = True
            return
        block.copy_(tensor)
        storage._swap_data_ptr_(block.untyped_storage())
        self.is_moved = True
        _note(storage, self._matters)
        _tell(self.communicator)

    def _matters(self):
        return self.has_views

    def place(self, tensor, storage):
        """Where its sum goes: the tensor itself, or `aside`."""
        self.placed = tensor
        if not self.is_moved and not self.is_off and self._is_reducers_own(storage):
            self._move(tensor, storage)
        if self.is_moved and not self.stays:
            if self.aside is None and not self.is_off:
                self._make_aside(tensor)
            if self.aside is not None and self._may_write():
                self.placed = self.aside
        return self.placed

    # ---- the sums ----

    def _make_aside(self, tensor):
        self.aside = _block(self.communicator, tensor.numel(), tensor.dtype)
        if self.aside is None:
            self.is_off = True
            return
        for parameter, offset in zip(self.parameters, self.offsets):
            if parameter.is_contiguous():
                view = self.aside[offset : offset + parameter.numel()].view(parameter.shape)
                self.views.append((parameter, view, view.data_ptr()))
        self.own = _users(self.aside.untyped_storage())
        _note(self.aside.untyped_storage(), self._aside_matters)

    def _aside_matters(self):
        return not self._is_free(0)

    def _inside(self):
        """How many gradients are views of `aside`."""
        gradients = [(parameter.grad, address) for parameter, _, address in self.views]
        return sum(gradient is not None and gradient.data_ptr() == address for gradient, address in gradients)

    def _is_free(self, inside):
        return _users(self.aside.untyped_storage()) == self.own + self.kept + inside

    def _may_write(self):
        """The reducer would overwrite gradients that are there; older ones, which a program keeps, it would not."""
        inside = self._inside()
        return inside == len(self.views) or self._is_free(inside)

    def show(self):
        """The sums are there: before the reducer copies them to gradients, these become views of them."""
        for parameter, view, address in self.views:
            gradient = parameter.grad
            if gradient is not None and gradient.data_ptr() != address and _may_become(gradient, view):
                gradient.data = view

    def finish(self):
        if self.placed is not None:
            self.kept = len(self.parameters) if self.placed is self.aside else 0
            self.placed = None


def _may_become(gradient, view):
    """Whether only this tensor, which autograd and perhaps Python know, looks at the gradient's memory: then nobody can
    tell that it lies elsewhere."""
    if (
        type(gradient) is not torch.Tensor
        or gradient.layout is not torch.strided
        or gradient.requires_grad
        or gradient.dtype is not view.dtype
        or gradient.shape != view.shape
        or gradient.stride() != view.stride()
        or gradient._use_count() != 2
        or gradient.is_conj()
        or gradient.is_neg()
    ):
        return False
    storage = gradient.untyped_storage()
    return storage.resizable() and _users(storage) == 2  # resizable: no array of NumPy looks at it


class Buckets:
    """Those of one model. A backward pass goes from begin() to end(), which comes when all sums are there and before
    the reducer takes them, and to finish(), when it has."""

    def __init__(self, model, communicator):
        self.model = weakref.ref(model)
        self.communicator = communicator
        self.known = {}  # id of a bucket's storage → _Bucket
        self.news = []  # buckets of this pass that are not known
        self.before = []  # storages of those of the pass before
        self.is_off = model.mixed_precision is not None

    def begin(self):
        self.news = []
        if any(bucket.placed is not None for bucket in self.known.values()):
            self.known = {}  # the pass before has not come to its end, and what the reducer has is not known
        if not self.is_off and self not in self.communicator.backward:
            self.communicator.backward.append(self)

    def end(self):
        for bucket in self.known.values():
            if bucket.placed is not None and bucket.placed is bucket.aside:
                bucket.show()

    def finish(self):
        if self in self.communicator.backward:
            self.communicator.backward.remove(self)
        if self.news and all(bucket.placed is None for bucket in self.known.values()):
            self._learn()  # a reducer gets all its buckets anew, so beside some that are known they are another one's
        for bucket in self.known.values():
            bucket.finish()
        self.news = []

    def _learn(self):
        """Which bucket has which parameters: the reducer's come in their order, and nobody else's in this pass."""
        news, storages = self.news, [tensor.untyped_storage() for tensor in self.news]
        before, self.before = self.before, [weakref.ref(storage) for storage in storages]
        self.known = {}
        model = self.model()
        if len(before) != len(news) or any(one() is not other for one, other in zip(before, storages)):
            return  # as in the first pass, after which there are other buckets
        if model is None or model._join_config.enable or not model.require_backward_grad_sync:
            return
        layouts = model.reducer._get_zeros_like_grad_buckets()
        if len(layouts) != len(news) or any(
            (layout.buffer().numel(), layout.buffer().dtype) != (tensor.numel(), tensor.dtype)
            for layout, tensor in zip(layouts, news)
        ):
            return
        for layout, storage in zip(layouts, storages):
            if storage.nbytes() >= SHORTEST:
                self.known[id(storage)] = _Bucket(storage, layout, self.communicator, model)
        self.is_off = not self.known

    def find(self, storage):
        bucket = self.known.get(id(storage))
        return bucket if bucket is not None and bucket.storage() is storage else None


def place(communicator, tensor):
    """Where the sum goes of a tensor that a reducer has given."""
    storage = tensor.untyped_storage()
    if tensor.dtype is torch.int32 or tensor.nbytes != storage.nbytes():
        return tensor  # the first is a list of the parameters that were used
    for buckets in communicator.backward:
        bucket = buckets.find(storage)
        if bucket is not None:
            return bucket.place(tensor, storage)
    for buckets in communicator.backward:
        buckets.news.append(tensor)
    return tensor


# ---- fork: a child has no memory of ls_alloc, but may look at gradients ----


def _before_fork():
    for reference, matters in list(_moved.values()):
        storage, ask = reference(), matters()
        if storage is not None:
            wanted = ask is None or ask()
            _copies.append((storage, storage.clone() if wanted else torch.UntypedStorage(storage.nbytes())))


def _in_child():
    for storage, copy in _copies:
        storage._swap_data_ptr_(copy)
    _copies.clear()


def watch():
    os.register_at_fork(before=_before_fork, after_in_parent=_copies.clear, after_in_child=_in_child)
