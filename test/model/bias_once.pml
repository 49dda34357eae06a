/* SPDX-License-Identifier: BSD-3-Clause
 * Exclusion that belongs to the first thread that comes, and to nobody for good once another thread has come
 * (src/base/bias.h, src/trace/trace_record.c): its owner goes in and out without a locked instruction; whoever finds that
 * it belongs to another takes it away, under a mutex; whoever finds that it is nobody's goes in beside others, without the
 * mutex. Stores of `inside` wait in the owner's store buffer, as in bias.pml.
 *
 * Shown: nobody is in there beside the owner, and nobody waits for ever. */
/* mutants: 1 2 3 4 5 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define TURNS 2

mtype = { OFFERED, OWNED, TAKEN, NOBODY };
mtype owner = OFFERED;
bit inside, mutex;
bit has_buffered, buffered; /* the owner's newest store that others do not see yet */
byte owners_in, others_in;  /* threads, for the assertion */

#define FLUSH                      \
	if                         \
	:: has_buffered ->         \
		inside = buffered; \
		has_buffered = 0;  \
		buffered = 0       \
	:: else                    \
	fi

inline store_inside(value)
{
	atomic { has_buffered = 1; buffered = value }
}

/* bias_revoke, under the mutex */
inline revoke()
{
#if MUTANT == 4 /* it is nobody's before its owner is out */
	owner = NOBODY;
#else
	owner = TAKEN;
#endif
#if MUTANT != 1 /* without the membarrier */
	atomic { FLUSH };
#endif
#if MUTANT != 2 /* he may be in there */
	!inside;
#endif
	owner = NOBODY
}

inline go_beside()
{
	/* By symmetry `owns` is the name of the thread that gets it: nobody else goes on before that. */
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
	atomic { others_in++; assert(owners_in == 0) };
	atomic { others_in-- }
}

active proctype owns()
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
#if MUTANT == 3 /* does not look once more */
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
			atomic { owners_in++; assert(others_in == 0) };
			atomic { owners_in-- };
#if MUTANT != 5 /* never comes out */
			store_inside(0);
#endif
			mine = 0
		:: else -> go_beside()
		fi
	:: else -> break
	od
}

active [2] proctype other()
{
	byte turns;
	do
	:: turns < TURNS -> turns++; go_beside()
	:: else -> break
	od
}

/* A store comes out by and by. */
active proctype buffer()
{
end_drained:
	do
	:: atomic { has_buffered -> FLUSH }
	od
}
