/* SPDX-License-Identifier: BSD-3-Clause
 * Records operations. Takes no lock: a thread claims a record with one compare-and-swap on its
 * sequence lock, so that two threads never write one record, however far apart their indices are.
 * As long as only one thread begins records, plain stores suffice (base/bias.h). */
#include "trace/trace.h"

#include <string.h>
#include <unistd.h>

#include "base/seqlock.h"

enum {
	END_WORD = offsetof(struct trace_record, end_ticks) / 8,
	STATE_WORD = offsetof(struct trace_record, state) / 8,
	PEER_WORD = offsetof(struct trace_record, peer) / 8,
};
_Static_assert(offsetof(struct trace_record, label) % 8 == 0 &&
		       offsetof(struct trace_record, peer) % 8 == 0 &&
		       offsetof(struct trace_record, tid) % 8 == 0 &&
		       offsetof(struct trace_record, state) % 8 == 0 &&
		       offsetof(struct trace_record, shape) % 8 == 0,
	       "a record is stored word by word");

/* The word that changes while an operation runs, as a word and as what it means. */
union state_word {
	uint64_t word;
	struct {
		uint16_t state, status, algorithm, step_count;
	} field;
};

/* A cache of a constant, not state: the system call would cost more than the whole record. */
_Thread_local uint32_t trace_thread;

uint32_t trace_thread_first(void)
{
	trace_thread = (uint32_t)gettid();
	return trace_thread;
}

static _Atomic uint64_t *record_word(struct trace_slot *slot, int word)
{
	return (_Atomic uint64_t *)&slot->record + word;
}

/* The first thread that comes here is the owner: a thread that only opens the group begins no
 * record. */
__attribute__((noinline, cold)) static _Atomic uint32_t *enter_alone_slowly(struct trace *trace)
{
	lock_trace_acquire(&trace->lock);
	if (bias_is_offered(&trace->writer))
		bias_give(&trace->writer);
	else if (bias_has_owner(&trace->writer))
		bias_revoke(&trace->writer);
	lock_trace_release(&trace->lock);
	return bias_enter(&trace->writer);
}

/* Not NULL: the caller is the only thread that begins records, until bias_leave. NULL: there is no
 * such thread from now on. A thread that comes during a revocation waits for the end of that. */
static inline _Atomic uint32_t *enter_alone(struct trace *trace)
{
	_Atomic uint32_t *inside = bias_enter(&trace->writer);
	if (__builtin_expect(!inside && bias_has_owner(&trace->writer), 0))
		inside = enter_alone_slowly(trace);
	return inside;
}

/* Whether the slot is free: it has no running operation, and no newer one. A thread that is
 * preempted after it took its number may be overtaken by a whole lap of others: 1024 short messages
 * take less than a time slice. */
static bool is_free(struct trace_slot *slot, uint64_t index)
{
	union state_word now = {
		.word = atomic_load_explicit(record_word(slot, STATE_WORD), memory_order_acquire)};
	return now.field.state != TRACE_RUNNING &&
	       atomic_load_explicit(record_word(slot, 0), memory_order_acquire) <= index;
}

/* Makes the epoch odd if the record is free and nobody else writes it. Between the look and the
 * swap nothing can change unseen, for every change of a record moves the epoch. Even if no other
 * thread begins records, another thread may still be ending this one. */
static bool claim_slot(struct trace_slot *slot, uint64_t index, bool alone)
{
	uint32_t before = atomic_load_explicit(&slot->epoch, memory_order_acquire);
	if (!is_free(slot, index))
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
static uint64_t word_of(uint32_t first, uint32_t second)
{
	bool little = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
	return little ? first | (uint64_t)second << 32 : second | (uint64_t)first << 32;
}

static uint32_t half_of(uint16_t kind, uint8_t dtype, uint8_t reduce_op)
{
	struct {
		uint16_t kind;
		uint8_t dtype, reduce_op;
	} half = {kind, dtype, reduce_op};
	uint32_t word;
	memcpy(&word, &half, sizeof word);
	return word;
}

/* Release, as in seqlock_store: a reader that sees this word also sees the odd epoch that was
 * stored before. */
#define STORE(slot, field, value)                                                                 \
	atomic_store_explicit(record_word(slot, offsetof(struct trace_record, field) / 8), value, \
			      memory_order_release)

/* Reserved fields stay zero. */
static void store_all(struct trace_slot *slot, uint64_t index, const struct trace_begin *begin,
		      uint64_t begin_ticks, uint64_t end_ticks)
{
	const union state_word now = {.field = {.state = end_ticks ? TRACE_DONE : TRACE_RUNNING,
						.algorithm = begin->algorithm,
						.step_count = begin->step_count}};
	atomic_store_explicit(&slot->step, 0, memory_order_release);
	STORE(slot, index, index);
	STORE(slot, seq, begin->seq);
	STORE(slot, count, begin->count);
	STORE(slot, begin_ticks, begin_ticks);
	STORE(slot, end_ticks, end_ticks);
	STORE(slot, site, begin->site);
	STORE(slot, label, word_of(begin->label, begin->group));
	STORE(slot, peer, word_of((uint32_t)begin->peer, (uint32_t)begin->tag));
	STORE(slot, tid,
	      word_of(trace_thread_id(), half_of(begin->kind, begin->dtype, begin->reduce_op)));
	STORE(slot, state, now.word);
	STORE(slot, shape, begin->shape);
	STORE(slot, wildcards, word_of(begin->wildcards, begin->stream));
}

/* The ring is longer than the nearest caches. So this fetches the next record before it is needed,
 * as a locked instruction would wait for the stores to it. */
static void fetch_next(const struct trace *trace, uint64_t index)
{
	const char *next = (const char *)&trace->ring[(index + 1) & trace->mask];
	__builtin_prefetch(next, 1);
	__builtin_prefetch(next + 64, 1);
}

static uint64_t reserve_index(struct trace *trace, bool alone)
{
	_Atomic uint64_t *newest = &trace->header->newest;
	if (!alone)
		return 1 + atomic_fetch_add_explicit(newest, 1, memory_order_relaxed);
	uint64_t index = 1 + atomic_load_explicit(newest, memory_order_relaxed);
	atomic_store_explicit(newest, index, memory_order_relaxed);
	return index;
}

uint64_t trace_reserve(struct trace *trace)
{
	_Atomic uint32_t *alone = enter_alone(trace);
	uint64_t index = reserve_index(trace, alone);
	if (alone)
		bias_leave(alone);
	return index;
}

/* Stores the whole record; false if its slot is not free. */
static bool add_record(struct trace *trace, uint64_t index, const struct trace_begin *begin,
		       bool ends, bool alone)
{
	struct trace_slot *slot = &trace->ring[index & trace->mask];
	if (!claim_slot(slot, index, alone))
		return false;
	uint64_t ticks = clock_ticks();
	store_all(slot, index, begin, ticks, ends ? ticks : 0);
	seqlock_end(&slot->epoch);
	fetch_next(trace, index);
	return true;
}

uint64_t trace_begin(struct trace *trace, const struct trace_begin *begin)
{
	_Atomic uint32_t *alone = enter_alone(trace);
	bool added = false;
	uint64_t index = 0;
	for (uint64_t tries = 0; tries <= trace->mask && !added; tries++) {
		index = reserve_index(trace, alone);
		added = add_record(trace, index, begin, false, alone);
	}
	if (alone)
		bias_leave(alone);
	return added ? index : 0;
}

void trace_add(struct trace *trace, uint64_t index, const struct trace_begin *begin)
{
	_Atomic uint32_t *alone = enter_alone(trace);
	bool added = add_record(trace, index, begin, true, alone);
	if (alone)
		bias_leave(alone);
	if (!added)
		trace_end(trace, trace_begin(trace, begin), LS_OK);
}

/* The slot of an operation that runs; NULL if it was not recorded. Until trace_end nobody else
 * writes to it. */
static struct trace_slot *running_slot(struct trace *trace, uint64_t index, union state_word *now)
{
	if (!index)
		return NULL;
	struct trace_slot *slot = &trace->ring[index & trace->mask];
	if (atomic_load_explicit(record_word(slot, 0), memory_order_relaxed) != index)
		return NULL;
	now->word = atomic_load_explicit(record_word(slot, STATE_WORD), memory_order_relaxed);
	return now->field.state == TRACE_RUNNING ? slot : NULL;
}

void trace_end(struct trace *trace, uint64_t index, ls_status status)
{
	union state_word now;
	struct trace_slot *slot = running_slot(trace, index, &now);
	if (!slot)
		return;
	uint64_t ticks = clock_ticks();
	now.field.state = status == LS_OK ? TRACE_DONE : TRACE_FAILED;
	now.field.status = (uint16_t)status;
	seqlock_begin(&slot->epoch);
	atomic_store_explicit(record_word(slot, END_WORD), ticks, memory_order_release);
	atomic_store_explicit(record_word(slot, STATE_WORD), now.word, memory_order_release);
	seqlock_end(&slot->epoch);
}

void trace_plan(struct trace *trace, uint64_t index, uint16_t algorithm, uint16_t step_count)
{
	union state_word now;
	struct trace_slot *slot = running_slot(trace, index, &now);
	if (!slot)
		return;
	/* One word, so it cannot be torn, and the epoch may stay. */
	now.field.algorithm = algorithm;
	now.field.step_count = step_count;
	atomic_store_explicit(record_word(slot, STATE_WORD), now.word, memory_order_release);
}

void trace_stream(struct trace *trace, uint64_t index, enum trace_stream seen)
{
	union state_word now;
	struct trace_slot *slot = running_slot(trace, index, &now);
	/* One word, as in trace_plan; and several threads add bits to it. */
	if (slot)
		atomic_fetch_or_explicit(
			record_word(slot, offsetof(struct trace_record, wildcards) / 8),
			word_of(0, (uint32_t)seen), memory_order_release);
}

void trace_matched(struct trace *trace, uint64_t index, int peer, int tag)
{
	union state_word now;
	struct trace_slot *slot = running_slot(trace, index, &now);
	union {
		struct {
			int32_t peer, tag;
		} field;
		uint64_t word;
	} who = {.field = {peer, tag}};
	_Static_assert(PEER_WORD * 8 == offsetof(struct trace_record, peer) &&
			       offsetof(struct trace_record, tag) ==
				       offsetof(struct trace_record, peer) + 4,
		       "one word");
	if (slot)
		atomic_store_explicit(record_word(slot, PEER_WORD), who.word, memory_order_release);
}
