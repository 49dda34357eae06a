/* SPDX-License-Identifier: BSD-3-Clause
 * The doorbell: who sleeps there, and who wakes the sleepers.
 *
 * Where threads of a rank wait for different things, a store concerns few of them. And where many
 * ranks share a few processors, a rank that needs words of all others would be woken by each of
 * them, find most words missing, and sleep again. So a word may have a topic, and a thread is woken
 * by the topics that it listens to: those of all of its words, if any one suffices; if it needs all
 * of them, the topic of one word that is missing. It draws that word, as the order in which ranks
 * come may be any; so of n ranks that are missing about ln n wake the thread, instead of n. */
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/wait_private.h"

#define ARMINGS (WAIT_ARMED | WAIT_ARMED_URGENT)

/* ---- who sleeps ---- */

void wait_bell_enter(struct wait_sleeper *sleeper, struct wait_bell *bell)
{
	*sleeper = (struct wait_sleeper){.bell = bell};
	atomic_fetch_add(&bell->sleepers, 1);
}

/* One of the words that are missing. NULL: there is none. */
static const struct wait_word *draw_missing(const struct wait_call *call, uint64_t seed)
{
	uint32_t missing = 0;
	for (int i = 0; i < call->count; i++)
		missing += !wait_word_is_there(&call->words[i]);
	/* Fibonacci hashing. */
	uint32_t random = (uint32_t)(seed * UINT64_C(0x9e3779b97f4a7c15) >> 32);
	uint32_t skip = (uint32_t)((uint64_t)random * missing >> 32);
	const struct wait_word *last = NULL; /* fewer words may be missing by now */
	for (int i = 0; i < call->count; i++) {
		if (wait_word_is_there(&call->words[i]))
			continue;
		last = &call->words[i];
		if (skip-- == 0)
			break;
	}
	return last;
}

static void add_topic(struct wait_topics *topics, int topic)
{
	if (topic > 0)
		topics->topics |= UINT64_C(1) << (topic - 1) % WAIT_TOPICS;
	if (__builtin_popcountll(topics->topics) > WAIT_TOPICS_AT_ONCE)
		topics->all = true;
}

void wait_bell_add(struct wait_sleeper *sleeper, const struct wait_call *call, uint64_t seed)
{
	struct wait_topics *next = &sleeper->next;
	if (call->any) {
		for (int i = 0; i < call->count && !next->all; i++)
			add_topic(next, call->words[i].topic);
		return;
	}
	const struct wait_word *first = draw_missing(call, seed);
	if (!first)
		return; /* the wait is over */
	if (next->first_count == WAIT_TOPICS_AT_ONCE) {
		next->all = true;
		return;
	}
	next->first[next->first_count++] = first;
	add_topic(next, first->topic);
}

static void count_listener(struct wait_bell *bell, uint64_t topics, uint16_t change)
{
	for (; topics; topics &= topics - 1)
		atomic_fetch_add(&bell->listeners[__builtin_ctzll(topics)], change);
}

static void change_topics(struct wait_sleeper *sleeper)
{
	struct wait_topics *now = &sleeper->now, *next = &sleeper->next;
	struct wait_bell *bell = sleeper->bell;
	if (next->all)
		next->topics = 0;
	if (next->all != now->all)
		atomic_fetch_add(&bell->to_all, next->all ? 1 : -1u);
	if (next->one != now->one)
		atomic_fetch_add(&bell->to_one, next->one ? 1 : -1u);
	count_listener(bell, next->topics & ~now->topics, 1);
	count_listener(bell, now->topics & ~next->topics, (uint16_t)-1);
	*now = *next;
	*next = (struct wait_topics){0};
}

static void choose_words(struct wait_topics *next, bool one_word)
{
	int count = __builtin_popcountll(next->topics);
	next->all |= one_word && count > 1;
	next->one = count == 1 && !next->all;
}

void wait_bell_listen(struct wait_sleeper *sleeper)
{
	struct wait_bell *bell = sleeper->bell;
	int count = 0;
	sleeper->seen = atomic_load(&bell->wakeups);
	choose_words(&sleeper->next, sleeper->one_word);
	change_topics(sleeper);
	for (uint64_t topics = sleeper->now.topics; topics; topics &= topics - 1)
		sleeper->topic_seen[count++] =
			atomic_load(&bell->topic_wakeups[__builtin_ctzll(topics)]);
}

/* Whether a word that the thread waits for first has come before its writer could see that. Then no
 * other writer would wake the thread, which has to draw another word. */
static bool has_first(const struct wait_topics *topics)
{
	for (int i = 0; i < topics->first_count; i++)
		if (wait_word_is_there(topics->first[i]))
			return true;
	return false;
}

bool wait_bell_sleep(struct wait_sleeper *sleeper, uint64_t until_ns, bool *interrupted)
{
	struct wait_bell *bell = sleeper->bell;
	struct wait_futex words[1 + WAIT_TOPICS_AT_ONCE];
	int count = 0, topic = 0;
	*interrupted = false;
	if (has_first(&sleeper->now))
		return true;
	if (!sleeper->now.one)
		words[count++] = (struct wait_futex){&bell->wakeups, sleeper->seen};
	for (uint64_t topics = sleeper->now.topics; topics; topics &= topics - 1)
		words[count++] = (struct wait_futex){&bell->topic_wakeups[__builtin_ctzll(topics)],
						     sleeper->topic_seen[topic++]};
	enum wait_slept slept = wait_sleep_while(words, count, until_ns);
	*interrupted = slept == WAIT_SLEPT_INTERRUPTED;
	sleeper->one_word |= slept == WAIT_SLEEP_ONE_WORD;
	return slept != WAIT_SLEEP_REFUSED;
}

void wait_bell_leave(struct wait_sleeper *sleeper)
{
	sleeper->next = (struct wait_topics){0};
	change_topics(sleeper);
	atomic_fetch_sub(&sleeper->bell->sleepers, 1);
}

/* ---- who wakes them ---- */

/* Fails only for an address that is not mapped, where no thread can sleep either. */
static void futex_wake(_Atomic uint32_t *word)
{
	atomic_fetch_add_explicit(word, 1, memory_order_seq_cst);
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void wake_listeners(struct wait_bell *bell, int i)
{
	if (atomic_load(&bell->listeners[i]))
		futex_wake(&bell->topic_wakeups[i]);
}

static void wake_all(struct wait_bell *bell)
{
	futex_wake(&bell->wakeups);
	for (int i = 0; i < WAIT_TOPICS && atomic_load(&bell->to_one); i++)
		wake_listeners(bell, i);
}

/* Wakes all sleepers that listen to this topic; 0: all sleepers. */
static void wake_sleepers(struct wait_bell *bell, int topic)
{
	if (topic == 0 || atomic_load(&bell->to_all))
		wake_all(bell);
	else
		wake_listeners(bell, (topic - 1) % WAIT_TOPICS);
}

/* `armed`: how the bell must be armed for this to wake the progress thread, too. */
static void wake_bell(struct wait_bell *bell, uint32_t armed, int topic)
{
	uint32_t state = atomic_load_explicit(&bell->sleepers, memory_order_seq_cst);
	if (state == 0)
		return;
	/* Meanwhile the bell may have been disarmed, and armed again in the other way: the thread
	 * that disarms it must wake the progress thread. */
	if (state & armed && atomic_fetch_and(&bell->sleepers, ~ARMINGS) & WAIT_ARMED)
		wait_wake_progress(bell);
	if (state & WAIT_SLEEPERS)
		wake_sleepers(bell, topic);
}

void wait_wake(struct wait_bell *bell)
{
	wake_bell(bell, WAIT_ARMED_URGENT, 0);
}

void wait_wake_topic(struct wait_bell *bell, int topic)
{
	wake_bell(bell, WAIT_ARMED_URGENT, topic);
}

void wait_request_progress(struct wait_bell *bell, int topic)
{
	wake_bell(bell, ARMINGS, topic);
}

void wait_arm(struct wait_bell *bell, bool urgent)
{
	atomic_fetch_or(&bell->sleepers, urgent ? ARMINGS : WAIT_ARMED);
}

void wait_disarm(struct wait_bell *bell)
{
	if (atomic_load_explicit(&bell->sleepers, memory_order_relaxed) & ARMINGS)
		atomic_fetch_and(&bell->sleepers, ~ARMINGS);
}

/* The progress thread stores `listens` before it looks at `requests` for the last time. So it sees
 * this request, or this function sees that it listens. */
void wait_wake_progress(struct wait_bell *bell)
{
	atomic_fetch_add(&bell->requests, 1);
	switch ((enum wait_listens)atomic_load(&bell->listens)) {
	case WAIT_LISTENS_NOT:
		break;
	case WAIT_LISTENS_REQUESTS:
		syscall(SYS_futex, &bell->requests, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
		break;
	case WAIT_LISTENS_WAKEUPS:
		wake_all(bell);
		break;
	}
}
