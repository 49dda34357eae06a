/* SPDX-License-Identifier: BSD-3-Clause
 * What a timeline says, and in which colors: the same for text, SVG and HTML. */
#include "timeline/timeline.h"

#include <inttypes.h>
#include <string.h>

#include "base/ranks.h"
#include "print/print.h"
#include "plan/plan.h"

/* People who confuse red and green can tell these apart: the colors of Okabe and Ito, and one
 * more. Kinds that must differ at a glance have their own colors; the others have the color of a
 * similar kind, and a label. */
static const struct {
	const char *color;
	bool dark;
} colors[] = {
	[COLL_BLUE] = {"#0072b2", true},    [COLL_SKY] = {"#56b4e9", false},
	[COLL_GREEN] = {"#009e73", true},   [COLL_YELLOW] = {"#f0e442", false},
	[COLL_ORANGE] = {"#e69f00", false}, [COLL_RED] = {"#d55e00", true},
	[COLL_PINK] = {"#cc79a7", false},   [COLL_WINE] = {"#6d1a49", true},
	[COLL_GREY] = {"#999999", false},
};

struct timeline_look timeline_look(uint32_t number)
{
	const struct coll_kind *kind =
		&coll_kinds[number < COLL_KIND_COUNT ? number : COLL_KIND_NONE];
	return (struct timeline_look){kind->letter, colors[kind->color].dark,
				      colors[kind->color].color};
}

uint64_t timeline_step(uint64_t span_ns, int marks)
{
	uint64_t least = span_ns / (uint64_t)marks + (span_ns % (uint64_t)marks != 0);

	/* The last power of ten in the loop is the last whose fivefold fits into 64 bits. */
	for (uint64_t power = 1; power <= UINT64_C(1000000000000000000); power *= 10) {
		if (power >= least)
			return power;
		if (2 * power >= least)
			return 2 * power;
		if (5 * power >= least)
			return 5 * power;
	}
	return UINT64_C(10000000000000000000);
}

struct unit {
	uint64_t ns;
	const char *name;
};
static const struct unit units[] = {{1000000000, "s"}, {1000000, "ms"}, {1000, "us"}, {1, "ns"}};

/* The largest unit that is not larger than the time. */
static const struct unit *unit_of(uint64_t ns)
{
	const struct unit *unit = units;

	while (unit->ns > 1 && unit->ns > ns)
		unit++;
	return unit;
}

void timeline_mark(uint64_t at_ns, uint64_t span_ns, uint64_t step_ns, char *out, size_t bytes)
{
	const struct unit *unit = unit_of(span_ns);
	uint64_t part_ns = unit->ns;
	int decimals = 0;

	for (; step_ns % part_ns != 0; decimals++)
		part_ns /= 10;
	snprintf(out, bytes, "%.*f %s", decimals, (double)at_ns / (double)unit->ns, unit->name);
}

void timeline_duration(uint64_t ns, char *out, size_t bytes)
{
	const struct unit *unit = unit_of(ns);
	double value = (double)ns / (double)unit->ns;
	int decimals = unit->ns == 1 || value >= 100 ? 0 : value >= 10 ? 1 : 2;

	snprintf(out, bytes, "%.*f %s", decimals, value, unit->name);
}

const char *timeline_group(const struct timeline *timeline, uint32_t id)
{
	for (uint32_t i = 0; i < timeline->group_count; i++)
		if (timeline->groups[i].id == id)
			return timeline->groups[i].name;
	return "an unknown group";
}

void timeline_peer(const struct timeline *timeline, uint32_t id, int32_t peer, char *out,
		   size_t bytes)
{
	if (peer < 0) {
		snprintf(out, bytes, "any");
		return;
	}
	for (uint32_t i = 0; i < timeline->group_count; i++) {
		const struct timeline_group *group = &timeline->groups[i];
		if (group->id != id || peer >= group->size)
			continue;
		snprintf(out, bytes, "%u", group->members[peer]);
		return;
	}
	snprintf(out, bytes, "%s%d", id == TRACE_GROUP_WORLD ? "" : "member ", peer);
}

const char *timeline_site(const struct timeline *timeline, const struct timeline_op *op)
{
	return op->site ? timeline->ranks[op->rank].sites[op->site - 1].text : "";
}

void timeline_name(const struct timeline *timeline, const struct timeline_op *op, char *out,
		   size_t bytes)
{
	const struct trace_record *record = &op->record;
	char peer[TIMELINE_PEER_BYTES];

	trace_name(record, out, bytes);
	if (trace_kind_facts(record->kind).collective) {
		print_append(out, bytes, " of %s", timeline_group(timeline, record->group));
		return;
	}
	timeline_peer(timeline, record->group, record->peer, peer, sizeof peer);
	print_append(out, bytes, " %s %s", record->kind == TRACE_SEND ? "to" : "from", peer);
	if (record->tag >= 0)
		print_append(out, bytes, ", tag %d", record->tag);
	else
		print_append(out, bytes, ", any tag");
	if (timeline->group_count > 1)
		print_append(out, bytes, ", in %s", timeline_group(timeline, record->group));
}

static void add_data(const struct timeline *timeline, const struct trace_record *record, char *out,
		     size_t bytes)
{
	char root[TIMELINE_PEER_BYTES];
	struct trace_kind_facts facts = trace_kind_facts(record->kind);

	if (record->algorithm != PLAN_NONE)
		print_append(out, bytes, "\nby %s", plan_algorithm_name(record->algorithm));
	if (!facts.typed)
		return;
	print_append(out, bytes, "\n%" PRIu64 " x %s", record->count,
		     trace_dtype_name(record->dtype));
	if (facts.reduces)
		print_append(out, bytes, ", %s", trace_reduce_name(record->reduce_op));
	if (!facts.rooted)
		return;
	timeline_peer(timeline, record->group, record->peer, root, sizeof root);
	print_append(out, bytes, ", root %s", root);
}

static void add_times(const struct timeline *timeline, const struct timeline_op *op, char *out,
		      size_t bytes)
{
	bool runs = timeline_runs(op);
	uint64_t end_ns = runs ? timeline->now_ns : op->end_ns;
	uint64_t took_ns = end_ns > op->begin_ns ? end_ns - op->begin_ns : 0;
	char took[32], begin[32];
	bool before = op->begin_ns < timeline->begin_ns;

	timeline_duration(took_ns, took, sizeof took);
	timeline_duration(before ? timeline->begin_ns - op->begin_ns
				 : op->begin_ns - timeline->begin_ns,
			  begin, sizeof begin);
	print_append(out, bytes, runs ? "\nstill running after %s" : "\ntook %s", took);
	print_append(out, bytes, before ? ", begun %s before" : ", begun at %s", begin);
}

void timeline_describe(const struct timeline *timeline, const struct timeline_op *op, char *out,
		       size_t bytes)
{
	const char *site = timeline_site(timeline, op);

	timeline_name(timeline, op, out, bytes);
	print_append(out, bytes, "%s", trace_stream_clause(&op->record));
	add_data(timeline, &op->record, out, bytes);
	if (site[0])
		print_append(out, bytes, "\n%s", site);
	add_times(timeline, op, out, bytes);
	if (op->record.state == TRACE_FAILED)
		print_append(out, bytes, "\nfailed: %s",
			     ls_status_name((ls_status)op->record.status));
	print_append(out, bytes, "\nrank %d, thread %u", op->rank, op->record.tid);
}

/* ---- hosts ---- */

static bool has_host(const struct timeline_rank *rank)
{
	return rank->has_clock || rank->is_missing;
}

/* The ranks on the host of rank `number`: those with a trace if this rank has one, otherwise those
 * without. */
static struct ranks ranks_beside(const struct timeline *timeline, int number)
{
	const struct timeline_rank *rank = &timeline->ranks[number];
	struct ranks ranks = {{0}};

	for (int i = 0; i < timeline->size; i++)
		if (has_host(&timeline->ranks[i]) &&
		    timeline->ranks[i].is_missing == rank->is_missing &&
		    timeline->ranks[i].clock.first == rank->clock.first)
			ranks_add(&ranks, i);
	return ranks;
}

static bool is_first_beside(const struct timeline *timeline, int number)
{
	struct ranks ranks = ranks_beside(timeline, number);

	return has_host(&timeline->ranks[number]) && ranks_first(&ranks) == number;
}

static int count_hosts(const struct timeline *timeline)
{
	int count = 0;

	for (int i = 0; i < timeline->size; i++)
		count += is_first_beside(timeline, i);
	return count;
}

bool timeline_note(const struct timeline *timeline, int number, char *out, size_t bytes)
{
	char who[128], error[32];

	for (int i = 0; i < timeline->size; i++) {
		const struct timeline_rank *rank = &timeline->ranks[i];
		if (!is_first_beside(timeline, i) || number-- > 0)
			continue;
		struct ranks ranks = ranks_beside(timeline, i);
		print_ranks(&ranks, who, sizeof who);
		timeline_duration(rank->clock.error_ns, error, sizeof error);
		double ahead_s = (double)rank->clock.offset_ns / 1e9;
		if (rank->is_missing)
			snprintf(out, bytes, "host %s (%s) has not answered", rank->host, who);
		else if (!rank->clock.error_ns)
			snprintf(out, bytes, "times are those of host %s (%s)", rank->host, who);
		else
			snprintf(out, bytes,
				 "the clock of host %s (%s) is %.6f s %s, give or take %s",
				 rank->host, who, ahead_s < 0 ? -ahead_s : ahead_s,
				 ahead_s < 0 ? "behind" : "ahead", error);
		return true;
	}
	return false;
}

void timeline_title(const struct timeline *timeline, char *out, size_t bytes)
{
	char span[32];

	timeline_duration(timeline->end_ns - timeline->begin_ns, span, sizeof span);
	snprintf(out, bytes, "job %016" PRIx64 ": %.64s, %d rank%s", timeline->job,
		 timeline->program[0] ? print_base_name(timeline->program) : "unknown program",
		 timeline->size, timeline->size == 1 ? "" : "s");
	int hosts = count_hosts(timeline);
	if (hosts > 1)
		print_append(out, bytes, " on %d hosts", hosts);
	else if (timeline->host[0])
		print_append(out, bytes, " on %s", timeline->host);
	print_append(out, bytes, ", %zu operation%s in %s", timeline->op_count,
		     timeline->op_count == 1 ? "" : "s", span);
}
