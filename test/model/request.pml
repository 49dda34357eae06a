/* SPDX-License-Identifier: BSD-3-Clause
 * Which thread makes progress on sends and receives that outlive their call (src/p2p: pending.c,
 * arm.c, await.c, pass.c), and how a peer wakes the progress thread when no thread does
 * (src/base/wait.h: wait_arm, wait_request_progress, wait_for_set).
 *
 * Properties:
 * - What the peer needs is done, whichever thread makes progress, also if none does at first.
 * - What a thread waits for completes.
 * - The wait table is true. Say `unpublished` is 0, all threads are blocked or have left, and none
 *   of the words that are published for the progress thread has arrived. Then the rank does nothing
 *   by itself.
 *
 * Processes: of the rank, user 0 begins a receive of a long message, and user 1 a send that may
 * have no free slot yet; each then waits, or leaves. `other` blocks in a call of its own. It looks
 * at what has arrived, so it may match a long message, or complete a short receive; it makes
 * progress on nothing else. `progress` is the progress thread, `watch` the watch thread. The peer
 * posts the message and frees a slot, in either order, and does the second only after the rank has
 * done its part of the first. It may also not need the send; then the send wants no progress
 * thread. `diagnosis` reads the wait table at any time.
 *
 * Abstractions: a wait of a thread is a guard on the words that it awaits: see doorbell.pml. What a
 * thread does under the lock of the mailbox is one step.
 *
 * Mutants: each makes one mistake, which the comment at its `#if MUTANT` names. Spin must refuse
 * it. */
/* mutants: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 */
#ifndef MUTANT
#define MUTANT 0
#endif

/* The bell: WAIT_ARMED, WAIT_ARMED_URGENT. */
#define ARMED 1
#define URGENT 2
byte bell_bits;
bit requests_changed; /* bell->requests is not the value that the progress thread has read */

/* What the peer stores. */
bit posted, room;

/* The states of the two operations. */
#define NEW 0
#define POSTED 1
#define MATCHED 2
#define QUEUED 3
#define COMPLETE 4 /* in the list of the mailbox until p2p_collect */
#define COLLECTED 5
byte receive, send;
#define IS_PENDING(stage) (stage != NEW && stage != COLLECTED)
#define RECEIVE_IS_READY (receive == POSTED && posted)
#define SEND_IS_READY (send == QUEUED && room)
/* mailbox_has_work: there is something to do that no word announces. */
#if MUTANT == 16 /* ignores operations that another thread has completed */
#define HAS_WORK (receive == MATCHED)
#else
#define HAS_WORK (receive == MATCHED || receive == COMPLETE || send == COMPLETE)
#endif

/* Under p2p->lock. */
bit progressing, armed, urgent, shown;
byte progress_count, urgent_count;
bit send_is_listed, send_wants_progress;

byte followers; /* p2p->followers */
/* Whether a word has changed since user u read it. 0: u has not read it. */
#define SEEN 1
#define CHANGED 2
byte rechecks[2], wakeups[2];
byte unpublished;
bit shows_receive, shows_send; /* what the watch publishes for the progress thread */

bit needs_send = 1; /* the peer does */

/* for the assertions */
bit progress_is_counted;
/* by user; then which words the user awaits */
bit has_left[2], blocked[2], for_receive[2], for_send[2];
#define CAN_CONTINUE(u) \
	((for_receive[u] && posted) || (for_send[u] && room) || wakeups[u] == CHANGED)
#define IS_QUIET(u) (has_left[u] || (blocked[u] && !CAN_CONTINUE(u)))

/* Under p2p->lock. No other process sees what is in between, except that `unpublished` may be too
 * high for a while. */
#define UNDER_LOCK atomic {
#if MUTANT == 18 /* does not count the armed progress thread in `unpublished` */
#define COUNTED 0
#else
#define COUNTED 1
#endif
#define UNLOCKED assert(unpublished == COUNTED * (armed && !shown) + progress_is_counted) }

#include "parts/request_progress.pml"

/* ---- the users ---- */

/* p2p_arm, after an operation has begun. */
inline p2p_arm()
{
	UNDER_LOCK
#if MUTANT == 7 /* does not tell the thread that makes progress, which may sleep */
	rechecks_another = 0;
#else
	rechecks_another = progressing;
#endif
#if MUTANT == 6 /* does not look whether the bell is armed as urgent */
	mine = armed && !HAS_WORK;
#else
	mine = armed && !HAS_WORK && urgent == (urgent_count > 0);
#endif
	if
#if MUTANT != 20
	/* mutant 20 leaves words in the table that are no longer all that the progress thread
	 * awaits */
	:: mine -> hide_words()
#endif
	:: else
	fi;
	UNLOCKED
	if
	:: rechecks_another ->
		/* p2p_recheck */
		atomic {
			rechecks[0] = (rechecks[0] -> CHANGED : 0);
			rechecks[1] = (rechecks[1] -> CHANGED : 0)
		}
		atomic { p2p_wake_followers() }
	:: else
	fi;
	if
	:: mine
	:: else ->
		arm_and_check(mine);
		if
		:: mine -> p2p_take(mine)
		:: else
		fi;
		if
		:: mine -> p2p_pass(more); p2p_release(more, mine)
		:: else
		fi
	fi
}

/* p2p_start */
inline p2p_start(u)
{
	UNDER_LOCK
		progress_count = progress_count + (u == 0);
		send_is_listed = send_is_listed || u == 1;
	UNLOCKED
	atomic {
		if
		:: u == 0 -> receive = (posted -> MATCHED : POSTED)
		:: u == 1 -> send = (room -> COMPLETE : QUEUED)
		fi
	}
	p2p_collect();
	if
	:: u == 1 && send == QUEUED && needs_send ->
		UNDER_LOCK
			if
			:: send_is_listed ->
				send_wants_progress = 1;
				progress_count++;
				urgent_count++
			:: else
			fi;
		UNLOCKED
	:: else
	fi;
	if
	:: IS_PENDING(receive) || IS_PENDING(send) -> p2p_arm()
	:: else
	fi
}

#define IS_COMPLETE(u) ((u == 0 && receive == COLLECTED) || (u == 1 && send == COLLECTED))

/* Until one of its words has arrived. */
inline sleep(u)
{
	blocked[u] = 1;
	atomic { CAN_CONTINUE(u) -> blocked[u] = 0 }
}

/* Lists the words of all operations. more: there is something to do that no word announces. */
inline list_words(u)
{
	atomic {
		for_receive[u] = receive == POSTED;
		for_send[u] = send == QUEUED;
#if MUTANT != 14 /* mutant 14 ignores a receive that another thread has matched since the pass */
		more = more || receive == MATCHED
#endif
	}
}

/* wait_or_recheck: is counted in followers before it reads `rechecks`. */
inline wait_or_recheck(u)
{
	followers++;
	wakeups[u] = SEEN;
	if
	:: rechecks[u] != CHANGED && !IS_COMPLETE(u) -> sleep(u)
	:: else
	fi;
	atomic { followers--; wakeups[u] = 0; for_receive[u] = 0; for_send[u] = 0 }
}

/* make_progress: until the thread's own operation is complete. */
inline make_progress(u)
{
	do
	::
#if MUTANT == 13
		/* reads `rechecks` after the pass, so it overlooks an operation that began
		 * meanwhile */
		p2p_pass(more);
		list_words(u);
		rechecks[u] = SEEN;
#else
		rechecks[u] = SEEN;
		p2p_pass(more);
		list_words(u);
#endif
#if MUTANT != 17
		/* mutant 17 ignores an operation that another thread has completed since the
		 * pass */
		p2p_collect();
#endif
		if
		:: atomic {
				IS_COMPLETE(u) ->
				for_receive[u] = 0;
				for_send[u] = 0;
				rechecks[u] = 0;
				break
		   }
		:: else
		fi;
		if
		:: atomic { more -> for_receive[u] = 0; for_send[u] = 0 }
		:: else -> wait_or_recheck(u)
		fi
	od
}

/* await_progress: waits until the thread that makes progress wakes this one. */
inline await_progress(u)
{
#if MUTANT == 22
	/* is counted too late: a thread that stops making progress in between wakes nobody */
	if
	:: !IS_COMPLETE(u) && progressing -> followers++; wakeups[u] = SEEN; sleep(u)
	:: else -> followers++
	fi;
#else
	followers++;
#if MUTANT != 19
	wakeups[u] = SEEN;
#endif
	if
	:: IS_COMPLETE(u)
#if MUTANT != 15 /* mutant 15 does not check that another thread still makes progress */
	:: !IS_COMPLETE(u) && !progressing
	:: !IS_COMPLETE(u) && progressing ->
#if MUTANT == 19 /* reads it too late, and overlooks a wake-up after the check */
		wakeups[u] = SEEN;
#endif
		sleep(u)
#else
	:: else -> sleep(u)
#endif
	fi;
#endif
	atomic { followers--; wakeups[u] = 0 }
}

/* p2p_await */
inline p2p_await(u)
{
	do
	:: IS_COMPLETE(u) -> break
	:: else ->
		p2p_take(mine);
		if
		:: mine -> make_progress(u); p2p_release(more, mine)
		:: else -> await_progress(u)
		fi
	od
}

proctype user(bit u)
{
	bit mine, more, rechecks_another;
	p2p_start(u);
	atomic { mine = 0; rechecks_another = 0 };
	if
	:: true -> p2p_await(u) /* not within p2p_await, where `else` would belong to this `if` */
	:: skip
	fi;
	has_left[u] = 1
}

/* Blocks in a call of its own (run_blocking in src/group/message_calls.c), and matches what has arrived. */
proctype other()
{
end:	atomic {
		RECEIVE_IS_READY && needs_send ->
		if
		:: receive = MATCHED
		:: receive = COMPLETE
		fi
	}
}

/* ---- the progress thread ---- */

proctype progress()
{
	bit mine, more;
	goto end_sleeps;
	do
	::
#if MUTANT != 5 /* mutant 5 overlooks a request that comes while it makes progress */
		requests_changed = 0;
#endif
#if MUTANT == 8 /* takes the right first: for a moment it makes progress, and is not counted */
		p2p_take(mine);
		if
		:: mine -> atomic { unpublished++; progress_is_counted = 1 }
		:: else
		fi;
#else
		atomic { unpublished++; progress_is_counted = 1; p2p_take(mine) }
#endif
		if
		:: mine ->
			do
			:: p2p_pass(more);
			   if
			   :: more
			   :: else -> break
			   fi
			od;
			p2p_release(more, mine)
		:: else
		fi;
		if
		:: progress_is_counted ->
			atomic { unpublished--;
			progress_is_counted = 0;
			mine = 0 }
		:: else
		fi;
#if MUTANT == 5
		requests_changed = 0;
#endif
end_sleeps:	requests_changed
	od
}

/* ---- the watch ---- */

/* p2p_show, at some time or never. */
proctype watch()
{
	if
	:: UNDER_LOCK
		needs_send ->
		if
		:: armed && !progressing && (RECEIVE_IS_READY || SEND_IS_READY) ->
			hide_words();
			requests_changed = 1
#if MUTANT == 9 /* ignores what another thread has matched, which no word announces */
		:: armed && !progressing && !(RECEIVE_IS_READY || SEND_IS_READY) ->
#else
		:: armed && !progressing && HAS_WORK -> hide_words(); requests_changed = 1
		:: armed && !progressing && !(RECEIVE_IS_READY || SEND_IS_READY || HAS_WORK) ->
#endif
			unpublished = unpublished - COUNTED * !shown;
			shown = 1;
#if MUTANT != 21 /* mutant 21 publishes no words, though it no longer counts the progress thread */
			shows_receive = receive == POSTED;
			shows_send = send == QUEUED
#endif
		:: else -> hide_words()
		fi;
	   UNLOCKED
	:: true
	fi
}

/* ---- the peer ---- */

inline post()
{
#if MUTANT == 4 /* wakes first; the rank may arm its bell in between, and look too early */
	WAKE(ARMED | URGENT);
	posted = 1;
#else
	posted = 1;
	WAKE(ARMED | URGENT);
#endif
	receive >= COMPLETE
}

inline make_room()
{
	room = 1;
#if MUTANT == 11 /* does not wake an urgent bell */
	skip;
#else
	WAKE(URGENT);
#endif
	send >= COMPLETE || !needs_send
}

proctype peer()
{
	if
	:: post(); make_room()
	:: make_room(); post()
	fi
}

/* ---- what the wait table says ---- */

proctype diagnosis()
{
end:	atomic {
		unpublished == 0 && IS_QUIET(0) && IS_QUIET(1) &&
			!((shows_receive && posted) || (shows_send && room)) &&
			(receive == MATCHED || receive == COMPLETE || RECEIVE_IS_READY ||
			 (SEND_IS_READY && needs_send)) ->
		assert(false)
	}
}

init {
	atomic {
		if
		:: needs_send = 0
		:: true
		fi;
		run user(0);
		run user(1);
		run other();
		run progress();
		run watch();
		run peer();
		run diagnosis()
	}
}
