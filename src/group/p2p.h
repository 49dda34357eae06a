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
 * may be called, the board says that it does not show all threads (unpublished), unless the watch
 * has shown for it what it would wake for:
 *   armed and not shown, or the progress thread drives  ==  counted in unpublished */
#ifndef GROUP_P2P_H
#define GROUP_P2P_H

#include "group_private.h"

/* ---- pending.c ---- */

void group_p2p_init(struct group_world *world);
/* After all groups are closed: ends the progress thread. */
void group_p2p_fini(struct group_world *world);

/* Begins `op` (of the pool, detached, its record open): it takes its place in the order. On failure
 * it has not begun, and is the caller's to drop. It may be over, and given back, when this returns.
 * Errors: LS_OUT_OF_MEMORY. */
ls_status group_p2p_start(struct ls_op *op);
/* Hands out those of a group that are over: after every call of the engine that takes in
 * messages. */
void group_p2p_collect(ls_group *group);
/* Blocks until one of `count` operations is over, or the pause: LS_PENDING; or LS_INTERRUPTED. */
ls_status group_p2p_await(struct ls_op *const *ops, int count, const struct group_pause *pause);
/* Blocks until one is over that another thread of this rank, which waits for nobody, is just going
 * to tell so. */
void group_p2p_await_told(const struct ls_op *op);
/* The same until one has begun, or is over, that another thread has been about to begin. */
void group_p2p_await_begun(const struct ls_op *op);
/* Goes on with all as far as is possible at once, unless somebody else does; for one that is asked
 * for, which fails its group if it can never be over. */
void group_p2p_poll(const struct ls_op *op);
/* How many of a group are not over. */
long group_p2p_pending(ls_group *group);
/* The first of them, held; NULL. */
struct ls_op *group_p2p_first(ls_group *group);
/* Before a group is closed, which has failed if any are pending: ends them. */
void group_p2p_close(ls_group *group);
/* For the watch, when a wait lasts: shows on the board what the progress thread would wake for; or
 * takes it away again. */
void group_p2p_show(struct group_world *world);

/* ---- met.c ---- */

/* Fills what the caller of a receive that is over wants to know. */
void group_p2p_deliver(const struct ls_op *op);

/* The number of a new one in its record: among those to, or from, the same peer or any. */
uint64_t group_p2p_number(ls_group *group, const struct engine_call *call);
/* Tells the caller of a receive what it has met. */
void group_p2p_fill(struct ls_message *out, const struct mail_message *met);
/* Says once for each call site that a receive was safe only because messages were short, which
 * these members have each sent before they received. */
void group_p2p_warn(ls_group *group, uint64_t members, int tag, uint64_t record, const void *site);

/* ---- short.c ---- */

struct group_short {
	ls_group *group;
	const struct engine_call *call; /* checked; to, or from, one peer */
	uint64_t bytes;
	const struct ls_op_options *options;
	const void *site;
	bool blocks;          /* the call that makes it */
	struct ls_op *handle; /* that it is given if it is over at once; NULL: none */
};

/* Fills the two handles. */
void group_short_init(ls_group *group);
/* True: it is over, with LS_OK, and recorded. False: nothing has been done. */
bool group_short_send(const struct group_short *message);
bool group_short_receive(const struct group_short *message);
/* A receive that blocks and whose record has been begun: true, it has come soon, and is over and
 * recorded. */
bool group_short_await(const struct group_short *message, uint64_t index);

/* ---- pool.c ---- */

/* A part of the batch is over, or the call that ends it has been made. */
void group_batch_part_over(struct ls_op *batch, ls_status status);

/* ---- batch.c ---- */

/* The batch of the calling thread, NULL: it is in none. */
struct ls_op *group_batch_find(ls_group *group);
/* The operation, which has not begun, becomes its newest part; and is none after all, as it could
 * not begin. */
void group_batch_join(struct ls_op *batch, struct ls_op *op);
void group_batch_unjoin(struct ls_op *batch, struct ls_op *op, ls_status status);
/* The group has failed: ends all of it. Under the right to drive. */
void group_p2p_end_all(ls_group *group);
/* Setting P2P=serial: begins the next one; true if there was one. Under the right to drive. */
bool group_p2p_begin_next(struct group_world *world);
/* Ends one, cancelled, that it would have begun some time; false if it has, or somebody has ended
 * it. */
bool group_p2p_take_back(struct ls_op *op);
/* Under the list's lock: whether there is one that it would begin. */
bool group_p2p_can_begin(struct group_p2p *p2p) LOCK_REQUIRES(group);

/* ---- turn.c ---- */

/* The part of a batch that stands for it in a wait; else the operation itself. */
const struct ls_op *group_p2p_face(const struct ls_op *op);
/* Setting P2P=serial: whether it waits for its turn. */
bool group_p2p_waits_turn(const struct ls_op *op);
/* That face, or the head if it waits for its turn; with NULL the face in any case. */
const struct ls_op *group_p2p_stand_in(const struct ls_op *op, const struct ls_op *head);
/* Under the list's lock: the first send in it, whether it has begun or not; NULL. */
struct ls_op *group_p2p_first_send(struct group_p2p *p2p) LOCK_REQUIRES(group);

/* ---- drive.c ---- */

enum {
	GROUP_ANY_MAX = 64,    /* handles that one wait is for */
	GROUP_EXTRA_WORDS = 2, /* one is for news, one for collectives */
	/* Of what one wait is for: each has one of its own, or asks a source, or wants room to a
	 * peer; a batch has one of each peer. More than one batch may have more, which are not
	 * shown. */
	GROUP_OWN_WORDS = GROUP_ANY_MAX + 3 * PLAN_SIZE_MAX,
};

void group_words_init(struct group_words *words);
void group_words_fini(struct group_words *words);
/* Makes room for so many; what was there is lost. False without memory: then all is as before. */
bool group_words_grow(struct group_words *words, int count);
/* They are words of this group: its members are whom they wait for. */
void group_words_of(const ls_group *group, struct wait_word *words, int count);

/* What the one who drives waits for, and whom. */
struct group_drive {
	ls_op *const *ops;
	int count;
	/* Setting P2P=serial: the send that has begun, held. All others wait for it, so that it
	 * stands for them in each wait. NULL: there is none, or it is just being begun. */
	struct ls_op *head;
	struct wait_word *words;  /* [word_max + GROUP_EXTRA_WORDS] */
	int word_max, word_count; /* more than word_max: some were left out */
	bool partial;             /* there is no room for them */
	bool more;
	uint64_t news; /* as they were before he looked */
};

/* Goes on with everything as far as possible without waiting; fills words, more and news. Under the
 * right to drive. */
void group_drive_sweep(struct group_world *world, struct group_drive *drive);
/* Of what is waited for, what is of this group; at most GROUP_ANY_MAX. */
int group_drive_own(const struct group_drive *drive, const ls_group *group, struct engine_own *own);
/* That head. The caller lets it go. */
struct ls_op *group_p2p_head(struct group_p2p *p2p);
/* Under the list's lock: one with a callback that can never be over without the members of the set
 * `gone`, *peer as in group_gone_need; NULL: there is none. *again: the progress thread looks again
 * at one that may be such. */
struct ls_op *group_p2p_needing(ls_group *group, uint64_t gone, int *peer, bool *again)
	LOCK_REQUIRES(group);

/* ---- company.c, in_vain.c ---- */

/* Of one that nobody waits for: whether it can never be over. *lone: it may be, by another thread
 * of this rank, so it is asked again. */
bool group_gone_is_lost(const struct ls_op *op, uint64_t gone, int *peer, bool *lone);
/* One that is asked for, or a part of it, has not been over since who is gone went: true, the group
 * has failed, if it never will be. */
bool group_gone_poll(const struct ls_op *op);

/* ---- await.c ---- */

/* Where it is counted how many are over. */
struct transport_area *group_p2p_area(const struct group_world *world);
/* Fills *out so that it waits for that count to reach `value`. */
void group_p2p_over_word(const struct group_world *world, uint64_t value, struct wait_word *out);

/* ---- arm.c; under the right to drive, or with the list's lock as said ---- */

/* Goes on with everything as far as is possible without waiting, unless somebody else does. */
void group_p2p_attend(struct group_world *world);
/* When that has to be done next though nobody calls. */
uint64_t group_p2p_sleep_until(struct group_p2p *p2p);
/* Takes the right to drive; false if somebody has it, or wants it more. */
bool group_p2p_take(struct group_p2p *p2p);
/* The same of one who has asked for it: until he has it nobody else takes it, and who has it gives
 * it up as soon as he has gone on with everything once. */
bool group_p2p_take_over(struct group_p2p *p2p);
/* Whether somebody has it, or has asked for it. */
bool group_p2p_is_driven(struct group_p2p *p2p);
/* Gives it back; the progress thread is armed if it is needed, and called at once if there is
 * `more` to do. */
void group_p2p_leave(struct group_world *world, bool more);
/* Somebody else may drive, and sleep: he looks again, at what has begun, at deadlines and at
 * causes. */
void group_p2p_call_driver(struct group_world *world);
/* There is something new: arms the progress thread, if nobody drives and it has not been. has_work:
 * it can go on, or ends, at once. */
void group_p2p_arm(struct group_world *world, bool has_work);
/* Goes on with everything as far as possible without waiting; for the progress thread. */
bool group_p2p_sweep(struct group_world *world);

#endif
