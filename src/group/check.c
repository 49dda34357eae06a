/* SPDX-License-Identifier: BSD-3-Clause
 * Checks the arguments of a collective: counts, root, types, and buffers that do not overlap. Drops
 * arguments that this rank does not need. */
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/messages.h"
#include "kernel/kernel.h"
#include "group/group_private.h"
#include "group/arguments.h"

/* Elements of this rank's buffers: what it sends, what it receives, and the part that both have in
 * common when in place, at `offset` of the longer one. */
struct extent {
	uint64_t give, get;
	uint64_t offset;
	bool may_be_in_place;
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

static struct extent extent_of(const ls_group *group, const struct op_call *call)
{
	const struct coll_kind *kind = &coll_kinds[call->kind];
	const struct coll *coll = &coll_table[kind->collective];
	uint64_t own = call->count, all = call->count * (uint64_t)group->size;
	uint64_t offset = own * (uint64_t)group->rank, all_got;
	if (call->counts) {
		all = call->count;
		own = call->counts[group->rank];
		offset = 0;
		for (int r = 0; r < group->rank; r++)
			offset += call->counts[r];
	}
	all_got = all;
	if (kind->counts == COLL_OWN_COUNTS)
		add_up(call->recv_counts, group->size, &all_got);
	bool root = group->rank == call->peer;
	bool sends = coll->input != COLL_NOTHING && (coll->root != COLL_ROOT_SENDS || root);
	bool receives = coll->output != COLL_NOTHING && (coll->root != COLL_ROOT_RECEIVES || root);
	return (struct extent){
		.give = !sends                      ? 0
			: coll->input == COLL_PARTS ? all
						    : own,
		.get = !receives                    ? 0
		       : coll->output == COLL_PARTS ? all_got
						    : own,
		.offset = coll->input != coll->output ? offset : 0,
		.may_be_in_place = coll->input != coll->output || coll->input == COLL_WHOLE,
	};
}

static bool is_disjoint(uintptr_t a, uint64_t a_bytes, uintptr_t b, uint64_t b_bytes)
{
	return a_bytes == 0 || b_bytes == 0 || a + a_bytes <= b || b + b_bytes <= a;
}

static ls_status check_buffers(const char *function, const ls_group *group, struct op_call *call)
{
	size_t element_bytes = ls_dtype_bytes(call->dtype);
	struct extent extent = extent_of(group, call);
	/* A buffer that this rank does not use may be any pointer. It becomes NULL, because the
	 * engine tests for that. */
	if (extent.give == 0)
		call->send.address = NULL;
	if (extent.get == 0)
		call->recv.address = NULL;
	call->send.bytes = extent.give * element_bytes;
	call->recv.bytes = extent.get * element_bytes;
	if (extent.give > 0 && !call->send.address)
		return group_bad_state(function, "send", "NULL", "a buffer");
	if (extent.get > 0 && !call->recv.address)
		return group_bad_state(function, "recv", "NULL", "a buffer");
	uintptr_t send = (uintptr_t)call->send.address, recv = (uintptr_t)call->recv.address;
	if (is_disjoint(send, call->send.bytes, recv, call->recv.bytes))
		return LS_OK;
	bool in_place = extent.give <= extent.get ? send == recv + extent.offset * element_bytes
						  : recv == send + extent.offset * element_bytes;
	if (extent.may_be_in_place && in_place)
		return LS_OK;
	return group_bad(function, "recv", (long long)recv,
			 extent.may_be_in_place ? "apart from send, or in place as documented"
						: "apart from send");
}

static ls_status check_counts(const char *function, const ls_group *group, struct op_call *call)
{
	uint64_t sum;
	if (!trace_kind_facts(call->kind).per_rank) {
		uint64_t element_bytes = ls_dtype_bytes(call->dtype), bytes;
		if (!element_bytes)
			return group_check_count(function, call->dtype, call->count);
		bool fits = !__builtin_mul_overflow(
				    call->count, (uint64_t)group->size * element_bytes, &bytes) &&
			    bytes <= INT64_MAX;
		return fits ? LS_OK : group_bad_count(function, call->count);
	}
	bool own = coll_kinds[call->kind].counts == COLL_OWN_COUNTS;
	if (!call->counts || (own && !call->recv_counts))
		return group_bad_state(function, call->counts ? "recv_counts" : "counts", "NULL",
				       "an array with a count for each rank");
	if (!add_up(call->counts, group->size, &call->count) ||
	    (own && !add_up(call->recv_counts, group->size, &sum)))
		return group_bad_state(function, "counts", "2^63 bytes or more in all", "less");
	/* Where each rank has lists of its own, two ranks may have different ones. */
	call->shape = own ? 0 : engine_shape(call->counts, group->size);
	ls_status status = group_check_count(function, call->dtype, call->count);
	return status == LS_OK && own ? group_check_count(function, call->dtype, sum) : status;
}

ls_status group_prepare_collective(const char *function, const ls_group *group, struct op_call *call)
{
	struct trace_kind_facts facts = trace_kind_facts(call->kind);
	if (!facts.typed)
		return LS_OK;
	ls_status status = check_counts(function, group, call);
	if (status == LS_OK && facts.rooted)
		status = group_check_rank(function, "root", group, call->peer);
	if (status != LS_OK)
		return status;
	if (facts.reduces && (unsigned)call->reduce > LS_PREMUL_SUM)
		return group_bad(function, "op", call->reduce, "one of enum ls_reduce_op");
	if (facts.reduces && !kernel_has(call->dtype, call->reduce)) {
		char from[TRACE_CALLER_BYTES];
		trace_caller_text(from, sizeof from);
		MESSAGE_SAY(MESSAGE_GROUP_REDUCE, function, trace_reduce_name(call->reduce),
			    trace_dtype_name(call->dtype), from);
		return LS_UNSUPPORTED;
	}
	return check_buffers(function, group, call);
}

/* Whether the buffers are apart, or in place: recv - send, modulo 2^64, is `in_place`, or a
 * distance at which they do not overlap. */
static bool buffers_are_allowed(const struct op_call *call, uint64_t give, uint64_t get,
				uint64_t in_place)
{
	uint64_t distance = (uintptr_t)call->recv.address - (uintptr_t)call->send.address;
	return distance == in_place || distance + get - 1 >= give + get - 1;
}

bool group_prepare_short(const ls_group *group, struct op_call *call)
{
	const struct coll_kind *kind = &coll_kinds[call->kind];
	const struct coll *coll = &coll_table[kind->collective];
	if (call->kind == TRACE_BARRIER)
		return true;
	size_t element_bytes = dtype_bytes(call->dtype);
	bool rooted = coll->root != COLL_NO_ROOT, root = call->peer == group->rank;
	if (kind->counts != COLL_ONE_COUNT || call->count > TRANSPORT_INLINE_BYTES ||
	    !element_bytes || (rooted && (unsigned)call->peer >= (unsigned)group->size) ||
	    (coll->reduces && !kernel_has(call->dtype, call->reduce)))
		return false;
	uint64_t part = call->count * element_bytes, all = part * (uint64_t)group->size;
	uint64_t give = coll->input == COLL_PARTS ? all : part;
	uint64_t get = coll->output == COLL_PARTS ? all : part;
	uint64_t before = part * (uint64_t)group->rank;
	if (give > TRANSPORT_INLINE_BYTES || give == 0 || call->reduce == LS_PREMUL_SUM)
		return false;
	if (coll->root == COLL_ROOT_SENDS && !root)
		give = 0;
	else if (!call->send.address)
		return false;
	if (coll->root == COLL_ROOT_RECEIVES && !root)
		get = 0;
	else if (!call->recv.address)
		return false;
	buffer_set(&call->send, give ? call->send.address : NULL, give);
	buffer_set(&call->recv, get ? call->recv.address : NULL, get);
	if (!give || !get)
		return true;
	if (coll->input == coll->output)
		return buffers_are_allowed(call, give, get, coll->input == COLL_WHOLE ? 0 : get);
	return buffers_are_allowed(call, give, get, coll->input == COLL_PARTS ? before : -before);
}

bool group_keep_counts(struct ls_request *op)
{
	size_t size = (size_t)op->group->size;
	struct op_call *call = &op->base.call;
	if (!call->counts)
		return true;
	if (!op->counts)
		op->counts = calloc(2 * size, sizeof *op->counts);
	if (!op->counts) {
		char from[TRACE_CALLER_BYTES];
		trace_caller_text(from, sizeof from);
		MESSAGE_SAY(MESSAGE_GROUP_HANDLES, from, "no memory for its counts");
		return false;
	}
	memcpy(op->counts, call->counts, size * sizeof *op->counts);
	call->counts = op->counts;
	if (call->recv_counts) {
		memcpy(op->counts + size, call->recv_counts, size * sizeof *op->counts);
		call->recv_counts = op->counts + size;
	}
	return true;
}
