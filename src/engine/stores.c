/* SPDX-License-Identifier: BSD-3-Clause
 * Stores through the cache (plain) or past it (streaming). Plain stores to lines that another core
 * has read are slow if that core is far away, and fast if it is near; streaming stores are the
 * opposite. The processor and the cores that the ranks use decide, so this file measures the real
 * copies. It mostly uses the kind that was faster, and now and then tries the other one: half as
 * often after each try that found it slower, and soon after the time of the current kind has
 * changed.
 *
 * Data that was stored past the cache takes longer to read. For collectives only the writer's time
 * is measured, so streaming must be clearly faster to be used. For messages the receiver's time is
 * measured, too, so slightly faster is enough. But a plain copy among streaming ones finds nothing
 * in a cache and takes twice as long as among plain ones: streaming is kept only while it takes
 * less than half of that.
 *
 * The transfer of a message is chosen by the same rule. Its cost is what both ranks copy, or, if
 * the copies overlap because the send blocks, what the receiver waits for from the match on.
 * Reading makes one copy, but asks the system for each page; staging makes two. Which one is faster
 * depends on the processor: see decision 039. */
#include "engine/stores.h"

#include "base/clock.h"

enum { PAUSE_FIRST = 8, PAUSE_MAX = 1024 };
static const float clearly = 0.67f, slightly = 0.9f, half = 0.5f;
static const float changed = 1.5f, smooth = 0.125f, outlier = 4;

static struct engine_stores_case *case_of(struct engine_stores *stores, enum engine_writer writer,
					  uint64_t bytes)
{
	int size = 63 - __builtin_clzll(bytes | UINT64_C(1) << ENGINE_STORES_MIN);
	size -= ENGINE_STORES_MIN;
	return &stores->cases[writer][size < ENGINE_STORES_SIZES ? size : ENGINE_STORES_SIZES - 1];
}

bool engine_stores_begin(struct engine_stores *stores, enum engine_writer writer,
			 enum plan_stores wanted, uint64_t size, uint64_t bytes,
			 struct engine_stores_use *out)
{
	*out = (struct engine_stores_use){
		.bytes = bytes, .writer = writer, .stream = wanted == PLAN_STORES_NONTEMPORAL};
	if (wanted != PLAN_STORES_AUTO || size < UINT64_C(1) << ENGINE_STORES_MIN || bytes == 0)
		return out->stream;
	struct engine_stores_case *here = out->at = case_of(stores, writer, size);
	/* One at a time, also if more begin before it ends. */
	bool tries = ++here->count > (here->pause ? here->pause : PAUSE_FIRST);
	here->count = tries ? 0 : here->count;
	out->tries = tries;
	out->stream = here->stream != tries;
	out->start = clock_ticks();
	return out->stream;
}

/* A time in which the rank lost its core says nothing about stores. */
static float average(float before, float now)
{
	if (before <= 0)
		return now;
	return before + smooth * ((now < outlier * before ? now : outlier * before) - before);
}

static void choose(struct engine_stores_case *here, enum engine_writer writer)
{
	bool is_way = writer == ENGINE_SEND || writer == ENGINE_SEND_BLOCKING;
	float least = is_way                   ? slightly
		      : writer != ENGINE_STAGE ? clearly
		      : here->stream           ? half
					       : slightly;
	bool stream = here->cost[true] < least * here->cost[false];
	uint32_t twice = 2 * (here->pause ? here->pause : PAUSE_FIRST);
	here->pause = stream != here->stream ? PAUSE_FIRST : twice < PAUSE_MAX ? twice : PAUSE_MAX;
	here->stream = stream;
	here->count = 0;
	here->level = here->cost[stream];
}

void engine_stores_took(const struct engine_stores_use *use, uint64_t ticks)
{
	struct engine_stores_case *here = use->at;
	if (!here)
		return;
	float now = (float)ticks / (float)use->bytes;
	float *cost = &here->cost[use->stream];
	if (use->tries ? use->stream == here->stream : use->stream != here->stream)
		return; /* the choice has changed since it began */
	*cost = use->tries ? now : average(*cost, now);
	if (use->tries)
		choose(here, use->writer);
	else if (*cost > changed * here->level || *cost * changed < here->level) {
		here->pause = PAUSE_FIRST;
		here->level = *cost;
	}
}

void engine_stores_end(const struct engine_stores_use *use)
{
	if (use->at)
		engine_stores_took(use, clock_ticks() - use->start);
}
