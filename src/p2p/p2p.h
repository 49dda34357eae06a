/* SPDX-License-Identifier: BSD-3-Clause
 * Sends and receives that run beside the caller, of all groups of a rank. Any number of them go on
 * at once; what they need of this rank's processors is done by one thread at a time, which drives:
 *
 *   - a thread that waits for one of them drives all until that one is over;
 *   - else the rank's progress thread, which sleeps until a peer summons it (base/wait: wait_arm),
 *     if one of them would hold up a peer, as a long receive or a send that waits for room, or has
 *     a callback. So a program that calls and then waits never pays for it.
 *
 * A proof of deadlock needs to know what the rank may still do by itself. While the progress thread
 * may be called, the wait table says that it does not show all threads (unpublished), unless the
 * watch has shown for it what it would wake for:
 *   armed and not shown, or the progress thread drives  ==  counted in unpublished */
#ifndef P2P_P2P_H
#define P2P_P2P_H

#include "progress/progress.h"

/* ---- pending.c ---- */

void p2p_init(struct world *world);
/* After all groups are closed, and the progress thread has ended. */
void p2p_fini(struct world *world);

/* Begins `op` (of the pool, detached, its record open): it takes its place in the order. On failure
 * it has not begun, and is the caller's to drop. It may be over, and given back, when this returns.
 * Errors: LS_OUT_OF_MEMORY. */
ls_status p2p_start(struct ls_op *op);
/* Hands out those of a group that are over: after every call of the engine that takes in
 * messages. */
void p2p_collect(ls_group *group);
/* Blocks until one of `count` operations is over, or the pause: LS_PENDING; or LS_INTERRUPTED. */
ls_status p2p_await(struct ls_op *const *ops, int count, const struct progress_pause *pause);
/* Blocks until one is over that another thread of this rank, which waits for nobody, is just going
 * to tell so. */
void p2p_await_told(const struct ls_op *op);
/* The same until one has begun, or is over, that another thread has been about to begin. */
void p2p_await_begun(const struct ls_op *op);
/* Goes on with all as far as is possible at once, unless somebody else does; for one that is asked
 * for, which fails its group if it can never be over. */
void p2p_poll(const struct ls_op *op);
/* How many of a group are not over. */
long p2p_pending(ls_group *group);
/* The first of them, held; NULL. */
struct ls_op *p2p_first(ls_group *group);
/* Before a group is closed, which has failed if any are pending: ends them. */
void p2p_close(ls_group *group);
/* For the watch, when a wait lasts: shows in the wait table what the progress thread would wake
 * for; or takes it away again. */
void p2p_show(struct world *world);

/* ---- matched.c ---- */

/* Fills what the caller of a receive that is over wants to know. */
void p2p_deliver(const struct ls_op *op);

/* The number of a new one in its record: among those to, or from, the same peer or any. */
uint64_t p2p_number(ls_group *group, const struct engine_call *call);
/* Tells the caller of a receive what it has matched. */
void p2p_fill(struct ls_message *out, const struct mail_message *matched);
/* Says once for each call site that a receive was safe only because messages were short, which
 * these members have each sent before they received. */
void p2p_warn(ls_group *group, uint64_t members, int tag, uint64_t record, const void *site);

/* ---- short.c ---- */

struct p2p_short {
	ls_group *group;
	const struct engine_call *call; /* checked; to, or from, one peer */
	uint64_t bytes;
	const struct ls_op_options *options;
	const void *site;
	bool blocks;          /* the call that makes it */
	struct ls_op *handle; /* that it is given if it is over at once; NULL: none */
};

/* Fills the two handles. */
void p2p_short_init(ls_group *group);
/* True: it is over, with LS_OK, and recorded. False: nothing has been done. */
bool p2p_short_send(const struct p2p_short *message);
bool p2p_short_receive(const struct p2p_short *message);
/* A receive that blocks and whose record has been begun: true, it has come soon, and is over and
 * recorded. */
bool p2p_short_await(const struct p2p_short *message, uint64_t index);

/* ---- pending.c, for who drives ---- */

/* The group has failed: ends all of it. Under the right to drive. */
void p2p_end_all(ls_group *group);
/* Setting P2P=serial: begins the next one; true if there was one. Under the right to drive. */
bool p2p_begin_next(struct world *world);
/* Ends one, cancelled, that it would have begun some time; false if it has, or somebody has ended
 * it. */
bool p2p_take_back(struct ls_op *op);
/* Under the list's lock: whether there is one that it would begin. */
bool p2p_can_begin(struct world_p2p *p2p) LOCK_REQUIRES(group);

/* ---- drive.c ---- */

enum {
	P2P_ANY_MAX = 64,    /* handles that one wait is for */
	P2P_EXTRA_WORDS = 2, /* one is for news, one for collectives */
	/* Of what one wait is for: each has one of its own, or asks a source, or wants room to a
	 * peer; a batch has one of each peer. More than one batch may have more, which are not
	 * shown. */
	P2P_OWN_WORDS = P2P_ANY_MAX + 3 * PLAN_SIZE_MAX,
};

void p2p_words_init(struct world_words *words);
void p2p_words_fini(struct world_words *words);
/* Makes room for so many; what was there is lost. False without memory: then all is as before. */
bool p2p_words_grow(struct world_words *words, int count);
/* They are words of this group: its members are whom they wait for. */
void p2p_words_of(const ls_group *group, struct wait_word *words, int count);

/* What the one who drives waits for, and whom. */
struct p2p_drive {
	ls_op *const *ops;
	int count;
	/* Setting P2P=serial: the send that has begun, held. All others wait for it, so that it
	 * stands for them in each wait. NULL: there is none, or it is just being begun. */
	struct ls_op *head;
	struct wait_word *words;  /* [word_max + P2P_EXTRA_WORDS] */
	int word_max, word_count; /* more than word_max: some were left out */
	bool partial;             /* there is no room for them */
	bool more;
	uint64_t news; /* as they were before he looked */
};

/* Goes on with everything as far as possible without waiting; fills words, more and news. Under the
 * right to drive. */
void p2p_drive_sweep(struct world *world, struct p2p_drive *drive);
/* Of what is waited for, what is of this group; at most P2P_ANY_MAX. */
int p2p_drive_own(const struct p2p_drive *drive, const ls_group *group, struct engine_own *own);
/* That head. The caller lets it go. */
struct ls_op *p2p_head(struct world_p2p *p2p);
/* Under the list's lock: one with a callback that can never be over without the members of the set
 * `gone`, *peer as in progress_op_need; NULL: there is none. *again: the progress thread looks
 * again at one that may be such. */
struct ls_op *p2p_needing(ls_group *group, uint64_t gone, int *peer, bool *again)
	LOCK_REQUIRES(group);

/* ---- in_vain.c ---- */

/* One that is asked for, or a part of it, has not been over since who is gone went: true, the group
 * has failed, if it never will be. */
bool p2p_poll_gone(const struct ls_op *op);

/* A probe has found nothing: LS_PENDING, or why there never will be. `gone` as it was before. */
ls_status p2p_probe_gone(ls_group *group, const struct engine_call *call, uint64_t gone,
			 const struct ls_op_options *options, const void *site);
/* A public call: fails the group if it has a send beside the caller that nobody will ever take. */
void p2p_tell_gone(ls_group *group);

/* ---- await.c ---- */

/* Where it is counted how many are over. */
struct transport_area *p2p_area(const struct world *world);
/* Fills *out so that it waits for that count to reach `value`. */
void p2p_over_word(const struct world *world, uint64_t value, struct wait_word *out);

/* ---- arm.c; under the right to drive, or with the list's lock as said ---- */

/* Goes on with everything as far as is possible without waiting, unless somebody else does. */
void p2p_attend(struct world *world);
/* When that has to be done next though nobody calls. */
uint64_t p2p_sleep_until(struct world_p2p *p2p);
/* Takes the right to drive; false if somebody has it, or wants it more. */
bool p2p_take(struct world_p2p *p2p);
/* The same of one who has asked for it: until he has it nobody else takes it, and who has it gives
 * it up as soon as he has gone on with everything once. */
bool p2p_take_over(struct world_p2p *p2p);
/* Whether somebody has it, or has asked for it. */
bool p2p_is_driven(struct world_p2p *p2p);
/* Gives it back; the progress thread is armed if it is needed, and called at once if there is
 * `more` to do. */
void p2p_leave(struct world *world, bool more);
/* Somebody else may drive, and sleep: he looks again, at what has begun, at deadlines and at
 * causes. */
void p2p_call_driver(struct world *world);
/* There is something new: arms the progress thread, if nobody drives and it has not been. has_work:
 * it can go on, or ends, at once. */
void p2p_arm(struct world *world, bool has_work);
/* Goes on with everything as far as possible without waiting; for the progress thread. */
bool p2p_sweep(struct world *world);

#endif
