/* SPDX-License-Identifier: BSD-3-Clause
 * Long all-reduces of ranks on several hosts, in rounds. Some ranks have plain memory, others have
 * mapped memory. One thread plays all ranks, in orders that a seed draws. */
#include "engine/hosts_play_fixture.h"
#include "hosts/hosts_private.h"

/* LEAST: so many elements of any type take more bytes than plan_across leaves to PLAN_LEADERS. The
 * payload of a round is sent at once, or later from where it is, or fetched by the receiver: */
enum { LEAST = 20000, CALLS = 5, AT_ONCE = 4096, EAGER = 16384, FETCHED = 256 * 1024 };

struct mapped {
	void *blocks[TEST_RANKS];
};

static uint64_t live_bytes(const struct player *player)
{
	struct memory_stats stats;
	memory_stats(&player->unit->link->memory, &stats);
	return stats.live;
}

static void open_play(struct play *play, const struct placement *at, uint64_t seed,
		      uint64_t round_bytes)
{
	play_open(play, at, seed);
	for (int r = 0; r < at->size; r++) {
		struct engine *engine = play->players[r].unit->engine;
		engine->fragment_bytes = round_bytes / ENGINE_FRAGMENTS_BETWEEN_HOSTS;
		engine->completes_together = seed % 2;
	}
}

/* Some of the rank's buffers lie in memory that its peers have mapped; in place, all of them. */
static void move_to_arena(struct play *play, struct player *player, void **block)
{
	struct call_buffers *buffers = &player->buffers;
	struct op_call *call = &player->op.call;
	uint64_t bytes = buffers->send_bytes + buffers->recv_bytes + 64;
	uint64_t which = draw(play, 4);
	if (which > 0 && buffers->send == buffers->recv)
		which = 3;
	MUST(memory_alloc(&player->unit->link->memory, bytes, block) == LS_OK);
	memcpy(*block, buffers->memory, bytes);
	if (which & 1)
		buffers->send = (unsigned char *)*block + (buffers->send - buffers->memory);
	if (which & 2)
		buffers->recv = (unsigned char *)*block + (buffers->recv - buffers->memory);
	call->send = buffer_host(call->send.address ? buffers->send : NULL, call->send.bytes);
	call->recv = buffer_host(call->recv.address ? buffers->recv : NULL, call->recv.bytes);
}

/* As begin of the fixture, for memory of both sorts. */
static void begin_round(struct play *play, int rank, const struct call *call, struct mapped *mapped)
{
	struct player *player = &play->players[rank];
	call_open(call, rank, &player->op, &player->buffers);
	move_to_arena(play, player, &mapped->blocks[rank]);
	player->op.seq = ++player->unit->seq;
	player->is_blocked = player->is_done = false;
	uint64_t before = live_bytes(player);
	engine_submit(player->unit->engine, &player->op, &player->unit->workspace);
	/* Two slots, and SCRATCH; but what is scaled is copied whole. */
	uint64_t round_bytes = player->unit->engine->fragment_bytes * ENGINE_FRAGMENTS_BETWEEN_HOSTS;
	if (player->op.rounds > 1 && call->reduce != LS_PREMUL_SUM)
		assert_true(live_bytes(player) - before <= 4 * round_bytes);
}

static void free_mapped(struct play *play, struct mapped *mapped)
{
	for (int r = 0; r < play->at->size; r++)
		MUST(memory_free(&play->players[r].unit->link->memory, mapped->blocks[r],
				 trace_caller_text) == LS_OK);
}

/* As step of the fixture, but one rank is slow, so that the others get as far ahead as they may. */
static void step_with_slow(struct play *play, int slow)
{
	int rank = (int)draw(play, (uint64_t)play->at->size);
	if (draw(play, 2))
		hosts_advance(transport_of(play, rank));
	else if (rank != slow || draw(play, 500) == 0)
		advance(&play->players[rank]);
}

static void run_rounds(struct play *play, const struct call *call)
{
	struct mapped mapped;
	int steps = 0, slow = (int)draw(play, (uint64_t)play->at->size);
	for (int r = 0; r < play->at->size; r++)
		begin_round(play, r, call, &mapped);
	for (; !all_done(play); step_with_slow(play, slow))
		if (steps++ == STEPS_MAX)
			fail_msg("an all-reduce of %llu elements hangs",
				 (unsigned long long)call->count);
	for (int r = 0; r < play->at->size; r++) {
		const struct op *op = &play->players[r].op;
		assert_int_equal(play->players[r].progress, OP_DONE);
		if (op->plan->plan.algorithm == PLAN_RAILS)
			assert_true(op->rounds > 1 && op->round == op->rounds - 1);
		call_check(call, r, &play->players[r].buffers);
	}
	free_mapped(play, &mapped);
	end(play);
	for (int r = 0; r < play->at->size; r++)
		assert_int_equal(live_bytes(&play->players[r]), 0);
}

static void draw_allreduce(struct play *play, struct call *out)
{
	static const ls_reduce_op ops[] = {LS_SUM, LS_AVERAGE, LS_MAX, LS_PREMUL_SUM};
	static const ls_dtype dtypes[] = {LS_FLOAT32, LS_FLOAT64, LS_BFLOAT16, LS_INT32};
	*out = (struct call){.kind = TRACE_ALLREDUCE, .size = play->at->size};
	out->dtype = dtypes[draw(play, 4)];
	out->reduce = ops[draw(play, out->dtype == LS_INT32 ? 3 : 4)];
	out->count = LEAST + draw(play, 3) * 77;
	out->in_place = draw(play, 2);
	out->salt = draw(play, 1 << 20);
}

/* How many of the calls were in rounds. */
static int play_calls(const struct placement *at, uint64_t seed, uint64_t round_bytes, int count)
{
	int in_rounds = 0;
	struct play *play = calloc(1, sizeof *play);
	MUST(play);
	open_play(play, at, seed, round_bytes);
	for (int i = 0; i < count; i++) {
		struct call call;
		draw_allreduce(play, &call);
		if (round_bytes == FETCHED) {
			call.dtype = LS_FLOAT64;
			call.count = 2 * FETCHED / sizeof(double) + 99;
		}
		run_rounds(play, &call);
		in_rounds += play->players[0].op.rounds > 1;
	}
	close_hosts(play->hosts);
	free(play);
	return in_rounds;
}

static void ranks_with_any_memory_agree(void **state)
{
	(void)state;
	int in_rounds = 0;
	for (int p = 0; p < PLACEMENTS; p++) {
		for (uint64_t seed = 1; seed <= 3; seed++)
			in_rounds +=
				play_calls(&placements[p], seed, seed % 2 ? AT_ONCE : EAGER, CALLS);
		in_rounds += play_calls(&placements[p], 4, FETCHED, 1);
	}
	assert_int_equal(in_rounds, 4 * (3 * CALLS + 1)); /* where ranks share a host */
}

/* The group fails in any round: then nobody touches the buffers any more. */
static void a_failure_ends_any_round(void **state)
{
	(void)state;
	unsigned rounds = 0;
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct play *play = calloc(1, sizeof *play);
		struct mapped mapped;
		struct call call;
		MUST(play);
		open_play(play, &placements[seed % 2 ? 1 : 3], seed, seed % 4 ? AT_ONCE : EAGER);
		draw_allreduce(play, &call);
		for (int r = 0; r < play->at->size; r++)
			begin_round(play, r, &call, &mapped);
		for (uint64_t i = 0; i < seed * 97; i++)
			step(play);
		for (int r = 0; r < play->at->size; r++)
			rounds |= 1u << (play->players[r].op.round < 31 ? play->players[r].op.round
									: 31);
		atomic_store(&play->hosts->fixture->cause, 1);
		abandon_all(play, false);
		free_mapped(play, &mapped);
		end(play);
		close_hosts(play->hosts);
		free(play);
	}
	assert_true(__builtin_popcount(rounds) > 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_with_any_memory_agree),
		cmocka_unit_test(a_failure_ends_any_round),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
