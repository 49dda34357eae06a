/* SPDX-License-Identifier: BSD-3-Clause
 * The lane of src/progress/lane.c. Blocking calls take it without a lock when nothing is under way. Others
 * are queued; a thread that waits for one of them makes progress on the queue, or else the progress thread.
 * In all schedules operations run one after the other in the order of their numbers. None is left on which
 * no thread makes progress: that would show as an end state in which a thread waits for ever. doorbell.pml
 * has how a thread sleeps and wakes; here a sleeper continues once what it waits for holds. Each MUTANT_…
 * breaks one step and must be refused. */

#define OPS 5

byte numbered;       /* these three are one word in the code: each access is one step */
byte under_way;
bool fast;

bool locked;         /* lane->lock */
byte queue[OPS];     /* numbers of the operations queued, in order */
byte queued;
bool progressing;

byte work;           /* raised by progress_thread_wake */
bool over[OPS + 1];  /* by number */
byte ran;            /* the number of the newest operation that was begun */
bool running;

#define LOCK atomic { !locked; locked = true }
#define UNLOCK locked = false

byte completed_seq;  /* of the area: only grows */
#define TELL(n) atomic { assert(n > completed_seq); completed_seq = n; over[n] = true }

/* One operation from begin to end; while it runs others may do anything. */
inline execute(THIS) {
	atomic { assert(!running); assert(THIS == ran + 1); ran = THIS; running = true };
	running = false
}

/* begin_progress: TAKEN is true if the caller makes progress now, until operation LAST is over (0: all are). */
inline begin_progress(TAKEN, LAST) {
	LOCK;
#ifdef MUTANT_PROGRESS_BESIDE_FAST
	TAKEN = queued > 0 && !progressing;
#else
	TAKEN = queued > 0 && !progressing && !fast;
#endif
#ifndef MUTANT_PROGRESS_FOR_WHAT_IS_OVER
	TAKEN = TAKEN && !(LAST > 0 && over[LAST]);
#endif
	if
	:: TAKEN -> progressing = true
	:: else
	fi;
	UNLOCK
}

/* make_progress: until operation LAST is over (0: all are), or, for one that waits with a limit, sooner. */
inline make_progress(LAST, BRIEF, NOW, MORE) {
	do
	:: LOCK; NOW = queue[0]; UNLOCK;
	   assert(NOW != 0);
	   assert(LAST == 0 || NOW <= LAST); /* nobody is kept by what comes after his own */
	   if
	   :: BRIEF ->
		LOCK; progressing = false; MORE = true; UNLOCK;
		break
	   :: else ->
		execute(NOW);
		LOCK;
		queue[0] = queue[1]; queue[1] = queue[2]; queue[2] = queue[3]; queue[3] = queue[4];
		queue[4] = 0;
		queued--;
		UNLOCK;
		TELL(NOW);
		LOCK;
		MORE = queued > 0;
#ifdef MUTANT_GOES_ON
		progressing = NOW != LAST;
		under_way--;
		UNLOCK;
		LOCK;
		progressing = progressing && queued > 0;
		if
		:: progressing -> UNLOCK
		:: else -> UNLOCK; break
		fi
#else
		progressing = MORE && NOW != LAST;
		under_way--;
		if
		:: progressing -> UNLOCK
		:: else -> UNLOCK; break
		fi
#endif
	   fi
	od;
#ifndef MUTANT_LEAVES_WITHOUT_WAKING
	if
	:: MORE -> work++
	:: else
	fi
#else
	skip
#endif
}

inline enqueue(NEW) {
	LOCK;
	atomic { numbered++; under_way++; NEW = numbered };
#ifdef MUTANT_NUMBERS_BEFORE_THE_LOCK
	UNLOCK; LOCK;
#endif
	queue[queued] = NEW;
	queued++;
	UNLOCK
}

/* progress_lane_await, without limit. */
inline await(MINE, HAS_LANE, TEMP, LEFT) {
	do
	:: over[MINE] -> break
	:: else ->
		begin_progress(HAS_LANE, MINE);
		if
		:: HAS_LANE -> make_progress(MINE, false, TEMP, LEFT)
		:: else -> over[MINE]
		fi
	od
}

/* A blocking call. */
inline call(NUMBER, ALONE, SPARE, OTHERS) {
	atomic {
		ALONE = (under_way == 0);
		if
		:: ALONE -> numbered++; NUMBER = numbered; under_way++; fast = true
		:: else
		fi
	}
	if
	:: ALONE -> /* its wait may end before it does: then it is queued, ahead of all others */
#ifdef MUTANT_HANDS_OVER_BEFORE_IT_IS_QUEUED
		fast = false;
#endif
		LOCK;
#ifdef MUTANT_HANDS_OVER_LAST
		queue[queued] = NUMBER;
#else
		queue[4] = queue[3]; queue[3] = queue[2]; queue[2] = queue[1]; queue[1] = queue[0];
		queue[0] = NUMBER;
#endif
		queued++;
		fast = false;
		UNLOCK;
#ifndef MUTANT_HANDS_OVER_WITHOUT_WAKING
		work++;
#endif
		if
		:: await(NUMBER, ALONE, SPARE, OTHERS)
		:: skip
		fi
	:: ALONE ->
		execute(NUMBER);
		atomic { fast = false; under_way--; OTHERS = under_way > 0 }
		over[NUMBER] = true;
#ifndef MUTANT_FAST_LEAVES_WITHOUT_WAKING
		if
		:: OTHERS -> work++
		:: else
		fi
#endif
	:: else ->
		enqueue(NUMBER);
		await(NUMBER, ALONE, SPARE, OTHERS)
	fi
}

proctype caller() {
	byte n, x;
	bool mine, more;
	call(n, mine, x, more);
	call(n, mine, x, more)
}

/* Starts two beside itself; waits for the first for a limited time, and at the end perhaps for both. */
proctype starter() {
	byte a, b, x;
	bool mine, more;
	enqueue(a);
#ifndef MUTANT_QUEUES_WITHOUT_WAKING
	work++;
#endif
	enqueue(b);
#ifndef MUTANT_QUEUES_WITHOUT_WAKING
	work++;
#endif
	if
	:: over[a]
	:: begin_progress(mine, a);
	   if
	   :: mine -> make_progress(a, true, x, more)
	   :: else
	   fi
	fi;
	if
	:: await(b, mine, x, more)
	:: skip
	fi
}

active proctype progress() {
	byte seen, x;
	bool mine, more;
	do
	:: seen = work;
	   begin_progress(mine, 0);
	   if
	   :: mine -> make_progress(0, false, x, more)
	   :: else
	   fi;
end:	   work != seen
	od
}

init {
	run caller();
	run starter();
	/* In the end everything has run: nobody waits, and the queue is empty. */
	timeout ->
		assert(ran == numbered && numbered == 4 && queued == 0 && under_way == 0)
}
