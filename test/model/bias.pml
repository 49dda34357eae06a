/* SPDX-License-Identifier: BSD-3-Clause
 * A lock that is biased to one thread (src/base/bias.h, src/base/lock.h). The owner enters and
 * leaves without the mutex. Any other thread takes the mutex, and revokes the bias; then it may
 * become the next owner.
 *
 * Properties:
 * - At most one thread is inside at a time.
 * - No thread waits forever.
 *
 * Processes: each user enters TURNS times. `store_buffers` is the memory system. A store to
 * `inside` stays in the store buffer of its thread, where other threads do not see it. It leaves
 * the buffer at any time, at the latest with the thread's next locked instruction, or with another
 * thread's membarrier. So the owner may read `owner` before others see that it is inside. And a
 * slow thread may store in its word long after it has lost the bias.
 *
 * Abstractions: only stores to `inside` are buffered, because the code writes the other words with
 * locked instructions or under the mutex. A newer store to a word replaces the older one in the
 * buffer, as if others had no time to read the older one.
 *
 * Mutants: each makes one mistake, which the comment at its `#if MUTANT` names. Spin must refuse
 * it. */
/* mutants: 1 2 3 4 5 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define THREADS 3
#define TURNS 2
#define OWNERS 3
#define NOBODY 255

/* Shared words. owner: THREADS * the number of this owner + the thread. */
byte owner = NOBODY, owner_count;
bit inside[OWNERS];
bit mutex;
#if MUTANT == 5 /* all owners share one word */
#define WORD(which) 0
#else
#define WORD(which) ((which) / THREADS)
#endif

/* The store buffer of each thread: its newest store that others do not see yet, and the word that
 * it goes to. A store to another word first drains the older one. */
bit has_store[THREADS], stored[THREADS];
byte stored_word[THREADS];

byte entered; /* for the assertion: how many threads are inside */

#define FLUSH(t)                                    \
	if                                          \
	:: has_store[t] ->                          \
		inside[stored_word[t]] = stored[t]; \
		has_store[t] = 0;                   \
		stored[t] = 0;                      \
		stored_word[t] = 0                  \
	:: else                                     \
	fi

inline store_inside(value)
{
	atomic {
		if
		:: stored_word[me] != WORD(seen) -> FLUSH(me)
		:: else
		fi;
		has_store[me] = 1;
		stored[me] = value;
		stored_word[me] = WORD(seen)
	}
}

inline work()
{
	atomic { entered++; assert(entered == 1) };
	atomic { entered-- }
}

/* bias_revoke */
inline revoke()
{
	atomic { FLUSH(me); seen = owner; owner = NOBODY };
#if MUTANT != 1 /* mutant 1 makes no membarrier */
	atomic { FLUSH(0); FLUSH(1); FLUSH(2) };
#endif
#if MUTANT != 2 /* mutant 2 does not wait until the owner has left */
	!inside[WORD(seen)];
#endif
	seen = 0
}

proctype user(byte me)
{
	byte turns, seen;
	bit mine;
	do
	:: turns < TURNS ->
		atomic { turns++; seen = owner };
		if
		:: seen != NOBODY && seen % THREADS == me ->
			store_inside(1);
#if MUTANT == 3 /* the owner does not read `owner` again */
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
#if MUTANT != 4 /* mutant 4 does not revoke the bias if it has the mutex */
			:: owner != NOBODY -> revoke()
#endif
			:: else
			fi;
			work();
			if
			:: atomic {
				owner_count < OWNERS ->
				owner = owner_count * THREADS + me;
				owner_count++
			   }
			:: skip
			fi;
			atomic { FLUSH(me); mutex = 0 }
		fi;
		seen = 0
	:: else -> break
	od
}

/* Each store leaves its buffer in the end. */
proctype store_buffers()
{
end_drained:
	do
	:: atomic { has_store[0] -> FLUSH(0) }
	:: atomic { has_store[1] -> FLUSH(1) }
	:: atomic { has_store[2] -> FLUSH(2) }
	od
}

init {
	atomic { run user(0); run user(1); run user(2); run store_buffers() }
}
