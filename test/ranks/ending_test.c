/* SPDX-License-Identifier: BSD-3-Clause
 * The end of a group: last collectives that differ, in which every rank only gives data, so that
 * none compares its call with those of others; and groups that are left open. */
#include <string.h>

#include "caught.h"
#include "common.h"
#include "tests.h"

enum difference { ROOT, KIND, COUNT, DIFFERENCES };
static const char *const different[] = {
	[ROOT] = "with different roots",
	[KIND] = "called",
	[COUNT] = "with different arguments",
};

/* Not in the order of the world, so that a report which takes one rank for another is wrong. */
static ls_group *group_of(struct runner_rank *self, ls_group *world, bool all)
{
	ls_group *group;
	if (all)
		return world;
	OK(ls_group_split(world, 0, -self->rank, &group));
	return group;
}

/* To a collective to which this rank, as whatever it takes itself for, only gives. */
static ls_status give(ls_group *group, enum difference how)
{
	int me = ls_group_rank(group);
	float some[70] = {0}, sum[70];
	if (how == KIND && me > 0)
		return ls_reduce(group, some, sum, 3, LS_FLOAT32, LS_SUM, 0, NULL);
	return ls_broadcast(group, some, some, how == COUNT ? (uint64_t)me + 1 : 3, LS_FLOAT32, me,
			    NULL);
}

static ls_status reduce_to_first(ls_group *group)
{
	float some[3] = {0}, sum[3];
	return ls_reduce(group, some, sum, 3, LS_FLOAT32, LS_SUM, 0, NULL);
}

/* Between hosts the report lacks the calls of a host that does not answer in time. */
static void has_failed(ls_group *group, ls_status status, const char *part)
{
	struct ls_failure failure = {.size = sizeof failure};
	runner_await_failure(group);
	OK(ls_group_failure(group, &failure));
	CHECK_THAT(failure.status == status, "%s: %s", ls_status_name(failure.status), failure.text);
	if (!runner_is_on_hosts) {
		SAYS(failure.text, part);
		SAYS(failure.text, "called from ending_test.c:");
	}
	GIVES(status, ls_barrier(group, NULL));
}

/* Closes it, and says whether that was told on standard error, where this can be seen: between
 * hosts another rank may tell it, or this one later. */
static void close_and_hear(struct runner_rank *self, ls_group *group, const char *part)
{
	struct caught caught;
	if (self->threads || runner_is_on_hosts) {
		ls_group_close(group);
		return;
	}
	caught_begin(&caught);
	ls_group_close(group);
	const char *text = caught_end(&caught);
	if (!part) {
		CHECK_THAT(!text[0], "%s", text);
		return;
	}
	SAYS(text, part);
	SAYS(text, "LS-VERDICT");
}

/* Between hosts it takes a moment until this rank knows what the first member has called. */
static ls_status give_until_known(ls_group *group, enum difference how)
{
	ls_status status;
	do
		status = give(group, how);
	while (runner_is_on_hosts && status == LS_OK);
	return status;
}

static ls_status reduce_until_known(ls_group *group)
{
	ls_status status;
	do
		status = reduce_to_first(group);
	while (runner_is_on_hosts && status == LS_OK);
	return status;
}

/* ---- what differs ---- */

/* The first member has called its last ones and closed the group: the others learn it in their
 * calls. */
static void found_in_a_call(struct runner_rank *self, ls_group *group, enum difference how)
{
	if (ls_group_rank(group) == 0) {
		OK(give(group, how));
		OK(give(group, how));
		close_and_hear(self, group, NULL);
		runner_meet(self);
	} else {
		runner_meet(self);
		GIVES(LS_MISMATCH, give_until_known(group, how));
		has_failed(group, LS_MISMATCH, different[how]);
		ls_group_close(group);
	}
	runner_meet(self);
}

/* All ranks have called all collectives: the first rank that closes the group finds the difference,
 * and the others get an error. */
static void found_at_the_close(struct runner_rank *self, ls_group *group, enum difference how)
{
	bool first = ls_group_rank(group) == 0;
	OK(give(group, how));
	runner_meet(self);
	if (first)
		close_and_hear(self, group, different[how]);
	runner_meet(self);
	if (!first) {
		has_failed(group, LS_MISMATCH, different[how]);
		close_and_hear(self, group, NULL); /* once is enough */
	}
	runner_meet(self);
}

static void differ(struct runner_rank *self, bool all, int before, enum difference how, bool late)
{
	ls_group *world = runner_open(self), *group = group_of(self, world, all);
	for (int i = 0; i < before; i++)
		works(group);
	if (late)
		found_at_the_close(self, group, how);
	else
		found_in_a_call(self, group, how);
	if (all)
		return;
	works(world);
	ls_group_close(world);
	runner_meet(self);
}

void last_collectives_differ(struct runner_rank *self)
{
	for (int how = 0; how < DIFFERENCES; how++)
		for (int before = 0; before < 80; before += 31 + how) {
			differ(self, false, before, (enum difference)how, before % 2);
			differ(self, false, before, (enum difference)how, !(before % 2));
		}
}

void last_collectives_of_all_differ(struct runner_rank *self)
{
	differ(self, true, 1, (enum difference)(self->turn % DIFFERENCES), false);
	differ(self, true, 2, (enum difference)(self->turn % DIFFERENCES), true);
}

/* Setting BLOCKING: every rank gets the error in the call itself. */
void blocking_finds_what_differs(struct runner_rank *self)
{
	ls_group *world = runner_open(self);
	for (int how = 0; how < DIFFERENCES; how++) {
		ls_group *group = group_of(self, world, false);
		works(group);
		GIVES(LS_MISMATCH, give(group, (enum difference)how));
		has_failed(group, LS_MISMATCH, different[how]);
		runner_meet(self);
		ls_group_close(group);
	}
	works(world);
	ls_group_close(world);
}

/* ---- what is missing ---- */

enum { WAITS, STAYS, GONE, WAYS };

/* The first member makes a call fewer, to which the others would only give. WAITS: they call it
 * once it has closed the group. STAYS: they have called it, and are in the group. GONE: they have
 * closed it, too. */
static void miss(struct runner_rank *self, ls_group *group, int way)
{
	bool first = ls_group_rank(group) == 0;
	const char *said = self->size == 2 ? "rank 0 called reduce #" : "ranks 0";
	if (!first && way != WAITS)
		OK(reduce_to_first(group));
	if (!first && way == GONE)
		close_and_hear(self, group, NULL);
	runner_meet(self);
	if (first)
		close_and_hear(self, group, way == WAITS ? NULL : said);
	runner_meet(self);
	if (!first && way != GONE) {
		GIVES(LS_PEER_LEFT, reduce_until_known(group));
		has_failed(group, LS_PEER_LEFT, "closed the group ");
		ls_group_close(group);
	}
	runner_meet(self);
}

void a_rank_leaves_a_call_out(struct runner_rank *self)
{
	ls_group *world = runner_open(self);
	for (int way = 0; way < WAYS; way++)
		for (int before = 0; before < 40; before += 13) {
			/* A rank that knows of a failure does not compare groups that were open at
			 * that time. */
			ls_group *group = group_of(self, world, false);
			for (int i = 0; i < before; i++)
				works(group);
			miss(self, group, way);
		}
	works(world);
	ls_group_close(world);
}

/* A rank that waits for a rank without a difference gets the error as well. */
void who_waits_learns_what_differs(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group = group_of(self, world, false);
	float value;
	int me = ls_group_rank(group);
	OK(give(group, ROOT));
	runner_meet(self);
	if (me == 0)
		close_and_hear(self, group, different[ROOT]);
	else if (me == 1)
		GIVES(LS_MISMATCH, ls_recv(group, &value, 1, LS_FLOAT32, 2, NULL));
	runner_meet(self);
	if (me != 0)
		ls_group_close(group);
	ls_group_close(world);
}

/* ---- all at once ---- */

enum { MISSES = DIFFERENCES, ALIKE, ENDS };

/* How the first member ends the group differs from how the others do; but not with ALIKE. */
static ls_status end_with(ls_group *group, int how)
{
	int me = ls_group_rank(group);
	float some[3] = {0};
	if (how == ALIKE)
		return ls_broadcast(group, some, some, 3, LS_FLOAT32, 0, NULL);
	if (how == MISSES)
		return me == 0 ? LS_OK : reduce_to_first(group);
	return give(group, (enum difference)how);
}

/* All ranks make their last calls and close the group, and the job, without waiting for each other.
 * Whichever of them knows what differs says so, in a call or on standard error; and otherwise
 * nobody says anything. */
static void end_at_once(struct runner_rank *self, bool all, int how, int before)
{
	ls_group *world = runner_open(self), *group = group_of(self, world, all);
	_Atomic uint64_t *heard = &self->shared->words[0];
	struct caught caught;
	for (int i = 0; i < before; i++)
		works(group);
	atomic_store(heard, 0);
	runner_meet(self);
	caught_begin(&caught);
	ls_status status = end_with(group, how);
	if (group != world)
		ls_group_close(group);
	ls_group_close(world);
	const char *text = caught_end(&caught);
	CHECK_THAT(how != ALIKE || (status == LS_OK && !text[0]), "%s: %s", ls_status_name(status),
		   text);
	if (status != LS_OK || strstr(text, "LS-VERDICT"))
		atomic_fetch_add(heard, 1);
	runner_meet(self);
	CHECK_THAT(how == ALIKE || atomic_load(heard) > 0, "difference %d after %d, of %s", how,
		   before, all ? "all" : "a group");
	runner_meet(self);
}

void members_that_end_at_once_differ(struct runner_rank *self)
{
	for (int how = 0; how < ENDS; how++)
		for (int before = 0; before < 2; before++) {
			end_at_once(self, true, how, before);
			end_at_once(self, false, how, before);
		}
}

/* ---- nothing is wrong ---- */

/* Groups one after the other in the same areas, of all, of halves and of one rank. The root is done
 * with all its broadcasts at once; in every second group it has left before the others begin with
 * theirs. */
void groups_end_one_by_one(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group;
	struct ls_call_options options = {.size = sizeof options};
	float values[10][3] = {{0}};
	for (int turn = 0; turn < 120; turn++) {
		int parts = turn % 3 == 2 ? self->size : 1 + turn % 3;
		ls_request *ops[10] = {NULL};
		OK(ls_group_split(world, self->rank % parts, -self->rank, &group));
		bool root = ls_group_rank(group) == 0, meets = turn % 2;
		if (meets && !root)
			runner_meet(self);
		for (int i = 0; i < turn % 10; i++) {
			options.request = root ? NULL : &ops[i];
			OK(ls_broadcast(group, values[i], values[i], 3, LS_FLOAT32, 0, &options));
		}
		for (int i = 0; i < 10; i++) {
			if (ops[i])
				OK(ls_wait(ops[i], 0));
			ls_request_free(ops[i]);
		}
		close_and_hear(self, group, NULL);
		if (meets && root)
			runner_meet(self);
	}
	works(world);
	close_and_hear(self, world, NULL);
}

/* A rank that gives up one group for the failure of another has not made a mistake in the first;
 * what is made afterwards is looked at again. */
void a_failure_excuses_what_is_missing(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *failed = group_of(self, world, false);
	ls_group *group = group_of(self, world, false);
	bool first = ls_group_rank(group) == 0;
	runner_ready(self, group);
	if (first)
		OK(ls_group_abort(failed, "the test says so"));
	runner_meet(self);
	GIVES(LS_ABORTED, ls_barrier(failed, NULL));
	if (!first)
		OK(reduce_to_first(group));
	runner_meet(self);
	close_and_hear(self, group, NULL);
	ls_group_close(failed);
	group = group_of(self, world, false);
	miss(self, group, STAYS);
	ls_group_close(world);
}

/* ---- groups that are forgotten ---- */

/* Said once for each, by the first that closes the world. */
void groups_left_open_are_told(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *kept, *closed;
	struct caught caught;
	OK(ls_group_split(world, 0, 0, &kept));
	OK(ls_group_split(world, 0, 0, &closed));
	works(kept);
	ls_group_close(closed);
	if (self->rank > 0)
		runner_meet(self);
	caught_begin(&caught);
	ls_group_close(world);
	const char *text = caught_end(&caught);
	if (self->rank == 0) {
		SAYS(text, "while 1 other group is open: that of ranks 0");
		SAYS(text, ", made at ending_test.c:");
		SAYS(text, "LS-GROUP-LEFT-OPEN");
		runner_meet(self);
	} else {
		CHECK_THAT(!text[0], "%s", text);
	}
}
