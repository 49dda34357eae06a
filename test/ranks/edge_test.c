/* SPDX-License-Identifier: BSD-3-Clause
 * Groups that have gone on for weeks: numbers beyond what their words hold at a time. */
#include "tests.h"
#include "world/ls_group.h"

/* As if so many collectives had been. */
static void run_on(ls_group *group, uint64_t count)
{
	atomic_store(&group->lane.recent_number, count);
	atomic_store(&group->lane.state, count << WORLD_LANE_SHIFT);
	wait_store(&transport_area_of(&group->team, group->rank)->finished, count);
	atomic_store(&group->trace_entry->entered, count);
	atomic_store(&group->trace_entry->finished, count);
	group->engine.entered_by_all = count;
}

/* 2^40 collectives are 13 days of 1 us. */
void more_collectives_than_bits(struct runner_rank *self)
{
	ls_group *world = runner_open(self);
	int size = ls_group_size(world), rank = ls_group_rank(world);
	for (int edge = 39; edge <= 47; edge++) {
		ls_group *group;
		OK(ls_group_split(world, 0, 0, &group));
		run_on(group, (UINT64_C(1) << edge) - 40);
		OK(ls_barrier(world, NULL));
		for (int i = 0; i < 100; i++) {
			int64_t mine = rank + i, sum = 0, later = 0;
			struct ls_op_options options = {.size = sizeof options};
			ls_op *op = NULL;
			options.op = &op;
			OK(ls_allreduce(group, &mine, &later, 1, LS_INT64, LS_SUM,
					i % 3 ? NULL : &options));
			OK(ls_allreduce(group, &mine, &sum, 1, LS_INT64, LS_SUM, NULL));
			if (op) {
				OK(ls_wait(op, 0));
				ls_op_free(op);
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
