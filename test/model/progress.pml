/* SPDX-License-Identifier: BSD-3-Clause
 * How the progress thread is called (src/group/progress.c), and what the board says of it: it is on the board only while
 * it drives, and counted in `unpublished` from the moment it is called until it is there. Two threads queue operations;
 * going on with one is one step. A sleep is a guard on the count of calls: see doorbell.pml.
 *
 * Shown: nothing stays in the queue; the board never says that nobody is about to do anything while something is there;
 * and in the end nobody is counted. */
/* mutants: 1 2 3 4 5 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define AWAY 0
#define CALLED 1
#define ON_BOARD 2
#define CALLED_ON_BOARD 3
byte seen;

#define CALLS 2
byte queued, work;
short unpublished;
bit on_board;
byte calling = 2; /* threads that are in a call, which everybody sees */

/* group_progress_wake */
inline call(was)
{
	atomic {
		was = seen;
		if
		:: was == AWAY -> seen = CALLED
		:: was == ON_BOARD -> seen = CALLED_ON_BOARD
		:: else
		fi
	}
#if MUTANT != 1 /* it is about to drive, and nobody knows of it */
	if
	:: was == AWAY -> unpublished++
	:: else
	fi;
#endif
	work++
}

proctype caller()
{
	byte left = CALLS, was;
	do
	:: left > 0 ->
		left--;
#if MUTANT == 4 /* it may have looked before */
		call(was);
		queued++
#else
		queued++;
		call(was)
#endif
	:: else -> break
	od;
	calling--
}

inline answer(was)
{
#if MUTANT != 5 /* it is no longer counted, and not on the board yet */
	on_board = 1;
#endif
	atomic { was = seen; seen = ON_BOARD };
#if MUTANT != 1 && MUTANT != 2 /* it is counted for ever */
	if
	:: was == CALLED -> unpublished--
	:: else
	fi;
#endif
#if MUTANT == 5
	on_board = 1
#endif
}

inline go_away(was)
{
	atomic {
		was = seen;
		if
		:: was == ON_BOARD -> seen = AWAY
		:: else
		fi
	}
	if
	:: was == ON_BOARD -> on_board = 0
	:: else
	fi
}

proctype progress()
{
	byte known, was;
	do
	::
#if MUTANT != 3 /* a call while it looks is overlooked */
		known = work;
#endif
		answer(was);
		do
		:: atomic { queued > 0 -> queued-- }
		:: queued == 0 -> break
		od;
		go_away(was);
#if MUTANT == 3
		known = work;
#endif
end_sleeps:	work != known
	od
}

/* What a look sees. */
proctype diagnosis()
{
end:	atomic { unpublished == 0 && calling == 0 && !on_board && queued > 0 -> assert(false) }
}

proctype ending()
{
	timeout;
	assert(queued == 0 && unpublished == 0)
}

init {
	atomic {
		run caller();
		run caller();
		run progress();
		run diagnosis();
		run ending()
	}
}
