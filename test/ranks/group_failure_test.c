/* SPDX-License-Identifier: BSD-3-Clause
 * Groups that cannot be made, and groups that fail: which status each rank gets, and that other
 * groups continue to work. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "caught.h"
#include "common.h"
#include "process.h"
#include "tests.h"

static void is_open(ls_group *group)
{
	struct ls_failure failure = {.size = sizeof failure};
	OK(ls_group_failure(group, &failure));
	CHECK_THAT(failure.status == LS_OK, "%s: %s", ls_status_name(failure.status), failure.text);
}

/* Closed, and the report says so. */
static void is_closed(ls_group *group, ls_status status, int culprit, const char *part)
{
	struct ls_failure failure = {.size = sizeof failure};
	OK(ls_group_failure(group, &failure));
	CHECK_THAT(failure.status == status, "%s: %s", ls_status_name(failure.status), failure.text);
	CHECK_THAT(failure.rank == culprit, "blames %d: %s", failure.rank, failure.text);
	SAYS(failure.text, part);
	GIVES(status, ls_barrier(group, NULL));
}

/* All ranks, from the highest to the lowest. */
static ls_group *all_reversed(struct runner_rank *self, ls_group *world)
{
	ls_group *group;
	OK(ls_group_split(world, 0, -self->rank, &group));
	return group;
}

/* ---- lists ---- */

/* In a group that numbers its ranks in another order the messages name ranks of the job. */
static void ranks_are_named_as_in_the_job(struct runner_rank *self, ls_group *world)
{
	ls_group *group, *parent = all_reversed(self, world);
	int last = self->size - 1, mine[] = {0, self->rank == 0 ? 2 : 1};
	struct caught caught;
	char part[64];
	caught_begin(&caught);
	GIVES(LS_INCONSISTENT, ls_group_from_ranks(parent, mine, 2, &group));
	GIVES(LS_BAD_ARGUMENT, ls_group_split(parent, self->rank == last ? -7 : 0, 0, &group));
	const char *text = caught_end(&caught);
	SAYS(text, "rank 0 gave 0, 2");
	snprintf(part, sizeof part, "rank %d gave 0, 1", last);
	SAYS(text, part);
	snprintf(part, sizeof part, "because rank %d could not take part", last);
	if (self->rank != last)
		SAYS(text, part);
	ls_group_close(parent);
}

void lists_that_differ(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group = world;
	struct caught caught;
	int all[] = {0, 1, 2, 3, 4, 5, 6, 7}, other[] = {0, 2}, last = self->size - 1;
	caught_begin(&caught);
	ls_status status = self->rank == last ? ls_group_from_ranks(world, other, 2, &group)
					      : ls_group_from_ranks(world, all, last, &group);
	const char *text = caught_end(&caught);
	CHECK_THAT(status == LS_INCONSISTENT && !group, "%s", ls_status_name(status));
	SAYS(text, self->size == 3 ? "rank 0 gave 0, 1 (called from group_failure_test.c:"
				   : "rank 0 gave 0, 1, 2, 3 (called from group_failure_test.c:");
	SAYS(text, self->size == 3 ? "rank 2 gave 0, 2 (called from group_failure_test.c:"
				   : "rank 4 gave 0, 2 (called from group_failure_test.c:");
	SAYS(text, "LS-GROUP-LISTS");
	/* The parent is as it was. */
	works(world);
	OK(ls_group_from_ranks(world, all, self->size, &group));
	works(group);
	ranks_are_named_as_in_the_job(self, world);
	ls_group_close(world);
}

/* Two groups, in one order here and in another there; then the right way. */
void groups_in_another_order(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group;
	struct caught caught;
	int lists[2][2] = {{0, 1}, {1, 2}};
	for (int i = 0; i < 2; i++) {
		caught_begin(&caught);
		ls_status status =
			ls_group_from_ranks(world, lists[i ^ (self->rank == 1)], 2, &group);
		const char *text = caught_end(&caught);
		CHECK_THAT(status == LS_INCONSISTENT && !group, "%s", ls_status_name(status));
		SAYS(text, i ? "rank 0 gave 1, 2" : "rank 0 gave 0, 1");
		SAYS(text, i ? "rank 1 gave 0, 1" : "rank 1 gave 1, 2");
		SAYS(text, "in different orders");
	}
	for (int i = 0; i < 2; i++) {
		bool member = self->rank == i || self->rank == i + 1;
		ls_status status = ls_group_from_ranks(world, lists[i], 2, &group);
		CHECK(status == (member ? LS_OK : LS_NOT_MEMBER));
		if (member)
			works(group);
	}
	ls_group_close(world);
}

void a_split_meets_another_collective(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *before = all_reversed(self, world), *group = world;
	bool other = self->rank == self->size - 1;
	int list[] = {0, 1};
	ls_status status = other ? ls_group_from_ranks(world, list, 2, &group)
				 : ls_group_split(world, 0, 0, &group);
	CHECK_THAT(status == LS_MISMATCH, "%s", ls_status_name(status));
	CHECK(!group);
	is_closed(world, LS_MISMATCH, self->size > 2 ? self->size - 1 : -1, "group-from-ranks");
	is_closed(world, LS_MISMATCH, self->size > 2 ? self->size - 1 : -1, "group-split");
	GIVES(LS_MISMATCH, ls_group_split(world, 0, 0, &group));
	/* A group that was made before is of its own. */
	is_open(before);
	works(before);
	OK(ls_group_split(before, 0, 0, &group));
	works(group);
	ls_group_close(world);
}

/* ---- one group fails ---- */

/* Calls with another count on the last member, whose world rank is 0. */
void a_mismatch_closes_one_group(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group = all_reversed(self, world), *pair = NULL;
	int64_t words[2] = {0};
	works(group);
	GIVES(LS_MISMATCH,
	      ls_allreduce(group, words, words, self->rank == 0 ? 2 : 1, LS_INT64, LS_SUM, NULL));
	/* Texts name ranks of the world, and the group. */
	int last = self->size - 1;
	is_closed(group, LS_MISMATCH, last > 1 ? last : -1, "all-reduce #2 of group ");
	is_closed(group, LS_MISMATCH, last > 1 ? last : -1, "rank 0");
	is_open(world);
	works(world);
	ls_group_close(group);
	OK(ls_group_split(world, 0, 0, &pair)); /* with the area of that which failed */
	is_open(pair);
	works(pair);
	ls_group_close(pair);
	works(world);
	ls_group_close(world);
}

void a_time_out_closes_one_group(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group = all_reversed(self, world);
	struct ls_call_options soon = {.size = sizeof soon, .timeout_ms = 200};
	int last = self->size - 1;
	if (self->rank != 0)
		GIVES(LS_TIMED_OUT, ls_barrier(group, &soon));
	runner_meet(self);
	works(world);
	is_closed(group, LS_TIMED_OUT, last, "barrier #1 of group ");
	is_closed(group, LS_TIMED_OUT, last, "rank 0 is elsewhere");
	works(world);
	ls_group_close(world);
}

static ls_status receive_late(ls_group *group, int source, bool nonblocking)
{
	struct ls_call_options soon = {.size = sizeof soon, .timeout_ms = 200};
	int32_t value;
	ls_request *request;
	if (!nonblocking)
		return ls_recv(group, &value, 1, LS_INT32, source, &soon);
	OK(ls_irecv(group, &value, 1, LS_INT32, source, &soon, &request));
	ls_status status = ls_wait(request, 0);
	ls_request_free(request);
	return status;
}

/* Each rank receives from the next one, and all reach their limits at the same time. The last one
 * does not call, so it is to blame, and not the one that a rank waits for. */
static void be_late(struct runner_rank *self, bool nonblocking)
{
	ls_group *group = runner_open(self);
	int last = self->size - 1;
	OK(ls_barrier(group, NULL));
	if (self->rank < last)
		GIVES(LS_TIMED_OUT, receive_late(group, self->rank + 1, nonblocking));
	runner_meet(self);
	GIVES(LS_TIMED_OUT, ls_barrier(group, NULL)); /* another host may learn of it only here */
	char want[64];
	snprintf(want, sizeof want, "rank %d is elsewhere", last);
	is_closed(group, LS_TIMED_OUT, last, want);
	ls_group_close(group);
}

void a_chain_is_late(struct runner_rank *self)
{
	be_late(self, false);
}

void a_chain_is_late_handle(struct runner_rank *self)
{
	be_late(self, true);
}

/* Another operation reaches its limit a moment before the wait ends, and the thread comes to look
 * after both. Then the rank is in no wait any more. The timer's slack makes it come late. */
void a_wait_ends_at_the_limit_of_another(struct runner_rank *self)
{
	enum { SOON_MS = 200 };
	ls_group *world = runner_open(self), *group = all_reversed(self, world);
	struct ls_call_options soon = {.size = sizeof soon, .timeout_ms = SOON_MS},
			       later = {.size = sizeof later, .timeout_ms = 4 * SOON_MS};
	int32_t values[2];
	ls_request *late, *request;
	works(group);
	works(world);
	if (self->rank == 0) {
		CHECK(prctl(PR_SET_TIMERSLACK, 5000000L) == 0);
		OK(ls_irecv(world, &values[1], 1, LS_INT32, 1, NULL, &request));
		OK(ls_irecv(group, &values[0], 1, LS_INT32, 0, &soon, &late));
		GIVES(LS_PENDING, ls_wait(request, SOON_MS));
	} else {
		GIVES(LS_TIMED_OUT, ls_recv(world, values, 1, LS_INT32, 0, &later));
	}
	runner_meet(self);
	runner_await_failure(world);
	is_closed(world, LS_TIMED_OUT, 0, "rank 0 is elsewhere");
	if (self->rank == 0) {
		GIVES(LS_TIMED_OUT, ls_wait(request, 0));
		ls_request_free(request);
		GIVES(LS_TIMED_OUT, ls_wait(late, 0));
		ls_request_free(late);
	}
	ls_group_close(group);
	ls_group_close(world);
}

/* The limit also holds for the split, so it leaves time for a rank that starts late. */
void the_time_limit_is_inherited(struct runner_rank *self)
{
	struct ls_group_options options = {.size = sizeof options,
					   .timeout_ms = 3000,
					   .open_timeout_ms = RUNNER_TIMEOUT_MS,
					   .rank = self->rank,
					   .world_size = self->size,
					   .rendezvous = self->rendezvous};
	ls_group *world, *group;
	OK(ls_group_open(&options, &world));
	runner_meet(self);
	OK(ls_group_split(world, 0, 0, &group));
	if (self->rank > 0)
		GIVES(LS_TIMED_OUT, ls_barrier(group, NULL));
	runner_meet(self);
	is_open(world);
	ls_group_close(world);
}

/* A rank that closes a group which others still use has left only that group. */
void a_rank_left_one_group(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group = all_reversed(self, world);
	if (self->rank == 0) {
		ls_group_close(group);
		group = NULL;
	} else {
		GIVES(LS_PEER_LEFT, ls_barrier(group, NULL));
		is_closed(group, LS_PEER_LEFT, self->size - 1, "rank 0 closed the group");
	}
	works(world);
	is_open(world);
	ls_group_close(group);
	ls_group_close(world);
}

/* Once the other is asleep; nobody else wakes it, as no watch looks for ten seconds. */
void leaving_wakes_who_sleeps(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group = all_reversed(self, world);
	_Atomic uint64_t *sleeper = &self->shared->words[0];
	int32_t value;
	works(group);
	if (self->rank == 1) {
		atomic_store(sleeper, (uint64_t)getpid());
		/* For a collective the report on the missing collective would say so. */
		GIVES(LS_PEER_LEFT, ls_recv(group, &value, 1, LS_INT32, 1, NULL));
	} else {
		while (!atomic_load(sleeper) || process_state((int)atomic_load(sleeper)) != 'S')
			sched_yield();
		ls_group_close(group);
	}
	runner_meet(self);
	works(world);
	ls_group_close(world);
}

/* Rank 1 dies: the groups it is in fail, in the operations that need it, and the others go on. */
void a_death_closes_groups_that_need_it(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *with, *without;
	OK(ls_group_split(world, 0, -self->rank, &with));
	ls_status status = ls_group_split(world, self->rank == 1 ? -1 : 0, 0, &without);
	CHECK(status == (self->rank == 1 ? LS_NOT_MEMBER : LS_OK));
	works(world);
	if (self->rank == 1)
		kill(getpid(), SIGKILL);
	GIVES(LS_PEER_DIED, ls_barrier(with, NULL));
	is_closed(with, LS_PEER_DIED, self->size - 2, "rank 1 ");
	for (int i = 0; i < 50; i++)
		works(without);
	is_open(world); /* nobody has needed rank 1 there */
	GIVES(LS_PEER_DIED, ls_barrier(world, NULL));
	is_closed(world, LS_PEER_DIED, 1, "rank 1 ");
	works(without);
	ls_group_close(without);
	ls_group_close(with);
	ls_group_close(world);
}

/* ---- aborts ---- */

enum { GROUPS = 50, THREADS = 4 };

struct aborter {
	ls_group **groups;
	int first;
	bool waits;
	pthread_t thread;
};

/* A quarter of the groups: aborted from the last to the first, or waited in. */
static void *run_aborter(void *argument)
{
	struct aborter *aborter = argument;
	for (int i = GROUPS - 1 - aborter->first; i >= 0; i -= THREADS) {
		if (aborter->waits)
			GIVES(LS_ABORTED, ls_barrier(aborter->groups[i], NULL));
		else
			OK(ls_group_abort(aborter->groups[i], "all at once"));
	}
	return NULL;
}

void aborts_in_any_order(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *groups[GROUPS];
	struct aborter aborters[THREADS];
	for (int i = 0; i < GROUPS; i++)
		OK(ls_group_split(world, 0, i % 2 ? self->rank : -self->rank, &groups[i]));
	for (int t = 0; t < THREADS; t++) {
		aborters[t] = (struct aborter){
			.groups = groups, .first = t, .waits = self->rank != 0 && t % 2 == 0};
		CHECK(pthread_create(&aborters[t].thread, NULL, run_aborter, &aborters[t]) == 0);
	}
	for (int t = 0; t < THREADS; t++)
		CHECK(pthread_join(aborters[t].thread, NULL) == 0);
	for (int i = 0; i < GROUPS; i++) {
		struct ls_failure failure = {.size = sizeof failure};
		OK(ls_group_failure(groups[i], &failure));
		CHECK(failure.status == LS_ABORTED && failure.rank >= 0);
		/* The report names the first rank, by its world rank. */
		char who[32];
		snprintf(who, sizeof who, "rank %d aborted",
			 ls_group_rank_in(groups[i], failure.rank, world));
		SAYS(failure.text, who);
		SAYS(failure.text, "all at once");
	}
	works(world);
	for (int i = 0; i < GROUPS; i++)
		ls_group_close(groups[i]);
	works(world);
	ls_group_close(world);
}

/* ---- deadlock ---- */

/* Rank 0 is in a collective of one group, rank 1 in one of the other: each waits for the other for
 * ever. All groups in which somebody of the cycle waits fail with one report; the world, of which
 * nobody waits, does not. */
void a_cycle_through_groups_is_proved(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *two[2];
	for (int g = 0; g < 2; g++)
		OK(ls_group_split(world, 0, g ? -self->rank : self->rank, &two[g]));
	GIVES(LS_DEADLOCK, ls_barrier(two[self->rank % 2], NULL));
	for (int g = 0; g < 2; g++) {
		is_closed(two[g], LS_DEADLOCK, -1, "wait for each other and can never go on");
		is_closed(two[g], LS_DEADLOCK, -1,
			  runner_is_on_hosts
				  ? " (barrier #1 of group " /* others are in a cycle, too */
				  : "rank 0 waits for rank 1 (barrier #1 of group ");
	}
	is_open(world);
	works(world);
	ls_group_close(world);
}

/* The same through as many groups as there are ranks: each is in two of them, and in none of most
 * groups that fail. */
void a_cycle_through_pairs_is_proved(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *pairs[RUNNER_RANKS_MAX];
	int last = (self->rank + self->size - 1) % self->size;
	for (int i = 0; i < self->size; i++) {
		bool is_in = i == self->rank || i == last;
		ls_status status = ls_group_split(world, is_in ? 0 : -1, 0, &pairs[i]);
		CHECK(status == (is_in ? LS_OK : LS_NOT_MEMBER));
	}
	GIVES(LS_DEADLOCK, ls_barrier(pairs[self->rank], NULL));
	GIVES(LS_DEADLOCK, ls_barrier(pairs[last], NULL));
	is_open(world);
	works(world);
	ls_group_close(pairs[self->rank]);
	ls_group_close(pairs[last]);
	ls_group_close(world);
}

/* A receive that does not fit its message closes one group: also if the payload lies where a rank
 * of another host was to fetch it. */
void a_misfit_closes_one_group(struct runner_rank *self)
{
	enum { COUNT = 1 << 18 };
	ls_group *world = runner_open(self), *group;
	int last = self->size - 1;
	void *buffer;
	OK(ls_alloc(world, COUNT * sizeof(int32_t), &buffer));
	memset(buffer, 0, COUNT * sizeof(int32_t));
	OK(ls_group_split(world, 0, self->rank, &group));
	if (self->rank == 0)
		GIVES(LS_TRUNCATED, ls_send(group, buffer, COUNT, LS_INT32, last, NULL));
	if (self->rank == last)
		GIVES(LS_TRUNCATED, ls_recv(group, buffer, COUNT - 1, LS_INT32, 0, NULL));
	is_open(world);
	works(world);
	OK(ls_free(world, buffer));
	ls_group_close(group);
	ls_group_close(world);
}

/* What the operations of a failed group touched is the program's again, for another group, too. Run
 * with LOCKSTEP_CHECK=1, which refuses what is still under way. */
void buffers_are_free_after_a_failure(struct runner_rank *self)
{
	enum { LONG = 1 << 18 };
	ls_group *world = runner_open(self), *group;
	int last = self->size - 1;
	void *reduced, *sent;
	ls_request *sum, *send;
	struct ls_call_options options = {.size = sizeof options, .request = &sum};
	OK(ls_group_split(world, 0, self->rank, &group));
	OK(ls_alloc(world, LONG * sizeof(int32_t), &reduced));
	OK(ls_alloc(world, LONG * sizeof(int32_t), &sent));
	memset(reduced, 0, LONG * sizeof(int32_t));
	memset(sent, 0, LONG * sizeof(int32_t));
	runner_ready(self, group);
	if (self->rank != last) {
		OK(ls_allreduce(group, reduced, reduced, LONG, LS_INT32, LS_SUM, &options));
		OK(ls_isend(group, sent, LONG, LS_INT32, last, NULL, &send));
		GIVES(LS_BAD_ARGUMENT, ls_free(world, reduced));
		GIVES(LS_BAD_ARGUMENT, ls_free(world, sent));
	}
	runner_meet(self);
	if (self->rank == last) {
		OK(ls_group_abort(group, "the test wants it so"));
	} else {
		GIVES(LS_ABORTED, ls_wait(sum, 0));
		GIVES(LS_ABORTED, ls_wait(send, 0));
		ls_request_free(sum);
		ls_request_free(send);
	}
	OK(ls_allreduce(world, reduced, reduced, LONG, LS_INT32, LS_SUM, NULL));
	OK(ls_allreduce(world, sent, sent, LONG, LS_INT32, LS_SUM, NULL));
	OK(ls_free(world, reduced));
	OK(ls_free(world, sent));
	ls_group_close(group);
	ls_group_close(world);
}
