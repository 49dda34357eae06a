/* SPDX-License-Identifier: BSD-3-Clause
 * How a rank gets its buffer back after a failure (transport_channel_quiet in
 * src/transport/channel.c).
 *
 * Properties:
 * - No rank reads the buffer after the source's call has returned.
 * - The call returns.
 *
 * Processes: two threads of a channel's owner each claim a message of the source, and read its
 * buffer unless the group has failed. The source makes the group fail, or learns that another rank
 * has. Then it waits until all messages that were claimed have been taken.
 *
 * Abstractions: a wait is a guard on the awaited word; doorbell.pml shows that no wake-up is lost.
 * A collective (src/engine/abandon.c) does the same, with one word of each rank: it has `entered`
 * in place of `matched`, and `finished` in place of `taken`.
 *
 * Mutants: each makes one mistake, which the comment at its `#if MUTANT` names. Spin must refuse
 * it. */
/* mutants: 1 2 3 4 5 */
#ifndef MUTANT
#define MUTANT 0
#endif

bit cause;
byte matched, taken;
bit has_returned; /* for the assertion: the source's call has returned its error */

/* Reads in two chunks, and reads the cause before each. */
proctype owner()
{
	byte chunk;
	bit failed;
#if MUTANT == 1 /* reads the cause before it claims */
	failed = cause;
	matched++;
#elif MUTANT == 2 /* does not read the cause */
	failed = 0;
	matched++;
#else
	matched++;
	failed = cause;
#endif
#if MUTANT == 3 /* counts the message as taken before it has read */
	taken++;
#endif
	do
	:: !failed && chunk < 2 ->
		assert(!has_returned);
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
#if MUTANT != 5 /* mutant 5 takes its buffer back although the group has not failed */
	if
	:: cause = 1 /* its own time limit has passed */
	:: cause == 1 /* another rank has failed */
	fi;
#endif
	do
	:: true ->
#if MUTANT == 4 /* reads the words in the wrong order */
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
	has_returned = 1
}

proctype other_rank()
{
	cause = 1
}

init {
	atomic { run owner(); run owner(); run source(); run other_rank() }
}
