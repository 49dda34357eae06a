/* SPDX-License-Identifier: BSD-3-Clause
 * Groups that only their members make. */
#include "caught.h"
#include "tests.h"

enum { TAG = 77, AGAIN = 300 };

static ls_status make(ls_group *parent, const int *ranks, int count, ls_group **out)
{
	struct ls_call_options options = {.size = sizeof options, .tag = TAG, .label = "here"};
	return ls_group_from_members(parent, ranks, count, &options, out);
}

/* All members give 1 << their world rank. */
static void is_of(ls_group *group, int world_rank, int64_t members)
{
	int64_t bit = INT64_C(1) << world_rank, all = 0;
	OK(ls_allreduce(group, &bit, &all, 1, LS_INT64, LS_SUM, NULL));
	CHECK_THAT(all == members, "%llx instead of %llx", (long long)all, (long long)members);
}

/* Odd and even ranks at the same time, the highest one first; then those groups' own first and last
 * ones. */
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
		CHECK_THAT(status == LS_INCONSISTENT && !group, "%s", ls_status_name(status));
		SAYS(text, "rank 0 gave 0, 1, 2 (called from here)");
		SAYS(text, "rank 1 gave 0, 1 (called from here)");
		SAYS(text, "here: ranks make different groups");
	} else {
		GIVES(LS_BAD_ARGUMENT, make(world, list, 2, &group));
		CHECK(!group);
	}
	is_of(world, self->rank, 7);
	ls_group_close(world);
}

/* A member that does something else is found like one that does not answer a message. */
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

/* ---- again, after LS_INCONSISTENT ---- */

/* The list of all, as it is meant: rotated, so that any rank can be its first member. */
static void make_list(int *list, int size, int first)
{
	for (int i = 0; i < size; i++)
		list[i] = (first + i) % size;
}

/* Until the lists are alike; returns how often they were not. */
static int make_at_last(ls_group *parent, const int *list, int count, ls_group **out)
{
	ls_status status;
	int refused = -1;
	do {
		status = make(parent, list, count, out);
		refused++;
	} while (status == LS_INCONSISTENT && refused < 1000);
	OK(status);
	return refused;
}

/* What it has made is one group of all, with no message left in it or in its parent. */
static void is_whole(ls_group *world, ls_group *group, const struct runner_rank *self)
{
	is_of(group, self->rank, (INT64_C(1) << self->size) - 1);
	ls_group_close(group);
	OK(ls_barrier(world, NULL));
}

/* Of any two, the first gives the list of all and the second another; both are told, and the others
 * hear of it, if at all, by what would be left. Then all give the same. */
void members_retry_after_a_pause(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group;
	int all[RUNNER_RANKS_MAX];
	for (int one = 0; one < self->size; one++)
		for (int other = 0; other < self->size; other++) {
			int few[] = {other, one};
			if (one == other)
				continue;
			make_list(all, self->size, one);
			for (int twice = 0; twice < 2; twice++) {
				if (self->rank == one)
					GIVES(LS_INCONSISTENT, make(world, all, self->size, &group));
				if (self->rank == other)
					GIVES(LS_INCONSISTENT, make(world, few, 2, &group));
			}
			OK(ls_barrier(world, NULL));
			OK(make(world, all, self->size, &group));
			is_whole(world, group, self);
		}
	ls_group_close(world);
}

/* One rank passes other lists first, of all ranks or of two; a rank that gets the error tries again
 * at once. */
void members_retry_at_once(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group;
	int all[RUNNER_RANKS_MAX], wrong[RUNNER_RANKS_MAX];
	for (int i = 0; i < AGAIN / 3; i++) {
		int odd = i % self->size,
		    next = (odd + 1 + i / self->size % (self->size - 1)) % self->size;
		int few[] = {odd, next};
		make_list(all, self->size, i / 2 % self->size);
		make_list(wrong, self->size, (i / 2 + 1) % self->size);
		if (self->rank == odd && i % 3 != 1)
			GIVES(LS_INCONSISTENT, make(world, wrong, self->size, &group));
		if (self->rank == odd && i % 3 != 0)
			GIVES(LS_INCONSISTENT, make(world, few, 2, &group));
		int refused = make_at_last(world, all, self->size, &group);
		CHECK_THAT(refused <= 2, "%d refused, with %d called for", refused, 2);
		is_whole(world, group, self);
	}
	ls_group_close(world);
}

/* All begin with lists of their own, and come to one at different times. */
void members_retry_until_all_agree(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group;
	int list[RUNNER_RANKS_MAX];
	for (int i = 0; i < AGAIN / 10; i++) {
		ls_status status = LS_INCONSISTENT;
		for (int first = self->rank; status == LS_INCONSISTENT;
		     first = first > 0 ? first - 1 : 0) {
			make_list(list, self->size, first);
			status = make(world, list, self->size, &group);
		}
		OK(status);
		is_whole(world, group, self);
	}
	ls_group_close(world);
}
