/* SPDX-License-Identifier: BSD-3-Clause
 * The doorbell, its count of sleepers, and its topics (src/base/wait.c, wait_bell.c).
 *
 * Property: no wake-up is lost. A lost one shows as an end state in which a waiter sleeps forever.
 * No time limit here could hide it.
 *
 * Processes: signallers raise words. Waiters sleep until the words that they await are high enough:
 * one waiter needs all words, and listens to the topic of one that is missing; the other one needs
 * any of them, and listens to both topics, or to all if it cannot choose. A waiter with one topic
 * sleeps on the word of that topic only. Each signaller's words have a topic of their own. In the last round one of them wakes all sleepers, as if the word had none.
 *
 * Abstractions: the counters are too small here to wrap around. All accesses are sequentially
 * consistent, as in the code. Two topics have no number in common.
 *
 * Mutants: each MUTANT_… makes one mistake, which its name says. Spin must refuse it. */

#define SIGNALLERS 2
#define WAITERS 2
byte rounds; /* of each process */

byte word[SIGNALLERS]; /* awaited; word i is written by signaller i, and only grows */
byte sleepers; /* bell->sleepers */
byte wakeups; /* bell->wakeups */
byte to_all; /* bell->to_all */
byte to_one; /* bell->to_one */
byte listeners[SIGNALLERS]; /* bell->listeners */
byte topic_wakeups[SIGNALLERS]; /* bell->topic_wakeups */
bool asleep[WAITERS]; /* in the futex */
bool on_general[WAITERS], on_topic0[WAITERS], on_topic1[WAITERS]; /* asleep on these words */

/* A wait may need all words (WAIT_WORDS), or any one of them (WAIT_ANY_WORD). */
#define ALL(round) (word[0] >= round && word[1] >= round)
#define ANY(round) (word[0] >= round || word[1] >= round)

/* In one step the kernel reads the futex words and puts the thread to sleep. The call returns when
 * another thread wakes this one, or at once if a word has changed. */
#define FUTEX_WAIT(me)                                                                   \
	atomic {                                                                         \
		if                                                                       \
		:: (wakeups == seen || !GENERAL) && (topic_wakeups[0] == seen0 || !on0) && \
			(topic_wakeups[1] == seen1 || !on1) ->                           \
			asleep[me] = true;                                               \
			on_general[me] = GENERAL;                                        \
			on_topic0[me] = on0;                                             \
			on_topic1[me] = on1                                              \
		:: else -> skip                                                          \
		fi                                                                       \
	}                                                                                \
	!asleep[me];

#ifdef MUTANT_LISTENERS_SLEEP_ON_TOPICS_ONLY
#define GENERAL (!on0 && !on1)
#else
#define GENERAL (!only || (!on0 && !on1))
#endif

#define FUTEX_WAKE(on)                             \
	atomic {                                   \
		asleep[0] = asleep[0] && !on[0];   \
		asleep[1] = asleep[1] && !on[1]    \
	}

inline wake_topic(topic)
{
#ifndef MUTANT_WAKE_TOPIC_BEFORE_CHANGE
	topic_wakeups[topic]++;
#endif
	if
	:: topic == 0 -> FUTEX_WAKE(on_topic0)
	:: else -> FUTEX_WAKE(on_topic1)
	fi
#ifdef MUTANT_WAKE_TOPIC_BEFORE_CHANGE
	;
	topic_wakeups[topic]++
#endif
}

inline wake_if_only(topic)
{
	if
	:: to_one > 0 ->
		if
		:: listeners[topic] > 0 -> wake_topic(topic)
		:: else -> skip
		fi
	:: else -> skip
	fi
}

inline wake_all()
{
#ifdef MUTANT_WAKE_BEFORE_CHANGE
	FUTEX_WAKE(on_general)
	wakeups++
#else
	wakeups++;
	FUTEX_WAKE(on_general)
#endif
#ifndef MUTANT_SLEEPERS_ON_TOPICS_ARE_LEFT
	;
	wake_if_only(0);
	wake_if_only(1)
#endif
}

/* wait_store, then wait_wake_topic, or wait_wake. */
proctype signaller(byte me)
{
	byte round;
	bool wakes, listened;
	for (round : 1 .. rounds) {
#ifdef MUTANT_SLEEPERS_BEFORE_STORE
		wakes = sleepers > 0;
		word[me] = round;
#else
#ifdef MUTANT_LISTENERS_BEFORE_STORE
		listened = listeners[me] > 0;
#endif
		word[me] = round;
		wakes = sleepers > 0;
#endif
		if
		:: !wakes -> skip
		:: wakes && me == 1 && round == rounds -> wake_all()
		:: wakes && !(me == 1 && round == rounds) ->
			if
#ifndef MUTANT_TO_ALL_IS_IGNORED
			:: to_all > 0 -> wake_all()
#endif
			:: else ->
#ifndef MUTANT_LISTENERS_BEFORE_STORE
				listened = listeners[me] > 0;
#endif
				if
				:: listened -> wake_topic(me)
				:: else -> skip
				fi
			fi
		fi;
		wakes = false;
		listened = false /* fewer states */
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

inline listen_to(topic, wanted, on)
{
	if
	:: wanted && !on -> atomic { listeners[topic]++; on = true }
	:: !wanted && on -> atomic { listeners[topic]--; on = false }
	:: else -> skip
	fi
}

/* wait_bell_add: the word that a waiter for all words waits for first; NOBODY: no one. */
#define NOBODY SIGNALLERS
inline draw(any, round, first)
{
	atomic {
		if
		:: any -> first = NOBODY
		:: !any && word[0] < round -> first = 0
		:: !any && word[1] < round -> first = 1
		:: !any && word[0] >= round && word[1] >= round -> first = NOBODY
		fi
	}
}

/* wait_bell_listen */
inline listen(any, all, first)
{
	if
	:: all -> skip
#ifdef MUTANT_ANY_LISTENS_TO_ONE_TOPIC
	:: !all && any -> listen_to(1, true, on1)
#else
	:: !all && any -> listen_to(0, true, on0); listen_to(1, true, on1)
#endif
	:: !all && !any -> listen_to(0, first == 0, on0); listen_to(1, first == 1, on1)
	fi
}
inline see()
{
	if
	:: only -> skip /* it does not sleep on this word */
	:: else -> seen = wakeups
	fi
}
inline read_topics()
{
	if
	:: on0 -> seen0 = topic_wakeups[0]
	:: else -> seen0 = 0
	fi;
	if
	:: on1 -> seen1 = topic_wakeups[1]
	:: else -> seen1 = 0
	fi
}

/* sleep_until_over. The numbers are those in the code. */
proctype waiter(byte me; bool any)
{
	byte round, seen, seen0, seen1, first;
	bool holds, all, only, on0, on1;
	for (round : 1 .. rounds) {
#ifdef MUTANT_TEST_BEFORE_COUNT
		see();
		draw(any, round, first);
		listen(any, all, first);
		read_topics();
		test_condition(any, round, holds);
#endif
		sleepers++; /* 1 */
		if
		:: any -> all = true; to_all++
		:: any -> all = false
		:: !any -> only = true; to_one++
		fi;
		do
		::
#ifndef MUTANT_TEST_BEFORE_COUNT
			draw(any, round, first);
#ifdef MUTANT_READ_AFTER_TEST
			listen(any, all, first);
			read_topics();
			test_condition(any, round, holds);
			see();
#else
			see(); /* 2 */
#ifdef MUTANT_LISTEN_AFTER_TEST
			test_condition(any, round, holds);
			listen(any, all, first);
			read_topics();
#else
			listen(any, all, first);
#ifdef MUTANT_READ_TOPICS_AFTER_TEST
			test_condition(any, round, holds);
			read_topics();
#else
			read_topics();
			test_condition(any, round, holds); /* 3 */
#endif
#endif
#endif
#endif
			if
			:: holds -> break
			:: else -> skip
			fi;
			/* wait_bell_sleep */
			if
#ifndef MUTANT_A_FIRST_WORD_THAT_HAS_COME_IS_AWAITED
			:: first != NOBODY && word[first] >= round -> skip
#endif
			:: else -> FUTEX_WAIT(me) /* 4 */
			fi
#ifdef MUTANT_TEST_BEFORE_COUNT
			see();
			draw(any, round, first);
			listen(any, all, first);
			read_topics();
			test_condition(any, round, holds);
#endif
		od;
		/* wait_bell_leave: until then it can only be woken once too often. */
		atomic {
			to_one = to_one - only;
			to_all = to_all - all;
			listeners[0] = listeners[0] - on0;
			listeners[1] = listeners[1] - on1;
			sleepers--;
			only = false; all = false; on0 = false; on1 = false;
			seen = 0; seen0 = 0; seen1 = 0; first = 0; holds = false /* fewer states */
		}
		assert(any -> ANY(round) : ALL(round))
	}
}

/* Two waiters; or one that waits twice; or one that needs any word, of which only one comes. */
init
{
	atomic {
		if
		:: rounds = 1; run waiter(0, false); run waiter(1, true); run signaller(0);
			run signaller(1)
		:: rounds = 2; run waiter(0, false); run signaller(0); run signaller(1)
		:: rounds = 2; run waiter(0, true); run signaller(0)
		:: rounds = 2; run waiter(0, true); run signaller(1)
		fi
	}
	_nr_pr == 1;
	assert(sleepers == 0 && to_all == 0 && to_one == 0);
	assert(listeners[0] == 0 && listeners[1] == 0);
	assert(!asleep[0] && !asleep[1])
}
