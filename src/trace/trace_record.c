/* SPDX-License-Identifier: BSD-3-Clause
 * Records operations: how a record ends, and what is noted in it meanwhile. */
#include "trace/trace_write.h"

#include <unistd.h>

/* A cache of a constant, not state: the system call would cost more than the whole record. */
_Thread_local uint32_t trace_thread;

uint32_t trace_thread_first(void)
{
	trace_thread = (uint32_t)gettid();
	return trace_thread;
}

/* The first thread that comes here is the owner: a thread that only opens the group begins no
 * record. */
__attribute__((noinline, cold)) _Atomic uint32_t *trace_enter_alone_slowly(struct trace *trace)
{
	lock_trace_acquire(&trace->lock);
	if (bias_is_offered(&trace->writer))
		bias_give(&trace->writer);
	else if (bias_has_owner(&trace->writer))
		bias_revoke(&trace->writer);
	lock_trace_release(&trace->lock);
	return bias_enter(&trace->writer);
}

uint64_t trace_reserve(struct trace *trace)
{
	return trace_reserve_inline(trace);
}

uint64_t trace_begin(struct trace *trace, const struct trace_begin *begin)
{
	return trace_begin_inline(trace, begin);
}

void trace_add(struct trace *trace, uint64_t index, const struct trace_begin *begin)
{
	trace_add_inline(trace, index, begin);
}

/* The slot of an operation that runs; NULL if it was not recorded. Until trace_end nobody else
 * writes to it. */
static struct trace_slot *running_slot(struct trace *trace, uint64_t index,
				       union trace_state_word *now)
{
	if (!index)
		return NULL;
	struct trace_slot *slot = &trace->ring[index & trace->mask];
	if (atomic_load_explicit(trace_record_word(slot, 0), memory_order_relaxed) != index)
		return NULL;
	now->word = atomic_load_explicit(trace_record_word(slot, TRACE_STATE_WORD),
					 memory_order_relaxed);
	return now->field.state == TRACE_RUNNING ? slot : NULL;
}

void trace_end(struct trace *trace, uint64_t index, ls_status status)
{
	trace_end_at(trace, index, status, clock_ticks());
}

void trace_end_at(struct trace *trace, uint64_t index, ls_status status, uint64_t ticks)
{
	union trace_state_word now;
	struct trace_slot *slot = running_slot(trace, index, &now);
	if (!slot)
		return;
	now.field.state = status == LS_OK ? TRACE_DONE : TRACE_FAILED;
	now.field.status = (uint16_t)status;
	seqlock_begin(&slot->epoch);
	atomic_store_explicit(trace_record_word(slot, TRACE_END_WORD), ticks, memory_order_release);
	atomic_store_explicit(trace_record_word(slot, TRACE_STATE_WORD), now.word,
			      memory_order_release);
	seqlock_end(&slot->epoch);
}

void trace_plan(struct trace *trace, uint64_t index, uint16_t algorithm, uint16_t step_count)
{
	union trace_state_word now;
	struct trace_slot *slot = running_slot(trace, index, &now);
	if (!slot)
		return;
	/* One word, so it cannot be torn, and the epoch may stay. */
	now.field.algorithm = algorithm;
	now.field.step_count = step_count;
	atomic_store_explicit(trace_record_word(slot, TRACE_STATE_WORD), now.word,
			      memory_order_release);
}

void trace_stream(struct trace *trace, uint64_t index, enum trace_stream seen)
{
	union trace_state_word now;
	struct trace_slot *slot = running_slot(trace, index, &now);
	/* One word, as in trace_plan; and several threads add bits to it. */
	if (slot)
		atomic_fetch_or_explicit(
			trace_record_word(slot, offsetof(struct trace_record, wildcards) / 8),
			trace_word_of(0, (uint32_t)seen), memory_order_release);
}

void trace_behind(struct trace *trace, uint64_t index, uint64_t behind, uint64_t follows)
{
	union trace_state_word now;
	struct trace_slot *slot = running_slot(trace, index, &now);
	/* Whole words, as in trace_plan. */
	if (slot) {
		TRACE_STORE(slot, behind, behind);
		TRACE_STORE(slot, follows, follows);
	}
}

void trace_matched(struct trace *trace, uint64_t index, int peer, int tag)
{
	union trace_state_word now;
	struct trace_slot *slot = running_slot(trace, index, &now);
	union {
		struct {
			int32_t peer, tag;
		} field;
		uint64_t word;
	} who = {.field = {peer, tag}};
	_Static_assert(TRACE_PEER_WORD * 8 == offsetof(struct trace_record, peer) &&
			       offsetof(struct trace_record, tag) ==
				       offsetof(struct trace_record, peer) + 4,
		       "one word");
	if (slot)
		atomic_store_explicit(trace_record_word(slot, TRACE_PEER_WORD), who.word,
				      memory_order_release);
}
