/* SPDX-License-Identifier: BSD-3-Clause
 * A timeline for programs: all that its bars are made of. Keys and words are stable, though new
 * keys may come; where lockstep diagnose --json says the same, its keys and words are used. */
#include "print/print.h"
#include "inspect/report.h"
#include "timeline/timeline.h"

static const char *state_word(unsigned state)
{
	return state == TRACE_RUNNING ? "running" : state == TRACE_DONE ? "done" : "failed";
}

static void put_groups(struct print_json *json, const struct timeline *timeline)
{
	print_json_open(json, "groups", '[');
	for (uint32_t i = 0; i < timeline->group_count; i++) {
		const struct timeline_group *group = &timeline->groups[i];
		print_json_open(json, NULL, '{');
		print_json_unsigned(json, "id", group->id);
		print_json_string(json, "name", group->name);
		print_json_open(json, "ranks", '[');
		for (int j = 0; j < group->size; j++)
			print_json_number(json, NULL, group->members[j]);
		print_json_close(json, ']');
		print_json_open(json, "entered", '[');
		for (int j = 0; j < group->size; j++)
			if (ranks_have(&group->told, group->members[j]))
				print_json_unsigned(json, NULL, group->entered[group->members[j]]);
			else
				print_json_null(json, NULL);
		print_json_close(json, ']');
		print_json_close(json, '}');
	}
	print_json_close(json, ']');
}

static void put_operation(struct print_json *json, const struct timeline *timeline,
			  const struct timeline_op *op)
{
	const struct trace_record *record = &op->record;

	print_json_open(json, NULL, '{');
	print_json_unsigned(json, "index", record->index);
	print_json_unsigned(json, "group", record->group);
	print_json_string(json, "kind", trace_kind_name(record->kind));
	inspect_json_call(json, record);
	print_json_string(json, "state", state_word(record->state));
	print_json_string(json, "status", ls_status_name((ls_status)record->status));
	if (trace_stream_word(record))
		print_json_string(json, "stream", trace_stream_word(record));
	print_json_string(json, "site", timeline_site(timeline, op));
	print_json_unsigned(json, "begin_ns", op->begin_ns);
	if (timeline_runs(op))
		print_json_null(json, "end_ns");
	else
		print_json_unsigned(json, "end_ns", op->end_ns);
	print_json_unsigned(json, "thread", record->tid);
	print_json_close(json, '}');
}

/* `next` is the first operation that has not been written; operations are sorted by rank. */
static size_t put_rank(struct print_json *json, const struct timeline *timeline, int number,
		       size_t next)
{
	const struct timeline_rank *rank = &timeline->ranks[number];

	print_json_open(json, NULL, '{');
	print_json_number(json, "rank", number);
	print_json_bool(json, "readable", rank->known);
	print_json_number(json, "pid", rank->pid);
	print_json_string(json, "host", rank->host);
	if (rank->has_clock) {
		print_json_number(json, "clock_ahead_ns", rank->clock.offset_ns);
		print_json_unsigned(json, "clock_error_ns", rank->clock.error_ns);
	}
	print_json_unsigned(json, "start_ns", rank->start_ns);
	print_json_unsigned(json, "start_s", rank->start_s);
	print_json_unsigned(json, "complete_since_ns", rank->complete_ns);
	print_json_open(json, "operations", '[');
	for (; next < timeline->op_count && timeline->ops[next].rank == number; next++)
		put_operation(json, timeline, &timeline->ops[next]);
	print_json_close(json, ']');
	print_json_close(json, '}');
	return next;
}

void timeline_json(const struct timeline *timeline, FILE *out)
{
	struct print_json json = {.out = out};
	size_t next = 0;
	char id[32];

	snprintf(id, sizeof id, "%016llx", (unsigned long long)timeline->job);
	print_json_open(&json, NULL, '{');
	print_json_string(&json, "job", id);
	print_json_string(&json, "program", print_base_name(timeline->program));
	print_json_string(&json, "host", timeline->host);
	print_json_number(&json, "size", timeline->size);
	print_json_unsigned(&json, "read_ns", timeline->now_ns);
	put_groups(&json, timeline);
	print_json_open(&json, "ranks", '[');
	for (int i = 0; i < timeline->size; i++)
		next = put_rank(&json, timeline, i, next);
	print_json_close(&json, ']');
	print_json_close(&json, '}');
	fputc('\n', out);
}
