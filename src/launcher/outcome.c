/* SPDX-License-Identifier: BSD-3-Clause
 * How a job ended, in words, as an exit status and as a snapshot file. */
#include "launcher/launcher_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/messages.h"
#include "base/ranks.h"
#include "print/print.h"
#include "inspect/phase_report.h"

enum { PATH_BYTES = 4096 };

/* The rank that the report begins with, -1 if it begins with what the launcher did. */
static int chief_rank(const struct launcher_job *job)
{
	return job->timed_out || job->killed ? -1 : job->first;
}

enum end_kind {
	KIND_BEFORE, /* ended well before anything happened */
	KIND_AFTER,
	KIND_AFTER_TERM, /* the launcher had to tell the rank to end */
};

static enum end_kind end_kind(const struct launcher_job *job, const struct launcher_rank *rank)
{
	if (rank->ended_after_term)
		return KIND_AFTER_TERM;
	if (rank->signal != 0 || rank->exit_code != 0)
		return KIND_AFTER;
	int first = chief_rank(job);
	return first >= 0 && rank->order > job->ranks[first].order ? KIND_AFTER : KIND_BEFORE;
}

static bool same_end(const struct launcher_job *job, int a, int b)
{
	const struct launcher_rank *x = &job->ranks[a], *y = &job->ranks[b];

	return x->signal == y->signal && x->exit_code == y->exit_code && x->dumped == y->dumped &&
	       x->lost == y->lost && (x->remote_pid == 0) == (y->remote_pid == 0) &&
	       end_kind(job, x) == end_kind(job, y);
}

static void add_group(const struct launcher_job *job, const struct ranks *group, int example,
		      char *out, size_t bytes)
{
	char who[256];
	char how[LAUNCHER_HOW_BYTES];
	const struct launcher_rank *rank = &job->ranks[example];
	bool several = ranks_count(group) > 1;

	print_ranks(group, who, sizeof who);
	launcher_how_ended(rank, several, true, how, sizeof how);
	switch (end_kind(job, rank)) {
	case KIND_BEFORE:
		print_append(out, bytes, "; %s had exited with 0", who);
		break;
	case KIND_AFTER:
		print_append(out, bytes, "; %s %s", who, how);
		break;
	case KIND_AFTER_TERM:
		if (chief_rank(job) < 0)
			print_append(out, bytes, "; %s %s", who, how);
		else
			print_append(out, bytes, "; %s did not end by %s within %d s, and %s", who,
				     several ? "themselves" : "itself", LAUNCHER_GRACE_MS / 1000,
				     how);
		break;
	}
}

/* All ranks but the first that failed, those with the same end together. */
static void others_text(const struct launcher_job *job, char *out, size_t bytes)
{
	struct ranks said = ranks_of(chief_rank(job));

	for (int rank = 0; rank < job->started; rank++) {
		struct ranks group = {{0}};
		if (ranks_have(&said, rank))
			continue;
		for (int other = rank; other < job->started; other++)
			if (!ranks_have(&said, other) && same_end(job, rank, other))
				ranks_add(&group, other);
		ranks_join(&said, &group);
		add_group(job, &group, rank, out, bytes);
	}
}

static bool failed_by_itself(const struct launcher_job *job, int rank)
{
	return job->ranks[rank].ended && launcher_has_failed(&job->ranks[rank]) &&
	       !job->ranks[rank].ended_after_term;
}

/* A rank that could not open its group because of another rank may end before that rank does: a
 * process that is killed closes its sockets before its parent learns of its end. So the first of
 * the others counts. If all blame another rank, the order of their ends is all that is known. */
static void skip_followers(struct launcher_job *job)
{
	struct ranks followers;

	launcher_notes_followers(job, &followers);
	if (job->first < 0 || !ranks_have(&followers, job->first))
		return;
	int first = -1;
	for (int rank = 0; rank < job->started; rank++)
		if (failed_by_itself(job, rank) && !ranks_have(&followers, rank) &&
		    (first < 0 || job->ranks[rank].order < job->ranks[first].order))
			first = rank;
	if (first >= 0)
		job->first = first;
}

/* What the survivors saw is better than the guess of the loop: a rank that failed because of
 * another one has published which. The launcher may notice the end of that other rank later,
 * because a rank that raises an exception prints it before it ends. */
void launcher_note_cause(struct launcher_job *job)
{
	int culprit = job->report && job->report->failure != LS_OK ? job->report->culprit : -1;

	if (culprit >= 0 && culprit < job->started && failed_by_itself(job, culprit))
		job->first = culprit;
	else
		skip_followers(job);
}

static int exit_status(const struct launcher_job *job)
{
	if (job->timed_out)
		return LAUNCHER_EXIT_TIMEOUT;
	if (job->killed && (job->first < 0 || job->ranks[job->first].ended_after_term))
		return 128 + SIGINT;
	if (job->first < 0)
		return 0;
	const struct launcher_rank *first = &job->ranks[job->first];
	return first->signal ? 128 + first->signal : first->exit_code;
}

static void end_text(const struct launcher_job *job, char *out, size_t bytes)
{
	if (job->timed_out)
		snprintf(out, bytes, "the job was still running after %.4g s (--timeout)",
			 (double)job->timeout_ms / 1000);
	else if (job->killed)
		snprintf(out, bytes, "the job was ended by a second SIGINT");
	else
		launcher_end_text(job, job->first, out, bytes);
	if (chief_rank(job) >= 0 && job->forwarded != 0 &&
	    job->forwarded == job->ranks[job->first].signal)
		print_append(out, bytes, ", which lockstep run was sent and passed on");
	others_text(job, out, bytes);
}

/* Whether an operation of some rank has ended with what `report` tells. */
static bool is_returned(const struct inspect_view *view, const struct trace_report *report)
{
	for (int rank = 0; rank < view->size; rank++) {
		const struct trace_view *trace = &view->ranks[rank].trace;
		for (uint64_t at = 0; trace->header && at < trace->ring_records; at++) {
			struct trace_record record;
			uint32_t step;
			if (trace_read_at(trace, at, &record, &step) &&
			    record.state == TRACE_FAILED && record.group == report->group &&
			    record.status == atomic_load(&report->status))
				return true;
		}
	}
	return false;
}

/* A rank that found out only when it closed a group that the group had failed, so that no call
 * returned the failure; -1: none. A mismatch has spoiled the data of ranks that closed the group
 * before. A rank that merely left early has harmed only ranks that wait: if one of their calls
 * returned the failure, and they exit with 0, they have handled it. */
static int find_unreturned(const struct launcher_job *job)
{
	struct trace_report report;

	if (job->hosts)
		return launcher_notes_find_unreturned(job);
	for (int rank = 0; job->view && rank < job->view->size; rank++)
		if (job->view->ranks[rank].trace.header &&
		    trace_read_report(&job->view->ranks[rank].trace, &report) &&
		    atomic_load(&report.unreturned) &&
		    !(atomic_load(&report.status) == LS_PEER_LEFT && is_returned(job->view, &report)))
			return rank;
	return -1;
}

static void write_snapshot(struct launcher_job *job, const char *ended)
{
	char path[PATH_BYTES];
	const char *directory = job->log_dir;

	if (!job->report)
		return;
	if (!directory)
		directory = launcher_variable("TMPDIR");
	if (!directory || !directory[0])
		directory = "/tmp";
	int length = snprintf(path, sizeof path, "%s/lockstep-%016llx.snapshot", directory,
			      (unsigned long long)job->report->snapshot->job);
	int error = length >= (int)sizeof path ? ENAMETOOLONG
					       : inspect_save(path, job->view, job->report, ended);
	if (error != 0)
		MESSAGE_SAY(MESSAGE_RUN_SNAPSHOT_FAILED, path, strerror(error));
	else
		MESSAGE_SAY(MESSAGE_RUN_SNAPSHOT, path);
}

static void report_failure(struct launcher_job *job)
{
	char text[INSPECT_ENDED_BYTES];

	end_text(job, text, sizeof text);
	if (!job->hosts)
		launcher_monitor_freeze(job);
	if (job->report)
		inspect_report_explain(job->report);
	/* Ranks have printed themselves what they have found. */
	if (job->timed_out && job->report && job->report->failure == LS_OK && job->report->text[0])
		message_report("LS-RUN-TIMEOUT", job->report->text);
	if (job->timed_out)
		MESSAGE_SAY(MESSAGE_RUN_TIMEOUT, text);
	else
		MESSAGE_SAY(MESSAGE_RUN_FAILED, text);
	write_snapshot(job, text);
}

/* All ranks have exited with 0. */
static void report_unreturned(struct launcher_job *job, int rank)
{
	char text[INSPECT_ENDED_BYTES];

	snprintf(text, sizeof text, "all ranks exited with 0, but something had gone wrong");
	if (!job->hosts)
		launcher_monitor_freeze(job);
	if (job->report)
		inspect_report_explain(job->report);
	MESSAGE_SAY(MESSAGE_RUN_AT_CLOSE, rank);
	write_snapshot(job, text);
}

/* The traces are still held, so this shows all that the ranks have recorded until their end. */
static void report_phases(struct launcher_job *job)
{
	if (!job->hosts)
		launcher_monitor_collect(job);
	if (!job->report)
		return;
	inspect_report_add_phases(job->report);
	inspect_phases_report(stderr, job->report->phases);
}

ls_status launcher_end_prepare(struct launcher_job *job)
{
	const char *why;

	if (!job->trace_path)
		return LS_OK;
	job->trace_fd = print_create(AT_FDCWD, job->trace_path, false, 0600, &why);
	if (job->trace_fd >= 0)
		return LS_OK;
	MESSAGE_SAY(MESSAGE_RUN_TRACE_FAILED, job->trace_path, why);
	return LS_SYSTEM;
}

/* False: not all of it could be written. Where no ranks have met there is none to write. */
static bool write_trace(struct launcher_job *job, bool ended_well)
{
	char text[INSPECT_ENDED_BYTES] = "all ranks exited with 0";

	if (!job->hosts)
		launcher_monitor_collect(job);
	if (!job->report) {
		MESSAGE_SAY(MESSAGE_RUN_TRACE_FAILED, job->trace_path,
			    job->hosts
				    ? "no ranks have met, or they ended before a daemon held their "
				      "memory, so there is none"
				    : "no ranks have met, so there is none");
		return true;
	}
	if (ended_well)
		inspect_report_explain(job->report);
	else
		end_text(job, text, sizeof text);
	int error = inspect_save_to(job->trace_fd, job->view, job->report, text, ended_well);
	if (close(job->trace_fd) != 0 && error == 0)
		error = errno;
	job->trace_fd = -1;
	if (error != 0)
		MESSAGE_SAY(MESSAGE_RUN_TRACE_FAILED, job->trace_path, strerror(error));
	return error == 0;
}

int launcher_end_report(struct launcher_job *job)
{
	int status = exit_status(job);
	int unreturned = status == 0 ? find_unreturned(job) : -1;

	if (job->hosts && (status != 0 || unreturned >= 0 || job->trace_path || job->phases)) {
		launcher_hosts_gather(job);
		if (status != 0)
			launcher_note_cause(job);
		status = exit_status(job);
	}
	if (status != 0)
		report_failure(job);
	if (unreturned >= 0) {
		report_unreturned(job, unreturned);
		status = LAUNCHER_FAILED;
	}
	bool lost = launcher_output_lost(&job->output);
	if (job->trace_fd >= 0)
		lost |= !write_trace(job, status == 0);
	if (job->phases)
		report_phases(job);
	return status == 0 && lost ? LAUNCHER_FAILED : status;
}
