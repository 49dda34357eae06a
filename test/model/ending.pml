/* SPDX-License-Identifier: BSD-3-Clause
 * What is found at the end of a group (src/engine/end.c), in the case in which nothing else finds it: two members
 * that only give, so that neither looks at the other's entries for its own sake. Each draws what it calls, up to
 * MOST collectives of two sorts. A ring has K entries, so a rank is at most K ahead. Either may stay in the group,
 * as if it waited for somebody else, until the other one has left. Each makes its area anew once both have left.
 *
 * Shown: if the two differ, in number or in sort, one of them finds it in a call or when it closes the group, and
 * before one has left, as far as the other has come by then; if they do not differ nobody finds anything; what is
 * looked at is of this group; and neither waits for the other but for a free slot. */
#define MOST 3
#define K 2

byte number[4], history[4]; /* [member * K + slot]: 0, or an entry's number, and what was called up to it */
byte ended[2], end_history[2], members_ended[2];
bool left[2];
bool found; /* the cause */

/* For the assertions. */
bool anew[2];
byte count_of[2], sorts_of[2];

#define ENTRY(who, seq) ((who) * K + (seq) % K)
#define OTHER (1 - me)

inline look_at_end()
{
	theirs = ended[OTHER];
	their_history = end_history[OTHER];
	assert(!anew[OTHER])
}

inline tell()
{
	end_history[me] = hist;
	ended[me] = seq + 1;
	members_ended[OTHER]++
}

inline compare()
{
	look_at_end();
	if
#ifdef MUTANT_COUNTS_ONLY
	:: theirs != 0 -> differs = (theirs - 1 != seq)
#else
	:: theirs != 0 -> differs = (theirs - 1 != seq || their_history != hist)
#endif
	:: else ->
#ifndef MUTANT_NOT_THE_NEXT
		differs = (number[ENTRY(OTHER, seq + 1)] == seq + 1);
#endif
		if
		:: seq > 0 && number[ENTRY(OTHER, seq)] == seq ->
			differs = (differs || history[ENTRY(OTHER, seq)] != hist)
		:: else
		fi;
		assert(!anew[OTHER])
	fi
}

inline enter()
{
	if
	:: hist = hist * 2
	:: hist = hist * 2 + 1
	fi;
	seq++;
	history[ENTRY(me, seq)] = hist;
	number[ENTRY(me, seq)] = seq;
	if
#ifdef MUTANT_ENTERS_BLIND
	:: false ->
#else
#ifdef MUTANT_TOLD_BY_LEAVING
	:: left[OTHER] ->
#else
	:: members_ended[me] > 0 ->
#endif
#endif
		look_at_end();
		if
		:: theirs - 1 < seq -> differs = true
		:: else ->
			assert(number[ENTRY(OTHER, seq)] == seq);
			differs = (history[ENTRY(OTHER, seq)] != hist)
		fi
	:: else
	fi
}

proctype member(byte me)
{
	byte seq, hist = 1, theirs, their_history;
	bool differs;
	do
	:: seq < MOST && !differs && !found ->
		if /* for its slot */
		:: seq < K || number[ENTRY(OTHER, seq)] >= seq -> enter()
		:: seq >= K && ended[OTHER] != 0 && ended[OTHER] - 1 < seq -> differs = true
		:: found
		fi
	:: break
	od;
	count_of[me] = seq;
	sorts_of[me] = hist;
	if
	:: !differs && left[OTHER] ->
		assert(found || count_of[OTHER] > seq || (count_of[OTHER] == seq && sorts_of[OTHER] == hist))
	:: true
	fi;
	if
	:: differs || found
	:: else ->
#ifdef MUTANT_LEAVES_FIRST
		left[me] = true;
#endif
#ifdef MUTANT_LOOKS_FIRST
		compare();
		tell()
#else
		tell();
		compare()
#endif
	fi;
	if
	:: differs -> found = true
	:: else
	fi;
	left[me] = true;
	left[OTHER];
	assert(found == (count_of[me] != count_of[OTHER] || sorts_of[me] != sorts_of[OTHER]));
	anew[me] = true
}

init {
	atomic { run member(0); run member(1) }
}
