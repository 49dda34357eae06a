/* SPDX-License-Identifier: BSD-3-Clause
 * All-reduce, broadcast and barrier against a reference, and whether all ranks get the same bits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h"
#include "values.h"

/* Nothing; less than a cache line; less than a slot; past it; with blocks that are uneven, and
 * long enough to be copied in several pieces. */
enum { COUNTS = 5, COUNT_MAX = RUNNER_SLOWNESS > 1 ? 30011 : 100001 };
static const uint64_t counts[COUNTS] = {0, 1, 7, 1000, COUNT_MAX};

/* Two buffers of each sort of memory, for the whole test. */
struct buffers {
	unsigned char *send[2], *recv[2]; /* [plain] */
};

static struct buffers buffers_open(ls_group *group)
{
	struct buffers buffers;
	for (int plain = 0; plain < 2; plain++) {
		buffers.send[plain] = values_alloc(group, COUNT_MAX * 8 + 64, plain);
		buffers.recv[plain] = values_alloc(group, COUNT_MAX * 8 + 64, plain);
	}
	return buffers;
}

static void buffers_close(ls_group *group, struct buffers *buffers)
{
	for (int plain = 0; plain < 2; plain++) {
		values_free(group, buffers->send[plain], plain);
		values_free(group, buffers->recv[plain], plain);
	}
}

/* ---- all-reduce ---- */

struct shape {
	uint64_t count;
	ls_dtype dtype;
	ls_reduce_op op;
	bool in_place, plain;
	unsigned seed;
};

static void reduce_once(const struct runner_rank *self, ls_group *group,
			const struct buffers *buffers, const struct shape *shape)
{
	size_t bytes = shape->count * ls_dtype_bytes(shape->dtype);
	unsigned char *send = buffers->send[shape->plain];
	unsigned char *recv = shape->in_place ? send : buffers->recv[shape->plain];
	if (!shape->in_place)
		values_blot(recv, shape->count, shape->dtype, 0xee);
	values_fill(send, shape->count, shape->dtype, shape->op, self->rank, shape->seed);
	recv[bytes] = 0x5a; /* the next byte is nobody's */
	uint64_t before = values_hash(send, bytes);
	OK(ls_allreduce(group, send, recv, shape->count, shape->dtype, shape->op, NULL));
	values_check_reduced(recv, shape->count, shape->dtype, shape->op, self->size, shape->seed);
	CHECK(recv[bytes] == 0x5a);
	CHECK(shape->in_place || values_hash(send, bytes) == before);
}

static void reduce_all_shapes(struct runner_rank *self, ls_dtype dtype)
{
	ls_group *group = runner_open(self);
	struct buffers buffers = buffers_open(group);
	struct shape shape = {.dtype = dtype};
	for (int op = 0; op < VALUES_OPS; op++)
		for (int c = 0; c < COUNTS; c++)
			for (int place = 0; place < 4; place++) {
				shape.op = (ls_reduce_op)op;
				shape.count = counts[c];
				shape.in_place = place & 1;
				shape.plain = place & 2;
				shape.seed++;
				reduce_once(self, group, &buffers, &shape);
			}
	buffers_close(group, &buffers);
	ls_group_close(group);
}

void allreduce_uint8(struct runner_rank *self)
{
	reduce_all_shapes(self, LS_UINT8);
}

void allreduce_int32(struct runner_rank *self)
{
	reduce_all_shapes(self, LS_INT32);
}

void allreduce_int64(struct runner_rank *self)
{
	reduce_all_shapes(self, LS_INT64);
}

void allreduce_float32(struct runner_rank *self)
{
	reduce_all_shapes(self, LS_FLOAT32);
}

void allreduce_float64(struct runner_rank *self)
{
	reduce_all_shapes(self, LS_FLOAT64);
}

/* Each count once with each dtype; for runs with a given algorithm. Places differ between ranks. */
void allreduce_mixed(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct buffers buffers = buffers_open(group);
	for (unsigned i = 0; i < COUNTS * VALUES_DTYPES * 2; i++) {
		struct shape shape = {.count = counts[i % COUNTS],
				      .dtype = (ls_dtype)(i / COUNTS % VALUES_DTYPES),
				      .op = (ls_reduce_op)((i + i / COUNTS) % VALUES_OPS),
				      .in_place = (i + (unsigned)self->rank) % 2,
				      .plain = (i / 3 + (unsigned)self->rank / 2) % 2,
				      .seed = i};
		reduce_once(self, group, &buffers, &shape);
	}
	buffers_close(group, &buffers);
	ls_group_close(group);
}

/* Numbers whose sum depends on the order: random signs and magnitudes, nothing exact. */
static void fill_rough(void *buffer, uint64_t count, ls_dtype dtype, uint64_t *random)
{
	for (uint64_t i = 0; i < count; i++) {
		double value = ldexp((double)values_random(random) - 1073741824.0,
				     (int)(values_random(random) % 40) - 50);
		if (dtype == LS_FLOAT32)
			((float *)buffer)[i] = (float)value;
		else
			((double *)buffer)[i] = value;
	}
}

static void same_everywhere(struct runner_rank *self, ls_group *group, const void *buffer,
			    size_t bytes)
{
	int64_t mine = (int64_t)values_hash(buffer, bytes), low, high;
	OK(ls_allreduce(group, &mine, &low, 1, LS_INT64, LS_MIN, NULL));
	OK(ls_allreduce(group, &mine, &high, 1, LS_INT64, LS_MAX, NULL));
	CHECK_THAT(low == high && low == mine, "rank %d of %d has other bits than another rank",
		   self->rank, self->size);
}

void allreduce_same_bits(struct runner_rank *self)
{
	static const ls_reduce_op ops[] = {LS_SUM, LS_AVERAGE, LS_PRODUCT};
	ls_group *group = runner_open(self);
	struct buffers buffers = buffers_open(group);
	uint64_t random = 1000 + (unsigned)self->rank + self->turn * 64;
	for (int i = 0; i < 2 * 3 * COUNTS * 2; i++) {
		ls_dtype dtype = i % 2 ? LS_FLOAT32 : LS_FLOAT64;
		ls_reduce_op op = ops[i / 2 % 3];
		uint64_t count = counts[i / 6 % COUNTS];
		bool plain = i / 6 / COUNTS;
		unsigned char *send = buffers.send[plain], *recv = buffers.recv[plain];
		fill_rough(send, count, dtype, &random);
		OK(ls_allreduce(group, send, recv, count, dtype, op, NULL));
		same_everywhere(self, group, recv, count * ls_dtype_bytes(dtype));
		/* …and in place, once more: the same bits again. */
		uint64_t first = values_hash(recv, count * ls_dtype_bytes(dtype));
		OK(ls_allreduce(group, send, send, count, dtype, op, NULL));
		CHECK(values_hash(send, count * ls_dtype_bytes(dtype)) == first);
	}
	buffers_close(group, &buffers);
	ls_group_close(group);
}

/* ---- broadcast ---- */

static void broadcast_once(const struct runner_rank *self, ls_group *group,
			   const struct buffers *buffers, const struct shape *shape, int root)
{
	size_t bytes = shape->count * ls_dtype_bytes(shape->dtype);
	unsigned char *send = buffers->send[shape->plain];
	unsigned char *recv = shape->in_place ? send : buffers->recv[shape->plain];
	bool mine = self->rank == root;
	values_blot(recv, shape->count, shape->dtype, 0xee);
	if (mine)
		values_fill(send, shape->count, shape->dtype, LS_SUM, root, shape->seed);
	recv[bytes] = 0x5a;
	/* What others pass as send is not read: nothing, or what they receive into. */
	const void *from = mine || shape->in_place ? send : NULL;
	OK(ls_broadcast(group, from, recv, shape->count, shape->dtype, root, NULL));
	values_check_from(recv, shape->count, shape->dtype, root, shape->seed);
	CHECK(recv[bytes] == 0x5a);
	if (mine)
		values_check_from(send, shape->count, shape->dtype, root, shape->seed);
}

void broadcast_all_roots(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct buffers buffers = buffers_open(group);
	struct shape shape = {0};
	for (int root = 0; root < self->size; root++)
		for (int c = 0; c < COUNTS; c++)
			for (int place = 0; place < 4; place++) {
				shape.seed++;
				shape.count = counts[c];
				shape.dtype = (ls_dtype)(shape.seed % VALUES_DTYPES);
				shape.in_place = place & 1;
				shape.plain = place & 2;
				broadcast_once(self, group, &buffers, &shape, root);
			}
	buffers_close(group, &buffers);
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

/* The root of a short broadcast needs nobody: it is done with some before anybody else comes, and is held
 * back before it overwrites what is still to be read. */
void root_runs_ahead(struct runner_rank *self)
{
	enum { ROUNDS = 200, ALONE = 4, COUNT = 5 };
	ls_group *group = runner_open(self);
	if (self->rank != 0)
		runner_meet(self);
	for (int i = 0; i < ROUNDS; i++) {
		int64_t value[COUNT] = {0};
		for (int j = 0; j < COUNT && self->rank == 0; j++)
			value[j] = i * 10 + j;
		OK(ls_broadcast(group, value, value, COUNT, LS_INT64, 0, NULL));
		for (int j = 0; j < COUNT; j++)
			CHECK(value[j] == i * 10 + j);
		if (self->rank == 0 && i == ALONE - 1)
			runner_meet(self);
	}
	OK(ls_barrier(group, NULL));
	ls_group_close(group);
}
