/* SPDX-License-Identifier: BSD-3-Clause
 * The doorbell, and its count of sleepers (src/base/wait.c).
 *
 * Property: no wake-up is lost. A lost one shows as an end state in which a waiter sleeps forever.
 * No time limit here could hide it.
 *
 * Processes: signallers raise words. Waiters sleep until the words that they await are high enough:
 * one waiter needs all words, the other one any of them.
 *
 * Abstractions: `wakeups` is too small here to wrap around. All accesses are sequentially
 * consistent, as in the code.
 *
 * Mutants: each MUTANT_… makes one mistake, which its name says. Spin must refuse it. */

#define SIGNALLERS 2
#define WAITERS 2
#define ROUNDS 2

byte word[SIGNALLERS]; /* awaited; word i is written by signaller i, and only grows */
byte sleepers; /* bell->sleepers */
byte wakeups; /* bell->wakeups */
bool asleep[WAITERS]; /* in the futex */

/* A wait may need all words (WAIT_WORDS), or any one of them (WAIT_ANY_WORD). */
#define ALL(round) (word[0] >= round && word[1] >= round)
#define ANY(round) (word[0] >= round || word[1] >= round)

/* In one step the kernel reads the futex word and puts the thread to sleep. The call returns when
 * another thread wakes this one, or at once if the word has changed. */
#define FUTEX_WAIT(me, value)                            \
	atomic {                                         \
		if                                       \
		:: wakeups == value -> asleep[me] = true \
		:: else -> skip                          \
		fi                                       \
	}                                                \
	!asleep[me];

#define FUTEX_WAKE_ALL             \
	atomic {                   \
		asleep[0] = false; \
		asleep[1] = false  \
	}

/* wait_store, then wait_wake. */
proctype signaller(byte me)
{
	byte round, seen;
	for (round : 1 .. ROUNDS) {
#ifdef MUTANT_SLEEPERS_BEFORE_STORE
		seen = sleepers;
		word[me] = round;
#else
		word[me] = round;
		seen = sleepers;
#endif
		if
		:: seen > 0 ->
#ifdef MUTANT_WAKE_BEFORE_CHANGE
			FUTEX_WAKE_ALL
			wakeups++
#else
			wakeups++;
			FUTEX_WAKE_ALL
#endif
		:: else -> skip
		fi
	}
}

/* Reads one word after the other, as wait_satisfied does: not all in one step. */
inline test_condition(any, round, holds)
{
	holds = word[0] >= round;
	if
	:: holds == any -> skip
	:: else -> holds = word[1] >= round
	fi
}

/* sleep_until_over. The numbers are those in the code. */
proctype waiter(byte me; bool any)
{
	byte round, seen;
	bool holds;
	for (round : 1 .. ROUNDS) {
#ifdef MUTANT_TEST_BEFORE_COUNT
		seen = wakeups;
		test_condition(any, round, holds);
#endif
		sleepers++; /* 1 */
		do
		::
#ifndef MUTANT_TEST_BEFORE_COUNT
#ifdef MUTANT_READ_AFTER_TEST
			test_condition(any, round, holds);
			seen = wakeups;
#else
			seen = wakeups; /* 2 */
			test_condition(any, round, holds); /* 3 */
#endif
#endif
			if
			:: holds -> break
			:: else -> skip
			fi;
			FUTEX_WAIT(me, seen) /* 4 */
#ifdef MUTANT_TEST_BEFORE_COUNT
			seen = wakeups;
			test_condition(any, round, holds);
#endif
		od;
		sleepers--;
		assert(any -> ANY(round) : ALL(round))
	}
}

init
{
	atomic {
		run signaller(0);
		run signaller(1);
		run waiter(0, false);
		run waiter(1, true)
	}
	_nr_pr == 1;
	assert(sleepers == 0 && !asleep[0] && !asleep[1])
}
