/* SPDX-License-Identifier: BSD-3-Clause
 * Collectives of ranks on several hosts: all kinds, for ranks in any places, in orders that a seed
 * draws. */
#include "engine/hosts_play_fixture.h"
#include "hosts/hosts_private.h"

/* EAGER, OFFERED: bytes, several pieces of the loop-back. OFFERED_INTS elements are offered even if
 * the ranks of a host share them. */
enum { EAGER = 20000, OFFERED = 70000, OFFERED_INTS = 60000, CALLS = 60 };

/* ---- calls ---- */

static uint64_t draw_count(struct play *play, size_t element_bytes)
{
	const uint64_t counts[] = {0,
				   1,
				   3,
				   192 / element_bytes,
				   192 / element_bytes + 1,
				   600,
				   4096 / element_bytes,
				   4096 / element_bytes + 1,
				   EAGER / element_bytes,
				   OFFERED / element_bytes};
	return counts[draw(play, sizeof counts / sizeof counts[0])];
}

static ls_reduce_op draw_reduce(struct play *play, ls_dtype dtype)
{
	bool floats = dtype == LS_FLOAT16 || dtype == LS_BFLOAT16 || dtype == LS_FLOAT32 ||
		      dtype == LS_FLOAT64;
	bool integers = dtype <= LS_UINT64;
	static const ls_reduce_op whole[] = {LS_SUM,     LS_AVERAGE, LS_MIN, LS_MAX,
					     LS_PRODUCT, LS_BAND,    LS_BOR, LS_BXOR};
	static const ls_reduce_op broken[] = {LS_SUM, LS_AVERAGE,    LS_MIN,
					      LS_MAX, LS_PREMUL_SUM, LS_PRODUCT};
	return floats                  ? broken[draw(play, 6)]
	       : integers              ? whole[draw(play, 8)]
	       : dtype == LS_COMPLEX64 ? LS_SUM
	       : dtype == LS_BOOL      ? LS_BXOR
				       : LS_SUM;
}

static void draw_call(struct play *play, enum trace_kind kind, struct call *out)
{
	int size = play->at->size;
	*out = (struct call){.kind = kind, .size = size, .salt = draw(play, 1 << 20)};
	out->dtype = (ls_dtype)draw(play, REFERENCE_DTYPES);
	out->reduce = draw_reduce(play, out->dtype);
	size_t element_bytes = reference_bytes[out->dtype];
	out->root = (int)draw(play, (uint64_t)size);
	out->in_place = draw(play, 2);
	out->count = kind == TRACE_BARRIER ? 0 : draw_count(play, element_bytes);
	for (int r = 0; r < size; r++) {
		out->parts[r] = call_is_listed(out) ? draw_count(play, element_bytes) : out->count;
		for (int q = 0; q < size; q++)
			out->pairs[r][q] =
				call_is_listed(out) ? draw_count(play, element_bytes) : out->count;
	}
}

static const enum trace_kind kinds[] = {
	TRACE_ALLREDUCE,  TRACE_REDUCE,         TRACE_BROADCAST,       TRACE_ALLGATHER,
	TRACE_ALLGATHERV, TRACE_GATHER,         TRACE_GATHERV,         TRACE_SCATTER,
	TRACE_SCATTERV,   TRACE_REDUCE_SCATTER, TRACE_REDUCE_SCATTERV, TRACE_ALLTOALL,
	TRACE_ALLTOALLV,  TRACE_BARRIER,
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* All messages have been taken, and nothing else is left in the channels. */
static void settle(struct play *play)
{
	for (int i = 0; i < 3000; i++)
		hosts_advance(transport_of(play, (int)draw(play, (uint64_t)play->at->size)));
	for (int r = 0; r < play->at->size; r++) {
		struct transport_team *team = &play->players[r].unit->link->team;
		struct wait_word word;
		assert_true(transport_is_valid(team));
		for (int q = 0; q < team->size; q++)
			assert_true(transport_channel_quiet(team, q, &word));
	}
}

static void all_collectives_in_any_place(void **state)
{
	(void)state;
	for (int p = 0; p < PLACEMENTS; p++) {
		struct play *play = calloc(1, sizeof *play);
		MUST(play);
		play_open(play, &placements[p], (uint64_t)p + 1);
		for (int r = 0; r < play->at->size; r++)
			play->players[r].unit->engine->completes_together = p % 2;
		for (int i = 0; i < CALLS; i++) {
			struct call call;
			draw_call(play, kinds[i % KINDS], &call);
			run_call(play, &call);
			call.salt++; /* what was learned of the last call holds */
			run_call(play, &call);
		}
		settle(play);
		close_hosts(play->hosts);
		free(play);
	}
}

/* Each type that is combined, in one level and in two. */
static void every_type_is_combined(void **state)
{
	(void)state;
	for (int p = 0; p < 2; p++) {
		struct play *play = calloc(1, sizeof *play);
		MUST(play);
		play_open(play, &placements[p], 77);
		for (int dtype = 0; dtype < REFERENCE_DTYPES; dtype++)
			for (int i = 0; i < 2; i++) {
				struct call call = {.kind = TRACE_ALLREDUCE,
						    .dtype = (ls_dtype)dtype,
						    .size = play->at->size,
						    .count = i ? 1500 : 5,
						    .in_place = i,
						    .salt = (uint64_t)dtype};
				call.reduce = draw_reduce(play, call.dtype);
				run_call(play, &call);
			}
		close_hosts(play->hosts);
		free(play);
	}
}

/* The ranks rely on threads that push what the links keep back, and these never come. */
static void stop_pushing(struct play *play, bool stop)
{
	for (int r = 0; r < play->at->size; r++)
		atomic_store(&transport_of(play, r)->hosts->pump.runs, stop);
}

/* What a collective waits for goes at once; what is kept back would cost it up to a millisecond. */
static void none_waits_for_what_is_kept_back(void **state)
{
	(void)state;
	for (int p = 0; p < PLACEMENTS; p++) {
		struct play *play = calloc(1, sizeof *play);
		MUST(play);
		play_open(play, &placements[p], (uint64_t)p + 1);
		stop_pushing(play, true);
		for (int i = 0; i < CALLS; i++) {
			struct call call;
			draw_call(play, kinds[i % KINDS], &call);
			run_call(play, &call);
		}
		stop_pushing(play, false);
		settle(play);
		close_hosts(play->hosts);
		free(play);
	}
}

/* Members that keep step and send nothing to each other, call after call, so nothing else pushes
 * their entries; nor do links without room. */
static void none_waits_for_entries_of_ranks_in_step(void **state)
{
	(void)state;
	static const enum trace_kind few_messages[] = {TRACE_BARRIER, TRACE_ALLREDUCE, TRACE_REDUCE,
						       TRACE_BROADCAST};
	for (int i = 0; i < 4 * PLACEMENTS; i++) {
		struct play *play = calloc(1, sizeof *play);
		MUST(play);
		play_open(play, &placements[i / 4], 1);
		play->hosts->loop->room = LOOP_ROOM_MAX;
		stop_pushing(play, true);
		struct call call = {.kind = few_messages[i % 4],
				    .dtype = LS_INT32,
				    .size = play->at->size,
				    .count = i % 4 ? 5 : 0};
		for (int n = 0; n < 20 * TRANSPORT_ENTRIES; n++)
			run_call(play, &call);
		stop_pushing(play, false);
		settle(play);
		close_hosts(play->hosts);
		free(play);
	}
}

/* As the setting BLOCKING has it. */
static void ranks_that_end_together_push(void **state)
{
	(void)state;
	struct play *play = calloc(1, sizeof *play);
	struct call call = {.kind = TRACE_BROADCAST, .dtype = LS_INT32, .size = 2, .count = 10};
	MUST(play);
	play_open(play, &placements[0], 1);
	stop_pushing(play, true);
	for (int r = 0; r < 2; r++)
		play->players[r].unit->engine->completes_together = true;
	for (int i = 0; i < CALLS; i++) {
		run_call(play, &call);
		settle(play); /* so that there is room for all */
	}
	stop_pushing(play, false);
	close_hosts(play->hosts);
	free(play);
}

/* More collectives than a rank may be ahead: a root sends without waiting. */
static void run_ahead(bool oversubscribed)
{
	struct play *play = calloc(1, sizeof *play);
	MUST(play);
	play_open(play, &placements[1], 5);
	stop_pushing(play, true);
	for (int r = 0; r < 4; r++)
		play->players[r].unit->engine->table.oversubscribed = oversubscribed;
	struct call call = {.kind = TRACE_BROADCAST, .dtype = LS_INT32, .size = 4, .count = 10};
	int left[TEST_RANKS] = {0}, ahead = 0;
	for (int r = 0; r < 4; r++)
		play->players[r].is_done = true;
	for (int steps = 0;; step(play)) {
		MUST(steps++ < STEPS_MAX);
		for (int r = 0; r < 4; r++) {
			struct player *player = &play->players[r];
			if (!player->is_done || left[r] == 200)
				continue;
			if (player->buffers.memory)
				call_check(&call, r, &player->buffers);
			free(player->buffers.memory);
			player->buffers.memory = NULL;
			if (++left[r] < 200)
				begin(play, r, &call);
			ahead = left[0] - left[3] > ahead ? left[0] - left[3] : ahead;
		}
		if (left[0] == 200 && left[1] == 200 && left[2] == 200 && left[3] == 200)
			break;
	}
	assert_true(ahead > 1 && ahead <= TRANSPORT_ENTRIES + 1);
	end(play);
	stop_pushing(play, false);
	close_hosts(play->hosts);
	free(play);
}

static void a_root_runs_ahead(void **state)
{
	(void)state;
	run_ahead(false);
	run_ahead(true);
}

/* ---- what ends a collective ---- */

/* The connection between two ranks breaks after some steps. The first that notices ends the group;
 * here one word stands for the agents of the hosts. */
static void cut_after(const struct placement *at, enum trace_kind kind, int count, uint64_t seed,
		      int *fetching)
{
	struct play *play = calloc(1, sizeof *play);
	MUST(play);
	play_open(play, at, seed);
	struct call call = {.kind = kind, .dtype = LS_INT32, .size = at->size, .salt = seed};
	call.count = seed % 2 ? OFFERED_INTS : 3000;
	int last = at->size - 1, lost = 0;
	for (int r = 0; r < at->size; r++) {
		for (int q = 0; q < at->size; q++)
			call.pairs[r][q] = call.count;
		call.parts[r] = call.count;
	}
	for (int r = 0; r < at->size; r++)
		begin(play, r, &call);
	for (int i = 0; i < count; i++)
		step(play);
	*fetching += play->players[0].op.fetching || play->players[last].op.fetching;
	hosts_cut(transport_of(play, 0), last);
	for (int steps = 0; !hosts_is_lost(transport_of(play, last), 0); steps++) {
		MUST(steps < STEPS_MAX);
		step(play);
	}
	atomic_store(&play->hosts->fixture->cause, 1);
	for (int r = 0; r < at->size; r++)
		lost += hosts_is_lost(transport_of(play, r), 0);
	assert_int_equal(lost, 1);
	for (int r = 0; r < at->size; r++)
		play->players[r].op.status = LS_ABORTED;
	abandon_all(play, false);
	end(play);
	close_hosts(play->hosts);
	free(play);
}

static void a_cut_ends_it_on_both_sides(void **state)
{
	(void)state;
	static const enum trace_kind cut[] = {TRACE_ALLREDUCE, TRACE_ALLTOALL, TRACE_BROADCAST,
					      TRACE_GATHER};
	int fetching = 0;
	for (uint64_t seed = 1; seed <= 40; seed++)
		for (int k = 0; k < 4; k++)
			cut_after(&placements[seed % 3], cut[k], (int)(seed * 7 % 160), seed,
				  &fetching);
	assert_true(fetching > 20); /* payloads are under way, or this tests nothing */
}

/* Nobody is cut, but one rank fails: what it has offered is read by nobody any more. */
static void a_failure_ends_it_without_a_cut(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 40; seed++) {
		const struct placement *at = &placements[seed % PLACEMENTS];
		struct play *play = calloc(1, sizeof *play);
		MUST(play);
		play_open(play, at, seed);
		struct call call = {.kind = TRACE_ALLTOALL,
				    .dtype = LS_INT32,
				    .size = at->size,
				    .count = seed % 2 ? OFFERED_INTS : 3000};
		for (int r = 0; r < at->size; r++)
			for (int q = 0; q < at->size; q++)
				call.pairs[r][q] = call.count;
		for (int r = 0; r < at->size; r++)
			begin(play, r, &call);
		for (uint64_t i = 0; i < seed * 23; i++)
			step(play);
		atomic_store(&play->hosts->fixture->cause, 1);
		abandon_all(play, false);
		end(play);
		close_hosts(play->hosts);
		free(play);
	}
}

/* A rank that does not know of the failure takes nothing, and the payload is too long to go ahead.
 * `force` needs nobody's help. */
static void force_needs_no_peer(void **state)
{
	(void)state;
	struct play *play = calloc(1, sizeof *play);
	MUST(play);
	play_open(play, &placements[0], 3);
	struct call call = {.kind = TRACE_BROADCAST, .dtype = LS_INT8, .size = 2, .count = 2000000};
	struct player *root = &play->players[0];
	begin(play, 0, &call);
	for (int i = 0; i < 100; i++) {
		advance(root);
		hosts_advance(transport_of(play, 0));
		hosts_advance(transport_of(play, 1));
	}
	assert_true(root->is_blocked);
	atomic_store(&play->hosts->fixture->cause, 1);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(engine_abandon(root->unit->engine, &root->op, NULL, false),
				 OP_BLOCKED);
		assert_true(root->op.word_count > 0);
		hosts_advance(transport_of(play, 0));
		hosts_advance(transport_of(play, 1));
	}
	assert_int_equal(engine_abandon(root->unit->engine, &root->op, NULL, true), OP_DONE);
	end(play);
	close_hosts(play->hosts);
	free(play);
}

/* ---- mismatches ---- */

/* The ranks call what `calls` says; returns who finds the mismatch. */
static int finder(const struct placement *at, const struct call *calls, uint64_t seed,
		  struct op *out)
{
	struct play *play = calloc(1, sizeof *play);
	int found = -1;
	MUST(play);
	play_open(play, at, seed);
	for (int r = 0; r < at->size; r++)
		begin(play, r, &calls[r]);
	for (int steps = 0; found < 0; step(play)) {
		MUST(steps++ < STEPS_MAX);
		for (int r = 0; r < at->size && found < 0; r++)
			if (play->players[r].is_done && play->players[r].progress == OP_FAILED)
				found = r;
	}
	*out = play->players[found].op;
	assert_int_equal(out->status, LS_MISMATCH);
	assert_true(at->hosts[out->culprit] != at->hosts[found]);
	atomic_store(&play->hosts->fixture->cause, 1);
	abandon_all(play, false);
	end(play);
	close_hosts(play->hosts);
	free(play);
	return found;
}

static void hosts_that_differ_are_found(void **state)
{
	(void)state;
	static const struct call others[] = {
		{.kind = TRACE_BROADCAST, .dtype = LS_INT32, .count = 2000},
		{.kind = TRACE_ALLREDUCE, .dtype = LS_INT32, .count = 1999},
		{.kind = TRACE_ALLREDUCE, .dtype = LS_FLOAT32, .count = 2000},
		{.kind = TRACE_ALLREDUCE, .dtype = LS_INT32, .reduce = LS_MAX, .count = 2000},
	};
	const struct placement *at = &placements[1];
	struct op op;
	for (uint64_t i = 0; i < sizeof others / sizeof others[0]; i++)
		for (uint64_t seed = 1; seed <= 5; seed++) {
			struct call calls[4];
			for (int r = 0; r < 4; r++) {
				calls[r] = others[i];
				if (at->hosts[r] == 0)
					calls[r] = (struct call){.kind = TRACE_ALLREDUCE,
								 .dtype = LS_INT32,
								 .count = 2000};
				calls[r].size = 4;
				calls[r].root = 3;
			}
			(void)finder(at, calls, seed, &op);
		}
}

/* Each rank of an all-to-all with lists of its own knows what it expects. */
static void a_wrong_count_is_found(void **state)
{
	(void)state;
	struct op op;
	struct call calls[2];
	for (uint64_t given = 0; given <= 2000; given += 1000) {
		for (int r = 0; r < 2; r++)
			calls[r] = (struct call){.kind = TRACE_ALLTOALLV,
						 .dtype = LS_INT64,
						 .size = 2,
						 .pairs = {{4, given}, {5, 6}}};
		calls[1].pairs[0][1] = 700;
		assert_int_equal(finder(&placements[0], calls, given + 1, &op), 1);
		uint64_t sent, expected;
		op_count_difference(&op, &sent, &expected);
		assert_int_equal(sent, given);
		assert_int_equal(expected, 700);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_collectives_in_any_place),
		cmocka_unit_test(every_type_is_combined),
		cmocka_unit_test(none_waits_for_what_is_kept_back),
		cmocka_unit_test(none_waits_for_entries_of_ranks_in_step),
		cmocka_unit_test(ranks_that_end_together_push),
		cmocka_unit_test(a_root_runs_ahead),
		cmocka_unit_test(a_cut_ends_it_on_both_sides),
		cmocka_unit_test(a_failure_ends_it_without_a_cut),
		cmocka_unit_test(force_needs_no_peer),
		cmocka_unit_test(hosts_that_differ_are_found),
		cmocka_unit_test(a_wrong_count_is_found),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
