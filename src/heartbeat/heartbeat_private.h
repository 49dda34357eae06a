/* SPDX-License-Identifier: BSD-3-Clause
 * The heartbeats of a rank: what the files of this room share. */
#ifndef HEARTBEAT_HEARTBEAT_PRIVATE_H
#define HEARTBEAT_HEARTBEAT_PRIVATE_H

#include <pthread.h>
#include <sys/socket.h>

#include "detector/detector.h"
#include "failure/failure.h"
#include "heartbeat/heartbeat.h"

enum { HEARTBEAT_NAME_BYTES = 64 };

/* How it is known that a host and this one cannot exchange anything; in shared memory. */
enum heartbeat_silence {
	HEARTBEAT_SILENT = 1, /* nobody hears the host */
	HEARTBEAT_LINK_FROM,  /* this host does not hear it, another host does */
	HEARTBEAT_LINK_TO,    /* it does not hear this host, which hears it */
};

struct heartbeat {
	struct world *world;
	pthread_t thread;
	bool running;
	_Atomic bool stop;
	int socket, event_fd;
	/* Constant while the thread runs. */
	int host, hosts;              /* the number of this host; how many */
	int host_of[RANKS_WORLD_MAX]; /* the number of each rank's host */
	char names[DETECTOR_HOSTS_MAX][HEARTBEAT_NAME_BYTES]; /* by number of the host */
	struct sockaddr_storage addresses[RANKS_WORLD_MAX];
	bool is_lowest; /* this rank has the lowest number on this host */
	uint64_t start_ns, job;
	bool has_session;
	struct auth_session session;
	struct transport_agent *shared; /* of this host */
	/* Only the thread uses these. */
	uint64_t lease; /* while this rank is the agent: the word `lease`; else 0 */
	struct detector detector;
	uint64_t acted; /* hosts whose ranks count as lost: a bit for each */
};

/* ---- silence.c ---- */

/* Tells the ranks of this host which hosts this rank, as the agent, does not hear now, and the
 * user the verdicts. False: this rank was stopped and is the agent no more, so it has told nothing.
 * If it is stopped after it has looked, the agent's next call mends what this one stores. */
bool heartbeat_tell(struct heartbeat *heartbeat);
/* Whether all ranks of the host have ended or left the job, as this rank's own connections show. If
 * the host has broken down, those of other ranks may not show it. */
bool heartbeat_has_ended(const struct heartbeat *heartbeat, int host);
/* Fails the groups of this rank that need a host which has been silent for too long. Does not
 * block. */
void heartbeat_act(struct heartbeat *heartbeat, uint64_t now_ns);
/* Call when the thread ends: from now on a rank whose connection is lost counts as ended. */
void heartbeat_act_no_more(struct heartbeat *heartbeat);

#endif
