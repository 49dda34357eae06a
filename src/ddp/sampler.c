/* SPDX-License-Identifier: BSD-3-Clause
 * Each rank has the order of all samples, and takes every num_replicas-th of them, from its own
 * number on. Padding is this: positions past the end begin again at the head. */
#include <lockstep/sampler.h>

#include <stdlib.h>
#include <string.h>

#include "base/messages.h"
#include "ddp/ddp_private.h"
#include "ddp/random.h"
#include "group/group.h"

/* PyTorch divides lengths as doubles; up to here that is exact. */
#define LENGTH_MAX (UINT64_C(1) << 53)

/* count is the same for all ranks; count * num_replicas is PyTorch's total_size, and with drop_last
 * it is at most length. count == 0 if length == 0. */
struct ls_sampler {
	uint64_t length, count;
	uint64_t num_replicas, rank;
	uint64_t seed, epoch;
	uint64_t *order; /* of all samples; NULL: their own */
};

static ls_status read_options(const ls_group *group, const struct ls_sampler_options *options,
			      struct ls_sampler_options *out)
{
	static const char call[] = "ls_sampler_open";
	*out = (struct ls_sampler_options){.size = sizeof *out};
	if (options && !option_size_is_right(options->size, sizeof *out))
		return ddp_bad(call, "options->size", options->size,
			       "sizeof(struct ls_sampler_options)");
	if (options)
		memcpy(out, options, options->size);
	if (out->reserved)
		return ddp_bad(call, "options->reserved", out->reserved, "0");
	if (out->num_replicas == 0) {
		if (!group)
			return ddp_bad(call, "group", 0, "not NULL when num_replicas is 0");
		if (out->rank != 0)
			return ddp_bad(call, "options->rank", out->rank, "0 when num_replicas is 0");
		ls_status status = group_check_open(call, group);
		if (status != LS_OK)
			return status;
		out->num_replicas = ls_group_size(group);
		out->rank = ls_group_rank(group);
	}
	if (out->num_replicas < 1)
		return ddp_bad(call, "options->num_replicas", out->num_replicas, "at least 1, or 0");
	if (out->rank < 0 || out->rank >= out->num_replicas)
		return ddp_bad(call, "options->rank", out->rank, "0 to num_replicas - 1");
	return LS_OK;
}

/* Samples for each rank: ceil(length / num_replicas), or with drop_last the same of the length less
 * the up to num_replicas samples that are dropped. */
static uint64_t count_of(uint64_t length, uint64_t num_replicas, bool drop_last)
{
	return length / num_replicas + (!drop_last && length % num_replicas != 0);
}

static void shuffle_order(struct ls_sampler *sampler)
{
	if (sampler->order)
		ddp_permute(sampler->seed + sampler->epoch, sampler->length >= DDP_PERMUTE_WIDE,
			    sampler->order, sampler->length);
}

ls_status ls_sampler_open(const ls_group *group, uint64_t length,
			  const struct ls_sampler_options *options, ls_sampler **out)
{
	struct ls_sampler_options all;
	if (!out)
		return ddp_bad("ls_sampler_open", "out", 0, "not NULL");
	*out = NULL;
	ls_status status = read_options(group, options, &all);
	if (status != LS_OK)
		return status;
	if (length > LENGTH_MAX)
		return ddp_bad("ls_sampler_open", "length", (long long)length, "at most 2^53");
	bool shuffles = !all.no_shuffle && length > 1;
	ls_sampler *sampler = calloc(1, sizeof *sampler);
	uint64_t *order = shuffles ? malloc(length * sizeof *order) : NULL;
	if (!sampler || (shuffles && !order)) {
		free(sampler);
		free(order);
		MESSAGE_SAY(MESSAGE_SAMPLER_MEMORY, (unsigned long long)length);
		return LS_OUT_OF_MEMORY;
	}
	*sampler = (struct ls_sampler){
		.length = length,
		.count = count_of(length, (uint64_t)all.num_replicas, all.drop_last),
		.num_replicas = (uint64_t)all.num_replicas,
		.rank = (uint64_t)all.rank,
		.seed = all.seed,
		.order = order,
	};
	shuffle_order(sampler);
	*out = sampler;
	return LS_OK;
}

ls_status ls_sampler_set_epoch(ls_sampler *sampler, uint64_t epoch)
{
	if (!sampler)
		return ddp_bad("ls_sampler_set_epoch", "sampler", 0, "not NULL");
	if (epoch != sampler->epoch) {
		sampler->epoch = epoch;
		shuffle_order(sampler);
	}
	return LS_OK;
}

uint64_t ls_sampler_count(const ls_sampler *sampler)
{
	return sampler ? sampler->count : 0;
}

uint64_t ls_sampler_index(const ls_sampler *sampler, uint64_t i)
{
	if (!sampler || i >= sampler->count)
		return UINT64_MAX;
	uint64_t at = (sampler->rank + i * sampler->num_replicas) % sampler->length;
	return sampler->order ? sampler->order[at] : at;
}

void ls_sampler_close(ls_sampler *sampler)
{
	if (!sampler)
		return;
	free(sampler->order);
	free(sampler);
}
