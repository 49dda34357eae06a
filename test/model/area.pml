/* SPDX-License-Identifier: BSD-3-Clause
 * One group after another uses an area (src/group/make.c, split.c).
 *
 * Properties:
 * - No rank finds anything of an older group in an area.
 * - A failure sets the cause of the group that has failed, and of no other group.
 * - Every group is made in the end.
 *
 * Processes: two members make GROUPS groups, one after the other. Each member has one area. It
 * resets its area, and offers it for the next group, only after both members have left the last
 * group. `times_closed` only grows, and the offer includes its value: a member has left the group
 * once the word has another value. The reporter is a third rank. It has read the cause of some
 * group, and was then stopped; it sets that cause at any later time.
 *
 * Abstractions: one word stands for all that a peer writes into an area. The exchange of offers is
 * one all-gather, because no rank uses an area before it has all offers.
 *
 * Mutants: each makes one mistake, which the comment at its `#if MUTANT` names. Spin must refuse
 * it. */
/* mutants: 1 2 3 4 5 */
#ifndef MUTANT
#define MUTANT 0
#endif
#define GROUPS 3

byte times_closed[2];
byte word[2]; /* in the area of each rank: 0, or the group in which the other member wrote it */
byte offered[8]; /* [group][rank]: times_closed, as in the offer */
byte groups_offered[2]; /* how many groups the rank has made an offer for */
byte cause; /* in the area of rank 0: 2 * group; + 1 once that group has failed */
byte failed; /* for the assertion: the group that has failed */

#if MUTANT == 2 /* the count is a flag, which is reset with the area */
#define HAS_LEFT(q) (times_closed[q] != 0)
#else
#define HAS_LEFT(q) (times_closed[q] != left_before[q])
#endif

proctype member(byte me)
{
	byte group = 1, other = 1 - me, seen;
	byte left_before[2];
	do
	:: group <= GROUPS ->
		if
		:: group > 1 ->
#if MUTANT == 1 /* does not wait until the other member has left */
			HAS_LEFT(me);
#elif MUTANT != 3
			HAS_LEFT(me) && HAS_LEFT(other);
#endif
#if MUTANT != 3
			word[me] = 0;
#if MUTANT == 2
			times_closed[me] = 0;
#endif
			if
			:: me == 0 -> cause = 0
			:: else
			fi
#endif
		:: else
		fi;
		offered[2 * group + me] = times_closed[me];
		groups_offered[me] = group;
		groups_offered[other] >= group; /* the all-gather */
#if MUTANT == 3 /* resets the area only after it has offered it */
		if
		:: group > 1 ->
			HAS_LEFT(me) && HAS_LEFT(other);
			word[me] = 0;
			if
			:: me == 0 -> cause = 0
			:: else
			fi
		:: else
		fi;
#endif
#if MUTANT == 5 /* takes the present count, and not the one in the offer */
		left_before[0] = times_closed[0];
		left_before[1] = times_closed[1];
#else
		left_before[0] = offered[2 * group];
		left_before[1] = offered[2 * group + 1];
#endif
		if
		:: me == 0 && cause == 0 -> cause = 2 * group
		:: else
		fi;
		/* The members use the group. */
		seen = word[me];
		assert(seen == 0 || seen == group);
		word[other] = group;
		if
		:: word[me] == group
		:: cause & 1
		fi;
		seen = cause;
		assert(!(seen & 1) || failed == group);
		times_closed[me]++;
		group++
	:: else -> break
	od
}

proctype reporter()
{
	byte seen;
	cause > 0;
	seen = cause;
	if
	:: seen > 0 ->
		atomic {
			if
#if MUTANT == 4 /* sets the cause of whichever group has the area now */
			:: !(cause & 1) && cause > 0 -> cause = cause + 1; failed = seen / 2
#else
			:: cause == seen -> cause = seen + 1; failed = seen / 2
#endif
			:: else
			fi
		}
	:: else
	fi
}

init {
	atomic { run member(0); run member(1); run reporter() }
}
