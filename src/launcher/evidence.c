/* SPDX-License-Identifier: BSD-3-Clause
 * Keeps what explains a failure on one of several hosts; see daemon.h. */
#include "launcher/daemon.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/messages.h"
#include "failure/run_notes.h"
#include "inspect/host_part.h"

enum { SEND_BYTES = 1 << 18, QUEUE_BYTES = 1 << 20 };

/* -1: ranks cannot hand over anything. */
static int listen_for(int notes_fd)
{
	char notes[64];
	struct sockaddr_un address;
	socklen_t bytes;

	snprintf(notes, sizeof notes, "/proc/%d/fd/%d", getpid(), notes_fd);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	if (failure_run_address(notes, &address, &bytes) &&
	    bind(fd, (const struct sockaddr *)&address, bytes) == 0 && listen(fd, SOMAXCONN) == 0)
		return fd;
	close(fd);
	return -1;
}

void launcher_evidence_init(struct launcher_evidence *evidence, const struct launcher_rank *ranks,
			    int first, int count, int notes_fd)
{
	*evidence = (struct launcher_evidence){
		.ranks = ranks,
		.first = first,
		.count = count,
		.listener = listen_for(notes_fd),
		.poll = -1,
	};
	if (evidence->listener < 0)
		MESSAGE_SAY(MESSAGE_RUN_WITNESS);
}

/* ---- holding ---- */

/* Descriptors other than those that a rank is to send are closed. False, with EAGAIN: nothing has
 * come yet. */
static bool receive_met(int fd, struct failure_run_met *met, int fds[FAILURE_RUN_FDS])
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(FAILURE_RUN_FDS * sizeof(int))];
	} control;
	struct iovec part = {met, sizeof *met};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control.bytes,
				 .msg_controllen = sizeof control.bytes};

	ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (got < 0)
		return false;
	errno = 0;
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	if (!head || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
		return false;
	size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	memcpy(fds, CMSG_DATA(head), count * sizeof(int));
	return got == sizeof *met && count == FAILURE_RUN_FDS;
}

/* Takes over what it uses of fds, and leaves -1 there. */
static void hold(struct launcher_evidence *evidence, const struct failure_run_met *met,
		 int fds[FAILURE_RUN_FDS])
{
	if (met->rank < evidence->first || met->rank >= evidence->first + evidence->count ||
	    met->size <= met->rank || met->size > INSPECT_RANK_MAX)
		return;
	/* Ranks may meet again, as another job: the last one counts. */
	if (!evidence->view || evidence->view->job != met->job || evidence->view->size != met->size) {
		inspect_view_free(evidence->view);
		evidence->view = inspect_view_new(met->job, met->size);
	}
	if (!evidence->view)
		return;
	if (inspect_view_add_trace(evidence->view, met->rank, fds[FAILURE_RUN_TRACE]))
		fds[FAILURE_RUN_TRACE] = -1;
	if (inspect_view_add_segment(evidence->view, met->rank, fds[FAILURE_RUN_SEGMENT]))
		fds[FAILURE_RUN_SEGMENT] = -1;
}

/* False: it has not said anything yet. */
static bool hear_rank(struct launcher_evidence *evidence, int fd)
{
	struct failure_run_met met;
	int fds[FAILURE_RUN_FDS] = {-1, -1};

	if (receive_met(fd, &met, fds))
		hold(evidence, &met, fds);
	else if (errno == EAGAIN || errno == EINTR)
		return false;
	for (int i = 0; i < FAILURE_RUN_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return true;
}

static void forget_caller(struct launcher_evidence *evidence, int at)
{
	close(evidence->callers[at].fd);
	evidence->caller_count--;
	memmove(&evidence->callers[at], &evidence->callers[at + 1],
		(size_t)(evidence->caller_count - at) * sizeof evidence->callers[0]);
}

/* A rank sends at once after it has connected. If it is stopped between the two calls, the others
 * do not wait for it. */
static void keep_caller(struct launcher_evidence *evidence, int fd)
{
	if (evidence->caller_count == RANKS_HOST_MAX)
		forget_caller(evidence, 0);
	evidence->callers[evidence->caller_count++] = (struct launcher_caller){fd, -1};
}

static bool is_mine(int fd)
{
	struct ucred who = {0};
	socklen_t bytes = sizeof who;

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && who.uid == geteuid();
}

static void hear_ranks(struct launcher_evidence *evidence)
{
	int fd;

	for (int i = evidence->caller_count - 1; i >= 0; i--)
		if (hear_rank(evidence, evidence->callers[i].fd))
			forget_caller(evidence, i);
	while (evidence->listener >= 0 &&
	       (fd = accept4(evidence->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		if (!is_mine(fd) || hear_rank(evidence, fd))
			close(fd);
		else
			keep_caller(evidence, fd);
	}
}

static int add_fd(struct launcher_poll *set, int fd)
{
	set->fds[set->count] = (struct pollfd){.fd = fd, .events = POLLIN};
	return set->count++;
}

void launcher_evidence_poll(struct launcher_evidence *evidence, struct launcher_poll *set)
{
	evidence->poll = -1;
	for (int i = 0; i < evidence->caller_count; i++)
		evidence->callers[i].poll = -1;
	/* A copy of the ranks' state points into what is held; ranks that meet again meanwhile wait
	 * in the queue of the socket. */
	if (evidence->listener < 0 || evidence->report)
		return;
	evidence->poll = add_fd(set, evidence->listener);
	for (int i = 0; i < evidence->caller_count; i++)
		evidence->callers[i].poll = add_fd(set, evidence->callers[i].fd);
}

void launcher_evidence_step(struct launcher_evidence *evidence, const struct launcher_poll *set)
{
	bool ready = evidence->poll >= 0 && set->fds[evidence->poll].revents;

	for (int i = 0; i < evidence->caller_count; i++)
		ready |= evidence->callers[i].poll >= 0 &&
			 set->fds[evidence->callers[i].poll].revents;
	if (ready)
		hear_ranks(evidence);
}

void launcher_evidence_fini(struct launcher_evidence *evidence)
{
	if (evidence->listener >= 0)
		close(evidence->listener);
	evidence->listener = -1;
	while (evidence->caller_count > 0)
		forget_caller(evidence, evidence->caller_count - 1);
	inspect_report_free(evidence->report);
	inspect_view_free(evidence->view);
	free(evidence->part);
}

/* ---- copying ---- */

void launcher_evidence_copy(struct launcher_evidence *evidence, bool last)
{
	struct diagnose_source known[INSPECT_RANK_MAX];

	if (!evidence->report)
		hear_ranks(evidence);
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
			.process = ended ? DIAGNOSE_PROCESS_DEAD : DIAGNOSE_PROCESS_UNKNOWN,
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
	struct ranks here = {{0}};

	if (evidence->tells)
		return;
	evidence->tells = true;
	/* At once: the launcher compares the clocks by it. */
	launcher_channel_send(channel, CHANNEL_STATE, &state, sizeof state, NULL, 0);
	launcher_channel_flush(channel);
	launcher_evidence_copy(evidence, true);
	for (int q = evidence->first; q < evidence->first + evidence->count; q++)
		ranks_add(&here, q);
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
