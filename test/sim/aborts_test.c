/* SPDX-License-Identifier: BSD-3-Clause
 * A group fails at any moment of the operations that it has on streams: while threads put them
 * there, and while devices work on them. TSan finds what threads then do at the same time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sched.h>

#include "job_fixture.h"
#include "world/ls_group.h"
#include "world/ls_request.h"

enum { ROUNDS = 4, CALLERS = 2, CALLS = 10, COUNT = 64, YIELDS = 400 };

/* splitmix64 */
static uint64_t draw(uint64_t *random, uint64_t limit)
{
	uint64_t z = *random += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (z ^ z >> 31) % limit;
}

/* ---- what reports say of an operation that failed ---- */

static _Atomic uint64_t held_word;

/* Of operations whose streams have not come to them. */
static void check_failed(struct rank *rank, ls_request **ops, int count)
{
	const struct trace_view *view = &rank->group->world->views[rank->rank];
	struct trace_record record;
	uint32_t step;
	for (int i = 0; i < count; i++) {
		MUST(ls_wait(ops[i], 20) == LS_PENDING); /* its device is busy */
		MUST(trace_read(view, ops[i]->base.record, &record, &step));
		MUST((record.stream & TRACE_LAUNCHED) && !(record.stream & TRACE_ARRIVED));
	}
	sim_board_store(rank->sim, &held_word, 1);
	for (int i = 0; i < count; i++) {
		MUST(ls_wait(ops[i], 0) == LS_ABORTED);
		ls_request_free(ops[i]);
	}
}

/* They end without a result, so no report may say that one has arrived. */
static void fail_behind_a_held_stream(struct rank *rank)
{
	int32_t *block = device_block(rank, 8);
	ls_request *ops[2];
	struct ls_call_options options = on(rank, 0);
	ls_group *group;
	MUST(ls_group_split(rank->group, 0, rank->rank, &group) == LS_OK);
	if (rank->rank == 1) {
		MUST(sim_await(rank->streams[0], &held_word, 1) == SIM_OK);
		MUST(ls_irecv(group, block, 1, LS_INT32, 0, &options, &ops[0]) == LS_OK);
		options.request = &ops[1];
		MUST(ls_allreduce(group, block + 1, block + 1, 1, LS_INT32, LS_SUM, &options) ==
		     LS_OK);
	}
	MUST(ls_barrier(rank->group, NULL) == LS_OK);
	if (rank->rank == 0)
		MUST(ls_group_abort(group, "it gives up") == LS_OK);
	MUST(ls_barrier(rank->group, NULL) == LS_OK);
	if (rank->rank == 1)
		check_failed(rank, ops, 2);
	ls_group_close(group);
}

static void an_operation_that_failed_has_not_arrived(void **state)
{
	(void)state;
	run_job(fail_behind_a_held_stream, "");
}

/* ---- at any moment ---- */

struct caller {
	struct rank *rank;
	ls_group *group;
	uint64_t random;
	pthread_t thread;
	int count;
	ls_request *ops[CALLS];
	int32_t buffers[CALLS][COUNT];
	_Atomic int callbacks;
	int expected; /* callbacks */
};

static void note_callback(void *data, ls_status status)
{
	(void)status;
	atomic_fetch_add((_Atomic int *)data, 1);
}

static ls_status call_one(struct caller *me, int which, struct ls_call_options *options)
{
	int32_t *buffer = me->buffers[which];
	int peer = (int)draw(&me->random, RANKS);
	switch (draw(&me->random, 6)) {
	case 0:
		return ls_barrier(me->group, options);
	case 1:
		return ls_send(me->group, buffer, 1 + draw(&me->random, COUNT), LS_INT32, peer,
			       options);
	case 2:
		return ls_recv(me->group, buffer, COUNT, LS_INT32, peer, options);
	case 3:
		options->tag = LS_ANY_TAG;
		return ls_recv(me->group, buffer, COUNT, LS_INT32, LS_ANY_SOURCE, options);
	default:
		return ls_allreduce(me->group, buffer, buffer, 16, LS_INT32, LS_MAX, options);
	}
}

static void use_memory(struct caller *me)
{
	struct rank *rank = me->rank;
	void *block = device_block(rank, 1000);
	MUST(ls_device_record(rank->group, block, rank->streams[1]) == LS_OK);
	MUST(ls_device_free(rank->group, block) == LS_OK);
	MUST(ls_device_trim(rank->group, 0) == LS_OK);
}

static void wait_for_all(struct caller *me)
{
	for (int i = 0; i < me->count; i++) {
		ls_status status = ls_wait(me->ops[i], (uint32_t)draw(&me->random, 2));
		while (status == LS_PENDING)
			status = ls_wait(me->ops[i], 0);
		ls_request_free(me->ops[i]);
	}
	while (atomic_load(&me->callbacks) < me->expected)
		sched_yield();
	MUST(atomic_load(&me->callbacks) == me->expected);
}

static _Atomic int calls; /* of all ranks */

/* Which calls match, and which streams wait for each other, only chance decides. */
static void *call_all(void *argument)
{
	struct caller *me = argument;
	struct rank *rank = me->rank;
	ls_status status = LS_OK;
	bool launches = false;
	for (int i = 0; i < CALLS && status == LS_OK; i++) {
		struct ls_call_options options = on(rank, (int)draw(&me->random, STREAMS));
		if (draw(&me->random, 2))
			options.request = &me->ops[me->count];
		if (draw(&me->random, 3) == 0) {
			options.callback = note_callback;
			options.callback_data = &me->callbacks;
		}
		if (!launches && draw(&me->random, 4) == 0)
			launches = ls_launch_begin(&me->group, 1) == LS_OK;
		atomic_fetch_add(&calls, 1);
		status = call_one(me, i, &options);
		me->expected += status == LS_OK && options.callback;
		if (status == LS_OK && options.request) {
			void *other = rank->streams[draw(&me->random, STREAMS)];
			ls_status followed = ls_request_follow(me->ops[me->count++], other);
			(void)followed; /* the operation may fail at any time */
		}
		if (launches && draw(&me->random, 2))
			launches = ls_launch_end() == LS_BAD_ARGUMENT;
		if (draw(&me->random, 4) == 0)
			use_memory(me);
	}
	if (launches)
		status = ls_launch_end();
	wait_for_all(me);
	return NULL;
}

/* After a drawn number of calls; or soon, as all callers may wait. */
static void *abort_soon(void *argument)
{
	struct caller *me = argument;
	int until = atomic_load(&calls) + (int)draw(&me->random, RANKS * CALLERS * CALLS / 2);
	for (int i = 0; i < YIELDS && atomic_load(&calls) < until; i++)
		sched_yield();
	MUST(ls_group_abort(me->group, "chance has it") == LS_OK);
	return NULL;
}

static void fail_at_any_moment(struct rank *rank)
{
	static struct caller all[RANKS][CALLERS + 1];
	struct caller *callers = all[rank->rank];
	for (int round = 0; round < ROUNDS; round++) {
		ls_group *group;
		MUST(ls_group_split(rank->group, 0, rank->rank, &group) == LS_OK);
		int threads = CALLERS + (round % RANKS == rank->rank);
		for (int i = 0; i < threads; i++) {
			uint64_t seed = (uint64_t)((round * RANKS + rank->rank) * 8 + i);
			callers[i] = (struct caller){.rank = rank, .group = group, .random = seed};
			MUST(pthread_create(&callers[i].thread, NULL,
					    i < CALLERS ? call_all : abort_soon, &callers[i]) == 0);
		}
		for (int i = 0; i < threads; i++)
			wait_join(callers[i].thread);
		ls_group_close(group);
		for (int i = 0; i < STREAMS; i++)
			MUST(sim_stream_sync(rank->streams[i]) == SIM_OK);
		MUST(ls_barrier(rank->group, NULL) == LS_OK);
	}
	struct ls_device_stats stats = {.size = sizeof stats};
	MUST(ls_device_stats(rank->group, &stats) == LS_OK && stats.live == 0);
}

static void a_group_fails_at_any_moment(void **state)
{
	static const char *const devices[] = {
		"",        "depth=8",    "queues=1,depth=5",   "launch=waits",
		"depth=3", "free=waits", "process=3,devices=3"};
	(void)state;
	for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
		run_job(fail_at_any_moment, devices[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(an_operation_that_failed_has_not_arrived),
					   cmocka_unit_test(a_group_fails_at_any_moment)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
