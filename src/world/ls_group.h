/* SPDX-License-Identifier: BSD-3-Clause
 * One group as one rank sees it: members, lane, engine, mailbox, operations. The world group is one
 * of them, and ends with the world. */
#ifndef WORLD_LS_GROUP_H
#define WORLD_LS_GROUP_H

#include "base/ranks.h"
#include "engine/engine.h"
#include "mailbox/mailbox.h"
#include "world/ls_request.h"
#include "world/world.h"

enum {
	WORLD_GROUP_ID = TRACE_GROUP_WORLD,
	/* call sites that were warned: of a receive that is safe only because messages are short,
	 * or of a handle that was freed before its status was read */
	WORLD_WARNED = 16,
};

/* The collectives of a group, which run one after the other in the order of their numbers. One
 * thread at a time makes progress on the lane, and runs them: a thread that waits for one of them,
 * else the progress thread.
 *
 * state = numbered << 24 | TAKEN | under way. A blocking call that finds nothing under way takes
 * number and lane in one exchange, without lock or queue: TAKEN is set while it runs. All others
 * queue, under the lock. `state` has the lower 40 bits of a number; the others follow from
 * `recent_number`, which differs from the number by far less than 2^39.
 *   under way == queued + (TAKEN ? 1 : 0);  progressing and TAKEN are never both set
 * So a thread that releases the lane, and sees others under way, wakes the progress thread. */
struct world_lane {
	_Alignas(64) _Atomic uint64_t state;
	_Atomic uint64_t recent_number; /* a number that a call has taken lately */
	struct lock_rank lock;
	struct ls_request *head LOCK_GUARDED(rank);
	struct ls_request *tail LOCK_GUARDED(rank);
	bool progressing LOCK_GUARDED(rank); /* a thread makes progress on the queue */
	struct op_workspace workspace;       /* of the running operation */
	/* What the first operation waits for while no thread makes progress. The progress thread
	 * publishes it; a thread that begins to make progress hides it; both under the lock. The
	 * progress thread waits for it without the lock, so its words are copies. */
	struct wait_item unattended;
	struct wait_word words[RANKS_WORLD_MAX];
	_Atomic uint32_t followers;      /* threads that wait for the one that makes progress */
	struct wait_bell followers_bell; /* of these threads: peers have no news for them */
	struct waiter for_others;        /* of a thread that makes progress for other callers */
	struct waiter follower_waiter;   /* of threads that wait for that thread */
};
#define WORLD_LANE_TAKEN (UINT64_C(1) << 23)
#define WORLD_LANE_COUNT_MASK (WORLD_LANE_TAKEN - 1)
enum { WORLD_LANE_SHIFT = 24 };

struct ls_group {
	struct world *world;
	struct ls_group *next;
	uint16_t area; /* number of the area in my segment, and of the entry in my trace */
	uint16_t memory_members; /* the number of members for whose channels the area has memory */
	bool memory_reports;
	/* How many threads, such as a watch, use the group outside of a call. Until it is 0 the
	 * object is not reused, even if the group is closed. */
	_Atomic uint32_t holders;
	/* fork_generation of the process that has opened the group; FORK_NEVER: it is not open. */
	uint32_t fork_generation;
	/* All fields below are set again for each group. */
	struct trace_group *trace_entry; /* in my trace */
	uint32_t id, parent;             /* parent: the id of the group it was made from, 0: none */
	int rank, size;
	uint32_t timeout_ms;
	_Atomic bool is_closing;    /* a thread is in ls_group_close */
	_Atomic bool cause_claimed; /* a thread of this rank works out the cause */
	/* After a failure, for all operations of the group: when this rank revokes the access of
	 * peers to the buffers, if the peers have not given it up by then; 0: no operation has
	 * asked yet. */
	_Atomic uint64_t revoke_at_ns;
	_Atomic bool has_failed;  /* world->failures counts its failure */
	uint64_t failures_before; /* world->failures when the group was opened */
	/* Where the group was made: a call site, and a label's id, as in struct trace_record. */
	uint64_t site;
	uint32_t label;
	struct transport_team team;
	struct engine engine;                    /* for collectives */
	struct mailbox *mailbox;                 /* for messages */
	struct wait_peer peers[RANKS_WORLD_MAX]; /* by world rank */
	/* The members that are dead or have left, a set that only grows. */
	_Atomic uint64_t gone[RANKS_WORLD_WORDS];
	_Atomic bool any_gone; /* `gone` is not empty; stored after `gone` */
	/* 1 + the value of `departures` before the gone members were last looked up. */
	_Atomic uint64_t gone_seen;
	struct waiter waiter; /* of operations */
	/* For waits that end soon whatever happens, such as those after a failure: the cause does
	 * not end them, nothing is published, and nobody is asked to look. */
	struct waiter quiet;
	ls_group *next_requesting;      /* in progress.requesting */
	_Atomic bool requests_progress; /* the group is in that list */
	_Atomic bool is_attended;       /* the progress thread holds it */
	struct world_pool pool;
	ls_group *next_p2p;         /* in p2p.groups */
	_Atomic bool has_p2p;       /* the group is in that list */
	struct ls_request *batches; /* those that have not ended; under the pool's lock */
	_Atomic uint32_t batch_count;
	_Atomic uint64_t passes;               /* of group_note_pass */
	_Atomic uint64_t warned[WORLD_WARNED]; /* call sites, see progress_first_time */
	/* The handles of all short messages that were complete when their calls returned. */
	struct ls_request short_send, short_recv;
	struct world_lane lane;
};

#endif
