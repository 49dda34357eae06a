/* SPDX-License-Identifier: BSD-3-Clause
 * As many ranks as a job may have; their traces have memory for little more than is used. The test
 * draws what is wrong with them; the verdict must find it, and say it in a short text, within a
 * second. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "diagnose/snapshot_fixture.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SIZE = 512 };
#else
enum { SIZE = RANKS_JOB_MAX };
#endif
enum { RECORDS = 16, EACH = 3, COLLECTIVE = 7 };

/* The memory that a trace_view points to. */
struct image {
	struct trace_header header;
	struct wait_table wait_table;
	struct trace_group groups[TRACE_GROUP_MAX];
	_Alignas(128) struct trace_slot ring[RECORDS];
	_Atomic uint64_t words[16]; /* its segment; none of them is ever there */
};

struct many {
	struct image *images;
	struct trace_view *views;
	struct diagnose_source *sources;
	struct diagnose_snapshot *snapshot;
	int order[SIZE]; /* a permutation of all ranks */
	uint64_t random;
};

static uint32_t draw(struct many *many, uint32_t end)
{
	many->random ^= many->random << 13;
	many->random ^= many->random >> 7;
	many->random ^= many->random << 17;
	return (uint32_t)((many->random >> 32) * end >> 32);
}

static void put_record(struct many *many, int r, struct trace_record op)
{
	struct image *image = &many->images[r];
	uint64_t index = atomic_load(&image->header.newest) + 1;
	op.index = index;
	op.group = TRACE_GROUP_WORLD;
	op.state = op.state ? op.state : TRACE_RUNNING;
	op.tid = 1;
	image->ring[index % RECORDS].record = op;
	atomic_store(&image->ring[index % RECORDS].epoch, 2);
	atomic_store(&image->header.newest, index);
}

/* Makes rank `r` wait for `peer` in its newest operation. */
static void put_wait(struct many *many, int r, int peer)
{
	struct wait_slot *slot = &many->images[r].wait_table.slots[0];
	slot->body = (struct wait_slot_body){
		.state = WAIT_WORDS,
		.tid = 1,
		.group = TRACE_GROUP_WORLD,
		.record = atomic_load(&many->images[r].header.newest),
		.since_ns = 1 + (uint64_t)r,
		.deadline_ns = UINT64_MAX,
		.edge_count = 1,
		.edges = {{.value = 5, .owner = r, .peer = peer, .segment = WAIT_SEGMENT_MAPPED}}};
	atomic_store(&slot->epoch, 2);
	atomic_store(&slot->taken, 1);
}

static void put_outside(struct many *many, int r)
{
	put_wait(many, r, -1);
	many->images[r].wait_table.slots[0].body.state = WAIT_OUTSIDE;
}

static void fill_rank(struct many *many, int r)
{
	struct image *image = &many->images[r];
	struct trace_group *group = &image->groups[0];
	many->views[r] = (struct trace_view){.header = &image->header,
					     .wait_table = &image->wait_table,
					     .groups = image->groups,
					     .ring = image->ring,
					     .ring_records = RECORDS,
					     .bytes = sizeof *image};
	many->sources[r] = (struct diagnose_source){.rank = r,
						    .pid = getpid(),
						    .trace = &many->views[r],
						    .segment = image->words,
						    .segment_bytes = sizeof image->words,
						    .process = DIAGNOSE_PROCESS_SLEEPING,
						    .signal = -1,
						    .exit_code = -1};
	image->header = (struct trace_header){.rank = r, .world_size = SIZE, .pid = getpid()};
	atomic_store(&group->id, TRACE_GROUP_WORLD);
	atomic_store(&group->state, TRACE_GROUP_OPEN);
	group->size = SIZE;
	group->rank = r;
	atomic_store(&group->entered, COLLECTIVE - 1);
	atomic_store(&group->finished, COLLECTIVE - 1);
	struct trace_record before = test_allreduce(COLLECTIVE - 1);
	before.state = TRACE_DONE;
	put_record(many, r, before);
}

/* All have done one all-reduce and are outside. */
static void begin(struct many *many, uint64_t seed)
{
	many->random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	assert_int_equal(madvise(many->images, SIZE * sizeof *many->images, MADV_DONTNEED), 0);
	for (int r = 0; r < SIZE; r++) {
		many->order[r] = r;
		fill_rank(many, r);
		put_outside(many, r);
	}
	for (int r = SIZE - 1; r > 0; r--) {
		int other = (int)draw(many, (uint32_t)r + 1), rank = many->order[r];
		many->order[r] = many->order[other];
		many->order[other] = rank;
	}
}

/* Makes rank `r` enter the next all-reduce, and wait there for `peer`. */
static void enter(struct many *many, int r, int peer)
{
	put_record(many, r, test_allreduce(COLLECTIVE));
	put_wait(many, r, peer);
	atomic_store(&many->images[r].groups[0].entered, COLLECTIVE);
}

/* Each rank but the first of the drawn order is in the all-reduce and waits for the one before. */
static int put_chain(struct many *many)
{
	for (int i = 1; i < SIZE; i++)
		enter(many, many->order[i], many->order[i - 1]);
	return many->order[0];
}

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Collects, judges and tells; checks the text, and that judging and telling took at most a second
 * each. */
static struct diagnose_verdict look(struct many *many, const char *headline, bool whole)
{
	char text[DIAGNOSE_TEXT_BYTES];
	struct diagnose_verdict verdict;
	double begin_s = seconds();
	diagnose_collect(many->sources, SIZE, NULL, many->snapshot);
	double collected_s = seconds();
	diagnose_judge(many->snapshot, NULL, &verdict);
	double judged_s = seconds();
	diagnose_text(many->snapshot, &verdict, text, sizeof text);
	double told_s = seconds();
	print_message("# %s: collected in %.0f ms, judged in %.0f, told in %.0f\n",
		      diagnose_cause_name(verdict.cause), 1e3 * (collected_s - begin_s),
		      1e3 * (judged_s - collected_s), 1e3 * (told_s - judged_s));
	assert_true(diagnose_snapshot_is_valid(many->snapshot, diagnose_snapshot_bytes(SIZE)));
	assert_true(judged_s - collected_s < 1 && told_s - judged_s < 1);
	if (strncmp(text, headline, strlen(headline)) != 0)
		fail_msg("'%s' is not '%s'", text, headline);
	assert_true(!whole || !strstr(text, "no room"));
	return verdict;
}

static void check(const struct diagnose_verdict *verdict, enum diagnose_cause cause, int culprit)
{
	struct ranks waiting = ranks_below(SIZE), culprits = ranks_of(culprit);
	ranks_remove(&waiting, culprit);
	assert_string_equal(diagnose_cause_name(verdict->cause), diagnose_cause_name(cause));
	assert_int_equal(verdict->culprit, culprit);
	assert_true(ranks_are_equal(&verdict->culprits, &culprits));
	assert_true(ranks_are_equal(&verdict->waiting, &waiting));
}

static void one_is_dead(void **state)
{
	struct many *many = *state;
	char headline[128];
	for (uint64_t seed = 1; seed <= EACH; seed++) {
		begin(many, seed);
		int dead = put_chain(many);
		many->sources[dead].process = DIAGNOSE_PROCESS_DEAD;
		many->sources[dead].signal = 9;
		snprintf(headline, sizeof headline, "rank %d (pid %d) was killed by SIGKILL", dead,
			 getpid());
		struct diagnose_verdict verdict = look(many, headline, true);
		check(&verdict, DIAGNOSE_DIED, dead);
	}
}

static void one_is_elsewhere(void **state)
{
	struct many *many = *state;
	char headline[128];
	for (uint64_t seed = 1; seed <= EACH; seed++) {
		begin(many, 100 + seed);
		int away = put_chain(many);
		snprintf(headline, sizeof headline, "rank %d is elsewhere", away);
		struct diagnose_verdict verdict = look(many, headline, true);
		check(&verdict, DIAGNOSE_ELSEWHERE, away);
	}
}

static void one_calls_another_operation(void **state)
{
	struct many *many = *state;
	char headline[128];
	for (uint64_t seed = 1; seed <= EACH; seed++) {
		begin(many, 200 + seed);
		int other = put_chain(many);
		struct trace_record op = test_allreduce(COLLECTIVE);
		op.count++;
		put_record(many, other, op);
		put_wait(many, other, many->order[SIZE - 1]);
		snprintf(headline, sizeof headline, "rank %d called all-reduce #%d with count 1001",
			 other, COLLECTIVE);
		struct diagnose_verdict verdict = look(many, headline, true);
		check(&verdict, DIAGNOSE_MISMATCH, other);
	}
}

/* Some receive from each other round a cycle; the others are in an all-reduce that needs one of
 * these. */
static void some_wait_for_each_other(void **state)
{
	struct many *many = *state;
	for (uint64_t seed = 1; seed <= EACH; seed++) {
		begin(many, 300 + seed);
		int length = seed == EACH ? SIZE : 2 + (int)draw(many, SIZE - 2);
		struct ranks cycle = {{0}}, waiting = ranks_below(SIZE);
		for (int i = 0; i < length; i++) {
			int peer = many->order[(i + 1) % length];
			put_record(many, many->order[i], test_point(TRACE_RECV, peer, 7));
			put_wait(many, many->order[i], peer);
			ranks_add(&cycle, many->order[i]);
		}
		for (int i = length; i < SIZE; i++)
			enter(many, many->order[i], many->order[i - 1]);
		ranks_drop(&waiting, &cycle);
		struct diagnose_verdict verdict = look(many, "ranks ", false);
		assert_int_equal(verdict.cause, DIAGNOSE_DEADLOCK);
		assert_true(ranks_are_equal(&verdict.culprits, &cycle));
		assert_true(ranks_are_equal(&verdict.waiting, &waiting));
	}
}

/* A chain ends at a rank that will go on, so nobody is stuck: each rank is found to be free only
 * when the one it waits for is. */
static void nobody_is_stuck(void **state)
{
	struct many *many = *state;
	begin(many, 400);
	int first = put_chain(many);
	put_record(many, first, test_allreduce(COLLECTIVE));
	put_wait(many, first, many->order[1]);
	atomic_store(&many->images[first].groups[0].entered, COLLECTIVE);
	atomic_store(&many->images[first].words[0], 5);
	struct diagnose_verdict verdict = look(many, "no rank waits", true);
	assert_int_equal(verdict.cause, DIAGNOSE_HEALTHY);
}

static int open_many(void **state)
{
	struct many *many = calloc(1, sizeof *many);
	assert_non_null(many);
	many->images = mmap(NULL, SIZE * sizeof *many->images, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_true(many->images != MAP_FAILED);
	many->views = calloc(SIZE, sizeof *many->views);
	many->sources = calloc(SIZE, sizeof *many->sources);
	many->snapshot = diagnose_snapshot_new(SIZE);
	assert_true(many->views && many->sources && many->snapshot);
	*state = many;
	return 0;
}

static int close_many(void **state)
{
	struct many *many = *state;
	munmap(many->images, SIZE * sizeof *many->images);
	free(many->views);
	free(many->sources);
	free(many->snapshot);
	free(many);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_is_dead),
		cmocka_unit_test(one_is_elsewhere),
		cmocka_unit_test(one_calls_another_operation),
		cmocka_unit_test(some_wait_for_each_other),
		cmocka_unit_test(nobody_is_stuck),
	};
	return cmocka_run_group_tests(tests, open_many, close_many);
}
