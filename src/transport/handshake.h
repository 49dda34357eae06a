/* SPDX-License-Identifier: BSD-3-Clause
 * The messages of ranks while they connect: one struct of fixed size, with descriptors, over a
 * SOCK_SEQPACKET socket, so that a message arrives whole or not at all. The ranks that connect have
 * *places*, from 0 in the order of their numbers. The root has place 0, all others are clients:
 *
 *   client                          root
 *   HELLO rank, 3 fds      --->   after all: in chunks, one at a time for each client
 *                          <---   TABLE first, count, 3 * count fds
 *   MAPPED first           --->   after all of them from all clients:
 *                          <---   GO
 *   FAIL rank, status     <--->   in place of any of these, also of HELLO; the root passes it on to
 *                                 all ranks */
#ifndef TRANSPORT_HANDSHAKE_H
#define TRANSPORT_HANDSHAKE_H

#include <stdint.h>

#include "transport/segment.h"

#define HANDSHAKE_MAGIC UINT64_C(0x314b4e494c534c) /* "LSLINK1" */
enum {
	HANDSHAKE_VERSION = 1,
	HANDSHAKE_CHUNK =
		32, /* ranks in one TABLE; the system passes at most 253 descriptors at once */
	HANDSHAKE_FDS_MAX = HANDSHAKE_CHUNK * TRANSPORT_FDS,
	/* Descriptors in flight count against the sender's limit of open files, so only this many
	 * clients are sent a TABLE at the same time. */
	HANDSHAKE_WINDOW = 4,
	HANDSHAKE_RETRY_MS = 10, /* where the system has no event to wait for */
	/* At the time limit the root says who is missing. Clients wait this much longer for that:
	 * otherwise they would take the root for the rank that is missing if it was a bit late. */
	HANDSHAKE_GRACE_MS = 1000,
};

enum transport_handshake_kind {
	HANDSHAKE_HELLO = 1,
	HANDSHAKE_TABLE,
	HANDSHAKE_MAPPED,
	HANDSHAKE_GO,
	HANDSHAKE_FAIL
};

struct transport_handshake {
	uint64_t magic;
	uint32_t version;
	uint32_t kind; /* enum transport_handshake_kind */
	uint64_t job;
	int32_t rank, size; /* of the world. HELLO: the sender's; FAIL: rank is the one at fault */
	int32_t pid;        /* HELLO: the sender's */
	uint32_t status;    /* FAIL */
	int32_t first, count; /* TABLE, MAPPED: places [first, first + count) */
};
_Static_assert(sizeof(struct transport_handshake) == 48, "the same for all compilers");

/* The ranks that connect, by place. */
struct transport_handshake_ranks {
	int count;
	int rank[RANKS_HOST_MAX]; /* of the world */
};
struct transport_handshake_ranks transport_handshake_ranks(const struct transport *transport,
							   const struct transport_exchange *exchange);
/* -1: the rank is none of these. */
int transport_handshake_place(const struct transport_handshake_ranks *ranks, int rank);

struct transport_handshake transport_handshake_of(const struct transport *transport,
						  enum transport_handshake_kind kind);

/* Sends as soon as the system accepts it. Errors: LS_TIMED_OUT, LS_INTERRUPTED; LS_PEER_DIED,
 * without a message: the other end is closed (what it has sent can still be received). */
LS_CHECKED ls_status transport_handshake_send(int fd, const struct transport_handshake *wire,
					      const int *fds, int fd_count, int peer,
					      const struct transport_exchange *exchange,
					      uint64_t deadline_ns);
/* Sends only if the system accepts the message at once. */
void transport_handshake_try_send(int fd, const struct transport_handshake *wire);

enum transport_handshake_result {
	HANDSHAKE_MESSAGE,
	HANDSHAKE_AGAIN, /* nothing there yet */
	HANDSHAKE_END,
	HANDSHAKE_NONSENSE,  /* not a message of this version and job */
	HANDSHAKE_EXHAUSTED, /* this process cannot have this many open descriptors */
};

/* Receives without waiting: a message and its at most `max` descriptors (max <= HANDSHAKE_FDS_MAX),
 * which the caller then owns. With any other result there are no descriptors. */
enum transport_handshake_result transport_handshake_receive(int fd, uint64_t job,
							    struct transport_handshake *wire,
							    int *fds, int max, int *fd_count);

/* Whether the process at the other end belongs to my user; *pid and *uid for the report. */
bool transport_handshake_same_user(int fd, int *pid, unsigned *uid);

/* *fd: a descriptor that is ready once the process of `rank` has ended; -1 if that process cannot
 * be watched, or is this one. *ended: the process has ended already. False: this process cannot
 * have another open descriptor; without one it would not notice ends, and get no memory. */
LS_CHECKED bool transport_handshake_watch(const struct transport_exchange *exchange, int rank,
					  int *fd, bool *ended);

#endif
