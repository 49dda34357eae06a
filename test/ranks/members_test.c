/* SPDX-License-Identifier: BSD-3-Clause
 * Groups that only their members make. */
#include "caught.h"
#include "tests.h"

enum { TAG = 77, AGAIN = 300 };

static ls_status make(ls_group *parent, const int *ranks, int count, ls_group **out)
{
	struct ls_op_options options = {.size = sizeof options, .tag = TAG, .label = "here"};
	return ls_group_from_members(parent, ranks, count, &options, out);
}

/* All members give 1 << their world rank. */
static void is_of(ls_group *group, int world_rank, int64_t members)
{
	int64_t bit = INT64_C(1) << world_rank, all = 0;
	OK(ls_allreduce(group, &bit, &all, 1, LS_INT64, LS_SUM, NULL));
	CHECK_THAT(all == members, "%llx instead of %llx", (long long)all, (long long)members);
}

/* Odd and even ranks at the same time, the highest one first; then those groups' own first and last ones. */
void members_make_their_group(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group, *ends;
	int odd = self->rank % 2, count = (self->size + !odd) / 2, ranks[RUNNER_RANKS_MAX];
	int64_t members = 0;
	for (int i = 0; i < count; i++) {
		ranks[i] = odd + 2 * (count - 1 - i);
		members |= INT64_C(1) << ranks[i];
	}
	OK(make(world, ranks, count, &group));
	CHECK(ls_group_size(group) == count && ls_group_rank(group) == count - 1 - self->rank / 2);
	CHECK(ls_group_get(world, ranks, count) == group);
	is_of(group, self->rank, members);
	int first_last[] = {0, count - 1}, both = count > 1 ? 2 : 1;
	if (ls_group_rank(group) == 0 || ls_group_rank(group) == count - 1) {
		OK(make(group, first_last, both, &ends));
		is_of(ends, self->rank, INT64_C(1) << ranks[0] | INT64_C(1) << ranks[count - 1]);
		ls_group_close(ends);
	}
	is_of(world, self->rank, (INT64_C(1) << self->size) - 1);
	ls_group_close(group);
	ls_group_close(world);
}

/* Again and again, closed by each when it suits it, while the others do something else. */
void members_make_many_groups(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group;
	int ranks[] = {self->size - 1, 0};
	for (int i = 0; i < AGAIN && (self->rank == 0 || self->rank == ranks[0]); i++) {
		OK(make(world, ranks, 2, &group));
		is_of(group, self->rank, 1 | INT64_C(1) << ranks[0]);
		ls_group_close(group);
	}
	is_of(world, self->rank, (INT64_C(1) << self->size) - 1);
	ls_group_close(world);
}

/* Rank 0 has a longer list than rank 1; both are told, though rank 2 never comes. */
void members_lists_that_differ(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group = world;
	struct caught caught;
	int list[] = {0, 1, 2};
	if (self->rank < 2) {
		caught_begin(&caught);
		ls_status status = make(world, list, 3 - self->rank, &group);
		const char *text = caught_end(&caught);
		CHECK_THAT(status == LS_DIFFERENT && !group, "%s", ls_status_name(status));
		SAYS(text, "rank 0 gave 0, 1, 2 (called from members_test.c:");
		SAYS(text, "rank 1 gave 0, 1 (called from members_test.c:");
		SAYS(text, "ls_group_from_members");
	} else {
		GIVES(LS_BAD_ARGUMENT, make(world, list, 2, &group));
		CHECK(!group);
	}
	is_of(world, self->rank, 7);
	ls_group_close(world);
}

/* One that goes elsewhere is found like one that does not answer a message. */
void a_member_that_does_not_come(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group = world;
	int list[] = {0, 1};
	if (self->rank == 0) {
		GIVES(LS_DEADLOCK, make(world, list, 2, &group));
		CHECK(!group);
	} else {
		GIVES(LS_DEADLOCK, ls_barrier(world, NULL));
	}
	runner_meet(self);
	ls_group_close(world);
}
