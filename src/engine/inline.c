/* SPDX-License-Identifier: BSD-3-Clause
 * Short collectives: what the next call needs to know, and the result. */
#include "engine/inline.h"

#include "coll/coll.h"
#include "engine/engine_private.h"

static uint16_t window_of(uint64_t bytes)
{
	return bytes == 0                      ? TRANSPORT_WINDOW_NONE
	       : bytes <= TRANSPORT_TINY_BYTES ? TRANSPORT_WINDOW_ENTRY
					       : TRANSPORT_WINDOW_INLINE;
}

/* Whether the collective's line of the table determines the result. It does not say which of the
 * inputs a scan reduces, nor which one is copied, where all ranks have one and get one. */
static bool is_determined(const struct coll *coll)
{
	if (coll->reduces != COLL_REDUCES_NOTHING)
		return coll->reduces == COLL_REDUCES_ALL;
	return coll->output == COLL_NOTHING || coll->output == COLL_PARTS ||
	       coll->root == COLL_ROOT_SENDS;
}

/* Sets which entries this rank waits for and what it computes, from the shapes of the collective's
 * buffers. */
static void learn_result(const struct engine *engine, const struct op *op, const struct coll *coll,
			 struct engine_inline_plan *plan)
{
	const struct op_call *call = &op->call;
	bool root = call->peer == engine->team->rank;
	bool receives = coll->output != COLL_NOTHING && (coll->root != COLL_ROOT_RECEIVES || root);
	bool mine_only = coll->root == COLL_ROOT_SENDS && root;
	uint64_t part = call->count * op->element_bytes;
	plan->source = coll->root == COLL_ROOT_SENDS ? call->peer : ENGINE_INLINE_EVERYBODY;
	if (mine_only || (coll->root == COLL_ROOT_RECEIVES && !root))
		plan->source = ENGINE_INLINE_NOBODY;
	plan->others_ahead = coll->root == COLL_ROOT_RECEIVES && root;
	plan->part_bytes = (uint32_t)part;
	plan->peer_bytes =
		(uint32_t)(coll->input == COLL_PARTS ? part * (uint64_t)engine->team->size : part);
	plan->offset_bytes = coll->input == COLL_PARTS ? (uint32_t)(engine->team->rank * part) : 0;
	plan->stride_bytes = coll->output == COLL_PARTS ? (uint32_t)part : 0;
	if (!receives || part == 0 || !call->recv.address)
		return;
	bool reduces = coll->reduces == COLL_REDUCES_ALL;
	plan->result = reduces     ? ENGINE_INLINE_REDUCE
		       : mine_only ? ENGINE_INLINE_COPY_MINE
				   : ENGINE_INLINE_COPY;
	if (!reduces)
		return;
	plan->reduce = (struct kernel_reduce){
		.dtype = call->dtype,
		.op = call->reduce,
		.source_count = engine->team->size,
		.target_count = 1,
		.count = call->count,
		.divisor = call->reduce == LS_AVERAGE ? (uint32_t)engine->team->size : 0,
	};
	if (kernel_few_find(&plan->reduce, &plan->few))
		plan->result = ENGINE_INLINE_REDUCE_FEW;
}

void engine_inline_learn(const struct engine *engine, const struct op *op,
			 struct engine_inline_plan *out)
{
	const struct coll *coll = &coll_table[coll_kinds[op->call.kind].collective];
	bool carries = op->plan->plan.algorithm == PLAN_INLINE ||
		       (coll->input == COLL_NOTHING && op->plan->plan.algorithm == PLAN_DIRECT);
	*out = (struct engine_inline_plan){0};
	if (!carries || !is_determined(coll) || op->call.counts || engine_is_scaled(op) ||
	    engine->completes_together || engine->ops || op->call.send.region ||
	    op->call.recv.region)
		return;
	out->signature = op->signature;
	out->count = engine_common_count(op);
	out->input_bytes = (uint32_t)op->call.send.bytes;
	out->window = window_of(op->call.send.bytes);
	out->algorithm = (uint16_t)op->plan->plan.algorithm;
	out->step_count = (uint16_t)op->plan->plan.step_count;
	learn_result(engine, op, coll, out);
	out->usable = true;
}

bool engine_inline_make_room(struct engine *engine, const struct engine_inline_plan *plan,
			     const struct waiter *waiter, uint64_t seq)
{
	const struct transport_team *team = engine->team;
	uint64_t bytes = plan->window == TRANSPORT_WINDOW_INLINE ? plan->input_bytes : 0;
	uint64_t last = engine_room_awaits(engine, seq, bytes);
	for (int q = 0; q < team->size; q++)
		if (q != team->rank &&
		    !wait_word_briefly(waiter, &transport_entry(team, q, last)->signal,
				       transport_signal(last, 0)))
			return false;
	engine->entered_by_all = last;
	return true;
}

bool engine_inline_poll_all(struct engine *engine, const struct engine_inline_plan *plan,
			    const struct waiter *waiter, uint64_t seq, uint64_t history)
{
	const struct transport_team *team = engine->team;
	for (int q = 0; q < team->size; q++)
		if (q != team->rank && !engine_inline_is_there(engine, plan, waiter, q, seq, history))
			return false;
	if (engine->entered_by_all < seq)
		engine->entered_by_all = seq;
	return true;
}

/* The page of the payload is in the entry, so the processor could request the payload's line only
 * after the entry's. But nearly always it is the page that my own payload has, or would have. A
 * branch in place of a data dependence lets the processor request both lines at once. My own entry
 * is not read, because its line is on its way to a peer. */
static const unsigned char *paged_payload(const struct engine *engine,
					  const struct engine_inline_plan *plan, int rank,
					  uint64_t seq)
{
	const struct transport_team *team = engine->team;
	const unsigned char *payload = transport_entry_payload(team, rank, seq, plan->peer_bytes);
	unsigned page = plan->window == TRANSPORT_WINDOW_INLINE
				? engine->payload_last
				: engine_payload_page(engine, plan->peer_bytes);
	const unsigned char *guess = transport_area_of(team, rank)->payloads[page];
	if (__builtin_expect(payload == guess, 1)) {
		/* so that the compiler does not replace it by `payload` */
		__asm__ volatile("" : "+r"(guess));
		return guess;
	}
	return payload;
}

/* The payload of member `rank`, from the first byte that this rank needs. */
static const unsigned char *payload_of(const struct engine *engine,
				       const struct engine_inline_plan *plan, const void *send,
				       int rank, uint64_t seq)
{
	const struct transport_team *team = engine->team;
	if (rank == team->rank)
		return (const unsigned char *)send + plan->offset_bytes;
	return (plan->peer_bytes <= TRANSPORT_TINY_BYTES ? transport_entry(team, rank, seq)->tiny
							 : paged_payload(engine, plan, rank, seq)) +
	       plan->offset_bytes;
}

void engine_inline_compute(const struct engine *engine, const struct engine_inline_plan *plan,
			   const void *send, void *recv, uint64_t seq)
{
	const void *sources[KERNEL_REDUCE_MAX];
	int size = engine->team->size;
	unsigned char *out = recv;
	switch (plan->result) {
	case ENGINE_INLINE_COPY_MINE:
		if (recv != (const unsigned char *)send + plan->offset_bytes)
			engine_inline_copy(recv, (const unsigned char *)send + plan->offset_bytes,
					   plan->part_bytes);
		return;
	case ENGINE_INLINE_COPY:
		for (int q = 0; q < size; q++) {
			if (plan->source >= 0 && q != plan->source)
				continue;
			const unsigned char *from = payload_of(engine, plan, send, q, seq);
			/* not my own part of an in-place buffer */
			if (from != out + q * (size_t)plan->stride_bytes)
				engine_inline_copy(out + q * (size_t)plan->stride_bytes, from,
						   plan->part_bytes);
		}
		return;
	default:
		break;
	}
	for (int q = 0; q < size; q++)
		sources[q] = payload_of(engine, plan, send, q, seq);
	if (plan->result == ENGINE_INLINE_REDUCE_FEW) {
		kernel_few_run(&plan->few, recv, sources, size);
		return;
	}
	struct kernel_reduce reduce = plan->reduce;
	void *targets[1] = {recv};
	reduce.sources = sources;
	reduce.targets = targets;
	kernel_reduce(&reduce);
}

enum {
	/* How many collectives ahead a short payload is fetched: a cache line takes about as long
	 * as one or two. The next payload lies in the next page. */
	COLLECTIVES_AHEAD = 4,
	/* How much of a longer payload is fetched ahead: the processor fetches the rest itself. */
	AHEAD_BYTES = 1024,
};

static bool is_fetched_early(const struct engine_inline_plan *plan)
{
	return plan->part_bytes <= AHEAD_BYTES && plan->peer_bytes <= TRANSPORT_PAGE_BYTES;
}

static void prefetch_payload(const struct engine *engine, int rank, unsigned page, uint32_t offset,
			     uint32_t bytes)
{
	const unsigned char *payload =
		transport_area_of(engine->team, rank)->payloads[page % TRANSPORT_INLINE_PAGES];
	for (uint32_t at = 0; at < bytes && at < AHEAD_BYTES; at += 64)
		__builtin_prefetch(payload + offset + at);
}

void engine_inline_prefetch_source(const struct engine *engine,
				   const struct engine_inline_plan *plan, uint64_t seq)
{
	const struct transport_entry *entry = transport_entry(engine->team, plan->source, seq);
	unsigned page = __atomic_load_n(&entry->page, __ATOMIC_RELAXED);
	if (is_fetched_early(plan))
		prefetch_payload(engine, plan->source, page + COLLECTIVES_AHEAD, plan->offset_bytes,
				 plan->part_bytes);
}

void engine_inline_prefetch_next(const struct engine *engine, const struct engine_inline_plan *plan,
				 uint64_t seq)
{
	enum { LINES_AT_ONCE = 8 };
	const struct transport_team *team = engine->team;
	/* The next payloads of all ranks begin with the same page. */
	unsigned page = engine_payload_page(engine, plan->peer_bytes);
	uint32_t bytes = plan->peer_bytes <= TRANSPORT_TINY_BYTES ? 0 : plan->peer_bytes;
	if (is_fetched_early(plan))
		page += COLLECTIVES_AHEAD - 1;
	for (int q = 0; q < team->size; q++) {
		if (q == team->rank)
			continue;
		/* It takes as long to fetch several entries as to fetch one. */
		for (uint64_t next = seq + 1;
		     seq % LINES_AT_ONCE == 0 && next <= seq + LINES_AT_ONCE; next++)
			__builtin_prefetch(transport_entry(team, q, next));
		prefetch_payload(engine, q, page, 0, bytes);
	}
}
