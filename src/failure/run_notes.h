/* SPDX-License-Identifier: BSD-3-Clause
 * What ranks note for `lockstep run --hosts`. The daemon on each host makes a file and names it in
 * LOCKSTEP_RUN_NOTES; ranks append notes to it, and the daemon reads them as they come. */
#ifndef FAILURE_RUN_NOTES_H
#define FAILURE_RUN_NOTES_H

#include <stdint.h>

enum failure_run_note_kind {
	/* The rank found the failure when it closed the group, so none of its calls returned it. */
	FAILURE_NOTE_UNRETURNED = 1,
	/* A call returned the failure. Noted for LS_PEER_LEFT only. */
	FAILURE_NOTE_RETURNED,
	/* The rank has met the others of `job`. From now on its trace and segment can be read. */
	FAILURE_NOTE_MET,
};

/* Each is written by one write, so notes of several ranks do not mix. */
struct failure_run_note {
	uint32_t kind;
	int32_t rank;
	uint32_t group, status; /* not of FAILURE_NOTE_MET */
	int32_t pid;
	uint32_t reserved;
	uint64_t job;
};

#endif
