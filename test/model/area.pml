/* SPDX-License-Identifier: BSD-3-Clause
 * How an area is used again (src/group/make.c, split.c): two ranks make one group after the other, each with its
 * one area. Before it offers the area again its owner waits until both have left the last group, and makes it as
 * new. `times_closed` only grows, and what it was is told with the offer; a third rank, which was stopped while it
 * explained a failure of some group, publishes that at any time.
 *
 * Shown: nobody finds anything of an older group in an area, a failure closes the group that it was of, and
 * every group is made in the end. */
/* mutants: 1 2 3 4 5 */
#ifndef MUTANT
#define MUTANT 0
#endif
#define GROUPS 3

byte left[2];
byte word[2];  /* in the area of each: 0, or the group whose member has written it */
byte told[8];  /* [group][rank]: left, as told with the offer */
byte made[2];  /* groups for which the rank has told its offer */
byte cause;    /* in the area of rank 0: 2 * group + 1 once that has failed */
byte failed;   /* for the assertion: the group that has */

#if MUTANT == 2
#define HAS_LEFT(q) (left[q] != 0)
#else
#define HAS_LEFT(q) (left[q] != stays[q])
#endif

proctype member(byte me)
{
	byte group = 1, other = 1 - me, seen;
	byte stays[2];
	do
	:: group <= GROUPS ->
		if
		:: group > 1 ->
#if MUTANT == 1
			HAS_LEFT(me);
#elif MUTANT != 3
			HAS_LEFT(me) && HAS_LEFT(other);
#endif
#if MUTANT != 3
			word[me] = 0;
#if MUTANT == 2
			left[me] = 0;
#endif
			if
			:: me == 0 -> cause = 0
			:: else
			fi
#endif
		:: else
		fi;
		told[2 * group + me] = left[me];
		made[me] = group;
		made[other] >= group; /* the all-gather */
#if MUTANT == 3
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
#if MUTANT == 5
		stays[0] = left[0]; /* what it is by now */
		stays[1] = left[1];
#else
		stays[0] = told[2 * group];
		stays[1] = told[2 * group + 1];
#endif
		if
		:: me == 0 && cause == 0 -> cause = 2 * group
		:: else
		fi;
		/* The group is used. */
		seen = word[me];
		assert(seen == 0 || seen == group);
		word[other] = group;
		if
		:: word[me] == group
		:: cause & 1
		fi;
		seen = cause;
		assert(!(seen & 1) || failed == group);
		left[me]++;
		group++
	:: else -> break
	od
}

proctype explainer()
{
	byte seen;
	cause > 0;
	seen = cause;
	if
	:: seen > 0 ->
		atomic {
			if
#if MUTANT == 4
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
	atomic { run member(0); run member(1); run explainer() }
}
