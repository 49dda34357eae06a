/* SPDX-License-Identifier: BSD-3-Clause
 * A rank receives some messages, posts a receive that no rank answers, and then computes for long
 * beside the library. Only the rank's progress thread can then enforce the time limit. So that
 * thread must have been told of it, whenever the earlier messages came. */
#include <stdio.h>

#include "scheduler.h"
#include "subjects.h"

enum { RANKS = 2, ROUNDS_MAX = 6, LIMIT_MS = 200, APART_US = 300, UNANSWERED = 9 };

enum way { WAITS, POLLS, WAYS };

static struct {
	int rounds, ended;
	uint64_t send_us[ROUNDS_MAX], receive_us[ROUNDS_MAX];
	enum way ways[ROUNDS_MAX];
	ls_status found;
} drawn;

static uint64_t next(uint64_t *random, uint64_t limit)
{
	*random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (*random >> 33) % limit;
}

static void draw(uint64_t seed, struct subject_plan *plan)
{
	plan->ranks = RANKS;
	drawn.rounds = 2 + (int)next(&seed, ROUNDS_MAX - 1);
	for (int i = 0; i < drawn.rounds; i++) {
		drawn.send_us[i] = next(&seed, 2) * next(&seed, APART_US);
		drawn.receive_us[i] = next(&seed, 2) * next(&seed, APART_US);
		drawn.ways[i] = (enum way)next(&seed, WAYS);
	}
	snprintf(plan->settings, sizeof plan->settings, "LOCKSTEP_TIMEOUT_MS=%d", LIMIT_MS);
}

static void compute(uint64_t us)
{
	static const int never;
	if (us)
		scheduler_await(&never, 1, scheduler_now_ns() + 1000 * us);
}

static void must(ls_status status, const char *what)
{
	if (status != LS_OK)
		scheduler_fail("%s is %s", what, ls_status_name(status));
}

static void send_all(ls_group *world)
{
	for (int32_t i = 0; i < drawn.rounds; i++) {
		compute(drawn.send_us[i]);
		must(ls_send(world, &i, 1, LS_INT32, 1, NULL), "a send");
		scheduler_progress();
	}
}

static void receive(ls_group *world, int round)
{
	int32_t value = -1;
	ls_request *request;
	ls_status status;
	must(ls_irecv(world, &value, 1, LS_INT32, 0, NULL, &request), "a receive");
	do
		status = drawn.ways[round] == WAITS ? ls_wait(request, 0) : ls_test(request);
	while (status == LS_PENDING);
	must(status, "a wait");
	ls_request_free(request);
	if (value != round)
		scheduler_fail("message %d has come in place of %d", value, round);
	scheduler_progress();
}

static void post_what_nobody_sends(ls_group *world)
{
	static int32_t never;
	struct ls_call_options options = {.size = sizeof options, .tag = UNANSWERED};
	struct ls_failure failure = {.size = sizeof failure};
	ls_request *request;
	must(ls_irecv(world, &never, 1, LS_INT32, 0, &options, &request), "the last receive");
	for (int part = 0; part < 10; part++) {
		compute(1000 * LIMIT_MS / 4);
		scheduler_progress();
	}
	must(ls_group_failure(world, &failure), "ls_group_failure");
	drawn.found = failure.status;
	ls_status status = ls_wait(request, 0);
	(void)status; /* the same as the group's status */
	ls_request_free(request);
}

static void run(int rank, ls_group *world)
{
	if (rank == 0) {
		send_all(world);
		compute(1000 * LIMIT_MS * 4);
	} else {
		for (int i = 0; i < drawn.rounds; i++) {
			compute(drawn.receive_us[i]);
			receive(world, i);
		}
		post_what_nobody_sends(world);
	}
	ls_group_close(world);
	drawn.ended++;
}

static void judge(void)
{
	if (drawn.ended != RANKS)
		scheduler_fail("only %d ranks have ended", drawn.ended);
	if (drawn.found != LS_TIMED_OUT)
		scheduler_fail("after its time limit the group's status is %s",
			       ls_status_name(drawn.found));
}

static void show(FILE *file)
{
	for (int i = 0; i < drawn.rounds; i++)
		fprintf(file, "message %d: sent after %d us; received after %d us, %s\n", i,
			(int)drawn.send_us[i], (int)drawn.receive_us[i],
			drawn.ways[i] == WAITS ? "waits" : "polls");
}

const struct subject subject_limits = {
	.name = "limits", .weight = 1, .draw = draw, .run = run, .judge = judge, .show = show};
