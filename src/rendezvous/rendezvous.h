/* SPDX-License-Identifier: BSD-3-Clause
 * Which ranks take part, and where they are. Each rank says hello to a server (the launcher, or
 * rank 0) on a stream socket: an abstract Unix socket, or TCP. When all ranks have come, each gets
 * the table of all. If anything is wrong, each gets the same error, with a text that names rank,
 * cause and remedy. Messages are versioned structs of fixed size, and are checked before they are
 * used. A connection that sends nothing or nonsense costs one descriptor until the deadline, and
 * nothing more. If the ranks are on several hosts a second round follows over the same connections:
 * each rank gives a card, such as its address on the network, and gets those of all.
 *
 * The connection to a launcher stays open after the table has arrived. From it the launcher learns
 * the process of each rank, and gets each rank's trace (sent with the hello on Unix sockets). */
#ifndef RENDEZVOUS_RENDEZVOUS_H
#define RENDEZVOUS_RENDEZVOUS_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

#include "auth/auth.h"
#include "base/ranks.h"
#include "base/settings.h"
#include "base/wait.h"

enum {
	RENDEZVOUS_ADDRESS_BYTES = 64,
	RENDEZVOUS_HOST_BYTES = 64,
	RENDEZVOUS_NAME_BYTES =
		256, /* as the resolver takes them, which has longer ones than hosts */
	RENDEZVOUS_IP_BYTES = 48,
	RENDEZVOUS_TEXT_BYTES = 512,
	RENDEZVOUS_CARD_BYTES = 512,   /* what a rank tells all others in the second round */
	RENDEZVOUS_REASON_BYTES = 384, /* why a rank has no card; a longer text is cut */
	RENDEZVOUS_CONNECTION_MAX =
		64, /* connections without a complete hello; one more closes the oldest */
	RENDEZVOUS_FDS_MAX = 1 + RANKS_WORLD_MAX + RENDEZVOUS_CONNECTION_MAX,
};

_Static_assert((int)RENDEZVOUS_FDS_MAX <= (int)WAIT_FDS_MAX, "one wait for all that come");

/* Where the ranks meet, and which rank this is. */
struct rendezvous_place {
	bool tcp;
	char address[RENDEZVOUS_ADDRESS_BYTES * 2]; /* abstract name, or IPv4 or IPv6 address */
	char name[RENDEZVOUS_NAME_BYTES];           /* host name that gave `address`, or "" */
	uint16_t port;                              /* TCP only */
	bool serve; /* this rank is the server (rank 0 without a launcher) */
	int rank, world_size;
	/* Found by RANK, WORLD_SIZE and MASTER_PORT alone, so nothing else says which job this is.
	 * Such a job meets a moment later, in case a rank comes twice. */
	bool by_hand;
	bool has_hosts; /* the launcher has said that there are several, so a secret is needed */
	/* The secret that ranks of other hosts have to know; without a token no other host can take
	 * part. */
	bool has_token;
	struct auth_token token;
	/* Which start of torchrun or srun this is, the same on all ranks; 0: not known. */
	uint64_t launch;
};

/* Finds the place: from `rendezvous` ("unix:NAME" or "tcp:127.0.0.1:PORT", then with rank and
 * world_size), or if that is NULL from the environment, which is that of
 * - lockstep run: LOCKSTEP_RENDEZVOUS;
 * - torchrun, whose store has MASTER_PORT: an abstract socket named after user, port, run id and
 *   restart count; with ranks on several hosts MASTER_ADDR and the port after MASTER_PORT;
 * - RANK and WORLD_SIZE: MASTER_ADDR and MASTER_PORT;
 * - srun: an abstract socket named after user, job and step; on several hosts the first of the step
 *   and a port that follows from both numbers, unless MASTER_ADDR and MASTER_PORT say others.
 * With none of them: a world of one rank. An address may be a name, IPv4, or IPv6 (in brackets or
 * not), but none that stands for all addresses of a host, or that is valid on one link only. The
 * system's resolver may block while it looks for a name. Errors, with a message: LS_BAD_ARGUMENT,
 * which says which variable is missing or wrong. */
LS_CHECKED ls_status rendezvous_find(const char *rendezvous, int rank, int world_size,
				     const struct settings_launch *launch,
				     struct rendezvous_place *out);

/* Before the meeting: reads the secret of the job, if the place is a port and the user has named a
 * file (else, with `trusts`, takes the one that everybody knows, if other hosts can reach the
 * place). Ranks whose secrets differ are of different jobs, also on one host. Without a secret only
 * ranks of this host can take part, which the meeting finds out. Errors: as auth_token_read;
 * LS_UNTRUSTED_PEER, with a message, if the launcher has said that there are several hosts. */
LS_CHECKED ls_status rendezvous_read_secret(const char *file, bool trusts,
					    struct rendezvous_place *place);

struct rendezvous_rank {
	int32_t pid;
	uint32_t uid;
	uint64_t host_key; /* see rendezvous_host_key; 0: not known */
	char host[RENDEZVOUS_HOST_BYTES];
	char ip[RENDEZVOUS_IP_BYTES]; /* for other hosts; "": they cannot reach this rank */
	/* abstract Unix socket the rank listens on, or "" */
	char address[RENDEZVOUS_ADDRESS_BYTES];
};

/* Fills address and name of a TCP place: from an address in numbers, in brackets or not, or from
 * the name of a host, for which it asks the system's resolver. `from` is how the user knows what
 * gave it. Refuses an address that other hosts cannot use, except loopback. LS_BAD_ARGUMENT: text,
 * RENDEZVOUS_TEXT_BYTES, which the caller has begun, has why. */
LS_CHECKED ls_status rendezvous_set_address(struct rendezvous_place *out, const char *address,
					    const char *from, char *text);

/* Whether only processes of this host can come to the place. */
bool rendezvous_place_is_loopback(const struct rendezvous_place *place);

/* The same number in all processes that can share memory and sockets: those of one kernel and one
 * network namespace. */
uint64_t rendezvous_host_key(void);

struct rendezvous_table {
	uint64_t job; /* random, the same on all ranks */
	int size;
	struct rendezvous_rank ranks[RANKS_WORLD_MAX];
};

/* Whether both are on one host. Keys decide if both are known, else the addresses. A rank of which
 * neither is known counts as on any host. */
bool rendezvous_share_host(const struct rendezvous_rank *one, const struct rendezvous_rank *other);
/* The hosts of the table, in the order of their lowest ranks: returns how many. first[q]: the
 * lowest rank on the host of rank q, for each rank of the table. All ranks and the server find the
 * same. */
int rendezvous_find_hosts(const struct rendezvous_table *table, int first[RANKS_WORLD_MAX]);
/* Whether the table has several hosts, so that a second round follows. */
bool rendezvous_has_hosts(const struct rendezvous_table *table);

/* What a launcher that does not serve tells of ranks that have ended. A rank asks several times a
 * second while it meets the others: they need not wait for those ranks. */
struct rendezvous_ends {
	/* Whether the process of this rank has ended; then how: "rank 2 exited with 0". Does not
	 * block. */
	bool (*find)(void *context, int rank, char *how, size_t bytes);
	void *context;
};

struct rendezvous_self {
	struct rendezvous_rank me;
	int trace_fd; /* sent along on a Unix socket; -1: none */
	/* Must stay until rendezvous_join and rendezvous_gather have returned. NULL: nobody
	 * tells. */
	const struct rendezvous_ends *ends;
};

/* One rank's part in a meeting, from rendezvous_join to rendezvous_leave. For one thread. */
struct rendezvous_meeting;

/* Meets the other ranks. Blocks until deadline_ns, and up to a second longer for an answer that is
 * on its way. Rank 0 of a job without a launcher also serves, in the same thread. After a failure
 * it stays until no rank has come for a second (at most ten seconds, never past its deadline), so
 * that late ranks get the error. The meeting ends at the earliest deadline of a rank that came.
 * me.uid is the effective user. A world of one rank without a launcher opens no socket. *meeting:
 * for rendezvous_leave, and before it, if the table has several hosts, rendezvous_gather; NULL
 * after an error. The waiter must stay until rendezvous_leave. If all ranks are on one host they
 * exchange nothing more. Errors (all with a message): LS_BAD_ARGUMENT, LS_WRONG_WORLD_SIZE,
 * LS_DUPLICATE_RANK, LS_RANK_MISSING (names the ranks that did not come, or ended before all had
 * come), LS_PORT_TAKEN, LS_NO_MASTER, LS_UNTRUSTED_PEER, LS_WRONG_VERSION, LS_INTERRUPTED (a signal
 * handler ended the wait; this rank gives up, so the others get LS_RANK_MISSING), LS_OUT_OF_MEMORY,
 * LS_SYSTEM. */
LS_CHECKED ls_status rendezvous_join(const struct rendezvous_place *place,
				     const struct rendezvous_self *self, struct waiter *waiter,
				     uint64_t deadline_ns, struct rendezvous_table *out,
				     struct rendezvous_meeting **meeting);

/* The second round of a meeting of several hosts: all ranks call it, once. mine: LS_OK, and `card`
 * is what the others are to get, RENDEZVOUS_CARD_BYTES of any content; else what went wrong at this
 * rank, and `reason` says it in a line. cards: of each rank in turn, RENDEZVOUS_CARD_BYTES each;
 * changed only by LS_OK. Blocks until the deadline of the meeting, as rendezvous_join does. Every
 * rank gets the same: LS_OK, or the first error, with a message that names rank, host and cause. No
 * message where the error is `mine`, which this rank has printed. Errors: what a rank gave as
 * `mine`; LS_RANK_MISSING, a rank ended or left (at once), or gave no card until the deadline;
 * LS_UNTRUSTED_PEER, a rank sent something else, or not signed as its secret would; LS_NO_MASTER,
 * the server ended or is stuck; LS_INTERRUPTED, as of rendezvous_join; LS_SYSTEM; LS_INTERNAL,
 * there are not several hosts, or it is the second call. Afterwards only rendezvous_leave may
 * follow. */
LS_CHECKED ls_status rendezvous_gather(struct rendezvous_meeting *meeting, ls_status mine,
				       const char *reason, const void *card, void *cards);

/* After rendezvous_gather, while the ranks of several hosts connect, if rank 0 has served: each
 * rank tells rank 0 by rendezvous_part that it is connected to all, or why it is not. Then it
 * keeps its connection until rank 0 tells the result to all, by rendezvous_part, too: LS_OK once
 * it has heard from all that they are connected. So a process that ends meanwhile is seen by rank
 * 0, and all get an error that names it. `mine` is LS_OK, or else `reason` says in a line what
 * went wrong; a rank may give up after LS_OK. Does nothing once rank 0 has told the result, and
 * with meeting NULL. Does not block. */
void rendezvous_part(struct rendezvous_meeting *meeting, ls_status mine, const char *reason);
/* Fills in descriptors, at most `max`, of which one is ready when rendezvous_hear has something to
 * say; returns their number. RANKS_WORLD_MAX is always enough. */
int rendezvous_poll(const struct rendezvous_meeting *meeting, struct pollfd *fds, int max);
/* What was told. *over: at rank 0, all others are connected; at others, rank 0 has told the result,
 * or a launcher has served, and nobody tells. Does not block. Errors, with a message that names the
 * rank: at rank 0, what a rank gave; LS_RANK_MISSING, it ended without a word. At others, what rank
 * 0 gave; LS_NO_MASTER, it ended without a word. LS_UNTRUSTED_PEER, something else came, or it is
 * not signed as the job's secret would. */
LS_CHECKED ls_status rendezvous_hear(struct rendezvous_meeting *meeting, bool *over);
/* Call it before each wait: now and then it looks whether ranks of this host are stopped, and
 * reports them. Returns until when the caller may sleep that would sleep until `until_ns`. */
uint64_t rendezvous_look(struct rendezvous_meeting *meeting, uint64_t until_ns);
/* The caller's time is up, and the result is not known: says for whom this rank waits, and returns
 * LS_RANK_MISSING at rank 0, LS_NO_MASTER at others. */
ls_status rendezvous_give_up(struct rendezvous_meeting *meeting);

/* Ends this rank's part, and frees it; NULL is allowed. *control, owned by the caller: the
 * connection to the launcher (non-blocking). If rank 0 has served at a port, and nothing failed,
 * its listening socket: while the caller keeps it, no other job can meet there. Else -1. With
 * several hosts and without rendezvous_gather this rank has ended for the others, which get
 * LS_RANK_MISSING, or LS_NO_MASTER if it served. */
void rendezvous_leave(struct rendezvous_meeting *meeting, int *control);

/* ---- the server, for the launcher, which has an event loop of its own ---- */

struct rendezvous_server;

/* Listens at `place` for place->world_size ranks. An empty address is replaced by a fresh one, port
 * 0 by a free one. Errors: LS_BAD_ARGUMENT, LS_PORT_TAKEN, LS_SYSTEM, LS_OUT_OF_MEMORY, with a
 * message. */
LS_CHECKED ls_status rendezvous_server_open(const struct rendezvous_place *place,
					    uint64_t deadline_ns, struct rendezvous_server **out);
/* Where the server listens. */
const struct rendezvous_place *rendezvous_server_place(const struct rendezvous_server *server);
/* Fills in the descriptors to poll, at most `max` (RENDEZVOUS_FDS_MAX is always enough), and
 * returns their number. Call it again after every step, also when the meeting is over, so that late
 * ranks get its result. */
int rendezvous_server_fds(const struct rendezvous_server *server, struct pollfd *fds, int max);
/* When rendezvous_server_step must run even if no descriptor is ready; CLOCK_NEVER when the meeting
 * is over, and no connection from another host is without a rank. A rank that does not take its
 * table, or the cards, delays the others by at most a second after the deadline. */
uint64_t rendezvous_server_deadline_ns(const struct rendezvous_server *server);
/* Makes all progress that is possible without blocking. LS_OK: the meeting continues, or is
 * complete. Any other status: it failed, all ranks got the error, and rendezvous_server_text has
 * the reason (the ranks print it, not the server). Further steps send it to late ranks, and return
 * the same status. */
LS_CHECKED ls_status rendezvous_server_step(struct rendezvous_server *server);
/* All ranks have the table and, if it has several hosts, the cards. */
bool rendezvous_server_complete(const struct rendezvous_server *server);
/* NULL until the meeting is complete. */
const struct rendezvous_table *rendezvous_server_table(const struct rendezvous_server *server);
/* The process id of a rank that has said hello, also if the meeting fails; 0: it has not come. */
int rendezvous_server_pid(const struct rendezvous_server *server, int rank);
/* The trace descriptor that a rank sent, owned by the server; -1: none. */
int rendezvous_server_trace(const struct rendezvous_server *server, int rank);
/* "" unless the meeting failed. */
const char *rendezvous_server_text(const struct rendezvous_server *server);
/* Call when a process that should have come has ended: fails the meeting at once with `text`. Does
 * nothing if the meeting is over. `status` must not be LS_OK. */
void rendezvous_server_fail(struct rendezvous_server *server, ls_status status, const char *text);
/* NULL is allowed. */
void rendezvous_server_close(struct rendezvous_server *server);

#endif
