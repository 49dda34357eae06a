/* SPDX-License-Identifier: BSD-3-Clause
 * The progress thread of a rank (src/progress/thread.c) and one lane of collectives (lane.c): how it is woken, how it
 * stands in for a lane whose first operation waits for peers, how a caller takes the lane from it, and what the wait table says
 * meanwhile. Two threads queue one operation each; one of them then waits for it, for a while or to the end, or goes away, too. Operation
 * n can go on once the peer has come n times; it may come less often. The thread may be kept for ever by the failure of
 * another group; or, once, it hands over to another thread while it makes progress on the lane. A sleep is a guard on what
 * it waits for: see doorbell.pml.
 *
 * Shown: who waits for an operation whose peers have come gets it, also without that thread; else that thread goes on with
 * it; the wait table never says that all are blocked while something can go on, nor when something is left to nobody; and
 * once nothing can go on any more the wait table says so; and the thread ends when the world is closed. */
/* mutants: 1 2 3 4 5 6 7 8 9 10 11 12 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define ASLEEP 0
#define WOKEN 1
#define BUSY 2
#define WOKEN_WHILE_BUSY 3
byte state;
bit requested; /* bell->requests is not what the thread has seen */
bit requests_progress, is_attended; /* of the group */
bit has_handed_over;
short unpublished;

#define OPS 2
byte queued, done, arrived;
bit progressing;
bit shown;       /* lane->unattended */
byte shown_for;  /* it waits for arrived > shown_for */
bit progress_waiters, released; /* the word has changed since the thread saw it */
#define CAN_GO_ON (queued > done && arrived > done)
/* What the wait table has of it. */
#if MUTANT == 11 /* the thread remembers that it waits for the lane, and tells nobody */
#define TABLE_HAS_LANE 0
#else
#define TABLE_HAS_LANE shown
#endif

/* Threads of the program: in a call and not blocked; of those that are blocked, whether what they show is there. */
byte calling = 2;
bit runs, rests; /* the one that waits */
byte rests_for;
#define IS_THERE ((runs && arrived > done) || (rests && (done >= rests_for || released)))
#define SAYS_BLOCKED (unpublished == 0 && calling == 0 && !(TABLE_HAS_LANE && arrived > shown_for) && !IS_THERE)

bit kept; /* the progress thread, for ever */
bit stop, has_stopped;

/* progress_thread_wake */
inline wake()
{
	atomic {
		requests_progress = 1;
		if
		:: state == ASLEEP -> state = WOKEN;
#if MUTANT != 1 /* it is about to go on with something, and nobody knows of it */
			unpublished++
#endif
		:: state == BUSY -> state = WOKEN_WHILE_BUSY
		:: else
		fi;
		requested = 1
	}
}

inline wake_waiters()
{
#if MUTANT != 6 /* it sleeps on, though nobody makes progress */
	if
	:: atomic { progress_waiters -> released = 1 }
	:: else
	fi
#else
	skip
#endif
}

/* begin_progress: under the lane's lock. */
inline take(mine)
{
	atomic {
		mine = queued > done && !progressing;
		if
		:: mine -> progressing = 1;
#if MUTANT != 5 /* the wait table goes on showing what the lane waited for then */
			shown = 0
#endif
		:: else
		fi
	}
}

/* go_on, after an operation: under the lock. */
inline finish(more, wanted)
{
	assert(progressing && arrived > done);
	atomic {
		done++;
		more = queued > done;
		progressing = more && wanted
	}
}

inline await_own(mine, has, more)
{
	do
	:: done >= mine -> break
	:: else ->
		take(has);
		if
		:: has ->
			/* Blocked in the wait of the operation that it runs, or not. */
			atomic { calling--; runs = 1 }
			if
			:: atomic { arrived > done -> runs = 0; calling++ }
				finish(more, 0)
			:: atomic { runs = 0; calling++; more = 1; progressing = 0 } /* its pause */
			fi;
			wake_waiters();
			if
			:: more -> wake()
			:: else
			fi
		:: else ->
			progress_waiters = 1;
			released = 0;
#if MUTANT != 7 /* the other thread may have stopped just before */
			if
			:: progressing ->
#endif
				atomic { calling--; rests_for = mine; rests = 1 }
				atomic {
					done >= mine || released ->
					rests = 0;
					calling++
				}
#if MUTANT != 7
			:: else
			fi;
#endif
			progress_waiters = 0
		fi
	od
}

proctype user(bit waits)
{
	byte mine;
	bit has, more;
#if MUTANT == 3 /* it may have looked before */
	wake();
	atomic { queued++; mine = queued }
#else
	atomic { queued++; mine = queued }
	wake();
#endif
	if
	:: waits -> await_own(mine, has, more)
	:: skip
	fi;
	calling--
}

proctype peer()
{
	do
	:: arrived < OPS -> arrived++
	:: break
	od
}

/* progress_thread_stop: the world is closed, so all operations are done. Or it stays open. */
proctype closing()
{
end:	atomic {
		calling == 0 && queued == done ->
		if
		:: stop = 1
		:: goto open
		fi
	};
	requested = 1;
open:	skip
}

/* The next one begins while this one still has something to do. */
inline hand_over()
{
	atomic {
#if MUTANT != 10 /* nobody knows of it any more */
		unpublished++;
#endif
		has_handed_over = 1;
		is_me = 0;
		requested = 1;
		run progress()
	}
}

proctype progress()
{
	bit has, more, waits, is_me = 1, attends;
	do
	::
#if MUTANT == 12 /* the request to stop may come in between, and the thread sleeps on */
		if
		:: stop -> has_stopped = 1; break
		:: else
		fi;
		requested = 0;
#else
		requested = 0;
		if
		:: stop -> has_stopped = 1; break
		:: else
		fi;
#endif
		/* progress_thread_begin */
		unpublished++;
		atomic {
			if
			:: state != ASLEEP -> unpublished--
			:: else
			fi;
			state = BUSY
		}
		/* take_requesting */
		atomic {
			if
			:: requests_progress && !is_attended -> is_attended = 1; attends = 1
			:: else
			fi;
			requests_progress = 0
		}
		/* attend */
		if
		:: !attends -> waits = 0
		:: attends && shown && arrived <= shown_for -> waits = 1
		:: else ->
			waits = 0;
			take(has);
			if
			:: has ->
				if
				:: !has_handed_over -> hand_over()
				:: skip
				fi;
				do
				:: arrived > done -> finish(more, 1);
					if
					:: more
					:: else -> break
					fi
				:: else ->
#if MUTANT == 4 /* for a moment the lane is nobody's */
					progressing = 0; waits = 1;
#else
					atomic {
						progressing = 0;
						if
						:: is_me -> shown = 1; shown_for = done; waits = 1
						:: else
						fi
					}
#endif
					break
				od;
				wake_waiters()
			:: else
			fi;
			/* let_go */
			if
			:: is_me && waits
			:: else ->
				is_attended = 0;
				attends = 0;
#if MUTANT != 9 /* whoever called the next one for it is not heard */
				if
				:: !is_me && queued > done -> wake()
				:: else
				fi
#endif
			fi
		fi;
		if
		:: kept = 1; break
		:: skip
		fi;
		if
		:: !is_me ->
#if MUTANT != 10
			unpublished--;
#endif
			break
		:: else
		fi;
		/* progress_thread_end */
#if MUTANT == 8 /* a call meanwhile has counted it once, and it is taken off twice */
		atomic { state = ASLEEP; unpublished-- }
#else
		atomic {
			has = state == BUSY;
			if
			:: has -> state = ASLEEP;
#if MUTANT != 2 /* it is counted for ever */
				unpublished--
#endif
			:: else
			fi
		}
#endif
		if
		:: has ->
end_sleeps:		requested || (waits && (!shown || arrived > shown_for))
		:: else
		fi
	od
}

proctype diagnosis()
{
end:	atomic { SAYS_BLOCKED && (CAN_GO_ON || (queued > done && !TABLE_HAS_LANE && !runs)) -> assert(false) }
}

proctype ending()
{
	timeout;
	assert(!CAN_GO_ON || (kept && !rests && !runs));
	assert(kept || has_stopped == stop);
	assert(kept || stop || SAYS_BLOCKED);
	assert(kept || queued == done || TABLE_HAS_LANE || runs)
}

init {
	atomic {
		run user(1);
		run user(0);
		run peer();
		run closing();
		run progress();
		run diagnosis();
		run ending()
	}
}
