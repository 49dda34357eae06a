/* SPDX-License-Identifier: BSD-3-Clause
 * Short collectives: payloads travel in the entries (24 bytes) or in pages beside them (16 KiB),
 * so a rank waits for one word of each member. The engine keeps what it has worked out for a call,
 * so that the next call with the same kind, count, dtype, op and root publishes its entry at once.
 * The caller has taken the group's lane, and has checked the call's arguments:
 *
 *   find      NULL unless the call repeats the last one of its kind and its entry is free; polls
 *             for a moment for members that are behind
 *   publish   stores the entry, which cannot be taken back, and wakes sleeping members
 *   prefetch  of the pages for the next payload, while the others' entries are on their way
 *   poll      looks for the other members for a moment: false if one is missing or differs, or the
 *             group fails or is closing. Then engine_inline_resume makes a general operation of it
 *   finish    computes the result, and leaves */
#ifndef ENGINE_INLINE_H
#define ENGINE_INLINE_H

#include <string.h>

#include "base/prefetch.h"
#include "engine/engine.h"
#include "engine/payload.h"

/* The entry, or the pages of the payload, may still be in use. Polls for a moment for the members
 * that are behind; true once both are free. In inline.c. */
bool engine_inline_make_room(struct engine *engine, const struct engine_inline_plan *plan,
			     const struct waiter *waiter, uint64_t seq);

/* NULL: the call has to take the general path. */
static inline const struct engine_inline_plan *engine_inline_find(struct engine *engine,
								  const struct op_call *call,
								  const struct waiter *waiter,
								  uint64_t seq)
{
	const struct engine_memo *memo = &engine->memos[call->kind];
	const struct engine_inline_plan *plan = &memo->inline_plan;
	bool alike = memo->plan && plan->usable && memo->count == call->count &&
		     memo->dtype == call->dtype && memo->reduce == call->reduce &&
		     memo->peer == call->peer && memo->has_send == (call->send.address != NULL) &&
		     memo->has_recv == (call->recv.address != NULL);
	bool is_free = seq < engine->entered_by_all + TRANSPORT_ENTRIES &&
		       (plan->window != TRANSPORT_WINDOW_INLINE ||
			engine_payload_needs(engine, plan->input_bytes) <= engine->entered_by_all);
	return alike && (is_free || engine_inline_make_room(engine, plan, waiter, seq)) ? plan
											: NULL;
}

/* The shortest payloads are one element: two moves, where a call of memcpy takes twenty. */
static inline void engine_inline_copy(void *to, const void *from, size_t bytes)
{
	if (bytes == sizeof(uint64_t))
		memcpy(to, from, sizeof(uint64_t));
	else if (bytes == sizeof(uint32_t))
		memcpy(to, from, sizeof(uint32_t));
	else if (bytes < KERNEL_LONG_COPY)
		memcpy(to, from, bytes);
	else
		kernel_copy(to, from, bytes, false);
}

/* Returns the history that the entry shows. */
static inline uint64_t engine_inline_publish(struct engine *engine,
					     const struct engine_inline_plan *plan,
					     const void *send, uint64_t seq)
{
	struct transport_team *team = engine->team;
	struct transport_entry *entry = transport_entry(team, team->rank, seq);
	uint64_t history = engine->history;
	/* Atomically, because a diagnosis may read these two meanwhile: transport_read_entered. */
	__atomic_store_n(&entry->signature, plan->signature, __ATOMIC_RELEASE);
	__atomic_store_n(&entry->count, plan->count, __ATOMIC_RELEASE);
	entry->history = history;
	entry->input_window = plan->window;
	entry->output_window = TRANSPORT_WINDOW_NONE;
	if (plan->window == TRANSPORT_WINDOW_ENTRY)
		engine_inline_copy(entry->tiny, send, plan->input_bytes);
	else if (plan->window == TRANSPORT_WINDOW_INLINE)
		engine_payload_put(engine, seq, send, plan->input_bytes);
	wait_store(&entry->signal, transport_signal(seq, 0));
	transport_notify_all(team);
	engine->history = engine_mix(engine_mix(history, plan->signature), plan->count);
	return history;
}

static inline void engine_inline_prefetch(const struct engine *engine,
					  const struct engine_inline_plan *plan)
{
	if (plan->window == TRANSPORT_WINDOW_INLINE)
		engine_payload_prefetch(engine, plan->input_bytes);
}

/* After a brief poll: whether member `rank` has entered the same collective. */
static inline bool engine_inline_is_there(const struct engine *engine,
					  const struct engine_inline_plan *plan,
					  const struct waiter *waiter, int rank, uint64_t seq,
					  uint64_t history)
{
	const struct transport_entry *entry = transport_entry(engine->team, rank, seq);
	uint64_t signal = transport_signal(seq, 0);
	return wait_word_briefly(waiter, &entry->signal, signal) &&
	       transport_signal_is_of(atomic_load_explicit(&entry->signal, memory_order_relaxed),
				      seq) &&
	       entry->signature == plan->signature && entry->count == plan->count &&
	       entry->history == history;
}

bool engine_inline_poll_all(struct engine *engine, const struct engine_inline_plan *plan,
			    const struct waiter *waiter, uint64_t seq, uint64_t history);

static inline bool engine_inline_poll(struct engine *engine, const struct engine_inline_plan *plan,
				      const struct waiter *waiter, uint64_t seq, uint64_t history)
{
	const struct transport_area *mine = transport_area_of(engine->team, engine->team->rank);
	/* After my entry has been stored: as in the general path, a rank that fails or closes the
	 * group sees that I have entered, or I see that it does. */
	if (engine_has_failed(engine) || atomic_load(&mine->members_ended))
		return false;
	if (plan->source >= 0)
		return engine_inline_is_there(engine, plan, waiter, plan->source, seq, history);
	return plan->source == ENGINE_INLINE_NOBODY ||
	       engine_inline_poll_all(engine, plan, waiter, seq, history);
}

/* The result is in recv. */
void engine_inline_compute(const struct engine *engine, const struct engine_inline_plan *plan,
			   const void *send, void *recv, uint64_t seq);

/* For a root that receives: the others run ahead of it, so their next entry and payload are there
 * already. */
void engine_inline_prefetch_next(const struct engine *engine, const struct engine_inline_plan *plan,
				 uint64_t seq);

/* For a rank that receives from a root, which runs ahead: fetches what it needs of a later payload
 * of the root, if that is short. */
void engine_inline_prefetch_source(const struct engine *engine,
				   const struct engine_inline_plan *plan, uint64_t seq);

static inline void engine_inline_finish(struct engine *engine, const struct engine_inline_plan *plan,
					const void *send, void *recv, uint64_t seq)
{
	enum { LINES_AT_ONCE = 8 };
	struct transport_team *team = engine->team;
	if (plan->result != ENGINE_INLINE_NOTHING)
		engine_inline_compute(engine, plan, send, recv, seq);
	/* A root that sends runs ahead, so some of its next entries are there. It takes as long to
	 * fetch several as to fetch one. */
	if (plan->source >= 0 && seq % LINES_AT_ONCE == 0)
		for (uint64_t next = seq + 1; next <= seq + LINES_AT_ONCE; next++)
			__builtin_prefetch(transport_entry(team, plan->source, next));
	if (plan->source >= 0 && plan->peer_bytes > TRANSPORT_TINY_BYTES)
		engine_inline_prefetch_source(engine, plan, seq);
	if (plan->others_ahead)
		engine_inline_prefetch_next(engine, plan, seq);
	/* The entry that this rank stores next is prefetched, too. Where peers poll, only the next
	 * one: they would fetch a later one back. */
	bool polled = plan->source == ENGINE_INLINE_EVERYBODY && !plan->others_ahead;
	prefetch_for_store(transport_entry(team, team->rank, seq + (polled ? 1 : 4)));
	atomic_store_explicit(&transport_area_of(team, team->rank)->finished, seq,
			      memory_order_release);
}

/* The entry has been published, with this history: makes of `op`, whose call, seq and record are
 * set, what engine_submit and the publication would have made of it. In engine.c. */
void engine_inline_resume(struct engine *engine, struct op *op, struct op_workspace *workspace,
			  uint64_t history);

/* Fills memo->inline_plan from an operation whose plan is known. */
void engine_inline_learn(const struct engine *engine, const struct op *op,
			 struct engine_inline_plan *out);

#endif
