/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of this room share: the list of operations, a pass of progress on all of them, who
 * makes it, and how threads wake each other. */
#ifndef P2P_PRIVATE_H
#define P2P_PRIVATE_H

#include "p2p/p2p.h"

/* ---- pending.c ---- */

/* The first part of p2p_start: the operation has begun, or is in the list behind earlier sends. */
ls_status p2p_begin(struct ls_request *op);

/* ---- wakeups.c ---- */

/* Fills *out to wait until there are more than `seen` of them. */
void p2p_wakeups_word(const struct world *world, uint64_t seen, struct wait_word *out);
/* Wakes the threads that wait for the one that makes progress, as one of them may have to take its
 * place; and that thread itself, as it may have to look again. */
void p2p_wake_all(struct world *world);
/* The same, if there is such a thread: if world_p2p.followers is not 0. */
void p2p_wake_followers(struct world *world);
/* Makes the thread that makes progress look again at new operations, at deadlines and at causes,
 * even if it sleeps. */
void p2p_recheck(struct world *world);

/* ---- pending.c, for posted.c ---- */

/* Adds the group to those that have operations. */
void p2p_add_group(ls_group *group);
/* Appends an operation to the list. */
void p2p_append(struct world_p2p *p2p, struct ls_request *op) LOCK_REQUIRES(rank);

/* ---- pending.c, for the thread that makes progress ---- */

/* Ends all operations of a group that has failed. waits: until peers and devices no longer touch
 * their buffers. */
void p2p_end_all(ls_group *group, bool waits);
/* Setting P2P=serial: begins the next send; true if there was one. */
bool p2p_begin_next(struct world *world);
/* Under the list's lock: whether there is a send that p2p_begin_next would begin. */
bool p2p_can_begin(struct world_p2p *p2p) LOCK_REQUIRES(rank);

/* ---- short.c, posted.c ---- */

/* A thread that waits for a message polls this many times, for about two microseconds in all,
 * before it makes progress on everything else as well, or shows in the wait table what it waits
 * for. */
enum { P2P_POLLS = 8 };

/* Polls until the words of the call are stored. Each poll takes one of *polls; false: none is
 * left. */
static inline bool p2p_comes_soon(const struct waiter *waiter, const struct wait_call *wait,
				  int *polls)
{
	while (*polls > 0) {
		--*polls;
		if (wait_briefly(waiter, wait))
			return true;
	}
	return false;
}

/* ---- pass.c ---- */

/* Call with the right to make progress: makes all progress that is possible without waiting. True:
 * there is more to do. */
bool p2p_pass(struct world *world);

enum {
	P2P_EXTRA_WORDS = 2, /* one for a recheck, one for collectives */
	/* Words of the operations of one wait. An operation has one word, or one for each source,
	 * or the word for room at a peer; a batch has up to three for each peer. Several batches
	 * may have more, which are not shown. */
	P2P_WORDS_OF_A_PEER = 3,
	/* The words on the stack of a thread that waits. */
	P2P_FEW_WORDS = P2P_ANY_MAX + P2P_WORDS_OF_A_PEER * RANKS_HOST_MAX,
};

void p2p_words_init(struct world_words *words);
void p2p_words_fini(struct world_words *words);
/* Makes room for `count` words; the old content is lost. False without memory: then nothing has
 * changed. */
bool p2p_words_grow(struct world_words *words, int count);
/* Marks the words as this group's: its members are the peers of the wait. */
void p2p_words_of(const ls_group *group, struct wait_word *words, int count);

/* One pass of progress over all operations: for which of them the thread waits, and what it has to
 * wait for afterwards. */
struct p2p_pass {
	ls_request *const *ops;
	int count;
	/* Setting P2P=serial: the send that has begun, with a reference. All other sends wait for
	 * it, so it represents them in each wait. NULL: there is none, or a thread just begins
	 * it. */
	struct ls_request *head;
	struct wait_word *words;  /* [word_max + P2P_EXTRA_WORDS] */
	int word_max, word_count; /* word_count > word_max: some were left out */
	bool partial;             /* there was no memory for all words */
	bool more;
	uint64_t rechecks; /* world_p2p.rechecks before the thread looked for work */
};

/* When the progress thread has to look although nobody wakes it. */
static inline uint64_t p2p_next_check_ns(const struct world_p2p *p2p) LOCK_REQUIRES(rank);
static inline uint64_t p2p_next_check_ns(const struct world_p2p *p2p)
{
	uint64_t next = p2p->self_only_until_ns < p2p->next_deadline_ns ? p2p->self_only_until_ns
									: p2p->next_deadline_ns;
	uint64_t lingering = atomic_load(&p2p->lingering_until_ns);
	return lingering < next ? lingering : next;
}
/* Whether the progress thread would sleep past a deadline that no other thread checks. The caller
 * then wakes it, and p2p_sleep_until keeps the time that is noted here: so later operations need
 * not wake that thread again, even if each is complete before the thread runs. */
bool p2p_sleeps_too_long(struct world *world) LOCK_REQUIRES(rank);
/* Call when a message may linger (mailbox_linger), or none does any more: nobody wakes a thread
 * when a peer or the link stops using a buffer, so the next pass follows soon. */
void p2p_note_lingering(struct world *world);
/* p2p_pass for a thread that waits: fills words, more and rechecks. */
void p2p_progress_pass(struct world *world, struct p2p_pass *pass);
/* Writes the awaited operations that are in this group; returns their number, at most
 * P2P_ANY_MAX. */
int p2p_pass_own(const struct p2p_pass *pass, const ls_group *group, struct mailbox_awaited *own);
/* The head, with a reference that the caller drops. */
struct ls_request *p2p_head(struct world_p2p *p2p);
/* Whether the end of an operation may wake a thread that does not wait for it in Lockstep: by its
 * callback, or in its stream. */
static inline bool p2p_wakes(const struct ls_request *op)
{
	return op->on_stream || op->callback; /* a launch may drop the callback */
}
/* Under the list's lock: an operation that wakes a thread, and can never complete without the
 * members `gone`; *peer as in progress_op_need; NULL: none. *again: an operation may need them
 * later, so the progress thread checks again. */
struct ls_request *p2p_needing(ls_group *group, const struct ranks *gone, int *peer, bool *again)
	LOCK_REQUIRES(rank);

/* ---- in_vain.c ---- */

/* For ls_test after a member has died or left: true, having failed the group, if op or a part of it
 * can never complete. */
bool p2p_poll_gone(const struct ls_request *op);

/* For a thread that waits for one of these operations, none of which is complete. head:
 * p2p_pass.head. True: without the gone members none can complete, and a group has failed. */
bool p2p_fail_without(ls_request *const *ops, int count, const struct ls_request *head,
		      struct progress_self_only *self_only);

/* ---- arm.c; under the right to make progress, or with the list's lock as said ---- */

/* For the progress thread: makes all progress that is possible without waiting, unless another
 * thread does. */
void p2p_attend(struct world *world);
/* When p2p_attend has to be called next, although no other thread asks for it. */
uint64_t p2p_sleep_until(struct world_p2p *p2p);
/* Takes the right to make progress; false if another thread has it, or one that closes a group
 * wants it. */
bool p2p_take(struct world_p2p *p2p);
/* As p2p_take, for a thread that closes a group and has raised `wanted`: until it has the right no
 * other thread takes it, and the thread that has it stops after one pass. */
bool p2p_take_over(struct world_p2p *p2p);
/* Whether a thread makes progress, or has raised `wanted`. */
bool p2p_is_progressing(struct world_p2p *p2p);
/* Gives the right back. Arms the doorbell if the progress thread is needed, and wakes that thread
 * at once if there is `more` to do. */
void p2p_release(struct world *world, bool more);
/* p2p_arm in two parts, for a caller that has the list's lock anyway: what it finds under the
 * lock, after it has begun the operation; and what follows without the lock. */
struct p2p_arming {
	bool armed, progressing, late, has_work;
};
struct p2p_arming p2p_look_armed(struct world *world, bool has_work) LOCK_REQUIRES(rank);
void p2p_arm_after(struct world *world, const struct p2p_arming *found);
/* Whether these two have nothing to do, because the doorbell is armed as it has to be: so it is for
 * most receives that are posted while others are. Without work. */
static inline bool p2p_stays_armed(const struct world_p2p *p2p) LOCK_REQUIRES(rank);
static inline bool p2p_stays_armed(const struct world_p2p *p2p)
{
	return p2p->armed && !p2p->shown && !p2p->progressing &&
	       p2p->urgent == (p2p->urgent_count > 0) &&
	       p2p_next_check_ns(p2p) >= p2p->asleep_until_ns;
}

#endif
