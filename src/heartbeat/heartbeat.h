/* SPDX-License-Identifier: BSD-3-Clause
 * Heartbeats between the hosts of a job, and what ranks do about hosts that are silent. */
#ifndef HEARTBEAT_HEARTBEAT_H
#define HEARTBEAT_HEARTBEAT_H

#include <stdint.h>

#include "auth/auth.h"
#include "base/ranks.h"
#include "world/world.h"

/* What is known of the ranks of a job on several hosts. */
struct heartbeat_hosts {
	uint64_t job;
	const struct auth_token *token;     /* NULL: heartbeats are not signed */
	int first[RANKS_WORLD_MAX];         /* by rank: the lowest rank of its host */
	const char *names[RANKS_WORLD_MAX]; /* by rank: its host */
	const char *ips[RANKS_WORLD_MAX];   /* by rank: its address */
	uint16_t ports[RANKS_WORLD_MAX];    /* by rank: as heartbeat_open returned it there */
};

/* Opens the socket of this rank's heartbeats. Call heartbeat_close in any case. Errors, with a
 * message: LS_SYSTEM, LS_OUT_OF_MEMORY. */
LS_CHECKED ls_status heartbeat_open(struct world *world, const char *ip, uint16_t *port);
/* Starts the thread of heartbeats. It sends them if this rank is the agent of its host. Otherwise
 * it watches the agent, and takes over if that is stuck. Call once the segments of this host's
 * ranks are mapped and all ranks are connected. Copies what `hosts` points to. Errors, with a
 * message: LS_OUT_OF_MEMORY, LS_SYSTEM. */
LS_CHECKED ls_status heartbeat_start(struct world *world, const struct heartbeat_hosts *hosts);
/* Joins the thread. The last rank of a host to do so tells all other hosts that its host leaves the
 * job. Call before the segments are unmapped. Does nothing if there is no such thread. */
void heartbeat_stop(struct world *world);
/* Closes the socket, and frees all. Does nothing if nothing is open. */
void heartbeat_close(struct world *world);

#endif
