/* SPDX-License-Identifier: BSD-3-Clause
 * Life of an operation in the host engine: choose the plan, enter, run the steps, leave; or abandon it
 * after a failure so that nobody touches the caller's buffers any more. */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

#include "base/messages.h"
#include "device/device.h"
#include "engine_private.h"

static const enum plan_algorithm wanted_of[] = {
	[SETTING_ALGORITHM_AUTO] = PLAN_NONE, [SETTING_ALGORITHM_DIRECT] = PLAN_DIRECT,
	[SETTING_ALGORITHM_RING] = PLAN_RING, [SETTING_ALGORITHM_DOUBLING] = PLAN_DOUBLING,
	[SETTING_ALGORITHM_TREE] = PLAN_TREE,
};

/* Room for the longest plan of any collective for this group. */
static size_t longest_plan(int rank, int size)
{
	size_t longest = 1;
	for (int c = 0; c < PLAN_COLLECTIVE_COUNT; c++)
		for (int a = PLAN_NONE + 1; a < PLAN_ALGORITHM_COUNT; a++) {
			struct plan_request request = {.collective = (enum plan_collective)c,
						       .algorithm = (enum plan_algorithm)a,
						       .rank = rank,
						       .size = size};
			size_t steps = plan_steps_max(&request);
			if (steps > longest)
				longest = steps;
		}
	return longest;
}

ls_status engine_init(struct engine *engine, struct transport *transport, struct trace *trace,
		      struct memory *memory, const _Atomic uint64_t *cause,
		      const struct settings *settings)
{
	*engine = (struct engine){.transport = transport,
				  .trace = trace,
				  .memory = memory,
				  .cause = cause,
				  .wanted = wanted_of[settings->algorithm],
				  .stream = settings->stores == SETTING_STORES_STREAM};
	engine->steps_max = longest_plan(transport->rank, transport->size);
	engine->steps = calloc(ENGINE_PLANS * engine->steps_max, sizeof *engine->steps);
	if (!engine->steps) {
		MESSAGE_SAY(MESSAGE_ENGINE_MEMORY, engine->steps_max);
		return LS_OUT_OF_MEMORY;
	}
	return LS_OK;
}

void engine_fini(struct engine *engine)
{
	free(engine->steps);
	*engine = (struct engine){0};
}

static bool same_request(const struct plan_request *a, const struct plan_request *b)
{
	return a->collective == b->collective && a->algorithm == b->algorithm &&
	       a->root == b->root && a->in_place == b->in_place;
}

/* Which of my buffers a plan shows to peers follows from its steps. */
static void derive_windows(struct engine_plan *entry)
{
	entry->input_window = entry->output_window = false;
	for (uint32_t i = 0; i < entry->plan.step_count; i++) {
		const struct plan_step *step = &entry->plan.steps[i];
		if (step->kind == PLAN_SEND && step->blocks > 0) {
			entry->input_window |= step->from == PLAN_INPUT;
			entry->output_window |= step->from == PLAN_OUTPUT;
		}
		if (step->kind == PLAN_REDUCE_ALL && !(step->flags & PLAN_TO_SELF))
			entry->output_window = true;
	}
	/* Peers read INPUT in every plan with windows; OUTPUT only as far as seen above. */
	if (entry->plan.uses_windows && entry->plan.algorithm != PLAN_SLOT)
		entry->input_window = true;
}

/* The plan for a request, from the small table or built into it. NULL: there is none. */
static const struct engine_plan *find_plan(struct engine *engine, const struct plan_request *request)
{
	unsigned hash = (unsigned)request->collective * 7u + (unsigned)request->algorithm * 3u +
			(unsigned)request->root * 5u + (request->in_place ? 8u : 0u);
	unsigned slot = hash & (ENGINE_PLANS - 1);
	struct engine_plan *entry = &engine->plans[slot];
	if (entry->valid && same_request(&entry->request, request))
		return entry;
	entry->valid = plan_build(request, engine->steps + slot * engine->steps_max, &entry->plan);
	if (!entry->valid)
		return NULL;
	entry->request = *request;
	derive_windows(entry);
	return entry;
}

static enum plan_collective collective_of(enum trace_kind kind)
{
	switch (kind) {
	case TRACE_ALLREDUCE:
		return PLAN_ALLREDUCE;
	case TRACE_BROADCAST:
		return PLAN_BROADCAST;
	default:
		return PLAN_BARRIER;
	}
}

static uint64_t signature_of(const struct engine_op *op)
{
	/* The algorithm follows from the rest unless ranks were given different settings. */
	uint64_t signature = (uint64_t)op->kind | (uint64_t)op->plan->plan.algorithm << 24;
	if (op->kind == TRACE_BARRIER)
		return signature;
	signature |= (uint64_t)op->dtype << 8;
	if (op->kind == TRACE_ALLREDUCE)
		return signature | (uint64_t)op->reduce << 16;
	return signature | (uint64_t)(uint32_t)op->peer << 32;
}

void engine_submit(struct engine *engine, struct engine_op *op, struct engine_room *room)
{
	op->words = room->words;
	op->tickets = room->tickets;
	op->status = LS_OK;
	op->culprit = -1;
	op->step = 0;
	op->checked = op->sent = 0;
	op->word_count = 0;
	op->input_block = op->output_block = op->scratch_block = NULL;
	if (!engine_is_collective(op->kind)) {
		op->stage = op->kind == TRACE_SEND ? ENGINE_POST : ENGINE_MATCH;
		return;
	}
	op->stage = ENGINE_ENTER;
	const struct transport *transport = engine->transport;
	struct plan_request request = {.collective = collective_of(op->kind),
				       .rank = transport->rank,
				       .size = transport->size,
				       .root = op->kind == TRACE_BROADCAST ? op->peer : 0,
				       .in_place = op->send == op->recv};
	/* What a rank that is not root passes as send is of no interest, and need not be the same on
	 * all ranks: all run the plan for the buffer they receive into. */
	if (op->kind == TRACE_BROADCAST && op->peer != transport->rank)
		request.in_place = true;
	request.algorithm = plan_choose(request.collective, op->bytes, TRANSPORT_INLINE_BYTES,
					transport->size, engine->wanted);
	op->plan = find_plan(engine, &request);
	if (!op->plan) {
		op->status = LS_INTERNAL;
		return;
	}
	op->signature = signature_of(op);
	trace_plan(engine->trace, op->record, op->plan->plan.algorithm,
		   (uint16_t)op->plan->plan.step_count);
	(void)engine_window_stage(engine, op);
}

/* My slot for this collective still holds what I published K collectives ago. It is free once every
 * rank has entered a later one than that, and so has finished with it. */
static enum engine_progress await_slot(struct engine *engine, struct engine_op *op)
{
	const struct transport *transport = engine->transport;
	if (op->seq < TRANSPORT_ENTRIES)
		return ENGINE_DONE;
	uint64_t need = op->seq - TRANSPORT_ENTRIES + 1;
	if (engine->entered_by_all >= need)
		return ENGINE_DONE;
	op->word_count = 0;
	for (int q = 0; q < transport->size; q++) {
		if (q == transport->rank)
			continue;
		const _Atomic uint64_t *signal = &transport_entry(transport, q, need)->signal;
		uint64_t value = transport_signal(need, 0);
		if (atomic_load_explicit(signal, memory_order_acquire) < value)
			transport_await(transport, q, signal, value, q,
					&op->words[op->word_count++]);
	}
	if (op->word_count > 0)
		return ENGINE_BLOCKED;
	engine->entered_by_all = need;
	return ENGINE_DONE;
}

/* Steps of a 64-bit hash that changes with every bit of both operands (the finaliser of MurmurHash3). */
static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash ^= value;
	hash = (hash ^ hash >> 33) * UINT64_C(0xff51afd7ed558ccd);
	hash = (hash ^ hash >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
	return hash ^ hash >> 33;
}

static void publish_entry(struct engine *engine, struct engine_op *op)
{
	struct transport *transport = engine->transport;
	struct transport_entry *entry = transport_entry(transport, transport->rank, op->seq);
	entry->signature = op->signature;
	entry->count = op->count;
	entry->history = op->history = engine->history;
	engine->history = mix(mix(engine->history, op->signature), op->count);
	entry->record = (uint32_t)op->record;
	entry->window = TRANSPORT_WINDOW_NONE;
	if (op->plan->plan.algorithm == PLAN_SLOT && op->bytes > 0 && op->send) {
		entry->window = TRANSPORT_WINDOW_INLINE;
		memcpy(entry->payload, op->send, op->bytes);
	} else if (op->plan->input_window || op->plan->output_window) {
		entry->window = TRANSPORT_WINDOW_ARENA;
		entry->input = op->input_offset;
		entry->output = op->output_offset;
	}
	wait_store(&entry->signal, transport_signal(op->seq, 0));
	transport_wake_all(transport);
}

/* Long messages of this operation that have not been taken yet. */
static enum engine_progress drain(struct engine *engine, struct engine_op *op)
{
	op->word_count = 0;
	for (uint64_t left = op->sent; left; left &= left - 1)
		if (engine_step_taken(engine, op, __builtin_ctzll(left)) == ENGINE_FAILED)
			return ENGINE_FAILED;
	return op->word_count ? ENGINE_BLOCKED : ENGINE_DONE;
}

static enum engine_progress run_steps(struct engine *engine, struct engine_op *op)
{
	const struct plan *plan = &op->plan->plan;
	while (op->step < plan->step_count) {
		enum engine_progress progress = engine_step_run(engine, op, &plan->steps[op->step]);
		if (progress != ENGINE_DONE)
			return progress;
		op->step++;
		trace_step(engine->trace, op->record, op->step);
	}
	return ENGINE_DONE;
}

static void leave(struct engine *engine, struct engine_op *op)
{
	struct transport *transport = engine->transport;
	atomic_store_explicit(&transport_member(transport, transport->rank)->finished, op->seq,
			      memory_order_release);
	engine_window_deliver(op);
	engine_window_release(engine, op, false);
	op->stage = ENGINE_OVER;
}

enum engine_progress engine_advance(struct engine *engine, struct engine_op *op)
{
	enum engine_progress progress = ENGINE_DONE;
	if (op->status != LS_OK)
		return ENGINE_FAILED;
	if (!engine_is_collective(op->kind))
		return engine_point_advance(engine, op);
	if (op->stage == ENGINE_ENTER) {
		progress = await_slot(engine, op);
		if (progress != ENGINE_DONE)
			return progress;
		publish_entry(engine, op);
		op->stage = ENGINE_STEPS;
		/* A rank that has failed first sets the cause and then looks who has entered; I have
		 * entered first and then look at the cause. So it waits for me, or I stop here. */
		if (atomic_load_explicit(engine->cause, memory_order_seq_cst) != 0)
			return engine_fail(op, LS_ABORTED, -1);
	}
	if (op->stage == ENGINE_STEPS) {
		progress = run_steps(engine, op);
		if (progress != ENGINE_DONE)
			return progress;
		op->stage = ENGINE_DRAIN;
	}
	if (op->stage == ENGINE_DRAIN) {
		progress = drain(engine, op);
		if (progress != ENGINE_DONE)
			return progress;
		if (engine_cause_is_set(engine) && !engine_window_is_whole(engine, op))
			return engine_fail(op, LS_ABORTED, -1);
		leave(engine, op);
	}
	return ENGINE_DONE;
}

/* Peers that have entered this collective and have not said that they are out of it. */
static int still_inside(struct engine *engine, struct engine_op *op, uint64_t gone)
{
	const struct transport *transport = engine->transport;
	op->word_count = 0;
	for (int q = 0; q < transport->size; q++) {
		if (q == transport->rank || gone >> q & 1)
			continue;
		const _Atomic uint64_t *signal = &transport_entry(transport, q, op->seq)->signal;
		const _Atomic uint64_t *finished = &transport_member(transport, q)->finished;
		if (atomic_load_explicit(signal, memory_order_seq_cst) < transport_signal(op->seq, 0))
			continue;
		if (atomic_load_explicit(finished, memory_order_acquire) < op->seq)
			transport_await(transport, q, finished, op->seq, q,
					&op->words[op->word_count++]);
	}
	return op->word_count;
}

enum engine_progress engine_abandon(struct engine *engine, struct engine_op *op, uint64_t gone,
				    bool force)
{
	if (op->stage == ENGINE_OVER)
		return ENGINE_DONE;
	if (!engine_is_collective(op->kind))
		return engine_point_abandon(engine, op, gone, force);
	struct transport *transport = engine->transport;
	bool shown = op->plan && (op->plan->input_window || op->plan->output_window);
	if (op->stage != ENGINE_ENTER) {
		wait_store(&transport_member(transport, transport->rank)->finished, op->seq);
		transport_wake_all(transport);
		if (shown && still_inside(engine, op, gone) > 0 && !force)
			return ENGINE_BLOCKED;
	}
	bool lost = op->stage != ENGINE_ENTER && shown && op->word_count > 0;
	bool safe = !lost || engine_window_detach(engine, op);
	engine_window_release(engine, op, lost);
	op->stage = ENGINE_OVER;
	return safe ? ENGINE_DONE : ENGINE_FAILED;
}
