/* SPDX-License-Identifier: BSD-3-Clause
 * Operations on streams that have a callback: it is called once if the call succeeds, and not at
 * all if the call fails; and it may free the handle of its operation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sched.h>

#include "job_fixture.h"

enum { ROUNDS = 600, SENDERS = 3 };

struct note {
	ls_request *op;
	_Atomic int called;
	bool has_handle;
	ls_status status; /* that the callback got */
};

/* The handle is the callback's to free, if there is one. */
static void free_handle(void *data, ls_status status)
{
	struct note *note = data;
	note->has_handle = note->op != NULL;
	note->status = status;
	ls_request_free(note->op);
	note->op = NULL;
	atomic_fetch_add(&note->called, 1);
}

static struct ls_call_options tells(struct rank *rank, int stream, struct note *note)
{
	struct ls_call_options options = on(rank, stream);
	options.request = &note->op;
	options.callback = free_handle;
	options.callback_data = note;
	return options;
}

static void await_call(struct note *note)
{
	while (atomic_load(&note->called) == 0)
		sched_yield();
	MUST(atomic_load(&note->called) == 1 && note->status == LS_OK);
	MUST(note->has_handle && !note->op);
}

/* ---- the callback frees the handle ---- */

/* The operation may be complete before its call returns. */
static void free_in_callbacks(struct rank *rank)
{
	int32_t one = 1, sum, got;
	int to = (rank->rank + 1) % RANKS, from = (rank->rank + 2) % RANKS;
	for (int i = 0; i < ROUNDS; i++) {
		struct note reduced = {.op = NULL}, sent = {.op = NULL}, received = {.op = NULL};
		struct ls_call_options options = tells(rank, 0, &reduced);
		MUST(ls_allreduce(rank->group, &one, &sum, 1, LS_INT32, LS_SUM, &options) == LS_OK);
		await_call(&reduced);
		options = tells(rank, 0, &sent);
		MUST(ls_send(rank->group, &one, 1, LS_INT32, to, &options) == LS_OK);
		options = tells(rank, 1, &received);
		MUST(ls_recv(rank->group, &got, 1, LS_INT32, from, &options) == LS_OK);
		await_call(&sent);
		await_call(&received);
		MUST(sum == RANKS && got == 1);
	}
}

static void a_callback_frees_its_handle(void **state)
{
	(void)state;
	run_job(free_in_callbacks, "");
	run_job(free_in_callbacks, "launch=waits");
}

/* ---- the launch fails ---- */

struct sender {
	struct rank *rank;
	pthread_t thread;
	struct note notes[2];
	ls_status statuses[2];
};

static _Atomic int calling;

/* A receive and a collective. Whatever the group has when a call begins: the call returns an error,
 * or the callback gets it. */
static void *call_both(void *argument)
{
	struct sender *sender = argument;
	struct rank *rank = sender->rank;
	static int32_t values[RANKS][2];
	struct ls_call_options options = tells(rank, 0, &sender->notes[0]);
	atomic_fetch_add(&calling, 1);
	sender->statuses[0] = ls_recv(rank->group, &values[rank->rank][0], 1, LS_INT32, 0, &options);
	options = tells(rank, 0, &sender->notes[1]);
	sender->statuses[1] = ls_allreduce(rank->group, &values[rank->rank][1],
					   &values[rank->rank][1], 1, LS_INT32, LS_SUM, &options);
	return NULL;
}

/* Several threads call on one stream, whose queue has room for one operation: one thread waits for
 * room, and the others for that thread. Then rank 0 aborts the group. */
static void one_gives_up(struct rank *rank)
{
	struct sender senders[SENDERS];
	if (rank->rank == 0) {
		while (atomic_load(&calling) < (RANKS - 1) * SENDERS)
			sched_yield();
		for (int i = 0; i < 1000; i++)
			sched_yield();
		MUST(ls_group_abort(rank->group, "it gives up") == LS_OK);
		return;
	}
	for (int i = 0; i < SENDERS; i++) {
		senders[i] = (struct sender){.rank = rank};
		MUST(pthread_create(&senders[i].thread, NULL, call_both, &senders[i]) == 0);
	}
	for (int i = 0; i < SENDERS; i++)
		pthread_join(senders[i].thread, NULL);
	MUST(sim_stream_sync(rank->streams[0]) == SIM_OK);
	for (int i = 0; i < SENDERS; i++)
		for (int k = 0; k < 2; k++) {
			struct note *note = &senders[i].notes[k];
			bool fine = senders[i].statuses[k] == LS_OK;
			while (fine && atomic_load(&note->called) == 0)
				sched_yield();
			MUST(fine || senders[i].statuses[k] == LS_ABORTED);
			MUST(!fine || (note->status == LS_ABORTED && note->has_handle));
			MUST(!note->op);
		}
	/* Until here a callback had time to come too often. */
	MUST(ls_barrier(rank->group, NULL) == LS_ABORTED);
	for (int i = 0; i < SENDERS; i++)
		for (int k = 0; k < 2; k++)
			MUST(atomic_load(&senders[i].notes[k].called) ==
			     (senders[i].statuses[k] == LS_OK));
}

static void a_call_that_fails_calls_no_callback(void **state)
{
	static const char *const devices[] = {"depth=5", "depth=6", "launch=waits", ""};
	(void)state;
	for (int turn = 0; turn < 5; turn++)
		for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
			atomic_store(&calling, 0);
			run_job(one_gives_up, devices[i]);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_callback_frees_its_handle),
					   cmocka_unit_test(a_call_that_fails_calls_no_callback)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
