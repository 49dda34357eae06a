/* SPDX-License-Identifier: BSD-3-Clause
 * Groups made from groups: their members, their results, and that closing them leaves nothing
 * behind and takes nothing away. */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "caught.h"
#include "operation.h"
#include "process.h"
#include "tests.h"
#include "values.h"

/* All members give 1 << their world rank. */
static int64_t members_of(ls_group *group, int world_rank)
{
	int64_t bit = INT64_C(1) << world_rank, all = 0;
	OK(ls_allreduce(group, &bit, &all, 1, LS_INT64, LS_SUM, NULL));
	return all;
}

static ls_group *split(ls_group *parent, int color, int key)
{
	ls_group *group;
	OK(ls_group_split(parent, color, key, &group));
	CHECK(group);
	return group;
}

static ls_group *from_ranks(ls_group *parent, const int *ranks, int count)
{
	ls_group *group;
	OK(ls_group_from_ranks(parent, ranks, count, &group));
	CHECK(group);
	return group;
}

/* ---- members ---- */

void split_by_color_and_key(struct runner_rank *self)
{
	ls_group *world = runner_open(self);
	int odd = self->rank % 2, count = (self->size + !odd) / 2;
	ls_group *group = split(world, odd + 7, -self->rank); /* the highest rank is the first */
	int64_t expected = 0;
	for (int q = odd; q < self->size; q += 2)
		expected |= INT64_C(1) << q;
	CHECK(ls_group_size(group) == count);
	CHECK(ls_group_rank(group) == count - 1 - self->rank / 2);
	CHECK(members_of(group, self->rank) == expected);
	for (int q = 0; q < self->size; q++)
		CHECK(ls_group_rank_in(world, q, group) == (q % 2 == odd ? count - 1 - q / 2 : -1));
	for (int q = 0; q < count; q++)
		CHECK(ls_group_rank_in(group, q, world) == 2 * (count - 1 - q) + odd);
	CHECK(ls_group_rank_in(group, count, world) == -1);
	CHECK(ls_group_rank_in(group, 0, NULL) == -1 && ls_group_rank_in(NULL, 0, world) == -1);

	/* Equal keys: as in the parent. */
	ls_group *same = split(group, 0, 3);
	CHECK(ls_group_rank(same) == ls_group_rank(group) && ls_group_size(same) == count);
	ls_group_close(same);
	ls_group_close(group);
	ls_group_close(world);
}

void split_without_a_color(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group = world;
	int last = self->size - 1;
	if (self->rank == last) {
		GIVES(LS_NOT_MEMBER, ls_group_split(world, -1, 0, &group));
		CHECK(!group);
	} else {
		group = split(world, 0, 0);
		CHECK(members_of(group, self->rank) == (INT64_C(1) << last) - 1);
	}
	CHECK(members_of(world, self->rank) == (INT64_C(2) << last) - 1);
	ls_group_close(group);
	ls_group_close(world);
}

void from_ranks_in_their_order(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group = world;
	int ranks[RUNNER_RANKS_MAX], count = self->size - 1;
	for (int i = 0; i < count; i++) /* all but rank 0, the last one first */
		ranks[i] = self->size - 1 - i;
	CHECK(!ls_group_get(world, ranks, count));
	if (self->rank == 0) {
		GIVES(LS_NOT_MEMBER, ls_group_from_ranks(world, ranks, count, &group));
		CHECK(!group && !ls_group_get(world, ranks, count));
		CHECK(members_of(world, 0) > 0);
		ls_group_close(world);
		return;
	}
	group = from_ranks(world, ranks, count);
	CHECK(ls_group_rank(group) == self->size - 1 - self->rank);
	CHECK(members_of(group, self->rank) == (INT64_C(1) << self->size) - 2);
	CHECK(ls_group_get(world, ranks, count) == group);
	CHECK(!ls_group_get(world, ranks, count - 1) && !ls_group_get(group, ranks, count));
	if (count > 1) {
		int other[] = {ranks[1], ranks[0]};
		CHECK(!ls_group_get(world, other, 2));
	}
	CHECK(!ls_group_get(NULL, ranks, count) && !ls_group_get(world, NULL, 1));
	CHECK(members_of(world, self->rank) > 0);
	ls_group_close(group);
	CHECK(!ls_group_get(world, ranks, count));
	ls_group_close(world);
}

/* From the world down to one rank, and all of them at work at once. */
void groups_of_groups(struct runner_rank *self)
{
	ls_group *groups[RUNNER_RANKS_MAX] = {runner_open(self)};
	int depth = 1;
	while (depth > 0 && depth < self->size) {
		ls_group *parent = groups[depth - 1];
		bool first = ls_group_rank(parent) == 0;
		ls_status status = ls_group_split(parent, first ? -1 : depth, 0, &groups[depth]);
		CHECK(status == (first ? LS_NOT_MEMBER : LS_OK));
		if (first)
			break;
		depth++;
	}
	for (int round = 0; round < 20; round++)
		for (int i = depth - 1; i >= 0; i--) {
			int64_t members = members_of(groups[i], self->rank);
			CHECK(members == (INT64_C(1) << self->size) - (INT64_C(1) << i));
		}
	/* A parent may go first. */
	for (int i = 1; i < depth; i++)
		ls_group_close(groups[i]);
	ls_group_close(groups[0]);
}

/* ---- two groups of the same ranks ---- */

/* Operations of both under way at once, begun in another order by every other rank. */
void the_same_members_twice(struct runner_rank *self)
{
	enum { ROUNDS = 50 };
	ls_group *world = runner_open(self);
	int ranks[RUNNER_RANKS_MAX];
	for (int q = 0; q < self->size; q++)
		ranks[q] = q;
	ls_group *two[] = {from_ranks(world, ranks, self->size),
			   from_ranks(world, ranks, self->size)};
	CHECK(two[0] != two[1] && ls_group_get(world, ranks, self->size) == two[1]);
	int64_t sum = (int64_t)self->size * (self->size - 1) / 2;
	for (int64_t round = 0; round < ROUNDS; round++) {
		int64_t give[2], get[2];
		ls_request *ops[2];
		for (int i = 0; i < 2; i++) {
			int g = (i + self->rank) % 2;
			struct ls_call_options options = {.size = sizeof options,
							  .request = &ops[g]};
			give[g] = self->rank * (1000 * g + 1) + round;
			OK(ls_allreduce(two[g], &give[g], &get[g], 1, LS_INT64, LS_SUM, &options));
		}
		for (int g = 0; g < 2; g++) {
			OK(ls_wait(ops[g], 0));
			ls_request_free(ops[g]);
			CHECK(get[g] == sum * (1000 * g + 1) + round * self->size);
		}
	}
	/* Messages with the same tag find their own group. */
	int next = (self->rank + 1) % self->size,
	    before = (self->rank + self->size - 1) % self->size;
	for (int g = 0; g < 2; g++) {
		int64_t word = 10 * self->rank + g;
		OK(ls_send(two[g], &word, 1, LS_INT64, next, NULL));
	}
	for (int g = 1; g >= 0; g--) {
		int64_t word;
		OK(ls_recv(two[g], &word, 1, LS_INT64, before, NULL));
		CHECK(word == 10 * before + g);
	}
	ls_group_close(two[0]);
	CHECK(members_of(two[1], self->rank) == (INT64_C(1) << self->size) - 1);
	ls_group_close(world); /* and the other with it */
}

/* ---- an area is used again ---- */

static void *close_it(void *group)
{
	ls_group_close(group);
	return NULL;
}

/* A thread closes the last group while another one opens the next one, which may get the area of
 * the one that is being closed. */
void a_group_is_opened_while_one_closes(struct runner_rank *self)
{
	enum { ROUNDS = 8 };
	ls_group *world = runner_open(self), *group = split(world, 0, 0);
	for (int round = 0; round < ROUNDS; round++) {
		pthread_t thread;
		CHECK(!pthread_create(&thread, NULL, close_it, group));
		group = split(world, 0, 0);
		CHECK(!pthread_join(thread, NULL));
		CHECK(members_of(group, self->rank) == (INT64_C(1) << self->size) - 1);
	}
	ls_group_close(group);
	ls_group_close(world);
}

/* Rank 0 gives rank 1 something in one group, closes it and goes on in many others with rank 2,
 * while rank 1 has not even looked: it finds all of it where rank 0 left it. */
void a_late_member_finds_all(struct runner_rank *self)
{
	enum { ROUNDS = 20 };
	ls_group *world = runner_open(self), *group, *others;
	int32_t values[500];
	OK(ls_group_split(world, self->rank == 2 ? 1 : 0, 0, &group));
	ls_status status = ls_group_split(world, self->rank == 1 ? -1 : 0, 0, &others);
	CHECK(status == (self->rank == 1 ? LS_NOT_MEMBER : LS_OK));
	if (self->rank == 0) {
		values_fill(values, 500, LS_INT32, LS_SUM, 0, 1);
		OK(ls_broadcast(group, values, values, 500, LS_INT32, 0, NULL));
		OK(ls_send(group, values, 20, LS_INT32, 1, NULL));
		ls_group_close(group);
	}
	for (int i = 0; others && i < ROUNDS; i++) {
		ls_group *short_lived = split(others, 0, 0);
		values_fill(values, 500, LS_INT32, LS_SUM, 0, 2);
		OK(ls_broadcast(short_lived, values, values, 500, LS_INT32, 0, NULL));
		OK(ls_barrier(short_lived, NULL));
		ls_group_close(short_lived);
	}
	runner_meet(self);
	if (self->rank == 1) {
		OK(ls_broadcast(group, NULL, values, 500, LS_INT32, 0, NULL));
		values_check_from(values, 500, LS_INT32, 0, 1);
		OK(ls_recv(group, values, 20, LS_INT32, 0, NULL));
		values_check_from(values, 20, LS_INT32, 0, 1);
		GIVES(LS_PEER_LEFT, ls_barrier(group, NULL));
	}
	ls_group_close(world);
}

/* The first group of an area needs memory, in a second round; a group whose area has memory does
 * not. */
void a_warm_group_takes_one_round(struct runner_rank *self)
{
	ls_group *world = runner_open(self);
	struct ls_failure failure = {.size = sizeof failure};
	for (int i = 0; i < 3; i++) {
		ls_group_close(split(world, 0, 0));
		OK(ls_barrier(world, NULL)); /* all have left it */
	}
	runner_meet(self); /* nobody is in the last barrier */
	OK(ls_group_abort(world, "to see how many there were"));
	OK(ls_group_failure(world, &failure));
	CHECK_THAT(failure.operation == 2 + 1 + 1 + 3, "%llu collectives",
		   (unsigned long long)failure.operation);
	ls_group_close(world);
}

/* ---- memory ---- */

/* How often this process has mapped a file of this name. */
static int count_mappings(const char *name)
{
	char line[512];
	int count = 0;
	FILE *maps = fopen("/proc/self/maps", "re");
	CHECK(maps);
	while (fgets(line, sizeof line, maps))
		count += strstr(line, name) != NULL;
	fclose(maps);
	return count;
}

/* What a group has registered is reached by it; others copy, until they have registered it too. */
void register_with_some(struct runner_rank *self)
{
	enum { COUNT = 100000 };
	ls_group *world = runner_open(self), *group = NULL;
	bool member = self->rank != 0;
	size_t bytes = (COUNT * sizeof(int32_t) + 4095) / 4096 * 4096;
	int fd = memfd_create("shared", MFD_CLOEXEC);
	CHECK(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
	int32_t *values = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(values != MAP_FAILED);
	ls_status status = ls_group_split(world, member ? 0 : -1, 0, &group);
	CHECK(status == (member ? LS_OK : LS_NOT_MEMBER));
	struct ls_memory_stats stats = {.size = sizeof stats};
	for (int round = 0; round < 3; round++) {
		if (member && round < 2)
			OK(ls_register(group, values, bytes, fd, 0, NULL));
		if (round == 2)
			OK(ls_register(world, values, bytes, fd, 0, NULL));
		if (member) {
			values_fill(values, COUNT, LS_INT32, LS_SUM, self->rank - 1, 5);
			OK(ls_allreduce(group, values, values, COUNT, LS_INT32, LS_SUM, NULL));
			values_check_reduced(values, COUNT, LS_INT32, LS_SUM, self->size - 1, 5);
			OK(ls_memory_stats(group, &stats));
			CHECK(stats.registered == 1 && stats.registered_again == (round > 0));
		}
		values_fill(values, COUNT, LS_INT32, LS_SUM, self->rank, 6);
		OK(ls_allreduce(world, values, values, COUNT, LS_INT32, LS_SUM, NULL));
		values_check_reduced(values, COUNT, LS_INT32, LS_SUM, self->size, 6);
	}
	/* Beside its own mapping each rank has one for each rank of its host, and none for a rank
	 * of another host, whose process id means nothing here. */
	CHECK(!runner_is_on_hosts || count_mappings("memfd:shared") <= self->size);
	/* Memory of ls_alloc is the same in all groups. */
	void *block;
	OK(ls_alloc(member ? group : world, 100, &block));
	OK(ls_free(world, block));
	ls_group_close(world);
	CHECK(munmap(values, bytes) == 0);
	close(fd);
}

/* ---- nothing grows ---- */

static void use(ls_group *group)
{
	int64_t word = 1, sum = 0;
	struct ls_call_options beside = {.size = sizeof beside};
	ls_request *op;
	beside.request = &op;
	OK(ls_allreduce(group, &word, &sum, 1, LS_INT64, LS_SUM, NULL));
	CHECK(sum == ls_group_size(group));
	if (ls_group_size(group) > 1 && ls_group_rank(group) == 0)
		OK(ls_send(group, &word, 1, LS_INT64, 1, NULL));
	if (ls_group_rank(group) == 1)
		OK(ls_recv(group, &word, 1, LS_INT64, 0, NULL));
	OK(ls_barrier(group, &beside)); /* with a progress thread */
	OK(ls_wait(op, 0));
	ls_request_free(op);
}

enum { MOST = 512 }; /* groups that can be open at once */

/* Allocated, not resident: which pages were touched depends on which rank is ahead. Sanitizers have
 * an allocator and a leak check of their own: there it is 0. */
static long allocated_kib(void)
{
#ifdef __GLIBC__
	struct mallinfo2 info = mallinfo2();
	return (long)((info.uordblks + info.hblkhd) / 1024);
#else
	return 0;
#endif
}

/* A rank keeps what it has made for a group, for a later one. After this it has made all. */
static void use_all(ls_group *world)
{
	ls_group *groups[MOST];
	for (int i = 0; i < MOST; i++)
		use(groups[i] = split(world, 0, 0));
	for (int i = 0; i < MOST; i++)
		ls_group_close(groups[i]);
	OK(ls_barrier(world, NULL));
}

/* Groups of several sizes and orders, some open for a while, all used. */
void hundreds_of_groups_leave_nothing(struct runner_rank *self)
{
	enum { ROUNDS = 400 / RUNNER_SLOWNESS, KEPT = 7 };
	ls_group *world = runner_open(self), *kept[KEPT] = {NULL};
	int files = 0;
	long memory = 0;
	use_all(world);
	for (int round = 0; round < ROUNDS; round++) {
		int color = (self->rank + round) % (1 + round % 3) - (round % 5 == 0);
		ls_group **group = &kept[round % KEPT];
		ls_group_close(*group);
		ls_status status =
			ls_group_split(world, color, round % 2 ? self->rank : -self->rank, group);
		CHECK(status == (color < 0 ? LS_NOT_MEMBER : LS_OK));
		if (*group)
			use(*group);
		if (round == KEPT) {
			files = process_entries("/proc/self/fd");
			memory = allocated_kib();
		}
	}
	CHECK(process_entries("/proc/self/fd") == files);
	long grown = allocated_kib() - memory;
	CHECK_THAT(grown < 64, "%ld KiB more than before", grown);
	process_await_threads(self, 3);
	for (int i = 0; i < KEPT; i++)
		ls_group_close(kept[i]);
	OK(ls_barrier(world, NULL));
	ls_group_close(world);
}

/* As many as there can be, and room again once they are closed. */
void as_many_groups_as_there_can_be(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *groups[MOST], *more = world;
	for (int again = 0; again < 2; again++) {
		for (int i = 0; i < MOST; i++)
			groups[i] = split(world, 0, 0);
		struct caught caught;
		if (self->rank != 0) { /* only one has no room; the others learn of it */
			ls_group_close(groups[0]);
			groups[0] = NULL;
		}
		caught_begin(&caught);
		GIVES(LS_OUT_OF_MEMORY, ls_group_split(world, 0, 0, &more));
		SAYS(caught_end(&caught),
		     self->rank == 0 ? "ls_group_split: no group is made: this rank is in 512 groups"
				     : "ls_group_split: no rank gets a group, because rank 0 could "
				       "not take part (LS_OUT_OF_MEMORY)");
		CHECK(!more);
		for (int i = 1; i < MOST; i++)
			CHECK(members_of(groups[i], self->rank) == (INT64_C(1) << self->size) - 1);
		for (int i = MOST - 1; i >= 0; i--)
			ls_group_close(groups[i]);
		OK(ls_barrier(world, NULL));
	}
	ls_group_close(world);
}

/* ---- wrong arguments ---- */

void wrong_groups(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group = world;
	int ranks[] = {0, self->size}, twice[] = {0, 0}, good[] = {0};
	GIVES(LS_BAD_ARGUMENT, ls_group_split(NULL, 0, 0, &group));
	GIVES(LS_BAD_ARGUMENT, ls_group_split(world, 0, 0, NULL));
	GIVES(LS_BAD_ARGUMENT, ls_group_from_ranks(NULL, good, 1, &group));
	GIVES(LS_BAD_ARGUMENT, ls_group_from_ranks(world, good, 1, NULL));
	/* From here on one rank is wrong, and all are told. */
	bool wrong = self->rank == self->size - 1;
	GIVES(LS_BAD_ARGUMENT, ls_group_split(world, wrong ? -2 : 0, 0, &group));
	CHECK(!group);
	GIVES(LS_BAD_ARGUMENT,
	      ls_group_from_ranks(world, wrong ? ranks : good, wrong ? 2 : 1, &group));
	GIVES(LS_BAD_ARGUMENT,
	      ls_group_from_ranks(world, wrong ? twice : good, wrong ? 2 : 1, &group));
	GIVES(LS_BAD_ARGUMENT, ls_group_from_ranks(world, wrong ? NULL : good, 1, &group));
	GIVES(LS_BAD_ARGUMENT, ls_group_from_ranks(world, good, wrong ? 0 : 1, &group));
	CHECK(!group);
	CHECK(members_of(world, self->rank) == (INT64_C(1) << self->size) - 1);
	ls_group_close(world);
}
