/* SPDX-License-Identifier: BSD-3-Clause
 * The lane: the queue of a group's collectives (src/progress/lane.c).
 *
 * Properties:
 * - Operations run one after the other, in the order of their numbers.
 * - No operation is left on which no thread makes progress. One that is left shows as an end state
 *   in which a thread waits forever.
 * - A thread that waits for an operation runs none behind that one.
 *
 * Processes: `blocking_caller` makes two blocking calls. If nothing is unfinished, such a call
 * takes the lane without the lock (WORLD_LANE_TAKEN), and runs at once; else it is queued.
 * `nonblocking_caller` queues two operations, and may wait for them. A thread that waits for a
 * queued operation makes progress on the queue, unless another one does; `progress` is the progress
 * thread, which makes progress on what is left.
 *
 * Abstractions: a sleeping thread continues once what it waits for holds; doorbell.pml shows how it
 * wakes. An operation has a beginning and an end; others may do anything in between.
 *
 * Mutants: each makes one mistake. Spin must refuse it.
 * - NUMBERS_BEFORE_THE_LOCK numbers an operation, releases the lock, and takes it again to queue
 *   the operation.
 * - QUEUES_WITHOUT_WAKING queues an operation and does not wake the progress thread.
 * - PROGRESS_BESIDE_FAST makes progress on the queue while a blocking call has taken the lane.
 * - PROGRESS_FOR_WHAT_IS_OVER begins progress for an operation that is complete.
 * - GOES_ON counts the last operation out while it still has the lane. Then a blocking call may
 *   take it, and another operation runs beside that call.
 * - LEAVES_WITHOUT_WAKING stops making progress and does not wake the progress thread.
 * - FAST_LEAVES_WITHOUT_WAKING is the same at the end of a blocking call that has taken the lane.
 * - HANDS_OVER_BEFORE_IT_IS_QUEUED gives the lane back before its operation is in the queue.
 * - HANDS_OVER_LAST queues that operation behind all others.
 * - HANDS_OVER_WITHOUT_WAKING queues it and does not wake the progress thread. */

#define OPS 5

byte numbered; /* these three are one word in the code, so that each access is one step */
byte unfinished;
bool taken;

bool locked; /* lane->lock */
byte queue[OPS]; /* numbers of the queued operations */
byte queued;
bool progressing;

byte requests; /* raised by progress_thread_wake */
bool complete[OPS + 1]; /* by number */
byte newest_begun; /* the number of the operation that began last */
bool running;

#define LOCK atomic { !locked; locked = true }
#define UNLOCK locked = false

byte completed_seq; /* of the area; only grows */
#define COMPLETE(n) atomic { assert(n > completed_seq); completed_seq = n; complete[n] = true }

/* Runs one operation. Others may do anything while it runs. */
inline run_op(THIS) {
	atomic {
		assert(!running);
		assert(THIS == newest_begun + 1);
		newest_begun = THIS;
		running = true
	};
	running = false
}

/* begin_progress. TAKEN: the caller makes progress now, until operation UNTIL is complete (0: until
 * all are). */
inline begin_progress(TAKEN, UNTIL) {
	LOCK;
#ifdef MUTANT_PROGRESS_BESIDE_FAST
	TAKEN = queued > 0 && !progressing;
#else
	TAKEN = queued > 0 && !progressing && !taken;
#endif
#ifndef MUTANT_PROGRESS_FOR_WHAT_IS_OVER
	TAKEN = TAKEN && !(UNTIL > 0 && complete[UNTIL]);
#endif
	if
	:: TAKEN -> progressing = true
	:: else
	fi;
	UNLOCK
}

/* make_progress: until operation UNTIL is complete (0: until all are). PAUSES: the caller has a
 * time limit, which passes at once. */
inline make_progress(UNTIL, PAUSES, FIRST, MORE) {
	do
	:: LOCK; FIRST = queue[0]; UNLOCK;
	   assert(FIRST != 0);
	   assert(UNTIL == 0 || FIRST <= UNTIL); /* runs nothing behind its own operation */
	   if
	   :: PAUSES ->
		LOCK; progressing = false; MORE = true; UNLOCK;
		break
	   :: else ->
		run_op(FIRST);
		LOCK;
		queue[0] = queue[1]; queue[1] = queue[2]; queue[2] = queue[3]; queue[3] = queue[4];
		queue[4] = 0;
		queued--;
		UNLOCK;
		COMPLETE(FIRST);
		LOCK;
		MORE = queued > 0;
#ifdef MUTANT_GOES_ON
		progressing = FIRST != UNTIL;
		unfinished--;
		UNLOCK;
		LOCK;
		progressing = progressing && queued > 0;
		if
		:: progressing -> UNLOCK
		:: else -> UNLOCK; break
		fi
#else
		progressing = MORE && FIRST != UNTIL;
		unfinished--;
		if
		:: progressing -> UNLOCK
		:: else -> UNLOCK; break
		fi
#endif
	   fi
	od;
#ifndef MUTANT_LEAVES_WITHOUT_WAKING
	if
	:: MORE -> requests++
	:: else
	fi
#else
	skip
#endif
}

inline enqueue(NEW) {
	LOCK;
	atomic { numbered++; unfinished++; NEW = numbered };
#ifdef MUTANT_NUMBERS_BEFORE_THE_LOCK
	UNLOCK; LOCK;
#endif
	queue[queued] = NEW;
	queued++;
	UNLOCK
}

/* progress_lane_await, without a time limit. */
inline lane_await(MINE, HAS_LANE, TEMP, LEFT) {
	do
	:: complete[MINE] -> break
	:: else ->
		begin_progress(HAS_LANE, MINE);
		if
		:: HAS_LANE -> make_progress(MINE, false, TEMP, LEFT)
		:: else -> complete[MINE]
		fi
	od
}

/* A blocking call. */
inline blocking_call(NUMBER, ALONE, SPARE, OTHERS) {
	atomic {
		ALONE = (unfinished == 0);
		if
		:: ALONE -> numbered++; NUMBER = numbered; unfinished++; taken = true
		:: else
		fi
	}
	if
	/* Its wait may end before the operation does. Then the operation is queued, ahead of all
	 * others. */
	:: ALONE ->
#ifdef MUTANT_HANDS_OVER_BEFORE_IT_IS_QUEUED
		taken = false;
#endif
		LOCK;
#ifdef MUTANT_HANDS_OVER_LAST
		queue[queued] = NUMBER;
#else
		queue[4] = queue[3]; queue[3] = queue[2]; queue[2] = queue[1]; queue[1] = queue[0];
		queue[0] = NUMBER;
#endif
		queued++;
		taken = false;
		UNLOCK;
#ifndef MUTANT_HANDS_OVER_WITHOUT_WAKING
		requests++;
#endif
		if
		:: lane_await(NUMBER, ALONE, SPARE, OTHERS)
		:: skip
		fi
	:: ALONE ->
		run_op(NUMBER);
		atomic { taken = false; unfinished--; OTHERS = unfinished > 0 }
		complete[NUMBER] = true;
#ifndef MUTANT_FAST_LEAVES_WITHOUT_WAKING
		if
		:: OTHERS -> requests++
		:: else
		fi
#endif
	:: else ->
		enqueue(NUMBER);
		lane_await(NUMBER, ALONE, SPARE, OTHERS)
	fi
}

proctype blocking_caller() {
	byte n, x;
	bool mine, more;
	blocking_call(n, mine, x, more);
	blocking_call(n, mine, x, more)
}

/* Queues two operations. Waits for the first for a limited time; then perhaps for the second. */
proctype nonblocking_caller() {
	byte a, b, x;
	bool mine, more;
	enqueue(a);
#ifndef MUTANT_QUEUES_WITHOUT_WAKING
	requests++;
#endif
	enqueue(b);
#ifndef MUTANT_QUEUES_WITHOUT_WAKING
	requests++;
#endif
	if
	:: complete[a]
	:: begin_progress(mine, a);
	   if
	   :: mine -> make_progress(a, true, x, more)
	   :: else
	   fi
	fi;
	if
	:: lane_await(b, mine, x, more)
	:: skip
	fi
}

active proctype progress() {
	byte seen, x;
	bool mine, more;
	do
	:: seen = requests;
	   begin_progress(mine, 0);
	   if
	   :: mine -> make_progress(0, false, x, more)
	   :: else
	   fi;
end:	   requests != seen
	od
}

init {
	run blocking_caller();
	run nonblocking_caller();
	/* In the end all operations have run, no thread waits, and the queue is empty. */
	timeout ->
		assert(newest_begun == numbered && numbered == 4 && queued == 0 && unfinished == 0)
}
