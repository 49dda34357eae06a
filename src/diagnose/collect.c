/* SPDX-License-Identifier: BSD-3-Clause
 * The snapshot. Its order makes it a proof: it reads which ranks are dead or have left, all wait
 * slots, every awaited word, then the slots again. A dead rank, or one that left, stores no word
 * after that word was read; a thread in the same wait before and after has waited throughout. */
#include "diagnose/facts.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/fork.h"

enum {
	SCAN_MAX = 1024,     /* places of the ring, from the newest back, that are looked at */
	COLLECTIVE_MAX = 12, /* newest collectives that are kept: more than a rank can be ahead */
};

struct sources {
	const struct diagnose_source *by_rank[DIAGNOSE_RANK_MAX];
	const struct trace_view *traces[DIAGNOSE_RANK_MAX];
	const struct diagnose_closing *closing;
};

/* ---- first: who it is, and whether it is gone ---- */

static void copy_text(char *out, size_t bytes, const char *from)
{
	memcpy(out, from, bytes); /* of constant text; a writer gone mad can only spoil the text */
	out[bytes - 1] = 0;
}

static void look_at_rank(const struct diagnose_source *source, struct diagnose_rank *rank)
{
	const struct trace_view *trace = source->trace;
	rank->pid = source->pid;
	rank->signal = source->signal;
	rank->exit_code = source->exit_code;
	rank->process = source->process;
	rank->known = trace != NULL;
	bool foreign = false;
	if (trace) {
		const struct trace_header *header = trace->header;
		if (rank->pid <= 0)
			rank->pid = __atomic_load_n(&header->pid, __ATOMIC_RELAXED);
		rank->start_ns = __atomic_load_n(&header->start_ns, __ATOMIC_RELAXED);
		copy_text(rank->host, sizeof(rank->host), header->host);
		copy_text(rank->program, sizeof(rank->program), header->program);
		rank->left_ns = atomic_load_explicit(&header->left_ns, memory_order_acquire);
		rank->left = rank->left_ns != 0;
		rank->serial = __atomic_load_n(&header->serial, __ATOMIC_RELAXED) != 0;
		uint32_t space = __atomic_load_n(&header->pid_space, __ATOMIC_RELAXED);
		foreign = space != 0 && space != fork_pid_space();
	}
	/* In another PID namespace the number is another process', and says nothing of this one. */
	if (rank->process == DIAGNOSE_UNKNOWN)
		diagnose_look_process(foreign ? 0 : rank->pid, rank);
}

/* ---- then: the slots, the words, the slots again ---- */

static bool is_taken(const struct trace_view *trace, int slot)
{
	return atomic_load_explicit(&trace->wait_table->slots[slot].taken, memory_order_acquire);
}

static void look_at_unpublished(const struct trace_view *trace, struct diagnose_rank *rank)
{
	if (atomic_load_explicit(&trace->wait_table->unpublished, memory_order_acquire))
		rank->incomplete = true;
}

static void look_at_slots(const struct trace_view *trace, struct diagnose_rank *rank)
{
	for (int i = 0; i < WAIT_SLOT_MAX; i++) {
		struct diagnose_thread *thread = &rank->threads[rank->thread_count];
		if (!is_taken(trace, i))
			continue;
		thread->slot = (uint32_t)i;
		thread->stable = trace_read_slot(trace, i, &thread->wait, &thread->epoch);
		/* Torn, or taken and not written yet: some thread that does something. */
		if (!thread->stable || thread->wait.state == WAIT_UNUSED)
			thread->wait.state = WAIT_OUTSIDE;
		if (thread->wait.edge_count > WAIT_EDGE_MAX)
			thread->wait.edge_count = WAIT_EDGE_MAX;
		rank->thread_count++;
	}
	look_at_unpublished(trace, rank);
}

const _Atomic uint64_t *diagnose_find_word(const struct diagnose_source *const *by_rank, int size,
					   int owner, uint64_t offset)
{
	if (owner < 0 || owner >= size || !by_rank[owner])
		return NULL;
	const struct diagnose_source *source = by_rank[owner];
	if (!source->segment || source->segment_bytes < 8 || offset % 8 ||
	    offset > source->segment_bytes - 8 || (uintptr_t)source->segment % 8)
		return NULL;
	return (const void *)((const unsigned char *)source->segment + offset);
}

static bool word_is_satisfied(const struct diagnose_source *const *by_rank, int size,
			      const struct wait_edge *edge)
{
	const _Atomic uint64_t *word = diagnose_find_word(by_rank, size, edge->owner, edge->offset);
	if (edge->segment != WAIT_SEGMENT_LINK || edge->peer < -1 || edge->peer >= size || !word)
		return true; /* cannot be evaluated, so it proves nothing */
	uint64_t value = atomic_load_explicit(word, memory_order_acquire);
	return (int64_t)(value - edge->value) >= 0;
}

/* Notes whom a word of others' operations needs. */
static void note_others(struct diagnose_thread *thread, const struct wait_edge *edge, int r)
{
	bool mine = edge->peer < 0 && edge->owner == r; /* the rank's own threads see to it */
	if (edge->record != WAIT_RECORD_OTHERS || mine)
		return;
	thread->others |= diagnose_bit(edge->peer);
	thread->others_unclear |= diagnose_bit(edge->peer) == 0;
}

/* Of a choice that is there already another word may be left out: then less is ruled out. */
static bool has_choice(const struct wait_slot_body *wait, uint16_t choice)
{
	for (uint32_t i = 0; choice && i < wait->edge_count; i++)
		if (wait->edges[i].choice == choice && wait->edges[i].record != WAIT_RECORD_OTHERS)
			return true;
	return false;
}

/* One entry stands for all words of the same peer and operation with the same answer, and for those
 * of others whoever their peer is, as these have been noted: more than the judge asks for is not
 * lost. False: there is no room. */
static bool keep(struct diagnose_thread *thread, const struct wait_edge *edge, bool there)
{
	struct wait_slot_body *wait = &thread->wait;
	uint32_t i = 0;
	for (; i < wait->edge_count; i++) {
		const struct wait_edge *other = &wait->edges[i];
		bool others = edge->record == WAIT_RECORD_OTHERS;
		bool same = others == (other->record == WAIT_RECORD_OTHERS) &&
			    (others || (other->peer == edge->peer && other->choice == edge->choice &&
					(edge->peer >= 0 || other->record == edge->record)));
		if (same && (thread->satisfied >> i & 1) == there)
			return true;
	}
	if (i == WAIT_EDGE_MAX)
		return !there && has_choice(wait, edge->choice);
	wait->edges[wait->edge_count++] = *edge;
	thread->satisfied |= (uint64_t)there << i;
	return true;
}

/* A wait with more words than a slot has: all are looked at, and summed up. If they are not all
 * shown it says nothing. */
static void look_at_many(const struct diagnose_source *const *by_rank, int size, int r,
			 struct diagnose_thread *thread)
{
	const struct trace_view *trace = by_rank[r]->trace;
	struct wait_slot_body whole = thread->wait;
	struct wait_edge edges[WAIT_EDGE_MAX];
	int count;
	thread->satisfied = 0;
	thread->wait.edge_count = 0;
	thread->stable &= trace_shows_all(&whole);
	for (int page = 0; (count = trace_read_words(trace, &whole, page, edges)) > 0; page++)
		for (int i = 0; i < count; i++) {
			note_others(thread, &edges[i], r);
			if (!keep(thread, &edges[i], word_is_satisfied(by_rank, size, &edges[i])))
				thread->stable = false;
		}
}

static void look_at_words(const struct diagnose_source *const *by_rank, int size, int r,
			  struct diagnose_thread *thread)
{
	const struct wait_slot_body *wait = &thread->wait;
	thread->others = 0;
	thread->others_unclear = false;
	if (wait->further > 0) {
		look_at_many(by_rank, size, r, thread);
		return;
	}
	thread->satisfied = 0;
	for (uint32_t i = 0; i < wait->edge_count; i++) {
		note_others(thread, &wait->edges[i], r);
		if ((wait->state != WAIT_WORDS && wait->state != WAIT_ANY_WORD) ||
		    word_is_satisfied(by_rank, size, &wait->edges[i]))
			thread->satisfied |= UINT64_C(1) << i;
	}
}

static bool is_closing(const struct diagnose_closing *closing, uint32_t group)
{
	for (int i = 0; closing && i < closing->count; i++)
		if (closing->ids[i] == group)
			return true;
	return false;
}

/* Whether the thread's wait is about to end because its group does: it has failed, or somebody else
 * is explaining why. */
static void look_at_end(const struct sources *sources, int size, const struct diagnose_rank *rank,
			struct diagnose_thread *thread)
{
	const struct diagnose_group *group = diagnose_group_of(rank, thread->wait.group);
	if (!group || group->cause_offset == 0)
		return;
	int owner = group->members[0];
	const _Atomic uint64_t *claim =
		diagnose_find_word(sources->by_rank, size, owner, group->claim_offset);
	const _Atomic uint64_t *cause =
		diagnose_find_word(sources->by_rank, size, owner, group->cause_offset);
	if (!claim || !cause)
		return;
	uint32_t holder = (uint32_t)atomic_load_explicit(claim, memory_order_acquire);
	if (wait_has_failed(atomic_load_explicit(cause, memory_order_acquire)))
		thread->stable = false;
	else if (holder <= (uint32_t)size && !is_closing(sources->closing, group->id))
		thread->explainer = holder;
}

static void look_again(const struct trace_view *trace, struct diagnose_rank *rank)
{
	uint32_t seen = 0; /* slots of the first look */
	for (uint32_t i = 0; i < rank->thread_count; i++) {
		struct diagnose_thread *thread = &rank->threads[i];
		seen |= UINT32_C(1) << thread->slot;
		/* The epoch alone tells: it differs between any two waits, and is odd between. */
		if (!trace_slot_is(trace, (int)thread->slot, thread->epoch))
			thread->stable = false;
	}
	for (int i = 0; i < WAIT_SLOT_MAX; i++) /* a thread that came in between is one more */
		if (!(seen >> i & 1) && is_taken(trace, i))
			rank->incomplete = true;
	look_at_unpublished(trace, rank);
}

/* ---- at last: what each has done ---- */

/* Indexes of records, newest first, each once. */
struct selection {
	int count;
	uint64_t indexes[DIAGNOSE_RECORD_MAX];
};

static void select_record(struct selection *selection, uint64_t index)
{
	int i = selection->count;
	for (int j = 0; j < selection->count; j++)
		if (selection->indexes[j] == index)
			return;
	if (!index || i == DIAGNOSE_RECORD_MAX)
		return;
	for (; i > 0 && selection->indexes[i - 1] < index; i--)
		selection->indexes[i] = selection->indexes[i - 1];
	selection->indexes[i] = index;
	selection->count++;
}

static void select_records(const struct trace_view *trace, const struct diagnose_rank *rank,
			   struct selection *out)
{
	uint64_t newest = atomic_load_explicit(&trace->header->newest, memory_order_acquire);
	uint64_t collectives[COLLECTIVE_MAX], running[DIAGNOSE_RECORD_MAX],
		others[DIAGNOSE_RECORD_MAX];
	int collective_count = 0, running_count = 0, other_count = 0;
	struct trace_record record;
	uint32_t step;
	for (uint32_t i = 0; i < rank->thread_count; i++)
		if (rank->threads[i].wait.state != WAIT_OUTSIDE &&
		    trace_read(trace, rank->threads[i].wait.record, &record, &step))
			select_record(out, record.index);
	for (uint64_t i = 0; i < SCAN_MAX && i < trace->ring_records; i++) {
		/* By place and not by index: a running record keeps its place, however old. */
		if (!trace_read_at(trace, (newest - i) & (trace->ring_records - 1), &record, &step))
			continue;
		if (record.state == TRACE_RUNNING && running_count < DIAGNOSE_RECORD_MAX)
			running[running_count++] = record.index;
		if (diagnose_is_collective(&record) && collective_count < COLLECTIVE_MAX)
			collectives[collective_count++] = record.index;
		if (other_count < DIAGNOSE_RECORD_MAX)
			others[other_count++] = record.index;
	}
	for (int i = 0; i < collective_count; i++)
		select_record(out, collectives[i]);
	/* Of messages beside the caller there may be more than there is room for. */
	for (int i = 0; i < running_count; i++)
		select_record(out, running[i]);
	for (int i = 0; i < other_count; i++)
		select_record(out, others[i]);
}

/* The writer's rate is not trusted: what makes no sense gives 0, unknown. */
static uint64_t ticks_to_ns(const struct clock_rate *rate, uint64_t ticks)
{
	double ns = (double)(int64_t)(ticks - rate->ticks) * rate->ns_per_tick;
	if (!ticks || !isfinite(ns) || fabs(ns) > 9e18 || (double)rate->ns + ns < 0 ||
	    (double)rate->ns + ns > 9e18)
		return 0;
	return clock_ticks_to_ns(rate, ticks);
}

/* False: it is gone. */
static bool copy_record(const struct trace_view *trace, int size, uint64_t index,
			struct diagnose_record *record)
{
	const struct clock_rate *from = &trace->header->rate;
	struct clock_rate rate;
	rate.ticks = __atomic_load_n(&from->ticks, __ATOMIC_RELAXED);
	rate.ns = __atomic_load_n(&from->ns, __ATOMIC_RELAXED);
	__atomic_load(&from->ns_per_tick, &rate.ns_per_tick, __ATOMIC_RELAXED);
	if (!trace_read(trace, index, &record->record, &record->step))
		return false;
	record->begin_ns = ticks_to_ns(&rate, record->record.begin_ticks);
	record->end_ns = record->record.state == TRACE_RUNNING
				 ? 0
				 : ticks_to_ns(&rate, record->record.end_ticks);
	record->site[0] = 0;
	diagnose_translate(trace, size, record);
	return true;
}

static void copy_records(const struct trace_view *trace, int size, struct diagnose_rank *rank)
{
	struct selection selection = {0};
	select_records(trace, rank, &selection);
	for (int i = 0; i < selection.count; i++)
		if (copy_record(trace, size, selection.indexes[i],
				&rank->records[rank->record_count]))
			rank->record_count++;
}

static bool is_waited_in(const struct diagnose_rank *rank, const struct diagnose_record *record)
{
	for (uint32_t i = 0; i < rank->thread_count; i++)
		if (rank->threads[i].wait.state != WAIT_OUTSIDE &&
		    rank->threads[i].wait.record == record->record.index)
			return true;
	return false;
}

/* The place of a message that nobody will miss: the oldest that is over, else the oldest that runs
 * beside its caller; -1: there is none. */
static int dispensable(const struct diagnose_rank *rank)
{
	int running = -1;
	for (int i = (int)rank->record_count - 1; i >= 0; i--) {
		const struct diagnose_record *record = &rank->records[i];
		if (diagnose_is_collective(&record->record))
			continue;
		if (record->record.state != TRACE_RUNNING)
			return i;
		if (running < 0 && !is_waited_in(rank, record))
			running = i;
	}
	return running;
}

uint64_t diagnose_add_record(const struct diagnose_source *source, uint32_t low,
			     struct diagnose_job *job)
{
	struct diagnose_record added;
	if (!source->trace || source->rank < 0 || source->rank >= job->size)
		return 0;
	struct diagnose_rank *rank = &job->ranks[source->rank];
	uint64_t index = trace_index(source->trace, low);
	if (diagnose_record_at(rank, index))
		return index;
	if (!copy_record(source->trace, job->size, index, &added))
		return 0;
	if (rank->record_count == DIAGNOSE_RECORD_MAX) {
		int place = dispensable(rank);
		if (place < 0)
			return 0;
		rank->record_count--;
		memmove(&rank->records[place], &rank->records[place + 1],
			(rank->record_count - (uint32_t)place) * sizeof added);
	}
	uint32_t at = rank->record_count++; /* newest first */
	for (; at > 0 && rank->records[at - 1].record.index < index; at--)
		rank->records[at] = rank->records[at - 1];
	rank->records[at] = added;
	return index;
}

/* ---- all of it ---- */

static const struct diagnose_source *find_source(const struct diagnose_source *sources, int count,
						 int rank)
{
	for (int i = 0; i < count; i++)
		if (sources[i].rank == rank)
			return &sources[i];
	return NULL;
}

/* Ranks that are threads of one process: whose its other threads are, nobody knows. */
static bool shares_process(const struct diagnose_job *job, int r)
{
	for (int q = 0; q < job->size; q++)
		if (q != r && job->ranks[q].known && job->ranks[q].pid == job->ranks[r].pid)
			return true;
	return false;
}

static void look(const struct sources *sources, struct diagnose_job *job)
{
	const struct trace_view *const *traces = sources->traces;
	int size = job->size;
	memset(job, 0, diagnose_job_bytes(size));
	job->size = size;
	for (int r = 0; r < size; r++) {
		job->ranks[r].rank = r;
		job->ranks[r].signal = job->ranks[r].exit_code = -1;
		if (sources->by_rank[r])
			look_at_rank(sources->by_rank[r], &job->ranks[r]);
		if (traces[r] && !job->job)
			job->job = __atomic_load_n(&traces[r]->header->job, __ATOMIC_RELAXED);
	}
	diagnose_copy_groups_first(traces, job);
	for (int r = 0; r < size; r++)
		if (traces[r])
			look_at_slots(traces[r], &job->ranks[r]);
	diagnose_look_at_callbacks(sources->by_rank, job);
	for (int r = 0; r < size; r++)
		for (uint32_t i = 0; i < job->ranks[r].thread_count; i++) {
			struct diagnose_thread *thread = &job->ranks[r].threads[i];
			look_at_words(sources->by_rank, size, r, thread);
			look_at_end(sources, size, &job->ranks[r], thread);
		}
	for (int r = 0; r < size; r++)
		if (traces[r])
			look_again(traces[r], &job->ranks[r]);
	for (int r = 0; r < size; r++) {
		job->ranks[r].idle = shares_process(job, r);
		if (!traces[r])
			continue;
		copy_records(traces[r], size, &job->ranks[r]);
		diagnose_copy_groups_last(traces[r], &job->ranks[r]);
	}
	job->now_ns = clock_now_ns();
}

/* Those that are stuck if all threads sleep that are outside. */
static uint64_t find_likely(struct diagnose_job *job)
{
	for (int r = 0; r < job->size; r++)
		diagnose_set_asleep(&job->ranks[r], UINT32_MAX);
	uint64_t likely = diagnose_find_stuck(job);
	for (int r = 0; r < job->size; r++)
		diagnose_set_asleep(&job->ranks[r], 0);
	return likely;
}

/* What seems to be stuck is so only if the threads that no wait table shows in a wait have done
 * nothing all the time. To look at those is slow, so it is done only then, around a second look at
 * all else. */
static void look_closely(const struct sources *sources, struct diagnose_job *job)
{
	struct diagnose_look before[DIAGNOSE_RANK_MAX];
	uint64_t stuck = find_likely(job), seen = 0;
	for (uint64_t left = stuck; left; left &= left - 1) {
		int r = diagnose_lowest_rank(left);
		if (shares_process(job, r))
			continue;
		before[r] = diagnose_look_threads(sources->by_rank[r]);
		seen |= diagnose_bit(r);
	}
	if (!seen)
		return;
	look(sources, job);
	uint64_t late = find_likely(job) & ~stuck; /* whose threads have not been seen before */
	for (int r = 0; r < job->size; r++) {
		job->ranks[r].awake = late & diagnose_bit(r);
		if (!(seen & diagnose_bit(r)))
			continue;
		struct diagnose_look after = diagnose_look_threads(sources->by_rank[r]);
		struct diagnose_rank *rank = &job->ranks[r];
		/* Threads that are frozen look asleep, and go on with what they were about. */
		bool frozen = after.hash != 0 && rank->process == DIAGNOSE_STOPPED;
		rank->awake =
			before[r].awake || after.awake || frozen || before[r].hash != after.hash;
		rank->idle = before[r].idle || after.idle;
		if (before[r].rest == after.rest)
			diagnose_set_asleep(rank, before[r].outside & after.outside);
	}
}

void diagnose_collect(const struct diagnose_source *sources, int count,
		      const struct diagnose_closing *closing, struct diagnose_job *job)
{
	struct sources all = {.closing = closing};
	for (int r = 0; r < job->size; r++) {
		all.by_rank[r] = find_source(sources, count, r);
		all.traces[r] = all.by_rank[r] ? all.by_rank[r]->trace : NULL;
	}
	look(&all, job);
	look_closely(&all, job);
}
