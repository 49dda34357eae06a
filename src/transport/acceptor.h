/* SPDX-License-Identifier: BSD-3-Clause
 * The connections to the root that belong to no rank yet. For files of this room. */
#ifndef TRANSPORT_ACCEPTOR_H
#define TRANSPORT_ACCEPTOR_H

#include "transport/handshake.h"

enum { ACCEPTOR_MAX = 64 }; /* the stranger silent for longest makes room for the next */

/* Zero but for the first two at first. */
struct transport_acceptor {
	const struct transport_exchange *exchange;
	const struct transport_handshake_ranks *ranks;
	bool warned; /* of strangers */
	int count;
	int fds[ACCEPTOR_MAX]; /* in the order of their coming */
};

/* Accepts a connection that waits: 0; EAGAIN: none waits any more; or another errno. A process of
 * another user is turned away. */
int transport_acceptor_accept(struct transport_acceptor *acceptor);
/* The connection belongs to a rank now, or is closed. */
void transport_acceptor_forget(struct transport_acceptor *acceptor, int index);
/* Closes the connection. Reports the first stranger. A process of a rank is none, whatever it has
 * said: if it has ended, the root notices that otherwise. */
void transport_acceptor_refuse(struct transport_acceptor *acceptor, int index, const char *why);

#endif
