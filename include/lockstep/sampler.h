/* SPDX-License-Identifier: BSD-3-Clause
 * Which samples of a data set each rank uses in an epoch: the index lists of PyTorch's
 * DistributedSampler, the same numbers in the same order. See ls_sampler(3).
 *
 * Local: no call here communicates or blocks. One thread at a time may open a sampler, set its
 * epoch or close it. Any number of threads may read it in between. */
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
	/* The number of ranks that share the samples, and the caller's rank among them. With
	 * num_replicas 0 both are taken from the group, and `rank` must be 0. */
	int32_t num_replicas;
	int32_t rank;
	/* Not 0: samples keep their order (shuffle=False). */
	uint32_t no_shuffle;
	/* Not 0: the remainder after dividing by num_replicas is dropped. 0: the order is padded
	 * from its beginning, several times if needed. */
	uint32_t drop_last;
	uint32_t reserved;
	/* Must be the same on all ranks. Only the lower 32 bits of seed + epoch are used, as in
	 * PyTorch. */
	uint64_t seed;
};

/* Opens a sampler over samples 0 to length - 1, at epoch 0. Shuffling takes 8 bytes for each
 * sample. Only rank and size are read from `group`, which may be NULL if num_replicas is given; the
 * sampler may outlive it.
 * Errors: LS_BAD_ARGUMENT (also if length is above 2^53), LS_OUT_OF_MEMORY, LS_FORKED (in a forked
 * child, with num_replicas 0); *out is NULL. */
LS_EXPORT LS_CHECKED ls_status ls_sampler_open(const ls_group *group, uint64_t length,
					       const struct ls_sampler_options *options,
					       ls_sampler **out);

/* Shuffles for another epoch. All ranks must call it with the same epoch.
 * Errors: LS_BAD_ARGUMENT. */
LS_EXPORT LS_CHECKED ls_status ls_sampler_set_epoch(ls_sampler *sampler, uint64_t epoch);

/* The number of samples of this rank in an epoch, the same on all ranks; 0 if `sampler` is NULL. */
LS_EXPORT uint64_t ls_sampler_count(const ls_sampler *sampler);

/* The i-th sample of this rank, counted from 0: i < ls_sampler_count. UINT64_MAX for any other i,
 * or if `sampler` is NULL. */
LS_EXPORT uint64_t ls_sampler_index(const ls_sampler *sampler, uint64_t i);

/* Frees the sampler. NULL is allowed. */
LS_EXPORT void ls_sampler_close(ls_sampler *sampler);

#ifdef __cplusplus
}
#endif
#endif
