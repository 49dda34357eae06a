/* SPDX-License-Identifier: BSD-3-Clause
 * All ranks get the same bits of results that cannot be exact, and get them again: from other
 * memory, in place, nonblocking, and in another group. */
#include <string.h>

#include "operation.h"
#include "tests.h"
#include "values.h"

enum { COUNTS = 3, COUNT_MAX = 4507, DTYPES = 6, OPS = 4, KINDS = 3, WAYS = 3 };
static const uint64_t counts[COUNTS] = {7, 500, COUNT_MAX};
static const ls_dtype dtypes[DTYPES] = {LS_FLOAT16, LS_BFLOAT16,  LS_FLOAT32,
					LS_FLOAT64, LS_COMPLEX64, LS_COMPLEX128};
static const ls_reduce_op ops[OPS] = {LS_SUM, LS_AVERAGE, LS_PRODUCT, LS_PREMUL_SUM};
static const enum operation_kind kinds[KINDS] = {OPERATION_ALLREDUCE, OPERATION_REDUCE,
						 OPERATION_REDUCE_SCATTER};

/* Memory for one call, of both sorts. */
struct rough {
	ls_group *group;
	const struct runner_rank *self;
	size_t bytes;
	unsigned char *send[2], *recv[2]; /* [plain] */
};

/* Where a number of this type has its exponent, and the least one that is used here. */
struct format {
	unsigned bytes, mantissa;
	uint64_t least;
	unsigned spread;
};

static struct format format_of(ls_dtype dtype)
{
	switch (dtype) {
	case LS_FLOAT16:
		return (struct format){2, 10, 9, 12};
	case LS_BFLOAT16:
		return (struct format){2, 7, 121, 12};
	case LS_FLOAT32:
	case LS_COMPLEX64:
		return (struct format){4, 23, 107, 40};
	default:
		return (struct format){8, 52, 1003, 40};
	}
}

/* Numbers whose sum depends on the order: random signs and magnitudes, nothing exact. */
static void fill_rough(unsigned char *buffer, size_t bytes, ls_dtype dtype, uint64_t random)
{
	struct format format = format_of(dtype);
	uint64_t sign = UINT64_C(1) << (8 * format.bytes - 1);
	uint64_t mantissa = (UINT64_C(1) << format.mantissa) - 1;
	for (size_t at = 0; at < bytes; at += format.bytes) {
		values_random(&random);
		uint64_t bits = random ^ random >> 29, scale = bits >> 40 & 0xfff;
		uint64_t number = (bits & mantissa) | (bits >> (64 - 8 * format.bytes) & sign);
		number |= (format.least + scale % format.spread) << format.mantissa;
		memcpy(buffer + at, &number, format.bytes); /* the lowest bytes come first */
	}
}

/* Runs it on always the same numbers; the hash of what this rank gets, 0 if it gets nothing. */
static uint64_t reduce_rough(struct rough *rough, int kind, ls_dtype dtype, ls_reduce_op op,
			     uint64_t count, int way)
{
	const struct runner_rank *self = rough->self;
	bool parts = kinds[kind] == OPERATION_REDUCE_SCATTER, in_place = way == 2;
	size_t get = count * ls_dtype_bytes(dtype), give = parts ? get * (size_t)self->size : get;
	bool plain = (way + self->rank / 2) % 2, apart = (way + self->rank) % 2;
	unsigned char *send = rough->send[plain], *recv = rough->recv[apart];
	ls_request *handle = NULL;
	struct ls_call_options options = {.size = sizeof options,
					  .factor = 0.3 + self->rank,
					  .request = way == 1 ? &handle : NULL};
	if (in_place)
		recv = parts ? send + (size_t)self->rank * get : send;
	fill_rough(send, give, dtype, 77 + (unsigned)self->rank);
	struct operation_call call = {.kind = kinds[kind],
				      .group = rough->group,
				      .send = send,
				      .recv = recv,
				      .count = count,
				      .dtype = dtype,
				      .op = op,
				      .root = self->size - 1,
				      .options = &options};
	OK(operation_issue(&call));
	if (handle)
		OK(ls_wait(handle, 0));
	ls_request_free(handle);
	bool gets = kinds[kind] != OPERATION_REDUCE || self->rank == self->size - 1;
	return gets ? values_hash(recv, get) : 0;
}

static void same_everywhere(const struct rough *rough, uint64_t mine)
{
	uint64_t all[RUNNER_RANKS_MAX];
	OK(ls_allgather(rough->group, &mine, all, 1, LS_UINT64, NULL));
	for (int q = 0; q < rough->self->size; q++)
		CHECK_THAT(all[q] == mine, "rank %d of %d has other bits than rank %d",
			   rough->self->rank, rough->self->size, q);
}

enum { CASES = KINDS * DTYPES * OPS * COUNTS };

/* All cases in one group. hashes[i]: what came of case i before; 0: nothing did yet. */
static void run_cases(const struct runner_rank *self, uint64_t *hashes, int ways)
{
	struct rough rough = {.group = runner_open(self), .self = self};
	rough.bytes = (size_t)COUNT_MAX * 16 * (size_t)self->size;
	for (int plain = 0; plain < 2; plain++) {
		rough.send[plain] = values_alloc(rough.group, rough.bytes, plain);
		rough.recv[plain] = values_alloc(rough.group, (size_t)COUNT_MAX * 16, plain);
	}
	for (int i = 0; i < CASES; i++) {
		int kind = i % KINDS;
		ls_dtype dtype = dtypes[i / KINDS % DTYPES];
		ls_reduce_op op = ops[i / KINDS / DTYPES % OPS];
		uint64_t count = counts[i / KINDS / DTYPES / OPS];
		if (!values_allowed(dtype, op))
			continue;
		for (int way = 0; way < ways; way++) {
			runner_note(self, "kind %d, dtype %d, op %d, count %llu, way %d", kind,
				    (int)dtype, (int)op, (unsigned long long)count, way);
			uint64_t hash = reduce_rough(&rough, kind, dtype, op, count, way);
			if (kinds[kind] == OPERATION_ALLREDUCE)
				same_everywhere(&rough, hash);
			CHECK_THAT(hashes[i] == 0 || hashes[i] == hash,
				   "other bits than before: kind %d, dtype %d, op %d, count %llu, "
				   "way %d",
				   kind, (int)dtype, (int)op, (unsigned long long)count, way);
			hashes[i] = hash;
		}
	}
	for (int plain = 0; plain < 2; plain++) {
		values_free(rough.group, rough.send[plain], plain);
		values_free(rough.group, rough.recv[plain], plain);
	}
	ls_group_close(rough.group);
}

void reductions_same_bits(struct runner_rank *self)
{
	uint64_t hashes[CASES] = {0};
	run_cases(self, hashes, WAYS);
	runner_meet(self); /* the next group meets at the same place */
	run_cases(self, hashes, 1);
}
