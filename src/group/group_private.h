/* SPDX-License-Identifier: BSD-3-Clause
 * What a rank holds while a group is open, and what the files of this room share.
 *
 * struct group_world is everything one rank owns for a whole job: its trace, arena, segment, links, its
 * way of waiting and its watch thread. A group numbers operations on top of it. Today there is one group
 * per world; further groups will share the world. */
#ifndef GROUP_PRIVATE_H
#define GROUP_PRIVATE_H

#include <lockstep/lockstep.h>
#include <pthread.h>

#include "base/settings.h"
#include "base/wait.h"
#include "diagnose/diagnose.h"
#include "engine/engine.h"
#include "memory/memory.h"
#include "rendezvous/rendezvous.h"
#include "trace/trace.h"
#include "transport/transport.h"

enum {
	GROUP_WORLD_ID = 1,
	GROUP_GRACE_MS =
		100, /* how long a report waits for the others to arrive, so as to name them */
	GROUP_CLAIM_MS = 600,   /* after this, whoever works out the cause is held to be stuck */
	GROUP_RETREAT_MS = 250, /* how long a failed call waits for peers to let go of its buffers */
	GROUP_STOPPED_MS = 650, /* how long a wait for a stopped rank lasts before it is reported */
	GROUP_SLICE_MS = 5,
};

/* The thread that sleeps on what no waiting thread can see: the end of peers, and requests to look. */
struct group_watch {
	pthread_t thread;
	bool running;
	_Atomic bool stop;
	int event_fd;               /* poked by waits that last long, and to stop */
	int pid_fds[PLAN_SIZE_MAX]; /* per peer, -1: none (myself, a rank in my process, or gone) */
};

struct group_world {
	struct settings settings;
	uint32_t fork_generation; /* of the process that opened it */
	int rank, size;
	int control_fd; /* to the launcher, or to rank 0; -1: none */
	struct trace trace;
	struct memory memory;
	struct transport transport;
	struct engine engine;
	struct wait_peer peers[PLAN_SIZE_MAX];
	int pids[PLAN_SIZE_MAX];
	struct trace_view views[PLAN_SIZE_MAX]; /* everybody's trace, for diagnosis */
	struct wait_bell early_bell;            /* until the segment is there */
	struct waiter waiter;                   /* of operations */
	struct waiter quiet; /* the same, for waits after a failure: the cause does not end them,
				       * nothing is published, nobody is asked to look */
	struct group_watch watch;
	_Atomic bool explains; /* a thread of mine has begun to work out the cause */
};

struct ls_group {
	struct group_world *world;
	struct trace_group *entry; /* in my trace */
	uint32_t id;
	int rank, size;
	uint32_t timeout_ms;
	/* The collective lane: numbers are given in the order of calls, and served in that order. */
	_Alignas(64) _Atomic uint64_t numbered;
	_Atomic uint64_t served;
	/* Messages to and from each peer, for the records. */
	_Atomic uint64_t sends[PLAN_SIZE_MAX];
	_Atomic uint64_t receives[PLAN_SIZE_MAX];
};

/* ---- api.c ---- */

/* LS_BAD_ARGUMENT, after saying which argument of which call is wrong and what would be right. */
ls_status group_bad(const char *call, const char *argument, long long value, const char *right);

/* ---- submit.c ---- */

/* Runs one operation to its end. `op` carries kind, buffers, count, dtype, reduce, peer; the rest is
 * filled here. `options` are complete (api.c), never NULL. */
ls_status group_submit(ls_group *group, struct engine_op *op, const struct ls_op_options *options,
		       const void *site);
/* LS_OK, or why nothing can be done with this group: a forked child, or its first cause. */
ls_status group_usable(const ls_group *group);

/* ---- cause.c ---- */

/* The published cause, LS_OK if there is none. One load while all is well. */
ls_status group_cause_status(const struct group_world *world);
/* Works out and publishes the first cause, unless somebody else does; returns the cause that stands.
 * Blocks for at most about a second. `collective`: hint->seq numbers a collective, so it waits
 * a moment for others to arrive in it, to tell what each of them called. */
ls_status group_cause_raise(struct group_world *world, const struct diagnose_hint *hint,
			    bool collective);
/* The same for ls_group_abort: does not wait for anybody. */
void group_cause_abort(struct group_world *world, const struct diagnose_hint *hint);
void group_cause_read(const struct group_world *world, struct ls_failure *out);

/* ---- look.c ---- */

/* A snapshot of all ranks, NULL without memory; free() it. */
struct diagnose_job *group_look_collect(const struct group_world *world);
/* Writes the report on `job`, with call sites. */
void group_look_tell(const struct group_world *world, struct diagnose_job *job,
		     const struct diagnose_verdict *verdict, char *text, size_t bytes);
/* Some wait of this rank lasts long: finds out why, unless somebody has just done so. */
void group_look(struct group_world *world);

/* ---- watch.c ---- */

ls_status group_watch_start(struct group_world *world);
void group_watch_stop(struct group_world *world);
void group_watch_init(struct group_watch *watch);

#endif
