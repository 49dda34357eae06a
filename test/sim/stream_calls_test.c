/* SPDX-License-Identifier: BSD-3-Clause
 * Calls on streams of a simulated device: what waits for what, and how operations end when
 * something fails. Wrong calls: bad_use_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sched.h>

#include "job_fixture.h"

/* ---- what waits for what ---- */

static _Atomic uint64_t held[RANKS]; /* a stream of the rank waits for it */

static void hold(struct rank *rank, int stream)
{
	atomic_store(&held[rank->rank], 0);
	MUST(sim_await(rank->streams[stream], &held[rank->rank], 1) == SIM_OK);
}

static void release(struct rank *rank)
{
	sim_board_store(rank->sim, &held[rank->rank], 1);
}

/* A call returns although the stream has not reached the operation, and the operation waits for the
 * stream. */
static void waits_for_its_stream(struct rank *rank)
{
	int32_t one = 1, sum = 0;
	int32_t *block = device_block(rank, sizeof one);
	ls_request *op;
	struct ls_call_options options = on(rank, 0);
	options.request = &op;
	if (rank->rank == 1)
		hold(rank, 0);
	to_device(rank, 0, block, &one, sizeof one);
	MUST(ls_allreduce(rank->group, block, block, 1, LS_INT32, LS_SUM, &options) == LS_OK);
	if (rank->rank == 1) {
		MUST(ls_test(op) == LS_PENDING);
		/* Calls without a stream continue, and so does another stream. */
		MUST(ls_recv(rank->group, &sum, 1, LS_INT32, 0, NULL) == LS_OK && sum == 7);
		MUST(ls_test(op) == LS_PENDING);
		release(rank);
	} else if (rank->rank == 0) {
		int32_t seven = 7;
		MUST(ls_test(op) == LS_PENDING);
		MUST(ls_send(rank->group, &seven, 1, LS_INT32, 1, NULL) == LS_OK);
	}
	/* The other stream waits for the operation. */
	MUST(ls_request_follow(op, rank->streams[1]) == LS_OK);
	MUST(ls_device_record(rank->group, block, rank->streams[1]) == LS_OK);
	to_host(rank, 1, &sum, block, sizeof sum);
	MUST(sum == RANKS);
	MUST(ls_wait(op, 0) == LS_OK);
	MUST(ls_request_follow(op, rank->streams[1]) == LS_OK); /* the operation is complete */
	ls_request_free(op);
	MUST(ls_device_free(rank->group, block) == LS_OK);
}

/* A send on a stream that does not continue delays no other message, and cannot be cancelled. */
static void a_held_send(struct rank *rank)
{
	int32_t value = 5, got = 0;
	ls_request *op;
	struct ls_call_options options = on(rank, 0);
	if (rank->rank == 0) {
		hold(rank, 0);
		MUST(ls_isend(rank->group, &value, 1, LS_INT32, 1, &options, &op) == LS_OK);
		options.stream = NULL;
		options.tag = 3;
		MUST(ls_send(rank->group, &value, 1, LS_INT32, 1, &options) == LS_OK);
		MUST(ls_cancel(op) == LS_BAD_ARGUMENT);
		MUST(ls_recv(rank->group, &got, 1, LS_INT32, 1, NULL) == LS_OK);
		MUST(ls_test(op) == LS_PENDING);
		release(rank);
		MUST(ls_wait(op, 0) == LS_OK);
		ls_request_free(op);
	} else if (rank->rank == 1) {
		options.stream = NULL;
		options.tag = 3;
		MUST(ls_recv(rank->group, &got, 1, LS_INT32, 0, &options) == LS_OK && got == 5);
		MUST(ls_send(rank->group, &got, 1, LS_INT32, 0, NULL) == LS_OK);
		MUST(ls_recv(rank->group, &got, 1, LS_INT32, 0, NULL) == LS_OK && got == 5);
	}
	MUST(ls_barrier(rank->group, NULL) == LS_OK);
}

/* Only the stream shows the result of a call without a handle; then the group can be closed. */
static void without_handles(struct rank *rank)
{
	int32_t one = 1, got = 0;
	int32_t *block = device_block(rank, sizeof one);
	struct ls_call_options options = on(rank, 0);
	to_device(rank, 0, block, &one, sizeof one);
	ls_group *groups[] = {rank->group, rank->group};
	MUST(ls_launch_begin(groups, 2) == LS_OK);
	MUST(ls_allreduce(rank->group, block, block, 1, LS_INT32, LS_SUM, &options) == LS_OK);
	MUST(ls_send(rank->group, block, 1, LS_INT32, (rank->rank + 1) % RANKS, &options) == LS_OK);
	MUST(ls_recv(rank->group, block, 1, LS_INT32, (rank->rank + 2) % RANKS, &options) == LS_OK);
	MUST(ls_launch_end() == LS_OK);
	to_host(rank, 0, &got, block, sizeof got);
	MUST(got == RANKS);
	MUST(ls_device_free(rank->group, block) == LS_OK);
	MUST(ls_barrier(rank->group, NULL) == LS_OK);
	struct ls_failure failure = {.size = sizeof failure};
	MUST(ls_group_failure(rank->group, &failure) == LS_OK && failure.status == LS_OK);
}

/* One thread launches for all ranks of the process; the first part waits for the last one. */
static struct rank *all_ranks[RANKS];
static pthread_barrier_t all_are_there;

static void launch_for_all(void)
{
	ls_group *groups[RANKS];
	int32_t one = 1, sums[RANKS] = {0};
	for (int r = 0; r < RANKS; r++)
		groups[r] = all_ranks[r]->group;
	MUST(ls_launch_begin(groups, RANKS) == LS_OK);
	for (int r = 0; r < RANKS; r++) {
		struct ls_call_options options = on(all_ranks[r], 0);
		MUST(ls_allreduce(groups[r], &one, &sums[r], 1, LS_INT32, LS_SUM, &options) == LS_OK);
	}
	MUST(ls_launch_end() == LS_OK);
	for (int r = 0; r < RANKS; r++) {
		MUST(sim_copy(all_ranks[r]->streams[0], &one, &one, sizeof one) == SIM_OK);
		while (sim_stream_query(all_ranks[r]->streams[0]) == SIM_NOT_READY)
			sched_yield();
		MUST(sums[r] == RANKS);
	}
}

static void one_for_all(struct rank *rank)
{
	all_ranks[rank->rank] = rank;
	pthread_barrier_wait(&all_are_there);
	if (rank->rank == 0)
		launch_for_all();
	pthread_barrier_wait(&all_are_there);
}

/* A stream that follows an operation reaches it long after that. The words that it waits for stay
 * valid until then, also if the group is closed meanwhile. */
static void follows_late(struct rank *rank)
{
	int32_t one = 1, sum = 0;
	ls_request *op;
	struct ls_call_options options = on(rank, 0);
	options.request = &op;
	hold(rank, 1);
	MUST(ls_allreduce(rank->group, &one, &sum, 1, LS_INT32, LS_SUM, &options) == LS_OK);
	MUST(ls_request_follow(op, rank->streams[1]) == LS_OK || ls_test(op) == LS_OK);
	MUST(ls_wait(op, 0) == LS_OK && sum == RANKS);
	struct ls_device_stats stats = {.size = sizeof stats};
	MUST(ls_device_stats(rank->group, &stats) == LS_OK);
	ls_request_free(op);
	release(rank);
}

/* ---- two threads on one stream ---- */

enum { SHARED_CALLS = 200 };

struct sharer {
	struct rank *rank;
	ls_group *group;
};

static void *share_stream(void *argument)
{
	struct sharer *sharer = argument;
	struct rank *rank = sharer->rank;
	int32_t *block = device_block(rank, sizeof *block);
	struct ls_call_options options = on(rank, 0);
	for (int i = 0; i < SHARED_CALLS; i++)
		MUST(ls_allreduce(sharer->group, block, block, 1, LS_INT32, LS_MAX, &options) ==
		     LS_OK);
	return NULL;
}

static void share_group(struct rank *rank, ls_group *group)
{
	struct sharer sharer = {rank, group};
	pthread_t other;
	MUST(pthread_create(&other, NULL, share_stream, &sharer) == 0);
	(void)share_stream(&sharer);
	wait_join(other);
	MUST(ls_barrier(group, NULL) == LS_OK);
}

/* Whichever thread calls first: the collectives of the group are in the order of the stream.
 * Otherwise the stream would wait for one that waits for an earlier one behind it. */
static void two_threads_share_a_stream(struct rank *rank)
{
	ls_group *alone;
	MUST(ls_group_split(rank->group, rank->rank, 0, &alone) == LS_OK);
	share_group(rank, alone);
	ls_group_close(alone);
	share_group(rank, rank->group);
}

static void orders(void **state)
{
	(void)state;
	assert_int_equal(pthread_barrier_init(&all_are_there, NULL, RANKS), 0);
	run_job(waits_for_its_stream, "");
	run_job(a_held_send, "");
	run_job(one_for_all, "devices=3,process=1");
	run_job(follows_late, "");
	run_job(without_handles, "");
	assert_int_equal(setenv("LOCKSTEP_BLOCKING", "1", 1), 0);
	run_job(without_handles, "");
	run_job(one_for_all, "devices=3,process=2");
	assert_int_equal(unsetenv("LOCKSTEP_BLOCKING"), 0);
	run_job(two_threads_share_a_stream, "");
}

/* ---- failures ---- */

/* Rank 0 aborts while a collective, a send and a receive of the other ranks are on their streams.
 * The streams continue. */
static void one_gives_up(struct rank *rank)
{
	int32_t *block = device_block(rank, 4);
	ls_request *ops[3];
	struct ls_call_options options = on(rank, 0);
	if (rank->rank == 0) {
		MUST(ls_group_abort(rank->group, "it has had enough") == LS_OK);
		return;
	}
	options.request = &ops[0];
	ls_status statuses[] = {
		ls_allreduce(rank->group, block, block, 1, LS_INT32, LS_SUM, &options),
		LS_OK,
		LS_OK,
	};
	options = on(rank, 1);
	statuses[1] = ls_irecv(rank->group, block, 1, LS_INT32, 0, &options, &ops[1]);
	statuses[2] = ls_isend(rank->group, block, 1, LS_INT32, 0, &options, &ops[2]);
	for (int i = 0; i < 3; i++) {
		if (statuses[i] == LS_OK)
			MUST(ls_wait(ops[i], 0) == LS_ABORTED);
		else
			MUST(statuses[i] == LS_ABORTED && !ops[i]);
		ls_request_free(ops[i]);
	}
	MUST(sim_stream_sync(rank->streams[0]) == SIM_OK);
	MUST(sim_stream_sync(rank->streams[1]) == SIM_OK);
}

/* The time limit passes while the stream of rank 1 has other work, and the report says so. Waits
 * with a time limit of their own end, and the operations end once the stream has released them. */
static void ends_in_time(struct rank *rank, ls_request **ops, int count, const char *says)
{
	struct ls_failure failure = {.size = sizeof failure};
	ls_status status;
	do {
		status = ls_wait(ops[0], 20);
		MUST(ls_group_failure(rank->group, &failure) == LS_OK);
	} while (failure.status == LS_OK);
	MUST(failure.status == LS_TIMED_OUT && strstr(failure.text, says));
	MUST(rank->rank != 1 || status == LS_PENDING);
	if (rank->rank == 1)
		release(rank);
	for (int i = 0; i < count; i++) {
		MUST(ls_wait(ops[i], 0) == LS_TIMED_OUT);
		ls_request_free(ops[i]);
	}
}

static void a_stream_that_does_not_come(struct rank *rank)
{
	int32_t *block = device_block(rank, 4);
	ls_request *op;
	struct ls_call_options options = on(rank, 0);
	options.request = &op;
	options.timeout_ms = 300;
	if (rank->rank == 1)
		hold(rank, 0);
	MUST(ls_allreduce(rank->group, block, block, 1, LS_INT32, LS_SUM, &options) == LS_OK);
	ends_in_time(rank, &op, 1, "to which its stream has not come yet");
}

static void messages_that_do_not_come(struct rank *rank)
{
	int32_t *block = device_block(rank, 4);
	int to = (rank->rank + 1) % RANKS, from = (rank->rank + 2) % RANKS;
	ls_request *ops[2];
	struct ls_call_options options = on(rank, 0);
	options.timeout_ms = 300;
	if (rank->rank == 1)
		hold(rank, 0);
	MUST(ls_isend(rank->group, block, 1, LS_INT32, to, &options, &ops[0]) == LS_OK);
	MUST(ls_irecv(rank->group, block, 1, LS_INT32, from, &options, &ops[1]) == LS_OK);
	/* No rank receives it from rank 0. */
	struct ls_call_options other = on(rank, 1);
	ls_request *more[2];
	other.tag = 1;
	other.timeout_ms = 300;
	MUST(ls_irecv(rank->group, block, 1, LS_INT32, from, &other, &more[0]) == LS_OK);
	MUST(ls_isend(rank->group, block, 1, LS_INT32, to, &other, &more[1]) == LS_OK);
	struct ls_failure failure = {.size = sizeof failure};
	while (failure.status == LS_OK) {
		ls_status status = ls_wait(ops[1], 20);
		MUST(status != LS_OK || rank->rank != 2);
		MUST(ls_group_failure(rank->group, &failure) == LS_OK);
	}
	MUST(failure.status == LS_TIMED_OUT);
	if (rank->rank == 1)
		release(rank);
	for (int i = 0; i < 2; i++) {
		ls_status status = ls_wait(ops[i], 0);
		MUST(status == LS_TIMED_OUT || status == LS_OK);
		MUST(ls_wait(more[i], 0) == LS_TIMED_OUT);
		ls_request_free(ops[i]);
		ls_request_free(more[i]);
	}
	MUST(sim_stream_sync(rank->streams[0]) == SIM_OK);
	MUST(sim_stream_sync(rank->streams[1]) == SIM_OK);
}

/* Rank 0 has left. Only the stream of rank 1 waits for its message, and continues. */
static void one_has_left(struct rank *rank)
{
	static const int32_t value = 1;
	struct ls_failure failure = {.size = sizeof failure};
	struct ls_call_options options = on(rank, 0);
	struct ls_call_options host = {.size = sizeof host, .tag = 5};
	if (rank->rank == 0) { /* once rank 1 has begun */
		int32_t got;
		MUST(ls_recv(rank->group, &got, 1, LS_INT32, 1, &host) == LS_OK);
	}
	if (rank->rank != 1)
		return;
	int32_t *block = device_block(rank, 4);
	MUST(ls_recv(rank->group, block, 1, LS_INT32, 0, &options) == LS_OK);
	MUST(ls_send(rank->group, &value, 1, LS_INT32, 0, &host) == LS_OK);
	MUST(sim_stream_sync(rank->streams[0]) == SIM_OK);
	MUST(ls_group_failure(rank->group, &failure) == LS_OK);
	MUST(failure.status == LS_PEER_LEFT);
}

/* The n-th call of the driver fails, for every n. Its rank gets an error, and no rank hangs. A free
 * gets no error, because it is tried again later. */
enum part { ALLOC, RECORD, LAUNCH, FOLLOW, MESSAGES, FREE, PARTS };
static uint64_t fail_at;
/* How many ranks have reached the call of the driver that fails; and how many of them before they
 * free. */
static _Atomic int refused, refused_before;
static _Atomic int failed_calls, failed_parts[PARTS];

/* Whether the call succeeded. */
static bool note(enum part part, ls_status status)
{
	if (status == LS_OK)
		return true;
	atomic_fetch_add(&failed_calls, 1);
	atomic_fetch_add(&failed_parts[part], 1);
	return false;
}

static void note_sim(enum sim_error error)
{
	if (error != SIM_OK)
		atomic_fetch_add(&failed_calls, 1);
}

/* Two all-reduces in one launch. Another stream follows them, while their stream waits. */
static void launch_two(struct rank *rank, void *block)
{
	static const int32_t one = 1;
	static int32_t sums[RANKS];
	ls_request *op = NULL;
	struct ls_call_options options = on(rank, 0);
	atomic_store(&held[rank->rank], 0);
	note_sim(sim_await(rank->streams[0], &held[rank->rank], 1));
	if (!note(LAUNCH, ls_launch_begin(&rank->group, 1))) {
		release(rank);
		return;
	}
	ls_status first = ls_allreduce(rank->group, block, block, 1, LS_INT32, LS_SUM, &options);
	options.request = &op;
	ls_status second =
		ls_allreduce(rank->group, &one, &sums[rank->rank], 1, LS_INT32, LS_SUM, &options);
	ls_status end = ls_launch_end();
	/* Not if the call was refused before it enqueued anything. */
	MUST(end == LS_OK || end == first || end == second);
	if (note(LAUNCH, first) && note(LAUNCH, second))
		note(FOLLOW, ls_request_follow(op, rank->streams[1]));
	release(rank);
	if (op)
		note(LAUNCH, ls_wait(op, 0));
	ls_request_free(op);
}

static void send_around(struct rank *rank, void *block)
{
	ls_request *op = NULL;
	struct ls_call_options options = on(rank, 0);
	int to = (rank->rank + 1) % RANKS, from = (rank->rank + 2) % RANKS;
	ls_status status = ls_isend(rank->group, block, 1, LS_INT32, to, &options, &op);
	if (status == LS_OK)
		status = ls_recv(rank->group, block, 1, LS_INT32, from, &options);
	note(MESSAGES, status);
	if (op)
		note(MESSAGES, ls_wait(op, 0));
	ls_request_free(op);
}

static void call_each(struct rank *rank)
{
	static const int32_t one = 1; /* read later, if the call fails before the end */
	void *block;
	if (!note(ALLOC, ls_device_alloc(rank->group, 4, rank->streams[0], &block)))
		return;
	note_sim(sim_copy(rank->streams[0], block, &one, 4));
	note(RECORD, ls_device_record(rank->group, block, rank->streams[1]));
	launch_two(rank, block);
	send_around(rank, block);
	for (int i = 0; i < STREAMS; i++)
		note_sim(sim_stream_sync(rank->streams[i]));
	atomic_fetch_add(&refused_before, sim_calls(rank->sim) >= fail_at);
	note(FREE, ls_device_free(rank->group, block));
	note(FREE, ls_device_trim(rank->group, 0));
	note(FREE, ls_barrier(rank->group, NULL));
}

static void some_call_fails(struct rank *rank)
{
	call_each(rank);
	atomic_fetch_add(&refused, sim_calls(rank->sim) >= fail_at);
}

static struct sim *given_up;
static struct sim_stream *left_behind;

/* Its stream has not reached the free when the job ends. */
static void leaves_work_behind(struct rank *rank)
{
	if (rank->rank != 0)
		return;
	void *block = device_block(rank, 4096);
	given_up = rank->sim;
	left_behind = rank->streams[0];
	hold(rank, 0);
	MUST(ls_device_free(rank->group, block) == LS_OK);
}

/* The job closes without the device. When the stream continues, the device does what was
 * enqueued. */
static void a_device_that_is_given_up(void)
{
	job_timeout_ms = 300;
	run_job(leaves_work_behind, "");
	job_timeout_ms = 60000;
	sim_board_store(given_up, &held[0], 1);
	assert_int_equal(sim_stream_sync(left_behind), SIM_OK);
}

static void failures(void **state)
{
	(void)state;
	run_job(one_gives_up, "");
	run_job(one_has_left, "");
	run_job(a_stream_that_does_not_come, "");
	run_job(messages_that_do_not_come, "");
	a_device_that_is_given_up();
	/* the device has opened its own stream before, and the test two */
	for (fail_at = 2 + STREAMS;; fail_at++) {
		char options[32];
		snprintf(options, sizeof options, "fail_at=%d", (int)fail_at);
		atomic_store(&refused, 0);
		atomic_store(&refused_before, 0);
		atomic_store(&failed_calls, 0);
		run_job(some_call_fails, options);
		assert_true(atomic_load(&failed_calls) >= atomic_load(&refused_before));
		if (atomic_load(&refused) == 0)
			break;
		assert_true(fail_at < 100);
	}
	for (int part = 0; part < FREE; part++) /* each other rank has seen it */
		assert_true(atomic_load(&failed_parts[part]) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(orders), cmocka_unit_test(failures)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
