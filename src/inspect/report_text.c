/* SPDX-License-Identifier: BSD-3-Clause
 * Reports as a person reads them. Names and texts come from other processes, so they are printed
 * through print_safely. */
#include "base/ranks.h"
#include "inspect/report.h"
#include "print/print.h"

#include <string.h>
#include <time.h>

#include "inspect/ask_hosts.h"
#include "inspect/phase_report.h"
#include "inspect/stacks.h"

enum { FOREIGN_TEXT_BYTES = 256 };

static const struct diagnose_record *find_record(const struct diagnose_rank *rank, uint64_t index)
{
	for (uint32_t i = 0; i < rank->record_count; i++)
		if (index != 0 && rank->records[i].record.index == index)
			return &rank->records[i];
	return NULL;
}

static bool is_blocked(const struct wait_slot_body *wait)
{
	return wait->state == WAIT_WORDS || wait->state == WAIT_ANY_WORD || wait->state == WAIT_FDS;
}

struct ranks inspect_waits_for(const struct diagnose_snapshot *snapshot, int rank_number,
			       uint64_t *since_ns, const struct diagnose_record **record)
{
	const struct diagnose_rank *rank = &snapshot->ranks[rank_number];
	struct ranks peers = {{0}};

	*since_ns = 0;
	*record = NULL;
	if (rank->process == DIAGNOSE_PROCESS_DEAD || rank->left)
		return peers; /* its slots are old */
	for (uint32_t i = 0; i < rank->thread_count; i++) {
		const struct diagnose_thread *thread = &rank->threads[i];
		const struct wait_slot_body *wait = &thread->wait;
		if (!is_blocked(wait))
			continue;
		for (uint32_t e = 0; e < wait->edge_count; e++) {
			int32_t peer = wait->edges[e].peer;
			bool met = thread->satisfied >> e & 1;
			if (peer >= 0 && peer < snapshot->size && !met)
				ranks_add(&peers, peer);
		}
		if (*since_ns == 0 || wait->since_ns < *since_ns) {
			*since_ns = wait->since_ns;
			*record = find_record(rank, wait->record);
		}
	}
	return peers;
}

static void print_time(FILE *out, uint64_t now_ns, uint64_t then_ns)
{
	double seconds = then_ns < now_ns ? (double)(now_ns - then_ns) / 1e9 : 0;

	if (seconds < 1)
		fprintf(out, "%.0f ms", seconds * 1e3);
	else if (seconds < 100)
		fprintf(out, "%.1f s", seconds);
	else
		fprintf(out, "%.0f s", seconds);
}

static void print_operation(FILE *out, const struct diagnose_snapshot *snapshot,
			    const struct diagnose_record *record)
{
	const struct ranks *members = diagnose_members(snapshot, record->record.group);
	char name[TRACE_NAME_BYTES];
	trace_name(&record->record, name, sizeof name);
	fputs(name, out);
	if (members) {
		char who[256];
		print_ranks(members, who, sizeof who);
		fprintf(out, " of group %u, %s", record->record.group, who);
	}
	if (record->site[0]) {
		fputs(" (", out);
		print_safely(out, record->site, 0);
		fputc(')', out);
	}
}

void inspect_process_text(const struct diagnose_rank *rank, char *out, size_t bytes)
{
	static const char *const names[] = {
		[DIAGNOSE_PROCESS_UNKNOWN] = "unknown", [DIAGNOSE_PROCESS_RUNNING] = "running",
		[DIAGNOSE_PROCESS_SLEEPING] = "asleep", [DIAGNOSE_PROCESS_STOPPED] = "stopped",
		[DIAGNOSE_PROCESS_DEAD] = "ended",
	};
	char name[32];

	if (rank->process != DIAGNOSE_PROCESS_DEAD) {
		snprintf(out, bytes, "%s", names[rank->process]);
	} else if (rank->signal > 0) {
		print_signal(rank->signal, name, sizeof name);
		snprintf(out, bytes, "killed by %s", name);
	} else if (rank->signal == 0 && rank->exit_code >= 0) {
		snprintf(out, bytes, "exited with %d", rank->exit_code);
	} else if (rank->exit_code == DIAGNOSE_EXEC) {
		snprintf(out, bytes, "replaced by another program");
	} else {
		snprintf(out, bytes, "ended");
	}
}

/* Whether one of several ranks would end the wait, and not all of them have to. */
static bool is_from_any(const struct trace_record *record)
{
	return (record->kind == TRACE_RECV || record->kind == TRACE_PROBE) && record->peer < 0;
}

static void print_operations(FILE *out, const struct diagnose_snapshot *snapshot, int number)
{
	const struct diagnose_rank *rank = &snapshot->ranks[number];
	const struct diagnose_record *record;
	uint64_t since_ns;
	char who[256];

	struct ranks peers = inspect_waits_for(snapshot, number, &since_ns, &record);
	if (since_ns != 0) {
		fputs("waits ", out);
		print_time(out, snapshot->now_ns, since_ns);
		if (record && is_from_any(&record->record)) {
			fputs(" for any rank", out);
		} else if (ranks_any(&peers)) {
			print_ranks(&peers, who, sizeof who);
			fprintf(out, " for %s", who);
		}
		if (record) {
			fputs(" in ", out);
			print_operation(out, snapshot, record);
		}
		return;
	}
	if (rank->left)
		fputs("has closed its group; ", out);
	if (rank->record_count == 0) {
		fputs("no operation yet", out);
		return;
	}
	record = &rank->records[0];
	bool running = record->record.state == TRACE_RUNNING;
	fputs(!running                                 ? "last was "
	      : rank->process == DIAGNOSE_PROCESS_DEAD ? "was in "
						       : "in ",
	      out);
	print_operation(out, snapshot, record);
	if (record->record.state == TRACE_FAILED)
		fprintf(out, ", failed with %s", ls_status_name((ls_status)record->record.status));
	if (!running && record->end_ns != 0) {
		fputs(", ended ", out);
		print_time(out, snapshot->now_ns, record->end_ns);
		fputs(" ago", out);
	}
}

static void print_doing(FILE *out, const struct diagnose_snapshot *snapshot, int number)
{
	char call[FOREIGN_TEXT_BYTES];

	print_operations(out, snapshot, number);
	diagnose_foreign_call_text(snapshot, number, call, sizeof call);
	if (call[0]) {
		fputs("; ", out);
		print_safely(out, call, 0);
	}
}

static const char *program_of(const struct diagnose_snapshot *snapshot)
{
	for (int i = 0; i < snapshot->size; i++)
		if (snapshot->ranks[i].known && snapshot->ranks[i].program[0])
			return print_base_name(snapshot->ranks[i].program);
	return "unknown program";
}

void inspect_print_head(FILE *out, const struct diagnose_snapshot *snapshot,
			const struct inspect_saved *saved)
{
	char when[64] = "";

	fprintf(out, "job %016llx: ", (unsigned long long)snapshot->job);
	if (saved) {
		time_t written = (time_t)saved->written_s;
		struct tm local;
		if (localtime_r(&written, &local))
			strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &local);
		fprintf(out, "snapshot of %s", when);
	} else {
		fputs(inspect_is_running(snapshot) ? "running" : "ended", out);
	}
	fputs(", ", out);
	print_safely(out, program_of(snapshot), 0);
	fprintf(out, ", %d rank%s\n", snapshot->size, snapshot->size == 1 ? "" : "s");
	if (saved && saved->ended[0]) {
		fputs("  ", out);
		print_safely(out, saved->ended, 2);
		fputc('\n', out);
	}
}

/* Prints what is known of a rank that cannot be read. */
static void print_unseen(FILE *out, const struct inspect_hosts *hosts, int number)
{
	char name[TRACE_NAME_BYTES];

	if (!hosts || (hosts->has_told && ranks_have(&hosts->answered, number))) {
		fputs("cannot be read", out);
		return;
	}
	fputs("its host has not answered", out);
	if (hosts->last[number].kind == TRACE_NONE)
		return;
	trace_name(&hosts->last[number], name, sizeof name);
	fprintf(out, "; last heard of in %s", name);
}

static int host_columns(const struct diagnose_snapshot *snapshot)
{
	int columns = 0;

	for (int i = 0; i < snapshot->size; i++) {
		int length = (int)strlen(snapshot->ranks[i].host);
		columns = length > columns ? length : columns;
	}
	return columns;
}

static void print_each(FILE *out, const struct inspect_report *report)
{
	const struct diagnose_snapshot *snapshot = report->snapshot;
	int columns = report->hosts ? host_columns(snapshot) : 0;

	for (int i = 0; i < snapshot->size; i++) {
		const struct diagnose_rank *rank = &snapshot->ranks[i];
		char process[64];
		fprintf(out, "  rank %-2d  ", i);
		if (report->hosts) {
			print_safely(out, rank->host, 0);
			fprintf(out, "%*s  ", columns - (int)strlen(rank->host), "");
		}
		if (!rank->known) {
			if (report->hosts)
				fprintf(out, "pid %-7d  ", rank->pid);
			print_unseen(out, report->hosts, i);
			fputc('\n', out);
			continue;
		}
		inspect_process_text(rank, process, sizeof process);
		fprintf(out, "pid %-7d  %-8s  ", rank->pid, process);
		print_doing(out, snapshot, i);
		fputc('\n', out);
	}
}

static int count_unread(const struct diagnose_snapshot *snapshot)
{
	int count = 0;

	for (int i = 0; i < snapshot->size; i++)
		count += !snapshot->ranks[i].known;
	return count;
}

void inspect_print(FILE *out, const struct inspect_shown *shown)
{
	const struct inspect_report *report = shown->report;
	int unread = count_unread(report->snapshot);

	inspect_print_head(out, report->snapshot, shown->saved);
	print_each(out, report);
	inspect_hosts_print(out, report);
	if (report->failure != LS_OK)
		fprintf(out, "  the group has failed with %s:\n    ",
			ls_status_name(report->failure));
	else if (shown->verdict)
		fprintf(out, "  verdict: ");
	else if (report->text[0])
		fprintf(out, "  no verdict so far; if it stays like this:\n    ");
	else if (unread)
		fprintf(out, "  no verdict: what %d rank%s for is not known\n", unread,
			unread == 1 ? " waits" : "s wait");
	else
		fprintf(out, "  nothing is wrong%s\n",
			shown->saved ? " with the communication" : "");
	if (report->text[0]) {
		print_safely(out, report->text, 4);
		if (report->text[strlen(report->text) - 1] != '\n')
			fputc('\n', out);
	}
	inspect_phases_print(out, report->phases);
	if (shown->stacks)
		inspect_stacks_print(out, report);
}
