/* SPDX-License-Identifier: BSD-3-Clause
 * Failures that no call of this rank has returned; notes for `lockstep run` and of it, see
 * run_notes.h. */
#include "failure/run_notes.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/messages.h"
#include "failure/failure_private.h"
#include "failure/remote_look.h"

/* Opened for each note: the program may close all descriptors. If the daemon has ended, nobody
 * reads the note, and this rank is about to be killed. */
static void append_note(const char *notes, const struct failure_run_note *note)
{
	int fd = open(notes, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return;
	ssize_t written = write(fd, note, sizeof *note);
	(void)written;
	close(fd);
}

static void write_note(const struct ls_group *group, enum failure_run_note_kind kind,
		       ls_status status)
{
	const struct world *world = group->world;
	struct failure_run_note text = {
		.kind = kind, .rank = world->rank, .group = group->id, .status = (uint32_t)status};
	if (world->run_notes[0])
		append_note(world->run_notes, &text);
}

/* Whether ls_group_open failed at this rank because of another one. A rank that has failed for a
 * reason of its own gives the others its status, so the status alone does not tell: a rank that got
 * it from another one has said so in other words. */
static bool is_of_another(ls_status status)
{
	switch (status) {
	case LS_RANK_MISSING:
	case LS_PEER_DIED:
	case LS_PEER_LEFT:
	case LS_NO_MASTER:
	case LS_UNREACHABLE:
		return true;
	case LS_INTERRUPTED: /* has no message: the last one is of another call */
		return false;
	default:
		return message_last_was(MESSAGE_TRANSPORT_FAILED) ||
		       message_last_was(MESSAGE_OPEN_FAILED);
	}
}

static bool is_empty(const char *notes)
{
	struct stat status;
	return stat(notes, &status) != 0 || status.st_size == 0;
}

void failure_note_open(const char *notes, int rank, ls_status status)
{
	bool follows = status != LS_OK && is_of_another(status);
	struct failure_run_note note = {.kind = follows ? FAILURE_NOTE_FOLLOWED
							: FAILURE_NOTE_OPENED,
					.rank = rank,
					.status = (uint32_t)status};
	/* Without a note before there is nothing to take back. */
	if (notes && (follows || !is_empty(notes)))
		append_note(notes, &note);
}

bool failure_is_unreturned(const struct ls_group *group)
{
	struct failure_remote *remote = group->world->watch.remote;
	return remote &&
	       atomic_load(&remote->raised[group->area / 64]) & failure_area_bit(group->area) &&
	       failure_status(group) != LS_OK && !atomic_load(&group->has_failed);
}

void failure_note_unreturned(struct ls_group *group)
{
	ls_status status = trace_report_unreturned(&group->world->trace, group->id);
	if (status != LS_OK)
		write_note(group, FAILURE_NOTE_UNRETURNED, status);
}

void failure_note_returned(const struct ls_group *group)
{
	if (failure_status(group) == LS_PEER_LEFT)
		write_note(group, FAILURE_NOTE_RETURNED, LS_PEER_LEFT);
}

/* ---- the daemon's notes ---- */

void failure_run_ends_open(const char *notes, struct failure_run_ends *out)
{
	*out = (struct failure_run_ends){.fd = -1};
	if (notes)
		out->fd = open(notes, O_RDONLY | O_CLOEXEC | O_NOCTTY);
}

static void read_ends(struct failure_run_ends *ends)
{
	struct failure_run_note note;
	while (ends->fd >= 0 && pread(ends->fd, &note, sizeof note, ends->at) == sizeof note) {
		ends->at += (off_t)sizeof note;
		if (note.kind == FAILURE_NOTE_ENDED && note.rank >= 0 && note.rank < RANKS_WORLD_MAX)
			ends->ends[note.rank] = note.status + 1;
	}
}

bool failure_run_ends_find(void *context, int rank, char *how, size_t bytes)
{
	struct failure_run_ends *ends = context;
	read_ends(ends);
	if (rank < 0 || rank >= RANKS_WORLD_MAX || !ends->ends[rank])
		return false;
	uint32_t status = ends->ends[rank] - 1;
	if (status < FAILURE_RUN_SIGNAL)
		snprintf(how, bytes, "rank %d exited with %u", rank, status);
	else
		snprintf(how, bytes, "rank %d was killed by signal %u", rank,
			 status - FAILURE_RUN_SIGNAL);
	return true;
}

void failure_run_ends_close(struct failure_run_ends *ends)
{
	if (ends->fd >= 0)
		close(ends->fd);
	ends->fd = -1;
}

/* ---- the daemon's socket ---- */

bool failure_run_address(const char *notes, struct sockaddr_un *out, socklen_t *bytes)
{
	*out = (struct sockaddr_un){.sun_family = AF_UNIX};
	/* The leading NUL makes it abstract. */
	int length = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "lockstep-run:%s", notes);
	*bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
	return length > 0 && (size_t)length < sizeof out->sun_path - 1;
}

static bool is_mine(int fd)
{
	struct ucred who = {0};
	socklen_t bytes = sizeof who;
	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && who.uid == geteuid();
}

static void send_met(int fd, const struct world *world)
{
	struct failure_run_met met = {
		.job = world->transport.job, .rank = world->rank, .size = world->size};
	int fds[FAILURE_RUN_FDS] = {
		[FAILURE_RUN_TRACE] = world->trace.fd, [FAILURE_RUN_SEGMENT] = world->transport.segment_fd};
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof fds)];
	} control = {.bytes = {0}};
	struct iovec part = {&met, sizeof met};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control.bytes,
				 .msg_controllen = sizeof control.bytes};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof fds);
	memcpy(CMSG_DATA(head), fds, sizeof fds);
	ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	(void)sent; /* without it a report lacks this rank */
}

void failure_note_met(const struct world *world)
{
	struct sockaddr_un address;
	socklen_t bytes;
	if (!world->run_notes[0] || !failure_run_address(world->run_notes, &address, &bytes))
		return;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return;
	if (connect(fd, (const struct sockaddr *)&address, bytes) == 0 && is_mine(fd))
		send_met(fd, world);
	close(fd);
}
