/* SPDX-License-Identifier: BSD-3-Clause
 * What reports say when most records of their subject are gone, or when no thread waits in the
 * operation that holds up the others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/wait.h"
#include "caught.h"
#include "tests.h"
#include "values.h"

enum { BETWEEN = 60 }; /* more than a report looks at, and than LOCKSTEP_TRACE_RECORDS=16 keeps */

static struct ls_call_options with_tag(int tag)
{
	return (struct ls_call_options){.size = sizeof(struct ls_call_options), .tag = tag};
}

/* ---- a message that differs, and was sent long ago ---- */

/* All messages are sent before any is received. The first one is the one that differs; later ones
 * look like it. */
static void send_many(ls_group *group, int to, uint64_t count)
{
	struct ls_call_options seven = with_tag(7), nine = with_tag(9);
	int64_t values[5] = {0};
	ls_status status = ls_send(group, values, count, LS_INT64, to, &seven);
	for (int i = 0; i < BETWEEN && status == LS_OK; i++)
		status = ls_send(group, values, 1, LS_INT64, to, &nine);
	OK(status);
	OK(ls_send(group, values, 4, LS_INT64, to, &seven));
	OK(ls_send(group, values, 2, LS_INT64, to, &seven));
}

static void receive_many(ls_group *group, int from)
{
	struct ls_call_options nine = with_tag(9);
	int64_t value;
	for (int i = 0; i < BETWEEN; i++)
		OK(ls_recv(group, &value, 1, LS_INT64, from, &nine));
}

/* Group ranks are those of the world in reverse, so that a report which takes one for the other is
 * wrong. */
static void old_send(struct runner_rank *self, uint64_t count, ls_status status, bool kept)
{
	ls_group *world = runner_open(self), *group;
	struct ls_call_options seven = with_tag(7);
	int64_t values[3];
	OK(ls_group_split(world, 0, -self->rank, &group));
	if (self->rank == 0) {
		send_many(group, 0, count);
		GIVES(status, ls_recv(group, values, 1, LS_INT64, 0, NULL));
	} else {
		receive_many(group, 1);
		GIVES(status, ls_recv(group, values, 3, LS_INT64, 1, &seven));
	}
	struct ls_failure failure = {.size = sizeof failure};
	char said[128];
	OK(ls_group_failure(group, &failure));
	snprintf(said, sizeof said, "rank 0 sends %d int64 to rank 1 with tag 7 of group ",
		 (int)count);
	SAYS(failure.text, said);
	SAYS(failure.text, status == LS_TRUNCATED
				   ? ", longer than the receive buffer: rank 1 receives 3 int64"
				   : " where rank 1 receives 3 int64");
	CHECK_THAT(!strstr(failure.text, "different operations"), "%s", failure.text);
	const char *site = strstr(failure.text, "report_test.c:");
	CHECK_THAT(site && strstr(failure.text, "(rank 1)"), "%s", failure.text);
	CHECK_THAT(kept == (strstr(failure.text, "(rank 0) and report_test.c:") != NULL) &&
			   kept == !strstr(failure.text, "; the send is not on record"),
		   "%s", failure.text);
	ls_group_close(group);
	ls_group_close(world);
	runner_meet(self);
}

void an_old_send_is_told(struct runner_rank *self)
{
	old_send(self, 5, LS_TRUNCATED, true);
	old_send(self, 2, LS_MISMATCH, true);
}

void a_send_not_on_record_is_told(struct runner_rank *self)
{
	old_send(self, 5, LS_TRUNCATED, false);
	old_send(self, 2, LS_MISMATCH, false);
}

/* ---- a batch of which a part is over ---- */

/* Its end, or its handle among others: then a part stands for it, until that is over. */
static ls_status end_batch(ls_group *group, bool any)
{
	ls_request *ops[2] = {NULL, NULL};
	int index;
	if (!any)
		return ls_batch_end(group, NULL);
	OK(ls_batch_end(group, &ops[1]));
	ls_status status = ls_wait_any(ops, 2, 0, &index);
	CHECK(index == 1);
	ls_request_free(ops[1]);
	return status;
}

/* Rank 1 takes one part and waits for rank 0 in a barrier; rank 0 waits for the batch, of which
 * nobody takes the other part. What is over of the batch must not stand for the rest of it. */
static void never_ends(struct runner_rank *self, bool first, bool any, bool plain)
{
	enum { LONG = 1 << 20 };
	struct ls_call_options one = with_tag(1), three = with_tag(3);
	ls_group *group = runner_open(self);
	int64_t *buffer = values_alloc(group, 2 * LONG * sizeof *buffer, plain);
	if (self->rank == 0) {
		OK(ls_batch_begin(group));
		OK(ls_send(group, buffer, LONG, LS_INT64, 1, first ? &three : &one));
		OK(ls_send(group, buffer + LONG, LONG, LS_INT64, 1, first ? &one : &three));
		GIVES(LS_DEADLOCK, end_batch(group, any));
	} else {
		OK(ls_recv(group, buffer, LONG, LS_INT64, 0, &one));
		GIVES(LS_DEADLOCK, ls_barrier(group, NULL));
	}
	struct ls_failure failure = {.size = sizeof failure};
	OK(ls_group_failure(group, &failure));
	SAYS(failure.text, "ranks 0 and 1 wait for each other");
	SAYS(failure.text, first ? "rank 0 waits for rank 1 (send #1, tag 3, called from report_"
				 : "rank 0 waits for rank 1 (send #2, tag 3, called from report_");
	SAYS(failure.text, "rank 1 waits for rank 0 (barrier #1, called from report_");
	values_free(group, buffer, plain);
	ls_group_close(group);
	runner_meet(self);
}

void a_batch_that_never_ends_is_proved(struct runner_rank *self)
{
	for (int turn = 0; turn < 8; turn++)
		never_ends(self, turn & 1, turn & 2, turn & 4);
}

/* Rank 1 waits for a message of rank 0, which waits for one of its own; rank 2 is elsewhere. */
static void waits_for_each_other(struct runner_rank *self, void (*wait)(ls_group *group, int turn),
				 const char *says)
{
	for (int turn = 0; turn < 4; turn++) {
		ls_group *group = runner_open(self);
		if (self->rank == 0)
			wait(group, turn);
		if (self->rank == 1) {
			struct ls_failure failure = {.size = sizeof failure};
			int x;
			GIVES(LS_DEADLOCK, ls_recv(group, &x, 1, LS_INT32, 0, NULL));
			OK(ls_group_failure(group, &failure));
			SAYS(failure.text, says);
		}
		runner_meet(self);
		ls_group_close(group);
		runner_meet(self);
	}
}

/* Of the parts one may still be over, and one never, whichever was called first. */
static void wait_for_two(ls_group *group, int turn)
{
	int x, y;
	OK(ls_batch_begin(group));
	OK(ls_recv(group, &x, 1, LS_INT32, 1 + (turn & 1), NULL));
	OK(ls_recv(group, &y, 1, LS_INT32, 2 - (turn & 1), NULL));
	GIVES(LS_DEADLOCK, end_batch(group, turn & 2));
}

void a_batch_of_which_one_part_never_ends(struct runner_rank *self)
{
	waits_for_each_other(self, wait_for_two, "in receive #1 of 1 int32 from rank 1");
}

/* The collective needs both others: it will not come either. */
static void wait_for_either(ls_group *group, int turn)
{
	int x = 1, y, z, index;
	ls_request *ops[2];
	struct ls_call_options options = {.size = sizeof options, .request = &ops[turn & 1]};
	OK(ls_allreduce(group, &x, &y, 1, LS_INT32, LS_SUM, &options));
	OK(ls_irecv(group, &z, 1, LS_INT32, 1, NULL, &ops[!(turn & 1)]));
	GIVES(LS_DEADLOCK, ls_wait_any(ops, 2, 0, &index));
	for (int i = 0; i < 2; i++) {
		GIVES(LS_DEADLOCK, ls_wait(ops[i], 0));
		ls_request_free(ops[i]);
	}
}

void any_of_a_collective_and_a_message(struct runner_rank *self)
{
	waits_for_each_other(self, wait_for_either, "rank 0 waits for rank 1 (receive #1, tag 0");
}

/* ---- a debugger that looks on ---- */

enum { DEBUGGED_LOOK_MS = 200, DEBUGGED_WAITED_MS = 700, DEBUGGED_ROUNDS = 8 };

static void pause_for(uint64_t ms)
{
	ls_status status = wait_fds(NULL, NULL, 0, -1, clock_now_ns() + ms * UINT64_C(1000000));
	CHECK(status == LS_TIMED_OUT);
}

/* Now and then, each time for less than half a look interval, so that no two looks fall into one
 * stop, and with looks in between. Returns whether it did: without a processor of its own it may
 * not. */
static bool stop_now_and_then(pid_t pid)
{
	bool brief = true;
	pause_for(DEBUGGED_WAITED_MS);
	for (int i = 0; i < DEBUGGED_ROUNDS && brief; i++) {
		int state;
		uint64_t begin_ns = clock_now_ns();
		CHECK(ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0);
		CHECK(ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) == 0);
		CHECK(waitpid(pid, &state, __WALL) == pid && WIFSTOPPED(state));
		pause_for(DEBUGGED_LOOK_MS * 4 / 10);
		CHECK(ptrace(PTRACE_DETACH, pid, NULL, NULL) == 0);
		brief = clock_now_ns() - begin_ns < DEBUGGED_LOOK_MS / 2 * UINT64_C(1000000);
		pause_for(2 * DEBUGGED_LOOK_MS + i * DEBUGGED_LOOK_MS / DEBUGGED_ROUNDS);
	}
	return brief;
}

/* Rank 0 waits for rank 1, which computes, and a process of its own stops that one. */
void a_rank_that_is_debugged_is_not_stopped(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	_Atomic uint64_t *over = &self->shared->words[0];
	if (self->rank == 0) {
		struct caught caught;
		caught_begin(&caught);
		OK(ls_barrier(group, NULL));
		const char *text = caught_end(&caught);
		CHECK_THAT(atomic_load(over) != 1 || !strstr(text, "is stopped"), "it says: %s",
			   text);
	} else {
		pid_t parent = getpid(), tracer = fork();
		CHECK(tracer >= 0);
		if (tracer == 0) {
			atomic_store(over, stop_now_and_then(parent) ? 1 : 2);
			_exit(0);
		}
		(void)prctl(PR_SET_PTRACER, (unsigned long)tracer, 0, 0, 0);
		CHECK(waitpid(tracer, NULL, 0) == tracer);
		OK(ls_barrier(group, NULL));
	}
	ls_group_close(group);
}
