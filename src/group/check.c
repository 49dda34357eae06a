/* SPDX-License-Identifier: BSD-3-Clause
 * Checks the arguments of a collective: counts, root, types, and buffers that do not overlap. Drops
 * arguments that this rank does not need. */
#include "base/dtype.h"
#include "base/messages.h"
#include "device/device.h"
#include "group_private.h"
#include "arguments.h"

/* Elements of this rank's buffers: what it gives, what it gets, and the part that both have in
 * common when in place, at `offset` of the longer one. */
struct extent {
	uint64_t give, get;
	uint64_t offset;
	bool in_place; /* is allowed */
};

/* Sum of `counts`, or false if it does not fit. */
static bool add_up(const uint64_t *counts, int size, uint64_t *sum)
{
	*sum = 0;
	for (int r = 0; r < size; r++)
		if (__builtin_add_overflow(*sum, counts[r], sum))
			return false;
	return true;
}

static struct extent extent_of(const ls_group *group, const struct engine_call *op)
{
	const struct coll_kind *kind = &coll_kinds[op->kind];
	const struct coll *coll = &coll_table[kind->collective];
	uint64_t own = op->count, all = op->count * (uint64_t)group->size;
	uint64_t offset = own * (uint64_t)group->rank, all_got;
	if (op->counts) {
		all = op->count;
		own = op->counts[group->rank];
		offset = 0;
		for (int r = 0; r < group->rank; r++)
			offset += op->counts[r];
	}
	all_got = all;
	if (kind->counts == COLL_OWN)
		add_up(op->recv_counts, group->size, &all_got);
	bool root = group->rank == op->peer;
	bool gives = coll->input != COLL_NOTHING && (coll->root != COLL_ROOT_GIVES || root);
	bool gets = coll->output != COLL_NOTHING && (coll->root != COLL_ROOT_GETS || root);
	return (struct extent){
		.give = !gives                      ? 0
			: coll->input == COLL_PARTS ? all
						    : own,
		.get = !gets                        ? 0
		       : coll->output == COLL_PARTS ? all_got
						    : own,
		.offset = coll->input != coll->output ? offset : 0,
		.in_place = coll->input != coll->output || coll->input == COLL_WHOLE,
	};
}

static bool apart(uintptr_t a, uint64_t a_bytes, uintptr_t b, uint64_t b_bytes)
{
	return a_bytes == 0 || b_bytes == 0 || a + a_bytes <= b || b + b_bytes <= a;
}

static ls_status check_buffers(const char *call, const ls_group *group, struct engine_call *op)
{
	size_t element = ls_dtype_bytes(op->dtype);
	struct extent extent = extent_of(group, op);
	/* What is not used here may be anything; the engine looks at NULL. */
	if (extent.give == 0)
		op->send.address = NULL;
	if (extent.get == 0)
		op->recv.address = NULL;
	op->send.bytes = extent.give * element;
	op->recv.bytes = extent.get * element;
	if (extent.give > 0 && !op->send.address)
		return group_bad(call, "send", 0, "a buffer");
	if (extent.get > 0 && !op->recv.address)
		return group_bad(call, "recv", 0, "a buffer");
	uintptr_t send = (uintptr_t)op->send.address, recv = (uintptr_t)op->recv.address;
	if (apart(send, op->send.bytes, recv, op->recv.bytes))
		return LS_OK;
	bool in_place = extent.give <= extent.get ? send == recv + extent.offset * element
						  : recv == send + extent.offset * element;
	if (extent.in_place && in_place)
		return LS_OK;
	return group_bad(call, "recv", (long long)recv,
			 extent.in_place ? "apart from send, or in place as documented"
					 : "apart from send");
}

static ls_status check_counts(const char *call, const ls_group *group, struct engine_call *op)
{
	uint64_t sum;
	if (!trace_kind_facts(op->kind).per_rank) {
		uint64_t ranks = (uint64_t)group->size, whole, bytes;
		uint64_t element = ls_dtype_bytes(op->dtype);
		if (element && !__builtin_mul_overflow(op->count, ranks * element, &bytes) &&
		    bytes <= INT64_MAX)
			return LS_OK;
		if (__builtin_mul_overflow(op->count, ranks, &whole))
			return group_bad(call, "count", (long long)op->count,
					 "below 2^63 bytes in all");
		return group_check_count(call, op->dtype, whole);
	}
	bool own = coll_kinds[op->kind].counts == COLL_OWN;
	if (!op->counts || (own && !op->recv_counts))
		return group_bad(call, op->counts ? "recv_counts" : "counts", 0,
				 "an array with a count for each rank");
	if (!add_up(op->counts, group->size, &op->count) ||
	    (own && !add_up(op->recv_counts, group->size, &sum)))
		return group_bad(call, "counts", -1, "below 2^63 bytes in all");
	/* With lists of its own those of two ranks need not be equal. */
	op->shape = own ? 0 : engine_shape(op->counts, group->size);
	ls_status status = group_check_count(call, op->dtype, op->count);
	return status == LS_OK && own ? group_check_count(call, op->dtype, sum) : status;
}

ls_status group_check_collective(const char *call, const ls_group *group, struct engine_call *op)
{
	struct trace_kind_facts facts = trace_kind_facts(op->kind);
	if (!facts.typed)
		return LS_OK;
	ls_status status = check_counts(call, group, op);
	if (status == LS_OK && facts.rooted)
		status = group_check_rank(call, "root", group, op->peer);
	if (status != LS_OK)
		return status;
	if (facts.reduces && (unsigned)op->reduce > LS_PREMUL_SUM)
		return group_bad(call, "op", op->reduce, "one of enum ls_reduce_op");
	if (facts.reduces && !device_has(op->dtype, op->reduce)) {
		char from[TRACE_CALLED_BYTES];
		trace_called(from, sizeof from);
		MESSAGE_SAY(MESSAGE_GROUP_REDUCE, call, trace_reduce_name(op->reduce),
			    trace_dtype_name(op->dtype), from);
		return LS_UNSUPPORTED;
	}
	return check_buffers(call, group, op);
}

/* Apart, or in place: recv - send, modulo 2^64, is `in_place`, or in no way inside of both. */
static bool may_lie_so(const struct engine_call *op, uint64_t give, uint64_t get, uint64_t in_place)
{
	uint64_t distance = (uintptr_t)op->recv.address - (uintptr_t)op->send.address;
	return distance == in_place || distance + get - 1 >= give + get - 1;
}

bool group_check_short(const ls_group *group, struct engine_call *op)
{
	const struct coll_kind *kind = &coll_kinds[op->kind];
	const struct coll *coll = &coll_table[kind->collective];
	if (op->kind == TRACE_BARRIER)
		return true;
	size_t element = dtype_bytes(op->dtype);
	bool rooted = coll->root != COLL_NO_ROOT, root = op->peer == group->rank;
	if (kind->counts != COLL_ALIKE || op->count > TRANSPORT_INLINE_BYTES || !element ||
	    (rooted && (unsigned)op->peer >= (unsigned)group->size) ||
	    (coll->reduces && !device_has(op->dtype, op->reduce)))
		return false;
	uint64_t part = op->count * element, all = part * (uint64_t)group->size;
	uint64_t give = coll->input == COLL_PARTS ? all : part;
	uint64_t get = coll->output == COLL_PARTS ? all : part;
	uint64_t before = part * (uint64_t)group->rank;
	if (give > TRANSPORT_INLINE_BYTES || give == 0 || op->reduce == LS_PREMUL_SUM)
		return false;
	if (coll->root == COLL_ROOT_GIVES && !root)
		give = 0;
	else if (!op->send.address)
		return false;
	if (coll->root == COLL_ROOT_GETS && !root)
		get = 0;
	else if (!op->recv.address)
		return false;
	op->send = buffer_host(give ? op->send.address : NULL, give);
	op->recv = buffer_host(get ? op->recv.address : NULL, get);
	if (!give || !get)
		return true;
	if (coll->input == coll->output)
		return may_lie_so(op, give, get, coll->input == COLL_WHOLE ? 0 : get);
	return may_lie_so(op, give, get, coll->input == COLL_PARTS ? before : -before);
}
