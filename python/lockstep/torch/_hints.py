# SPDX-License-Identifier: BSD-3-Clause
"""A hint at a mistake that hangs nothing, and that nobody notices: a DistributedSampler that shuffles without
set_epoch gives each epoch the same order."""

import gc
import sys
import warnings
import weakref

from lockstep import _sites

_searched = False  # among all objects of the process
_watched = []  # weak references to the samplers that an EpochWatch looks at


def _of(kind, things):
    return [thing for thing in things if issubclass(type(thing), kind)]


def _fresh(kind, is_wanted):
    """An instance that is wanted, of those that were made a moment ago: among the young objects, which are few. To look at
    all objects takes a tenth of a second if there are a million, and the other ranks wait. So it is done once in a process,
    and not if a pass has been found for another model. None: there is none."""
    global _searched
    found = _of(kind, gc.get_objects(0)) + _of(kind, gc.get_objects(1))
    wanted = next(filter(is_wanted, found), None)
    if wanted is None and not _searched and not _watched:
        _searched = True
        wanted = next(filter(is_wanted, _of(kind, gc.get_objects())), None)
    return wanted


def _sampler_of(iterator):
    batches = iterator._index_sampler
    return getattr(batches, "sampler", batches)


class EpochWatch:
    """Looks, at forward passes in training, whether a second pass over the data has begun with the epoch of the first.

    silent: on another rank than the first one, which speaks for all. The iterator of a DataLoader lives as long as one pass, or counts from 0 again.
    """

    def __init__(self, silent):
        self._done = silent
        self._iterator = None
        self._sampler = None
        self._epoch = 0
        self._yielded = 0

    def look(self):
        if self._done:
            return
        if self._iterator is None:
            self._find()
            return
        iterator = self._iterator()
        if iterator is not None and iterator._num_yielded >= self._yielded:
            self._yielded = iterator._num_yielded
            return
        self._done = True
        if self._sampler.epoch == self._epoch:
            frame = _sites.frame()
            warnings.warn_explicit(
                "lockstep: a second pass over the data begins, and the DistributedSampler still has epoch "
                f"{self._epoch}, so it gives the same order again: call sampler.set_epoch(epoch) before each pass",
                UserWarning,
                frame.f_code.co_filename if frame else "lockstep",
                frame.f_lineno if frame else 0,
            )

    def _find(self):
        """The pass that is under way, unless another model has found it. Once: a model that is run without one is not asked
        about again."""
        self._done = True
        loading = sys.modules.get("torch.utils.data.dataloader")
        sampling = sys.modules.get("torch.utils.data.distributed")
        if loading is None or sampling is None:
            return

        def is_wanted(iterator):
            sampler = _sampler_of(iterator)
            shuffles = isinstance(sampler, sampling.DistributedSampler) and sampler.shuffle
            return shuffles and all(watched() is not sampler for watched in _watched)

        iterator = _fresh(loading._BaseDataLoaderIter, is_wanted)
        if iterator is not None:
            self._iterator, self._sampler = weakref.ref(iterator), _sampler_of(iterator)
            self._epoch, self._yielded = self._sampler.epoch, iterator._num_yielded
            self._done = False
            _watched.append(weakref.ref(self._sampler, _watched.remove))
