/* SPDX-License-Identifier: BSD-3-Clause
 * How a rank gets its buffer back after a failure (transport_channel_quiet in src/transport/channel.c): two threads of
 * the owner of a channel each claim a message of the source, and read its buffer unless the group has
 * failed; the source fails, or learns that somebody else has, and waits until what was claimed has been
 * taken. A collective is the same with `entered` for matched, `finished` for taken, and one of each
 * for every rank (engine_abandon). That the doorbell loses no wake-up is shown in doorbell.pml.
 *
 * Shown: nobody reads the buffer once the source has it back, and the source gets it back. */
/* mutants: 1 2 3 4 5 */
#ifndef MUTANT
#define MUTANT 0
#endif

bit cause;
byte matched, taken;
bit mine_again; /* for the assertion: the source's call has returned its error */

/* Reads in two chunks and looks at the cause before each. */
proctype owner()
{
	byte chunk;
	bit failed;
#if MUTANT == 1
	failed = cause; /* before the claim */
	matched++;
#elif MUTANT == 2
	failed = 0; /* the source alone decides */
	matched++;
#else
	matched++;
	failed = cause;
#endif
#if MUTANT == 3
	taken++; /* before it has read */
#endif
	do
	:: !failed && chunk < 2 ->
		assert(!mine_again);
		chunk++;
#if MUTANT != 2
		failed = cause
#endif
	:: else -> break
	od;
#if MUTANT != 3
	taken++
#endif
}

proctype source()
{
	byte seen_taken, seen_matched;
#if MUTANT != 5
	if
	:: cause = 1 /* its own time limit */
	:: cause == 1 /* somebody else's */
	fi;
#endif
	do
	:: true ->
#if MUTANT == 4
		seen_matched = matched;
		seen_taken = taken;
#else
		seen_taken = taken;
		seen_matched = matched;
#endif
		if
		:: seen_taken >= seen_matched -> break
		:: else -> taken >= seen_matched /* sleeps */
		fi
	od;
	mine_again = 1
}

proctype other()
{
	cause = 1
}

init {
	atomic { run owner(); run owner(); run source(); run other() }
}
