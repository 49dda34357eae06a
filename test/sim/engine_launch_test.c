/* SPDX-License-Identifier: BSD-3-Clause
 * An engine that puts its collectives on streams of the caller's, as NCCL does: kernels that wait
 * for those of the other ranks. Nothing of them comes to the host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sched.h>

#include "engine/engine_ops.h"
#include "job_fixture.h"
#include "world/ls_group.h"

enum { COUNT = 1000, BYTES = COUNT * sizeof(int32_t), ROUNDS = 20 };

/* ---- the engine ---- */

/* Of one rank. */
static struct engine_state {
	struct sim *sim;
	uint64_t launched;        /* operations */
	_Atomic uint64_t entered; /* its kernels that have begun */
	_Atomic uint64_t aborted; /* 1: its kernels end */
	_Atomic int submitted, abandoned;
	bool fails; /* the next launch does */
	/* Of two operations, as no rank is further ahead than that. */
	int32_t input[2][COUNT];
} states[RANKS];

struct part {
	const int32_t *send;
	int32_t *recv;
	uint64_t count, number;
	int rank;
};

static bool have_all_entered(uint64_t number)
{
	for (int r = 0; r < RANKS; r++)
		if (atomic_load(&states[r].entered) < number)
			return false;
	return true;
}

static enum sim_step step_sum(struct sim *sim, void *argument)
{
	const struct part *part = argument;
	struct engine_state *mine = &states[part->rank];
	uint64_t half = part->number % 2;
	if (atomic_load(&mine->aborted))
		return SIM_STEP_DONE;
	if (atomic_load(&mine->entered) < part->number) {
		memcpy(mine->input[half], sim_where(sim, part->send), part->count * sizeof(int32_t));
		sim_board_store(sim, &mine->entered, part->number);
	}
	if (!have_all_entered(part->number))
		return SIM_STEP_SPINS;
	int32_t *to = sim_where(sim, part->recv);
	for (uint64_t i = 0; i < part->count; i++) {
		to[i] = 0;
		for (int r = 0; r < RANKS; r++)
			to[i] += states[r].input[half][i];
	}
	return SIM_STEP_DONE;
}
static const struct sim_kernel sums = {"sum of all ranks", step_sum};

static void engine_submit_none(void *data, struct op *op)
{
	struct engine_state *state = data;
	(void)op;
	atomic_fetch_add(&state->submitted, 1);
}

static enum op_progress engine_advance_none(void *data, struct op *op)
{
	(void)data;
	return op_fail(op, LS_INTERNAL, -1);
}

static enum op_progress engine_abort(void *data, struct op *op, bool force)
{
	struct engine_state *state = data;
	(void)op;
	(void)force;
	atomic_fetch_add(&state->abandoned, 1);
	sim_board_store(state->sim, &state->aborted, 1);
	return OP_DONE;
}

static ls_status engine_launch_sum(void *data, struct op *op)
{
	struct engine_state *state = data;
	struct part part = {.send = op->call.send.address,
			    .recv = op->call.recv.address,
			    .count = op->call.count,
			    .number = state->launched + 1,
			    .rank = (int)(state - states)};
	if (state->fails)
		return LS_SYSTEM;
	state->launched++;
	return sim_launch(op->stream.handle, &sums, &part, sizeof part) == SIM_OK ? LS_OK
										  : LS_SYSTEM;
}

static const struct engine_ops launching = {.submit = engine_submit_none,
					    .advance = engine_advance_none,
					    .abandon = engine_abort,
					    .launch = engine_launch_sum};

/* The threads of all ranks meet, as they share `states`. */
static pthread_barrier_t all_are_there;

/* A group of all ranks with that engine. */
static ls_group *engine_group(struct rank *rank)
{
	struct engine_state *state = &states[rank->rank];
	ls_group *group;
	*state = (struct engine_state){.sim = rank->sim};
	MUST(ls_group_split(rank->group, 0, rank->rank, &group) == LS_OK);
	engine_use(&group->engine, &launching, state);
	pthread_barrier_wait(&all_are_there);
	return group;
}

static ls_status sum(ls_group *group, struct rank *rank, int stream, int32_t *from, int32_t *to,
		     uint64_t count, ls_request **op)
{
	struct ls_call_options options = on(rank, stream);
	options.request = op;
	return ls_allreduce(group, from, to, count, LS_INT32, LS_SUM, &options);
}

/* ---- what it does ---- */

static _Atomic uint64_t held[RANKS];

/* Several are in flight, and each begins with the result of the one before. */
static void sum_many(struct rank *rank)
{
	static int32_t all[RANKS][COUNT];
	ls_group *group = engine_group(rank);
	int32_t *values = all[rank->rank], *block = device_block(rank, BYTES);
	int32_t *other = device_block(rank, BYTES), factor = 1;
	ls_request *op;
	/* Also so short that the processor would carry it in an entry. */
	MUST(sum(group, rank, 0, block, block, 1, NULL) == LS_OK);
	for (int i = 0; i < COUNT; i++)
		values[i] = rank->rank + i;
	to_device(rank, 0, block, values, BYTES);
	atomic_store(&held[rank->rank], 0);
	if (rank->rank == 1) /* no call waits for the device */
		MUST(sim_await(rank->streams[0], &held[1], 1) == SIM_OK);
	for (int i = 0; i < 5; i++, factor *= RANKS)
		MUST(sum(group, rank, 0, block, block, COUNT, NULL) == LS_OK);
	MUST(sum(group, rank, 0, block, other, COUNT, &op) == LS_OK);
	MUST(ls_request_follow(op, rank->streams[1]) == LS_OK);
	MUST(ls_device_record(rank->group, other, rank->streams[1]) == LS_OK);
	MUST(ls_test(op) == LS_PENDING || rank->rank != 1);
	if (rank->rank == 1)
		sim_board_store(rank->sim, &held[1], 1);
	/* A synchronise holds the driver that the ranks share. */
	MUST(ls_barrier(rank->group, NULL) == LS_OK);
	to_host(rank, 1, values, other, BYTES);
	for (int i = 0; i < COUNT; i++)
		MUST(values[i] == factor * (RANKS * i + RANKS * (RANKS - 1) / 2));
	MUST(ls_wait(op, 0) == LS_OK);
	ls_request_free(op);
	MUST(states[rank->rank].launched == 7 && atomic_load(&states[rank->rank].submitted) == 0);
	MUST(atomic_load(&states[rank->rank].abandoned) == 0);
	MUST(ls_device_free(rank->group, block) == LS_OK);
	MUST(ls_device_free(rank->group, other) == LS_OK);
	ls_group_close(group);
}

static void it_runs_behind_the_stream(void **state)
{
	(void)state;
	run_job(sum_many, "process=1");
	run_job(sum_many, "process=1,free=at_once,queues=1");
}

/* Ends the operation, whose kernel waits for the other ranks, on all ranks. */
static void end_failed(struct rank *rank, ls_group *group, ls_request *op, ls_status status)
{
	if (op)
		status = ls_wait(op, 0);
	ls_request_free(op);
	struct ls_failure failure = {.size = sizeof failure};
	MUST(ls_group_failure(group, &failure) == LS_OK && failure.status == status);
	MUST(sim_stream_sync(rank->streams[0]) == SIM_OK); /* the stream goes on */
	ls_group_close(group);
	MUST(ls_barrier(rank->group, NULL) == LS_OK);
}

/* The kernels are under way when the entries are compared. */
static void differ(struct rank *rank)
{
	ls_group *group = engine_group(rank);
	int32_t *block = device_block(rank, BYTES);
	ls_request *op;
	uint64_t count = rank->rank == 1 ? COUNT / 2 : COUNT;
	ls_status status = LS_OK;
	/* Rank 2 is late, so no kernel can end by itself. */
	if (rank->rank < 2) {
		status = sum(group, rank, 0, block, block, count, &op);
		MUST(status == LS_OK && ls_wait(op, 0) == LS_MISMATCH);
		ls_request_free(op);
		MUST(atomic_load(&states[rank->rank].abandoned) == 1);
	} else {
		struct ls_failure failure = {.size = sizeof failure};
		do
			MUST(ls_group_failure(group, &failure) == LS_OK);
		while (failure.status == LS_OK);
	}
	end_failed(rank, group, NULL, LS_MISMATCH);
}

static void a_difference_is_found(void **state)
{
	(void)state;
	run_job(differ, "process=1");
}

/* Rank 2 calls nothing, and closes the group. The others have put several on their streams. */
static void leave(struct rank *rank)
{
	ls_group *group = engine_group(rank);
	int32_t *block = device_block(rank, BYTES);
	ls_request *ops[3];
	if (rank->rank == 2) {
		ls_group_close(group);
		MUST(ls_barrier(rank->group, NULL) == LS_OK);
		return;
	}
	for (int i = 0; i < 3; i++)
		if (sum(group, rank, 0, block, block, COUNT, &ops[i]) != LS_OK)
			ops[i] = NULL;
	for (int i = 0; i < 3; i++) {
		MUST(!ops[i] || ls_wait(ops[i], 0) == LS_PEER_LEFT);
		ls_request_free(ops[i]);
	}
	end_failed(rank, group, NULL, LS_PEER_LEFT);
}

static void a_rank_that_leaves_is_reported(void **state)
{
	(void)state;
	run_job(leave, "process=1");
}

/* The launch of rank 1 fails, while those of the others are under way. */
static void fail_to_launch(struct rank *rank)
{
	ls_group *group = engine_group(rank);
	int32_t *block = device_block(rank, BYTES);
	ls_request *op;
	states[rank->rank].fails = rank->rank == 1;
	ls_status status = sum(group, rank, 0, block, block, COUNT, &op);
	MUST(status == LS_ABORTED || (status == LS_OK && rank->rank != 1));
	end_failed(rank, group, op, status);
}

static void a_failed_launch_ends_all(void **state)
{
	(void)state;
	for (int i = 0; i < ROUNDS; i++)
		run_job(fail_to_launch, "process=1");
}

/* One thread launches for several ranks, whose calls might wait for each other. */
static void launch_for_several(struct rank *rank)
{
	static ls_group *groups[RANKS];
	groups[rank->rank] = engine_group(rank);
	pthread_barrier_wait(&all_are_there);
	if (rank->rank == 0) {
		MUST(ls_launch_begin(groups, RANKS) == LS_BAD_ARGUMENT);
		MUST(ls_launch_begin(groups, 1) == LS_OK && ls_launch_end() == LS_OK);
	}
	pthread_barrier_wait(&all_are_there);
	ls_group_close(groups[rank->rank]);
}

static void launches_for_several_ranks_are_refused(void **state)
{
	(void)state;
	run_job(launch_for_several, "process=1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(it_runs_behind_the_stream),
					   cmocka_unit_test(a_difference_is_found),
					   cmocka_unit_test(a_rank_that_leaves_is_reported),
					   cmocka_unit_test(a_failed_launch_ends_all),
					   cmocka_unit_test(launches_for_several_ranks_are_refused)};
	if (pthread_barrier_init(&all_are_there, NULL, RANKS) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
