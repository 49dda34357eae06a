/* SPDX-License-Identifier: BSD-3-Clause
 * Choosing an algorithm, building its plan, and cutting elements into blocks. The steps themselves
 * come from one file for each algorithm: plan_inline.c, plan_direct.c and so on. */
#include "plan/plan.h"

#include "base/ranks.h"
#include "plan/plan_build.h"

static plan_builder *const builders[COLL_COUNT][PLAN_ALGORITHM_COUNT] = {
#define X(collective, algorithm, builder) [COLL_##collective][PLAN_##algorithm] = builder,
	PLAN_BUILDERS(X)
#undef X
};

/* How a buffer is cut, whatever the algorithm. */
static uint8_t layout_of(uint8_t extent)
{
	return extent == COLL_PART    ? PLAN_LAYOUT_PART
	       : extent == COLL_PARTS ? PLAN_LAYOUT_PARTS
				      : PLAN_LAYOUT_BLOCKS;
}

bool plan_has(enum coll_id collective, enum plan_algorithm algorithm)
{
	return (unsigned)collective < COLL_COUNT && (unsigned)algorithm < PLAN_ALGORITHM_COUNT &&
	       builders[collective][algorithm];
}

bool plan_has_root(enum coll_id collective)
{
	return (unsigned)collective < COLL_COUNT && coll_table[collective].root != COLL_NO_ROOT;
}

bool plan_crosses_hosts(enum plan_algorithm algorithm)
{
	return algorithm != PLAN_INLINE && algorithm != PLAN_DIRECT && algorithm != PLAN_PULL;
}

/* Up to these lengths the number of messages decides: a rank passes a payload on as one message;
 * leaders are faster than rails, and for all that is gathered than a ring. */
enum { SHORT_BETWEEN_HOSTS = 8 << 10, SHORT_FOR_LEADERS = 32 << 10, SHORT_GATHERED = 256 << 10 };

enum plan_algorithm plan_across(enum coll_id collective, enum plan_algorithm chosen, uint64_t bytes,
				int size, const struct plan_topology *topology)
{
	bool is_short = bytes <= SHORT_BETWEEN_HOSTS;
	uint64_t gathered = bytes > SHORT_GATHERED ? bytes : bytes * (uint64_t)size;
	if (!topology || topology->host_count == 1 || plan_crosses_hosts(chosen))
		return chosen;
	switch (collective) {
	case COLL_ALLREDUCE:
		if (topology->host_count < size)
			return bytes <= SHORT_FOR_LEADERS ? PLAN_LEADERS : PLAN_RAILS;
		return is_short ? PLAN_DOUBLING : PLAN_RING;
	case COLL_BROADCAST:
		return is_short ? PLAN_TREE : PLAN_RING;
	case COLL_REDUCE:
		return PLAN_TREE;
	case COLL_ALLGATHER:
		return gathered <= SHORT_GATHERED ? PLAN_LEADERS : PLAN_RING;
	case COLL_BARRIER:
		return topology->host_count < size ? PLAN_LEADERS : PLAN_DOUBLING;
	default:
		return PLAN_PAIRWISE;
	}
}

static int host_count(const struct plan_params *params)
{
	return params->topology ? params->topology->host_count : 1;
}

/* Every rank has a host, and every host has ranks, but no more than there is room for. */
static bool topology_is_valid(const struct plan_params *params)
{
	int count = host_count(params);
	uint8_t ranks[RANKS_JOB_MAX] = {0};
	if (count == 1)
		return true;
	if (count < 1 || count > params->size || !plan_crosses_hosts(params->algorithm))
		return false;
	for (int q = 0; q < params->size; q++) {
		int host = params->topology->hosts[q];
		if (host >= count || ranks[host]++ == RANKS_HOST_MAX)
			return false;
	}
	for (int host = 0; host < count; host++)
		if (ranks[host] == 0)
			return false;
	return true;
}

static bool request_is_valid(const struct plan_params *params)
{
	if (!plan_has(params->collective, params->algorithm))
		return false;
	if (params->size < 1 || params->size > RANKS_JOB_MAX)
		return false;
	if (params->rank < 0 || params->rank >= params->size)
		return false;
	int roots = plan_has_root(params->collective) ? params->size : 1;
	return params->root >= 0 && params->root < roots && topology_is_valid(params);
}

/* Whether this rank has both buffers and they may be one. */
static bool works_in_place(const struct plan_params *params)
{
	if (params->collective == COLL_ALLTOALL || params->collective == COLL_BARRIER)
		return false;
	if (plan_has_root(params->collective) && params->rank != params->root)
		return false;
	return params->in_place;
}

bool plan_build(const struct plan_params *params, struct plan_step *steps, struct plan *out)
{
	*out = (struct plan){0};
	if (!request_is_valid(params))
		return false;
	uint8_t input = layout_of(coll_table[params->collective].input);
	uint8_t output = layout_of(coll_table[params->collective].output);
	bool parts = input != PLAN_LAYOUT_BLOCKS;
	struct plan_params sound = *params;
	sound.in_place = works_in_place(params);
	if (sound.algorithm == PLAN_RAILS && host_count(params) == 1)
		sound.algorithm = PLAN_DIRECT;
	if (sound.algorithm == PLAN_LEADERS && host_count(params) == 1)
		sound.algorithm = plan_has(params->collective, PLAN_TREE) ? PLAN_TREE : PLAN_RING;
	*out = (struct plan){
		.collective = (uint8_t)sound.collective,
		.algorithm = (uint8_t)sound.algorithm,
		.layout = {[PLAN_INPUT] = input, [PLAN_OUTPUT] = output, [PLAN_SCRATCH] = output},
		.rank = (uint16_t)params->rank,
		.size = (uint16_t)params->size,
		.root = (uint16_t)params->root,
		.hosts = (uint16_t)host_count(params),
		.blocks = parts ? (uint16_t)params->size : 1,
		.steps = steps,
	};
	if (params->size > 1)
		builders[sound.collective][sound.algorithm](&sound, out);
	else if (params->collective != COLL_BARRIER)
		plan_add_local_copy(out, &sound);
	if (sound.algorithm != PLAN_RAILS)
		out->own = out->blocks == out->size ? out->rank : out->blocks;
	return true;
}

/* First element of a block: the first `units % total` blocks have one unit of `align` more. */
static uint64_t block_start(uint64_t count, unsigned align, unsigned total, unsigned block)
{
	uint64_t units = count / align + (count % align != 0);
	uint64_t more = units % total;
	uint64_t unit = units / total * block + (block < more ? block : more);
	return unit < units ? unit * align : count; /* the last unit may be short */
}

void plan_block_range(uint64_t count, unsigned align, unsigned total, unsigned block,
		      unsigned blocks, uint64_t *first, uint64_t *elements)
{
	*first = block_start(count, align, total, block);
	*elements = block_start(count, align, total, block + blocks) - *first;
}
