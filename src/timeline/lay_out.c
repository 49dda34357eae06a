/* SPDX-License-Identifier: BSD-3-Clause
 * The layout of a timeline: which time it shows, and which row each operation lies on. Operations
 * that may overlap never share a row, unless there would be more than a page can hold. */
#include "timeline/timeline.h"

#include <stdlib.h>
#include <string.h>

/* The property by which operations get rows of their own; each level keeps less apart than the one
 * before. */
enum level { BY_TAG, BY_PEER, BY_GROUP, BY_LANE };

static int compare_numbers(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int by_begin(const void *a, const void *b)
{
	const struct timeline_op *x = a, *y = b;

	return compare_numbers(x->begin_ns, y->begin_ns);
}

static int by_rank_and_begin(const void *a, const void *b)
{
	const struct timeline_op *x = a, *y = b;
	int order = compare_numbers((uint64_t)x->rank, (uint64_t)y->rank);

	if (order == 0)
		order = compare_numbers(x->begin_ns, y->begin_ns);
	return order ? order : compare_numbers(x->record.index, y->record.index);
}

static int by_lane(const void *a, const void *b)
{
	const struct timeline_row *x = a, *y = b;
	const int64_t keys[][2] = {{x->rank, y->rank}, {x->lane, y->lane}, {x->group, y->group},
				   {x->peer, y->peer}, {x->tag, y->tag},   {x->order, y->order}};

	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
		if (keys[i][0] != keys[i][1])
			return keys[i][0] < keys[i][1] ? -1 : 1;
	return 0;
}

/* ---- time ---- */

static uint64_t last_event(const struct timeline *timeline)
{
	uint64_t last_ns = 0;

	for (size_t i = 0; i < timeline->op_count; i++) {
		const struct timeline_op *op = &timeline->ops[i];
		uint64_t at_ns = timeline_runs(op) ? op->begin_ns : op->end_ns;
		if (at_ns > last_ns)
			last_ns = at_ns;
	}
	return last_ns;
}

static void drop_before(struct timeline *timeline, uint64_t cut_ns)
{
	size_t kept = 0;

	for (size_t i = 0; i < timeline->op_count; i++) {
		const struct timeline_op *op = &timeline->ops[i];
		if (timeline_runs(op) || op->end_ns >= cut_ns)
			timeline->ops[kept++] = *op;
	}
	timeline->op_count = kept;
}

static void drop_oldest(struct timeline *timeline)
{
	size_t surplus = timeline->op_count - TIMELINE_OP_MAX;

	qsort(timeline->ops, timeline->op_count, sizeof *timeline->ops, by_begin);
	memmove(timeline->ops, timeline->ops + surplus, TIMELINE_OP_MAX * sizeof *timeline->ops);
	timeline->op_count = TIMELINE_OP_MAX;
	for (int i = 0; i < timeline->size; i++)
		if (timeline->ranks[i].complete_ns < timeline->ops[0].begin_ns)
			timeline->ranks[i].complete_ns = timeline->ops[0].begin_ns;
}

static void set_span(struct timeline *timeline, uint64_t cut_ns, uint64_t last_ns, uint64_t now_ns)
{
	bool runs = false;
	uint64_t first_ns = last_ns;

	for (size_t i = 0; i < timeline->op_count; i++) {
		const struct timeline_op *op = &timeline->ops[i];
		runs = runs || timeline_runs(op);
		if (op->begin_ns < first_ns)
			first_ns = op->begin_ns;
	}
	timeline->begin_ns = first_ns > cut_ns ? first_ns : cut_ns;
	timeline->end_ns = last_ns;
	timeline->now_ns = now_ns > last_ns ? now_ns : last_ns;
	/* Room after the last event, so that one sees which operations still run. */
	uint64_t room_ns = (last_ns - timeline->begin_ns) / 10 + 1000;
	if (runs && timeline->now_ns - last_ns > room_ns)
		timeline->end_ns = last_ns + room_ns;
	else if (runs)
		timeline->end_ns = timeline->now_ns;
	for (size_t i = 0; i < timeline->op_count; i++)
		if (timeline_runs(&timeline->ops[i]))
			timeline->ops[i].end_ns = timeline->end_ns;
}

/* ---- rows ---- */

static struct timeline_row row_for(const struct timeline_op *op, enum level level)
{
	const struct trace_record *record = &op->record;
	struct timeline_row row = {.rank = op->rank, .group = record->group};

	if (level == BY_LANE)
		row.group = 0;
	if (trace_kind_facts(record->kind).collective)
		return row;
	row.lane = record->kind == TRACE_SEND ? TIMELINE_LANE_SEND : TIMELINE_LANE_RECEIVE;
	row.peer = level < BY_GROUP ? record->peer : 0;
	row.tag = level < BY_PEER ? record->tag : 0;
	return row;
}

static bool same_lane(const struct timeline_row *a, const struct timeline_row *b)
{
	return a->lane == b->lane && a->group == b->group && a->peer == b->peer && a->tag == b->tag;
}

/* The first free row of the lane, otherwise a new row. If no more rows fit: -1, or with `squeeze`
 * the row that becomes free first. */
static int find_row(struct timeline_row *rows, uint32_t *count, const struct timeline_row *wanted,
		    uint64_t begin_ns, bool squeeze)
{
	int soonest = -1;

	for (uint32_t i = 0; i < *count; i++) {
		if (!same_lane(&rows[i], wanted))
			continue;
		if (rows[i].end_ns <= begin_ns)
			return (int)i;
		if (soonest < 0 || rows[i].end_ns < rows[soonest].end_ns)
			soonest = (int)i;
	}
	/* Each lane that is still to come needs a row. */
	uint32_t spare = squeeze && soonest >= 0 ? 2 : 0;
	if (*count + spare < TIMELINE_ROW_MAX) {
		rows[*count] = *wanted;
		rows[*count].order = *count;
		rows[*count].first = soonest < 0;
		return (int)(*count)++;
	}
	return squeeze ? soonest : -1;
}

/* Rows for the operations [first, last) of one rank; false if they need too many. */
static bool fill_rows(struct timeline *timeline, size_t first, size_t last, enum level level,
		      struct timeline_row *rows, uint32_t *count)
{
	*count = 0;
	for (size_t i = first; i < last; i++) {
		struct timeline_op *op = &timeline->ops[i];
		struct timeline_row wanted = row_for(op, level);
		int row = find_row(rows, count, &wanted, op->begin_ns, level == BY_LANE);
		if (row < 0)
			return false;
		op->row = (uint32_t)row;
		if (op->end_ns > rows[row].end_ns)
			rows[row].end_ns = op->end_ns;
	}
	return true;
}

static void label_row(const struct timeline *timeline, enum level level, struct timeline_row *row)
{
	static const char *const lanes[] = {"collectives", "sends", "receives"};
	const char *way = row->lane == TIMELINE_LANE_SEND ? "to" : "from";
	const char *group = level < BY_LANE ? timeline_group(timeline, row->group) : "";
	char peer[TIMELINE_PEER_BYTES], tag[24] = "", prefix[32] = "";

	if (row->lane == TIMELINE_LANE_COLLECTIVE) {
		snprintf(row->label, sizeof row->label, "%s", group[0] ? group : lanes[0]);
		return;
	}
	/* Operations of the world group need no prefix. */
	if (timeline->group_count > 1 && group[0] && strcmp(group, "world") != 0)
		snprintf(prefix, sizeof prefix, "%.24s: ", group);
	if (level >= BY_GROUP) {
		snprintf(row->label, sizeof row->label, "%s%s", prefix, lanes[row->lane]);
		return;
	}
	timeline_peer(timeline, row->group, row->peer, peer, sizeof peer);
	if (level == BY_TAG && row->tag > 0)
		snprintf(tag, sizeof tag, " tag %d", row->tag);
	else if (level == BY_TAG && row->tag < 0)
		snprintf(tag, sizeof tag, " any tag");
	snprintf(row->label, sizeof row->label, "%.26s%s %.11s%.15s", prefix, way, peer, tag);
}

/* Sorts the rows as a reader looks for them: by lane, group, peer and tag. The operations follow
 * their rows. */
static void sort_rows(struct timeline *timeline, size_t first, size_t last,
		      struct timeline_row *rows, uint32_t count, enum level level)
{
	uint32_t places[TIMELINE_ROW_MAX];

	qsort(rows, count, sizeof *rows, by_lane);
	for (uint32_t i = 0; i < count; i++) {
		places[rows[i].order] = timeline->row_count + i;
		label_row(timeline, level, &rows[i]);
	}
	for (size_t i = first; i < last; i++)
		timeline->ops[i].row = places[timeline->ops[i].row];
	memcpy(timeline->rows + timeline->row_count, rows, count * sizeof *rows);
	timeline->row_count += count;
}

static size_t lay_out_rank(struct timeline *timeline, int rank, size_t first)
{
	struct timeline_row rows[TIMELINE_ROW_MAX];
	enum level level = BY_TAG;
	size_t last = first;
	uint32_t count;

	while (last < timeline->op_count && timeline->ops[last].rank == rank)
		last++;
	while (!fill_rows(timeline, first, last, level, rows, &count))
		level++;
	timeline->ranks[rank].row = timeline->row_count;
	timeline->ranks[rank].row_count = count;
	sort_rows(timeline, first, last, rows, count, level);
	return last;
}

bool timeline_lay_out(struct timeline *timeline, uint64_t last_ns, uint64_t now_ns)
{
	uint64_t newest_ns = last_event(timeline);
	uint64_t cut_ns = last_ns > 0 && last_ns < newest_ns ? newest_ns - last_ns : 0;
	size_t next = 0;

	drop_before(timeline, cut_ns);
	if (timeline->op_count > TIMELINE_OP_MAX)
		drop_oldest(timeline);
	set_span(timeline, cut_ns, newest_ns, now_ns);
	if (timeline->op_count > 0)
		qsort(timeline->ops, timeline->op_count, sizeof *timeline->ops, by_rank_and_begin);
	timeline->rows = calloc((size_t)timeline->size * TIMELINE_ROW_MAX, sizeof *timeline->rows);
	if (!timeline->rows)
		return false;
	for (int rank = 0; rank < timeline->size; rank++)
		next = lay_out_rank(timeline, rank, next);
	return true;
}
