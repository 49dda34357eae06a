/* SPDX-License-Identifier: BSD-3-Clause
 * How short receives that are posted end: by the end of a rank or of the group, or at their time
 * limit. */
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "posted.h"
#include "tests.h"

enum { LIMIT_MS = 1500, PROMPT_S = 5 * RUNNER_PATIENCE };

static double now_s(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Posts many; returns one of them, and frees the others. */
static ls_request *post_many(ls_group *group, int32_t *values)
{
	ls_request *op, *kept = NULL;
	for (int i = 0; i < POSTED_MANY; i++) {
		posted_one(group, &values[i], i, &op);
		if (i == POSTED_MANY / 2)
			kept = op;
		else
			ls_request_free(op);
	}
	return kept;
}

static void is_told(ls_group *group, ls_status status, int culprit, const char *part)
{
	struct ls_failure failure = {.size = sizeof failure};
	runner_await_failure(group);
	OK(ls_group_failure(group, &failure));
	CHECK_THAT(failure.status == status && failure.rank == culprit &&
			   strstr(failure.text, part) && strstr(failure.text, "rank 1") &&
			   strstr(failure.text, "posted.h"),
		   "%s, rank %d is blamed: %s", ls_status_name(failure.status), failure.rank,
		   failure.text);
}

static ls_group *open_with_limit(const struct runner_rank *self)
{
	struct ls_group_options options = {.size = sizeof options,
					   .timeout_ms = LIMIT_MS,
					   .open_timeout_ms = RUNNER_TIMEOUT_MS,
					   .rank = self->rank,
					   .world_size = self->size,
					   .rendezvous = self->rendezvous};
	ls_group *group;
	OK(ls_group_open(&options, &group));
	return group;
}

static void time_out(struct runner_rank *self, bool waits)
{
	static int32_t values[RUNNER_RANKS_MAX][POSTED_MANY];
	ls_group *group = open_with_limit(self);
	runner_ready(self, group);
	if (self->rank == 1) {
		struct ls_failure failure = {.size = sizeof failure};
		double begin_s = now_s();
		ls_request *op = post_many(group, values[1]);
		while (!waits && failure.status == LS_OK && now_s() < begin_s + PROMPT_S) {
			OK(ls_group_failure(group, &failure));
			sched_yield();
		}
		double took_s = now_s() - begin_s;
		posted_end(op, LS_TIMED_OUT);
		took_s = waits ? now_s() - begin_s : took_s;
		CHECK_THAT(took_s > LIMIT_MS * 0.9e-3 && took_s < PROMPT_S, "it took %.3f s",
			   took_s);
		is_told(group, LS_TIMED_OUT, 0, "timed out in receive #");
	}
	runner_meet(self);
	ls_group_close(group);
}

/* At the limit of the group, whether a thread waits for one of them or none does. */
void posted_ones_time_out(struct runner_rank *self)
{
	time_out(self, true);
	time_out(self, false);
}

/* A limit of the call's own comes before that of the group. */
void posted_ones_with_less_time(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int32_t values[2];
	runner_ready(self, group);
	if (self->rank == 1) {
		struct ls_call_options soon = posted_tag(2);
		soon.timeout_ms = LIMIT_MS / 4;
		double begin_s = now_s();
		ls_request *op, *other;
		posted_one(group, &values[0], 1, &other);
		OK(ls_irecv(group, &values[1], 1, LS_INT32, 0, &soon, &op));
		posted_end(other, LS_TIMED_OUT);
		posted_end(op, LS_TIMED_OUT);
		CHECK(now_s() - begin_s > soon.timeout_ms * 0.9e-3);
		CHECK(now_s() - begin_s < PROMPT_S);
	}
	runner_meet(self);
	ls_group_close(group);
}

void posted_ones_of_one_that_dies(struct runner_rank *self)
{
	static int32_t values[RUNNER_RANKS_MAX][POSTED_MANY];
	ls_group *group = runner_open(self);
	runner_ready(self, group);
	ls_request *op = self->rank == 1 ? post_many(group, values[1]) : NULL;
	runner_meet(self);
	if (self->rank == 0)
		raise(SIGKILL);
	double begin_s = now_s();
	posted_end(op, LS_PEER_DIED);
	CHECK(now_s() - begin_s < PROMPT_S);
	is_told(group, LS_PEER_DIED, 0, "receive");
	ls_group_close(group);
}

/* The other rank, or the same, gives up. */
void posted_ones_are_aborted(struct runner_rank *self)
{
	static int32_t values[RUNNER_RANKS_MAX][POSTED_MANY];
	ls_group *group = runner_open(self);
	int aborts = (int)self->turn % 2;
	runner_ready(self, group);
	ls_request *op = self->rank == 1 ? post_many(group, values[1]) : NULL;
	runner_meet(self);
	if (self->rank == aborts)
		OK(ls_group_abort(group, "the test says so"));
	if (op) {
		posted_end(op, LS_ABORTED);
		GIVES(LS_ABORTED, ls_irecv(group, values[1], 1, LS_INT32, 0, NULL, &op));
	}
	ls_group_close(group);
}

/* The group is closed while they are posted: it fails, and nothing writes to the buffers any
 * more. */
void posted_ones_are_closed(struct runner_rank *self)
{
	static int32_t values[RUNNER_RANKS_MAX][POSTED_MANY];
	ls_group *group = runner_open(self);
	runner_ready(self, group);
	if (self->rank == 1)
		post_many(group, values[1]);
	runner_meet(self);
	if (self->rank == 1)
		ls_group_close(group);
	runner_meet(self);
	if (self->rank == 0) {
		int32_t value = 0;
		runner_await_failure(group);
		struct ls_call_options options = posted_tag(POSTED_MANY / 2);
		GIVES(LS_ABORTED, ls_send(group, &value, 1, LS_INT32, 1, &options));
		is_told(group, LS_ABORTED, 1, "under way");
		ls_group_close(group);
	}
	for (int i = 0; self->rank == 1 && i < POSTED_MANY; i++)
		CHECK_THAT(values[1][i] == -1, "receive %d got %d", i, values[1][i]);
}

/* What a thread posts and at once waits for leaves the doorbell armed. Afterwards both ranks wait
 * for a message that neither sends: in a receive, or for one more that is posted. */
void deadlock_after_posted_ones(struct runner_rank *self)
{
	enum { TIMES = 50 };
	int peer = 1 - self->rank;
	for (int posts = 0; posts < 2; posts++) {
		ls_group *group = runner_open(self);
		runner_ready(self, group);
		for (int32_t i = 0; i < TIMES; i++) {
			int32_t value = -1;
			ls_request *op;
			OK(ls_irecv(group, &value, 1, LS_INT32, peer, NULL, &op));
			OK(ls_send(group, &i, 1, LS_INT32, peer, NULL));
			posted_end(op, LS_OK);
			CHECK_THAT(value == i, "%d in place of %d", value, i);
		}
		int32_t value;
		ls_request *op;
		if (posts) {
			OK(ls_irecv(group, &value, 1, LS_INT32, peer, NULL, &op));
			posted_end(op, LS_DEADLOCK);
		} else {
			GIVES(LS_DEADLOCK, ls_recv(group, &value, 1, LS_INT32, peer, NULL));
		}
		runner_meet(self);
		ls_group_close(group);
	}
}
