/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of this room share, and other rooms do not use: sockets, texts, the client, and
 * the server functions that rank 0 calls. A `text` is always RENDEZVOUS_TEXT_BYTES long. */
#ifndef RENDEZVOUS_MEET_H
#define RENDEZVOUS_MEET_H

#include <sys/socket.h>

#include "base/stopped.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/wire.h"

enum {
	RENDEZVOUS_PLACE_BYTES = RENDEZVOUS_ADDRESS_BYTES * 2 + 16,
	/* A failed server stays for ranks that are still to come: until none has come for QUIET,
	 * and at most LINGER. */
	RENDEZVOUS_QUIET_MS = 1000,
	RENDEZVOUS_LINGER_MS = 10000,
	/* A welcomed rank waits this long past its deadline for the answer. */
	RENDEZVOUS_GRACE_MS = 1000,
	RENDEZVOUS_ENDS_MS = 200, /* from one question to the next whether a rank has ended */
	RENDEZVOUS_HOW_BYTES = 128,
};

/* ---- error_text.c ---- */

/* FNV-1a. */
uint64_t rendezvous_hash(const char *string);
/* Appends; text that does not fit is cut. */
void rendezvous_text_add(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "tcp:127.0.0.1:29500", "tcp:[::1]:29500" or "unix:NAME". */
void rendezvous_place_name(const struct rendezvous_place *place, char out[RENDEZVOUS_PLACE_BYTES]);
/* Which process holds the rendezvous: "rank 0 (pid 7)" or "the launcher (pid 7)". */
void rendezvous_text_holder(char *text, int rank, int pid);
/* Appends the i < size of which in[i] == value: "0, 2-5, 9". */
void rendezvous_text_ranks(char *text, const bool *in, int size, bool value);
/* What other ranks get if a rank ends with `status`: no signal has interrupted them. */
ls_status rendezvous_status_for_others(ls_status status);
/* Whether `place` is a usable address; only a server may omit the address. */
bool rendezvous_place_is_valid(const struct rendezvous_place *place, bool server);

/* ---- socket.c: all descriptors are non-blocking and close on exec ---- */

/* *bound = place, with the address or port that was chosen. LS_BAD_ARGUMENT, LS_PORT_TAKEN,
 * LS_OUT_OF_MEMORY, LS_SYSTEM with a text. */
LS_CHECKED ls_status rendezvous_listen(const struct rendezvous_place *place,
				       struct rendezvous_place *bound, int *listen_fd, char *text);
/* Begins to connect: 0, or an errno; EINPROGRESS comes with a descriptor that becomes writable. */
int rendezvous_dial(const struct rendezvous_place *place, int *fd);
/* Whether the other end of a TCP connection is on another host: it has another address, and the two
 * are not both loopback. False, with *remote set: the connection is broken. */
LS_CHECKED bool rendezvous_find_remote(int fd, bool *remote);
/* The name of the first host of a list as Slurm writes it, such as "node[1-3,7]". False, and "": it
 * is no such list. */
bool rendezvous_first_host(const char *list, char out[RENDEZVOUS_NAME_BYTES]);
/* This host's address on the connection; "": a loopback address. */
void rendezvous_own_ip(int fd, char out[RENDEZVOUS_IP_BYTES]);
/* The result of a connection that was in progress: 0 or an errno. Port numbers are reused: a socket
 * that connected to itself counts as ECONNREFUSED. */
int rendezvous_dialled(const struct rendezvous_place *place, int fd);
/* As recvmsg without blocking. Stores the first descriptor that comes along in *passed if that is
 * -1, and closes all others. Never touches *passed on TCP. */
ssize_t rendezvous_receive(int fd, void *to, size_t bytes, int *passed);
/* As send without blocking or SIGPIPE. passed: a descriptor to send along; -1: none. */
ssize_t rendezvous_send(int fd, const void *from, size_t bytes, int passed);
/* Discards what has arrived: closing a TCP socket with unread bytes would reset it, and the peer
 * might lose the answer. True if the connection is at its end. */
bool rendezvous_drain(int fd);
/* Whether a system call failed because descriptors or memory ran out. */
bool rendezvous_is_exhaustion(int error);
/* Closes *fd if it is >= 0, and sets it to -1. */
void rendezvous_close_fd(int *fd);

/* ---- peer_user.c ---- */

enum rendezvous_peer {
	RENDEZVOUS_PEER_KNOWN,     /* *out has its user, and its pid or 0 if that is unknown */
	RENDEZVOUS_PEER_GONE,      /* the other end has closed the connection */
	RENDEZVOUS_PEER_HIDDEN,    /* TCP, and this system does not tell the owner of a socket */
	RENDEZVOUS_PEER_EXHAUSTED, /* errno: no descriptor or memory to ask with */
};

/* Finds the process at the other end of a connection, as the kernel knows it. A TCP connection that
 * was not accepted yet has none. Does not block. */
enum rendezvous_peer rendezvous_find_peer(int fd, bool tcp, struct ucred *out);

/* ---- client.c, talk.c, share.c ---- */

struct rendezvous_client {
	const struct rendezvous_place *place;
	const struct rendezvous_self *self;
	struct waiter *waiter;
	uint64_t deadline_ns; /* for the answer */
	uint64_t silence_ns;  /* for the first word; not after deadline_ns */
	bool once;            /* give up when nobody listens, instead of trying again */
	char *text;           /* why it failed */

	/* Private, except that the caller may read it afterwards. */
	int fd;
	bool welcomed;               /* the answer came from a Lockstep */
	bool checked;                /* the server is of the same user, or has proved the secret */
	bool remote;                 /* the server is on another host */
	struct auth_session session; /* once the server has challenged this rank */
	struct wire_hello hello;     /* as it was sent */
	bool kept;                   /* after the table: the connection is still needed */
	bool mute;                   /* the last server accepted the connection and sent nothing */
	/* The ranks of this host of which this rank reports that they are stopped: their pids; 0:
	 * others. */
	bool watches;
	int watched[RANKS_WORLD_MAX];
	struct stopped_looks looks;
	int unreachable;             /* errno of the last try, if no host was there; 0 */
	int holder_rank, holder_pid; /* once welcomed */
	uint64_t began_ns;
	size_t got;
	_Alignas(8) unsigned char in[sizeof(struct wire_cards)]; /* the longest message */
	/* What was parsed last: */
	struct wire_answer reply;
	struct wire_cards cards;
};
_Static_assert(sizeof(struct wire_cards) >= sizeof(struct wire_answer), "client->in");

/* Meets as a rank that does not serve. The caller fills the first part and zeroes the rest. After
 * LS_OK the connection is open if `kept`, and `in` has what came behind the table. */
LS_CHECKED ls_status rendezvous_client_meet(struct rendezvous_client *client,
					    struct rendezvous_table *out);
/* The second round of such a rank: as rendezvous_gather, with the reason for a failure in
 * client->text. */
LS_CHECKED ls_status rendezvous_client_gather(struct rendezvous_client *client,
					      struct wire_card *mine, void *cards);

/* Tells rank 0 how this rank got connected. words: how often it has done so. */
void rendezvous_client_part(struct rendezvous_client *client, int words, ls_status status,
			    const char *reason);
/* As rendezvous_hear, with the reason in client->text. *over: nothing more is to come. */
LS_CHECKED ls_status rendezvous_client_hear(struct rendezvous_client *client, bool *over);

/* Appends before, the place and after to client->text. */
void rendezvous_client_where(struct rendezvous_client *client, const char *before,
			     const char *after);
/* As rendezvous_look. */
uint64_t rendezvous_client_look(struct rendezvous_client *client, uint64_t until_ns);
/* Waits for `events` on the connection: LS_OK, LS_TIMED_OUT, or a status that decides. */
LS_CHECKED ls_status rendezvous_client_wait(struct rendezvous_client *client, short events);
/* As rendezvous_client_wait. A connection that breaks meanwhile is not an error here: an answer may
 * have come before. */
LS_CHECKED ls_status rendezvous_client_send(struct rendezvous_client *client, const void *from,
					    size_t bytes, int passed);
/* Waits for more bytes, or *ended: the connection is at its end. Else a status that decides. */
LS_CHECKED ls_status rendezvous_client_receive(struct rendezvous_client *client, bool *ended);
/* The time limit is over: returns the status for that, with the reason in client->text. */
ls_status rendezvous_client_give_up(struct rendezvous_client *client);
/* A wait ended with this status: returns it, with the reason in client->text. */
ls_status rendezvous_client_interrupted(struct rendezvous_client *client, ls_status status);

/* ---- server.c, gather.c, for rank 0 ---- */

/* As rendezvous_server_open, but writes the reason to `text` and not to standard error. self: the
 * rank that serves, which counts as having come; NULL: a launcher. */
LS_CHECKED ls_status rendezvous_server_start(const struct rendezvous_place *place,
					     const struct rendezvous_self *self,
					     uint64_t deadline_ns, char *text,
					     struct rendezvous_server **out);
/* After a failure: how many processes know of it, or have ended. When it is world_size, all do. */
int rendezvous_server_told(const struct rendezvous_server *server);
/* The table, once it has been sent to all ranks, also if they still have to gather; else NULL. */
const struct rendezvous_table *rendezvous_server_met(const struct rendezvous_server *server);
/* Takes the card of the rank that serves, once that rank has met the others. Does nothing after a
 * failure. */
void rendezvous_server_put_card(struct rendezvous_server *server, const struct wire_card *card);
/* The cards of all ranks, once the server is complete and there are several hosts. */
const unsigned char *rendezvous_server_cards(const struct rendezvous_server *server);
/* Tells all ranks how their connecting ended. */
void rendezvous_server_part(struct rendezvous_server *server, ls_status status, const char *reason);

/* ---- parting.c, for rank 0, while the ranks connect ---- */

/* As rendezvous_hear, with the reason in `text`. */
LS_CHECKED ls_status rendezvous_server_hear(struct rendezvous_server *server, bool *over,
					    char *text);
/* As rendezvous_give_up. */
ls_status rendezvous_server_give_up(const struct rendezvous_server *server, char *text);
/* As rendezvous_poll. */
int rendezvous_server_poll(const struct rendezvous_server *server, struct pollfd *fds, int max);

/* The server, which is to serve no more, gives its listening socket away if it has a port; -1. */
int rendezvous_server_take_listener(struct rendezvous_server *server);

/* ---- meet.c ---- */

/* A rank 0 that serves has a server for as long as the meeting needs one; other ranks have a
 * client. */
struct rendezvous_meeting {
	struct rendezvous_place place;
	struct rendezvous_self self;
	int size;
	bool gathers;  /* rendezvous_gather is to come */
	bool hears;    /* rank 0 is to tell how the connecting ended; at rank 0: it is to be told */
	int words;     /* that this rank has said of its own connecting */
	int listen_fd; /* of a server that is gone: its listening socket; -1: none */
	struct rendezvous_server *server;
	struct rendezvous_client client;
};

/* rendezvous_join and rendezvous_gather without the message on standard error. */
LS_CHECKED ls_status rendezvous_meet(const struct rendezvous_place *place,
				     const struct rendezvous_self *self, struct waiter *waiter,
				     uint64_t deadline_ns, struct rendezvous_table *out,
				     struct rendezvous_meeting **meeting, char *text);
LS_CHECKED ls_status rendezvous_share(struct rendezvous_meeting *meeting, ls_status mine,
				      const char *reason, const void *card, void *cards, char *text);
/* rendezvous_hear likewise. */
LS_CHECKED ls_status rendezvous_listen_to(struct rendezvous_meeting *meeting, bool *over,
					  char *text);
/* Prints `text` as the message that belongs to `status`. */
void rendezvous_say(ls_status status, const char *text);

#endif
