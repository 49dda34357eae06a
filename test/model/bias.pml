/* SPDX-License-Identifier: BSD-3-Clause
 * Exclusion that belongs to one thread (src/base/bias.h, src/base/lock.h): an owner goes in and out without the mutex;
 * others take the mutex, and the lock from the owner; who has the mutex may become the next owner. Stores of `inside` wait
 * in a store buffer of their thread, from which they come out at any time, at a locked instruction, or at a membarrier of
 * another thread. So a thread may look at `owner` before others see that it is inside; and one that is late may store in
 * its word long after it was the owner.
 *
 * Shown: at most one thread is in there at a time, and nobody waits for ever. */
/* mutants: 1 2 3 4 5 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define THREADS 3
#define TURNS 2
#define OWNERS 3
#define NOBODY 255

/* What all see. owner: the thread, and which owner it is. */
byte owner = NOBODY, owners;
bit inside[OWNERS];
bit mutex;
#if MUTANT == 5 /* one word for all owners */
#define WORD(which) 0
#else
#define WORD(which) ((which) / THREADS)
#endif

/* The buffer of each thread: its newest store that others do not see yet, and of which word. An older one of another word
 * comes out first. */
bit has_buffered[THREADS], buffered[THREADS];
byte buffered_word[THREADS];

byte in_there; /* threads, for the assertion */

#define FLUSH(t)                                             \
	if                                                   \
	:: has_buffered[t] ->                                \
		inside[buffered_word[t]] = buffered[t];      \
		has_buffered[t] = 0;                         \
		buffered[t] = 0;                             \
		buffered_word[t] = 0                         \
	:: else                                              \
	fi

inline store_inside(value)
{
	atomic {
		if
		:: buffered_word[me] != WORD(seen) -> FLUSH(me)
		:: else
		fi;
		has_buffered[me] = 1;
		buffered[me] = value;
		buffered_word[me] = WORD(seen)
	}
}

inline work()
{
	atomic { in_there++; assert(in_there == 1) };
	atomic { in_there-- }
}

/* bias_revoke */
inline revoke()
{
	atomic { FLUSH(me); seen = owner; owner = NOBODY };
#if MUTANT != 1 /* without the membarrier */
	atomic { FLUSH(0); FLUSH(1); FLUSH(2) };
#endif
#if MUTANT != 2 /* he may be in there */
	!inside[WORD(seen)];
#endif
	seen = 0
}

proctype thread(byte me)
{
	byte turns, seen;
	bit mine;
	do
	:: turns < TURNS ->
		atomic { turns++; seen = owner };
		if
		:: seen != NOBODY && seen % THREADS == me ->
			store_inside(1);
#if MUTANT == 3 /* does not look once more */
			mine = 1
#else
			if
			:: owner == seen -> mine = 1
			:: else -> store_inside(0)
			fi
#endif
		:: else
		fi;
		if
		:: mine ->
			work();
			store_inside(0);
			mine = 0
		:: else ->
			atomic { !mutex -> mutex = 1; FLUSH(me) };
			if
#if MUTANT != 4 /* whoever has the mutex need not take it from the owner */
			:: owner != NOBODY -> revoke()
#endif
			:: else
			fi;
			work();
			if
			:: atomic { owners < OWNERS -> owner = owners * THREADS + me; owners++ }
			:: skip
			fi;
			atomic { FLUSH(me); mutex = 0 }
		fi;
		seen = 0
	:: else -> break
	od
}

/* A store comes out by and by. */
proctype buffers()
{
end_drained:
	do
	:: atomic { has_buffered[0] -> FLUSH(0) }
	:: atomic { has_buffered[1] -> FLUSH(1) }
	:: atomic { has_buffered[2] -> FLUSH(2) }
	od
}

init {
	atomic { run thread(0); run thread(1); run thread(2); run buffers() }
}
