/* SPDX-License-Identifier: BSD-3-Clause
 * Random programs of a few operations each, over all kinds, dtypes, ops, roots and counts, in
 * memory of all sorts, blocking or not; results are compared with the reference. The test's name,
 * the seed and a number determine a case, so that it can be repeated alone. */
#include <string.h>

#include "generator.h"
#include "operation.h"
#include "tests.h"
#include "values.h"

enum {
	ACTIONS_MAX = 6,
	INLINE_BYTES = 4096,
	STORES_BYTES = 16384,
	CHUNK_BYTES = 65536,
	CMA_CHUNK_BYTES = 262144,
	FRAGMENT_BYTES = 524288
};

/* How a rank waits for one of its operations; the others need not wait in the same way. */
enum waiting { BLOCKS, HANDLE, HANDLE_AND_CALLBACK, CALLBACK, WAITINGS };

struct action {
	struct operation op;
	enum waiting waiting;
	bool dropped; /* its handle is given back at once, as the callback tells */
	ls_request *handle;
	_Atomic int calls, status; /* of the callback */
};

struct program {
	const struct runner_rank *self;
	ls_group *group;
	uint32_t number;
	uint64_t common, local; /* generators: the same on all ranks; of this rank */
	bool ends_together;     /* with a barrier, after which everything is over */
	int count;
	struct action actions[ACTIONS_MAX];
};

static uint32_t below(uint64_t *generator, uint32_t end)
{
	return generator_below(generator, end);
}

/* Often none, few, or where the library begins to do something else. */
static uint64_t random_count(uint64_t *generator, size_t element_bytes, unsigned parts)
{
	static const uint32_t edges[] = {INLINE_BYTES,  2 * INLINE_BYTES, 4 * INLINE_BYTES,
					 STORES_BYTES,  CHUNK_BYTES,      CMA_CHUNK_BYTES,
					 FRAGMENT_BYTES};
	switch (below(generator, 8)) {
	case 0:
		return 0;
	case 1:
		return 1 + below(generator, 3);
	case 2:
		return edges[below(generator, 5)] / element_bytes + below(generator, 3) - 1;
	case 3:
		return edges[below(generator, 7)] / element_bytes / parts + below(generator, 3);
	default:
		return below(generator, 1u << below(generator, 18)) / element_bytes / parts;
	}
}

static void random_lists(struct program *program, struct operation *op, size_t element_bytes)
{
	int size = program->self->size;
	uint64_t *common = &program->common;
	unsigned parts = (unsigned)size * (op->kind == OPERATION_ALLTOALLV ? 2 : 1);
	for (int q = 0; q < size; q++)
		for (int r = 0; r < size; r++)
			op->counts[q][r] = random_count(common, element_bytes, parts);
}

static ls_reduce_op random_op(uint64_t *generator, ls_dtype dtype)
{
	for (;;) {
		ls_reduce_op op = (ls_reduce_op)below(generator, VALUES_OPS);
		if (values_allowed(dtype, op))
			return op;
	}
}

static void random_action(struct program *program, struct action *action, unsigned place)
{
	uint64_t *common = &program->common, *local = &program->local;
	unsigned size = (unsigned)program->self->size;
	struct operation *op = &action->op;
	*action = (struct action){0};
	op->kind = (enum operation_kind)below(common, OPERATION_KINDS);
	struct operation_facts facts = operation_facts(op->kind);
	op->dtype = (ls_dtype)below(common, VALUES_DTYPES);
	op->op = facts.reduces ? random_op(common, op->dtype) : LS_SUM;
	op->root = facts.rooted ? (int)below(common, size) : 0;
	op->seed = program->number * 7 + place;
	op->item_count = facts.many ? 1 + (int)below(common, OPERATION_ITEMS) : 1;
	size_t element_bytes = ls_dtype_bytes(op->dtype);
	for (int i = 0; i < op->item_count; i++)
		op->count[i] = random_count(common, element_bytes, below(common, 2) ? size : 1);
	if (facts.lists)
		random_lists(program, op, element_bytes);
	op->place = (struct operation_place){.plain_send = below(local, 2),
					     .plain_recv = below(local, 2),
					     .in_place = below(local, 2),
					     .shift = below(local, 3) ? below(local, 8) : 0};
	if (op->kind != OPERATION_EXCHANGE)
		action->waiting = (enum waiting)below(
			local, program->ends_together ? WAITINGS : HANDLE_AND_CALLBACK);
	action->dropped = action->waiting == HANDLE_AND_CALLBACK && below(local, 4) == 0;
}

static void make_program(struct program *program, uint32_t number)
{
	const struct runner_rank *self = program->self;
	uint64_t seed = generator_mix(self->seed, values_hash(self->name, strlen(self->name)));
	program->number = number;
	program->common = generator_mix(seed, number);
	program->local = generator_mix(program->common, (uint64_t)self->rank + 1);
	program->ends_together = below(&program->common, 2);
	program->count = below(&program->common, 2) ? 1 : 2 + (int)below(&program->common, 5);
	for (int i = 0; i < program->count; i++)
		random_action(program, &program->actions[i], (unsigned)i);
}

static void note(const struct program *program, int i)
{
	const struct runner_rank *self = program->self;
	char text[OPERATION_TEXT];
	operation_text(&program->actions[i].op, self->size, text, sizeof text);
	runner_note(self, "operation %d of %d: %s; again: --filter %s --seed %llu --case %u", i + 1,
		    program->count, text, self->name, (unsigned long long)self->seed,
		    program->number);
}

static void is_over(void *data, ls_status status)
{
	struct action *action = data;
	atomic_store(&action->status, (int)status);
	atomic_fetch_add(&action->calls, 1);
}

static void begin(struct action *action)
{
	bool handle = action->waiting == HANDLE || action->waiting == HANDLE_AND_CALLBACK;
	bool callback = action->waiting == CALLBACK || action->waiting == HANDLE_AND_CALLBACK;
	struct ls_call_options options = {.size = sizeof options,
					  .tag = (int32_t)(action->op.seed % 5),
					  .request = handle ? &action->handle : NULL,
					  .callback = callback ? is_over : NULL,
					  .callback_data = action};
	OK(operation_begin(&action->op, &options));
	CHECK(handle == (action->handle != NULL));
	if (!action->dropped)
		return;
	ls_request_free(action->handle);
	action->handle = NULL;
}

static void end_handle(struct action *action)
{
	OK(ls_test(action->handle));
	ls_request_free(action->handle);
	action->handle = NULL;
}

/* One of those that have a handle, in one of the ways to wait; false if there is none. */
static bool wait_for_one(struct program *program)
{
	uint64_t *local = &program->local;
	ls_request *handles[ACTIONS_MAX] = {NULL};
	int open[ACTIONS_MAX], count = 0, index = -1;
	for (int i = 0; i < program->count; i++) {
		handles[i] = program->actions[i].handle;
		if (handles[i])
			open[count++] = i;
	}
	if (count == 0)
		return false;
	struct action *action = &program->actions[open[below(local, (uint32_t)count)]];
	switch (below(local, 4)) {
	case 0:
		while (ls_wait(action->handle, 1) == LS_PENDING)
			;
		break;
	case 1:
		OK(ls_wait_any(handles, program->count, 0, &index));
		CHECK(index >= 0 && handles[index]);
		action = &program->actions[index];
		break;
	case 2:
		if (ls_test(action->handle) == LS_OK)
			break;
		/* fallthrough */
	default:
		OK(ls_wait(action->handle, 0));
	}
	end_handle(action);
	return true;
}

static void run_program(struct program *program)
{
	for (int i = 0; i < program->count; i++) {
		note(program, i);
		operation_open(&program->actions[i].op, program->self, program->group);
	}
	for (int i = 0; i < program->count; i++) {
		note(program, i);
		begin(&program->actions[i]);
		if (below(&program->local, 4) == 0)
			wait_for_one(program);
	}
	while (wait_for_one(program))
		;
	if (program->ends_together)
		OK(ls_barrier(program->group, NULL));
	for (int i = 0; i < program->count; i++) {
		struct action *action = &program->actions[i];
		bool callback = action->waiting >= HANDLE_AND_CALLBACK;
		note(program, i);
		CHECK(atomic_load(&action->calls) == callback);
		CHECK(atomic_load(&action->status) == LS_OK);
		operation_close(&action->op);
	}
}

static void run_programs(const struct runner_rank *self, ls_group *group)
{
	struct program program = {.self = self, .group = group};
	for (uint32_t number = self->first_case; number < self->last_case; number++) {
		make_program(&program, number);
		run_program(&program);
	}
	OK(ls_barrier(group, NULL));
}

/* All but the last rank, in the opposite order. */
void random_program_of_a_group(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group;
	bool member = self->rank < self->size - 1;
	ls_status status = ls_group_split(world, member ? 3 : -1, -self->rank, &group);
	CHECK(status == (member ? LS_OK : LS_NOT_MEMBER));
	if (member) {
		struct runner_rank as_member = *self;
		as_member.rank = ls_group_rank(group);
		as_member.size = ls_group_size(group);
		run_programs(&as_member, group);
	}
	OK(ls_barrier(world, NULL));
	ls_group_close(world);
}

void random_program(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	run_programs(self, group);
	ls_group_close(group);
}
