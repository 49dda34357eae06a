/* SPDX-License-Identifier: BSD-3-Clause
 * What the launcher sees of the ranks: it lets them meet, holds their traces and segments, and
 * copies their state the moment something goes wrong, before any rank is ended. */
#include "launcher/launcher_private.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/messages.h"
#include "base/ranks.h"

enum { LOOK_FIRST_MS = 10, LOOK_LAST_MS = 1000 };

void launcher_monitor_poll(struct launcher_job *job, struct launcher_poll *set)
{
	job->server_poll = set->count;
	if (!job->server) /* on several hosts rank 0 is the server */
		return;
	job->server_fds =
		rendezvous_server_fds(job->server, set->fds + set->count, RENDEZVOUS_FDS_MAX);
	set->count += job->server_fds;
}

uint64_t launcher_monitor_deadline(const struct launcher_job *job)
{
	uint64_t meeting_ns = job->server ? rendezvous_server_deadline_ns(job->server) : CLOCK_NEVER;

	return meeting_ns < job->look_ns ? meeting_ns : job->look_ns;
}

/* The server's descriptors are its own, so the view gets copies. */
static void hold_traces(struct launcher_job *job)
{
	const struct rendezvous_table *table = rendezvous_server_table(job->server);
	bool has_all = true;
	if (!table)
		return;

	job->view = inspect_view_new(table->job, table->size);
	if (!job->view) {
		MESSAGE_SAY(MESSAGE_RUN_WITNESS);
		return;
	}
	for (int rank = 0; rank < table->size; rank++) {
		int trace = rendezvous_server_trace(job->server, rank);
		int copy = trace < 0 ? -1 : fcntl(trace, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		has_all &= trace < 0 || copy >= 0;
		if (copy >= 0 && !inspect_view_add_trace(job->view, rank, copy))
			close(copy);
	}
	if (!has_all)
		MESSAGE_SAY(MESSAGE_RUN_WITNESS);
	job->look_pause_ns = LOOK_FIRST_MS * UINT64_C(1000000);
	job->look_ns = clock_now_ns();
}

/* Ranks pass their segments around after they have met. Then each rank holds all segments. */
static void hold_segments(struct launcher_job *job, uint64_t now_ns)
{
	for (int rank = 0; rank < job->view->size; rank++) {
		int pid = rendezvous_server_pid(job->server, rank);
		if (pid > 0 && !inspect_view_has_segments(job->view))
			inspect_find_segments(job->view, pid);
	}
	if (inspect_view_has_segments(job->view)) {
		job->look_ns = CLOCK_NEVER;
		return;
	}
	job->look_ns = now_ns + job->look_pause_ns;
	job->look_pause_ns *= 2;
	if (job->look_pause_ns > LOOK_LAST_MS * UINT64_C(1000000))
		job->look_pause_ns = LOOK_LAST_MS * UINT64_C(1000000);
}

void launcher_monitor_step(struct launcher_job *job, uint64_t now_ns)
{
	if (!job->server)
		return;
	/* If the meeting failed, the ranks got the reason, and print it. */
	ls_status status = rendezvous_server_step(job->server);
	bool met = status == LS_OK && rendezvous_server_complete(job->server);

	if (met && !job->met) {
		job->met = true;
		hold_traces(job);
	}
	if (job->view && now_ns >= job->look_ns)
		hold_segments(job, now_ns);
}

void launcher_monitor_ended(struct launcher_job *job, int rank)
{
	char text[RENDEZVOUS_TEXT_BYTES];
	char how[128];

	if (job->met || !job->server)
		return;
	launcher_end_text(job, rank, how, sizeof how);
	snprintf(text, sizeof text, "%s before %s, so the %d ranks cannot meet", how,
		 rendezvous_server_pid(job->server, rank) ? "all had met"
							  : "it came to the rendezvous",
		 job->count);
	rendezvous_server_fail(job->server, LS_RANK_MISSING, text);
}

void launcher_monitor_collect(struct launcher_job *job)
{
	struct diagnose_source known[RANKS_HOST_MAX];

	if (job->hosts)
		launcher_hosts_copy(job, false);
	if (job->report || !job->view)
		return;
	if (job->look_ns != CLOCK_NEVER)
		hold_segments(job, clock_now_ns());
	for (int rank = 0; rank < job->view->size; rank++) {
		const struct launcher_rank *mine = &job->ranks[rank];
		/* A rank may be a child of the process that was started, such as of a shell. */
		bool same = rank < job->started &&
			    mine->pid == rendezvous_server_pid(job->server, rank);
		known[rank] = (struct diagnose_source){
			.process = same && mine->ended ? DIAGNOSE_PROCESS_DEAD
						       : DIAGNOSE_PROCESS_UNKNOWN,
			.signal = same && mine->ended ? mine->signal : -1,
			.exit_code = same && mine->ended ? mine->exit_code : -1,
		};
	}
	job->report = inspect_report_take(job->view, known);
	if (!job->report)
		MESSAGE_SAY(MESSAGE_RUN_WITNESS);
}

void launcher_monitor_freeze(struct launcher_job *job)
{
	bool first = !job->report;
	if (job->hosts) {
		launcher_hosts_copy(job, true);
		return;
	}
	launcher_monitor_collect(job);
	if (job->report && !job->frozen)
		inspect_report_update(job->report, job->view);
	/* If nothing has failed, the ranks that keep the others waiting can still be read. */
	if (job->report && !job->frozen && first)
		inspect_report_ask_python(job->report);
	job->frozen = true;
}

void launcher_monitor_thaw(struct launcher_job *job)
{
	if (job->hosts)
		launcher_hosts_forget(job);
	inspect_report_free(job->report);
	job->report = NULL;
	job->frozen = false;
}
