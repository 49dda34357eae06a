/* SPDX-License-Identifier: BSD-3-Clause
 * The operations of a snapshot: which records of a trace the snapshot keeps, and one more that a
 * caller asks for later. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "diagnose/facts.h"

enum {
	SCAN_MAX = 1024,     /* places of the ring, from the newest back, that are looked at */
	COLLECTIVE_MAX = 12, /* newest collectives, which are chosen before other records */
};

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

/* The operations in which the thread waits: its own, and those whose words a device stores. */
static void select_waited_in(const struct trace_view *trace, const struct diagnose_thread *thread,
			     struct selection *out)
{
	struct trace_record record;
	uint32_t step;
	if (thread->wait.state == WAIT_OUTSIDE)
		return;
	if (trace_read(trace, thread->wait.record, &record, &step))
		select_record(out, record.index);
	for (uint32_t i = 0; i < thread->wait.edge_count; i++)
		if (thread->wait.edges[i].segment == WAIT_SEGMENT_DEVICE &&
		    trace_read(trace, thread->wait.edges[i].offset, &record, &step))
			select_record(out, record.index);
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
		select_waited_in(trace, &rank->threads[i], out);
	/* This goes by place and not by index: a running record keeps its place, however old it is.
	 * It skips places that have never been written: to read them takes most of a look's
	 * time. */
	for (uint64_t i = 0; i < SCAN_MAX && i < trace->ring_records && i < newest; i++) {
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
	/* There may be more messages that run beside their caller than there is room for. */
	for (int i = 0; i < running_count; i++)
		select_record(out, running[i]);
	for (int i = 0; i < other_count; i++)
		select_record(out, others[i]);
}

/* Does not trust the writer's rate: what makes no sense gives 0, unknown. */
static uint64_t ticks_to_ns(const struct clock_rate *rate, uint64_t ticks)
{
	double ns = (double)(int64_t)(ticks - rate->ticks) * rate->ns_per_tick;
	if (!ticks || !isfinite(ns) || fabs(ns) > 9e18 || (double)rate->ns + ns < 0 ||
	    (double)rate->ns + ns > 9e18)
		return 0;
	return clock_ticks_to_ns(rate, ticks);
}

/* False: the record is gone. */
static bool copy_record(const struct trace_view *trace, struct diagnose_snapshot *snapshot,
			uint64_t index, struct diagnose_record *record)
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
	diagnose_translate(trace, snapshot, record);
	return true;
}

void diagnose_copy_records(const struct trace_view *trace, struct diagnose_snapshot *snapshot,
			   struct diagnose_rank *rank)
{
	struct selection selection = {0};
	select_records(trace, rank, &selection);
	for (int i = 0; i < selection.count; i++)
		if (copy_record(trace, snapshot, selection.indexes[i],
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
static int find_dispensable(const struct diagnose_rank *rank)
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

/* Inserts the record at its place, newest first. False: all others matter more. */
static bool insert_record(struct diagnose_rank *rank, const struct diagnose_record *added)
{
	if (rank->record_count == DIAGNOSE_RECORD_MAX) {
		int place = find_dispensable(rank);
		if (place < 0)
			return false;
		rank->record_count--;
		memmove(&rank->records[place], &rank->records[place + 1],
			(rank->record_count - (uint32_t)place) * sizeof *added);
	}
	uint32_t at = rank->record_count++;
	for (; at > 0 && rank->records[at - 1].record.index < added->record.index; at--)
		rank->records[at] = rank->records[at - 1];
	rank->records[at] = *added;
	return true;
}

uint64_t diagnose_add_record(const struct diagnose_source *source, uint32_t low,
			     struct diagnose_snapshot *snapshot)
{
	struct diagnose_record added;
	if (!source->trace || source->rank < 0 || source->rank >= snapshot->size)
		return 0;
	struct diagnose_rank *rank = &snapshot->ranks[source->rank];
	uint64_t index = trace_index(source->trace, low);
	if (diagnose_record_at(rank, index))
		return index;
	if (!copy_record(source->trace, snapshot, index, &added) || !insert_record(rank, &added))
		return 0;
	return index;
}

void diagnose_add_entered(const struct diagnose_source *source, const struct trace_record *entered,
			  struct diagnose_snapshot *snapshot)
{
	struct diagnose_rank *rank = &snapshot->ranks[source->rank];
	struct diagnose_record added = {.record = *entered};
	diagnose_translate(source->trace, snapshot, &added);
	added.record.state = TRACE_RUNNING;
	added.record.site = TRACE_NO_SITE;
	/* The index that the record would have had, so it is the newest. */
	added.record.index = 1 + (rank->record_count ? rank->records[0].record.index : 0);
	if (!insert_record(rank, &added))
		return;
	for (uint32_t i = 0; i < rank->group_count; i++)
		if (rank->groups[i].id == entered->group)
			rank->groups[i].entered = entered->seq;
}
