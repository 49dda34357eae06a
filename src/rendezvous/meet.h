/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of this room share and other rooms do not see: sockets, words, the client, and the
 * parts of the server that rank 0 needs when it serves. A `text` is always RENDEZVOUS_TEXT_BYTES
 * long. */
#ifndef RENDEZVOUS_MEET_H
#define RENDEZVOUS_MEET_H

#include <sys/socket.h>

#include "rendezvous/rendezvous.h"
#include "rendezvous/wire.h"

enum {
	RENDEZVOUS_PLACE_BYTES = RENDEZVOUS_ADDRESS_BYTES * 2 + 16,
	/* A failed server stays for those who are about to come: until nobody came for QUIET, and
	 * at most LINGER. */
	RENDEZVOUS_QUIET_MS = 1000,
	RENDEZVOUS_LINGER_MS = 10000,
	/* How long past its deadline a welcomed rank awaits the verdict. */
	RENDEZVOUS_GRACE_MS = 1000,
};

/* ---- text.c ---- */

/* Appends, and cuts what does not fit. */
void rendezvous_text_add(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "tcp:127.0.0.1:29500" or "unix:NAME". */
void rendezvous_place_name(const struct rendezvous_place *place, char out[RENDEZVOUS_PLACE_BYTES]);
/* Who holds the rendezvous: "rank 0 (pid 7)" or "the launcher (pid 7)". */
void rendezvous_text_holder(char *text, int rank, int pid);
/* Appends the i < size of which in[i] == value: "0, 2-5, 9". */
void rendezvous_text_ranks(char *text, const bool *in, int size, bool value);
/* True if `place` can be met at; an address may be missing only for a server. */
bool rendezvous_place_is_valid(const struct rendezvous_place *place, bool server);

/* ---- socket.c: all descriptors are non-blocking and close on exec ---- */

/* *bound = place, with the address or port that was chosen. LS_PORT_TAKEN, LS_SYSTEM with a
 * text. */
LS_CHECKED ls_status rendezvous_listen(const struct rendezvous_place *place,
				       struct rendezvous_place *bound, int *listen_fd, char *text);
/* Begins to connect: 0, or an errno; EINPROGRESS comes with a descriptor that becomes writable. */
int rendezvous_dial(const struct rendezvous_place *place, int *fd);
/* How a connection that was in progress ended: 0 or an errno. Port numbers come round: a socket
 * that reached itself counts as ECONNREFUSED. */
int rendezvous_dialled(const struct rendezvous_place *place, int fd);
/* As recvmsg without waiting; closes all descriptors that come along but the first, which goes to
 * *passed if that is -1. *passed is never touched on TCP. */
ssize_t rendezvous_receive(int fd, void *to, size_t bytes, int *passed);
/* As send without waiting, and without SIGPIPE. passed: a descriptor to send along, -1: none. */
ssize_t rendezvous_send(int fd, const void *from, size_t bytes, int passed);
/* Closes *fd if it is one, and forgets it. */
void rendezvous_close_fd(int *fd);

/* ---- peer.c ---- */

enum rendezvous_peer {
	RENDEZVOUS_PEER_KNOWN,  /* *out holds its user; its pid if that can be known, else 0 */
	RENDEZVOUS_PEER_GONE,   /* the connection has no other end any more */
	RENDEZVOUS_PEER_HIDDEN, /* TCP, and this system does not say whose a socket is */
};

/* Who is at the other end of a connection, as the kernel says. At the end of a TCP connection that
 * has not yet been accepted there is nobody. Does not block. */
enum rendezvous_peer rendezvous_find_peer(int fd, bool tcp, struct ucred *out);

/* ---- client.c ---- */

struct rendezvous_client {
	const struct rendezvous_place *place;
	const struct rendezvous_self *self;
	struct waiter *waiter;
	uint64_t deadline_ns; /* for the verdict */
	uint64_t silence_ns;  /* for the first word; not after deadline_ns */
	bool once;            /* give up when nobody listens, instead of trying again */
	char *text;           /* why it failed */

	/* Inside, and for the caller to look at afterwards. */
	int fd;
	bool welcomed;               /* what answers is a Lockstep */
	bool checked;                /* it is no other user's */
	bool mute;                   /* what answered last took the connection and said nothing */
	int holder_rank, holder_pid; /* once welcomed */
	uint64_t began_ns;
	size_t got;
	_Alignas(8) unsigned char in[sizeof(struct wire_answer)];
};

/* Meets as a rank that does not serve. The caller fills the first part and zeroes the rest. */
LS_CHECKED ls_status rendezvous_client_meet(struct rendezvous_client *client,
					    struct rendezvous_table *out, int *control);

/* ---- server.c, for rank 0 ---- */

/* As rendezvous_server_open, but the reason goes to `text` and not to standard error. self: the
 * rank that serves, which thereby has come; NULL: a launcher. */
LS_CHECKED ls_status rendezvous_server_start(const struct rendezvous_place *place,
					     const struct rendezvous_self *self,
					     uint64_t deadline_ns, char *text,
					     struct rendezvous_server **out);
/* After a failure: how many processes know of it, or are gone. With world_size of them all do. */
int rendezvous_server_told(const struct rendezvous_server *server);

/* ---- join.c ---- */

/* rendezvous_join without the message on standard error. */
LS_CHECKED ls_status rendezvous_meet(const struct rendezvous_place *place,
				     const struct rendezvous_self *self, struct waiter *waiter,
				     uint64_t deadline_ns, struct rendezvous_table *out,
				     int *control, char *text);
/* Says `text` under the id that belongs to `status`. */
void rendezvous_say(ls_status status, const char *text);

#endif
