# SPDX-License-Identifier: BSD-3-Clause
"""A hint at a mistake that hangs nothing, and that nobody notices: a DistributedSampler that shuffles without
set_epoch gives each epoch the same order."""

import gc
import sys
import warnings
import weakref

from lockstep import _sites


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
        """The pass that is under way. Looks through all objects, so once: a model that is run without one is not
        asked about again."""
        self._done = True
        loading = sys.modules.get("torch.utils.data.dataloader")
        sampling = sys.modules.get("torch.utils.data.distributed")
        if loading is None or sampling is None:
            return
        for thing in gc.get_objects():
            if not issubclass(type(thing), loading._BaseDataLoaderIter):
                continue
            batches = thing._index_sampler
            sampler = getattr(batches, "sampler", batches)
            if isinstance(sampler, sampling.DistributedSampler) and sampler.shuffle:
                self._iterator = weakref.ref(thing)
                self._sampler, self._epoch, self._yielded = sampler, sampler.epoch, thing._num_yielded
                self._done = False
                return
