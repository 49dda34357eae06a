/* SPDX-License-Identifier: BSD-3-Clause
 * A bias that one thread has, once (src/base/bias.h, src/trace/trace_record.c). The first thread
 * that enters gets it, and enters and leaves without a locked instruction. Once another thread has
 * revoked it, under the mutex, nobody has it for good. From then on all threads enter without the
 * mutex, several at a time: what they do inside is safe for several threads.
 *
 * Properties:
 * - No thread is inside while the owner is inside.
 * - No thread waits forever.
 *
 * Processes: `first_user` gets the bias; two others enter, too. `store_buffer` drains the owner's
 * stores to `inside` at any time, as in bias.pml.
 *
 * Abstractions: as in bias.pml.
 *
 * Mutants: each makes one mistake, which the comment at its `#if MUTANT` names. Spin must refuse
 * it. */
/* mutants: 1 2 3 4 5 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define TURNS 2

mtype = { OFFERED, OWNED, TAKEN, NOBODY };
mtype owner = OFFERED;
bit inside, mutex;
bit has_store, stored; /* the owner's newest store that others do not see yet */
byte owner_entered, others_entered; /* for the assertions: how many threads are inside */

#define FLUSH                    \
	if                       \
	:: has_store ->          \
		inside = stored; \
		has_store = 0;   \
		stored = 0       \
	:: else                  \
	fi

inline store_inside(value)
{
	atomic { has_store = 1; stored = value }
}

/* bias_revoke, under the mutex */
inline revoke()
{
#if MUTANT == 4 /* the bias is nobody's before its owner has left */
	owner = NOBODY;
#else
	owner = TAKEN;
#endif
#if MUTANT != 1 /* mutant 1 makes no membarrier */
	atomic { FLUSH };
#endif
#if MUTANT != 2 /* mutant 2 does not wait until the owner has left */
	!inside;
#endif
	owner = NOBODY
}

inline enter_without_bias()
{
	/* `first_user` is the thread that gets the bias, whichever that is. So the others wait here
	 * until it has it. */
	owner != OFFERED;
	if
	:: owner != NOBODY ->
		atomic { !mutex -> mutex = 1 };
		if
		:: owner != NOBODY -> revoke()
		:: else
		fi;
		mutex = 0
	:: else
	fi;
	atomic { others_entered++; assert(owner_entered == 0) };
	atomic { others_entered-- }
}

active proctype first_user()
{
	byte turns;
	bit mine;
	atomic { !mutex -> mutex = 1 };
	owner = OWNED;
	mutex = 0;
	do
	:: turns < TURNS ->
		turns++;
		if
		:: owner == OWNED ->
			store_inside(1);
#if MUTANT == 3 /* the owner does not read `owner` again */
			mine = 1
#else
			if
			:: owner == OWNED -> mine = 1
			:: else -> store_inside(0)
			fi
#endif
		:: else
		fi;
		if
		:: mine ->
			atomic { owner_entered++; assert(others_entered == 0) };
			atomic { owner_entered-- };
#if MUTANT != 5 /* mutant 5 never leaves */
			store_inside(0);
#endif
			mine = 0
		:: else -> enter_without_bias()
		fi
	:: else -> break
	od
}

active [2] proctype other()
{
	byte turns;
	do
	:: turns < TURNS -> turns++; enter_without_bias()
	:: else -> break
	od
}

/* Each store leaves the buffer in the end. */
active proctype store_buffer()
{
end_drained:
	do
	:: atomic { has_store -> FLUSH }
	od
}
