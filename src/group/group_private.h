/* SPDX-License-Identifier: BSD-3-Clause
 * What a rank holds while groups are open, and what the files of this room share.
 *
 * struct group_world is everything one rank owns for a whole job: its trace, arena, segment, links
 * and its watch thread. struct ls_group is one group as one rank sees it: who is in it, its lanes,
 * its engine, its cause. The group of all ranks is one of them; it ends with the world. */
#ifndef GROUP_PRIVATE_H
#define GROUP_PRIVATE_H

#include <lockstep/lockstep.h>
#include <pthread.h>

#include "base/settings.h"
#include "base/wait.h"
#include "diagnose/diagnose.h"
#include "engine/engine.h"
#include "group.h"
#include "memory/memory.h"
#include "rendezvous/rendezvous.h"
#include "trace/trace.h"
#include "transport/transport.h"

enum {
	GROUP_WORLD_ID = TRACE_GROUP_WORLD,
	/* How long a report waits for others, so as to name them; a death is told in 100 ms. */
	GROUP_GRACE_MS = 70,
	GROUP_CLAIM_MS = 600, /* after this, whoever works out the cause is held to be stuck */
	/* how long a failed call waits for peers to let go of its buffers */
	GROUP_RETREAT_MS = 250,
	GROUP_STOPPED_MS = 650, /* how long a wait for a stopped rank lasts before it is reported */
	GROUP_SLICE_MS = 5,
	/* so often a caller looks for signals that were handled before the wait began */
	GROUP_SIGNALS_MS = 50,
	GROUP_WARNED = 16, /* places in the program that are told of what is safe only by chance */
};

/* The thread that sleeps on what no waiting thread can see: peers that end, requests to look. */
struct group_watch {
	pthread_t thread;
	bool running;
	_Atomic bool stop;
	int event_fd; /* poked by waits that last long, and to stop */
	/* per peer, also once it has ended; -1: none (myself, a rank in my process) */
	_Atomic int pid_fds[PLAN_SIZE_MAX];
};

/* One operation, from the call until it is over; then, if it has a handle, until that is freed too.
 * A blocking call has it on its stack. */
struct ls_op {
	struct engine_op engine;
	ls_group *group;
	struct ls_op *next; /* in the lane, among the spare ones, or among all sends and receives */
	struct ls_op *before; /* among all sends and receives */
	uint64_t deadline_ns; /* 0: timeout_ms from its first wait on, as it waits in no queue */
	pthread_t caller;     /* of the lane: who called it */
	uint32_t timeout_ms;
	bool may_leave;     /* it has a time limit of its own */
	_Atomic bool begun; /* it has been handed to the engine */
	bool pooled;        /* not on a stack */
	ls_op_callback *callback;
	void *callback_data;
	_Atomic uint32_t holders; /* the lane, and the user's handle; the last one puts it back */
	/* Of one that somebody waits for who comes back now and then: when the first of these waits
	 * for that word began. */
	_Atomic uint64_t waited_ns;
	uint64_t waited_word; /* of the lane: which word, for the one who drives */
	_Atomic bool told;    /* somebody has been told how it ended */
	/* Of a shared one: how often it was given out, how often somebody has been told, and how
	 * often it was freed. The first may miss some where threads race, the others not: at least
	 * given - freed are not freed; asked >= freed as long as each is asked for before it is
	 * freed. newest: the record for which it was given out last. */
	_Atomic uint64_t given, asked, freed, newest;
	_Atomic uint32_t over; /* 1 + status once it is over; nobody runs it any more */
	uint64_t *counts;      /* of the pool: room for two lists, kept for the next user */
	/* Of sends and receives. */
	struct ls_message *message;               /* of the caller's, to be filled; NULL: none */
	void **block;                             /* where the caller wants the block; NULL: none */
	bool listed, wants_progress, wants_eager; /* see p2p.h; under its lock */
	bool claimed;                             /* under that lock: somebody begins it, or has */
	struct ls_op *batch,
		*next_part; /* it is part of this one, NULL: of none; of a batch: its parts */
	bool is_batch;
	bool shared;            /* the handle of many that are over; nobody's to give back */
	uint32_t batch_tid;     /* of a batch: the thread it belongs to */
	_Atomic uint32_t parts; /* of a batch: parts that are not over, and the batch call itself */
	_Atomic uint32_t worst; /* of a batch: the first status of a part that is not LS_OK */
};

/* The collectives of a group, run one after the other in the order of their numbers by whoever
 * drives: a thread that waits for one of them, else the progress thread.
 *
 * state = numbered << 24 | FAST | under way. A blocking call that finds nothing under way takes
 * number and lane in one exchange, without lock or queue: FAST is set while it runs. All others
 * queue, under the lock.
 *   under way == queued + (FAST ? 1 : 0);  driven and FAST are never both set
 * so whoever leaves the lane and sees others under way wakes the progress thread. */
struct group_lane {
	_Alignas(64) _Atomic uint64_t state;
	struct lock_group lock;
	struct ls_op *head LOCK_GUARDED(group);
	struct ls_op *tail LOCK_GUARDED(group);
	bool driven LOCK_GUARDED(group);
	struct engine_room room; /* of the operation that is run */
	/* What the first one waits for while nobody drives: the progress thread shows it, and
	 * whoever takes the drive hides it, both under the lock. The thread waits for it without
	 * the lock, so its words are copies. */
	struct wait_item unattended;
	struct wait_word words[PLAN_SIZE_MAX];
	_Atomic uint32_t resting; /* threads that wait for the one that drives */
	struct wait_bell told;    /* rung for those, as peers have nothing for them */
	struct waiter beside;     /* of who drives beside the caller */
	struct waiter idle;       /* of those that rest */
};
#define GROUP_LANE_FAST (UINT64_C(1) << 23)
#define GROUP_LANE_PENDING (GROUP_LANE_FAST - 1)
enum { GROUP_LANE_SHIFT = 24 };

/* Operations that are not on a stack, in blocks, so that handles need no allocation once as many
 * have been in flight before. */
enum { GROUP_POOL_OPS = 64, GROUP_POOL_BLOCKS = 1024 };
struct group_pool {
	struct lock_group lock;
	struct ls_op *spare LOCK_GUARDED(group);
	struct ls_op *blocks[GROUP_POOL_BLOCKS] LOCK_GUARDED(group);
	int block_count LOCK_GUARDED(group);
	_Atomic long handles; /* not freed by the user so far */
};

struct group_world;

/* The thread of a rank that goes on with what no caller waits for, collectives as well as sends and
 * receives: see progress.c and attend.c. Made with the first operation that needs it. */
struct group_progress {
	void (*act)(struct group_world *world); /* what it does */
	struct group_progress_thread *threads; /* under the world's lock; the first is the newest */
	_Atomic bool there, stop;
	_Atomic uint32_t tid; /* of the one that it is now; 0: of one that is about to begin */
	_Atomic int state;    /* enum in progress.c: whether a proof has to reckon with it */
	/* groups with collectives that it has been called for, each held */
	ls_group *_Atomic called;
	/* The thread's own: groups whose first collective waits, each held, so that the object is
	 * of no other group. */
	struct group_attended {
		ls_group *groups[TRANSPORT_AREAS];
		int count;
	} attended;
};

/* Room for words to wait for, which grows. */
struct group_words {
	struct wait_word *words; /* few, or on the heap */
	int max;
	struct wait_word few[WAIT_EDGE_MAX];
};

/* See p2p.h. */
struct group_p2p {
	struct lock_group lock;
	struct ls_op *first LOCK_GUARDED(group),
		*last LOCK_GUARDED(group);             /* all that are not over */
	uint64_t next_deadline_ns LOCK_GUARDED(group); /* the earliest of theirs, or earlier */
	uint32_t progress_count LOCK_GUARDED(group), eager_count
		LOCK_GUARDED(group); /* that want the progress thread */
	bool driven LOCK_GUARDED(group), armed LOCK_GUARDED(group), shown LOCK_GUARDED(group);
	bool eager LOCK_GUARDED(group); /* it is armed so */
	/* Threads that ask for the right to drive, as they close a group. Raised before the news,
	 * so that who drives and sleeps learns of it; lowered under the lock when one has it. */
	_Atomic uint32_t wanted;
	uint64_t shown_hash LOCK_GUARDED(group);
	struct group_words to_show LOCK_GUARDED(group);
	struct group_words driving; /* of the one who drives */
	bool on_board; /* the watch shows, or has shown, something for the progress thread */
	bool serial;
	uint64_t asleep_until_ns
		LOCK_GUARDED(group); /* when the progress thread looks at deadlines next */
	/* …at what only threads of this rank may send */
	uint64_t lone_until_ns LOCK_GUARDED(group);
	/* threads that wait for the one that drives, or drive and sleep */
	_Atomic uint32_t resting;
	/* the watch's: how many members were gone, and groups had failed, at its last look */
	uint64_t gone_told;
	_Atomic uint64_t news;    /* raised where the one that drives has to look again */
	ls_group *_Atomic groups; /* that have had some; only who drives takes one out */
};

struct group_world {
	struct settings settings;
	uint32_t fork_generation; /* of the process that opened it */
	int rank, size;
	int cores;         /* on which the ranks of this machine may run, all together */
	int control_fd;    /* to the launcher, or to rank 0; -1: none */
	bool resumes;      /* a signal ends no operation */
	bool keeps_memory; /* blocks that are in use outlive it */
	struct trace trace;
	struct memory memory;
	struct transport transport;
	struct plan_table table;
	_Atomic uint32_t dead[PLAN_SIZE_MAX]; /* set by the watch */
	int pids[PLAN_SIZE_MAX];
	struct trace_view views[PLAN_SIZE_MAX]; /* everybody's trace, for diagnosis */
	struct wait_bell early_bell;            /* until the segment is there */
	/* Of no group: while the world is opened, and then what groups make theirs of. */
	struct waiter waiter;
	struct group_watch watch;
	struct group_progress progress;
	struct group_p2p p2p;
	_Atomic uint64_t registered_again; /* of ls_memory_stats */
	_Atomic uint64_t failures; /* groups that this rank knows to have failed, closed or not */
	/* Every group object is in one of these. An object keeps its area for ever. */
	struct lock_group lock;
	struct ls_group *open LOCK_GUARDED(group);   /* newest first */
	struct ls_group *closed LOCK_GUARDED(group); /* a member may still be in it */
	struct ls_group *spare LOCK_GUARDED(group);  /* area and all else as new */
	uint32_t object_count LOCK_GUARDED(group);
	uint32_t number LOCK_GUARDED(group);    /* of the last id that this rank has given */
	bool numbers_again LOCK_GUARDED(group); /* all have been used once */
};

struct ls_group {
	struct group_world *world;
	struct ls_group *next;
	uint16_t area;          /* in my segment; the entry of my trace has the same number */
	uint8_t memory_members; /* of how many members the area has memory for the channels */
	bool memory_reports;
	/* A watch looks at it, so it must stay as it is, though it may be closed. */
	_Atomic uint32_t holders;
	/* What follows is new with each group. */
	struct trace_group *entry; /* in my trace */
	uint32_t id, parent;       /* parent: the id of the group it was made from, 0: none */
	int rank, size;
	uint32_t timeout_ms;
	_Atomic bool explains;    /* a thread of mine has begun to work out the cause */
	_Atomic bool has_failed;  /* it is counted in the world's failures */
	uint64_t failures_before; /* these when it was opened */
	uint64_t site; /* who made it: a call site, and a label's id, as in struct trace_record */
	uint32_t label;
	struct transport_team team;
	struct engine engine;
	struct wait_peer peers[PLAN_SIZE_MAX]; /* by world rank */
	/* Members that are gone, a set that only grows, and 1 + how many departures had been told
	 * of when it was looked who they are. */
	_Atomic uint64_t gone, gone_seen;
	struct waiter waiter;   /* of operations */
	struct waiter quiet;    /* the same, for waits after a failure: the cause does not end them,
				       * nothing is published, nobody is asked to look */
	ls_group *next_called;  /* in progress.called */
	_Atomic bool is_called; /* it is there */
	_Atomic bool is_attended; /* the progress thread holds it */
	struct group_pool pool;
	ls_group *next_p2p;    /* in p2p.groups */
	_Atomic bool has_p2p;  /* it is there */
	struct ls_op *batches; /* that have not been ended; under the pool's lock */
	_Atomic uint32_t batch_count;
	_Atomic uint64_t any_receives;
	_Atomic uint64_t warned[GROUP_WARNED]; /* call sites, see group_first_time */
	/* Handles of all short messages that were over when their calls returned. */
	struct ls_op sent, received;
	/* Messages to and from each peer, for the records. */
	_Atomic uint64_t sends[PLAN_SIZE_MAX];
	_Atomic uint64_t receives[PLAN_SIZE_MAX];
	struct group_lane lane;
};

/* ---- api.c ---- */

/* "Rank 1 closed the group WHY", with which it fails for all who are still in it, if it has not
 * failed before; then the launcher learns of it, too. */
void group_close_failing(ls_group *group, const char *why);

/* LS_OK, or why nothing can be done with this group: NULL, a forked child, or its first cause. It
 * looks whether that has come about beside the caller. */
ls_status group_check(const char *call, ls_group *group);
/* How a call begins: its options over the defaults, checked, and then the group. A handle that was
 * asked for is NULL if this fails. */
ls_status group_begin(const char *call, ls_group *group, const struct ls_op_options *given,
		      struct ls_op_options *out);

/* ---- collective.c ---- */

/* All-gather of `bytes` from each, as part of the call that `kind` stands for. */
ls_status group_tell(ls_group *group, enum trace_kind kind, const void *mine, void *all,
		     size_t bytes, const void *site);

/* ---- check.c ---- */

/* Also sums up lists of counts, and drops buffers that this rank does not need. Errors:
 * LS_BAD_ARGUMENT, LS_UNSUPPORTED, with a message. */
ls_status group_check_collective(const char *call, const ls_group *group, struct engine_call *op);

/* ---- submit.c: one operation ---- */

/* When a wait comes back though what it waits for is not over. */
struct group_pause {
	uint64_t at_ns;    /* 0: at once; CLOCK_NEVER: only with the end */
	bool returns;      /* it is taken up again in a moment, so nothing can happen in between */
	bool looks;        /* with at_ns 0: what can no longer succeed, or is late, fails */
	uint64_t since_ns; /* when a wait was begun that is taken up again; 0: now */
};
extern const struct group_pause group_no_pause;

/* Whether somebody who waits for it may do something else before it is over. */
static inline bool group_pause_leaves(const struct group_pause *pause, const struct ls_op *op)
{
	return op->may_leave || (pause->at_ns < op->deadline_ns && !pause->returns);
}

/* Everything of an operation that nobody else sets; the rest stays as it is, as clearing it would
 * cost more than a short collective. */
void group_op_prepare(struct ls_op *op, ls_group *group, const struct engine_call *call);
/* Makes op ready: deadline, trace record. op->engine.seq and what the caller wants are set. */
void group_op_open(struct ls_op *op, const struct ls_op_options *options, const void *site);
/* What the trace says of a call. label: NULL for none. */
struct trace_begin group_record(ls_group *group, const struct engine_call *call, uint64_t seq,
				const char *label, const void *site);
/* Goes on with it: hands it to the engine if that has not been done, advances, waits. True when its
 * status is in *status and no peer touches its buffers any more; false at the pause, when another
 * thread may go on with it. */
bool group_op_run(struct ls_op *op, struct engine_room *room, struct waiter *waiter,
		  const struct group_pause *pause, ls_status *status);
/* The same for one that is detached, once the engine is done with it (op->engine.status), or for
 * `reason`: returns the status that it ends with, and no peer touches its buffers any more. */
ls_status group_op_settle(struct ls_op *op, ls_status reason, int peer);

/* ---- fail.c ---- */

/* Turns `reason`, seen on `peer`, into the group's cause; returns the cause that stands. */
ls_status group_op_fail(const struct ls_op *op, ls_status reason, int peer, uint64_t needs);
/* Turns that it needs one of `gone`, or `peer` if not -1, into the group's cause; returns the cause
 * that stands. */
ls_status group_gone_fail(const struct ls_op *op, uint64_t gone, int peer);

/* ---- gone.c ---- */

/* Members, by their rank in the group, that are dead or have left: two loads while nobody goes. */
uint64_t group_gone_members(struct ls_group *group);
/* The same for one who has seen it himself, a moment before those who go have told everybody. */
uint64_t group_gone_look(struct ls_group *group);

/* ---- company.c ---- */

/* Whether it is over without those in `gone`. *peer: whom it needs, -1: any of them. */
enum engine_need group_gone_need(const struct ls_op *op, uint64_t gone, int *peer);

/* A receive or probe of any source when all other members are gone: it goes on as long as another
 * thread of this rank that has called Lockstep, or runs, may still send it. */
struct group_lone {
	/* after which it is asked again; 0: others are there, or it does not go on */
	uint64_t slice_ns;
	/* Of a call that blocks: how its wait for the others ended. */
	ls_status status;
	int peer;
};
/* Whether it does, or what it waits for has come, once group_gone_need says SELF. */
bool group_lone_goes_on(const struct ls_op *op, uint64_t gone, struct group_lone *lone);
uint64_t group_lone_until(const struct group_lone *lone, uint64_t until_ns);

/* ---- in_vain.c ---- */

/* A probe has found nothing: LS_PENDING, or why there never will be. `gone` as it was before. */
ls_status group_gone_probe(ls_group *group, const struct engine_call *call, uint64_t gone,
			   const struct ls_op_options *options, const void *site);
/* A public call: fails the group if it has a send beside the caller that nobody will ever take. */
void group_gone_tell(ls_group *group);

/* ---- pool.c: the life of an operation ---- */

/* An operation of the pool, zeroed, held by the lane and, with `handle`, by the user. NULL after a
 * message. */
struct ls_op *group_op_new(ls_group *group, bool handle);
/* Gives one back that was never queued. */
void group_op_drop(struct ls_op *op);
/* The lane is done with it; `status` is how it ended. Tells whoever wants to know. */
void group_op_over(struct ls_op *op, ls_status status);
/* The same without the lane: callback, status, and one holder less. */
void group_op_tell(struct ls_op *op, ls_status status);
/* Whether it is a send, a receive or a batch of them, and not in the lane. */
static inline bool group_op_is_p2p(const struct ls_op *op)
{
	return op->is_batch || !engine_is_collective(op->engine.call.kind);
}
static inline bool group_op_is_over(const struct ls_op *op)
{
	return atomic_load_explicit(&op->over, memory_order_acquire) != 0;
}
/* The user's handle is given back. */
void group_op_forget(struct ls_op *op);
/* When waiting for it began, for waits that are taken up again: now, if nobody has asked before. */
uint64_t group_op_since(struct ls_op *op);
/* One holder more, and less. */
void group_op_hold(struct ls_op *op);
void group_op_let_go(struct ls_op *op);
void group_pool_init(struct group_pool *pool);
/* Says how many handles have not been freed, and frees them. */
void group_pool_fini(struct group_pool *pool);

/* ---- op.c: what the user asks of a handle ---- */

/* Of a wait with a limit of the caller's own, in milliseconds; 0: a moment in which Python, say,
 * can look for signals, in groups that want it. */
struct group_pause group_op_pause(struct ls_op *op, uint32_t timeout_ms);
/* Waits for *op, of the user, as ls_wait would: LS_PENDING, or its status, and then *op has been
 * given back and is NULL. */
ls_status group_op_await(struct ls_op **op);
/* The same, and signals do not end it. */
ls_status group_op_finish(ls_op **op);

/* ---- p2p.c ---- */

/* A send or a receive, NULL: none, is given back without having happened: LS_CANCELLED; or, too
 * late for that, as by group_op_finish. */
ls_status group_op_take_back(ls_op **op);

/* ---- make.c: group objects ---- */

/* Who is in a group, as all its members know it. */
struct group_making {
	uint32_t id, parent, timeout_ms, label;
	uint64_t site;
	int rank, size;
	uint8_t members[PLAN_SIZE_MAX]; /* world ranks */
	uint16_t areas[PLAN_SIZE_MAX];  /* that each has taken for it */
	uint32_t stays[PLAN_SIZE_MAX];  /* `left` of each before that */
};

/* An object with an area that nobody uses; NULL, after a message, if there are too many, or no
 * memory. */
struct ls_group *group_take(struct group_world *world);
/* Gives one back that was never filled, and that nobody else knows of. */
void group_give(struct ls_group *group);
/* One that was never filled: whoever was offered it sees by `left` of its area that it is offered
 * no more. */
void group_retract(struct ls_group *group);
/* One that was never filled, but that others may take for a member's: they learn that it has left,
 * and it is not used again. */
void group_burn(struct ls_group *group);
/* My own area, also of an object that is not filled. */
struct transport_area *group_own_area(const struct ls_group *group);
/* Memory for the area, see transport_area_grow. */
bool group_has_memory(const struct ls_group *group, int members, bool reports);
LS_CHECKED ls_status group_add_memory(struct ls_group *group, int members, bool reports);
/* Opens it. */
void group_fill(struct ls_group *group, const struct group_making *making);
/* Ends its operations, tells the others, and lets the object be used again once all have left. */
void group_leave(struct ls_group *group);
/* Closes groups that are open, but the one of all ranks. */
void group_leave_all(struct group_world *world);
/* Frees all objects; no thread uses them any more. */
void group_free_all(struct group_world *world);
/* ---- cause.c ---- */

/* Where a group's cause is published, whether this rank is a member or not. */
struct group_place {
	uint32_t id;
	int owner; /* world rank of the first member */
	struct transport_area *head;
};

/* The published cause, LS_OK if there is none. One load while all is well. */
ls_status group_cause_status(const struct ls_group *group);
/* Works out and publishes the first cause, unless somebody else does; returns the cause that
 * stands. Blocks for at most about a second. `collective`: hint->seq numbers a collective, so it
 * waits a moment for others to arrive in it, to tell what each of them called. */
ls_status group_cause_raise(struct ls_group *group, const struct diagnose_hint *hint,
			    bool collective);
/* The same of a cause that closes several groups, one of them `group`. */
void group_cause_raise_all(struct ls_group *group, const struct group_place *places, int count,
			   const struct diagnose_hint *hint);
/* The same for ls_group_abort: does not wait for anybody. */
void group_cause_abort(struct ls_group *group, const struct diagnose_hint *hint);
void group_cause_read(const struct ls_group *group, struct ls_failure *out);
/* A new group: nobody has claimed or published anything. */
void group_cause_begin(const struct ls_group *group);
struct group_place group_place_of(const struct ls_group *group);

/* ---- sources.c ---- */

/* A snapshot of all ranks, NULL without memory; free() it. `closing`: groups that this thread, no
 * other one, is to close. */
struct diagnose_job *group_sources_collect(const struct group_world *world,
					   const struct diagnose_closing *closing);
/* Adds what rank `rank` of the world recorded under the index with these lowest bits; that index,
 * 0: nothing. */
uint64_t group_sources_add_record(const struct group_world *world, int rank, uint32_t low,
				  struct diagnose_job *job);
/* Writes the report on `job`, with call sites. */
void group_sources_tell(const struct group_world *world, struct diagnose_job *job,
			const struct diagnose_verdict *verdict, char *text, size_t bytes);

/* ---- look.c ---- */

/* Some wait of this rank lasts long: finds out why, group by group, unless that was just done. */
void group_look(struct group_world *world);

/* ---- watch.c ---- */

ls_status group_watch_start(struct group_world *world);
void group_watch_stop(struct group_world *world);
void group_watch_init(struct group_watch *watch);

#endif
