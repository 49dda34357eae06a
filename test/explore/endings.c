/* SPDX-License-Identifier: BSD-3-Clause
 * Ranks that make some collective calls and close their group at once. In most of these programs
 * one rank makes one of the last calls differently, or omits it, or makes one more. Then some rank
 * must be told so, at least on standard error. */
#include <stdio.h>

#include "scheduler.h"
#include "subjects.h"

enum { RANKS_MAX = 4, CALLS_MAX = 5, COUNT_MAX = 4 };

enum kind { BROADCAST, REDUCE, ALLREDUCE, BARRIER, KINDS };
enum error { NONE, OTHER_KIND, OTHER_ROOT, OTHER_COUNT, LEFT_OUT, ONE_MORE, ERRORS };

struct call {
	enum kind kind;
	int root, count;
};

static struct {
	int ranks, calls;
	bool split; /* the program uses another group of all ranks, and not the world group */
	struct call list[CALLS_MAX];
	enum error error;
	int culprit, where; /* the rank that differs, and in which call */
	int failed, ended;
} drawn;

static uint64_t next(uint64_t *random, uint64_t limit)
{
	*random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (*random >> 33) % limit;
}

static void draw(uint64_t seed, struct subject_plan *plan)
{
	plan->ranks = drawn.ranks = 2 + (int)next(&seed, RANKS_MAX - 1);
	drawn.calls = 1 + (int)next(&seed, CALLS_MAX);
	drawn.split = next(&seed, 2);
	for (int i = 0; i < drawn.calls; i++)
		drawn.list[i] = (struct call){.kind = (enum kind)next(&seed, KINDS),
					      .root = (int)next(&seed, (uint64_t)drawn.ranks),
					      .count = 1 + (int)next(&seed, COUNT_MAX - 1)};
	drawn.error = (enum error)next(&seed, ERRORS);
	drawn.culprit = (int)next(&seed, (uint64_t)drawn.ranks);
	drawn.where = drawn.calls - 1 - (int)next(&seed, drawn.calls > 1 ? 2 : 1);
	const struct call *call = &drawn.list[drawn.where];
	if (drawn.error == OTHER_ROOT && call->kind != BROADCAST && call->kind != REDUCE)
		drawn.error = OTHER_KIND;
	if (drawn.error == OTHER_COUNT && call->kind == BARRIER)
		drawn.error = LEFT_OUT;
	plan->is_well = drawn.error == NONE;
}

static ls_status run_call(ls_group *group, const struct call *call)
{
	int32_t from[COUNT_MAX] = {1, 2, 3, 4}, to[COUNT_MAX];
	uint64_t count = (uint64_t)call->count;
	switch (call->kind) {
	case BROADCAST:
		return ls_broadcast(group, from, to, count, LS_INT32, call->root, NULL);
	case REDUCE:
		return ls_reduce(group, from, to, count, LS_INT32, LS_SUM, call->root, NULL);
	case ALLREDUCE:
		return ls_allreduce(group, from, to, count, LS_INT32, LS_SUM, NULL);
	default:
		return ls_barrier(group, NULL);
	}
}

/* What the culprit calls in its place. */
static struct call otherwise(struct call call)
{
	if (drawn.error == OTHER_KIND)
		call.kind = (enum kind)((call.kind + 1) % KINDS);
	else if (drawn.error == OTHER_ROOT)
		call.root = (call.root + 1) % drawn.ranks;
	else if (drawn.error == OTHER_COUNT)
		call.count++;
	return call;
}

static ls_status run_calls(int rank, ls_group *group)
{
	ls_status status = LS_OK;
	for (int i = 0; i < drawn.calls && status == LS_OK; i++) {
		bool other = rank == drawn.culprit && i == drawn.where;
		struct call call = other ? otherwise(drawn.list[i]) : drawn.list[i];
		if (!other || drawn.error != LEFT_OUT)
			status = run_call(group, &call);
		if (other && drawn.error == ONE_MORE && status == LS_OK)
			status = run_call(group, &call);
		scheduler_progress();
	}
	return status;
}

static void run(int rank, ls_group *world)
{
	ls_group *group = world;
	if (drawn.split && ls_group_split(world, 0, rank, &group) != LS_OK)
		scheduler_fail("rank %d cannot split its group", rank);
	drawn.failed += run_calls(rank, group) != LS_OK;
	if (group != world)
		ls_group_close(group);
	ls_group_close(world);
	drawn.ended++;
}

static void judge(void)
{
	bool told = drawn.failed > 0 || scheduler_said()[0];
	if (drawn.ended != drawn.ranks)
		scheduler_fail("only %d ranks have ended", drawn.ended);
	if (told && drawn.error == NONE)
		scheduler_fail("a group whose members have called the same has failed");
	if (!told && drawn.error != NONE)
		scheduler_fail("the calls of the members differ, and no rank was told");
}

static void show(FILE *file)
{
	static const char *const kinds[] = {"broadcast", "reduce", "allreduce", "barrier"};
	static const char *const errors[] = {"nothing",       "another kind", "another root",
					     "another count", "left out",     "one more"};
	fprintf(file, "%d ranks%s\n", drawn.ranks, drawn.split ? ", in a further group" : "");
	for (int i = 0; i < drawn.calls; i++)
		fprintf(file, "%s, root %d, %d elements\n", kinds[drawn.list[i].kind],
			drawn.list[i].root, drawn.list[i].count);
	fprintf(file, "rank %d, call %d: %s\n", drawn.culprit, drawn.where, errors[drawn.error]);
}

const struct subject subject_endings = {
	.name = "endings", .weight = 1, .draw = draw, .run = run, .judge = judge, .show = show};
