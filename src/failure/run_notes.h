/* SPDX-License-Identifier: BSD-3-Clause
 * What ranks and `lockstep run` note for each other. The launcher, or its daemon on each host of
 * --hosts, makes a file and names it in LOCKSTEP_RUN_NOTES; ranks append notes to it, and whoever
 * made it reads it when its ranks have ended. A daemon appends which ranks of the job have ended,
 * and ranks that wait for all to meet read that. */
#ifndef FAILURE_RUN_NOTES_H
#define FAILURE_RUN_NOTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <lockstep/status.h>

#include "base/ranks.h"

enum failure_run_note_kind {
	/* The rank found the failure when it closed the group, so none of its calls returned it. */
	FAILURE_NOTE_UNRETURNED = 1,
	/* A call returned the failure. Noted for LS_PEER_LEFT only. */
	FAILURE_NOTE_RETURNED,
	/* By the daemon: the process of the rank has ended. status: with what, or
	 * FAILURE_RUN_SIGNAL plus the signal that ended it. */
	FAILURE_NOTE_ENDED,
	/* ls_group_open failed at this rank, with this status, because of another rank. */
	FAILURE_NOTE_FOLLOWED,
	/* The next ls_group_open ended otherwise: what was noted before no longer counts. */
	FAILURE_NOTE_OPENED,
};
enum { FAILURE_RUN_SIGNAL = 1 << 8 };

/* Each is written by one write, so notes of several ranks do not mix. */
struct failure_run_note {
	uint32_t kind;
	int32_t rank;
	uint32_t group, status;
};

/* Notes how ls_group_open ended at this rank. Call before it returns to a program that may end
 * because of that. notes: the name of the file, or NULL. */
void failure_note_open(const char *notes, int rank, ls_status status);

/* A rank that has met the others of a job hands its trace and its segment to the daemon, so that
 * they can be read when it has ended: it connects to the daemon's socket (SOCK_SEQPACKET), sends
 * this with both descriptors, and goes on without an answer. */
struct failure_run_met {
	uint64_t job;
	int32_t rank, size;
};
enum { FAILURE_RUN_TRACE, FAILURE_RUN_SEGMENT, FAILURE_RUN_FDS };

/* The address of that socket, in the abstract namespace of the host's network: made from the name
 * of the file of notes. Anybody may have taken it, so both ends ask the kernel who the other one
 * is. False: the name does not fit. */
bool failure_run_address(const char *notes, struct sockaddr_un *out, socklen_t *bytes);

/* The ranks of which the file says that they have ended. */
struct failure_run_ends {
	int fd;                         /* -1: there is no file */
	off_t at;                       /* what comes before has been read */
	uint32_t ends[RANKS_WORLD_MAX]; /* `status` of the note, plus 1; 0: it has not ended */
};

/* notes: the name of the file, or NULL. */
void failure_run_ends_open(const char *notes, struct failure_run_ends *out);
/* Reads what is new. Whether the rank has ended; then how: "rank 2 exited with 0". As find of
 * struct rendezvous_ends. */
bool failure_run_ends_find(void *ends, int rank, char *how, size_t bytes);
void failure_run_ends_close(struct failure_run_ends *ends);

#endif
