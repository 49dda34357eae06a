/* SPDX-License-Identifier: BSD-3-Clause
 * Collectives of a program, its groups, and memory that it registers. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "program_private.h"
#include "scheduler.h"
#include "values.h"

static const struct program_event *event_of(const struct lane_run *lane, int event)
{
	return &lane->run->program->events[event];
}

/* ---- collectives ---- */

/* Changes the call in one way; the result is still allowed. */
static void make_odd(struct operation *op, unsigned otherwise, int size)
{
	if (otherwise & PROGRAM_ODD_COUNT)
		op->count[0]++;
	if (otherwise & PROGRAM_ODD_ROOT)
		op->root = (op->root + 1) % size;
	if (otherwise & PROGRAM_ODD_KIND)
		op->kind =
			op->kind == OPERATION_ALLREDUCE ? OPERATION_ALLGATHER : OPERATION_ALLREDUCE;
	if (otherwise & PROGRAM_ODD_KIND)
		op->op = LS_SUM;
	if (otherwise & PROGRAM_ODD_REDUCE)
		do
			op->op = (ls_reduce_op)((op->op + 1u) % VALUES_OPS);
		while (!values_allowed(op->dtype, op->op));
	if (otherwise & PROGRAM_ODD_DTYPE)
		do
			op->dtype = (ls_dtype)((op->dtype + 1u) % VALUES_DTYPES);
		while (!values_allowed(op->dtype, op->op));
}

/* The event whose collective the lane calls here. */
static int called_at(const struct lane_run *lane, int event)
{
	const struct program *program = lane->run->program;
	if (!(event_of(lane, event)->halves[lane->number].otherwise & PROGRAM_SWAPPED))
		return event;
	return event == program->plant_event ? event + 1 : program->plant_event;
}

static struct operation *operation_of(struct lane_run *lane, struct runner_rank *self, int event)
{
	const struct program *program = lane->run->program;
	const struct program_event *as = event_of(lane, called_at(lane, event));
	const struct program_half *half = &event_of(lane, event)->halves[lane->number];
	struct operation *op = calloc(1, sizeof *op + sizeof *self);
	if (!op)
		lane_fail(lane, event, "no memory");
	op->kind = (enum operation_kind)as->operation;
	op->dtype = (ls_dtype)as->dtype;
	op->op = (ls_reduce_op)as->op;
	op->root = as->root;
	op->seed = (unsigned)program->seed * 7 + (unsigned)event;
	struct operation_facts facts = operation_facts(op->kind);
	op->item_count = facts.many ? 1 + as->bytes % OPERATION_ITEMS : 1;
	for (int i = 0; i < op->item_count; i++)
		op->count[i] = as->bytes + (unsigned)i;
	for (int q = 0; q < self->size && facts.lists; q++)
		for (int r = 0; r < self->size; r++)
			op->counts[q][r] = as->bytes * (unsigned)(r + q) % 77;
	op->place = (struct operation_place){.plain_send = half->memory == PROGRAM_PLAIN,
					     .plain_recv = (half->choice & 16) != 0,
					     .in_place = (half->choice & 8) != 0,
					     .shift = half->choice & 7u};
	make_odd(op, half->otherwise, self->size);
	struct runner_rank *kept = (struct runner_rank *)(void *)(op + 1);
	*kept = *self;
	operation_open(op, kept, lane_group(lane, event_of(lane, event)->group));
	return op;
}

void collective_begin(struct lane_run *lane, int event)
{
	const struct program_event *of = event_of(lane, event);
	const struct program_half *as = &of->halves[lane->number];
	const struct program_group *group = &lane->run->program->groups[of->group];
	struct runner_rank self = {.rank = program_rank_in(group, lane->rank), .size = group->size};
	char label[LABEL_BYTES];
	struct half_run *half = half_new(lane, event, false);
	half->operation = operation_of(lane, &self, event);
	for (int turn = as->otherwise & PROGRAM_TWICE ? 2 : 1; turn > 0 && half->status == LS_OK;
	     turn--) {
		struct ls_call_options options = lane_options(lane, event, label);
		options.timeout_ms = as->timeout_ms;
		half_options(half, as, 0, &options);
		half_note(half, operation_begin(half->operation, &options));
		if (half->status == LS_OK && options.callback) {
			half->callbacks++;
			ls_request_free(half->ops[0]);
			half->ops[0] = NULL;
		}
	}
	if (half->ops[0] || half->callbacks > 0)
		half_leave(lane, half);
	else
		half_over(lane, half);
}

/* ---- groups ---- */

static ls_status make(struct lane_run *lane, const struct program_group *group, int event,
		      ls_group **out)
{
	const struct program_group *parent = &lane->run->program->groups[group->parent];
	ls_group *from = lane_group(lane, group->parent);
	int ranks[PROGRAM_RANKS], me = program_rank_in(group, lane->rank);
	char label[LABEL_BYTES];
	struct ls_call_options options = lane_options(lane, event, label);
	for (int i = 0; i < group->size; i++)
		ranks[i] = program_rank_in(parent, group->members[i]);
	options.tag = program_tag(lane->run->program, event);
	switch ((enum program_how)group->how) {
	case PROGRAM_SPLIT:
		return ls_group_split(from, me < 0 ? -1 : 3, me * 5 - 7, out);
	case PROGRAM_FROM_RANKS:
		return ls_group_from_ranks(from, ranks, group->size, out);
	default:
		return ls_group_from_members(from, ranks, group->size, &options, out);
	}
}

void group_make(struct lane_run *lane, int event)
{
	int number = event_of(lane, event)->group;
	const struct program_group *group = &lane->run->program->groups[number];
	int me = program_rank_in(group, lane->rank);
	ls_group *made = NULL;
	ls_status status = make(lane, group, event, &made);
	if (me < 0 && status == LS_NOT_MEMBER)
		status = LS_OK;
	if (made && (ls_group_rank(made) != me || ls_group_size(made) != group->size))
		lane_fail(lane, event, "it is rank %d of %d, not %d of %d", ls_group_rank(made),
			  ls_group_size(made), me, group->size);
	lane->run->groups[lane->rank][number] = made;
	word_add(&lane->run->made[lane->rank][number], 1);
	lane_over(lane, event, status);
}

void group_close_one(struct lane_run *lane, int event)
{
	struct program_run *run = lane->run;
	const struct program *program = run->program;
	int number = program->events[event].group, before = 0;
	for (int e = 0; e < event; e++)
		for (int t = 0; t < PROGRAM_THREADS && program->events[e].group == number; t++)
			before += program_takes_part(program, e, program_lane(lane->rank, t)) &&
				  program->events[e].kind != PROGRAM_MAKE;
	scheduler_await(&run->finished[lane->rank][number], before, UINT64_MAX);
	ls_group_close(run->groups[lane->rank][number]);
	run->groups[lane->rank][number] = NULL;
	lane_over(lane, event, LS_OK);
}

/* ---- memory ---- */

struct memory_piece memory_take(struct lane_run *lane, size_t bytes, enum program_memory sort)
{
	struct memory_piece piece = {.bytes = bytes, .sort = sort, .slot = -1};
	if (sort == PROGRAM_REGISTERED && !lane->registered)
		piece.sort = PROGRAM_ALLOCATED;
	/* While no memory is registered there, the range has plain memory. */
	bool region = lane->region && (sort == PROGRAM_REGISTERED) == lane->registered;
	for (int s = 0; s < REGION_SLOTS && region && bytes <= REGION_BYTES / REGION_SLOTS; s++) {
		if (lane->slots >> s & 1 || piece.slot >= 0)
			continue;
		lane->slots |= 1u << s;
		piece.slot = s;
		piece.at = lane->region + (size_t)s * (REGION_BYTES / REGION_SLOTS);
	}
	if (piece.slot < 0 && piece.sort == PROGRAM_REGISTERED)
		piece.sort = PROGRAM_ALLOCATED;
	if (piece.slot < 0)
		piece.at = values_alloc(lane_group(lane, 0), bytes, piece.sort == PROGRAM_PLAIN);
	return piece;
}

void memory_give(struct lane_run *lane, struct memory_piece *piece)
{
	if (piece->slot >= 0)
		lane->slots &= ~(1u << piece->slot);
	else if (piece->at)
		values_free(lane_group(lane, 0), piece->at, piece->sort == PROGRAM_PLAIN);
	piece->at = NULL;
}

void region_register(struct lane_run *lane, int event)
{
	ls_group *group = lane_group(lane, event_of(lane, event)->group);
	int fd = memfd_create("explored", MFD_CLOEXEC);
	unsigned char *at = MAP_FAILED;
	region_free(lane);
	if (fd >= 0 && ftruncate(fd, REGION_BYTES) == 0)
		at = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		lane_fail(lane, event, "no memory to register");
	ls_status status = ls_register(group, at, REGION_BYTES, fd, 0, NULL);
	close(fd);
	lane->region = at;
	lane->registered = status == LS_OK;
	lane_over(lane, event, status);
}

void region_deregister(struct lane_run *lane, int event)
{
	half_flush(lane, -1, true, -1);
	ls_status status = LS_OK;
	if (lane->registered) {
		status = ls_deregister(lane_group(lane, event_of(lane, event)->group), lane->region);
		lane->registered = false;
		if (mmap(lane->region, REGION_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != lane->region)
			lane_fail(lane, event, "no memory where it was registered");
	}
	lane_over(lane, event, status);
}

void region_free(struct lane_run *lane)
{
	if (lane->registered && ls_deregister(lane_group(lane, 0), lane->region) != LS_OK)
		lane_fail(lane, 0, "what was registered is not");
	if (lane->region)
		munmap(lane->region, REGION_BYTES);
	lane->region = NULL;
	lane->registered = false;
}
