/* SPDX-License-Identifier: BSD-3-Clause
 * Stores through the cache (plain) or past it (nontemporal). Plain stores to lines that another
 * core has read are slow if that core is far away, and fast if it is near; nontemporal stores are
 * the opposite. The processor and the cores that the ranks use decide, so this file measures the
 * real copies. It mostly uses the kind that was faster, and now and then tries the other one: half
 * as often after each try that found it slower, and soon after the time of the current kind has
 * changed.
 *
 * Data that was stored past the cache takes longer to read. For collectives only the writer's time
 * is measured, so nontemporal stores must be clearly faster to be used. For messages the receiver's
 * time is measured, too, so slightly faster is enough. A trial of plain stores is unfair: the
 * nontemporal copies around it leave nothing in the cache, so it takes twice its usual time. So
 * nontemporal stores stay only while they take less than half of what the trial took.
 *
 * The transfer of a message is chosen by the same rule. Its cost is what both ranks copy, or, if
 * the copies overlap because the send blocks, what the receiver waits for from the match on.
 * Reading makes one copy, but asks the system for each page; staging makes two. Which one is faster
 * depends on the processor: see decision 039. */
#include "op/tuner.h"

#include "base/clock.h"

enum { PAUSE_FIRST = 8, PAUSE_MAX = 1024 };
static const float clearly = 0.67f, slightly = 0.9f, half = 0.5f;
static const float changed = 1.5f, smooth = 0.125f, outlier = 4;

static struct op_tuner_case *case_of(struct op_tuner *tuner, enum op_choice choice, uint64_t bytes)
{
	int size = 63 - __builtin_clzll(bytes | UINT64_C(1) << OP_TUNER_MIN_LOG2);
	size -= OP_TUNER_MIN_LOG2;
	return &tuner->cases[choice][size < OP_TUNER_SIZES ? size : OP_TUNER_SIZES - 1];
}

bool op_tuner_begin(struct op_tuner *tuner, enum op_choice choice, enum plan_stores wanted,
		    uint64_t size, uint64_t bytes, struct op_tuner_use *out)
{
	*out = (struct op_tuner_use){
		.bytes = bytes, .choice = choice, .second = wanted == PLAN_STORES_NONTEMPORAL};
	if (wanted != PLAN_STORES_AUTO || size < UINT64_C(1) << OP_TUNER_MIN_LOG2 || bytes == 0)
		return out->second;
	struct op_tuner_case *here = out->at = case_of(tuner, choice, size);
	/* One use at a time is a try, also if more uses begin before it ends. */
	bool tries = ++here->count > (here->pause ? here->pause : PAUSE_FIRST);
	here->count = tries ? 0 : here->count;
	out->tries = tries;
	out->second = here->second != tries;
	out->start = clock_ticks();
	return out->second;
}

/* A time in which the rank lost its core says nothing about stores. */
static float average_cost(float before, float now)
{
	if (before <= 0)
		return now;
	return before + smooth * ((now < outlier * before ? now : outlier * before) - before);
}

static void choose_stores(struct op_tuner_case *here, enum op_choice choice)
{
	bool is_transfer = choice == OP_CHOICE_SEND || choice == OP_CHOICE_SEND_BLOCKING;
	bool stages = choice == OP_CHOICE_STAGE || choice == OP_CHOICE_STAGE_PIECES;
	float least = is_transfer ? slightly : !stages ? clearly : here->second ? half : slightly;
	bool nontemporal = here->cost[true] < least * here->cost[false];
	uint32_t twice = 2 * (here->pause ? here->pause : PAUSE_FIRST);
	here->pause = nontemporal != here->second ? PAUSE_FIRST
		      : twice < PAUSE_MAX         ? twice
						  : PAUSE_MAX;
	here->second = nontemporal;
	here->count = 0;
	here->level = here->cost[nontemporal];
}

void op_tuner_record(const struct op_tuner_use *use, uint64_t ticks)
{
	struct op_tuner_case *here = use->at;
	if (!here)
		return;
	float now = (float)ticks / (float)use->bytes;
	float *cost = &here->cost[use->second];
	if (use->tries ? use->second == here->second : use->second != here->second)
		return; /* the choice has changed since it began */
	*cost = use->tries ? now : average_cost(*cost, now);
	if (use->tries)
		choose_stores(here, use->choice);
	else if (*cost > changed * here->level || *cost * changed < here->level) {
		here->pause = PAUSE_FIRST;
		here->level = *cost;
	}
}

void op_tuner_end(const struct op_tuner_use *use)
{
	if (use->at)
		op_tuner_record(use, clock_ticks() - use->start);
}
