/* SPDX-License-Identifier: BSD-3-Clause
 * Launches, frees and allocations of device memory, also when there is none left (src/pool: gate.c,
 * marks.c; alloc_slowly, pool_trim, wait_for_any, pool_close).
 *
 * Properties:
 * - No thread waits forever, although only an allocation that rank 1 waits for has a time limit. If
 *   the allocation fits into the segment it needs none, once stream 0 is done with that.
 * - The allocation gets its memory, because all was free before. Else its time limit has passed, or
 *   the device has too little memory, and the allocation finds that out.
 * - A give begins only while no launch is open or in flight.
 * - In the end the driver has all memory back, and then nobody touches the pool.
 *
 * Processes: two ranks. Each launches a receive on one stream and a send on another; their kernels
 * wait for those of the other rank. Rank 0 has two threads in full. `launcher` launches, then
 * trims. `allocator` frees a segment that is all memory of the device, allocates a larger one, or
 * one that fits into the segment, frees it, and closes the pool. Of rank 1 there is what rank 0 can notice: a give, and the
 * launches. These are one or two. Before the second launch rank 1 may wait on the host for the
 * result of the first, and before both for a message that rank 0 sends after its allocation.
 *
 * Abstractions: a driver's give waits until all that the rank has launched is done, and its other
 * calls wait behind the give. What a thread does under the lock of the pool or of the gate is one
 * step. A wait is a guard on the awaited words: see doorbell.pml. Not modelled: cutting a cached
 * block; a device that breaks.
 *
 * Mutants: each makes one mistake, which a comment names. All deadlock, or fail the allocation. */
/* mutants: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define ALLOC 0
#define LAUNCH 1

/* What the ranks have launched. */
bit received[2], sent[2];
bit driver[2]; /* in a give, so that other calls wait */

/* Rank 1, and its gate. */
bit open_1, giving_1;
#define IN_FLIGHT_1 (received[1] && !sent[0] || sent[1] && !received[0])

/* The program. */
/* rank 1 launches only after a message that the allocation of rank 0 has ended */
bit rank_1_depends;
bit message_sent;
bit too_large; /* the device has less memory than the allocation wants */
bit fits; /* the allocation fits into the segment, so it may take that back from the gate */

/* Rank 0: struct pool_gate. Stream 0 receives, stream 1 sends. */
byte open_count; /* for a moment also counts a launch that finds `giving` */
bit has_begun; /* a launch of the program is open */
bit giving;
bit issued[2], done[2];
byte due, waiting_count;
/* by thread. 0: does not wait; 1: has read `changes`; 2: `changes` was raised since */
byte listens[2];

/* struct pool, with one segment at a time, and stream 0. */
mtype = { NONE, LIVE, PENDING, CACHED, UNWANTED };
mtype segment = LIVE;
byte number; /* the segment is cached or given only once stream 0 has reached this */
byte mark_issued, mark_done, wanted;
bit putting;
byte puts, put_off, returned; /* segments that: became cached, went to the gate, left it */
bit mark, mark_waits; /* a mark is on the stream; it is behind the receive */
bit refused; /* the driver has refused a mark once */
bit pool_lock; /* held during a call of the driver: by mutant 4 only */
bit memory; /* the driver has the segment */
bit trimmed, closed;

#define IN_FLIGHT(stream) (issued[stream] && !done[stream])
#define IDLE (!(received[0] && !done[0]) && !(sent[0] && !done[1]) && !mark)
#if MUTANT == 9 /* does not change when memory is given */
#define MOMENT (puts + mark_done)
#elif MUTANT == 17
byte given;
#define MOMENT (puts + mark_done + given)
#else
#define MOMENT (puts + mark_done + returned)
#endif

#include "parts/gate_gives.pml"

/* ---- pool/marks.c ---- */

inline pool_want(n)
{
	if :: wanted < n -> wanted = n :: else fi
}

/* After a mark, looks whether another thread has wanted one meanwhile. */
inline pool_put_marks()
{
	do
	:: atomic {
		wanted > mark_issued && !putting && mark_done >= mark_issued ->
		putting = 1;
		mark_issued++;
		pool_lock = (MUTANT == 4)
	   };
	   /* Here the driver may wait for room in the stream's queue; its other calls go on. */
	   if
	   :: skip
	   :: _pid == 1 && !rank_1_depends -> !(received[0] && !done[0])
	   fi;
	   if
	   :: atomic { !driver[0] -> mark = 1; mark_waits = received[0] && !done[0] };
	      atomic { putting = 0; pool_lock = 0 };
#if MUTANT == 10 /* puts no mark that was wanted meanwhile */
	      break
#endif
	   :: atomic { _pid == 2 && !refused -> refused = 1 }; /* in a capture */
	      atomic { putting = 0; pool_lock = 0; mark_issued-- };
	      pool_gate_tell();
	      break
	   fi
	:: else -> break
	od
}

inline pool_settle()
{
	if
	:: segment == PENDING && mark_done >= number -> segment = CACHED; puts++
	:: segment == PENDING && mark_done < number -> pool_want(number)
	:: else
	fi
}

/* ---- pool/reclaim.c and pool/pool.c ---- */

inline pool_trim()
{
	atomic {
		pool_settle();
		if :: segment == CACHED -> segment = UNWANTED :: else fi
	}
	atomic { /* take_unwanted */
		if
		:: segment == UNWANTED && mark_done >= number -> segment = NONE; put_off++; has = 1
		:: segment == UNWANTED && mark_done < number -> pool_want(number)
		:: else
		fi
	}
	if
	:: has -> atomic { due++; has = 0 }
	:: else
	fi;
	pool_put_marks();
	pool_gate_give_due(any, granted, busy)
}

/* The last resort, before the thread waits: the segment is still to be given. */
inline pool_take_back()
{
	atomic {
		if
		/* mutant 18 waits although it could take the segment */
		:: fits && due > 0 && MUTANT != 18 ->
			due--;
			returned = returned + (MUTANT != 19); /* mutant 19 does not count it */
			got = 1
		:: else
		fi
	}
}

/* The thread is counted first, and then looks whether `moment` has passed. again: it wakes up soon,
 * and looks again. */
inline wait_for_any(limit)
{
#if MUTANT != 7 /* mutant 7 counts the thread after its last look */
	waiting_count++;
#endif
	listens[ALLOC] = 1;
#if MUTANT != 16 /* mutant 16 has no room for these words, and does not look again soon */
	was_in_flight[0] = IN_FLIGHT(0);
	was_in_flight[1] = IN_FLIGHT(1);
#endif
	atomic {
		marked = (mark_done < mark_issued || mark_done < wanted -> mark_done + 1 : 0);
#if MUTANT != 11 /* mutant 11 does not try again to put a mark that the driver has refused */
		again = wanted > mark_issued && !putting && mark_done == mark_issued
#endif
	}
	if
	:: moment == MOMENT ->
		pool_gate_give_due(any, granted, busy);
#if MUTANT == 7
		waiting_count++;
#endif
		if
		:: any
		:: else ->
			if
			:: listens[ALLOC] == 2
			:: was_in_flight[0] && done[0]
			:: was_in_flight[1] && done[1]
			:: marked > 0 && mark_done >= marked
			:: again
			/* mutant 13 has no limit although rank 1 waits for it */
			:: limit && MUTANT != 13 -> timed_out = 1
			fi
		fi
	:: else
#if MUTANT == 7
		-> waiting_count++
#endif
	fi;
	atomic {
		waiting_count--;
		listens[ALLOC] = 0;
		was_in_flight[0] = 0; was_in_flight[1] = 0; marked = 0; again = 0; any = 0
	}
}

inline alloc_slowly()
{
	moment = MOMENT;
	do
	:: atomic { pool_settle() };
	   pool_put_marks();
	   atomic { !driver[0] -> got = memory && !too_large; memory = memory && !got };
	   if :: got -> break :: else fi;
#if MUTANT == 3 /* synchronises the device */
	   atomic { !driver[0] -> driver[0] = 1 };
	   atomic { IDLE -> driver[0] = 0 };
#endif
	   pool_trim();
	   pool_take_back();
	   if :: got -> break :: else fi;
	   atomic { some = put_off > returned || segment == PENDING || wanted > mark_done };
	   if
	   :: moment != MOMENT
	   :: moment == MOMENT && !some -> break
	   :: moment == MOMENT && some ->
		wait_for_any(rank_1_depends && !(fits && mark_done >= number))
	   fi;
	   if :: timed_out -> break :: else fi;
	   atomic { some = 0; moment = MOMENT }
	od;
	atomic { assert(got || timed_out || too_large); some = 0; timed_out = 0; moment = 0 }
}

inline pool_close()
{
	number = mark_issued + 1;
	do
	:: atomic { moment = MOMENT };
	   if :: mark_done >= number -> break :: else fi;
	   atomic { pool_want(number) };
	   pool_put_marks();
	   wait_for_any(false)
	od;
	if
	:: segment != NONE ->
		atomic { segment = NONE; put_off++ };
		due++;
		pool_gate_give_due(any, granted, busy)
	:: else
	fi;
	do
#if MUTANT == 12 /* reads it too late: a give after the test is overlooked */
	:: put_off > returned -> moment = MOMENT;
	   wait_for_any(false)
	:: put_off == returned -> break
#else
	:: moment = MOMENT;
	   if :: put_off == returned -> break :: else fi;
	   wait_for_any(false)
#endif
	od;
	closed = 1
}

/* ---- rank 0 ---- */

proctype allocator()
{
	byte moment, marked;
	bit has, any, granted, busy, was_in_flight[2], some, again, got, timed_out;
	/* Stream 0 has used the segment, or owns it. */
	atomic {
		number = mark_issued + 1;
		if
		:: segment = PENDING; pool_want(number)
		:: segment = CACHED; puts++
		fi
	}
	pool_put_marks();
	pool_gate_tell();
	alloc_slowly();
	message_sent = 1;
	if
	:: atomic { got -> segment = CACHED; puts++ } /* freed at once */
	:: else
	fi;
	trimmed;
	pool_close();
	assert(memory)
}

/* The pool wants a mark to merge neighbours, and gives nothing. */
inline trim_in_vain()
{
	atomic { pool_want(mark_issued + 1) };
	pool_put_marks()
}

proctype launcher()
{
	bit any, granted, busy;
	pool_gate_begin();
	issued[0] = 1;
	atomic { !driver[0] -> received[0] = 1 };
	if
	:: pool_gate_end();
	   pool_gate_begin()
	:: skip
	fi;
#if MUTANT == 5 /* waits for memory between begin and end */
	returned > 0;
#endif
	!pool_lock; /* allocates from the cache */
	issued[1] = 1;
	atomic { !driver[0] -> sent[0] = 1 };
	pool_gate_end();
	if
	:: trim_in_vain()
	:: skip
	fi;
	trimmed = 1;
	if
	:: pool_gate_give_due(any, granted, busy) /* of another pool */
	:: skip
	fi
}

proctype device()
{
end:	do
	:: atomic { received[0] && sent[1] && !done[0] -> done[0] = 1 }
	:: atomic { sent[0] && received[1] && !done[1] -> done[1] = 1 }
	:: atomic {
		mark && !(mark_waits && !done[0]) -> mark = 0;
		mark_waits = 0;
		mark_done = mark_issued
	   }
	od
}

/* ---- rank 1 ---- */

proctype launcher_1()
{
	!rank_1_depends || message_sent;
	atomic {
		!giving_1 && !driver[1] -> received[1] = 1;
		if
		:: open_1 = 1 /* both are one launch */
		:: skip
		fi
	}
	if
	:: skip
#if MUTANT != 1 && MUTANT != 2 && MUTANT != 3 /* which fail between two such ranks */
	:: !open_1 -> sent[0] /* its receive is done */
#endif
	fi;
	atomic { (open_1 || !giving_1) && !driver[1] -> sent[1] = 1; open_1 = 0 }
}

proctype giver_1()
{
	atomic {
#if MUTANT == 1 || MUTANT == 3
		!driver[1] ->
#elif MUTANT == 2
		!driver[1] && !open_1 ->
#else
		!driver[1] && !open_1 && !IN_FLIGHT_1 ->
#endif
		giving_1 = 1;
		driver[1] = 1
	}
	atomic { !IN_FLIGHT_1 -> driver[1] = 0; giving_1 = 0 }
}

init {
	atomic {
		if
		:: rank_1_depends = 1;
		   if :: fits = 1 :: skip fi
#if MUTANT == 0 || MUTANT == 17
		:: too_large = 1
#endif
		:: skip
		fi;
		run allocator(); run launcher(); run device(); run launcher_1(); run giver_1()
	}
}
