/* SPDX-License-Identifier: BSD-3-Clause
 * Every collective and message in the order of a stream, on memory of a simulated device: the
 * result has the same bits as that of the same call on the host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "job_fixture.h"

enum { MOST = 40000, ITEMS = 3, ROUNDS = 3 }; /* room for MOST elements of one part */

enum kind {
	ALLREDUCE,
	REDUCE,
	BROADCAST,
	ALLGATHER,
	ALLGATHERV,
	GATHER,
	GATHERV,
	SCATTER,
	SCATTERV,
	REDUCE_SCATTER,
	REDUCE_SCATTERV,
	ALLTOALL,
	ALLTOALLV,
	ALLREDUCE_MANY,
	BROADCAST_MANY,
	ALLGATHER_MANY,
	REDUCE_SCATTER_MANY,
	KINDS,
};

struct form {
	enum kind kind;
	ls_dtype dtype;
	ls_reduce_op op;
	uint64_t count; /* of a part */
	int root;
	bool in_place;
	uint64_t counts[RANKS]; /* of each rank's part; or of each of the buffers of a _many */
};
_Static_assert((int)ITEMS == (int)RANKS, "both have their counts there");

/* All buffers of a _many have the same room. */
static ls_status call_many(const struct form *form, ls_group *group, const void *send, void *recv,
			   const struct ls_call_options *options)
{
	struct ls_buffers buffers[ITEMS];
	for (int i = 0; i < ITEMS; i++) {
		size_t at = (size_t)i * (MOST / ITEMS) * 8 * RANKS;
		buffers[i] = (struct ls_buffers){.send = (const char *)send + at,
						 .recv = (char *)recv + at,
						 .count = form->counts[i] / ITEMS};
	}
	switch (form->kind) {
	case ALLREDUCE_MANY:
		return ls_allreduce_many(group, buffers, ITEMS, form->dtype, form->op, options);
	case BROADCAST_MANY:
		return ls_broadcast_many(group, buffers, ITEMS, form->dtype, form->root, options);
	case ALLGATHER_MANY:
		return ls_allgather_many(group, buffers, ITEMS, form->dtype, options);
	default:
		return ls_reduce_scatter_many(group, buffers, ITEMS, form->dtype, form->op, options);
	}
}

static ls_status call(const struct form *form, ls_group *group, const void *send, void *recv,
		      const struct ls_call_options *options)
{
	const uint64_t *counts = form->counts;
	switch (form->kind) {
	case ALLREDUCE:
		return ls_allreduce(group, send, recv, form->count, form->dtype, form->op, options);
	case REDUCE:
		return ls_reduce(group, send, recv, form->count, form->dtype, form->op, form->root,
				 options);
	case BROADCAST:
		return ls_broadcast(group, send, recv, form->count, form->dtype, form->root,
				    options);
	case ALLGATHER:
		return ls_allgather(group, send, recv, form->count, form->dtype, options);
	case ALLGATHERV:
		return ls_allgatherv(group, send, recv, counts, form->dtype, options);
	case GATHER:
		return ls_gather(group, send, recv, form->count, form->dtype, form->root, options);
	case GATHERV:
		return ls_gatherv(group, send, recv, counts, form->dtype, form->root, options);
	case SCATTER:
		return ls_scatter(group, send, recv, form->count, form->dtype, form->root, options);
	case SCATTERV:
		return ls_scatterv(group, send, recv, counts, form->dtype, form->root, options);
	case REDUCE_SCATTER:
		return ls_reduce_scatter(group, send, recv, form->count, form->dtype, form->op,
					 options);
	case REDUCE_SCATTERV:
		return ls_reduce_scatterv(group, send, recv, counts, form->dtype, form->op, options);
	case ALLTOALL:
		return ls_alltoall(group, send, recv, form->count, form->dtype, options);
	case ALLTOALLV:
		return ls_alltoallv(group, send, counts, recv, counts, form->dtype, options);
	default:
		return call_many(form, group, send, recv, options);
	}
}

static uint64_t draw(uint64_t *seed, uint64_t limit)
{
	*seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (*seed >> 33) % limit;
}

static bool is_float(ls_dtype dtype)
{
	return (dtype >= LS_FLOAT16 && dtype <= LS_FLOAT64) || dtype >= LS_COMPLEX64;
}

static bool is_allowed(ls_dtype dtype, ls_reduce_op op)
{
	switch (op) {
	case LS_SUM:
		return true;
	case LS_AVERAGE:
		return dtype != LS_BOOL;
	case LS_BAND:
	case LS_BOR:
	case LS_BXOR:
		return !is_float(dtype);
	case LS_PREMUL_SUM:
		return is_float(dtype);
	default:
		return dtype < LS_COMPLEX64;
	}
}

/* The same on all ranks. No element has more than 8 bytes. */
static struct form draw_form(uint64_t *seed, enum kind kind)
{
	static const uint64_t sizes[] = {1, 7, 100, 3000, MOST};
	struct form form = {.kind = kind, .dtype = (ls_dtype)draw(seed, LS_COMPLEX128)};
	do {
		form.op = (ls_reduce_op)draw(seed, LS_PREMUL_SUM + 1);
	} while (!is_allowed(form.dtype, form.op));
	form.count = sizes[draw(seed, 5)];
	form.root = (int)draw(seed, RANKS);
	form.in_place = draw(seed, 2) && (kind == ALLREDUCE || kind == REDUCE || kind == BROADCAST ||
					  kind == ALLREDUCE_MANY || kind == BROADCAST_MANY);
	uint64_t both = draw(seed, form.count + 1);
	for (int r = 0; r < RANKS; r++) /* an all-to-all needs the same count in both directions */
		form.counts[r] = kind == ALLTOALLV ? both : draw(seed, form.count + 1);
	return form;
}

/* Numbers whose sums and products are finite. */
static void fill(unsigned char *buffer, size_t bytes, uint64_t seed, ls_dtype dtype)
{
	for (size_t i = 0; i < bytes; i++)
		buffer[i] = (unsigned char)draw(&seed, dtype == LS_BOOL ? 2 : 256);
	uint16_t *halves = (void *)buffer;
	float *floats = (void *)buffer;
	double *doubles = (void *)buffer;
	for (size_t i = 0; (dtype == LS_FLOAT16 || dtype == LS_BFLOAT16) && i < bytes / 2; i++)
		halves[i] = (uint16_t)((halves[i] & 0x807f) | 0x3f80); /* 1 to 2 */
	for (size_t i = 0; (dtype == LS_FLOAT32 || dtype == LS_COMPLEX64) && i < bytes / 4; i++)
		floats[i] = (float)draw(&seed, 100000) / 7;
	for (size_t i = 0; dtype == LS_FLOAT64 && i < bytes / 8; i++)
		doubles[i] = (double)draw(&seed, 100000) / 7;
}

static void compare(struct rank *rank, const struct form *form, uint64_t seed, bool waits)
{
	size_t bytes = (size_t)MOST * 8 * RANKS;
	unsigned char *send = malloc(bytes), *host = malloc(bytes), *got = malloc(bytes);
	unsigned char *device_send = device_block(rank, bytes);
	unsigned char *device_recv = form->in_place ? device_send : device_block(rank, bytes);
	struct ls_call_options options = on(rank, 0);
	struct ls_call_options here = {.size = sizeof here};
	ls_request *op = NULL;
	options.factor = here.factor = rank->rank + 0.5;
	MUST(send && host && got);
	fill(send, bytes, seed * RANKS + (uint64_t)rank->rank, form->dtype);
	memset(host, 0xee, bytes);
	to_device(rank, 0, device_recv, host, bytes);
	to_device(rank, 0, device_send, send, bytes); /* in place: the result */
	MUST(sim_stream_sync(rank->streams[0]) == SIM_OK);
	if (form->in_place)
		memcpy(host, send, bytes);
	MUST(call(form, rank->group, form->in_place ? host : send, host, &here) == LS_OK);
	if (waits)
		options.request = &op;
	MUST(call(form, rank->group, device_send, device_recv, &options) == LS_OK);
	if (waits)
		MUST(ls_wait(op, 0) == LS_OK);
	ls_request_free(op);
	to_host(rank, 0, got, device_recv, bytes);
	MUST(memcmp(host, got, bytes) == 0);
	MUST(ls_device_free(rank->group, device_send) == LS_OK);
	if (!form->in_place)
		MUST(ls_device_free(rank->group, device_recv) == LS_OK);
	free(send);
	free(host);
	free(got);
}

static void each_collective(struct rank *rank)
{
	uint64_t seed = 1;
	for (int round = 0; round < ROUNDS; round++)
		for (enum kind kind = 0; kind < KINDS; kind++) {
			struct form form = draw_form(&seed, kind);
			compare(rank, &form, seed, draw(&seed, 2));
			struct ls_call_options options = on(rank, 1);
			MUST(ls_barrier(rank->group, &options) == LS_OK);
		}
	MUST(sim_stream_sync(rank->streams[1]) == SIM_OK);
}

static void collectives(void **state)
{
	(void)state;
	run_job(each_collective, "");
	run_job(each_collective, "queues=2,resident=1,depth=8,free=drawn");
}

/* ---- several in progress: they run in the order of the stream ---- */

enum { CHAIN = 40 };

/* Each sum is over the result of the one before it. No thread waits in between. */
static void chain(struct rank *rank)
{
	double one = rank->rank + 1, sum = 0, factor = 1;
	double *block = device_block(rank, sizeof one);
	struct ls_call_options options = on(rank, 0);
	to_device(rank, 0, block, &one, sizeof one);
	for (int i = 0; i < CHAIN; i++) {
		MUST(ls_allreduce(rank->group, block, block, 1, LS_FLOAT64, LS_SUM, &options) ==
		     LS_OK);
		factor *= i > 0 ? RANKS : 1;
	}
	to_host(rank, 0, &sum, block, sizeof sum);
	MUST(sum == 6 * factor);
	MUST(ls_device_free(rank->group, block) == LS_OK);
}

static void chains(void **state)
{
	(void)state;
	run_job(chain, "");
	run_job(chain, "queues=1,depth=2");
}

/* ---- messages ---- */

enum { MESSAGES = 12 };

static uint64_t length_of(int i)
{
	static const uint64_t lengths[] = {0, 1, 24, 25, 400, 512, 513, 9000, 70000};
	return lengths[i % 9];
}

/* Around a ring, some from and to streams, some on the host. Messages between two ranks are matched
 * in the order of the calls, whatever stream they are on. */
static void ring(struct rank *rank)
{
	int to = (rank->rank + 1) % RANKS, from = (rank->rank + RANKS - 1) % RANKS;
	size_t bytes = 70000 * 8;
	uint64_t *values = malloc(bytes), *got = malloc(bytes);
	uint64_t *out[MESSAGES], *in[MESSAGES];
	ls_request *sends[MESSAGES], *receives[MESSAGES];
	MUST(values && got);
	for (int i = 0; i < MESSAGES; i++) {
		uint64_t count = length_of(i);
		struct ls_call_options options = on(rank, i % STREAMS);
		out[i] = device_block(rank, bytes);
		in[i] = device_block(rank, bytes);
		for (uint64_t k = 0; k < count; k++)
			values[k] = (uint64_t)rank->rank << 40 | (uint64_t)i << 32 | k;
		to_device(rank, i % STREAMS, out[i], values, count * 8);
		/* The values are used again. */
		MUST(sim_stream_sync(rank->streams[i % STREAMS]) == SIM_OK);
		/* In the other order the stream would never reach the sends. */
		MUST(ls_isend(rank->group, out[i], count, LS_UINT64, to, &options, &sends[i]) ==
		     LS_OK);
		MUST(ls_irecv(rank->group, in[i], count, LS_UINT64, i % 3 ? from : LS_ANY_SOURCE,
			      &options, &receives[i]) == LS_OK);
	}
	for (int i = 0; i < MESSAGES; i++) {
		uint64_t count = length_of(i);
		MUST(ls_wait(sends[i], 0) == LS_OK && ls_wait(receives[i], 0) == LS_OK);
		ls_request_free(sends[i]);
		ls_request_free(receives[i]);
		to_host(rank, i % STREAMS, got, in[i], count * 8);
		for (uint64_t k = 0; k < count; k++)
			MUST(got[k] == ((uint64_t)from << 40 | (uint64_t)i << 32 | k));
		MUST(ls_device_free(rank->group, out[i]) == LS_OK);
		MUST(ls_device_free(rank->group, in[i]) == LS_OK);
	}
	free(values);
	free(got);
}

/* A send on a stream keeps its slot before that of a later call on the host. */
static void keeps_its_place(struct rank *rank)
{
	int32_t first = 1, second = 2, got[2] = {0};
	int32_t *block = device_block(rank, sizeof first);
	struct ls_call_options options = on(rank, 0);
	if (rank->rank == 0) {
		to_device(rank, 0, block, &first, sizeof first);
		MUST(ls_send(rank->group, block, 1, LS_INT32, 1, &options) == LS_OK);
		MUST(ls_send(rank->group, &second, 1, LS_INT32, 1, NULL) == LS_OK);
	} else if (rank->rank == 1) {
		MUST(ls_recv(rank->group, &got[0], 1, LS_INT32, 0, NULL) == LS_OK);
		MUST(ls_recv(rank->group, block, 1, LS_INT32, 0, &options) == LS_OK);
		to_host(rank, 0, &got[1], block, sizeof *block);
		MUST(got[0] == 1 && got[1] == 2);
	}
	MUST(ls_barrier(rank->group, NULL) == LS_OK);
	MUST(ls_device_free(rank->group, block) == LS_OK);
}

static void messages(void **state)
{
	(void)state;
	run_job(ring, "");
	run_job(ring, "queues=2,depth=4,free=drawn");
	run_job(keeps_its_place, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(chains), cmocka_unit_test(collectives),
					   cmocka_unit_test(messages)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
