/* SPDX-License-Identifier: BSD-3-Clause
 * Reports for programs. Keys and words are stable; new keys may come. */
#include "base/ranks.h"
#include "inspect/report.h"
#include "print/print.h"

#include <string.h>

#include "inspect/ask_hosts.h"
#include "inspect/phase_report.h"
#include "inspect/stacks.h"

const char *inspect_process_word(enum diagnose_process process)
{
	switch (process) {
	case DIAGNOSE_PROCESS_UNKNOWN:
		break;
	case DIAGNOSE_PROCESS_RUNNING:
		return "running";
	case DIAGNOSE_PROCESS_SLEEPING:
		return "asleep";
	case DIAGNOSE_PROCESS_STOPPED:
		return "stopped";
	case DIAGNOSE_PROCESS_DEAD:
		return "ended";
	}
	return "unknown";
}

static const char *state_word(unsigned state)
{
	return state == TRACE_RUNNING ? "running" : state == TRACE_DONE ? "done" : "failed";
}

static void put_seconds(struct print_json *json, const char *key, uint64_t now_ns, uint64_t then_ns)
{
	if (then_ns == 0)
		print_json_null(json, key);
	else
		print_json_unsigned(json, key, then_ns < now_ns ? (now_ns - then_ns) / 1000000 : 0);
}

static void put_peer(struct print_json *json, const struct trace_record *record)
{
	struct trace_kind_facts facts = trace_kind_facts(record->kind);

	if (record->peer >= 0 && (facts.rooted || !facts.collective))
		print_json_number(json, "peer", record->peer);
	else if (record->kind == TRACE_RECV || record->kind == TRACE_PROBE)
		print_json_string(json, "peer", "any");
	else
		print_json_null(json, "peer");
}

void inspect_json_call(struct print_json *json, const struct trace_record *record)
{
	struct trace_kind_facts facts = trace_kind_facts(record->kind);

	if (record->seq)
		print_json_unsigned(json, "number", record->seq);
	else
		print_json_null(json, "number");
	if (facts.typed) {
		print_json_unsigned(json, "count", record->count);
		print_json_string(json, "dtype", trace_dtype_name(record->dtype));
	} else {
		print_json_null(json, "count");
		print_json_null(json, "dtype");
	}
	if (facts.reduces)
		print_json_string(json, "reduce_op", trace_reduce_name(record->reduce_op));
	else
		print_json_null(json, "reduce_op");
	put_peer(json, record);
	if (facts.collective)
		print_json_null(json, "tag");
	else if (record->tag < 0)
		print_json_string(json, "tag", "any");
	else
		print_json_number(json, "tag", record->tag);
}

static void put_operation(struct print_json *json, const struct diagnose_snapshot *snapshot,
			  const struct diagnose_record *record)
{
	const struct trace_record *fields = &record->record;

	print_json_open(json, "operation", '{');
	print_json_string(json, "kind", trace_kind_name(fields->kind));
	print_json_unsigned(json, "group", fields->group);
	const struct ranks *members = diagnose_members(snapshot, fields->group);
	if (members)
		print_json_ranks(json, "group_ranks", members);
	inspect_json_call(json, fields);
	print_json_string(json, "state", state_word(fields->state));
	print_json_string(json, "status", ls_status_name((ls_status)fields->status));
	print_json_unsigned(json, "step", record->step);
	print_json_unsigned(json, "steps", fields->step_count);
	if (trace_stream_word(fields))
		print_json_string(json, "stream", trace_stream_word(fields));
	print_json_string(json, "site", record->site);
	put_seconds(json, "began_ms_ago", snapshot->now_ns, record->begin_ns);
	put_seconds(json, "ended_ms_ago", snapshot->now_ns, record->end_ns);
	print_json_close(json, '}');
}

void inspect_foreign_calls_json(struct print_json *json, const struct diagnose_snapshot *snapshot,
				const struct diagnose_rank *rank)
{
	print_json_open(json, "foreign_calls", '[');
	for (uint32_t i = 0; diagnose_foreign_call(rank) && i < rank->thread_count; i++) {
		const struct wait_slot_body *wait = &rank->threads[i].wait;
		if (wait->state != WAIT_FOREIGN || !rank->threads[i].stable)
			continue;
		print_json_open(json, NULL, '{');
		print_json_unsigned(json, "tid", wait->tid);
		print_json_string(json, "call", wait->foreign);
		put_seconds(json, "ms", snapshot->now_ns, wait->since_ns);
		print_json_close(json, '}');
	}
	print_json_close(json, ']');
}

static void put_rank(struct print_json *json, const struct inspect_shown *shown, int number)
{
	const struct inspect_report *report = shown->report;
	const struct diagnose_snapshot *snapshot = report->snapshot;
	const struct diagnose_rank *rank = &snapshot->ranks[number];
	const struct diagnose_record *record;
	uint64_t since_ns;

	struct ranks peers = inspect_waits_for(snapshot, number, &since_ns, &record);
	print_json_open(json, NULL, '{');
	print_json_number(json, "rank", number);
	print_json_bool(json, "readable", rank->known);
	print_json_number(json, "pid", rank->pid);
	print_json_string(json, "host", rank->host);
	print_json_string(json, "program", rank->program);
	print_json_string(json, "process", inspect_process_word(rank->process));
	if (rank->process == DIAGNOSE_PROCESS_DEAD) {
		print_json_number(json, "signal", rank->signal);
		print_json_number(json, "exit_code",
				  rank->exit_code == DIAGNOSE_EXEC ? -1 : rank->exit_code);
		print_json_bool(json, "replaced", rank->exit_code == DIAGNOSE_EXEC);
	}
	print_json_bool(json, "left", rank->left);
	print_json_ranks(json, "waits_for", &peers);
	put_seconds(json, "waits_ms", snapshot->now_ns, since_ns);
	if (!record && rank->record_count > 0)
		record = &rank->records[0];
	if (record)
		put_operation(json, snapshot, record);
	else
		print_json_null(json, "operation");
	inspect_foreign_calls_json(json, snapshot, rank);
	if (rank->python[0])
		print_json_string(json, "python", rank->python);
	else
		print_json_null(json, "python");
	inspect_phases_json(json, report->phases, number);
	if (shown->stacks)
		inspect_stacks_json(json, report, number);
	print_json_close(json, '}');
}

static void put_verdict(struct print_json *json, const struct inspect_shown *shown)
{
	const struct inspect_report *report = shown->report;
	const struct diagnose_verdict *verdict = &report->verdict;

	print_json_open(json, "verdict", '{');
	print_json_bool(json, "healthy", !shown->verdict);
	print_json_string(json, "cause", diagnose_cause_name(verdict->cause));
	print_json_bool(json, "published", report->failure != LS_OK);
	print_json_string(json, "status",
			  ls_status_name(report->failure ? report->failure : verdict->status));
	print_json_number(json, "blamed", report->culprit); /* keys are stable: its old name */
	print_json_ranks(json, "culprits", &verdict->culprits);
	print_json_ranks(json, "waiting", &verdict->waiting);
	print_json_unsigned(json, "operation", report->operation);
	print_json_string(json, "text", report->text);
	print_json_close(json, '}');
}

void inspect_print_json(struct print_json *json, const struct inspect_shown *shown)
{
	const struct diagnose_snapshot *snapshot = shown->report->snapshot;
	char id[32];

	snprintf(id, sizeof id, "%016llx", (unsigned long long)snapshot->job);
	print_json_open(json, NULL, '{');
	print_json_string(json, "job", id);
	print_json_bool(json, "running", !shown->saved && inspect_is_running(snapshot));
	print_json_string(json, "source", shown->saved ? "snapshot" : "memory");
	if (shown->saved) {
		print_json_string(json, "ended", shown->saved->ended);
		print_json_unsigned(json, "written", shown->saved->written_s);
	}
	print_json_number(json, "size", snapshot->size);
	print_json_open(json, "ranks", '[');
	for (int i = 0; i < snapshot->size; i++)
		put_rank(json, shown, i);
	print_json_close(json, ']');
	inspect_hosts_json(json, shown->report);
	inspect_stragglers_json(json, shown->report->phases);
	put_verdict(json, shown);
	print_json_close(json, '}');
}
