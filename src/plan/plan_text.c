/* SPDX-License-Identifier: BSD-3-Clause
 * Names of collectives, algorithms and step kinds, and a step as a person reads it. */
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"

static const char *const algorithm_names[PLAN_ALGORITHM_COUNT] = {
	[PLAN_NONE] = "none",       [PLAN_INLINE] = "inline",     [PLAN_DIRECT] = "direct",
	[PLAN_PULL] = "pull",       [PLAN_RING] = "ring",         [PLAN_DOUBLING] = "doubling",
	[PLAN_TREE] = "tree",       [PLAN_PAIRWISE] = "pairwise", [PLAN_RAILS] = "rails",
	[PLAN_LEADERS] = "leaders",
};

static const char *const kind_names[PLAN_STEP_KIND_COUNT] = {
	[PLAN_STEP_SIGNAL] = "signal",     [PLAN_STEP_AWAIT] = "await",
	[PLAN_STEP_REDUCE] = "reduce-all", [PLAN_STEP_COPY] = "copy",
	[PLAN_STEP_SEND] = "send",         [PLAN_STEP_RECV] = "receive",
	[PLAN_STEP_COMBINE] = "combine",   [PLAN_STEP_SCALE] = "scale",
};

static const char *name_at(const char *const *names, unsigned count, unsigned i)
{
	return i < count && names[i] ? names[i] : "?";
}

const char *plan_collective_name(unsigned collective)
{
	return coll_table[collective < COLL_COUNT ? collective : COLL_NONE].name;
}

const char *plan_algorithm_name(unsigned algorithm)
{
	return name_at(algorithm_names, PLAN_ALGORITHM_COUNT, algorithm);
}

const char *plan_step_name(unsigned kind)
{
	return name_at(kind_names, PLAN_STEP_KIND_COUNT, kind);
}

int plan_collective_from(const char *name)
{
	enum coll_id id = coll_from_name(name);
	return id == COLL_NONE ? -1 : (int)id;
}

int plan_algorithm_from(const char *name)
{
	for (int i = PLAN_NONE + 1; i < PLAN_ALGORITHM_COUNT; i++)
		if (strcmp(name, algorithm_names[i]) == 0)
			return i;
	return -1;
}

static const char *buffer_name(unsigned buffer)
{
	static const char *const names[] = {
		[PLAN_INPUT] = "input", [PLAN_OUTPUT] = "output", [PLAN_SCRATCH] = "scratch"};
	return name_at(names, sizeof names / sizeof *names, buffer);
}

/* "block 2", "part 2" where it is that of a rank; "blocks 2 to 4", "all blocks"; where there is
 * only one: "all". */
static void range_text(const struct plan *plan, const struct plan_step *step, char *out,
		       size_t bytes)
{
	const char *noun = plan->layout[PLAN_INPUT] == PLAN_LAYOUT_BLOCKS ? "block" : "part";
	if (step->block == 0 && step->blocks >= plan->blocks)
		(void)snprintf(out, bytes, plan->blocks == 1 ? "all" : "all %ss", noun);
	else if (step->blocks == 1)
		(void)snprintf(out, bytes, "%s %u", noun, step->block);
	else
		(void)snprintf(out, bytes, "%ss %u to %u", noun, step->block,
			       step->block + step->blocks - 1u);
}

/* Which ranks windows and signals reach. */
static const char *all_text(const struct plan *plan)
{
	return plan->hosts > 1 ? "all ranks here" : "all ranks";
}

/* "rank 3", "all ranks", "my". */
static void peer_text(const struct plan *plan, const struct plan_step *step, char *out, size_t bytes)
{
	if (step->peer == PLAN_ALL)
		(void)snprintf(out, bytes, "%s", all_text(plan));
	else
		(void)snprintf(out, bytes, "rank %d%s", step->peer,
			       step->peer == plan->rank ? " (me)" : "");
}

static void await_text(const struct plan_step *step, const char *peer, char *out, size_t bytes)
{
	if (step->flags & PLAN_UNTIL_TAKEN)
		(void)snprintf(out, bytes, "await that %s has taken what I sent", peer);
	else
		(void)snprintf(out, bytes, "await %s, phase %u", peer, step->phase);
}

static void message_text(const struct plan_step *step, const char *range, const char *peer,
			 char *out, size_t bytes)
{
	bool send = step->kind == PLAN_STEP_SEND;
	if (step->blocks == 0)
		(void)snprintf(out, bytes,
			       send ? "send an empty message to %s"
				    : "receive an empty message from %s",
			       peer);
	else if (send)
		(void)snprintf(out, bytes, "send %s of my %s to %s", range, buffer_name(step->from),
			       peer);
	else
		(void)snprintf(out, bytes, "receive %s from %s into my %s", range, peer,
			       buffer_name(step->to));
}

/* Whose outputs a reduction goes to. */
static const char *target_text(const struct plan *plan, const struct plan_step *step,
			       const char *peer)
{
	if (step->flags & PLAN_TO_SELF)
		return "my output";
	return step->flags & PLAN_TO_PEER ? peer : all_text(plan);
}

static void copy_text(const struct plan *plan, const struct plan_step *step, const char *range,
		      const char *peer, char *out, size_t bytes)
{
	const char *from = buffer_name(step->from), *to = buffer_name(step->to);
	if (step->flags & PLAN_TRANSPOSE)
		(void)snprintf(out, bytes, "copy part %u of the %s of %s to %s of my %s",
			       plan->rank, from, peer, range, to);
	else
		(void)snprintf(out, bytes, "copy %s of the %s of %s to my %s", range, from, peer,
			       to);
}

void plan_step_text(const struct plan *plan, const struct plan_step *step, char *out, size_t bytes)
{
	char range[32], peer[32];
	range_text(plan, step, range, sizeof range);
	peer_text(plan, step, peer, sizeof peer);
	switch (step->kind) {
	case PLAN_STEP_SIGNAL:
		(void)snprintf(out, bytes, "signal phase %u", step->phase);
		break;
	case PLAN_STEP_AWAIT:
		await_text(step, peer, out, bytes);
		break;
	case PLAN_STEP_REDUCE:
		(void)snprintf(out, bytes, "reduce %s of %s to %s", range, all_text(plan),
			       target_text(plan, step, peer));
		break;
	case PLAN_STEP_COPY:
		copy_text(plan, step, range, peer, out, bytes);
		break;
	case PLAN_STEP_SEND:
	case PLAN_STEP_RECV:
		message_text(step, range, peer, out, bytes);
		break;
	case PLAN_STEP_COMBINE:
		(void)snprintf(out, bytes, "combine %s: output = %s", range,
			       step->flags & PLAN_SCRATCH_FIRST ? "scratch op output"
								: "output op scratch");
		break;
	case PLAN_STEP_SCALE:
		(void)snprintf(out, bytes, "divide %s of my output by %u if the op is average",
			       range, plan->size);
		break;
	default:
		(void)snprintf(out, bytes, "? (kind %u)", step->kind);
		break;
	}
}
