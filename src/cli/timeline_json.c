/* SPDX-License-Identifier: BSD-3-Clause
 * A timeline for programs: all that its bars are made of. Keys and words are stable, and those of lockstep
 * diagnose --json where both say the same; new keys may come. */
#include "cli/cli.h"
#include "cli/diagnose_print.h"
#include "cli/timeline.h"

static const char *state_word(unsigned state)
{
	return state == TRACE_RUNNING ? "running" : state == TRACE_DONE ? "done" : "failed";
}

static void put_groups(struct cli_json *json, const struct cli_timeline *timeline)
{
	cli_json_open(json, "groups", '[');
	for (uint32_t i = 0; i < timeline->group_count; i++) {
		const struct cli_timeline_group *group = &timeline->groups[i];
		cli_json_open(json, NULL, '{');
		cli_json_unsigned(json, "id", group->id);
		cli_json_string(json, "name", group->name);
		cli_json_open(json, "ranks", '[');
		for (int j = 0; j < group->size; j++)
			cli_json_number(json, NULL, group->members[j]);
		cli_json_close(json, ']');
		cli_json_open(json, "entered", '[');
		for (int j = 0; j < group->size; j++)
			if (group->told >> group->members[j] & 1)
				cli_json_unsigned(json, NULL, group->entered[group->members[j]]);
			else
				cli_json_null(json, NULL);
		cli_json_close(json, ']');
		cli_json_close(json, '}');
	}
	cli_json_close(json, ']');
}

static void put_operation(struct cli_json *json, const struct cli_timeline *timeline,
			  const struct cli_timeline_op *op)
{
	const struct trace_record *record = &op->record;

	cli_json_open(json, NULL, '{');
	cli_json_unsigned(json, "index", record->index);
	cli_json_unsigned(json, "group", record->group);
	cli_json_string(json, "kind", trace_kind_name(record->kind));
	cli_json_call(json, record);
	cli_json_string(json, "state", state_word(record->state));
	cli_json_string(json, "status", ls_status_name((ls_status)record->status));
	cli_json_string(json, "site", cli_timeline_site(timeline, op));
	cli_json_unsigned(json, "begin_ns", op->begin_ns);
	if (cli_timeline_runs(op))
		cli_json_null(json, "end_ns");
	else
		cli_json_unsigned(json, "end_ns", op->end_ns);
	cli_json_unsigned(json, "thread", record->tid);
	cli_json_close(json, '}');
}

/* `next` is the first operation that has not been written; they are sorted by rank. */
static size_t put_rank(struct cli_json *json, const struct cli_timeline *timeline, int number,
		       size_t next)
{
	const struct cli_timeline_rank *rank = &timeline->ranks[number];

	cli_json_open(json, NULL, '{');
	cli_json_number(json, "rank", number);
	cli_json_bool(json, "readable", rank->known);
	cli_json_number(json, "pid", rank->pid);
	cli_json_unsigned(json, "start_ns", rank->start_ns);
	cli_json_unsigned(json, "start_s", rank->start_s);
	cli_json_unsigned(json, "complete_since_ns", rank->complete_ns);
	cli_json_open(json, "operations", '[');
	for (; next < timeline->op_count && timeline->ops[next].rank == number; next++)
		put_operation(json, timeline, &timeline->ops[next]);
	cli_json_close(json, ']');
	cli_json_close(json, '}');
	return next;
}

void cli_timeline_json(const struct cli_timeline *timeline, FILE *out)
{
	struct cli_json json = {.out = out};
	size_t next = 0;
	char id[32];

	snprintf(id, sizeof id, "%016llx", (unsigned long long)timeline->job);
	cli_json_open(&json, NULL, '{');
	cli_json_string(&json, "job", id);
	cli_json_string(&json, "program", cli_base_name(timeline->program));
	cli_json_string(&json, "host", timeline->host);
	cli_json_number(&json, "size", timeline->size);
	cli_json_unsigned(&json, "read_ns", timeline->now_ns);
	put_groups(&json, timeline);
	cli_json_open(&json, "ranks", '[');
	for (int i = 0; i < timeline->size; i++)
		next = put_rank(&json, timeline, i, next);
	cli_json_close(&json, ']');
	cli_json_close(&json, '}');
	fputc('\n', out);
}
