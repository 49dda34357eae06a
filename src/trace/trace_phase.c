/* SPDX-License-Identifier: BSD-3-Clause
 * Phases of a training step, kept where anybody can read them. A thread's time belongs to its
 * innermost phase only, so the times of all phases add up; a clock that stops while an inner phase
 * runs needs one time stamp at each begin and end. Each thread writes its own stack; all threads
 * add to the totals. */
#include <string.h>

#include "base/fork.h"
#include "base/seqlock.h"
#include "base/text.h"
#include "trace/trace.h"

_Static_assert(TRACE_PHASE_DEPTH == sizeof(uint64_t),
	       "the stack is one word, a byte for each phase");
_Static_assert(TRACE_PHASE_MAX < 255, "a place and one more fit into a byte");

static int depth_of(uint64_t stack)
{
	return stack ? (71 - __builtin_clzll(stack)) / 8 : 0;
}

/* 1 + the place of the innermost phase; 0: none. */
static uint32_t top_of(uint64_t stack)
{
	return stack ? (uint32_t)(stack >> (8 * (depth_of(stack) - 1))) & 0xff : 0;
}

static void add_to(_Atomic uint64_t *total, uint64_t more)
{
	atomic_fetch_add_explicit(total, more, memory_order_release);
}

/* ---- names ---- */

/* Bytes of a name, 0 if it is not allowed. */
static uint32_t check_name(const char *name)
{
	uint32_t length = 0;
	for (; name[length]; length++) {
		unsigned char c = (unsigned char)name[length];
		bool part_is_empty = c == '/' && (length == 0 || name[length - 1] == '/');
		if (length == TRACE_PHASE_BYTES - 1 || c <= ' ' || c == 0x7f || part_is_empty)
			return 0;
	}
	return length && name[length - 1] != '/' ? length : 0;
}

static uint64_t hash_name(const char *name)
{
	uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
	for (int i = 0; i < TRACE_PHASE_BYTES && name[i]; i++)
		hash = (hash ^ (unsigned char)name[i]) * UINT64_C(1099511628211);
	return hash | 1;
}

/* The place of a name in the table, or that of the first free entry on the way; TRACE_PHASE_MAX:
 * neither. */
static uint32_t find_place(const struct trace_phase_table *phase_table, const char *name,
			   uint64_t hash)
{
	for (uint32_t i = 0; i < TRACE_PHASE_MAX; i++) {
		uint32_t place = ((uint32_t)(hash >> 1) + i) % TRACE_PHASE_MAX;
		const struct trace_phase *phase = &phase_table->phases[place];
		uint64_t there = atomic_load_explicit(&phase->hash, memory_order_acquire);
		if (!there || (there == hash && strcmp(phase->name, name) == 0))
			return place;
	}
	return TRACE_PHASE_MAX;
}

static enum trace_phase_answer add_name(struct trace *trace, const char *name, uint64_t hash,
					uint32_t *place)
{
	uint32_t length = check_name(name);
	if (!length)
		return TRACE_PHASE_BAD_NAME;
	lock_trace_acquire(&trace->lock);
	/* another thread may have added it meanwhile */
	*place = find_place(trace->phases, name, hash);
	if (*place < TRACE_PHASE_MAX) {
		struct trace_phase *phase = &trace->phases->phases[*place];
		if (!atomic_load_explicit(&phase->hash, memory_order_relaxed)) {
			memcpy(phase->name, name, length);
			phase->length = length;
			atomic_store_explicit(&phase->hash, hash, memory_order_release);
		}
	}
	lock_trace_release(&trace->lock);
	return *place < TRACE_PHASE_MAX ? TRACE_PHASE_DONE : TRACE_PHASE_MANY_NAMES;
}

static enum trace_phase_answer find_name(struct trace *trace, const char *name, uint32_t *place)
{
	uint64_t hash = hash_name(name);
	*place = find_place(trace->phases, name, hash);
	if (*place < TRACE_PHASE_MAX &&
	    atomic_load_explicit(&trace->phases->phases[*place].hash, memory_order_acquire))
		return TRACE_PHASE_DONE;
	return add_name(trace, name, hash, place);
}

/* ---- threads ---- */

/* The entry that thread `id` has, inside of a phase or not; NULL if it has none. Entries are never
 * empty again, so an empty one ends the search. */
static struct trace_phase_thread *find_thread(struct trace_phase_table *phase_table, uint32_t id)
{
	for (uint32_t i = 0; i < TRACE_PHASE_THREAD_MAX; i++) {
		struct trace_phase_thread *thread =
			&phase_table->threads[(id + i) % TRACE_PHASE_THREAD_MAX];
		uint32_t owner = atomic_load_explicit(&thread->owner, memory_order_acquire);
		if (owner / 2 == id)
			return thread;
		if (!owner)
			return NULL;
	}
	return NULL;
}

/* The stack of the calling thread `id`; 0 if the thread is in no phase. An entry that is not marked
 * as inside may become another thread's at any time. */
static uint64_t stack_of(const struct trace_phase_thread *thread, uint32_t id)
{
	if (!thread || atomic_load_explicit(&thread->owner, memory_order_relaxed) != 2 * id + 1)
		return 0;
	return atomic_load_explicit(&thread->stack, memory_order_relaxed);
}

static bool try_take_entry(struct trace_phase_thread *thread, uint32_t owner, uint32_t id)
{
	return atomic_compare_exchange_strong_explicit(&thread->owner, &owner, 2 * id + 1,
						       memory_order_acq_rel, memory_order_relaxed);
}

/* Makes an entry the thread's own: the one it has, a new one, or that of a thread that is in no
 * phase and has perhaps ended. NULL: there are too many threads in phases. */
static struct trace_phase_thread *take_entry(struct trace_phase_table *phase_table, uint32_t id)
{
	struct trace_phase_thread *mine = find_thread(phase_table, id);
	if (mine && try_take_entry(mine, 2 * id, id))
		return mine;
	for (int pass = 0; pass < 2; pass++) { /* entries that nobody has had go first */
		for (uint32_t i = 0; i < TRACE_PHASE_THREAD_MAX; i++) {
			struct trace_phase_thread *thread =
				&phase_table->threads[(id + i) % TRACE_PHASE_THREAD_MAX];
			uint32_t owner = atomic_load_explicit(&thread->owner, memory_order_relaxed);
			if ((pass == 0 ? owner == 0 : !(owner & 1)) &&
			    try_take_entry(thread, owner, id))
				return thread;
		}
	}
	return NULL;
}

/* ---- begin and end ---- */

/* Stops the clock of the innermost phase, if there is one, at `now`, and starts the clock of the
 * innermost phase of `stack`. */
static void change_stack(struct trace_phase_table *phase_table, struct trace_phase_thread *thread,
			 uint64_t now, uint64_t stack)
{
	uint32_t top = top_of(atomic_load_explicit(&thread->stack, memory_order_relaxed));
	uint64_t since = atomic_load_explicit(&thread->since_ticks, memory_order_relaxed);
	seqlock_begin(&thread->epoch);
	if (top && now > since)
		add_to(&phase_table->phases[top - 1].ticks, now - since);
	if (atomic_load_explicit(&thread->waited_ticks, memory_order_relaxed))
		add_to(top ? &phase_table->phases[top - 1].waited_ticks
			   : &phase_table->outside_ticks,
		       atomic_exchange_explicit(&thread->waited_ticks, 0, memory_order_release));
	atomic_store_explicit(&thread->since_ticks, now, memory_order_release);
	atomic_store_explicit(&thread->stack, stack, memory_order_release);
	seqlock_end(&thread->epoch);
}

enum trace_phase_answer trace_phase_begin(struct trace *trace, const char *name, const char **inside)
{
	*inside = NULL;
	if (trace->fork_generation != fork_generation())
		return TRACE_PHASE_FORKED;
	struct trace_phase_table *phase_table = trace->phases;
	uint32_t id = trace_thread_id();
	struct trace_phase_thread *thread = find_thread(phase_table, id);
	uint64_t stack = stack_of(thread, id);
	if (stack) {
		const struct trace_phase *top = &phase_table->phases[top_of(stack) - 1];
		*inside = top->name;
		if (strncmp(name, top->name, top->length) != 0 || name[top->length] != '/')
			return TRACE_PHASE_OUTSIDE;
		if (depth_of(stack) == TRACE_PHASE_DEPTH)
			return TRACE_PHASE_DEEP;
	}
	uint32_t place;
	enum trace_phase_answer answer = find_name(trace, name, &place);
	if (answer != TRACE_PHASE_DONE)
		return answer;
	if (!stack)
		thread = take_entry(phase_table, id);
	if (!thread)
		return TRACE_PHASE_MANY_THREADS;
	uint64_t now = clock_ticks();
	change_stack(phase_table, thread, now,
		     stack | (uint64_t)(place + 1) << (8 * depth_of(stack)));
	uint64_t first = atomic_load_explicit(&phase_table->first_ticks, memory_order_relaxed);
	if (!first)
		atomic_compare_exchange_strong_explicit(&phase_table->first_ticks, &first, now,
							memory_order_relaxed, memory_order_relaxed);
	return TRACE_PHASE_DONE;
}

enum trace_phase_answer trace_phase_end(struct trace *trace, const char *name, const char **inside)
{
	*inside = NULL;
	if (trace->fork_generation != fork_generation())
		return TRACE_PHASE_FORKED;
	struct trace_phase_table *phase_table = trace->phases;
	uint32_t id = trace_thread_id();
	struct trace_phase_thread *thread = find_thread(phase_table, id);
	uint64_t stack = stack_of(thread, id);
	if (!stack)
		return TRACE_PHASE_NOT_INSIDE;
	struct trace_phase *top = &phase_table->phases[top_of(stack) - 1];
	*inside = top->name;
	if (strcmp(name, top->name) != 0)
		return TRACE_PHASE_NOT_INSIDE;
	uint64_t now = clock_ticks();
	stack &= ~(UINT64_C(0xff) << (8 * (depth_of(stack) - 1)));
	change_stack(phase_table, thread, now, stack);
	add_to(&top->count, 1);
	atomic_store_explicit(&phase_table->last_ticks, now, memory_order_relaxed);
	if (!stack)
		atomic_store_explicit(&thread->owner, 2 * id, memory_order_release);
	return TRACE_PHASE_DONE;
}

void trace_waited_inside(struct trace *trace, uint64_t ticks)
{
	struct trace_phase_thread *thread = find_thread(trace->phases, trace_thread_id());
	if (thread) /* else this thread works for another one, which goes on meanwhile */
		add_to(&thread->waited_ticks, ticks);
}

/* ---- reading ---- */

/* All that changes in a phase table. */
struct copy {
	uint32_t epochs[TRACE_PHASE_THREAD_MAX];
	uint32_t owners[TRACE_PHASE_THREAD_MAX];
	uint64_t since[TRACE_PHASE_THREAD_MAX];
	uint64_t stacks[TRACE_PHASE_THREAD_MAX];
	uint64_t blocked[TRACE_PHASE_THREAD_MAX];
	uint64_t counts[TRACE_PHASE_MAX];
	uint64_t ticks[TRACE_PHASE_MAX];
	uint64_t waited[TRACE_PHASE_MAX];
};

#define LOAD(word) atomic_load_explicit(&(word), memory_order_acquire)

/* True if no thread has begun or ended a phase meanwhile. */
static bool copy_phase_table(const struct trace_phase_table *phase_table, struct copy *copy)
{
	for (int i = 0; i < TRACE_PHASE_THREAD_MAX; i++) {
		const struct trace_phase_thread *thread = &phase_table->threads[i];
		copy->epochs[i] = LOAD(thread->epoch);
		copy->owners[i] = LOAD(thread->owner);
		copy->since[i] = LOAD(thread->since_ticks);
		copy->stacks[i] = LOAD(thread->stack);
		copy->blocked[i] = LOAD(thread->waited_ticks);
	}
	for (int i = 0; i < TRACE_PHASE_MAX; i++) {
		copy->counts[i] = LOAD(phase_table->phases[i].count);
		copy->ticks[i] = LOAD(phase_table->phases[i].ticks);
		copy->waited[i] = LOAD(phase_table->phases[i].waited_ticks);
	}
	for (int i = 0; i < TRACE_PHASE_THREAD_MAX; i++)
		if (copy->epochs[i] & 1 || LOAD(phase_table->threads[i].epoch) != copy->epochs[i])
			return false;
	return true;
}

/* How long thread `id` has been blocked in an operation that still goes on. */
static uint64_t blocked_ns(const struct trace_view *view, uint32_t id, uint64_t now_ns)
{
	struct wait_slot_body wait;
	uint32_t epoch;
	for (int i = 0; i < WAIT_SLOT_MAX; i++) {
		if (!LOAD(view->wait_table->slots[i].taken) ||
		    !trace_read_slot(view, i, &wait, &epoch) || wait.tid != id)
			continue;
		bool blocked = wait.state == WAIT_WORDS || wait.state == WAIT_ANY_WORD ||
			       wait.state == WAIT_FDS;
		return blocked && wait.since_ns < now_ns ? now_ns - wait.since_ns : 0;
	}
	return 0;
}

static uint64_t to_ns(const struct clock_rate *rate, uint64_t ticks)
{
	double ns = (double)ticks * rate->ns_per_tick;
	return ns >= 0 && ns < 9e18 ? (uint64_t)ns : 0;
}

/* Adds what a thread has spent in its innermost phase so far. positions[place]: where that phase is
 * in *out. True if the thread is in a phase. */
static bool add_running(const struct trace_view *view, const struct copy *copy, int thread,
			const uint32_t *positions, uint64_t now_ns, struct trace_phases *out)
{
	uint32_t top = top_of(copy->stacks[thread]);
	if (!(copy->owners[thread] & 1) || !top || top > TRACE_PHASE_MAX ||
	    positions[top - 1] == TRACE_PHASE_MAX)
		return false;
	uint32_t position = positions[top - 1];
	uint64_t since_ns = clock_ticks_to_ns(&view->header->rate, copy->since[thread]);
	uint64_t ns = now_ns > since_ns ? now_ns - since_ns : 0;
	uint64_t over = to_ns(&view->header->rate, copy->blocked[thread]);
	uint64_t blocked = now_ns ? blocked_ns(view, copy->owners[thread] / 2, now_ns) : 0;
	over = over < ns ? over : ns;
	out->phases[position].running++;
	out->phases[position].ns += ns;
	out->phases[position].waited_ns += blocked < ns - over ? over + blocked : ns;
	return true;
}

static void copy_names(const struct trace_view *view, const struct copy *copy, uint32_t *positions,
		       struct trace_phases *out)
{
	const struct clock_rate *rate = &view->header->rate;
	for (uint32_t i = 0; i < TRACE_PHASE_MAX; i++) {
		const struct trace_phase *phase = &view->phases->phases[i];
		uint32_t at = out->count;
		char *name = out->phases[at].name;
		positions[i] = TRACE_PHASE_MAX;
		if (!LOAD(phase->hash))
			continue;
		memcpy(name, phase->name, TRACE_PHASE_BYTES);
		name[TRACE_PHASE_BYTES - 1] = 0;
		text_clean(name, false);
		if (!check_name(name))
			continue;
		out->phases[at].count = copy->counts[i];
		out->phases[at].ns = to_ns(rate, copy->ticks[i]);
		out->phases[at].waited_ns = to_ns(rate, copy->waited[i]);
		positions[i] = out->count++;
	}
}

void trace_read_phases(const struct trace_view *view, uint64_t now_ns, struct trace_phases *out)
{
	const struct clock_rate *rate = &view->header->rate;
	struct copy copy;
	uint32_t positions[TRACE_PHASE_MAX];
	bool running = false;
	*out = (struct trace_phases){0};
	uint64_t first = LOAD(view->phases->first_ticks);
	if (!first)
		return;
	for (int i = 0; i < SEQLOCK_TRIES && !copy_phase_table(view->phases, &copy); i++)
		continue;
	copy_names(view, &copy, positions, out);
	for (int i = 0; i < TRACE_PHASE_THREAD_MAX; i++)
		running |= add_running(view, &copy, i, positions, now_ns, out);
	for (uint32_t i = 0; i < out->count; i++)
		if (out->phases[i].waited_ns > out->phases[i].ns)
			out->phases[i].waited_ns = out->phases[i].ns;
	uint64_t first_ns = clock_ticks_to_ns(rate, first);
	uint64_t last_ns =
		running && now_ns ? now_ns : clock_ticks_to_ns(rate, LOAD(view->phases->last_ticks));
	out->span_ns = last_ns > first_ns ? last_ns - first_ns : 0;
	out->outside_ns = to_ns(rate, LOAD(view->phases->outside_ticks));
}
