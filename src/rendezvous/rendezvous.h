/* SPDX-License-Identifier: BSD-3-Clause
 * Who takes part, and where they are. Each rank says hello to a server (the launcher, or rank 0
 * itself) on a stream socket: an abstract Unix socket, or TCP on loopback. When all have come, each
 * gets the table of all; when something is wrong, each gets the same error with a text that names
 * rank, cause and remedy. The wire is fixed-size structs, versioned; nothing is believed before it
 * is checked; a peer that says nothing or nonsense costs one descriptor until the deadline, no
 * more.
 *
 * The connection to a launcher stays open after the table came: the launcher learns from it which
 * process is which rank, and holds each rank's trace (sent along with the hello on Unix
 * sockets). */
#ifndef RENDEZVOUS_RENDEZVOUS_H
#define RENDEZVOUS_RENDEZVOUS_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

#include "base/settings.h"
#include "base/wait.h"

enum {
	RENDEZVOUS_SIZE_MAX = 64, /* ranks of one job, so far */
	RENDEZVOUS_ADDRESS_BYTES = 64,
	RENDEZVOUS_HOST_BYTES = 64,
	RENDEZVOUS_TEXT_BYTES = 512,
	RENDEZVOUS_CONNECTION_MAX =
		64, /* connections that have not said hello; one more ends the oldest */
	RENDEZVOUS_FDS_MAX = 1 + RENDEZVOUS_SIZE_MAX + RENDEZVOUS_CONNECTION_MAX,
};

/* Where to meet, and as whom. */
struct rendezvous_place {
	bool tcp;
	char address[RENDEZVOUS_ADDRESS_BYTES * 2]; /* abstract name, or dotted IPv4 */
	uint16_t port;                              /* TCP only */
	bool serve; /* this rank is the server (rank 0 without a launcher) */
	int rank, world_size;
};

/* Finds the place: from `rendezvous` ("unix:NAME" or "tcp:127.0.0.1:PORT", then with rank and
 * world_size), or if that is NULL from the environment: lockstep run (LOCKSTEP_RENDEZVOUS),
 * torchrun (MASTER_PORT is torchrun's own store, so the place is an abstract socket named after
 * user, port, run id and restart count), else MASTER_ADDR and MASTER_PORT. With neither: a world of
 * one rank. Errors: LS_BAD_ARGUMENT with a message that says which variable is missing or wrong;
 * LS_UNSUPPORTED, with a message, for an address that is not loopback and for ranks on several
 * hosts. */
LS_CHECKED ls_status rendezvous_find(const char *rendezvous, int rank, int world_size,
				     const struct settings_launch *launch,
				     struct rendezvous_place *out);

struct rendezvous_rank {
	int32_t pid;
	uint32_t uid;
	char host[RENDEZVOUS_HOST_BYTES];
	/* abstract Unix socket the rank listens on, or "" */
	char address[RENDEZVOUS_ADDRESS_BYTES];
};

struct rendezvous_table {
	uint64_t job; /* random, the same on all ranks */
	int size;
	struct rendezvous_rank ranks[RENDEZVOUS_SIZE_MAX];
};

struct rendezvous_self {
	struct rendezvous_rank me;
	int trace_fd; /* sent along on a Unix socket; -1: none */
};

/* Meets the others. Blocking until deadline_ns, and at most a second longer while the verdict on
 * that deadline is on its way. Rank 0 of a job without a launcher serves as well, in the same
 * thread; after a failure it stays until nobody came for a second (at most ten, never past its
 * deadline), so that those who are about to come are told. The meeting ends at the earliest
 * deadline of a rank that came. me.uid is the effective user. A world of one rank without a
 * launcher opens no socket. *control: the connection to the launcher (non-blocking), -1 where rank
 * 0 served; owned by the caller. Errors (all with a message): LS_BAD_ARGUMENT, LS_WRONG_WORLD_SIZE,
 * LS_DUPLICATE_RANK, LS_RANK_MISSING (names those that did not come, or that ended before all had
 * come), LS_PORT_TAKEN, LS_NO_MASTER, LS_UNTRUSTED_PEER, LS_WRONG_VERSION, LS_INTERRUPTED (a signal
 * handler ended the wait: this rank is given up, and so the others get LS_RANK_MISSING),
 * LS_OUT_OF_MEMORY, LS_SYSTEM. */
LS_CHECKED ls_status rendezvous_join(const struct rendezvous_place *place,
				     const struct rendezvous_self *self, struct waiter *waiter,
				     uint64_t deadline_ns, struct rendezvous_table *out,
				     int *control);

/* ---- the server, for the launcher, which has an event loop of its own ---- */

struct rendezvous_server;

/* Listens at `place` for place->world_size ranks. An empty address is replaced by a fresh one, port
 * 0 by a free one. Errors: LS_BAD_ARGUMENT, LS_PORT_TAKEN, LS_SYSTEM, LS_OUT_OF_MEMORY, with a
 * message. */
LS_CHECKED ls_status rendezvous_server_open(const struct rendezvous_place *place,
					    uint64_t deadline_ns, struct rendezvous_server **out);
/* Where it listens. */
const struct rendezvous_place *rendezvous_server_place(const struct rendezvous_server *server);
/* Descriptors to poll; returns how many of at most `max` (RENDEZVOUS_FDS_MAX is always enough). Ask
 * again after every step. Also once the meeting is over, so that latecomers learn how it went. */
int rendezvous_server_fds(const struct rendezvous_server *server, struct pollfd *fds, int max);
/* When rendezvous_server_step has to run although no descriptor is ready; CLOCK_NEVER once it is
 * over. */
uint64_t rendezvous_server_deadline_ns(const struct rendezvous_server *server);
/* Does what can be done without blocking. LS_OK: not complete yet or complete; any other status:
 * the meeting failed, everybody was told, and rendezvous_server_text says why (the ranks print it;
 * the server does not). Further steps tell latecomers and return the same. */
LS_CHECKED ls_status rendezvous_server_step(struct rendezvous_server *server);
bool rendezvous_server_complete(const struct rendezvous_server *server);
/* NULL until the meeting is complete. */
const struct rendezvous_table *rendezvous_server_table(const struct rendezvous_server *server);
/* Process id of rank `rank` from the moment it has said hello, also if the meeting fails; 0: not
 * come. */
int rendezvous_server_pid(const struct rendezvous_server *server, int rank);
/* The trace descriptor rank `rank` sent, -1 if none; stays the server's. */
int rendezvous_server_trace(const struct rendezvous_server *server, int rank);
/* "" unless the meeting failed. */
const char *rendezvous_server_text(const struct rendezvous_server *server);
/* A process that should have come has ended: fails the meeting at once with `text`. Nothing happens
 * if the meeting is over. `status` must not be LS_OK. */
void rendezvous_server_fail(struct rendezvous_server *server, ls_status status, const char *text);
/* NULL is allowed. */
void rendezvous_server_close(struct rendezvous_server *server);

#endif
