/* SPDX-License-Identifier: BSD-3-Clause
 * A channel: messages of collectives from one rank to another (src/transport/channel.c).
 *
 * Properties:
 * - No thread waits forever.
 * - The owner takes messages with one `seq` in the order of posting, each once, and whole.
 * - A sender that checks whether its message was refused learns that, although the slot may be in
 *   use again.
 *
 * Processes: two threads of the source post messages with two values of `seq`. One of them posts
 * one message, and checks whether the owner has taken it (transport_channel_taken); the owner
 * refuses that message. Two threads of the owner take messages, in any order that keeps those of
 * one `seq` in order.
 *
 * Abstractions: a wait is a guard on the awaited counter; doorbell.pml shows that no wake-up is
 * lost. An atomic block accesses at most one word that both ranks see, apart from words that the
 * other rank reads only after it has seen a later store.
 *
 * Mutants: each makes one mistake, which the comment at its `#if MUTANT` names. Spin must refuse
 * it. */
/* mutants: 1 2 3 4 5 6 7 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define SLOTS 2
#define TOTAL 3 /* messages */

/* Words that both ranks see. */
byte state[SLOTS]; /* 0: free; else the message's position */
bit seq[SLOTS];
byte payload[SLOTS];
byte posted, taken;
bit refused;

/* Private to the source; private to the owner; their locks. */
byte cursor;
bit claimed[SLOTS];
bit source_lock, owner_lock;

/* for the assertions only */
byte refused_position; /* the position of the message that the owner refuses */
byte newest[2]; /* by `seq`: the position that was claimed last */
bit was_taken[TOTAL + 1]; /* by position */

inline acquire(lock)
{
	atomic { lock == 0 -> lock = 1 }
}

proctype source(bit checks; byte count)
{
	byte sent, i, seen, position;
	do
	:: sent < count ->
		acquire(source_lock);
#if MUTANT != 1
		seen = taken;
#endif
		do
		:: atomic { i < SLOTS && state[i] != 0 -> i++ }
		:: atomic { i == SLOTS || state[i] == 0 -> break }
		od;
#if MUTANT == 1 /* reads it after the slots, and overlooks a slot that is freed in between */
		seen = taken;
#endif
		if
		:: i == SLOTS ->
			atomic { source_lock = 0; i = 0 };
			atomic { taken > seen -> seen = 0 }
		:: else ->
			atomic {
				cursor++;
				position = cursor;
				payload[i] = position;
				if
				:: checks -> seq[i] = 0; refused_position = position
				:: !checks -> seq[i] = 0
				:: !checks -> seq[i] = 1
				fi
			};
#if MUTANT == 7 /* raises `posted` first; but a reader expects all messages up to it */
			posted = position;
			state[i] = position;
#else
			state[i] = position;
			posted = position;
#endif
			atomic { source_lock = 0; sent++ };
			do
			:: checks ->
				seen = taken;
				if
				:: atomic { state[i] == position -> skip }; taken > seen
				:: atomic { state[i] != position -> break }
				fi
			:: !checks -> break
			od;
			atomic {
				assert(!checks || was_taken[position]);
				assert(!checks || position != refused_position || refused);
				i = 0; seen = 0; position = 0
			}
		fi
	:: else -> break
	od
}

/* The owner ignores messages that came after it read `posted`: it may see such a message without an
 * earlier one. */
#if MUTANT != 4 /* mutant 4 takes them */
#define IS_VISIBLE(i) (state[i] != 0 && state[i] <= seen && !claimed[i])
#else
#define IS_VISIBLE(i) (state[i] != 0 && !claimed[i])
#endif

/* Sets oldest[s] to the lowest position with seq == s, 0: none; and slot[s] to its slot. */
inline find_oldest()
{
	do
	:: d_step {
		i < SLOTS ->
		if
		:: IS_VISIBLE(i) && (oldest[seq[i]] == 0 || state[i] < oldest[seq[i]]) ->
			oldest[seq[i]] = state[i];
			slot[seq[i]] = i
		:: else
		fi;
		i++
	   }
	:: atomic { i == SLOTS -> i = 0; break }
	od
}

proctype owner(byte count)
{
	byte received, i, index, position, seen;
	byte oldest[2], slot[2];
	do
	:: received < count ->
		acquire(owner_lock);
#if MUTANT != 2
		seen = posted;
#else
		seen = TOTAL;
#endif
		find_oldest();
#if MUTANT == 2 /* reads it after the slots */
		seen = posted;
#endif
		if
		:: atomic { oldest[0] == 0 && oldest[1] == 0 -> owner_lock = 0 };
			atomic { posted > seen -> seen = 0 }
		:: atomic { oldest[0] != 0 -> index = slot[0]; position = oldest[0] }
		:: atomic { oldest[1] != 0 -> index = slot[1]; position = oldest[1] }
		fi;
		if
		:: position == 0
		:: else ->
			atomic {
				assert(position > newest[seq[index]]);
				newest[seq[index]] = position;
#if MUTANT != 5 /* mutant 5 claims nothing: the other thread may take the message, too */
				claimed[index] = 1;
#endif
				seen = 0; oldest[0] = 0; oldest[1] = 0; slot[0] = 0; slot[1] = 0;
				owner_lock = 0
			};
			assert(payload[index] == position); /* here the owner uses the payload */
			atomic {
				owner_lock == 0 -> owner_lock = 1;
				assert(!was_taken[position]);
				was_taken[position] = 1
			};
#if MUTANT != 6
			if :: position == refused_position -> refused = 1 :: else fi;
#endif
#if MUTANT == 3 /* raises it first; so a woken source finds no free slot, and sleeps */
			taken++;
			state[index] = 0;
#else
			state[index] = 0;
			taken++;
#endif
#if MUTANT == 6 /* sets `refused` only after the slot is free */
			if :: position == refused_position -> refused = 1 :: else fi;
#endif
			atomic {
				claimed[index] = 0;
				owner_lock = 0;
				received++;
				index = 0;
				position = 0
			}
		fi
	:: else -> break
	od
}

init {
	atomic {
		run source(1, 1); run source(0, TOTAL - 1); run owner(1); run owner(TOTAL - 1)
	}
}
