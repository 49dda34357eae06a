/* SPDX-License-Identifier: BSD-3-Clause
 * Whether all ranks hold the same parameters. If they do, one small exchange shows it. If not, all
 * ranks together find the first parameter that differs, so the group stays usable, and one message
 * says what differs. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/messages.h"
#include "base/ranks.h"
#include "base/text.h"
#include "ddp/ddp_private.h"
#include "group/group.h"
#include "trace/trace.h"

enum {
	BLOCK = 256,     /* hashes that are compared at a time */
	NAME_BYTES = 96, /* long, as names may differ in their beginning alone */
	DESCRIPTION_BYTES = 232,
};

/* What each rank tells all others first. */
struct hello {
	uint64_t hash; /* of all parameters */
	uint64_t count;
	uint64_t first_bytes, bucket_bytes;
	uint64_t status; /* ls_status: whether the rank could prepare */
	uint64_t now_ns;
};

/* One parameter, for the message. */
struct description {
	uint64_t hash; /* 0: this rank has no such parameter */
	char text[DESCRIPTION_BYTES];
};

/* FNV-1a. */
static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
	const unsigned char *byte = data;
	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
	return hash;
}

static const uint64_t hash_start = UINT64_C(0xcbf29ce484222325);

uint64_t ddp_hash_parameter(const struct ddp_parameter *parameter)
{
	uint32_t facts[2] = {(uint32_t)parameter->dtype, (uint32_t)parameter->dims};
	uint64_t hash = hash_bytes(hash_start, parameter->name, strlen(parameter->name) + 1);
	hash = hash_bytes(hash, facts, sizeof facts);
	hash = hash_bytes(hash, parameter->shape, sizeof *parameter->shape * facts[1]);
	return hash ? hash : 1;
}

static struct ls_call_options options_of(void)
{
	return (struct ls_call_options){.size = sizeof(struct ls_call_options),
					.label = "ls_ddp_open"};
}

static ls_status gather_all(const struct ls_ddp *ddp, const void *mine, void *all, size_t bytes)
{
	struct ls_call_options options = options_of();
	return ls_allgather(ddp->group, mine, all, bytes, LS_UINT8, &options);
}

static uint64_t min_count(const struct hello *hellos, int size)
{
	uint64_t least = hellos[0].count;
	for (int r = 1; r < size; r++)
		least = hellos[r].count < least ? hellos[r].count : least;
	return least;
}

/* *out = the lowest index at which some rank differs from rank 0; `shared` if all ranks agree at
 * the indices below it. */
static ls_status find_first(const struct ls_ddp *ddp, uint64_t shared, uint64_t *out)
{
	struct ls_call_options options = options_of();
	uint64_t hashes[BLOCK];
	*out = shared;
	for (uint64_t begin = 0; begin < shared && *out == shared; begin += BLOCK) {
		uint64_t count = shared - begin < BLOCK ? shared - begin : BLOCK, first = shared;
		for (uint64_t i = 0; i < count; i++)
			hashes[i] = ddp->parameters[begin + i].hash;
		ls_status status =
			ls_broadcast(ddp->group, hashes, hashes, count, LS_UINT64, 0, &options);
		if (status != LS_OK)
			return status;
		for (uint64_t i = count; i-- > 0;)
			if (hashes[i] != ddp->parameters[begin + i].hash)
				first = begin + i;
		status = ls_allreduce(ddp->group, &first, out, 1, LS_UINT64, LS_MIN, &options);
		if (status != LS_OK)
			return status;
	}
	return LS_OK;
}

/* "'fc2.weight' float32 [10, 128]" */
static struct description describe_parameter(const struct ls_ddp *ddp, uint64_t index)
{
	struct description out = {.hash = 0};
	if (index >= (uint64_t)ddp->parameter_count) {
		snprintf(out.text, sizeof out.text, "missing");
		return out;
	}
	const struct ddp_parameter *parameter = &ddp->parameters[index];
	char shape[96] = "", name[NAME_BYTES];
	size_t used = 0;
	for (int d = 0; d < parameter->dims && used < sizeof shape; d++)
		used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%lld", d ? ", " : "",
					 (long long)parameter->shape[d]);
	ddp_text_name(parameter->name, name, sizeof name);
	snprintf(out.text, sizeof out.text, "'%s' %s [%s]", name,
		 trace_dtype_name(parameter->dtype), shape);
	out.hash = parameter->hash;
	return out;
}

static void say_different(const struct ls_ddp *ddp, const struct description *all, uint64_t index)
{
	char text[1024] = "", ranks[128];
	size_t used = 0;
	struct ranks told = {{0}};
	for (int r = 0; r < ddp->size; r++) {
		struct ranks same = {{0}};
		if (ranks_have(&told, r) || used >= sizeof text)
			continue;
		for (int q = r; q < ddp->size; q++)
			if (all[q].hash == all[r].hash)
				ranks_add(&same, q);
		char what[DESCRIPTION_BYTES]; /* other ranks wrote the text */
		memcpy(what, all[r].text, sizeof what);
		what[sizeof what - 1] = '\0';
		text_clean(what, false);
		struct ranks world = ddp_world_ranks(ddp->group, &same);
		ddp_text_ranks(&world, ranks, sizeof ranks);
		used += (size_t)snprintf(text + used, sizeof text - used, "%s%s on %s",
					 ranks_any(&told) ? ", but " : "", what, ranks);
		ranks_join(&told, &same);
	}
	MESSAGE_SAY(MESSAGE_DDP_INCONSISTENT, (unsigned long long)index, text);
}

static ls_status say_first_difference(const struct ls_ddp *ddp, const struct hello *hellos)
{
	struct description mine, all[RANKS_WORLD_MAX];
	uint64_t index;
	ls_status status = find_first(ddp, min_count(hellos, ddp->size), &index);
	if (status != LS_OK)
		return status;
	mine = describe_parameter(ddp, index);
	status = gather_all(ddp, &mine, all, sizeof mine);
	if (status != LS_OK)
		return status;
	if (ddp->rank == 0)
		say_different(ddp, all, index);
	return LS_INCONSISTENT;
}

static ls_status compare_buckets(const struct ls_ddp *ddp, const struct hello *hellos)
{
	for (int r = 1; r < ddp->size; r++) {
		if (hellos[r].first_bytes == hellos[0].first_bytes &&
		    hellos[r].bucket_bytes == hellos[0].bucket_bytes)
			continue;
		if (ddp->rank == 0)
			MESSAGE_SAY(
				MESSAGE_DDP_BUCKETS, (unsigned long long)hellos[0].first_bytes,
				(unsigned long long)hellos[0].bucket_bytes, ddp_world_rank(ddp, 0),
				(unsigned long long)hellos[r].first_bytes,
				(unsigned long long)hellos[r].bucket_bytes, ddp_world_rank(ddp, r));
		return LS_INCONSISTENT;
	}
	return LS_OK;
}

ls_status ddp_agree(struct ls_ddp *ddp, ls_status status)
{
	struct hello mine = {.hash = hash_start,
			     .count = (uint64_t)ddp->parameter_count,
			     .first_bytes = ddp->first_bytes,
			     .bucket_bytes = ddp->bucket_bytes,
			     .status = (uint64_t)status,
			     .now_ns = clock_now_ns()};
	struct hello hellos[RANKS_WORLD_MAX];
	for (int i = 0; status == LS_OK && i < ddp->parameter_count; i++)
		mine.hash = hash_bytes(mine.hash, &ddp->parameters[i].hash, sizeof mine.hash);
	ls_status gathered = gather_all(ddp, &mine, hellos, sizeof mine);
	if (gathered != LS_OK)
		return gathered;
	ddp->opened = hellos[0].now_ns;
	group_set_passes(ddp->group, ddp->opened); /* whatever came before: they begin anew */
	for (int r = 0; r < ddp->size; r++) {
		ls_status theirs = (ls_status)hellos[r].status;
		if (theirs != LS_OK) /* the rank has said why */
			return ls_status_scope(theirs) == LS_SCOPE_CALL ? theirs : LS_BAD_ARGUMENT;
	}
	for (int r = 1; r < ddp->size; r++)
		if (hellos[r].hash != hellos[0].hash || hellos[r].count != hellos[0].count)
			return say_first_difference(ddp, hellos);
	return compare_buckets(ddp, hellos);
}
