/* SPDX-License-Identifier: BSD-3-Clause
 * Copies what a timeline shows out of traces. Traces belong to other processes or come from a file:
 * so a record is copied whole or not at all, every text becomes printable, and every count has a
 * limit. */
#include "timeline/timeline.h"

#include <stdlib.h>
#include <string.h>

enum { OPS_FIRST = 256, CLOCKS_APART_NS = 1000000 };

struct timeline *timeline_new(uint64_t job, int size)
{
	struct timeline *timeline = NULL;

	if (size >= 1 && size <= TIMELINE_RANK_MAX)
		timeline = calloc(1, sizeof *timeline);
	if (timeline) {
		timeline->job = job;
		timeline->size = size;
	}
	return timeline;
}

void timeline_free(struct timeline *timeline)
{
	if (!timeline)
		return;
	free(timeline->ops);
	free(timeline->rows);
	free(timeline);
}

bool timeline_put(struct timeline *timeline, int rank, const struct trace_record *record,
		  uint64_t begin_ns, uint64_t end_ns)
{
	if (record->kind == TRACE_NONE || record->kind >= TRACE_KIND_COUNT)
		return true; /* no operation: nonsense in the trace */
	if (timeline->op_count == timeline->op_room) {
		size_t room = timeline->op_room ? 2 * timeline->op_room : OPS_FIRST;
		struct timeline_op *more = realloc(timeline->ops, room * sizeof *more);
		if (!more)
			return false;
		timeline->ops = more;
		timeline->op_room = room;
	}
	timeline->ops[timeline->op_count++] = (struct timeline_op){
		.record = *record,
		.begin_ns = begin_ns,
		.end_ns = end_ns < begin_ns ? begin_ns : end_ns,
		.rank = rank,
	};
	return true;
}

static void copy_text(char *out, size_t bytes, const char *text, size_t text_bytes)
{
	size_t length = strnlen(text, text_bytes < bytes ? text_bytes : bytes - 1);

	for (size_t i = 0; i < length; i++)
		out[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
	out[length] = '\0';
}

/* The group stays without members if the trace names any that are not ranks of this job. */
static void copy_members(struct timeline_group *group, const struct trace_view *view, int at,
			 int ranks)
{
	uint32_t size = trace_read_members(view, at, group->members);
	for (uint32_t i = 0; i < size; i++)
		if (group->members[i] >= ranks)
			return;
	group->size = (int)size;
}

/* The group with this number, added if it is new; NULL if there is no room for one more. */
static struct timeline_group *add_group(struct timeline *timeline, uint32_t id,
					const struct trace_view *view, int at)
{
	for (uint32_t i = 0; i < timeline->group_count; i++)
		if (timeline->groups[i].id == id)
			return &timeline->groups[i];
	if (timeline->group_count == TIMELINE_GROUP_MAX)
		return NULL;
	struct timeline_group *group = &timeline->groups[timeline->group_count++];
	group->id = id;
	snprintf(group->name, sizeof group->name, id == TRACE_GROUP_WORLD ? "world" : "group %u",
		 id);
	copy_members(group, view, at, timeline->size);
	return group;
}

static void add_groups(struct timeline *timeline, int rank, const struct trace_view *view)
{
	for (int i = 0; i < TRACE_GROUP_MAX; i++) {
		const struct trace_group *from = &view->groups[i];
		uint32_t id = atomic_load_explicit(&from->id, memory_order_acquire);
		struct timeline_group *group = id ? add_group(timeline, id, view, i) : NULL;
		if (!group)
			continue;
		group->entered[rank] = atomic_load_explicit(&from->entered, memory_order_relaxed);
		ranks_add(&group->told, rank);
	}
}

/* All ranks of a machine read the same counter. If each used the rate that it has measured in some
 * milliseconds, ranks would drift apart by microseconds in each second. So all share one rate,
 * unless the shared rate shows that they do not read the same counter. */
static struct clock_rate choose_rate(const struct timeline *timeline, const struct clock_rate *own)
{
	for (int i = 0; i < timeline->size; i++) {
		if (!timeline->ranks[i].known)
			continue;
		const struct clock_rate *first = &timeline->ranks[i].rate;
		uint64_t there_ns = clock_ticks_to_ns(first, own->ticks);
		uint64_t apart_ns = there_ns > own->ns ? there_ns - own->ns : own->ns - there_ns;
		return apart_ns < CLOCKS_APART_NS ? *first : *own;
	}
	return *own;
}

static uint64_t time_of(const struct timeline_rank *rank, uint64_t ticks)
{
	uint64_t ns = clock_ticks_to_ns(&rank->rate, ticks);
	return ns - (uint64_t)rank->clock.offset_ns;
}

static bool copy_records(struct timeline *timeline, int number, const struct trace_view *view)
{
	struct timeline_rank *rank = &timeline->ranks[number];
	uint64_t newest = atomic_load_explicit(&view->header->newest, memory_order_acquire);
	uint64_t oldest_ns = UINT64_MAX;

	for (uint64_t i = 0; i < view->ring_records; i++) {
		struct trace_record record;
		uint32_t step;
		if (!trace_read_at(view, i, &record, &step))
			continue;
		uint64_t begin_ns = time_of(rank, record.begin_ticks);
		if (!timeline_put(timeline, number, &record, begin_ns,
				  time_of(rank, record.end_ticks)))
			return false;
		/* An operation that has run for long may be much older than the rest of the
		 * ring. */
		if (record.index + view->ring_records > newest && begin_ns < oldest_ns)
			oldest_ns = begin_ns;
	}
	if (newest > view->ring_records)
		rank->complete_ns = oldest_ns;
	return true;
}

static bool add_trace(struct timeline *timeline, int number, const struct trace_view *view)
{
	struct timeline_rank *rank = &timeline->ranks[number];

	rank->known = true;
	rank->pid = view->header->pid;
	rank->start_ns = view->header->start_ns - (uint64_t)rank->clock.offset_ns;
	rank->start_s = view->header->start_epoch_s;
	copy_text(rank->host, sizeof rank->host, view->header->host, sizeof view->header->host);
	if (!timeline->program[0])
		copy_text(timeline->program, sizeof timeline->program, view->header->program,
			  sizeof view->header->program);
	if (!timeline->host[0])
		memcpy(timeline->host, rank->host, sizeof timeline->host);
	add_groups(timeline, number, view);
	return copy_records(timeline, number, view);
}

bool timeline_add(struct timeline *timeline, int rank, const struct trace_view *view)
{
	struct clock_rate own;

	if (rank < 0 || rank >= timeline->size || timeline->ranks[rank].known)
		return true;
	memcpy(&own, &view->header->rate, sizeof own);
	timeline->ranks[rank].rate = choose_rate(timeline, &own);
	return add_trace(timeline, rank, view);
}

bool timeline_add_at(struct timeline *timeline, int rank, const struct trace_view *view,
		     const struct timeline_clock *clock)
{
	if (rank < 0 || rank >= timeline->size || timeline->ranks[rank].known)
		return true;
	timeline->ranks[rank].has_clock = true;
	timeline->ranks[rank].clock = *clock;
	timeline->ranks[rank].rate = clock->rate;
	return add_trace(timeline, rank, view);
}

void timeline_miss(struct timeline *timeline, int rank, const char *host, int first)
{
	if (rank < 0 || rank >= timeline->size || timeline->ranks[rank].known)
		return;
	timeline->ranks[rank].is_missing = true;
	timeline->ranks[rank].clock.first = first;
	copy_text(timeline->ranks[rank].host, sizeof timeline->ranks[rank].host, host, strlen(host));
}

/* A loop calls from one place: each place is looked up once. */
static uint32_t find_site(struct timeline_rank *rank, const struct trace_record *record,
			  const struct trace_view *view)
{
	for (uint32_t i = 0; i < rank->site_count; i++)
		if (rank->sites[i].site == record->site && rank->sites[i].label == record->label)
			return i + 1;
	if (rank->site_count == TIMELINE_SITE_MAX)
		return 0;
	struct timeline_site *site = &rank->sites[rank->site_count++];
	site->site = record->site;
	site->label = record->label;
	trace_site(view, record, site->text, sizeof site->text);
	return rank->site_count;
}

void timeline_add_sites(struct timeline *timeline, int rank, const struct trace_view *view)
{
	for (size_t i = 0; i < timeline->op_count; i++) {
		struct timeline_op *op = &timeline->ops[i];
		if (op->rank == rank)
			op->site = find_site(&timeline->ranks[rank], &op->record, view);
	}
}
