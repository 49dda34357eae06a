/* SPDX-License-Identifier: BSD-3-Clause
 * The progress thread of a rank (src/progress/thread.c, src/p2p/attend.c) and one lane
 * (src/progress/lane.c): how it is woken, how it leaves a lane whose first operation waits for
 * peers, how a calling thread takes the lane over, and what the wait table says meanwhile.
 *
 * Properties:
 * - A thread that waits for an operation gets its end once the peer has come, also if the progress
 *   thread is busy. If no thread waits, the progress thread continues the operation.
 * - The wait table never says that all threads are blocked while one can continue, nor while an
 *   operation is left to no thread.
 * - Once nothing can continue, the wait table says so.
 * - The progress thread ends when the world is closed.
 *
 * Processes: two users queue one operation each. The first then waits for its operation, with a
 * time limit or without; the second leaves. Operation n can continue once the peer has come n
 * times; it may come less often. `progress` is the progress thread. The failure of another group
 * may keep it busy forever. Once, while it makes progress on the lane, it may hand over to a new
 * progress thread. `diagnosis` reads the wait table at any time.
 *
 * Abstractions: a sleep is a guard on what the thread waits for: see doorbell.pml.
 *
 * Mutants: each makes one mistake, which the comment at its `#if MUTANT` names. Spin must refuse
 * it. */
/* mutants: 1 2 3 4 5 6 7 8 9 10 11 12 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define ASLEEP 0
#define WOKEN 1
#define BUSY 2
#define WOKEN_WHILE_BUSY 3
byte state;
bit requests_changed; /* bell->requests is not the value that the thread has read */
bit requests_progress, is_attended; /* of the group */
bit has_handed_over;
short unpublished;

#define OPS 2
byte queued, done, arrived;
bit progressing;
bit lane_shown; /* lane->unattended is published */
byte lane_awaits; /* it waits for arrived > lane_awaits */
bit followers, released; /* area->released has changed since the waiting thread read it */
#define CAN_CONTINUE (queued > done && arrived > done)
/* Whether the wait table shows the wait of the lane. */
#if MUTANT == 11 /* remembers that wait, but does not publish it */
#define TABLE_HAS_LANE 0
#else
#define TABLE_HAS_LANE lane_shown
#endif

/* Threads of the program that are in a call and not blocked; then whether the blocked ones can
 * continue. */
byte calling = 2;
/* the first user: blocked in the operation that it runs; waits for the thread that makes
 * progress */
bit blocked_in_op, follows;
byte followed_op;
#define USER_CAN_CONTINUE \
	((blocked_in_op && arrived > done) || (follows && (done >= followed_op || released)))
#define SAYS_BLOCKED                                                                       \
	(unpublished == 0 && calling == 0 && !(TABLE_HAS_LANE && arrived > lane_awaits) && \
	 !USER_CAN_CONTINUE)

bit busy_forever; /* the progress thread, by the failure of another group */
bit stop, has_stopped;

inline progress_thread_wake()
{
	atomic {
		requests_progress = 1;
		if
		:: state == ASLEEP -> state = WOKEN;
#if MUTANT != 1 /* mutant 1 does not count the thread, which is about to act */
			unpublished++
#endif
		:: state == BUSY -> state = WOKEN_WHILE_BUSY
		:: else
		fi;
		requests_changed = 1
	}
}

inline wake_followers()
{
#if MUTANT != 6 /* mutant 6 lets a waiting thread sleep, though no thread makes progress */
	if
	:: atomic { followers -> released = 1 }
	:: else
	fi
#else
	skip
#endif
}

/* Under the lane's lock. */
inline begin_progress(mine)
{
	atomic {
		mine = queued > done && !progressing;
		if
		:: mine -> progressing = 1;
#if MUTANT != 5 /* mutant 5 leaves the lane's old wait in the table */
			lane_shown = 0
#endif
		:: else
		fi
	}
}

/* After an operation, under the lane's lock. */
inline finish_one(more, wanted)
{
	assert(progressing && arrived > done);
	atomic {
		done++;
		more = queued > done;
		progressing = more && wanted
	}
}

inline lane_await(mine, has, more)
{
	do
	:: done >= mine -> break
	:: else ->
		begin_progress(has);
		if
		:: has ->
			/* The thread may be blocked in the wait of the operation that it runs. */
			atomic { calling--; blocked_in_op = 1 }
			if
			:: atomic { arrived > done -> blocked_in_op = 0; calling++ }
				finish_one(more, 0)
			/* its time limit */
			:: atomic { blocked_in_op = 0; calling++; more = 1; progressing = 0 }
			fi;
			wake_followers();
			if
			:: more -> progress_thread_wake()
			:: else
			fi
		:: else ->
			followers = 1;
			released = 0;
#if MUTANT != 7 /* mutant 7 does not check whether another thread still makes progress */
			if
			:: progressing ->
#endif
				atomic { calling--; followed_op = mine; follows = 1 }
				atomic {
					done >= mine || released ->
					follows = 0;
					calling++
				}
#if MUTANT != 7
			:: else
			fi;
#endif
			followers = 0
		fi
	od
}

proctype user(bit waits)
{
	byte mine;
	bit has, more;
#if MUTANT == 3 /* wakes the thread first, so that it may look too early */
	progress_thread_wake();
	atomic { queued++; mine = queued }
#else
	atomic { queued++; mine = queued }
	progress_thread_wake();
#endif
	if
	:: waits -> lane_await(mine, has, more)
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

/* progress_thread_stop. The world is closed only when all operations are complete. Or it stays
 * open. */
proctype closing()
{
end:	atomic {
		calling == 0 && queued == done ->
		if
		:: stop = 1
		:: goto open
		fi
	};
	requests_changed = 1;
open:	skip
}

/* The next thread begins while this one is still busy. */
inline progress_thread_replace()
{
	atomic {
#if MUTANT != 10 /* mutant 10 does not count this thread any more */
		unpublished++;
#endif
		has_handed_over = 1;
		is_me = 0;
		requests_changed = 1;
		run progress()
	}
}

proctype progress()
{
	bit has, more, waits, is_me = 1, attends;
	do
	::
#if MUTANT == 12 /* checks this first; so a request to stop in between does not wake the thread */
		if
		:: stop -> has_stopped = 1; break
		:: else
		fi;
		requests_changed = 0;
#else
		requests_changed = 0;
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
		/* attend_lanes, progress_lane_attend */
		if
		:: !attends -> waits = 0
		:: attends && lane_shown && arrived <= lane_awaits -> waits = 1
		:: else ->
			waits = 0;
			begin_progress(has);
			if
			:: has ->
				if
				:: !has_handed_over -> progress_thread_replace()
				:: skip
				fi;
				do
				:: arrived > done -> finish_one(more, 1);
					if
					:: more
					:: else -> break
					fi
				:: else ->
#if MUTANT == 4 /* publishes nothing; for a moment the lane is left to no thread */
					progressing = 0; waits = 1;
#else
					atomic {
						progressing = 0;
						if
						:: is_me ->
							lane_shown = 1;
							lane_awaits = done;
							waits = 1
						:: else
						fi
					}
#endif
					break
				od;
				wake_followers()
			:: else
			fi;
			/* release_group */
			if
			:: is_me && waits
			:: else ->
				is_attended = 0;
				attends = 0;
#if MUTANT != 9 /* mutant 9 ignores what was queued for the next thread meanwhile */
				if
				:: !is_me && queued > done -> progress_thread_wake()
				:: else
				fi
#endif
			fi
		fi;
		if
		:: busy_forever = 1; break
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
#if MUTANT == 8 /* does not look whether a thread has woken it meanwhile, and is not counted then */
		atomic { state = ASLEEP; unpublished-- }
#else
		atomic {
			has = state == BUSY;
			if
			:: has -> state = ASLEEP;
#if MUTANT != 2 /* mutant 2 counts the thread forever */
				unpublished--
#endif
			:: else
			fi
		}
#endif
		if
		:: has ->
end_sleeps:		requests_changed || (waits && (!lane_shown || arrived > lane_awaits))
		:: else
		fi
	od
}

proctype diagnosis()
{
end:	atomic { SAYS_BLOCKED &&
		(CAN_CONTINUE ||
				(queued > done && !TABLE_HAS_LANE &&
						!blocked_in_op)) -> assert(false) }
}

proctype ending()
{
	timeout;
	assert(!CAN_CONTINUE || (busy_forever && !follows && !blocked_in_op));
	assert(busy_forever || has_stopped == stop);
	assert(busy_forever || stop || SAYS_BLOCKED);
	assert(busy_forever || queued == done || TABLE_HAS_LANE || blocked_in_op)
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
