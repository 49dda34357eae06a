/* SPDX-License-Identifier: BSD-3-Clause
 * Calls on streams of a simulated device: what is refused, what waits for what, and what becomes of
 * operations when something fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sched.h>

#include "job_fixture.h"

/* Whether the calling thread's last message has this in it. */
static bool has_said(const char *text)
{
	char said[1024];
	return ls_last_error(said, sizeof said) > 0 && strstr(said, text) != NULL;
}

/* ---- bad use ---- */

static void refuses_streams(struct rank *rank)
{
	ls_group *group = rank->group;
	int32_t value = 1, sum;
	int not_a_stream;
	ls_op *op = (void *)&value;
	struct ls_op_options options = on(rank, 0);
	options.stream = &not_a_stream;
	MUST(ls_allreduce(group, &value, &sum, 1, LS_INT32, LS_SUM, &options) == LS_BAD_ARGUMENT);
	MUST(ls_isend(group, &value, 1, LS_INT32, 0, &options, &op) == LS_BAD_ARGUMENT && !op);
	options.stream = rank->streams[0];
	MUST(sim_capture_begin(rank->streams[0]) == SIM_OK);
	MUST(ls_barrier(group, &options) == LS_UNSUPPORTED);
	char said[64];
	snprintf(said, sizeof said, "stream %p of device sim:", rank->streams[0]);
	MUST(has_said(said));
	uint64_t captured;
	MUST(sim_capture_end(rank->streams[0], &captured) == SIM_OK && captured == 0);
	struct ls_message message = {.size = sizeof message};
	MUST(ls_probe(group, 0, &options, &message) == LS_BAD_ARGUMENT);
	MUST(has_said("this call runs on no stream"));
	ls_group *other;
	int all[RANKS] = {0, 1, 2};
	MUST(ls_group_from_members(group, all, RANKS, &options, &other) == LS_BAD_ARGUMENT);
	options.resumable = 1;
	options.op = &op;
	MUST(ls_barrier(group, &options) == LS_BAD_ARGUMENT && !op);
	/* None of these was a collective. */
	MUST(ls_barrier(group, NULL) == LS_OK);
}

/* All calls that name a stream, with one that this device does not have. */
static void refuses_stream(struct rank *rank, void *stream)
{
	int32_t value = 1;
	void *block = device_block(rank, sizeof value), *none = block;
	ls_op *op;
	struct ls_op_options options = on(rank, 0);
	options.op = &op;
	MUST(ls_barrier(rank->group, &options) == LS_OK);
	MUST(ls_op_follow(op, stream) == LS_BAD_ARGUMENT || ls_test(op) == LS_OK);
	MUST(ls_wait(op, 0) == LS_OK);
	ls_op_free(op);
	options = (struct ls_op_options){.size = sizeof options, .stream = stream};
	MUST(ls_allreduce(rank->group, &value, &value, 1, LS_INT32, LS_SUM, &options) ==
	     LS_BAD_ARGUMENT);
	MUST(has_said("the stream is not one of this device"));
	MUST(ls_send(rank->group, &value, 1, LS_INT32, 0, &options) == LS_BAD_ARGUMENT);
	MUST(ls_recv(rank->group, &value, 1, LS_INT32, 0, &options) == LS_BAD_ARGUMENT);
	MUST(ls_device_alloc(rank->group, 1, stream, &none) == LS_BAD_ARGUMENT && !none);
	MUST(has_said("the stream is not one of this device"));
	MUST(ls_device_record(rank->group, block, stream) == LS_BAD_ARGUMENT);
	MUST(has_said("the stream is not one of this device"));
	MUST(ls_device_free(rank->group, block) == LS_OK);
}

static void refuses_other_streams(struct rank *rank)
{
	struct sim_stream *other, *closed;
	MUST(sim_stream_open(rank->sim, (rank->rank + 1) % RANKS, &other) == SIM_OK);
	refuses_stream(rank, other); /* of another device */
	MUST(sim_stream_close(other) == SIM_OK);
	MUST(sim_stream_open(rank->sim, rank->rank, &closed) == SIM_OK);
	MUST(sim_stream_close(closed) == SIM_OK);
	refuses_stream(rank, closed);
	/* None of these was a collective. */
	MUST(ls_barrier(rank->group, NULL) == LS_OK);
}

/* A block, after its group is closed, and another one is open. */
static void refuses_blocks_of_a_closed_group(void **state)
{
	struct ls_group_options options = {.size = sizeof options,
					   .world_size = 1,
					   .rendezvous = "unix:sim-closed-group",
					   .device = "sim:0"};
	ls_group *group;
	void *block, *other;
	(void)state;
	assert_int_equal(ls_group_open(&options, &group), LS_OK);
	assert_int_equal(ls_device_alloc(group, (size_t)4 << 20, NULL, &block), LS_OK);
	ls_group_close(group);
	assert_int_equal(ls_group_open(&options, &group), LS_OK);
	assert_int_equal(ls_device_alloc(group, 1, NULL, &other), LS_OK);
	assert_int_equal(ls_device_free(group, (char *)block + 1024), LS_BAD_ARGUMENT);
	assert_true(has_said("is no block of device sim:0"));
	assert_int_equal(ls_device_free(group, other), LS_OK);
	ls_group_close(group);
}

static void refuses_memory(struct rank *rank)
{
	ls_group *group = rank->group;
	char *block = device_block(rank, 1000), *none = (void *)1;
	int here;
	char said[64];
	snprintf(said, sizeof said, "ls_device_free: %p is no block of device", (void *)&here);
	MUST(ls_device_free(group, &here) == LS_BAD_ARGUMENT && has_said(said));
	MUST(ls_device_free(group, block + 512) == LS_BAD_ARGUMENT);
	MUST(ls_device_record(group, block, &here) == LS_BAD_ARGUMENT);
	MUST(ls_device_free(group, block) == LS_OK && ls_device_free(group, NULL) == LS_OK);
	MUST(ls_device_free(group, block) == LS_BAD_ARGUMENT && has_said("is free already"));
	MUST(ls_device_alloc(group, SIZE_MAX, rank->streams[0], (void **)&none) == LS_BAD_ARGUMENT &&
	     !none);
	MUST(ls_device_alloc(group, (size_t)1 << 40, rank->streams[0], (void **)&none) ==
	     LS_OUT_OF_MEMORY);
	MUST(ls_device_alloc(group, 1, &here, (void **)&none) == LS_BAD_ARGUMENT);
	MUST(ls_device_alloc(group, 0, NULL, (void **)&none) == LS_OK && none);
	MUST(ls_device_free(group, none) == LS_OK);
	MUST(ls_device_alloc(NULL, 1, NULL, (void **)&none) == LS_BAD_ARGUMENT);
	struct ls_device_stats stats = {.size = 3};
	MUST(ls_device_stats(group, &stats) == LS_BAD_ARGUMENT);
	stats.size = sizeof stats;
	MUST(ls_device_stats(group, &stats) == LS_OK && stats.live == 0 && stats.reserved > 0);
	MUST(stats.live + stats.cached + stats.pending + stats.put_off == stats.reserved);
	MUST(sim_stream_sync(rank->streams[0]) == SIM_OK && ls_device_trim(group, 0) == LS_OK);
	MUST(ls_device_forget(group, rank->streams[1]) == LS_OK);
}

static void refuses_launches(struct rank *rank)
{
	MUST(ls_launch_end() == LS_BAD_ARGUMENT && has_said("ls_launch_begin"));
	MUST(ls_launch_begin(&rank->group, 0) == LS_BAD_ARGUMENT);
	MUST(ls_launch_begin(&rank->group, 1) == LS_OK);
	MUST(ls_launch_begin(&rank->group, 1) == LS_BAD_ARGUMENT && has_said("ls_launch_end"));
	MUST(ls_launch_end() == LS_OK);
	MUST(ls_launch_end() == LS_BAD_ARGUMENT);
	MUST(ls_op_follow(NULL, rank->streams[0]) == LS_BAD_ARGUMENT);
	int32_t value = 1;
	ls_op *op;
	struct ls_op_options host = {.size = sizeof host, .op = &op};
	MUST(ls_allreduce(rank->group, &value, &value, 1, LS_INT32, LS_SUM, &host) == LS_OK);
	MUST(ls_op_follow(op, rank->streams[0]) == LS_BAD_ARGUMENT);
	MUST(ls_wait(op, 0) == LS_OK);
	ls_op_free(op);
}

static void refusals(void **state)
{
	(void)state;
	run_job(refuses_streams, "");
	run_job(refuses_other_streams, "");
	run_job(refuses_memory, "free=at_once");
	run_job(refuses_memory, "");
	run_job(refuses_launches, "");
}

/* ---- a device that is not there ---- */

static void devices_that_are_not(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		ls_status status;
		const char *says;
	} cases[] = {
		{"nothing:0", LS_UNSUPPORTED, "there is no driver 'nothing'"},
		{"sim:x", LS_BAD_ARGUMENT, "such as sim:0"},
		{"../sim:0", LS_BAD_ARGUMENT, "such as sim:0"},
		{"sim:99", LS_BAD_ARGUMENT, "no such device"},
		{"sim:0,colour=red", LS_BAD_ARGUMENT, "unknown options"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct ls_group_options options = {.size = sizeof options,
						   .world_size = 1,
						   .rendezvous = "unix:sim-no-device",
						   .device = cases[i].name};
		ls_group *group;
		assert_int_equal(ls_group_open(&options, &group), cases[i].status);
		assert_null(group);
		assert_true(has_said(cases[i].says));
	}
	struct ls_group_options options = {
		.size = sizeof options, .world_size = 1, .rendezvous = "unix:sim-no-device"};
	ls_group *group;
	void *block;
	assert_int_equal(ls_group_open(&options, &group), LS_OK);
	assert_int_equal(ls_device_alloc(group, 1, NULL, &block), LS_BAD_ARGUMENT);
	assert_true(has_said("has no device"));
	assert_int_equal(ls_launch_begin(&group, 1), LS_BAD_ARGUMENT);
	struct ls_op_options on_stream = {.size = sizeof on_stream, .stream = &group};
	assert_int_equal(ls_barrier(group, &on_stream), LS_BAD_ARGUMENT);
	ls_group_close(group);
}

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

/* A call returns although the stream has not come so far, and the operation waits for it. */
static void waits_for_its_stream(struct rank *rank)
{
	int32_t one = 1, sum = 0;
	int32_t *block = device_block(rank, sizeof one);
	ls_op *op;
	struct ls_op_options options = on(rank, 0);
	options.op = &op;
	if (rank->rank == 1)
		hold(rank, 0);
	to_device(rank, 0, block, &one, sizeof one);
	MUST(ls_allreduce(rank->group, block, block, 1, LS_INT32, LS_SUM, &options) == LS_OK);
	if (rank->rank == 1) {
		MUST(ls_test(op) == LS_PENDING);
		/* Others that use no stream go on, and so does another stream. */
		MUST(ls_recv(rank->group, &sum, 1, LS_INT32, 0, NULL) == LS_OK && sum == 7);
		MUST(ls_test(op) == LS_PENDING);
		release(rank);
	} else if (rank->rank == 0) {
		int32_t seven = 7;
		MUST(ls_test(op) == LS_PENDING);
		MUST(ls_send(rank->group, &seven, 1, LS_INT32, 1, NULL) == LS_OK);
	}
	/* The other stream waits for the operation. */
	MUST(ls_op_follow(op, rank->streams[1]) == LS_OK);
	MUST(ls_device_record(rank->group, block, rank->streams[1]) == LS_OK);
	to_host(rank, 1, &sum, block, sizeof sum);
	MUST(sum == RANKS);
	MUST(ls_wait(op, 0) == LS_OK);
	MUST(ls_op_follow(op, rank->streams[1]) == LS_OK); /* it is complete */
	ls_op_free(op);
	MUST(ls_device_free(rank->group, block) == LS_OK);
}

/* A send on a stream that does not go on holds up no other message, and is not taken back. */
static void a_held_send(struct rank *rank)
{
	int32_t value = 5, got = 0;
	ls_op *op;
	struct ls_op_options options = on(rank, 0);
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
		ls_op_free(op);
	} else if (rank->rank == 1) {
		options.stream = NULL;
		options.tag = 3;
		MUST(ls_recv(rank->group, &got, 1, LS_INT32, 0, &options) == LS_OK && got == 5);
		MUST(ls_send(rank->group, &got, 1, LS_INT32, 0, NULL) == LS_OK);
		MUST(ls_recv(rank->group, &got, 1, LS_INT32, 0, NULL) == LS_OK && got == 5);
	}
	MUST(ls_barrier(rank->group, NULL) == LS_OK);
}

/* The result of calls without a handle shows in the stream alone; then the group can be closed. */
static void without_handles(struct rank *rank)
{
	int32_t one = 1, got = 0;
	int32_t *block = device_block(rank, sizeof one);
	struct ls_op_options options = on(rank, 0);
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
		struct ls_op_options options = on(all_ranks[r], 0);
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

/* A stream that follows an operation comes to it long after that; the words that it waits for stay
 * until then, also if the group is closed meanwhile. */
static void follows_late(struct rank *rank)
{
	int32_t one = 1, sum = 0;
	ls_op *op;
	struct ls_op_options options = on(rank, 0);
	options.op = &op;
	hold(rank, 1);
	MUST(ls_allreduce(rank->group, &one, &sum, 1, LS_INT32, LS_SUM, &options) == LS_OK);
	MUST(ls_op_follow(op, rank->streams[1]) == LS_OK || ls_test(op) == LS_OK);
	MUST(ls_wait(op, 0) == LS_OK && sum == RANKS);
	struct ls_device_stats stats = {.size = sizeof stats};
	MUST(ls_device_stats(rank->group, &stats) == LS_OK);
	ls_op_free(op);
	release(rank);
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
}

/* ---- failures ---- */

/* Rank 0 gives up while a collective, a send and a receive of the others are behind their streams:
 * the streams go on. */
static void one_gives_up(struct rank *rank)
{
	int32_t *block = device_block(rank, 4);
	ls_op *ops[3];
	struct ls_op_options options = on(rank, 0);
	if (rank->rank == 0) {
		MUST(ls_group_abort(rank->group, "it has had enough") == LS_OK);
		return;
	}
	options.op = &ops[0];
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
		ls_op_free(ops[i]);
	}
	MUST(sim_stream_sync(rank->streams[0]) == SIM_OK);
	MUST(sim_stream_sync(rank->streams[1]) == SIM_OK);
}

/* The time limit passes while the stream of rank 1 has other work: the report says so. Waits with a
 * limit of their own end, and the operations when the stream has let go of them. */
static void ends_in_time(struct rank *rank, ls_op **ops, int count, const char *says)
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
		ls_op_free(ops[i]);
	}
}

static void a_stream_that_does_not_come(struct rank *rank)
{
	int32_t *block = device_block(rank, 4);
	ls_op *op;
	struct ls_op_options options = on(rank, 0);
	options.op = &op;
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
	ls_op *ops[2];
	struct ls_op_options options = on(rank, 0);
	options.timeout_ms = 300;
	if (rank->rank == 1)
		hold(rank, 0);
	MUST(ls_isend(rank->group, block, 1, LS_INT32, to, &options, &ops[0]) == LS_OK);
	MUST(ls_irecv(rank->group, block, 1, LS_INT32, from, &options, &ops[1]) == LS_OK);
	/* Nobody receives it from rank 0. */
	struct ls_op_options other = on(rank, 1);
	ls_op *more[2];
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
		ls_op_free(ops[i]);
		ls_op_free(more[i]);
	}
	MUST(sim_stream_sync(rank->streams[0]) == SIM_OK);
	MUST(sim_stream_sync(rank->streams[1]) == SIM_OK);
}

/* Rank 0 has left. Nobody but the stream of rank 1 waits for the message from it, and goes on. */
static void one_has_left(struct rank *rank)
{
	static const int32_t value = 1;
	struct ls_failure failure = {.size = sizeof failure};
	struct ls_op_options options = on(rank, 0);
	struct ls_op_options host = {.size = sizeof host, .tag = 5};
	if (rank->rank == 0) { /* when rank 1 has begun */
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

/* The n-th call of the driver fails, for every n: whoever sees it gets an error, and nobody
 * hangs. */
static _Atomic int failed_calls;

static void some_call_fails(struct rank *rank)
{
	static const int32_t one = 1; /* read later, if the call fails before the end */
	void *block;
	ls_op *op = NULL;
	struct ls_op_options options = on(rank, 0);
	if (ls_device_alloc(rank->group, 4, rank->streams[0], &block) != LS_OK) {
		atomic_fetch_add(&failed_calls, 1);
		return;
	}
	bool fine = sim_copy(rank->streams[0], block, &one, 4) == SIM_OK;
	ls_status status = ls_allreduce(rank->group, block, block, 1, LS_INT32, LS_SUM, &options);
	int to = (rank->rank + 1) % RANKS, from = (rank->rank + 2) % RANKS;
	if (status == LS_OK)
		status = ls_isend(rank->group, block, 1, LS_INT32, to, &options, &op);
	if (status == LS_OK)
		status = ls_recv(rank->group, block, 1, LS_INT32, from, &options);
	if (op) {
		ls_status sent = ls_wait(op, 0);
		status = status == LS_OK ? sent : status;
	}
	ls_op_free(op);
	fine &= status == LS_OK && sim_stream_sync(rank->streams[0]) == SIM_OK;
	status = ls_device_free(rank->group, block);
	fine &= status == LS_OK && ls_barrier(rank->group, NULL) == LS_OK;
	atomic_fetch_add(&failed_calls, !fine);
}

static void failures(void **state)
{
	(void)state;
	run_job(one_gives_up, "");
	run_job(one_has_left, "");
	run_job(a_stream_that_does_not_come, "");
	run_job(messages_that_do_not_come, "");
	for (int n = 2 + STREAMS;;
	     n++) { /* before, the device opens its own stream, and the test two */
		char options[32];
		snprintf(options, sizeof options, "fail_at=%d", n);
		atomic_store(&failed_calls, 0);
		run_job(some_call_fails, options);
		if (atomic_load(&failed_calls) == 0) {
			assert_true(n > 20);
			break;
		}
		assert_true(n < 100);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(refusals),
					   cmocka_unit_test(refuses_blocks_of_a_closed_group),
					   cmocka_unit_test(devices_that_are_not),
					   cmocka_unit_test(orders), cmocka_unit_test(failures)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
