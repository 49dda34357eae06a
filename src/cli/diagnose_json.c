/* SPDX-License-Identifier: BSD-3-Clause
 * Reports for programs. Keys and words are stable; new keys may come. */
#include "cli/diagnose_print.h"

#include <string.h>

#include "cli/phases.h"
#include "cli/stacks.h"

static const char *process_word(enum diagnose_process process)
{
	switch (process) {
	case DIAGNOSE_UNKNOWN:
		break;
	case DIAGNOSE_RUNNING:
		return "running";
	case DIAGNOSE_SLEEPING:
		return "asleep";
	case DIAGNOSE_STOPPED:
		return "stopped";
	case DIAGNOSE_DEAD:
		return "ended";
	}
	return "unknown";
}

static const char *state_word(unsigned state)
{
	return state == TRACE_RUNNING ? "running" : state == TRACE_DONE ? "done" : "failed";
}

static void put_seconds(struct cli_json *json, const char *key, uint64_t now_ns, uint64_t then_ns)
{
	if (then_ns == 0)
		cli_json_null(json, key);
	else
		cli_json_unsigned(json, key, then_ns < now_ns ? (now_ns - then_ns) / 1000000 : 0);
}

static void put_peer(struct cli_json *json, const struct trace_record *record)
{
	struct trace_kind_facts facts = trace_kind_facts(record->kind);

	if (record->peer >= 0 && (facts.rooted || !facts.collective))
		cli_json_number(json, "peer", record->peer);
	else if (record->kind == TRACE_RECV || record->kind == TRACE_PROBE)
		cli_json_string(json, "peer", "any");
	else
		cli_json_null(json, "peer");
}

void cli_json_call(struct cli_json *json, const struct trace_record *record)
{
	struct trace_kind_facts facts = trace_kind_facts(record->kind);

	if (record->seq)
		cli_json_unsigned(json, "number", record->seq);
	else
		cli_json_null(json, "number");
	if (facts.typed) {
		cli_json_unsigned(json, "count", record->count);
		cli_json_string(json, "dtype", trace_dtype_name(record->dtype));
	} else {
		cli_json_null(json, "count");
		cli_json_null(json, "dtype");
	}
	if (facts.reduces)
		cli_json_string(json, "reduce_op", trace_reduce_name(record->reduce_op));
	else
		cli_json_null(json, "reduce_op");
	put_peer(json, record);
	if (facts.collective)
		cli_json_null(json, "tag");
	else if (record->tag < 0)
		cli_json_string(json, "tag", "any");
	else
		cli_json_number(json, "tag", record->tag);
}

static void put_operation(struct cli_json *json, const struct diagnose_job *job,
			  const struct diagnose_record *record)
{
	const struct trace_record *fields = &record->record;

	cli_json_open(json, "operation", '{');
	cli_json_string(json, "kind", trace_kind_name(fields->kind));
	cli_json_unsigned(json, "group", fields->group);
	if (record->members)
		cli_json_mask(json, "group_ranks", record->members);
	cli_json_call(json, fields);
	cli_json_string(json, "state", state_word(fields->state));
	cli_json_string(json, "status", ls_status_name((ls_status)fields->status));
	cli_json_unsigned(json, "step", record->step);
	cli_json_unsigned(json, "steps", fields->step_count);
	cli_json_string(json, "site", record->site);
	put_seconds(json, "began_ms_ago", job->now_ns, record->begin_ns);
	put_seconds(json, "ended_ms_ago", job->now_ns, record->end_ns);
	cli_json_close(json, '}');
}

static void put_rank(struct cli_json *json, const struct cli_shown *shown, int number)
{
	const struct cli_report *report = shown->report;
	const struct diagnose_job *job = report->job;
	const struct diagnose_rank *rank = &job->ranks[number];
	const struct diagnose_record *record;
	uint64_t since_ns;

	uint64_t peers = cli_waits_for(job, number, &since_ns, &record);
	cli_json_open(json, NULL, '{');
	cli_json_number(json, "rank", number);
	cli_json_bool(json, "readable", rank->known);
	cli_json_number(json, "pid", rank->pid);
	cli_json_string(json, "host", rank->host);
	cli_json_string(json, "program", rank->program);
	cli_json_string(json, "process", process_word(rank->process));
	if (rank->process == DIAGNOSE_DEAD) {
		cli_json_number(json, "signal", rank->signal);
		cli_json_number(json, "exit_code", rank->exit_code);
	}
	cli_json_bool(json, "left", rank->left);
	cli_json_mask(json, "waits_for", peers);
	put_seconds(json, "waits_ms", job->now_ns, since_ns);
	if (!record && rank->record_count > 0)
		record = &rank->records[0];
	if (record)
		put_operation(json, job, record);
	else
		cli_json_null(json, "operation");
	if (rank->python[0])
		cli_json_string(json, "python", rank->python);
	else
		cli_json_null(json, "python");
	cli_phases_json(json, report->phases, number);
	if (shown->stacks)
		cli_stacks_json(json, report, number);
	cli_json_close(json, '}');
}

static void put_verdict(struct cli_json *json, const struct cli_shown *shown)
{
	const struct cli_report *report = shown->report;
	const struct diagnose_verdict *verdict = &report->verdict;

	cli_json_open(json, "verdict", '{');
	cli_json_bool(json, "healthy", !shown->verdict);
	cli_json_string(json, "cause", diagnose_cause_name(verdict->cause));
	cli_json_bool(json, "published", report->failure != LS_OK);
	cli_json_string(json, "status",
			ls_status_name(report->failure ? report->failure : verdict->status));
	cli_json_number(json, "blamed", report->blamed);
	cli_json_mask(json, "culprits", verdict->culprits);
	cli_json_mask(json, "waiting", verdict->waiting);
	cli_json_unsigned(json, "operation", report->operation);
	cli_json_string(json, "text", report->text);
	cli_json_close(json, '}');
}

void cli_print_json(struct cli_json *json, const struct cli_shown *shown)
{
	const struct diagnose_job *job = shown->report->job;
	char id[32];

	snprintf(id, sizeof id, "%016llx", (unsigned long long)job->job);
	cli_json_open(json, NULL, '{');
	cli_json_string(json, "job", id);
	cli_json_bool(json, "running", !shown->snapshot && cli_is_running(job));
	cli_json_string(json, "source", shown->snapshot ? "snapshot" : "memory");
	if (shown->snapshot) {
		cli_json_string(json, "ended", shown->snapshot->ended);
		cli_json_unsigned(json, "written", shown->snapshot->written_s);
	}
	cli_json_number(json, "size", job->size);
	cli_json_open(json, "ranks", '[');
	for (int i = 0; i < job->size; i++)
		put_rank(json, shown, i);
	cli_json_close(json, ']');
	cli_stragglers_json(json, shown->report->phases);
	put_verdict(json, shown);
	cli_json_close(json, '}');
}
