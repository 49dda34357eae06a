/* SPDX-License-Identifier: BSD-3-Clause
 * Which samples of a data set this rank takes in an epoch: the index lists of PyTorch's
 * DistributedSampler, the same numbers in the same order. See ls_sampler(3).
 *
 * Local: no call here communicates or blocks. One thread at a time may open, set the epoch or close;
 * any number may read in between. */
#ifndef LOCKSTEP_SAMPLER_H
#define LOCKSTEP_SAMPLER_H

#include <stdint.h>

#include "group.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_sampler ls_sampler;

struct ls_sampler_options {
	uint32_t size;
	/* Number of ranks that share the samples, and which of them the caller is. num_replicas 0: both
	 * are those of the group, and rank must be 0 as well. */
	int32_t num_replicas;
	int32_t rank;
	/* Not 0: samples keep their order (shuffle=False). */
	uint32_t no_shuffle;
	/* Not 0: what is left over after dividing by num_replicas is dropped; else lists are filled up
	 * from the beginning of the order, as often as it takes. */
	uint32_t drop_last;
	uint32_t reserved;
	/* The same on all ranks. Of seed + epoch the lower 32 bits matter, as with PyTorch. */
	uint64_t seed;
};

/* A sampler over samples 0 to length - 1, at epoch 0. Shuffling takes 8 bytes for each sample. `group` is
 * only asked for its rank and size, and may be NULL if num_replicas is given; the sampler may outlive it.
 * Errors: LS_BAD_ARGUMENT, LS_OUT_OF_MEMORY; *out is NULL. */
LS_EXPORT LS_CHECKED ls_status ls_sampler_open(const ls_group *group, uint64_t length,
					       const struct ls_sampler_options *options,
					       ls_sampler **out);

/* Shuffles for another epoch; all ranks must call it with the same one. Errors: LS_BAD_ARGUMENT. */
LS_EXPORT LS_CHECKED ls_status ls_sampler_set_epoch(ls_sampler *sampler, uint64_t epoch);

/* Samples of this rank in an epoch, the same number on all ranks; 0 if sampler is NULL. */
LS_EXPORT uint64_t ls_sampler_count(const ls_sampler *sampler);

/* The i-th of them, i < ls_sampler_count; UINT64_MAX for another i. */
LS_EXPORT uint64_t ls_sampler_index(const ls_sampler *sampler, uint64_t i);

/* NULL is allowed. */
LS_EXPORT void ls_sampler_close(ls_sampler *sampler);

#ifdef __cplusplus
}
#endif
#endif
