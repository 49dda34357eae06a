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

/* Count a thread that is about to sleep at the bell, where any signaller wakes it; and end that. */
void wait_count_sleeper(struct wait_bell *bell);
void wait_uncount_sleeper(struct wait_bell *bell);
/* After a thread that is counted has read `wakeups`, and before it tests its words for the last
 * time: if it is alone, only one of the ranks that it needs has to wake it; see wait_bell.c.
 * `seed` draws that rank. */
void wait_narrow(struct wait_bell *bell, const struct wait_call *call, uint64_t seed);

/* Whether the wait has ended, apart from its time limit, and with which status. */
bool wait_is_over(const struct waiter *waiter, const struct wait_call *call, ls_status *status,
		  int *peer);

/* Sleeps while *word is `value`, at most until until_ns. False, after a message, if the system
 * refuses it. */
bool wait_sleep_while(_Atomic uint32_t *word, uint32_t value, uint64_t until_ns, bool *interrupted);

/* Wakes the watch, so that it looks why a wait lasts; and when the watch is to look next. */
void wait_wake_watch(struct waiter *waiter);
uint64_t wait_after(uint64_t ns, uint64_t wait_ns);
uint64_t wait_next_look(const struct waiter *waiter, const struct wait_call *call, uint64_t now_ns);

/* What a slot shows of a call. Returns the words that body->edges has no room for. */
const struct wait_word *wait_fill_body(const struct wait_call *call, uint64_t since_ns,
				       struct wait_slot_body *body);

#endif
