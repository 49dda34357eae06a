/* SPDX-License-Identifier: BSD-3-Clause
 * Declarations that the files of the transport share. */
#ifndef TRANSPORT_SEGMENT_H
#define TRANSPORT_SEGMENT_H

#include <errno.h>
#include <string.h>

#include "transport/transport.h"

/* The descriptors that a rank passes to each other rank, in this order. */
enum { TRANSPORT_FD_SEGMENT, TRANSPORT_FD_ARENA, TRANSPORT_FD_TRACE, TRANSPORT_FDS };

/* Closes the descriptors that are >= 0, and sets them to -1. */
void transport_close_fds(int *fds, int count);

/* Maps the memory of another rank `rank`, and takes ownership of the descriptors (fds is all -1
 * then), also on failure. Checks all that it gets before it uses it. Errors have a message that
 * names the rank. */
LS_CHECKED ls_status transport_peer_open(struct transport *transport, int rank,
					 int fds[TRANSPORT_FDS]);
/* As transport_peer_open, for my own rank; the caller keeps the descriptors. */
LS_CHECKED ls_status transport_peer_open_own(struct transport *transport, int arena_fd,
					     int trace_fd);

/* The channel from member `source` in the area of member `owner`. */
static inline struct transport_channel *transport_channel(const struct transport_team *team,
							  int owner, int source)
{
	return &transport_inbox_of(team, owner, source)->channel;
}

/* A segment for `rank`, as transport_init makes it: memory for area 0, all else empty. `populates`:
 * inboxes get their memory when they are opened. NULL on failure, with errno, and *step names the
 * call. */
struct transport_segment *transport_segment_create(uint64_t job, int rank, int size, bool mirrors,
						   bool populates, int *fd, const char **step);
/* Allocates memory for the mirror of `rank`, and for its first area. NULL on failure, with
 * errno. */
struct transport_segment *transport_mirror_create(const struct transport *transport, int rank);

/* Makes the pages of a range. 0, or -1 with errno; EINVAL before Linux 5.14. */
int transport_populate(void *from, size_t bytes);
void transport_channel_reset(struct transport_channel *channel);

/* ---- root.c ---- */

/* Rank 0's part of transport_connect, with the ranks that connect to exchange->listen_fd. */
LS_CHECKED ls_status transport_root_run(struct transport *transport,
					const struct transport_exchange *exchange);
/* transport_decline on the root. */
void transport_root_decline(struct transport *transport, const struct transport_exchange *exchange,
			    ls_status status);

/* ---- cma.c ---- */

/* Publishes the address of my word; call it before any peer sees the segment. Cannot fail: without
 * a word no peer can read this rank's memory. */
void transport_cma_init(struct transport *transport);
/* Unmaps the word; not in a forked child, which does not have it. */
void transport_cma_fini(struct transport *transport);
/* Before any peer probes: permits the descendants of `launcher` (0: none) to read this process. */
void transport_allow_tracer(int launcher);
/* Tries to read each peer whose segment is mapped, and publishes which can be read: none if not
 * `allowed`. If the system refuses, one rank of the job prints a warning. Does not block. */
void transport_probe(struct transport *transport, bool allowed);

/* ---- shared small things ---- */

static inline ls_status transport_errno_status(int error)
{
	switch (error) {
	case EMFILE:
	case ENFILE:
	case ENOMEM:
	case ENOSPC:
	case ENOBUFS:
	case ETOOMANYREFS:
		return LS_OUT_OF_MEMORY;
	default:
		return LS_SYSTEM;
	}
}

/* Whether a number that came from a peer is a status. */
static inline bool transport_is_status(uint64_t value)
{
	switch (value) {
#define X(name, number, scope, sentence) case number:
#include <lockstep/status.def>
#undef X
		return true;
	default:
		return false;
	}
}

#endif
