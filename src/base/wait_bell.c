/* SPDX-License-Identifier: BSD-3-Clause
 * The doorbell: who sleeps there, and who wakes the sleepers.
 *
 * Where 64 ranks share a few processors and each wakes all sleepers when it enters a collective,
 * the ranks spend nearly all time on waking up, finding most words missing, and sleeping again. So
 * a thread that needs all of several words, and is alone at its bell, names the rank whose word it
 * waits for first. It draws that rank, as the order in which ranks come may be any; so of n ranks
 * that are missing about ln n wake it, instead of n. */
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/wait_private.h"

#define ARMINGS (WAIT_ARMED | WAIT_ARMED_URGENT)
enum { FIRST_MAX = UINT32_MAX >> WAIT_FIRST_SHIFT };

/* ---- who sleeps ---- */

static void change_sleepers(struct wait_bell *bell, uint32_t change)
{
	uint32_t state = atomic_load(&bell->sleepers), then;
	do
		then = (state & ARMINGS) | ((state + change) & WAIT_SLEEPERS);
	while (!atomic_compare_exchange_weak(&bell->sleepers, &state, then));
}

void wait_count_sleeper(struct wait_bell *bell)
{
	change_sleepers(bell, 1);
}

void wait_uncount_sleeper(struct wait_bell *bell)
{
	change_sleepers(bell, -1u);
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
	for (int i = 0; i < call->count; i++)
		if (!wait_word_is_there(&call->words[i]) && skip-- == 0)
			return &call->words[i];
	return NULL;
}

/* Names the word's writer, if the calling thread is the only sleeper; NULL: nobody. */
static void name_first(struct wait_bell *bell, const struct wait_word *word)
{
	int peer = word ? word->edge.peer : -1;
	uint32_t first = peer >= 0 && peer < FIRST_MAX ? (uint32_t)peer + 1 : 0;
	uint32_t state = atomic_load(&bell->sleepers), then;
	do {
		if ((state & WAIT_SLEEPERS) != 1 || state >> WAIT_FIRST_SHIFT == first)
			return;
		then = (state & (ARMINGS | WAIT_SLEEPERS)) | first << WAIT_FIRST_SHIFT;
	} while (!atomic_compare_exchange_weak(&bell->sleepers, &state, then));
}

/* A word that has come before its writer could see that it is named wakes nobody any more: then
 * another one is drawn. One that comes later changes `wakeups`, which the caller has read. */
void wait_narrow(struct wait_bell *bell, const struct wait_call *call, uint64_t seed)
{
	for (int tries = 0; tries < call->count && !call->any; tries++) {
		const struct wait_word *word = draw_missing(call, seed);
		name_first(bell, word);
		if (!word || !wait_word_is_there(word))
			return;
	}
	name_first(bell, NULL);
}

/* ---- who wakes them ---- */

/* Fails only for an address that is not mapped, where no thread can sleep either. */
static void futex_wake(_Atomic uint32_t *word)
{
	atomic_fetch_add_explicit(word, 1, memory_order_seq_cst);
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Whether the only sleeper needs a word of another rank than this one first. */
static bool awaits_another(uint32_t state, uint32_t writer)
{
	uint32_t first = state >> WAIT_FIRST_SHIFT;
	return writer && first && first != writer;
}

/* `armed`: how the bell must be armed for this to wake the progress thread, too. writer: the rank
 * that has stored a word, plus 1; 0: wake all sleepers. */
static void wake_bell(struct wait_bell *bell, uint32_t armed, uint32_t writer)
{
	uint32_t state = atomic_load_explicit(&bell->sleepers, memory_order_seq_cst);
	if (state == 0)
		return;
	/* Meanwhile the bell may have been disarmed, and armed again in the other way: the thread
	 * that disarms it must wake the progress thread. */
	if (state & armed && atomic_fetch_and(&bell->sleepers, ~ARMINGS) & WAIT_ARMED)
		wait_wake_progress(bell);
	if (state & WAIT_SLEEPERS && !awaits_another(state, writer))
		futex_wake(&bell->wakeups);
}

void wait_wake(struct wait_bell *bell)
{
	wake_bell(bell, WAIT_ARMED_URGENT, 0);
}

void wait_wake_for(struct wait_bell *bell, int writer)
{
	wake_bell(bell, WAIT_ARMED_URGENT, (uint32_t)writer + 1);
}

void wait_request_progress(struct wait_bell *bell)
{
	wake_bell(bell, ARMINGS, 0);
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
		futex_wake(&bell->wakeups);
		break;
	}
}
