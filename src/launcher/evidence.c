/* SPDX-License-Identifier: BSD-3-Clause
 * Keeps what explains a failure on one of several hosts; see daemon.h. */
#include "launcher/daemon.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/clock.h"
#include "failure/run_notes.h"
#include "inspect/host_part.h"

enum { SEND_BYTES = 1 << 18, QUEUE_BYTES = 1 << 20 };

void launcher_evidence_init(struct launcher_evidence *evidence, const struct launcher_rank *ranks,
			    int first, int count, int notes_fd)
{
	char path[32];

	*evidence = (struct launcher_evidence){
		.ranks = ranks,
		.first = first,
		.count = count,
		.notes_fd = notes_fd,
		.changes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK),
		.poll = -1,
	};
	snprintf(path, sizeof path, "/proc/self/fd/%d", notes_fd);
	if (evidence->changes >= 0 && inotify_add_watch(evidence->changes, path, IN_MODIFY) < 0) {
		close(evidence->changes);
		evidence->changes = -1;
	}
}

void launcher_evidence_fini(struct launcher_evidence *evidence)
{
	if (evidence->changes >= 0)
		close(evidence->changes);
	evidence->changes = -1;
	inspect_report_free(evidence->report);
	inspect_view_free(evidence->view);
	free(evidence->part);
}

/* ---- holding ---- */

static struct ranks ranks_here(const struct launcher_evidence *evidence)
{
	struct ranks here = {{0}};
	for (int q = evidence->first; q < evidence->first + evidence->count; q++)
		ranks_add(&here, q);
	return here;
}

static void hold(struct launcher_evidence *evidence)
{
	struct inspect_jobs jobs = {0};

	if (evidence->job == 0 || inspect_find_jobs(evidence->job, 0, &jobs) != LS_OK)
		return;
	inspect_view_free(evidence->view);
	evidence->view = jobs.count > 0 ? jobs.views[0] : NULL;
	if (jobs.count > 0)
		jobs.views[0] = NULL;
	inspect_jobs_free(&jobs);
	/* Hosts may share a /proc, as containers on one machine can. */
	struct ranks here = ranks_here(evidence);
	if (evidence->view)
		inspect_view_keep(evidence->view, &here);
}

static void take_note(struct launcher_evidence *evidence, const struct failure_run_note *note)
{
	if (note->kind != FAILURE_NOTE_MET || evidence->report)
		return;
	if (note->job != evidence->job) {
		evidence->job = note->job;
		evidence->met = 0;
	}
	if (++evidence->met == evidence->count)
		hold(evidence);
}

static void read_notes(struct launcher_evidence *evidence)
{
	struct failure_run_note notes[64];
	ssize_t got;

	while ((got = pread(evidence->notes_fd, notes, sizeof notes, evidence->read_bytes)) >=
	       (ssize_t)sizeof notes[0]) {
		size_t count = (size_t)got / sizeof notes[0];
		for (size_t i = 0; i < count; i++)
			take_note(evidence, &notes[i]);
		evidence->read_bytes += (off_t)(count * sizeof notes[0]);
	}
}

void launcher_evidence_poll(struct launcher_evidence *evidence, struct launcher_poll *set)
{
	evidence->poll = -1;
	if (evidence->changes < 0)
		return;
	evidence->poll = set->count;
	set->fds[set->count++] = (struct pollfd){.fd = evidence->changes, .events = POLLIN};
}

void launcher_evidence_step(struct launcher_evidence *evidence, const struct launcher_poll *set)
{
	char events[4096];

	if (evidence->poll < 0 || !set->fds[evidence->poll].revents)
		return;
	while (read(evidence->changes, events, sizeof events) > 0)
		;
	read_notes(evidence);
}

/* ---- copying ---- */

void launcher_evidence_copy(struct launcher_evidence *evidence, bool last)
{
	struct diagnose_source known[INSPECT_RANK_MAX];

	if (!evidence->report) {
		read_notes(evidence);
		/* Some ranks of this host have not met, or some have no segment yet. */
		if (!evidence->view)
			hold(evidence);
	}
	struct inspect_view *view = evidence->view;
	if (!view || evidence->frozen)
		return;
	evidence->frozen = last;
	if (evidence->report) {
		inspect_report_update(evidence->report, view);
		return;
	}
	for (int q = 0; q < view->size; q++) {
		int at = q - evidence->first;
		const struct launcher_rank *mine =
			at >= 0 && at < evidence->count ? &evidence->ranks[at] : NULL;
		const struct trace_header *trace = view->ranks[q].trace.header;
		/* A rank may be a child of the process that was started, such as of a shell. */
		bool ended = mine && mine->ended && trace && trace->pid == mine->pid;
		known[q] = (struct diagnose_source){
			.process = ended ? DIAGNOSE_DEAD : DIAGNOSE_UNKNOWN,
			.signal = ended ? mine->signal : -1,
			.exit_code = ended ? mine->exit_code : -1,
			.host = at >= 0 && at < evidence->count ? NULL : "another",
		};
	}
	evidence->report = inspect_report_take(view, known);
}

void launcher_evidence_forget(struct launcher_evidence *evidence)
{
	inspect_report_free(evidence->report);
	evidence->report = NULL;
	evidence->frozen = false;
}

/* ---- telling ---- */

void launcher_evidence_tell(struct launcher_evidence *evidence, struct launcher_channel *channel)
{
	struct channel_state state = {.now_ns = clock_now_ns()};
	struct ranks here = ranks_here(evidence);

	if (evidence->tells)
		return;
	evidence->tells = true;
	/* At once: the launcher compares the clocks by it. */
	launcher_channel_send(channel, CHANNEL_STATE, &state, sizeof state, NULL, 0);
	launcher_channel_flush(channel);
	launcher_evidence_copy(evidence, true);
	if (evidence->report && evidence->view->size >= evidence->first + evidence->count)
		evidence->part = inspect_part_pack(evidence->view, evidence->report, &here,
						   &evidence->part_bytes);
	if (!evidence->part)
		evidence->part_bytes = 0;
	if (evidence->part_bytes == 0) /* the end */
		launcher_channel_send(channel, CHANNEL_PART, NULL, 0, NULL, 0);
	launcher_evidence_send(evidence, channel);
}

void launcher_evidence_send(struct launcher_evidence *evidence, struct launcher_channel *channel)
{
	while (evidence->sent_bytes < evidence->part_bytes &&
	       channel->to.end - channel->to.start < QUEUE_BYTES && !channel->ended) {
		size_t left = evidence->part_bytes - evidence->sent_bytes;
		size_t bytes = left < SEND_BYTES ? left : SEND_BYTES;
		launcher_channel_send(channel, CHANNEL_PART, evidence->part + evidence->sent_bytes,
				      bytes, NULL, 0);
		evidence->sent_bytes += bytes;
		if (bytes == left) /* the end */
			launcher_channel_send(channel, CHANNEL_PART, NULL, 0, NULL, 0);
	}
}
