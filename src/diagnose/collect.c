/* SPDX-License-Identifier: BSD-3-Clause
 * The snapshot. Its order makes it a proof: it reads which ranks are dead or have left, all wait
 * slots, every awaited word, then the slots again. A rank that is dead or has left stores no word
 * after that word was read. A thread in the same wait before and after has waited throughout. */
#include "diagnose/facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fork.h"

struct sources {
	const struct diagnose_source **by_rank; /* [size of the job], and so are the others */
	const struct trace_view **traces;
	bool *shares; /* the rank is a thread of a process that other ranks are threads of, too */
	struct place {
		int pid, rank;
	} * places;
	struct diagnose_look *before;
	const struct diagnose_closing *closing;
	struct ranks remote; /* on other hosts */
};

/* ---- first: the rank's process, and whether it is dead or has left ---- */

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
	rank->left = source->left;
	if (source->host)
		snprintf(rank->host, sizeof rank->host, "%s", source->host);
	bool foreign = false;
	if (trace) {
		const struct trace_header *header = trace->header;
		if (rank->pid <= 0)
			rank->pid = __atomic_load_n(&header->pid, __ATOMIC_RELAXED);
		rank->start_ns = __atomic_load_n(&header->start_ns, __ATOMIC_RELAXED);
		copy_text(rank->host, sizeof rank->host, header->host);
		copy_text(rank->program, sizeof rank->program, header->program);
		rank->left_ns = atomic_load_explicit(&header->left_ns, memory_order_acquire);
		rank->left |= rank->left_ns != 0;
		rank->serial = __atomic_load_n(&header->serial, __ATOMIC_RELAXED) != 0;
		uint32_t space = __atomic_load_n(&header->pid_space, __ATOMIC_RELAXED);
		foreign = space != 0 && space != fork_pid_space();
	}
	/* In another PID namespace the number belongs to another process, and says nothing of this
	 * rank's. */
	if (rank->process == DIAGNOSE_PROCESS_UNKNOWN && !source->host)
		diagnose_look_process(foreign ? 0 : rank->pid, rank);
	if (diagnose_may_look_into(source, rank) && diagnose_is_replaced(rank->pid, trace)) {
		rank->process = DIAGNOSE_PROCESS_DEAD;
		rank->exit_code = DIAGNOSE_EXEC;
	}
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
		memset(thread, 0, sizeof *thread);
		thread->slot = (uint32_t)i;
		thread->stable = trace_read_slot(trace, i, &thread->wait, &thread->epoch);
		/* Torn, or taken and not written yet: the thread is doing something. */
		if (!thread->stable || thread->wait.state == WAIT_UNUSED)
			thread->wait.state = WAIT_OUTSIDE;
		if (thread->wait.edge_count > WAIT_EDGE_MAX)
			thread->wait.edge_count = WAIT_EDGE_MAX;
		rank->thread_count++;
	}
	look_at_unpublished(trace, rank);
}

/* Whether the rank is on another host. What such a rank has sent may be under way;
 * diagnose_check_traffic sees to that later. */
static bool is_remote(const struct diagnose_source *source)
{
	return source && !source->trace && source->host;
}

static bool word_is_satisfied(const struct diagnose_source *const *by_rank, int size,
			      const struct wait_edge *edge)
{
	const _Atomic uint64_t *word = diagnose_find_word(by_rank, size, edge->owner, edge->offset);
	if (!word || edge->peer < -1 || edge->peer >= size)
		return true; /* cannot be evaluated, so it proves nothing */
	bool mirrored = edge->segment == WAIT_SEGMENT_MIRROR && edge->peer >= 0 &&
			is_remote(by_rank[edge->peer]);
	if (edge->segment != WAIT_SEGMENT_MAPPED && !mirrored)
		return true;
	uint64_t value = atomic_load_explicit(word, memory_order_acquire);
	return (int64_t)(value - edge->value) >= 0;
}

/* Notes which rank a word of another thread's operation needs. */
static void note_others(struct diagnose_thread *thread, const struct wait_edge *edge, int r)
{
	bool mine = edge->peer < 0 && edge->owner == r; /* the rank's own threads see to it */
	/* What a device needs is found out later. */
	if (edge->record != WAIT_RECORD_OTHERS || mine || edge->segment == WAIT_SEGMENT_DEVICE)
		return;
	ranks_add(&thread->others, edge->peer);
	thread->others_unclear |= !ranks_is_one(edge->peer);
}

/* Whether the wait has a word of this alternative already. Then another word of it may be left out,
 * which only rules out less. */
static bool has_alternative(const struct wait_slot_body *wait, uint16_t alternative)
{
	for (uint32_t i = 0; alternative && i < wait->edge_count; i++)
		if (wait->edges[i].alternative == alternative &&
		    wait->edges[i].record != WAIT_RECORD_OTHERS)
			return true;
	return false;
}

/* One edge represents all words with the same peer, operation and answer; and one edge represents
 * all words of other threads' operations, because their peers have been noted. The judge needs no
 * more than that. False: the thread has no space for another edge. */
static bool keep_edge(struct diagnose_thread *thread, const struct wait_edge *edge, bool there)
{
	struct wait_slot_body *wait = &thread->wait;
	uint32_t i = 0;
	for (; i < wait->edge_count; i++) {
		const struct wait_edge *other = &wait->edges[i];
		bool others = edge->record == WAIT_RECORD_OTHERS;
		bool device = edge->segment == WAIT_SEGMENT_DEVICE;
		if (device != (other->segment == WAIT_SEGMENT_DEVICE) ||
		    (device && edge->offset != other->offset))
			continue;
		bool same = others == (other->record == WAIT_RECORD_OTHERS) &&
			    (others || (other->peer == edge->peer &&
					other->alternative == edge->alternative &&
					(edge->peer >= 0 || other->record == edge->record)));
		if (same && (thread->satisfied >> i & 1) == there)
			return true;
	}
	if (i == WAIT_EDGE_MAX)
		return !there && has_alternative(wait, edge->alternative);
	wait->edges[wait->edge_count++] = *edge;
	thread->satisfied |= (uint64_t)there << i;
	return true;
}

/* Looks at a wait with more words than a slot has, and sums all of them up. If the wait table does
 * not show all words, the wait says nothing. */
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
			if (!keep_edge(thread, &edges[i],
				       word_is_satisfied(by_rank, size, &edges[i])))
				thread->stable = false;
		}
}

static void look_at_words(const struct diagnose_source *const *by_rank, int size, int r,
			  struct diagnose_thread *thread)
{
	const struct wait_slot_body *wait = &thread->wait;
	thread->others = (struct ranks){{0}};
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

/* Whether the thread's wait is about to end because its group does: the group has failed, or
 * another rank is explaining why it does. */
static void look_at_end(const struct sources *sources, int size, const struct diagnose_rank *rank,
			struct diagnose_thread *thread)
{
	const struct diagnose_group *group = diagnose_group_of(rank, thread->wait.group);
	if (!group || group->cause_offset == 0)
		return;
	int owner = group->first;
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
		thread->closing_rank = holder;
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

/* ---- all of it ---- */

static int by_pid(const void *a, const void *b)
{
	const struct place *x = a, *y = b;
	return (x->pid > y->pid) - (x->pid < y->pid);
}

static bool is_one_process(const struct diagnose_rank *rank, const struct diagnose_rank *other)
{
	return rank != other && other->known && rank->pid == other->pid &&
	       (!rank->known || strcmp(rank->host, other->host) == 0);
}

/* Finds ranks that are threads of one process. To which rank the other threads of such a process
 * belong, nobody knows. On another host the same number is another process. */
static void find_shared(const struct diagnose_snapshot *snapshot, struct place *places, bool *out)
{
	for (int r = 0; r < snapshot->size; r++)
		places[r] = (struct place){.pid = snapshot->ranks[r].pid, .rank = r};
	qsort(places, (size_t)snapshot->size, sizeof *places, by_pid);
	for (int i = 0, end = 0; i < snapshot->size; i++) {
		while (end < snapshot->size && places[end].pid == places[i].pid)
			end++;
		const struct diagnose_rank *rank = &snapshot->ranks[places[i].rank];
		int first = i;
		while (first > 0 && places[first - 1].pid == rank->pid)
			first--;
		bool shares = false;
		for (int k = first; k < end && !shares; k++)
			shares = is_one_process(rank, &snapshot->ranks[places[k].rank]);
		out[places[i].rank] = shares;
	}
}

static void look_at_all(const struct sources *sources, struct diagnose_snapshot *snapshot)
{
	const struct trace_view *const *traces = sources->traces;
	int size = snapshot->size;
	diagnose_snapshot_clear(snapshot, size);
	for (int r = 0; r < size; r++) {
		snapshot->ranks[r].rank = r;
		snapshot->ranks[r].signal = snapshot->ranks[r].exit_code = -1;
		if (sources->by_rank[r])
			look_at_rank(sources->by_rank[r], &snapshot->ranks[r]);
		if (traces[r] && !snapshot->job)
			snapshot->job = __atomic_load_n(&traces[r]->header->job, __ATOMIC_RELAXED);
	}
	find_shared(snapshot, sources->places, sources->shares);
	diagnose_copy_groups_first(traces, snapshot);
	for (int r = 0; r < size; r++)
		if (traces[r])
			look_at_slots(traces[r], &snapshot->ranks[r]);
	diagnose_look_at_callbacks(sources->by_rank, snapshot);
	for (int r = 0; r < size; r++)
		for (uint32_t i = 0; i < snapshot->ranks[r].thread_count; i++) {
			struct diagnose_thread *thread = &snapshot->ranks[r].threads[i];
			look_at_words(sources->by_rank, size, r, thread);
			look_at_end(sources, size, &snapshot->ranks[r], thread);
		}
	for (int r = 0; r < size; r++)
		if (traces[r])
			look_again(traces[r], &snapshot->ranks[r]);
	for (int r = 0; r < size; r++) {
		snapshot->ranks[r].idle = sources->shares[r];
		snapshot->ranks[r].sleep =
			sources->shares[r]; /* its other threads are not looked at */
		if (!traces[r])
			continue;
		diagnose_copy_records(traces[r], snapshot, &snapshot->ranks[r]);
		diagnose_follow_streams(sources->by_rank, snapshot, r);
		diagnose_copy_groups_last(traces[r], snapshot, &snapshot->ranks[r]);
	}
	snapshot->now_ns = clock_now_ns();
}

/* The ranks that are stuck if all threads outside sleep, and all ranks on other hosts are stuck. */
static struct ranks find_likely(struct diagnose_snapshot *snapshot, const struct ranks *remote)
{
	for (int r = 0; r < snapshot->size; r++)
		diagnose_set_asleep(&snapshot->ranks[r], UINT32_MAX);
	struct ranks likely = diagnose_find_stuck_if(snapshot, remote);
	ranks_drop(&likely, remote);
	for (int r = 0; r < snapshot->size; r++)
		diagnose_set_asleep(&snapshot->ranks[r], 0);
	return likely;
}

/* Ranks that seem to be stuck are so only if their threads that no wait table shows in a wait have
 * done nothing all the time. To look at such threads is slow. So this looks only at those of ranks
 * that seem to be stuck, before and after a second look at all else. */
static void look_closely(const struct sources *sources, struct diagnose_snapshot *snapshot)
{
	struct diagnose_look *before = sources->before;
	struct ranks stuck = find_likely(snapshot, &sources->remote), seen = {{0}};
	RANKS_EACH (r, &stuck) {
		if (sources->shares[r])
			continue;
		before[r] = diagnose_look_threads(sources->by_rank[r]);
		ranks_add(&seen, r);
	}
	if (!ranks_any(&seen))
		return;
	look_at_all(sources, snapshot);
	struct ranks elsewhere = find_likely(
		snapshot, &sources->remote); /* whose threads have not been seen before */
	ranks_drop(&elsewhere, &stuck);
	for (int r = 0; r < snapshot->size; r++) {
		snapshot->ranks[r].awake = ranks_have(&elsewhere, r);
		if (!ranks_have(&seen, r))
			continue;
		struct diagnose_look after = diagnose_look_threads(sources->by_rank[r]);
		struct diagnose_rank *rank = &snapshot->ranks[r];
		/* Threads that are frozen look asleep, and go on with what they were about. */
		bool frozen = after.hash != 0 && rank->process == DIAGNOSE_PROCESS_STOPPED;
		rank->awake =
			before[r].awake || after.awake || frozen || before[r].hash != after.hash;
		rank->idle = before[r].idle || after.idle;
		rank->sleep = rank->awake ? 0 : diagnose_hash_of(&after);
		if (before[r].outside_sleep == after.outside_sleep)
			diagnose_set_asleep(rank, before[r].outside & after.outside);
	}
}

static bool sources_init(struct sources *all, const struct diagnose_source *sources, int count,
			 int size)
{
	size_t n = (size_t)size + 1;
	all->by_rank = calloc(n, sizeof *all->by_rank);
	all->traces = calloc(n, sizeof *all->traces);
	all->shares = calloc(n, sizeof *all->shares);
	all->places = calloc(n, sizeof *all->places);
	all->before = calloc(n, sizeof *all->before);
	if (!all->by_rank || !all->traces || !all->shares || !all->places || !all->before)
		return false;
	for (int i = 0; i < count; i++) {
		int r = sources[i].rank;
		if (r < 0 || r >= size || all->by_rank[r])
			continue;
		all->by_rank[r] = &sources[i];
		all->traces[r] = sources[i].trace;
		if (sources[i].host && !sources[i].trace)
			ranks_add(&all->remote, r);
	}
	return true;
}

static void sources_fini(struct sources *all)
{
	free(all->by_rank);
	free(all->traces);
	free(all->shares);
	free(all->places);
	free(all->before);
}

void diagnose_collect(const struct diagnose_source *sources, int count,
		      const struct diagnose_closing *closing, struct diagnose_snapshot *snapshot)
{
	struct sources all = {.closing = closing};
	if (sources_init(&all, sources, count, snapshot->size)) {
		look_at_all(&all, snapshot);
		look_closely(&all, snapshot);
	} else {
		diagnose_snapshot_clear(snapshot, snapshot->size);
		for (int r = 0; r < snapshot->size; r++)
			snapshot->ranks[r].rank = r;
	}
	sources_fini(&all);
}
