/* SPDX-License-Identifier: BSD-3-Clause
 * The connections to the root that belong to no rank yet. For files of this room. */
#ifndef TRANSPORT_DOOR_H
#define TRANSPORT_DOOR_H

#include "transport/handshake.h"

enum { DOOR_MAX = 64 }; /* the stranger silent for longest makes room for the next */

/* Zero but for the first two at first. */
struct transport_door {
	const struct transport_exchange *exchange;
	const struct transport_handshake_ranks *ranks;
	bool warned; /* of strangers */
	int count;
	int fds[DOOR_MAX]; /* in the order of their coming */
};

/* Accepts a connection that waits: 0; EAGAIN: none waits any more; or another errno. A process of
 * another user is turned away. */
int transport_door_accept(struct transport_door *door);
/* The connection belongs to a rank now, or is closed. */
void transport_door_forget(struct transport_door *door, int index);
/* Closes the connection. Reports the first stranger. A process of a rank is none, whatever it has
 * said: if it has ended, the root notices that otherwise. */
void transport_door_turn_away(struct transport_door *door, int index, const char *why);

#endif
