/* SPDX-License-Identifier: BSD-3-Clause
 * Who sees to sends and receives that run beside the caller (src/p2p/pending.c, arm.c), and how a peer
 * wakes the progress thread when nobody does (wait_arm, wait_request_progress, wait_for_set in
 * src/base/wait.h). One thread of
 * the rank begins a receive of a long message, another one a send for which there may be no room yet; each
 * then waits, or goes away. A third one, which blocks in a call of its own, takes in what has arrived, and sees to
 * nothing else: of a long message nothing is copied, a short one is over. The peer posts the message and makes the room, in one order or the other, and needs the first to be seen to before it does
 * the second; or it does not need the send, as one that is copied by the peer, and then it wants no progress thread.
 * A wait of a thread is a guard on the words it awaits: see doorbell.pml. What is done under the mailbox'
 * lock is one step.
 *
 * Shown: what the peer needs is seen to, whichever thread makes progress, or if none does at first; so is what a
 * thread waits for; and what the wait table says is true: while unpublished is 0, all threads are blocked or away,
 * and none of the words that are shown for the progress thread is there, the rank does nothing by itself. */
/* mutants: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 */
#ifndef MUTANT
#define MUTANT 0
#endif

/* The bell: WAIT_ARMED and WAIT_ARMED_URGENT. */
#define ARMED 1
#define URGENT 2
byte bits;
bit requested; /* bell->requests is not what the progress thread has seen */

/* What the peer stores. */
bit posted, room;

/* The mailbox: how far the two operations are. */
#define NONE 0
#define ASKED 1
#define MET 2
#define QUEUED 3
#define DONE 4 /* the group has not been told yet */
#define OVER 5
byte receive, send;
#define IS_PENDING(stage) (stage != NONE && stage != OVER)
#define RECEIVE_IS_READY (receive == ASKED && posted)
#define SEND_IS_READY (send == QUEUED && room)
/* Somebody has to go on, though no word will say so: mailbox_has_work. */
#if MUTANT == 16 /* what another thread has taken in, and is over, is told to nobody */
#define HAS_WORK (receive == MET)
#else
#define HAS_WORK (receive == MET || receive == DONE || send == DONE)
#endif

/* What points->lock guards. */
bit progressing, armed, urgent, shown;
byte progress_count, urgent_count;
bit send_listed, send_wants;

byte progress_waiters; /* threads that wait for the one that makes progress; and that one while it sleeps */
/* What has become of a word since a thread looked; 0: it has not looked, or forgotten it. */
#define SEEN 1
#define CHANGED 2
byte rechecks[2], points[2];
byte unpublished;
bit shows_receive, shows_send; /* which words the watch shows for the progress thread */

bit needs_send = 1; /* the peer does */

/* For the assertions only. */
bit progress_counts;
bit gone[2], blocked[2], for_receive[2], for_send[2]; /* the two threads, and what they wait for */
#define IS_THERE(u) ((for_receive[u] && posted) || (for_send[u] && room) || points[u] == CHANGED)
#define IS_QUIET(u) (gone[u] || (blocked[u] && !IS_THERE(u)))

/* Under points->lock: nothing in between is seen by anybody else, but that unpublished may be higher. */
#define UNDER_LOCK atomic {
#if MUTANT == 18 /* from the request on, until it makes progress, the wait table says that nobody does anything */
#define COUNTED 0
#else
#define COUNTED 1
#endif
#define UNLOCKED assert(unpublished == COUNTED * (armed && !shown) + progress_counts) }

#include "request_progress.pml"

/* ---- the threads of the user ---- */

/* p2p_arm, after something has begun. */
inline begun()
{
	UNDER_LOCK
#if MUTANT == 7 /* the thread that makes progress may sleep, and does not know of it */
	tells = 0;
#else
	tells = progressing;
#endif
#if MUTANT == 6 /* its bell may not be armed for room */
	mine = armed && !HAS_WORK;
#else
	mine = armed && !HAS_WORK && urgent == (urgent_count > 0);
#endif
	if
#if MUTANT != 20 /* what was shown is not all that the armed progress thread wakes for any more */
	:: mine -> hide()
#endif
	:: else
	fi;
	UNLOCKED
	if
	:: tells ->
		/* p2p_recheck */
		atomic {
			rechecks[0] = (rechecks[0] -> CHANGED : 0);
			rechecks[1] = (rechecks[1] -> CHANGED : 0)
		}
		atomic { wake_waiters() }
	:: else
	fi;
	if
	:: mine
	:: else ->
		arm_and_check(mine);
		if
		:: mine -> take(mine)
		:: else
		fi;
		if
		:: mine -> sweep(more); leave(more, mine)
		:: else
		fi
	fi
}

/* p2p_start */
inline start(u)
{
	UNDER_LOCK
		progress_count = progress_count + (u == 0);
		send_listed = send_listed || u == 1;
	UNLOCKED
	atomic {
		if
		:: u == 0 -> receive = (posted -> MET : ASKED)
		:: u == 1 -> send = (room -> DONE : QUEUED)
		fi
	}
	collect();
	if
	:: u == 1 && send == QUEUED && needs_send ->
		UNDER_LOCK
			if
			:: send_listed -> send_wants = 1; progress_count++; urgent_count++
			:: else
			fi;
		UNLOCKED
	:: else
	fi;
	if
	:: IS_PENDING(receive) || IS_PENDING(send) -> begun()
	:: else
	fi
}

#define IS_OVER(u) ((u == 0 && receive == OVER) || (u == 1 && send == OVER))

/* Until one of its words is there. */
inline sleep(u)
{
	blocked[u] = 1;
	atomic { IS_THERE(u) -> blocked[u] = 0 }
}

/* What to wait for until something can go on. */
inline gather(u)
{
	atomic {
		for_receive[u] = receive == ASKED;
		for_send[u] = send == QUEUED;
#if MUTANT != 14 /* what another thread has taken in meanwhile has no word */
		more = more || receive == MET
#endif
	}
}

/* wait_or_recheck: the recheck comes before it is seen to rest. */
inline rest_for_news(u)
{
	progress_waiters++;
	points[u] = SEEN;
	if
	:: rechecks[u] != CHANGED && !IS_OVER(u) -> sleep(u)
	:: else
	fi;
	atomic { progress_waiters--; points[u] = 0; for_receive[u] = 0; for_send[u] = 0 }
}

/* make_progress: until the thread's own operation is over. */
inline make_progress(u)
{
	do
	::
#if MUTANT == 13 /* what is begun while it looks is not looked at, and wakes nobody */
		sweep(more);
		gather(u);
		rechecks[u] = SEEN;
#else
		rechecks[u] = SEEN;
		sweep(more);
		gather(u);
#endif
#if MUTANT != 17 /* what another thread has taken in meanwhile, and is over, has no word either */
		collect();
#endif
		if
		:: atomic { IS_OVER(u) -> for_receive[u] = 0; for_send[u] = 0; rechecks[u] = 0; break }
		:: else
		fi;
		if
		:: atomic { more -> for_receive[u] = 0; for_send[u] = 0 }
		:: else -> rest_for_news(u)
		fi
	od
}

/* rest: until the thread that makes progress has something to say. */
inline rest(u)
{
#if MUTANT == 22 /* a thread that stops making progress in between sees nobody rest */
	if
	:: !IS_OVER(u) && progressing -> progress_waiters++; points[u] = SEEN; sleep(u)
	:: else -> progress_waiters++
	fi;
#else
	progress_waiters++;
#if MUTANT != 19
	points[u] = SEEN;
#endif
	if
	:: IS_OVER(u)
#if MUTANT != 15 /* the thread that made progress may just have left, and seen nobody rest */
	:: !IS_OVER(u) && !progressing
	:: !IS_OVER(u) && progressing ->
#if MUTANT == 19 /* what has happened in between is not seen */
		points[u] = SEEN;
#endif
		sleep(u)
#else
	:: else -> sleep(u)
#endif
	fi;
#endif
	atomic { progress_waiters--; points[u] = 0 }
}

/* p2p_await */
inline await(u)
{
	do
	:: IS_OVER(u) -> break
	:: else ->
		take(mine);
		if
		:: mine -> make_progress(u); leave(more, mine)
		:: else -> rest(u)
		fi
	od
}

proctype user(bit u)
{
	bit mine, more, tells;
	start(u);
	atomic { mine = 0; tells = 0 };
	if
	:: true -> await(u) /* `else` in there must not mean here */
	:: skip
	fi;
	gone[u] = 1
}

/* Blocks in a call of its own, and takes in what has arrived for everybody: see run_blocking. */
proctype other()
{
end:	atomic {
		RECEIVE_IS_READY && needs_send ->
		if
		:: receive = MET
		:: receive = DONE
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
#if MUTANT != 5 /* a request while it makes progress would be overlooked */
		requested = 0;
#endif
#if MUTANT == 8 /* for a moment it makes progress, and the wait table does not say so */
		take(mine);
		if
		:: mine -> atomic { unpublished++; progress_counts = 1 }
		:: else
		fi;
#else
		atomic { unpublished++; progress_counts = 1; take(mine) }
#endif
		if
		:: mine ->
			do
			:: sweep(more);
			   if
			   :: more
			   :: else -> break
			   fi
			od;
			leave(more, mine)
		:: else
		fi;
		if
		:: progress_counts -> atomic { unpublished--; progress_counts = 0; mine = 0 }
		:: else
		fi;
#if MUTANT == 5
		requested = 0;
#endif
end_sleeps:	requested
	od
}

/* ---- the watch ---- */

/* p2p_show, at some time, or never. */
proctype watch()
{
	if
	:: UNDER_LOCK
		needs_send ->
		if
		:: armed && !progressing && (RECEIVE_IS_READY || SEND_IS_READY) -> hide(); requested = 1
#if MUTANT == 9 /* what another thread has taken in has no word that is there */
		:: armed && !progressing && !(RECEIVE_IS_READY || SEND_IS_READY) ->
#else
		:: armed && !progressing && HAS_WORK -> hide(); requested = 1
		:: armed && !progressing && !(RECEIVE_IS_READY || SEND_IS_READY || HAS_WORK) ->
#endif
			unpublished = unpublished - COUNTED * !shown;
			shown = 1;
#if MUTANT != 21 /* it counts the progress thread out, and shows nothing for it */
			shows_receive = receive == ASKED;
			shows_send = send == QUEUED
#endif
		:: else -> hide()
		fi;
	   UNLOCKED
	:: true
	fi
}

/* ---- the peer ---- */

inline post()
{
#if MUTANT == 4 /* it may be armed in between, and look too early */
	WAKE(ARMED | URGENT);
	posted = 1;
#else
	posted = 1;
	WAKE(ARMED | URGENT);
#endif
	receive >= DONE
}

inline make_room()
{
	room = 1;
#if MUTANT == 11 /* as of a short message, for which no progress is requested */
	skip;
#else
	WAKE(URGENT);
#endif
	send >= DONE || !needs_send
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
			(receive == MET || receive == DONE || RECEIVE_IS_READY ||
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
		run user(0); run user(1); run other(); run progress(); run watch(); run peer(); run diagnosis()
	}
}
