/* SPDX-License-Identifier: BSD-3-Clause
 * The doorbell and the sleepers' count of src/base/wait.c: signallers raise words, waiters sleep
 * until the words they await are high enough. All accesses are sequentially consistent, in the
 * code and so here. A lost wake-up shows as an end state in which a waiter sleeps for ever; there
 * are no time-outs here that could hide it. Each MUTANT_… breaks one step and must be refused. */

#define SIGNALLERS 2
#define WAITERS 2
#define ROUNDS 2

byte word[SIGNALLERS];    /* what is awaited; written by one signaller each, only grows */
byte sleepers;            /* bell->sleepers */
byte wakeups;             /* bell->wakeups; here too small to come round */
bool asleep[WAITERS];     /* in the futex */

/* One wait may need all words (WAIT_WORDS), the other any one of them (WAIT_ANY_WORD). */
#define ALL(round) (word[0] >= round && word[1] >= round)
#define ANY(round) (word[0] >= round || word[1] >= round)

/* The kernel looks at the futex word and goes to sleep in one step, and comes back when woken, or
 * at once when the word has changed. */
#define FUTEX_WAIT(me, value)                           \
	atomic {                                        \
		if                                      \
		:: wakeups == value -> asleep[me] = true   \
		:: else -> skip                         \
		fi                                      \
	}                                               \
	!asleep[me];

#define FUTEX_WAKE_ALL                  \
	atomic {                        \
		asleep[0] = false;      \
		asleep[1] = false       \
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

/* Reads the words one after the other, as wait_satisfied does: they are not one atomic look. */
inline test_condition(any, round, there)
{
	there = word[0] >= round;
	if
	:: there == any -> skip
	:: else -> there = word[1] >= round
	fi
}

/* sleep_until_over; the numbers are those in the code. */
proctype waiter(byte me; bool any)
{
	byte round, seen;
	bool there;
	for (round : 1 .. ROUNDS) {
#ifdef MUTANT_TEST_BEFORE_COUNT
		seen = wakeups;
		test_condition(any, round, there);
#endif
		sleepers++; /* 1 */
		do
		::
#ifndef MUTANT_TEST_BEFORE_COUNT
#ifdef MUTANT_READ_AFTER_TEST
			test_condition(any, round, there);
			seen = wakeups;
#else
			seen = wakeups;                    /* 2 */
			test_condition(any, round, there); /* 3 */
#endif
#endif
			if
			:: there -> break
			:: else -> skip
			fi;
			FUTEX_WAIT(me, seen) /* 4 */
#ifdef MUTANT_TEST_BEFORE_COUNT
			seen = wakeups;
			test_condition(any, round, there);
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
