/* SPDX-License-Identifier: BSD-3-Clause
 * How a record is written when its operation begins: inline, for the calls of which each
 * instruction counts. Others call trace_begin and trace_add. Takes no lock: a thread claims a
 * record with one compare-and-swap on its sequence lock, so that two threads never write one
 * record, however far apart their indices are. As long as only one thread begins records, plain
 * stores suffice (base/bias.h). */
#ifndef TRACE_TRACE_WRITE_H
#define TRACE_TRACE_WRITE_H

#include "base/clock.h"
#include "base/seqlock.h"
#include "trace/trace.h"

enum {
	TRACE_END_WORD = offsetof(struct trace_record, end_ticks) / 8,
	TRACE_STATE_WORD = offsetof(struct trace_record, state) / 8,
	TRACE_PEER_WORD = offsetof(struct trace_record, peer) / 8,
};
_Static_assert(offsetof(struct trace_record, label) % 8 == 0 &&
		       offsetof(struct trace_record, peer) % 8 == 0 &&
		       offsetof(struct trace_record, tid) % 8 == 0 &&
		       offsetof(struct trace_record, state) % 8 == 0 &&
		       offsetof(struct trace_record, shape) % 8 == 0,
	       "a record is stored word by word");

/* The word that changes while an operation runs, as a word and as what it means. */
union trace_state_word {
	uint64_t word;
	struct {
		uint16_t state, status, algorithm, step_count;
	} field;
};

static inline _Atomic uint64_t *trace_record_word(struct trace_slot *slot, int word)
{
	return (_Atomic uint64_t *)&slot->record + word;
}

/* For trace_enter_alone: gives the thread the bias, or takes it from its owner. */
_Atomic uint32_t *trace_enter_alone_slowly(struct trace *trace);
/* Not NULL: the caller is the only thread that begins records, until bias_leave. NULL: there is no
 * such thread from now on. A thread that comes during a revocation waits for the end of that. */
static inline _Atomic uint32_t *trace_enter_alone(struct trace *trace)
{
	_Atomic uint32_t *inside = bias_enter(&trace->writer);
	if (__builtin_expect(!inside && bias_has_owner(&trace->writer), 0))
		inside = trace_enter_alone_slowly(trace);
	return inside;
}

/* Whether the slot is free: it has no running operation, and no newer one. A thread that is
 * preempted after it took its number may be overtaken by a whole lap of others: 1024 short messages
 * take less than a time slice. */
static inline bool trace_slot_is_free(struct trace_slot *slot, uint64_t index)
{
	union trace_state_word now = {
		.word = atomic_load_explicit(trace_record_word(slot, TRACE_STATE_WORD),
					     memory_order_acquire)};
	return now.field.state != TRACE_RUNNING &&
	       atomic_load_explicit(trace_record_word(slot, 0), memory_order_acquire) <= index;
}

/* Makes the epoch odd if the record is free and nobody else writes it. Between the look and the
 * swap nothing can change unseen, for every change of a record moves the epoch. Even if no other
 * thread begins records, another thread may still be ending this one. */
static inline bool trace_claim_slot(struct trace_slot *slot, uint64_t index, bool alone)
{
	uint32_t before = atomic_load_explicit(&slot->epoch, memory_order_acquire);
	if (!trace_slot_is_free(slot, index))
		return false;
	uint32_t epoch = atomic_load_explicit(&slot->epoch, memory_order_acquire);
	if (epoch & 1u || epoch != before)
		return false;
	if (!alone)
		return atomic_compare_exchange_strong_explicit(
			&slot->epoch, &epoch, epoch + 1, memory_order_acquire, memory_order_relaxed);
	atomic_store_explicit(&slot->epoch, epoch + 1, memory_order_relaxed);
	return true;
}

/* Two halves of a word in their order in memory, made in a register: a record that is written field
 * by field to the stack and copied from there word by word stalls the loads, a third of the whole
 * cost. */
static inline uint64_t trace_word_of(uint32_t first, uint32_t second)
{
	bool little = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
	return little ? first | (uint64_t)second << 32 : second | (uint64_t)first << 32;
}

/* Kind, dtype and op in a register: see trace_word_of. */
static inline uint32_t trace_half_of(uint16_t kind, uint8_t dtype, uint8_t reduce_op)
{
	bool little = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
	return little ? kind | (uint32_t)dtype << 16 | (uint32_t)reduce_op << 24
		      : (uint32_t)kind << 16 | (uint32_t)dtype << 8 | reduce_op;
}

/* Release, as in seqlock_store: a reader that sees this word also sees the odd epoch that was
 * stored before. */
#define TRACE_STORE(slot, field, value)                                                          \
	atomic_store_explicit(trace_record_word(slot, offsetof(struct trace_record, field) / 8), \
			      value, memory_order_release)

/* Reserved fields stay zero. */
__attribute__((always_inline)) static inline void trace_store_all(struct trace_slot *slot,
								  uint64_t index,
								  const struct trace_begin *begin,
								  uint64_t begin_ticks,
								  uint64_t end_ticks)
{
	const union trace_state_word now = {.field = {.state = end_ticks ? TRACE_DONE : TRACE_RUNNING,
						      .algorithm = begin->algorithm,
						      .step_count = begin->step_count}};
	atomic_store_explicit(&slot->step, 0, memory_order_release);
	TRACE_STORE(slot, index, index);
	TRACE_STORE(slot, seq, begin->seq);
	TRACE_STORE(slot, count, begin->count);
	TRACE_STORE(slot, begin_ticks, begin_ticks);
	TRACE_STORE(slot, end_ticks, end_ticks);
	TRACE_STORE(slot, site, begin->site);
	TRACE_STORE(slot, label, trace_word_of(begin->label, begin->group));
	TRACE_STORE(slot, peer, trace_word_of((uint32_t)begin->peer, (uint32_t)begin->tag));
	TRACE_STORE(slot, tid,
		    trace_word_of(trace_thread_id(),
				  trace_half_of(begin->kind, begin->dtype, begin->reduce_op)));
	TRACE_STORE(slot, state, now.word);
	TRACE_STORE(slot, shape, begin->shape);
	TRACE_STORE(slot, wildcards, trace_word_of(begin->wildcards, begin->stream));
	if (begin->stream) {
		TRACE_STORE(slot, behind, 0);
		TRACE_STORE(slot, follows, 0);
	}
}

/* The ring is longer than the nearest caches. So this fetches the next record before it is needed,
 * as a locked instruction would wait for the stores to it. */
static inline void trace_fetch_next(const struct trace *trace, uint64_t index)
{
	const char *next = (const char *)&trace->ring[(index + 1) & trace->mask];
	__builtin_prefetch(next, 1);
	__builtin_prefetch(next + 64, 1);
}

static inline uint64_t trace_reserve_index(struct trace *trace, bool alone)
{
	_Atomic uint64_t *newest = &trace->header->newest;
	if (!alone)
		return 1 + atomic_fetch_add_explicit(newest, 1, memory_order_relaxed);
	uint64_t index = 1 + atomic_load_explicit(newest, memory_order_relaxed);
	atomic_store_explicit(newest, index, memory_order_relaxed);
	return index;
}

/* As trace_reserve. */
static inline uint64_t trace_reserve_inline(struct trace *trace)
{
	_Atomic uint32_t *alone = trace_enter_alone(trace);
	uint64_t index = trace_reserve_index(trace, alone);
	if (alone)
		bias_leave(alone);
	return index;
}

/* Stores the whole record; false if its slot is not free. */
__attribute__((always_inline)) static inline bool trace_add_record(struct trace *trace,
								   uint64_t index,
								   const struct trace_begin *begin,
								   bool ends, bool alone)
{
	struct trace_slot *slot = &trace->ring[index & trace->mask];
	if (!trace_claim_slot(slot, index, alone))
		return false;
	uint64_t ticks = clock_ticks();
	trace_store_all(slot, index, begin, ticks, ends ? ticks : 0);
	seqlock_end(&slot->epoch);
	trace_fetch_next(trace, index);
	return true;
}

/* As trace_begin. */
__attribute__((always_inline)) static inline uint64_t trace_begin_inline(
	struct trace *trace, const struct trace_begin *begin)
{
	_Atomic uint32_t *alone = trace_enter_alone(trace);
	bool added = false;
	uint64_t index = 0;
	for (uint64_t tries = 0; tries <= trace->mask && !added; tries++) {
		index = trace_reserve_index(trace, alone);
		added = trace_add_record(trace, index, begin, false, alone);
	}
	if (alone)
		bias_leave(alone);
	return added ? index : 0;
}

/* As trace_add. */
__attribute__((always_inline)) static inline void trace_add_inline(struct trace *trace,
								   uint64_t index,
								   const struct trace_begin *begin)
{
	_Atomic uint32_t *alone = trace_enter_alone(trace);
	bool added = trace_add_record(trace, index, begin, true, alone);
	if (alone)
		bias_leave(alone);
	if (__builtin_expect(!added, 0)) {
		/* A copy: without its address the compiler keeps the fields in registers. */
		const struct trace_begin again = *begin;
		trace_end(trace, trace_begin(trace, &again), LS_OK);
	}
}

/* As trace_end, for one of several operations that end together: the caller reads the clock once
 * for all of them. */
void trace_end_at(struct trace *trace, uint64_t index, ls_status status, uint64_t ticks);

#endif
