/* SPDX-License-Identifier: BSD-3-Clause
 * The doorbell, and its count of sleepers (src/base/wait.c, wait_bell.c).
 *
 * Property: no wake-up is lost. A lost one shows as an end state in which a waiter sleeps forever.
 * No time limit here could hide it.
 *
 * Processes: signallers raise words. Waiters sleep until the words that they await are high enough:
 * one waiter needs all words, the other one any of them. A waiter that needs all, and is alone,
 * names the signaller whose word it needs first, and the other signaller does not wake it.
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
#define NOBODY SIGNALLERS
byte first = NOBODY; /* in the same word: the signaller whose word the only sleeper needs first */
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
	byte round;
	bool wakes;
	for (round : 1 .. ROUNDS) {
#ifdef MUTANT_SLEEPERS_BEFORE_STORE
		wakes = sleepers > 0 && (first == NOBODY || first == me);
		word[me] = round;
#else
		word[me] = round;
		wakes = sleepers > 0 && (first == NOBODY || first == me);
#endif
		if
		:: wakes ->
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

#define COUNT(now)                     \
	atomic {                       \
		sleepers = now;        \
		FIRST_AFTER_A_CHANGE   \
	}
#ifdef MUTANT_A_SECOND_SLEEPER_LEAVES_THE_NAME
#define FIRST_AFTER_A_CHANGE skip
#else
#define FIRST_AFTER_A_CHANGE first = NOBODY
#endif

/* wait_narrow: names a signaller whose word is missing, and looks whether it still is. */
inline narrow(any, round, named)
{
	do
	::
		if
		:: !any && word[0] < round -> named = 0
		:: !any && word[1] < round -> named = 1
		:: any || (word[0] >= round && word[1] >= round) -> named = NOBODY
		fi;
		atomic {
			if
#ifdef MUTANT_NAMES_ALTHOUGH_ANOTHER_ONE_SLEEPS
			:: first = named
#else
			:: sleepers == 1 -> first = named
			:: else
#endif
			fi
		}
#ifdef MUTANT_LOOKS_AT_THE_NAMED_WORD_ONLY_BEFORE
		break
#else
		if
		:: named == NOBODY -> break
		:: else ->
			if
			:: word[named] < round -> break
			:: else
			fi
		fi
#endif
	od
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
	byte round, seen, named;
	bool holds;
	for (round : 1 .. ROUNDS) {
#ifdef MUTANT_TEST_BEFORE_COUNT
		seen = wakeups;
		test_condition(any, round, holds);
#endif
		COUNT(sleepers + 1); /* 1 */
		do
		::
#ifdef MUTANT_READ_AFTER_NAMING
			narrow(any, round, named);
#endif
#ifndef MUTANT_TEST_BEFORE_COUNT
#ifdef MUTANT_READ_AFTER_TEST
			test_condition(any, round, holds);
			seen = wakeups;
#else
			seen = wakeups; /* 2 */
#if !defined(MUTANT_READ_AFTER_NAMING) && !defined(MUTANT_NAMES_AFTER_TEST)
			narrow(any, round, named);
#endif
			test_condition(any, round, holds); /* 3 */
#endif
#endif
			if
			:: holds -> break
			:: else -> skip
			fi;
#ifdef MUTANT_NAMES_AFTER_TEST
			narrow(any, round, named);
#endif
			FUTEX_WAIT(me, seen) /* 4 */
#ifdef MUTANT_TEST_BEFORE_COUNT
			seen = wakeups;
			test_condition(any, round, holds);
#endif
		od;
		COUNT(sleepers - 1);
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
	assert(sleepers == 0 && first == NOBODY && !asleep[0] && !asleep[1])
}
