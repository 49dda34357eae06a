/* SPDX-License-Identifier: BSD-3-Clause
 * Part of gate.pml: gate.c, when launches and gives begin, and who is told that they have ended. */

inline pool_gate_tell()
{
	if
	:: atomic { waiting_count > 0 -> skip };
	   atomic {
		if :: listens[ALLOC] == 1 -> listens[ALLOC] = 2 :: else fi;
		if :: listens[LAUNCH] == 1 -> listens[LAUNCH] = 2 :: else fi
	   }
	:: else
	fi
}

inline await_give()
{
	waiting_count++;
	listens[LAUNCH] = 1;
	if
	:: giving -> listens[LAUNCH] == 2
	:: else
	fi;
	atomic { waiting_count--; listens[LAUNCH] = 0 }
}

/* Mutant 14 begins a launch although a give is under way. */
inline pool_gate_begin()
{
	do
	:: atomic { !giving || MUTANT == 14 -> open_count++; has_begun = 1 }; break
	:: atomic { giving && MUTANT != 14 -> open_count++ };
	   open_count--;
	   pool_gate_tell();
	   await_give()
	od
}

inline pool_gate_end()
{
	atomic { open_count--; has_begun = 0 }
#if MUTANT != 6 /* mutant 6 tells nobody that a launch has ended */
	pool_gate_tell()
#endif
}

inline end_giving()
{
	giving = 0;
#if MUTANT != 15 /* mutant 15 tells nobody that a give has ended */
	pool_gate_tell()
#endif
}

inline begin_giving(granted, busy)
{
	granted = 0;
#if MUTANT == 1 /* has no gate */
	granted = 1;
#else
#if MUTANT != 2 /* mutant 2: launches and gives only exclude each other */
	busy = IN_FLIGHT(0) || IN_FLIGHT(1);
#endif
	if
	:: !busy ->
		atomic {
			if
			:: open_count == 0 && !giving -> giving = 1; granted = 1
			:: else
			fi
		}
	:: else
	fi;
#if MUTANT != 2 && MUTANT != 8 /* mutant 8 does not look again, once no launch can begin */
	if
	:: granted ->
		busy = IN_FLIGHT(0) || IN_FLIGHT(1);
		if
		:: busy -> end_giving(); granted = 0
		:: else
		fi
	:: else
	fi;
#endif
	busy = 0
#endif
}

/* Mutants 1, 2, 8 and 14 fail this; they are to show what follows. */
inline give()
{
	atomic {
		!driver[0] -> driver[0] = 1;
		assert(MUTANT == 1 || MUTANT == 2 || MUTANT == 8 || MUTANT == 14 ||
		       !has_begun && !IN_FLIGHT(0) && !IN_FLIGHT(1))
	}
	atomic { IDLE -> driver[0] = 0; memory = 1 }
	/* `given` of the pool */
#if MUTANT == 17 /* MOMENT changes while the segment still counts as put off */
	atomic { assert(!closed); given++ }
#endif
	atomic { assert(!closed); returned++ }
}

inline pool_gate_give_due(any, granted, busy)
{
	any = 0;
	do
	:: due == 0 -> break
	:: due > 0 ->
		begin_giving(granted, busy);
		if :: !granted -> break :: else -> granted = 0 fi;
		if
		:: atomic { due > 0 -> due--; any = 1 }; give()
		:: due == 0
		fi;
#if MUTANT != 1
		end_giving()
#endif
	od
}
