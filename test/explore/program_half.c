/* SPDX-License-Identifier: BSD-3-Clause
 * Halves of events that have begun and are not over: how a lane waits for them. */
#include <stdlib.h>

#include "program_private.h"
#include "scheduler.h"

enum { TESTS = 12, BRIEFS = 3, WAIT_ANY_MAX = 64, NEVER = -1 };

struct half_run *half_new(struct lane_run *lane, int event, bool receives)
{
	struct half_run *half = calloc(1, sizeof *half);
	if (!half)
		lane_fail(lane, event, "no memory");
	const struct program_event *of = &lane->run->program->events[event];
	half->event = event;
	half->receives = receives;
	half->count = of->kind == PROGRAM_MESSAGE || of->kind == PROGRAM_SERVER ? of->repeat : 1;
	if (of->kind == PROGRAM_SERVER && receives)
		half->count *= __builtin_popcount(of->senders);
	half->ops = calloc((size_t)half->count, sizeof *half->ops);
	if (!half->ops)
		lane_fail(lane, event, "no memory");
	return half;
}

void half_note(struct half_run *half, ls_status status)
{
	if (half->status == LS_OK)
		half->status = status;
}

static void is_called_back(void *data, ls_status status)
{
	struct half_run *half = data;
	if (status != LS_OK)
		__atomic_store_n(&half->bad, 1 + (int)status, __ATOMIC_SEQ_CST);
	word_add(&half->called, 1);
}

void half_options(struct half_run *half, const struct program_half *as, int i,
		  struct ls_call_options *options)
{
	switch ((enum program_form)as->form) {
	case PROGRAM_ANY:
		half->waits_any = true;
		/* fallthrough */
	case PROGRAM_WAIT:
	case PROGRAM_TEST:
	case PROGRAM_BRIEF:
	case PROGRAM_POLL:
		options->request = &half->ops[i];
		break;
	case PROGRAM_DROPPED:
		options->request = &half->ops[i];
		/* fallthrough */
	case PROGRAM_CALLBACK:
		options->callback = is_called_back;
		options->callback_data = half;
		break;
	default:
		break;
	}
}

void half_over(struct lane_run *lane, struct half_run *half)
{
	int event = half->event;
	ls_status status = half->status;
	if (half->operation) {
		bool odd = lane->run->program->plant != PROGRAM_PLANT_NONE &&
			   event >= lane->run->program->plant_event;
		if (status == LS_OK && !odd)
			operation_close(half->operation);
		else
			operation_drop(half->operation);
		free(half->operation);
	} else {
		if (status == LS_OK)
			message_check(lane, half);
		message_free(lane, half);
	}
	free(half->ops);
	free(half);
	lane_over(lane, event, status);
}

/* ---- waiting ---- */

static void take(struct half_run *half, int i, ls_status status)
{
	half_note(half, status);
	ls_request_free(half->ops[i]);
	half->ops[i] = NULL;
}

static void wait_one(const struct lane_run *lane, struct half_run *half, int i)
{
	const struct program_half *as =
		&lane->run->program->events[half->event].halves[lane->number];
	ls_status status = LS_PENDING;
	if (!half->ops[i])
		return;
	for (int n = 0; n < TESTS && as->form == PROGRAM_TEST && status == LS_PENDING; n++)
		status = ls_test(half->ops[i]);
	for (int n = 0; n < BRIEFS && as->form == PROGRAM_BRIEF && status == LS_PENDING; n++)
		status = ls_wait(half->ops[i], 1);
	while (as->form == PROGRAM_POLL && status == LS_PENDING) {
		status = ls_test(half->ops[i]);
		scheduler_yield();
	}
	if (status == LS_PENDING)
		status = ls_wait(half->ops[i], 0);
	take(half, i, status);
}

struct place {
	struct half_run *half;
	int i;
};

/* Adds the handles of a half. Returns how many handles there are then. */
static int list(struct half_run *half, ls_request **ops, struct place *places, int count)
{
	for (int i = 0; i < half->count && count < WAIT_ANY_MAX; i++)
		if (half->ops[i]) {
			places[count] = (struct place){half, i};
			ops[count++] = half->ops[i];
		}
	return count;
}

/* Waits for one operation of the half, or of any other half that the lane has under way in the same
 * group. False: the half has none. */
static bool wait_any(const struct lane_run *lane, struct half_run *half)
{
	const struct program *program = lane->run->program;
	ls_request *ops[WAIT_ANY_MAX];
	struct place places[WAIT_ANY_MAX];
	int count = list(half, ops, places, 0), index = NEVER;
	if (count == 0)
		return false;
	for (int i = 0; i < lane->count; i++) {
		struct half_run *other = lane->under_way[i];
		if (other != half && !other->batched && other->callbacks == 0 &&
		    program->events[other->event].group == program->events[half->event].group)
			count = list(other, ops, places, count);
	}
	ls_status status = ls_wait_any(ops, count, 0, &index);
	if (index < 0 || index >= count) { /* the group has failed: waits for each one */
		for (int i = 0; i < half->count; i++)
			if (half->ops[i])
				take(half, i, ls_wait(half->ops[i], 0));
		half_note(half, status);
		return false;
	}
	take(places[index].half, places[index].i, status);
	return true;
}

static void wait_for(struct lane_run *lane, struct half_run *half)
{
	if (half->callbacks > 0) {
		scheduler_await(&half->called, half->callbacks, UINT64_MAX);
		int bad = word_read(&half->bad);
		if (bad)
			half_note(half, (ls_status)(bad - 1));
	}
	while (half->waits_any && wait_any(lane, half))
		;
	for (int i = 0; i < half->count; i++)
		wait_one(lane, half, i);
	half_over(lane, half);
}

/* ---- */

void half_leave(struct lane_run *lane, struct half_run *half)
{
	const struct program_half *as =
		&lane->run->program->events[half->event].halves[lane->number];
	half->due = lane->halves + 1 + as->lag;
	lane->under_way[lane->count++] = half;
}

static void end_batch(struct lane_run *lane)
{
	ls_group *group = lane_group(lane, lane->batch);
	ls_request *op = NULL;
	bool waits = (lane->halves & 1) != 0;
	ls_status status = ls_batch_end(group, waits ? &op : NULL);
	if (op) {
		status = ls_wait(op, 0);
		ls_request_free(op);
	}
	lane->batch = -1;
	for (int i = 0; i < lane->count; i++) {
		struct half_run *half = lane->under_way[i];
		if (!half->batched)
			continue;
		lane->under_way[i--] = lane->under_way[--lane->count];
		half_note(half, status);
		half_over(lane, half);
	}
}

void half_flush(struct lane_run *lane, int group, bool all, int next)
{
	const struct program *program = lane->run->program;
	const struct program_event *event = next < 0 ? NULL : &program->events[next];
	bool same = event && event->group == lane->batch &&
		    event->halves[lane->number].form == PROGRAM_BATCH &&
		    (event->kind == PROGRAM_MESSAGE || event->kind == PROGRAM_SERVER);
	if (lane->batch >= 0 && !same)
		end_batch(lane);
	for (int i = 0; i < lane->count; i++) {
		struct half_run *half = lane->under_way[i];
		if (half->batched || (group >= 0 && program->events[half->event].group != group) ||
		    !(all || half->due <= lane->halves))
			continue;
		/* The half stays in the list while wait_for may wait for it together with
		 * others. */
		wait_for(lane, half);
		for (int j = 0; j < lane->count; j++)
			if (lane->under_way[j] == half)
				lane->under_way[j] = NULL;
		int count = 0;
		for (int j = 0; j < lane->count; j++)
			if (lane->under_way[j])
				lane->under_way[count++] = lane->under_way[j];
		lane->count = count;
		i--;
	}
}
