/* SPDX-License-Identifier: BSD-3-Clause
 * The buffers of a call: which ones this rank has, and of what length. */
#include <string.h>

#include "base/dtype.h"
#include "engine/engine_private.h"

uint64_t engine_shape(const uint64_t *counts, int size)
{
	uint64_t shape = (uint64_t)size;
	for (int r = 0; r < size; r++)
		shape = engine_mix(shape + 1, counts[r]);
	return shape;
}

/* The first element of each part. */
static const uint64_t *add_up(const uint64_t *counts, int size, uint64_t *starts)
{
	starts[0] = 0;
	for (int r = 0; r < size; r++)
		starts[r + 1] = starts[r] + counts[r];
	return starts;
}

/* The longest INPUT of any rank, if all have the same count: plan_table_choose needs it. */
static uint64_t longest_input(const struct op *op, const struct coll *coll, int size)
{
	uint64_t unit = op->call.count * op->element_bytes;
	return coll->input == COLL_PARTS ? unit * (uint64_t)size : unit;
}

/* As longest_input, with a list of counts. */
static uint64_t longest_input_of_lists(const struct op *op, const struct coll *coll, int size)
{
	uint64_t most = op->starts[size];
	if (op->call.recv_counts)
		return UINT64_MAX; /* each rank knows only its own counts */
	if (coll->input == COLL_PART) {
		most = 0;
		for (int r = 0; r < size; r++)
			most = op->call.counts[r] > most ? op->call.counts[r] : most;
	}
	return most * op->element_bytes;
}

/* If the buffers differ in length, the shorter one is my part of the longer one. */
static bool is_in_place(const struct op *op, const struct coll *coll, int rank)
{
	if (!op->call.send.address || !op->call.recv.address)
		return false;
	if (coll->input == coll->output)
		return coll->input == COLL_WHOLE && op->call.send.address == op->call.recv.address;
	uint64_t before = (op->starts ? op->starts[rank] : op->call.count * (uint64_t)rank) *
			  op->element_bytes;
	uintptr_t send = (uintptr_t)op->call.send.address, recv = (uintptr_t)op->call.recv.address;
	return coll->input == COLL_PARTS ? recv == send + before : send == recv + before;
}

void engine_buffers_set(const struct engine *engine, struct op *op, struct op_workspace *workspace,
			struct plan_params *params)
{
	const struct coll *coll = &coll_table[coll_kinds[op->call.kind].collective];
	int rank = engine->team->rank, size = engine->team->size;
	bool rooted = coll->root != COLL_NO_ROOT;
	uint64_t payload = 0;
	op->element_bytes = dtype_bytes(op->call.dtype);
	op->starts = op->recv_starts = NULL;
	/* A rank that has no such buffer may pass any pointer, which must not be touched. */
	if (rooted && rank != op->call.peer) {
		if (coll->root == COLL_ROOT_SENDS)
			op->call.send = (struct buffer){0};
		else
			op->call.recv = (struct buffer){0};
	}
	if (op->call.counts) {
		op->starts = op->recv_starts = add_up(op->call.counts, size, workspace->starts);
		if (op->call.recv_counts)
			op->recv_starts = add_up(op->call.recv_counts, size, workspace->recv_starts);
		if (!op->call.shape)
			op->call.shape = engine_shape(op->call.counts, size);
		payload = longest_input_of_lists(op, coll, size);
	} else if (coll->input != COLL_NOTHING) {
		payload = longest_input(op, coll, size);
	}
	params->collective = (enum coll_id)coll_kinds[op->call.kind].collective;
	params->rank = rank;
	params->size = size;
	params->topology = engine->topology.host_count > 1 ? &engine->topology : NULL;
	params->root = rooted ? op->call.peer : 0;
	/* A scaled input is a copy, and not the caller's buffer any more. */
	params->in_place = is_in_place(op, coll, rank) && !engine_is_scaled(op);
	/* Another engine has the payload, perhaps where the processor must not touch it. */
	uint64_t inline_bytes = engine->ops ? 0 : TRANSPORT_INLINE_BYTES;
	plan_table_choose(&engine->table, params->collective, payload, inline_bytes, size,
			  engine->wanted, &op->choice);
	op->choice.algorithm = plan_across(params->collective, op->choice.algorithm, payload, size,
					   params->topology);
	params->algorithm = op->choice.algorithm;
}

bool engine_signature_read(uint64_t signature, int size, struct engine_signature *out)
{
	struct trace_kind_facts facts = trace_kind_facts((uint8_t)signature);
	uint64_t root = signature >> 32;
	if (!facts.collective || facts.per_rank || (facts.rooted && root >= (uint64_t)size))
		return false;
	*out = (struct engine_signature){
		.kind = (enum trace_kind)(uint8_t)signature,
		.dtype = (uint8_t)(signature >> 8),
		.reduce = (uint8_t)(signature >> 16),
		.algorithm = (uint8_t)(signature >> 24),
		.root = facts.rooted ? (int32_t)root : -1,
	};
	return true;
}
