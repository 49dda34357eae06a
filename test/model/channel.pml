/* SPDX-License-Identifier: BSD-3-Clause
 * A channel of the transport (src/transport/channel.c): two threads of the source post messages with two
 * tags, one of them asks for each what became of it; two threads of the owner take them in any order
 * that keeps each tag's own. The message of the one that asks is refused. A wait is a guard on the awaited counter:
 * that the doorbell loses no wake-up is shown in doorbell.pml.
 *
 * Shown: nobody waits forever; messages of one tag are taken in order, each once, whole; a sender that
 * asks learns of a refusal though its slot may be in use again. An atomic block touches at most one word
 * that both sides see, apart from those whose reader was ordered behind. */
/* mutants: 1 2 3 4 5 6 7 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define SLOTS 2
#define TOTAL 3 /* messages */

/* In memory that both sides see. */
byte state[SLOTS]; /* 0: free, else the message's position */
bit tag[SLOTS];
byte content[SLOTS];
byte posted, taken;
bit refused;

/* Private to the source, and to the owner. */
byte cursor;
bit claimed[SLOTS];
bit source_lock, owner_lock;

/* For the assertions only. */
byte victim;          /* position of the message that is refused */
byte newest[2];       /* position claimed last, of each tag */
bit is_over[TOTAL + 1]; /* positions that were taken */

inline acquire(lock)
{
	atomic { lock == 0 -> lock = 1 }
}

proctype source(bit asks; byte count)
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
#if MUTANT == 1
		seen = taken; /* after the slots: what was freed in between is overlooked */
#endif
		if
		:: i == SLOTS ->
			atomic { source_lock = 0; i = 0 };
			atomic { taken > seen -> seen = 0 }
		:: else ->
			atomic {
				cursor++;
				position = cursor;
				content[i] = position;
				if
				:: asks -> tag[i] = 0; victim = position
				:: !asks -> tag[i] = 0
				:: !asks -> tag[i] = 1
				fi
			};
#if MUTANT == 7
			posted = position; /* before the state: a reader trusts that all are there */
			state[i] = position;
#else
			state[i] = position;
			posted = position;
#endif
			atomic { source_lock = 0; sent++ };
			do
			:: asks ->
				seen = taken;
				if
				:: atomic { state[i] == position -> skip }; taken > seen
				:: atomic { state[i] != position -> break }
				fi
			:: !asks -> break
			od;
			atomic {
				assert(!asks || is_over[position]);
				assert(!asks || position != victim || refused);
				i = 0; seen = 0; position = 0
			}
		fi
	:: else -> break
	od
}

/* What came after `seen` does not count: it may be seen without the message before it. */
#if MUTANT != 4
#define COUNTS(i) (state[i] != 0 && state[i] <= seen && !claimed[i])
#else
#define COUNTS(i) (state[i] != 0 && !claimed[i])
#endif

/* Leaves in oldest[t] the lowest position with tag t, 0 if there is none, and in slot[t] where it is. */
inline find()
{
	do
	:: d_step {
		i < SLOTS ->
		if
		:: COUNTS(i) && (oldest[tag[i]] == 0 || state[i] < oldest[tag[i]]) ->
			oldest[tag[i]] = state[i];
			slot[tag[i]] = i
		:: else
		fi;
		i++
	   }
	:: atomic { i == SLOTS -> i = 0; break }
	od
}

proctype owner(byte count)
{
	byte received, i, mine, position, seen;
	byte oldest[2], slot[2];
	do
	:: received < count ->
		acquire(owner_lock);
#if MUTANT != 2
		seen = posted;
#else
		seen = TOTAL;
#endif
		find();
#if MUTANT == 2
		seen = posted; /* after the slots */
#endif
		if
		:: atomic { oldest[0] == 0 && oldest[1] == 0 -> owner_lock = 0 };
			atomic { posted > seen -> seen = 0 }
		:: atomic { oldest[0] != 0 -> mine = slot[0]; position = oldest[0] }
		:: atomic { oldest[1] != 0 -> mine = slot[1]; position = oldest[1] }
		fi;
		if
		:: position == 0
		:: else ->
			atomic {
				assert(position > newest[tag[mine]]);
				newest[tag[mine]] = position;
#if MUTANT != 5
				claimed[mine] = 1;
#endif
				seen = 0; oldest[0] = 0; oldest[1] = 0; slot[0] = 0; slot[1] = 0;
				owner_lock = 0
			};
			assert(content[mine] == position); /* the payload is used here */
			atomic {
				owner_lock == 0 -> owner_lock = 1;
				assert(!is_over[position]);
				is_over[position] = 1
			};
#if MUTANT != 6
			if :: position == victim -> refused = 1 :: else fi;
#endif
#if MUTANT == 3
			taken++; /* before the slot is free: who is woken finds it full, and sleeps */
			state[mine] = 0;
#else
			state[mine] = 0;
			taken++;
#endif
#if MUTANT == 6
			if :: position == victim -> refused = 1 :: else fi; /* after the slot is free */
#endif
			atomic { claimed[mine] = 0; owner_lock = 0; received++; mine = 0; position = 0 }
		fi
	:: else -> break
	od
}

init {
	atomic {
		run source(1, 1); run source(0, TOTAL - 1); run owner(1); run owner(TOTAL - 1)
	}
}
