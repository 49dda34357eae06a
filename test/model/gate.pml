/* SPDX-License-Identifier: BSD-3-Clause
 * Launch, free, allocate and run out of memory (src/pool: gate.c; alloc_slowly, pool_trim,
 * wait_for_any, pool_put_marks, pool_close). Two ranks, each with a driver whose give waits until
 * all that the rank has launched is done, while its other calls wait behind. Each rank launches a
 * receive behind one stream and a send behind another one; their kernels wait for the other rank's.
 *
 * Rank 0 is there with every step of two threads. One launches, then trims. The other one frees the
 * segment that is all memory of the device, allocates a larger one, frees that and closes the pool.
 * Of rank 1 there is what rank 0 can notice: a give; and the launches, which are one or two, of
 * which the second may wait on the host for the result of the first, and both for a message that
 * rank 0 sends after the allocation.
 *
 * What is done under the pool's or the gate's lock is one step. A wait is a guard on the awaited
 * words (see doorbell.pml); `heard` is whether `changes` was raised since the thread has read it.
 * All mutants deadlock, or fail the allocation. Not here: memory that is taken back from the gate,
 * a device that breaks.
 *
 * Shown: nobody waits for ever, though the allocation has a time limit only where rank 1 waits for
 * it. Unless that ends it, the allocation gets its memory, as all was free before; or, if the
 * device has not so much, it learns that. A give begins only when nothing is open or in flight. In
 * the end the driver has everything back, and nobody touches the pool after that. */
/* mutants: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define ALLOC 0
#define LAUNCH 1

/* What the ranks have launched. */
bit received[2], sent[2];
bit driver[2]; /* in a call that keeps the others waiting */

/* Rank 1, and its gate. */
bit open_1, giving_1;
#define IN_FLIGHT_1 (received[1] && !sent[0] || sent[1] && !received[0])

/* Of the program. */
bit asks; /* rank 1 launches after a message, that rank 0 has the memory or has none */
bit told;
bit huge; /* the device has less than the allocation wants */

/* Rank 0: struct pool_gate. Stream 0: receives; stream 1: sends. */
byte open_count; /* also for a moment by a thread that finds `giving` */
bit begun;       /* a launch has */
bit giving;
bit issued[2], done[2];
byte due, waiting_count;
byte heard[2]; /* by thread. 0: it does not listen; 1: has read `changes`; 2: raised since then */

/* struct pool, with one segment at a time, and stream 0: the one that receives. */
mtype = { NONE, LIVE, PENDING, CACHED, UNWANTED };
mtype segment = LIVE;
byte number; /* that stream 0 must have reached before the segment is cached, or is given */
byte mark_issued, mark_done, wanted;
bit putting;
byte puts, put_off, returned; /* segments that became cached, went to the gate, left it */
bit mark, mark_waits; /* a mark is under way; behind the receive */
bit refused;          /* the driver has refused a mark; once */
bit pool_lock;        /* is held in a call of the driver: by mutant 4 only */
bit memory;           /* the driver has the segment */
bit trimmed, closed;

#define IN_FLIGHT(stream) (issued[stream] && !done[stream])
#define IDLE (!(received[0] && !done[0]) && !(sent[0] && !done[1]) && !mark)
#if MUTANT == 9 /* it does not show what was given */
#define MOMENT (puts + mark_done)
#elif MUTANT == 17
byte given;
#define MOMENT (puts + mark_done + given)
#else
#define MOMENT (puts + mark_done + returned)
#endif

/* ---- gate.c ---- */

inline tell()
{
	if
	:: atomic { waiting_count > 0 -> skip };
	   atomic { /* pool_gate_wake */
		if :: heard[ALLOC] == 1 -> heard[ALLOC] = 2 :: else fi;
		if :: heard[LAUNCH] == 1 -> heard[LAUNCH] = 2 :: else fi
	   }
	:: else
	fi
}

inline await_give()
{
	waiting_count++;
	heard[LAUNCH] = 1;
	if
	:: giving -> heard[LAUNCH] == 2
	:: else
	fi;
	atomic { waiting_count--; heard[LAUNCH] = 0 }
}

/* mutant 14: a launch begins although a give is under way */
inline pool_gate_begin()
{
	do
	:: atomic { !giving || MUTANT == 14 -> open_count++; begun = 1 }; break
	:: atomic { giving && MUTANT != 14 -> open_count++ };
	   open_count--;
	   tell();
	   await_give()
	od
}

inline pool_gate_end()
{
	atomic { open_count--; begun = 0 }
#if MUTANT != 6 /* else nobody is told that a launch has ended */
	tell()
#endif
}

inline end_giving()
{
	giving = 0;
#if MUTANT != 15 /* else nobody is told that a give has ended */
	tell()
#endif
}

inline begin_giving(may, flying)
{
	may = 0;
#if MUTANT == 1 /* no gate */
	may = 1;
#else
#if MUTANT != 2 /* else launches and gives only exclude each other */
	flying = IN_FLIGHT(0) || IN_FLIGHT(1);
#endif
	if
	:: !flying ->
		atomic {
			if
			:: open_count == 0 && !giving -> giving = 1; may = 1
			:: else
			fi
		}
	:: else
	fi;
#if MUTANT != 2 && MUTANT != 8 /* else it does not look again, once no launch can begin */
	if
	:: may ->
		flying = IN_FLIGHT(0) || IN_FLIGHT(1);
		if
		:: flying -> end_giving(); may = 0
		:: else
		fi
	:: else
	fi;
#endif
	flying = 0
#endif
}

/* Those mutants are to show what comes of it. */
inline give()
{
	atomic {
		!driver[0] -> driver[0] = 1;
		assert(MUTANT == 1 || MUTANT == 2 || MUTANT == 8 || MUTANT == 14 ||
		       !begun && !IN_FLIGHT(0) && !IN_FLIGHT(1))
	}
	atomic { IDLE -> driver[0] = 0; memory = 1 }
	/* pool's given */
#if MUTANT == 17 /* MOMENT changes before there is less to come */
	atomic { assert(!closed); given++ }
#endif
	atomic { assert(!closed); returned++ }
}

inline give_due(any, may, flying)
{
	any = 0;
	do
	:: due == 0 -> break
	:: due > 0 ->
		begin_giving(may, flying);
		if :: !may -> break :: else -> may = 0 fi;
		if
		:: atomic { due > 0 -> due--; any = 1 }; give()
		:: due == 0
		fi;
#if MUTANT != 1
		end_giving()
#endif
	od
}

/* ---- pool/marks.c ---- */

inline want(n)
{
	if :: wanted < n -> wanted = n :: else fi
}

/* Once it has put a mark it looks whether another one is wanted, which others have left to it. */
inline put_marks()
{
	do
	:: atomic {
		wanted > mark_issued && !putting && mark_done >= mark_issued ->
		putting = 1;
		mark_issued++;
		pool_lock = (MUTANT == 4)
	   };
	   /* The queue may be full: the driver waits for room, and other calls go on meanwhile. */
	   if
	   :: skip
	   :: _pid == 1 && !asks -> !(received[0] && !done[0])
	   fi;
	   if
	   :: atomic { !driver[0] -> mark = 1; mark_waits = received[0] && !done[0] };
	      atomic { putting = 0; pool_lock = 0 };
#if MUTANT == 10 /* then nobody puts the next one */
	      break
#endif
	   :: atomic { _pid == 2 && !refused -> refused = 1 }; /* captured, say */
	      atomic { putting = 0; pool_lock = 0; mark_issued-- };
	      tell();
	      break
	   fi
	:: else -> break
	od
}

inline settle()
{
	if
	:: segment == PENDING && mark_done >= number -> segment = CACHED; puts++
	:: segment == PENDING && mark_done < number -> want(number)
	:: else
	fi
}

/* ---- pool/reclaim.c, and pool.c ---- */

inline trim()
{
	atomic {
		settle();
		if :: segment == CACHED -> segment = UNWANTED :: else fi
	}
	atomic { /* take_unwanted */
		if
		:: segment == UNWANTED && mark_done >= number -> segment = NONE; put_off++; has = 1
		:: segment == UNWANTED && mark_done < number -> want(number)
		:: else
		fi
	}
	if
	:: has -> atomic { due++; has = 0 }
	:: else
	fi;
	put_marks();
	give_due(any, may, flying)
}

/* What may have changed since `moment` is looked at once the thread is counted. again: it looks
 * again soon. */
inline wait_for_any(limit)
{
#if MUTANT != 7 /* else it is counted after its last look */
	waiting_count++;
#endif
	heard[ALLOC] = 1;
#if MUTANT != 16 /* else there was no room for these words, and it does not look again soon */
	flies[0] = IN_FLIGHT(0);
	flies[1] = IN_FLIGHT(1);
#endif
	atomic {
		marked = (mark_done < mark_issued || mark_done < wanted -> mark_done + 1 : 0);
#if MUTANT != 11 /* else nobody puts the mark that is wanted, if the driver has refused it */
		again = wanted > mark_issued && !putting && mark_done == mark_issued
#endif
	}
	if
	:: moment == MOMENT ->
		give_due(any, may, flying);
#if MUTANT == 7
		waiting_count++;
#endif
		if
		:: any
		:: else ->
			if
			:: heard[ALLOC] == 2
			:: flies[0] && done[0]
			:: flies[1] && done[1]
			:: marked > 0 && mark_done >= marked
			:: again
			/* mutant 13: although rank 1 waits for it */
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
		heard[ALLOC] = 0;
		flies[0] = 0; flies[1] = 0; marked = 0; again = 0; any = 0
	}
}

inline alloc()
{
	moment = MOMENT;
	do
	:: atomic { settle() };
	   put_marks();
	   atomic { !driver[0] -> got = memory && !huge; memory = memory && !got }; /* take */
	   if :: got -> break :: else fi;
#if MUTANT == 3 /* synchronises */
	   atomic { !driver[0] -> driver[0] = 1 };
	   atomic { IDLE -> driver[0] = 0 };
#endif
	   trim();
	   atomic { some = put_off > returned || segment == PENDING || wanted > mark_done };
	   if
	   :: moment != MOMENT
	   :: moment == MOMENT && !some -> break
	   :: moment == MOMENT && some -> wait_for_any(asks)
	   fi;
	   if :: timed_out -> break :: else fi;
	   atomic { some = 0; moment = MOMENT }
	od;
	atomic { assert(got || timed_out || huge); some = 0; timed_out = 0; moment = 0 }
}

inline close()
{
	number = mark_issued + 1;
	do
	:: atomic { moment = MOMENT };
	   if :: mark_done >= number -> break :: else fi;
	   atomic { want(number) };
	   put_marks();
	   wait_for_any(false)
	od;
	if
	:: segment != NONE ->
		atomic { segment = NONE; put_off++ };
		due++;
		give_due(any, may, flying)
	:: else
	fi;
	do
#if MUTANT == 12 /* too late to see what was given after the look */
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

proctype allocates()
{
	byte moment, marked;
	bit has, any, may, flying, flies[2], some, again, got, timed_out;
	/* Stream 0 has used it, or owns it. */
	atomic {
		number = mark_issued + 1;
		if
		:: segment = PENDING; want(number)
		:: segment = CACHED; puts++
		fi
	}
	put_marks();
	tell();
	alloc();
	told = 1;
	if
	:: atomic { got -> segment = CACHED; puts++ } /* freed at once */
	:: else
	fi;
	trimmed;
	close();
	assert(memory)
}

/* The pool wants a mark, so that neighbours can be merged; but nothing is given that way. */
inline trim_some()
{
	atomic { want(mark_issued + 1) };
	put_marks()
}

proctype launches()
{
	bit any, may, flying;
	pool_gate_begin();
	issued[0] = 1;
	atomic { !driver[0] -> received[0] = 1 };
	if
	:: pool_gate_end();
	   pool_gate_begin()
	:: skip
	fi;
#if MUTANT == 5 /* an allocation between begin and end waits for memory */
	returned > 0;
#endif
	!pool_lock; /* an allocation from the cache */
	issued[1] = 1;
	atomic { !driver[0] -> sent[0] = 1 };
	pool_gate_end();
	if
	:: trim_some()
	:: skip
	fi;
	trimmed = 1;
	if
	:: give_due(any, may, flying) /* for another pool */
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

proctype launches_1()
{
	!asks || told;
	atomic {
		!giving_1 && !driver[1] -> received[1] = 1;
		if
		:: open_1 = 1 /* both are one launch */
		:: skip
		fi
	}
	if
	:: skip
#if MUTANT != 1 && MUTANT != 2 && MUTANT != 3 /* which fail between two equals */
	:: !open_1 -> sent[0] /* the receive is over */
#endif
	fi;
	atomic { (open_1 || !giving_1) && !driver[1] -> sent[1] = 1; open_1 = 0 }
}

proctype gives_1()
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
		:: asks = 1
#if MUTANT == 0 || MUTANT == 17
		:: huge = 1
#endif
		:: skip
		fi;
		run allocates(); run launches(); run device(); run launches_1(); run gives_1()
	}
}
