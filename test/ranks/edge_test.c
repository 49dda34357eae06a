/* SPDX-License-Identifier: BSD-3-Clause
 * Groups after weeks of use: sequence numbers beyond the bits of the words that hold them. */
#include <stdlib.h>

#include "mailbox/mailbox_private.h"
#include "tests.h"
#include "world/ls_group.h"

/* As if this many collectives had been. */
static void run_on(ls_group *group, uint64_t count)
{
	for (uint64_t seq = count - TRANSPORT_ENTRIES + 1; seq <= count; seq++)
		wait_store(&transport_entry(&group->team, group->rank, seq)->signal,
			   transport_signal(seq, 0));
	atomic_store(&group->lane.recent_number, count);
	atomic_store(&group->lane.state, count << WORLD_LANE_SHIFT);
	wait_store(&transport_area_of(&group->team, group->rank)->finished, count);
	atomic_store(&group->trace_entry->entered, count);
	atomic_store(&group->trace_entry->finished, count);
	group->engine.entered_by_all = count;
}

/* 2^40 collectives are 13 days of 1 us: the lane's state has this many bits. 2^48 are 9 years: the
 * signal of an entry has this many, of which the last one is its sign. */
void more_collectives_than_bits(struct runner_rank *self)
{
	ls_group *world = runner_open(self);
	int size = ls_group_size(world), rank = ls_group_rank(world);
	for (int edge = 39; edge <= 48; edge++) {
		ls_group *group;
		OK(ls_group_split(world, 0, 0, &group));
		run_on(group, (UINT64_C(1) << edge) - 40);
		OK(ls_barrier(world, NULL));
		for (int i = 0; i < 100; i++) {
			int64_t mine = rank + i, sum = 0, later = 0;
			struct ls_call_options options = {.size = sizeof options};
			ls_request *op = NULL;
			options.request = &op;
			OK(ls_allreduce(group, &mine, &later, 1, LS_INT64, LS_SUM,
					i % 3 ? NULL : &options));
			OK(ls_allreduce(group, &mine, &sum, 1, LS_INT64, LS_SUM, NULL));
			if (op) {
				OK(ls_wait(op, 0));
				ls_request_free(op);
			}
			CHECK(sum == size * (size - 1) / 2 + (int64_t)i * size);
			CHECK(later == sum);
		}
		CHECK(atomic_load(&group->lane.recent_number) == (UINT64_C(1) << edge) + 160);
		ls_group_close(group);
	}
	ls_group_close(world);
}

/* As if 2^32 groups had had the areas that the next ones get. */
void more_groups_than_bits(struct runner_rank *self)
{
	ls_group *world = runner_open(self);
	for (int i = 0; i < 10; i++) {
		ls_group *group;
		int64_t one = 1, sum = 0;
		OK(ls_group_split(world, 0, 0, &group));
		OK(ls_allreduce(group, &one, &sum, 1, LS_INT64, LS_SUM, NULL));
		CHECK(sum == ls_group_size(world));
		_Atomic uint64_t *left = &transport_area_of(&group->team, group->rank)->times_closed;
		OK(ls_barrier(world, NULL));
		ls_group_close(group);
		OK(ls_barrier(world, NULL)); /* nobody looks at that word any more */
		if (i == 4)
			wait_store(left, (UINT64_C(1) << 32) + 7);
		OK(ls_barrier(world, NULL));
	}
	ls_group_close(world);
}

/* Ids have 32 bits for all ranks. They begin again, and skip those of groups that still exist. */
void more_ids_than_bits(struct runner_rank *self)
{
	enum { GROUPS = 8, OLD = 3 };
	ls_group *world = runner_open(self), *groups[GROUPS];
	uint32_t size = (uint32_t)ls_group_size(world);
	for (int i = 0; i < GROUPS; i++) {
		if (i == OLD) {
			lock_rank_acquire(&world->world->lock);
			world->world->number = (UINT32_MAX - 2 * size) / size - 2;
			lock_rank_release(&world->world->lock);
		}
		OK(ls_group_split(world, 0, 0, &groups[i]));
		int64_t one = 1, sum = 0;
		OK(ls_allreduce(groups[i], &one, &sum, 1, LS_INT64, LS_SUM, NULL));
		CHECK(sum == size && groups[i]->id != world->id);
		for (int j = 0; j < i; j++)
			CHECK(groups[i]->id != groups[j]->id);
		if (i > OLD)
			CHECK((groups[i]->id > groups[i - 1]->id) != (i == OLD + 2));
	}
	for (int i = 0; i < GROUPS; i++)
		ls_group_close(groups[i]);
	ls_group_close(world);
}

/* As if this many long messages had used each RTS slot of the rings to and from this rank. */
static void use_rts_slots(ls_group *group, uint32_t count)
{
	for (int q = 0; q < group->size; q++) {
		struct mailbox_peer *peer = &group->mailbox->peers[q];
		uint64_t word = transport_mail_word(count, 0);
		for (int i = 0; i < MAIL_RTS; i++) {
			struct mail_rts *rts = &peer->to->rts[i];
			_Atomic uint64_t *words[] = {&rts->source_copied, &rts->staged,
						     &rts->cursor,        &rts->matched,
						     &rts->owner_copied,  &rts->done};
			for (size_t j = 0; j < sizeof words / sizeof words[0]; j++)
				wait_store(words[j], word);
			rts->generation = peer->out.generations[i] = count;
		}
	}
}

/* 2^32 long messages between two ranks are 72 minutes of 1 us, and may use the same RTS slot. */
void more_long_messages_than_bits(struct runner_rank *self)
{
	enum { COUNT = 50000, TURNS = 8 };
	ls_group *world = runner_open(self);
	int size = ls_group_size(world), rank = ls_group_rank(world);
	int next = (rank + 1) % size, last = (rank + size - 1) % size;
	uint64_t *mine = malloc(COUNT * sizeof *mine), *theirs = malloc(COUNT * sizeof *theirs);
	CHECK(mine && theirs);
	for (uint32_t edge = 0; mine && theirs && edge < TURNS; edge++) {
		ls_group *group;
		OK(ls_group_split(world, 0, 0, &group));
		for (int turn = 0; turn < TURNS; turn++) {
			OK(ls_barrier(group, NULL));
			if (turn == 1)
				use_rts_slots(group, UINT32_MAX - edge);
			OK(ls_barrier(group, NULL));
			for (int i = 0; i < COUNT; i++)
				mine[i] = (uint64_t)(rank * TURNS + turn) << 32 | (uint64_t)i;
			ls_request *ops[2];
			OK(ls_irecv(group, theirs, COUNT, LS_INT64, last, NULL, &ops[0]));
			OK(ls_isend(group, mine, COUNT, LS_INT64, next, NULL, &ops[1]));
			for (int i = 0; i < 2; i++) {
				OK(ls_wait(ops[i], 0));
				ls_request_free(ops[i]);
			}
			bool is_of_this_turn = true;
			for (int i = 0; i < COUNT; i++)
				is_of_this_turn =
					is_of_this_turn &&
					theirs[i] == ((uint64_t)(last * TURNS + turn) << 32 |
						      (uint64_t)i);
			CHECK(is_of_this_turn);
		}
		ls_group_close(group);
	}
	free(mine);
	free(theirs);
	ls_group_close(world);
}
