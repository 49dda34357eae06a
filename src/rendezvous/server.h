/* SPDX-License-Identifier: BSD-3-Clause
 * The server's state, for its files: server.c moves connections, hello.c judges what they say,
 * failed_meeting.c fails the meeting, telling.c sends, gather.c is the second round, and parting.c
 * hears how the ranks got connected. */
#ifndef RENDEZVOUS_SERVER_H
#define RENDEZVOUS_SERVER_H

#include "base/ranks.h"
#include "rendezvous/meet.h"

enum server_state {
	SERVER_MEETING, /* not all have come */
	SERVER_TELLING, /* all have come, and some have not been sent the whole table */
	/* If there are several hosts, SERVER_TELLING is replaced by these two: some ranks have not
	 * been sent the whole table, or have not given their cards; then all cards are there, and
	 * some ranks have not been sent them all. */
	SERVER_GATHERING,
	SERVER_SHARING,
	SERVER_COMPLETE, /* everybody has the table, and the cards */
	/* All ranks that came got the reason. After SERVER_GATHERING: it is on its way to those
	 * whose connections are still here. */
	SERVER_FAILED,
};

/* A connection that belongs to no rank yet: its hello is not complete, or the proof that has to
 * follow is not. fd -1: no connection. */
struct server_connection {
	int fd;
	int trace_fd;
	bool remote;       /* from another host */
	bool challenged;   /* its hello has come, and has to be proved */
	uint64_t until_ns; /* remote: when the server ends it if it is still here */
	struct wire_hello hello;
	struct auth_session session;
	uint64_t number; /* counts up, so that the oldest can be found */
	size_t got;      /* < sizeof in between two steps */
	_Alignas(8) unsigned char in[sizeof(struct wire_hello)];
};

/* fd -1 although it has said hello: the rank is the server itself, or got its answer and was let
 * go. */
struct server_rank {
	int fd;
	int trace_fd;
	bool said_hello;
	bool remote;
	uint32_t pid_space;
	uint64_t since_ns;           /* since when it has looked for the server; 0: not known */
	size_t sent;                 /* bytes of server->message */
	struct auth_session session; /* remote */
	struct auth_tag tag;         /* remote: of server->message */
	bool has_card;               /* its card is in server->cards */
	bool connected;              /* it has said so */
	size_t got;                  /* bytes of its card, then of what it says of connecting */
	_Alignas(8) unsigned char in[sizeof(struct wire_card)];
};

/* What the server sends all ranks in this state: `bytes`, with a tag at `tag_at`. The tag is zero
 * here; each rank on another host gets its own. bytes NULL: nothing. */
struct server_message {
	const char *bytes;
	size_t size, tag_at;
};

/* state == SERVER_FAILED  <=>  status != LS_OK  <=>  text is not empty. */
struct rendezvous_server {
	struct rendezvous_place place; /* as bound */
	enum server_state state;
	bool met; /* all ranks have been sent the table */
	ls_status status;
	int holder; /* rank of the server, WIRE_LAUNCHER if it is no rank */
	int listen_fd;
	uint64_t began_ns, deadline_ns;
	uint64_t settled_ns; /* before this no table is sent: a rank may come twice */
	uint64_t connections_ever;
	uint64_t incomplete;     /* connections that ended without a complete hello */
	uint64_t other_users;    /* hellos of other users */
	uint64_t other_versions; /* hellos of other versions, of unknown users */
	uint64_t unproved;       /* connections that were challenged, and did not answer rightly */
	uint64_t other_jobs;     /* hellos of ranks of another job */
	uint64_t unasked;        /* hellos from other hosts, while this process has no secret */
	int told;                /* after a failure: processes that know it, or have ended */
	struct server_rank ranks[RANKS_WORLD_MAX];
	struct server_connection connections[RENDEZVOUS_CONNECTION_MAX];
	struct rendezvous_table table;
	struct server_message message;
	struct wire_answer answer;
	struct wire_cards cards;
	char where[RENDEZVOUS_PLACE_BYTES];
	char text[RENDEZVOUS_TEXT_BYTES];
};

/* ---- connections.c ---- */

/* Empties the connection's place. */
void rendezvous_connection_end(struct server_connection *connection);
/* As rendezvous_connection_end, and counts the connection among those that became no rank's. */
void rendezvous_connection_end_stranger(struct rendezvous_server *server,
					struct server_connection *connection);
/* An empty place for a connection. If there is none, or with make_room, ends the oldest connection
 * but `spared`, which has had the most time, and returns its place; NULL: there is none to end. */
struct server_connection *rendezvous_connection_place(struct rendezvous_server *server,
						      bool make_room,
						      const struct server_connection *spared);
/* A question about this connection failed, because descriptors or memory ran out: ends another
 * connection that belongs to no rank. If there is none, fails the meeting, which frees the
 * descriptors of the ranks that have come. */
void rendezvous_exhausted(struct rendezvous_server *server,
			  const struct server_connection *connection, int error);

/* ---- failed_meeting.c; functions that fail the meeting expect SERVER_MEETING ---- */

/* How many ranks have said hello. */
int rendezvous_count_hellos(const struct rendezvous_server *server);
/* Fails the meeting and tells all ranks that have come; the caller has written server->text. Also
 * in SERVER_GATHERING. */
void rendezvous_fail(struct rendezvous_server *server, ls_status status);
/* The deadline is over before all ranks have come: fails the meeting. */
void rendezvous_fail_missing(struct rendezvous_server *server, uint64_t now_ns);
/* The connection of a rank that had come is at its end: fails the meeting. */
void rendezvous_fail_ended(struct rendezvous_server *server, int rank);
/* The server can accept no connection any more: fails the meeting. */
void rendezvous_fail_accepting(struct rendezvous_server *server, int error);

/* ---- hello.c ---- */

/* The connection has sent a complete hello: admits the rank, fails the meeting, or refuses only
 * this connection. */
void rendezvous_handle_hello(struct rendezvous_server *server, struct server_connection *connection,
			     struct wire_hello *hello);
/* The connection, which was challenged, has sent a proof. */
void rendezvous_handle_proof(struct rendezvous_server *server, struct server_connection *connection,
			     const struct wire_proof *proof);
/* The hello is of another version, so the server knows only its head: fails the meeting if the
 * connection is known to come from the same user. */
void rendezvous_handle_other_version(struct rendezvous_server *server,
				     struct server_connection *connection,
				     const struct wire_head *head);

/* ---- telling.c ---- */

/* Tells one connection that it gets no table, and why, and that nothing follows. session: of a rank
 * on another host that has proved that it knows the secret; NULL for every other rank. */
void rendezvous_tell_answer(const struct rendezvous_server *server, int fd,
			    const struct auth_session *session, ls_status status, const char *text);
/* All ranks have come: begins to send them the table. LS_SYSTEM: server->text says why it
 * cannot. */
LS_CHECKED ls_status rendezvous_tell_table(struct rendezvous_server *server);
/* Begins to send all ranks server->cards, whose size, status and content the caller has filled in.
 * Ranks that have not been sent all of the table get no more. */
void rendezvous_tell_cards(struct rendezvous_server *server);
/* Sends what is possible. True: nothing is left. A connection that breaks counts as served. */
bool rendezvous_tell_more(struct rendezvous_server *server);
/* Whether the server has still to send the rank something. */
bool rendezvous_is_untold(const struct rendezvous_server *server, int rank);
/* The meeting has failed after SERVER_GATHERING: sends all ranks the status and text. */
void rendezvous_tell_failure(struct rendezvous_server *server);
/* In SERVER_FAILED: sends the reason on, and closes the connections that have ended. */
void rendezvous_finish_telling(struct rendezvous_server *server);

/* ---- gather.c ---- */

/* Appends "rank 2 (pid 7) on host b". */
void rendezvous_text_rank(const struct rendezvous_server *server, int rank, char *text);

/* In SERVER_GATHERING: sends tables, reads cards, and fails or shares. */
void rendezvous_gather_step(struct rendezvous_server *server);

#endif
