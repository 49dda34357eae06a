/* SPDX-License-Identifier: BSD-3-Clause
 * Makes a report of what a view maps: the state of all ranks at one moment, the cause that they
 * have published, what ranks on other hosts answer, and the verdict. */
#include "inspect/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/ranks.h"
#include "base/wait.h"
#include "failure/entered.h"
#include "failure/unexpected.h"
#include "inspect/ask_hosts.h"
#include "inspect/phase_report.h"
#include "inspect/report.h"
#include "print/print.h"

bool inspect_is_running(const struct diagnose_snapshot *snapshot)
{
	for (int i = 0; i < snapshot->size; i++)
		if (snapshot->ranks[i].known && snapshot->ranks[i].process != DIAGNOSE_PROCESS_DEAD)
			return true;
	return false;
}

/* A wait returns now and then, so that its rank can handle signals. Without a processor the rank is
 * mostly seen on its way back into the wait. So if operations of living ranks have lasted for
 * LONG_NS and nobody seems to wait, it takes some looks to see the waits. */
enum { LONG_NS = 1000000000, AGAIN_MS = 10, LOOKS = 30 };

static bool is_unsettled(const struct diagnose_snapshot *snapshot)
{
	struct diagnose_verdict verdict;
	bool lasts = false;

	for (int r = 0; r < snapshot->size && !lasts; r++) {
		const struct diagnose_rank *rank = &snapshot->ranks[r];
		for (uint32_t i = 0; i < rank->record_count; i++)
			lasts |= rank->process != DIAGNOSE_PROCESS_DEAD &&
				 rank->records[i].record.state == TRACE_RUNNING &&
				 rank->records[i].begin_ns + LONG_NS < snapshot->now_ns;
	}
	if (!lasts)
		return false;
	diagnose_judge(snapshot, NULL, &verdict);
	return verdict.cause == DIAGNOSE_HEALTHY;
}

static void look(struct inspect_report *report, int size)
{
	bool is_one_host = true;

	for (int i = 0; i < size; i++)
		is_one_host &= report->sources[i].host == NULL;
	for (int looks = 0; looks < LOOKS; looks++) {
		diagnose_collect(report->sources, size, NULL, report->snapshot);
		/* Several hosts are to look at the same time. */
		if (!is_one_host || !is_unsettled(report->snapshot))
			break;
		ls_status status = wait_fds(NULL, NULL, 0, -1, clock_deadline_ns(AGAIN_MS));
		(void)status; /* then the next look comes early */
	}
	failure_add_entered(report->sources, size, report->snapshot);
}

struct inspect_report *inspect_report_take(const struct inspect_view *view,
					   const struct diagnose_source *known)
{
	struct inspect_report *report = calloc(1, sizeof *report);

	if (!report)
		return NULL;
	report->snapshot = diagnose_snapshot_new(view->size);
	if (!report->snapshot) {
		free(report);
		return NULL;
	}
	for (int i = 0; i < view->size; i++) {
		const struct inspect_held *held = &view->ranks[i];
		struct diagnose_source *source = &report->sources[i];
		*source = (struct diagnose_source){
			.rank = i,
			.process = known ? known[i].process : DIAGNOSE_PROCESS_UNKNOWN,
			.signal = known ? known[i].signal : -1,
			.exit_code = known ? known[i].exit_code : -1,
			.host = known ? known[i].host : NULL,
			.segment = held->segment,
			.segment_bytes = held->segment_bytes,
		};
		if (held->trace.header) {
			source->trace = &held->trace;
			source->pid = held->trace.header->pid;
		}
	}
	look(report, view->size);
	report->snapshot->job = view->job;
	inspect_report_update(report, view);
	return report;
}

/* The cause lies with the first member on this host, and so does the report of the rank that
 * published it. */
static bool read_segments(struct inspect_report *report, const struct inspect_view *view)
{
	int first = 0;
	while (first < view->size && !view->ranks[first].segment)
		first++;
	if (first == view->size)
		return false;
	const struct transport_area *head =
		transport_area_at(view->ranks[first].segment, view->size, 0);
	uint64_t cause = atomic_load_explicit(&head->cause, memory_order_acquire);
	uint32_t who = (uint32_t)cause;
	if (cause >> 32 != TRACE_GROUP_WORLD || who == 0 || who > (uint32_t)view->size)
		return false;
	const struct transport_report *teller = transport_report(head, view->size, (int)who - 1);
	uint32_t status = __atomic_load_n(&teller->status, __ATOMIC_RELAXED); /* once */
	if (status == LS_OK || status > LS_INTERNAL)
		return false;
	report->failure = (ls_status)status;
	report->group = TRACE_GROUP_WORLD;
	report->culprit = teller->culprit;
	report->operation = teller->operation;
	memcpy(report->text, teller->text, sizeof report->text);
	report->text[sizeof report->text - 1] = '\0';
	return true;
}

static void read_traces(struct inspect_report *report, const struct inspect_view *view)
{
	struct trace_report found;

	for (int i = 0; i < view->size; i++) {
		if (!view->ranks[i].trace.header ||
		    !trace_read_report(&view->ranks[i].trace, &found))
			continue;
		report->failure = (ls_status)atomic_load(&found.status);
		report->group = found.group;
		report->culprit = found.culprit;
		report->operation = found.operation;
		snprintf(report->text, sizeof report->text, "%s", found.text);
		return;
	}
}

void inspect_report_update(struct inspect_report *report, const struct inspect_view *view)
{
	if (report->failure == LS_OK && !read_segments(report, view))
		read_traces(report, view);
}

/* Names the hosts of ranks that have sent nothing. */
static void name_unseen(struct inspect_report *report)
{
	for (int q = 0; q < report->snapshot->size; q++) {
		const struct transport_location *location = &report->hosts->locations[q];
		struct diagnose_rank *rank = &report->snapshot->ranks[q];
		if (rank->known || rank->host[0])
			continue;
		snprintf(rank->host, sizeof rank->host, "%s", location->host);
		rank->pid = location->pid;
	}
}

void inspect_report_ask_hosts(struct inspect_report *report, const struct inspect_view *view)
{
	struct diagnose_snapshot *snapshot = NULL;
	report->hosts = inspect_hosts_new(view);
	if (!report->hosts)
		return;
	if (inspect_is_running(report->snapshot))
		snapshot = inspect_hosts_ask(report->hosts, view);
	if (snapshot) {
		free(report->snapshot);
		report->snapshot = snapshot;
	}
	name_unseen(report);
	inspect_report_add_phases(report);
	if (snapshot && report->phases && ranks_any(&report->phases->entered))
		(void)inspect_hosts_copy(report->hosts, view);
	inspect_report_add_phases(report);
}

/* Reports ranks that ended badly before they closed their group, even if no rank waits for them,
 * perhaps because none is left; otherwise a verdict is only about ranks that others wait for. */
static void judge_unneeded(struct inspect_report *report)
{
	struct diagnose_verdict *verdict = &report->verdict;
	struct ranks died = {{0}};
	char who[256];

	for (int i = 0; i < report->snapshot->size; i++) {
		const struct diagnose_rank *rank = &report->snapshot->ranks[i];
		if (rank->known && rank->process == DIAGNOSE_PROCESS_DEAD && !rank->left &&
		    (rank->signal > 0 || rank->exit_code > 0))
			ranks_add(&died, i);
	}
	if (!ranks_any(&died))
		return;
	bool several = ranks_count(&died) > 1;
	verdict->cause = DIAGNOSE_DIED;
	verdict->status = LS_PEER_DIED;
	verdict->culprits = died;
	report->culprit = several ? -1 : ranks_first(&died);
	print_ranks(&died, who, sizeof who);
	snprintf(report->text, sizeof report->text,
		 "%s ended without closing %s group; no other rank waits for %s", who,
		 several ? "their" : "its", several ? "them" : "it");
}

void inspect_report_add_phases(struct inspect_report *report)
{
	if (!report->phases)
		report->phases = ddp_phases_new(report->snapshot->size);
	for (int i = 0; report->phases && i < report->snapshot->size; i++) {
		if (ranks_have(&report->phases->known, i))
			continue;
		if (report->sources[i].trace)
			inspect_phases_add(report->phases, &report->snapshot->ranks[i],
					   report->snapshot->now_ns, report->sources[i].trace);
		else if (report->hosts && report->hosts->traces[i].header)
			inspect_phases_add(report->phases, &report->snapshot->ranks[i],
					   report->hosts->copied_ns[i], &report->hosts->traces[i]);
	}
}

/* More than the copies of several hosts are apart. */
enum { APART_NS = 200000000 };

/* Each host copied its ranks at a moment of its own: a wait may have ended, and a rank have closed
 * its group, between two of them. What ranks prove they publish; only what they do not publish is
 * left to say. */
static void drop_unproved(struct inspect_report *report)
{
	enum diagnose_cause cause = report->verdict.cause;
	bool joined = report->hosts && report->hosts->here < 0;
	bool is_short = cause == DIAGNOSE_ELSEWHERE &&
			report->snapshot->now_ns - report->verdict.since_ns < APART_NS;
	if (joined && (is_short || cause == DIAGNOSE_MISMATCH || cause == DIAGNOSE_LEFT ||
		       cause == DIAGNOSE_DEADLOCK))
		report->verdict = (struct diagnose_verdict){.culprit = -1, .witness = -1};
}

static void judge_job(struct inspect_report *report)
{
	failure_add_unexpected(report->sources, report->snapshot->size, report->snapshot);
	/* If the group does not have all ranks, the other ranks may go on, and wait for each other
	 * now and then. */
	struct diagnose_hint focus = {.status = LS_OK, .group = report->group};
	bool some = report->failure != LS_OK && report->group != TRACE_GROUP_WORLD;
	diagnose_judge(report->snapshot, some ? &focus : NULL, &report->verdict);
	drop_unproved(report);
}

static void fill_verdict(struct inspect_report *report)
{
	if (report->failure != LS_OK)
		return;
	report->culprit = report->verdict.culprit;
	report->operation = report->verdict.seq;
	report->text[0] = '\0';
	if (report->verdict.cause != DIAGNOSE_HEALTHY)
		diagnose_text(report->snapshot, &report->verdict, report->text, sizeof report->text);
	else
		judge_unneeded(report);
}

void inspect_report_explain(struct inspect_report *report)
{
	diagnose_add_sites(report->sources, report->snapshot->size, report->snapshot);
	judge_job(report);
	fill_verdict(report);
	inspect_report_add_phases(report);
}

void inspect_report_judge(struct inspect_report *report)
{
	judge_job(report);
	fill_verdict(report);
}

bool inspect_report_is_verdict(const struct inspect_report *report, uint64_t patience_ms)
{
	const struct diagnose_verdict *verdict = &report->verdict;

	if (report->failure != LS_OK)
		return true;
	if (verdict->cause == DIAGNOSE_HEALTHY)
		return false;
	if (verdict->cause != DIAGNOSE_ELSEWHERE)
		return true;
	RANKS_EACH (r, &verdict->culprits)
		if (r < report->snapshot->size && report->snapshot->ranks[r].awaits_mutex)
			return true;
	uint64_t waited_ns = report->snapshot->now_ns - verdict->since_ns;
	return verdict->since_ns != 0 && verdict->since_ns < report->snapshot->now_ns &&
	       waited_ns / 1000000 >= patience_ms;
}

void inspect_report_free(struct inspect_report *report)
{
	if (!report)
		return;
	free(report->snapshot);
	free(report->phases);
	inspect_hosts_free(report->hosts);
	free(report);
}
