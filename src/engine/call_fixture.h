/* SPDX-License-Identifier: BSD-3-Clause
 * For tests: any call of a collective, what each rank has for it, and what each must get. Numbers
 * are so small that no order of combining rounds them. */
#ifndef ENGINE_CALL_FIXTURE_H
#define ENGINE_CALL_FIXTURE_H

#include "kernel/reference_fixture.h"
#include "engine/engine_fixture.h"

struct call {
	enum trace_kind kind;
	ls_dtype dtype;
	ls_reduce_op reduce;
	int size, root;
	uint64_t salt; /* so that each call has other numbers */
	bool in_place;
	uint64_t count;
	/* parts[r]: that of rank r. In an all-to-all pairs[from][to]. */
	uint64_t parts[TEST_RANKS], pairs[TEST_RANKS][TEST_RANKS];
};

static inline enum coll_id call_collective(const struct call *call)
{
	return (enum coll_id)coll_kinds[call->kind].collective;
}

static inline bool call_is_listed(const struct call *call)
{
	return coll_kinds[call->kind].counts >= COLL_SAME_COUNTS;
}

static inline uint64_t call_sum(const uint64_t *counts, int end)
{
	uint64_t sum = 0;
	for (int r = 0; r < end; r++)
		sum += counts[r];
	return sum;
}

/* Elements of a buffer of this rank. */
static inline uint64_t call_elements(const struct call *call, int rank, bool input)
{
	const struct coll *coll = &coll_table[call_collective(call)];
	uint8_t extent = input ? coll->input : coll->output;
	bool one =
		coll->root == COLL_ROOT_SENDS ? input : coll->root == COLL_ROOT_RECEIVES && !input;
	uint64_t column = 0;
	if (extent == COLL_NOTHING || (one && rank != call->root))
		return 0;
	if (extent == COLL_WHOLE)
		return call->count;
	if (extent == COLL_PART)
		return call->parts[rank];
	if (call_collective(call) != COLL_ALLTOALL)
		return call_sum(call->parts, call->size);
	for (int r = 0; r < call->size; r++)
		column += call->pairs[r][rank];
	return input ? call_sum(call->pairs[rank], call->size) : column;
}

/* Element i of a rank's input. */
static inline void call_input(const struct call *call, int rank, uint64_t i, unsigned char *out)
{
	ls_dtype number = reference_number(call->dtype);
	size_t bytes = reference_bytes[number];
	for (size_t at = 0; at < reference_bytes[call->dtype]; at += bytes) {
		uint64_t mixed = (call->salt + (uint64_t)rank * 1000003 + i * 7919 + at * 31) *
				 UINT64_C(0x9e3779b97f4a7c15);
		uint64_t small = (mixed >> 40) % (call->reduce == LS_PRODUCT ? 2 : 5) + 1;
		float single = (float)small;
		double twofold = (double)small;
		uint16_t half = reference_is_half(number) ? half_of(number, single) : 0;
		const void *from = number == LS_FLOAT32        ? (const void *)&single
				   : number == LS_FLOAT64      ? (const void *)&twofold
				   : reference_is_half(number) ? (const void *)&half
							       : (const void *)&small;
		if (number == LS_BOOL)
			small = small % 2;
		memcpy(out + at, from, bytes);
	}
}

/* Element i of a reduction of all inputs. */
static inline void call_reduced(const struct call *call, uint64_t i, unsigned char *out)
{
	enum { ELEMENT = 16 };
	unsigned char inputs[TEST_RANKS][ELEMENT];
	const void *sources[TEST_RANKS];
	ls_dtype number = reference_number(call->dtype);
	bool scaled = call->reduce == LS_PREMUL_SUM;
	struct kernel_reduce reduce = {.dtype = call->dtype,
				       .op = scaled ? LS_SUM : call->reduce,
				       .source_count = call->size,
				       .sources = sources,
				       .divisor = (uint32_t)call->size};
	for (int r = 0; r < call->size; r++) {
		call_input(call, r, i, inputs[r]);
		if (scaled)
			kernel_scale(inputs[r], inputs[r], call->dtype, 1, 0.5);
		sources[r] = inputs[r];
	}
	for (size_t n = 0; n < reference_bytes[call->dtype] / reference_bytes[number]; n++)
		reference_reduce(&reduce, n, out + n * reference_bytes[number]);
}

/* Element i of what a rank must have in its output. */
static inline void call_output(const struct call *call, int rank, uint64_t i, unsigned char *out)
{
	const struct coll *coll = &coll_table[call_collective(call)];
	int source = 0;
	uint64_t before = call_sum(call->parts, rank);
	if (coll->reduces) {
		call_reduced(call, coll->output == COLL_PART ? before + i : i, out);
	} else if (coll->root == COLL_ROOT_SENDS) {
		call_input(call, call->root, coll->output == COLL_PART ? before + i : i, out);
	} else if (call_collective(call) == COLL_ALLTOALL) {
		for (; i >= call->pairs[source][rank]; source++)
			i -= call->pairs[source][rank];
		call_input(call, source, call_sum(call->pairs[source], rank) + i, out);
	} else {
		for (; i >= call->parts[source]; source++)
			i -= call->parts[source];
		call_input(call, source, i, out);
	}
}

/* What one rank passes. */
struct call_buffers {
	unsigned char *send, *recv, *memory;
	uint64_t send_bytes, recv_bytes;
	uint64_t recv_counts[TEST_RANKS];
};

static inline void call_open(const struct call *call, int rank, struct op *op,
			     struct call_buffers *out)
{
	size_t element_bytes = coll_table[call_collective(call)].input == COLL_NOTHING
				       ? 0
				       : reference_bytes[call->dtype];
	enum coll_id collective = call_collective(call);
	uint64_t inputs = call_elements(call, rank, true);
	uint64_t before = call_sum(call->parts, rank) * element_bytes;
	*out = (struct call_buffers){.send_bytes = inputs * element_bytes,
				     .recv_bytes = call_elements(call, rank, false) * element_bytes};
	out->memory = malloc(out->send_bytes + out->recv_bytes + 64);
	MUST(out->memory);
	memset(out->memory, 0xee, out->send_bytes + out->recv_bytes + 64);
	out->send = out->memory;
	out->recv = out->memory + (out->send_bytes + 63) / 64 * 64;
	bool both = out->send_bytes > 0 && out->recv_bytes > 0;
	if (both && call->in_place && collective != COLL_ALLTOALL) {
		bool longer = out->recv_bytes > out->send_bytes;
		out->recv = out->memory;
		if (longer)
			out->send = out->recv + before;
		else if (out->send_bytes > out->recv_bytes)
			out->recv = out->send + before;
	}
	for (uint64_t i = 0; i < inputs && element_bytes; i++)
		call_input(call, rank, i, out->send + i * element_bytes);
	for (int r = 0; r < call->size; r++)
		out->recv_counts[r] = call->pairs[r][rank];
	bool listed = call_is_listed(call), pairs = collective == COLL_ALLTOALL;
	memset(op, 0, sizeof *op);
	op->call = (struct op_call){
		.kind = call->kind,
		.dtype = call->dtype,
		.reduce = coll_table[collective].reduces ? call->reduce : 0,
		.peer = coll_table[collective].root == COLL_NO_ROOT ? -1 : call->root,
		.send = buffer_host(out->send_bytes ? out->send : NULL, out->send_bytes),
		.recv = buffer_host(out->recv_bytes ? out->recv : NULL, out->recv_bytes),
		.count = !listed ? call->count
			 : pairs ? call_sum(call->pairs[rank], call->size)
				 : call_sum(call->parts, call->size),
		.counts = !listed ? NULL
			  : pairs ? call->pairs[rank]
				  : call->parts,
		.recv_counts = listed && pairs ? out->recv_counts : NULL,
		.factor = 0.5,
	};
}

static inline void call_check(const struct call *call, int rank, const struct call_buffers *buffers)
{
	size_t element_bytes = reference_bytes[call->dtype];
	unsigned char expected[16];
	for (uint64_t i = 0; i < buffers->recv_bytes / element_bytes; i++) {
		call_output(call, rank, i, expected);
		if (memcmp(buffers->recv + i * element_bytes, expected, element_bytes) == 0)
			continue;
		fprintf(stderr, "%s of %s, %s: rank %d of %d, element %llu of %llu is wrong\n",
			coll_kinds[call->kind].name, reference_dtypes[call->dtype],
			reference_ops[call->reduce], rank, call->size, (unsigned long long)i,
			(unsigned long long)(buffers->recv_bytes / element_bytes));
		abort();
	}
}

#endif
