/* SPDX-License-Identifier: BSD-3-Clause
 * What ranks compare at the end of a group (src/engine/end.c).
 *
 * Properties:
 * - If the two members differ, in the number or the kind of their collectives, one of them finds
 *   that, in a call or when it closes the group. By the time one of them has left, any difference
 *   from what the other one had called by then has been found. If they do not differ, nobody finds
 *   anything.
 * - What a member reads of the other one belongs to this group.
 * - A member waits for the other one only for a free entry, and before it resets its area.
 *
 * Processes: two members that only contribute data, so neither reads the other's entries for
 * another reason. Each calls any number of collectives of two kinds, up to COLLECTIVES_MAX. A ring
 * has ENTRIES entries, so a member is at most that far ahead. It may stay in the group until the
 * other one has left, as if it waited for a third one. It resets its area once both have left.
 *
 * Abstractions: histories are numbers with one bit for each collective, so they never collide as
 * hashes might.
 *
 * Mutants: each makes one mistake. Spin must refuse it.
 * - COUNTS_ONLY compares the numbers of collectives, and not the histories.
 * - NOT_THE_NEXT does not look whether the other member has entered one more collective.
 * - ENTERS_BLIND enters a collective and does not look whether the other member has closed the
 *   group.
 * - TOLD_BY_LEAVING looks there whether the other member has left, not whether it has published its
 *   end.
 * - LEAVES_FIRST leaves before it compares.
 * - LOOKS_FIRST compares before it publishes its own end. */
#define COLLECTIVES_MAX 3
#define ENTRIES 2

/* [member * ENTRIES + slot]: an entry's number, 0: none; the history up to it */
byte number[4], history[4];
byte ended[2], end_history[2], members_ended[2];
bool left[2];
bool found; /* the group has failed */

/* for the assertions */
bool was_reset[2];
byte count_of[2], history_of[2];

#define ENTRY(who, seq) ((who) * ENTRIES + (seq) % ENTRIES)
#define OTHER (1 - me)

inline read_end()
{
	their_end = ended[OTHER];
	their_history = end_history[OTHER];
	assert(!was_reset[OTHER])
}

inline publish_end()
{
	end_history[me] = my_history;
	ended[me] = seq + 1;
	members_ended[OTHER]++
}

inline compare()
{
	read_end();
	if
#ifdef MUTANT_COUNTS_ONLY
	:: their_end != 0 -> differs = (their_end - 1 != seq)
#else
	:: their_end != 0 -> differs = (their_end - 1 != seq || their_history != my_history)
#endif
	:: else ->
#ifndef MUTANT_NOT_THE_NEXT
		differs = (number[ENTRY(OTHER, seq + 1)] == seq + 1);
#endif
		if
		:: seq > 0 && number[ENTRY(OTHER, seq)] == seq ->
			differs = (differs || history[ENTRY(OTHER, seq)] != my_history)
		:: else
		fi;
		assert(!was_reset[OTHER])
	fi
}

inline enter()
{
	if
	:: my_history = my_history * 2
	:: my_history = my_history * 2 + 1
	fi;
	seq++;
	history[ENTRY(me, seq)] = my_history;
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
		read_end();
		if
		:: their_end - 1 < seq -> differs = true
		:: else ->
			assert(number[ENTRY(OTHER, seq)] == seq);
			differs = (history[ENTRY(OTHER, seq)] != my_history)
		fi
	:: else
	fi
}

proctype member(byte me)
{
	byte seq, my_history = 1, their_end, their_history;
	bool differs;
	do
	:: seq < COLLECTIVES_MAX && !differs && !found ->
		if /* awaits a free entry */
		:: seq < ENTRIES || number[ENTRY(OTHER, seq)] >= seq -> enter()
		:: seq >= ENTRIES && ended[OTHER] != 0 && ended[OTHER] - 1 < seq -> differs = true
		:: found
		fi
	:: break
	od;
	count_of[me] = seq;
	history_of[me] = my_history;
	if
	:: !differs && left[OTHER] ->
		assert(found || count_of[OTHER] > seq ||
		       (count_of[OTHER] == seq && history_of[OTHER] == my_history))
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
		publish_end()
#else
		publish_end();
		compare()
#endif
	fi;
	if
	:: differs -> found = true
	:: else
	fi;
	left[me] = true;
	left[OTHER];
	assert(found ==
	       (count_of[me] != count_of[OTHER] || history_of[me] != history_of[OTHER]));
	was_reset[me] = true
}

init {
	atomic { run member(0); run member(1) }
}
