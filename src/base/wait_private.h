/* SPDX-License-Identifier: BSD-3-Clause
 * What wait.c, wait_bell.c and wait_set.c share: how a wait spins, sleeps, ends, and is shown.
 * Within base only. */
#ifndef BASE_WAIT_PRIVATE_H
#define BASE_WAIT_PRIVATE_H

#include "base/wait.h"

enum {
	/* A thread that spins for longer is likely to wait for a rank that has no core: another
	 * program may have it, and get the spinner's as well. A yield with nobody else there costs
	 * a short system call. */
	WAIT_SPIN_ALONE_NS = 20000,
};

static inline void wait_pump_advance(const struct wait_pump *pump)
{
	if (pump)
		pump->advance(pump->context);
}
static inline void wait_pump_hand_over(const struct wait_pump *pump)
{
	if (pump)
		pump->hand_over(pump->context);
}

static inline bool wait_word_is_there(const struct wait_word *word)
{
	uint64_t now = atomic_load_explicit(word->word, memory_order_seq_cst);
	return (int64_t)(now - word->edge.value) >= 0;
}

/* Topics that a sleeper listens to; one with words of more topics listens to all. */
enum { WAIT_TOPICS_AT_ONCE = 8 };

/* What a thread at a doorbell listens to: a set of topics (bit i: topic i + 1), or all. */
struct wait_topics {
	uint64_t topics;
	bool all;
	bool one; /* it listens to one topic, and sleeps on its word only */
	/* of each wait that needs all of its words: the one that it waits for first */
	const struct wait_word *first[WAIT_TOPICS_AT_ONCE];
	int first_count;
};
/* A thread at a doorbell, between wait_bell_enter and wait_bell_leave. Before its last test of the
 * words it calls wait_bell_add for each of its waits, then wait_bell_listen; after the test
 * wait_bell_sleep. */
struct wait_sleeper {
	struct wait_bell *bell;
	struct wait_topics now, next;
	bool one_word; /* the system allows no more; with several topics it then listens to all */
	uint32_t seen, topic_seen[WAIT_TOPICS_AT_ONCE];
};
void wait_bell_enter(struct wait_sleeper *sleeper, struct wait_bell *bell);
void wait_bell_leave(struct wait_sleeper *sleeper);
/* `seed` draws the word that a wait for all of its words waits for first. */
void wait_bell_add(struct wait_sleeper *sleeper, const struct wait_call *call, uint64_t seed);
/* From now on signallers see what the thread listens to. */
void wait_bell_listen(struct wait_sleeper *sleeper);
/* Sleeps until a signaller has woken the thread, which may have been since wait_bell_listen, or
 * until until_ns. False, after a message, if the system refuses it. */
bool wait_bell_sleep(struct wait_sleeper *sleeper, uint64_t until_ns, bool *interrupted);

/* Whether the wait has ended, apart from its time limit, and with which status. */
bool wait_is_over(const struct waiter *waiter, const struct wait_call *call, ls_status *status,
		  int *peer);

/* Sleeps while each of the words has its value, at most until until_ns. REFUSED comes with a
 * message; ONE_WORD means that this system does not know sleeps on several words. */
struct wait_futex {
	_Atomic uint32_t *word;
	uint32_t value;
};
enum wait_slept { WAIT_SLEPT, WAIT_SLEPT_INTERRUPTED, WAIT_SLEEP_REFUSED, WAIT_SLEEP_ONE_WORD };
enum wait_slept wait_sleep_while(const struct wait_futex *words, int count, uint64_t until_ns);

/* Wakes the watch, so that it looks why a wait lasts; and when the watch is to look next. */
void wait_wake_watch(struct waiter *waiter);
uint64_t wait_after(uint64_t ns, uint64_t wait_ns);
uint64_t wait_next_look(const struct waiter *waiter, const struct wait_call *call, uint64_t now_ns);

/* What a slot shows of a call. Returns the words that body->edges has no room for. */
const struct wait_word *wait_fill_body(const struct wait_call *call, uint64_t since_ns,
				       struct wait_slot_body *body);

#endif
