/* SPDX-License-Identifier: BSD-3-Clause
 * Every collective against the reference: counts around what the library treats differently, every
 * root, in place and not, memory of all sorts on all ranks or mixed, lists with zeros, every dtype,
 * every op. */
#include "operation.h"
#include "tests.h"
#include "values.h"

enum {
	COUNTS = 9,
	LONG = 8,            /* the last of them */
	REPEATED = 100000,   /* with other values */
	INLINE_BYTES = 4096, /* a payload up to this is published with the entry */
	CHUNK_BYTES = 65536, /* longer ones are moved in pieces */
	MEMORIES = 4,
	LONG_BYTES = 36 << 20,
};

static uint64_t count_of(int c, size_t element_bytes, int size)
{
	static const uint64_t few[] = {0, 1, 3, 7, 1009};
	switch (c % COUNTS) {
	case 5:
		return INLINE_BYTES / element_bytes / (uint64_t)size;
	case 6:
		return INLINE_BYTES / element_bytes;
	case 7:
		return INLINE_BYTES / element_bytes + 1;
	case LONG:
		/* Of two ranks long enough for several pieces of what is read from another process;
		 * of many shorter, but still long enough to be read there. */
		return (size == 2  ? 4 * CHUNK_BYTES
			: size > 4 ? CHUNK_BYTES / 4
				   : CHUNK_BYTES) /
			       element_bytes +
		       13;
	default:
		return few[c % COUNTS];
	}
}

static ls_reduce_op allowed_op(ls_dtype dtype, unsigned wish)
{
	while (!values_allowed(dtype, (ls_reduce_op)(wish % VALUES_OPS)))
		wish++;
	return (ls_reduce_op)(wish % VALUES_OPS);
}

/* All mapped, all plain, rank 0 mapped and the others plain, or each rank in its own way. */
static struct operation_place place_of(const struct runner_rank *self, unsigned memory, unsigned n,
				       bool in_place)
{
	unsigned mine = (unsigned)self->rank + n;
	struct operation_place place = {.in_place = in_place, .shift = n % 3 ? mine : 0};
	switch (memory % MEMORIES) {
	case 0:
		break;
	case 1:
		place.plain_send = place.plain_recv = true;
		break;
	case 2:
		place.plain_send = place.plain_recv = self->rank > 0;
		break;
	default:
		place.plain_send = mine % 2;
		place.plain_recv = mine / 2 % 2;
		place.in_place = mine % 3 == 0;
	}
	return place;
}

/* Some are nobody's but one's, some nothing for one, some grow, some are all alike. */
static void make_lists(struct operation *op, uint64_t count, unsigned n, int size)
{
	for (int q = 0; q < size; q++)
		for (int r = 0; r < size; r++) {
			unsigned k = (unsigned)(q + r) % (unsigned)size;
			uint64_t lists[] = {k == n % (unsigned)size ? count : 0,
					    k == n % (unsigned)size ? 0 : count + (unsigned)r,
					    count * k / (unsigned)size, count};
			op->counts[q][r] = lists[n % 4];
		}
}

static void sweep_kind(const struct runner_rank *self, ls_group *group, enum operation_kind kind)
{
	struct operation_facts facts = operation_facts(kind);
	int rounds = facts.rooted && self->size > MEMORIES ? self->size : MEMORIES;
	unsigned n = 0;
	for (int round = 0; round < rounds; round++)
		for (int c = 0; c < COUNTS; c++)
			for (int in_place = 0; in_place < 2; in_place++, n++) {
				ls_dtype dtype = (ls_dtype)(n * 7 % VALUES_DTYPES);
				struct operation op = {
					.kind = kind,
					.dtype = dtype,
					.op = facts.reduces ? allowed_op(dtype, n / 2) : LS_SUM,
					.root = facts.rooted ? round % self->size : 0,
					.seed = n,
					.item_count = facts.many ? OPERATION_ITEMS : 1};
				size_t element_bytes = ls_dtype_bytes(dtype);
				for (int i = 0; i < op.item_count; i++)
					op.count[i] = count_of(c + 2 * i, element_bytes, self->size);
				make_lists(&op, op.count[0], n, self->size);
				op.place = place_of(self, (unsigned)(round + c + in_place), n,
						    in_place);
				operation_run(&op, self, group);
				if (c == LONG)
					continue;
				/* A short call that repeats the last takes another path, if all
				 * ranks come at once. */
				op.seed += REPEATED;
				operation_open(&op, self, group);
				runner_meet(self);
				OK(operation_begin(&op, NULL));
				operation_close(&op);
			}
}

static void sweep(const struct runner_rank *self, const enum operation_kind *kinds, int count)
{
	ls_group *group = runner_open(self);
	for (int i = 0; i < count; i++)
		sweep_kind(self, group, kinds[i]);
	OK(ls_barrier(group, NULL));
	ls_group_close(group);
}

#define SWEEP(self, ...)                                        \
	sweep(self, (const enum operation_kind[]){__VA_ARGS__}, \
	      sizeof((const enum operation_kind[]){__VA_ARGS__}) / sizeof(enum operation_kind))

/* Between hosts a longer payload goes in rounds. */
static void reduce_long(const struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	for (int i = 0; i < 3; i++) {
		struct operation op = {.kind = OPERATION_ALLREDUCE,
				       .dtype = LS_FLOAT32,
				       .op = LS_SUM,
				       .seed = (unsigned)i,
				       .item_count = 1,
				       .count = {LONG_BYTES / sizeof(float) + 77}};
		op.place.in_place = i > 0;
		op.place.plain_send = op.place.plain_recv = i < 2 || self->rank % 2;
		operation_run(&op, self, group);
	}
	OK(ls_barrier(group, NULL));
	ls_group_close(group);
}

void allreduce_shapes(struct runner_rank *self)
{
	SWEEP(self, OPERATION_ALLREDUCE, OPERATION_ALLREDUCE_MANY);
	if (runner_is_on_hosts && self->size == 3)
		reduce_long(self);
}

void reduce_shapes(struct runner_rank *self)
{
	SWEEP(self, OPERATION_REDUCE);
}

void broadcast_shapes(struct runner_rank *self)
{
	SWEEP(self, OPERATION_BROADCAST, OPERATION_BROADCAST_MANY);
}

void allgather_shapes(struct runner_rank *self)
{
	SWEEP(self, OPERATION_ALLGATHER, OPERATION_ALLGATHERV, OPERATION_ALLGATHER_MANY);
}

void gather_shapes(struct runner_rank *self)
{
	SWEEP(self, OPERATION_GATHER, OPERATION_GATHERV);
}

void scatter_shapes(struct runner_rank *self)
{
	SWEEP(self, OPERATION_SCATTER, OPERATION_SCATTERV);
}

void reduce_scatter_shapes(struct runner_rank *self)
{
	SWEEP(self, OPERATION_REDUCE_SCATTER, OPERATION_REDUCE_SCATTERV,
	      OPERATION_REDUCE_SCATTER_MANY);
}

void alltoall_shapes(struct runner_rank *self)
{
	SWEEP(self, OPERATION_ALLTOALL, OPERATION_ALLTOALLV);
}

/* Once with every dtype and op; those that do not go together are refused, and nothing comes of
 * it. */
void every_dtype_and_op(struct runner_rank *self)
{
	static const enum operation_kind kinds[] = {OPERATION_ALLREDUCE, OPERATION_REDUCE,
						    OPERATION_REDUCE_SCATTER};
	enum { KINDS = sizeof kinds / sizeof *kinds };
	ls_group *group = runner_open(self);
	for (unsigned n = 0; n < KINDS * VALUES_DTYPES * VALUES_OPS; n++) {
		ls_dtype dtype = (ls_dtype)(n / KINDS / VALUES_OPS);
		struct operation op = {.kind = kinds[n % KINDS],
				       .dtype = dtype,
				       .op = (ls_reduce_op)(n / KINDS % VALUES_OPS),
				       .root = (int)(n % (unsigned)self->size),
				       .seed = n,
				       .item_count = 1,
				       .place = place_of(self, n / 5, n, n / 2 % 2)};
		for (int c = 3; c < 8; c += 2) {
			op.count[0] = count_of(c, ls_dtype_bytes(dtype), self->size);
			if (values_allowed(dtype, op.op)) {
				operation_run(&op, self, group);
				continue;
			}
			unsigned char send[64], recv[64] = {0};
			struct operation_call call = {.kind = op.kind,
						      .group = group,
						      .send = send,
						      .recv = recv,
						      .count = 1,
						      .dtype = dtype,
						      .op = op.op,
						      .root = op.root};
			GIVES(LS_UNSUPPORTED, operation_issue(&call));
			break;
		}
	}
	ls_group_close(group);
}

/* ---- barrier ---- */

void barrier_waits_for_all(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	_Atomic uint64_t *entered = &self->shared->words[0];
	for (unsigned i = 1; i <= 500; i++) {
		atomic_fetch_add(entered, 1);
		OK(ls_barrier(group, NULL));
		uint64_t seen = atomic_load(entered);
		CHECK_THAT(seen >= (uint64_t)self->size * i, "left barrier %u after %llu entries",
			   i, (unsigned long long)seen);
		CHECK(seen <= (uint64_t)self->size * (i + 1));
	}
	ls_group_close(group);
}

enum { AHEAD_MOST = 700 };

/* The root of a short broadcast needs nobody: it is done with some before anybody else comes, and
 * is held back before it overwrites what is still to be read. */
static void run_ahead(struct runner_rank *self, ls_group *group, int count)
{
	enum { ROUNDS = 200, ALONE = 4 };
	int64_t value[AHEAD_MOST];
	if (self->rank != 0)
		runner_meet(self);
	for (int i = 0; i < ROUNDS; i++) {
		for (int j = 0; j < count; j++)
			value[j] = self->rank == 0 ? i * 10 + j : -1;
		OK(ls_broadcast(group, value, value, (uint64_t)count, LS_INT64, 0, NULL));
		for (int j = 0; j < count; j++)
			CHECK(value[j] == i * 10 + j);
		if (self->rank == 0 && i == ALONE - 1)
			runner_meet(self);
	}
	OK(ls_barrier(group, NULL));
}

void root_runs_ahead(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	run_ahead(self, group, 1);          /* in the entries */
	run_ahead(self, group, 5);          /* in a page each */
	run_ahead(self, group, AHEAD_MOST); /* in two pages each, beside the entries */
	ls_group_close(group);
}
