/* SPDX-License-Identifier: BSD-3-Clause
 * For tests: one thread plays all ranks of a group on several hosts, and all links, in an order
 * that a seed draws. A rank goes on only when the words for which it waits have come, so a word
 * that is missing among them ends in a hang. */
#ifndef ENGINE_HOSTS_PLAY_FIXTURE_H
#define ENGINE_HOSTS_PLAY_FIXTURE_H

#include "engine/call_fixture.h"
#include "op/hosts_unit_fixture.h"

enum { STEPS_MAX = 20000000 };

struct placement {
	int size;
	int hosts[TEST_RANKS];
};

static const struct placement placements[] = {
	{2, {0, 1}},
	{4, {0, 0, 1, 1}},
	{3, {0, 1, 2}},
	{6, {0, 0, 0, 1, 1, 2}},
	{6, {0, 1, 0, 1, 0, 1}},
	{5, {1, 0, 0, 0, 2}},
};
enum { PLACEMENTS = sizeof placements / sizeof placements[0] };

/* ---- all ranks in one thread ---- */

struct player {
	struct unit *unit;
	struct op op;
	struct call_buffers buffers;
	bool is_blocked, is_done;
	enum op_progress progress;
};

struct play {
	struct test_hosts *hosts;
	const struct placement *at;
	uint64_t seed;
	struct player players[TEST_RANKS];
};

static inline void play_open(struct play *play, const struct placement *at, uint64_t seed)
{
	memset(play, 0, sizeof *play);
	play->at = at;
	play->seed = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	play->hosts = open_hosts(at->size, at->hosts, seed);
	for (int r = 0; r < at->size; r++)
		play->players[r].unit = &play->hosts->fixture->units[r];
}

static inline uint64_t draw(struct play *play, uint64_t below)
{
	return reference_random(&play->seed) % below;
}

static inline struct transport *transport_of(struct play *play, int rank)
{
	return &play->players[rank].unit->link->transport;
}

static inline void begin(struct play *play, int rank, const struct call *call)
{
	struct player *player = &play->players[rank];
	call_open(call, rank, &player->op, &player->buffers);
	player->op.seq = ++player->unit->seq;
	player->is_blocked = player->is_done = false;
	engine_submit(player->unit->engine, &player->op, &player->unit->workspace);
}

static inline void advance(struct player *player)
{
	struct wait_call wait = {.words = player->op.words,
				 .count = player->op.word_count,
				 .any = player->op.any_suffices};
	if (player->is_done || (player->is_blocked && !wait_satisfied(&wait)))
		return;
	player->progress = engine_advance(player->unit->engine, &player->op);
	player->is_blocked = player->progress == OP_BLOCKED;
	player->is_done = !player->is_blocked;
	MUST(!player->is_blocked || player->op.word_count > 0);
}

/* A step of a rank, or of its link. */
static inline void step(struct play *play)
{
	int rank = (int)draw(play, (uint64_t)play->at->size);
	if (draw(play, 2))
		hosts_advance(transport_of(play, rank));
	else
		advance(&play->players[rank]);
}

static inline bool all_done(const struct play *play)
{
	for (int r = 0; r < play->at->size; r++)
		if (!play->players[r].is_done)
			return false;
	return true;
}

static inline void end(struct play *play)
{
	for (int r = 0; r < play->at->size; r++) {
		free(play->players[r].buffers.memory);
		play->players[r].buffers.memory = NULL;
	}
}

static inline void run_call(struct play *play, const struct call *call)
{
	int steps = 0;
	for (int r = 0; r < play->at->size; r++)
		begin(play, r, call);
	for (; !all_done(play); step(play))
		if (steps++ == STEPS_MAX)
			fail_msg("%s hangs", coll_kinds[call->kind].name);
	for (int r = 0; r < play->at->size; r++) {
		assert_int_equal(play->players[r].progress, OP_DONE);
		assert_int_equal(play->players[r].op.plan->plan.hosts,
				 play->hosts->fixture->units[r].link->team.host_count);
		call_check(call, r, &play->players[r].buffers);
	}
	end(play);
}

/* After a failure, until all ranks have their buffers back: from then on nobody writes to them. */
static inline void abandon_all(struct play *play, bool force)
{
	bool out[TEST_RANKS] = {false};
	int left = play->at->size;
	for (int steps = 0; left > 0; steps++) {
		int rank = (int)draw(play, (uint64_t)play->at->size);
		struct player *player = &play->players[rank];
		MUST(steps < STEPS_MAX);
		hosts_advance(transport_of(play, rank));
		if (out[rank])
			continue;
		enum op_progress progress =
			engine_abandon(player->unit->engine, &player->op, NULL, force);
		MUST(progress != OP_BLOCKED || player->op.word_count > 0);
		out[rank] = progress == OP_DONE;
		left -= out[rank];
		/* From here on the buffers belong to the caller. */
		if (out[rank])
			memset(player->buffers.memory, 0x11,
			       player->buffers.send_bytes + player->buffers.recv_bytes + 64);
	}
	for (int i = 0; i < 3000; i++)
		hosts_advance(transport_of(play, (int)draw(play, (uint64_t)play->at->size)));
	for (int r = 0; r < play->at->size; r++) {
		const struct call_buffers *buffers = &play->players[r].buffers;
		for (uint64_t i = 0; i < buffers->send_bytes + buffers->recv_bytes + 64; i++)
			assert_int_equal(buffers->memory[i], 0x11);
	}
}

#endif
