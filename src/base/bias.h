/* SPDX-License-Identifier: BSD-3-Clause
 * Exclusion for data that one thread uses nearly always. That thread, its owner, enters and leaves
 * with plain loads and stores. Any other thread first revokes the bias with a system call. This
 * saves two locked instructions each time; a short message has room for one.
 *
 *   owner                                     revoker (one at a time)
 *   owner is me? inside[i] = 1                owner = BIAS_TAKEN
 *   owner is still me? then I am in           membarrier: all stores of the owner are seen
 *   inside[i] = 0                             wait while inside[i]
 *                                             owner = 0: nobody's
 *
 * The owner's store and its second load may be reordered in its processor. The membarrier puts a
 * barrier between them if the owner is just there. So either the owner sees that it has lost the
 * bias, or the revoker sees that the owner is inside. Each owner has a word of its own, because a
 * former owner may still store there when there is another one. The bias is nobody's only when its
 * owner has left, so a thread that sees this needs to know nothing else.
 * Models: test/model/bias.pml, test/model/bias_once.pml. Decision 022. Not for signal handlers. */
#ifndef BASE_BIAS_H
#define BASE_BIAS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	BIAS_OWNERS = 8, /* one after the other; then the bias is nobody's for good */
	/* No thread's bias_me + index. */
	BIAS_TAKEN = 1,
	BIAS_OFFERED = 2,
};

struct bias {
	/* bias_me of the owner + the index of its word. 0: it is nobody's. BIAS_TAKEN: a thread is
	 * revoking it, and its owner may still be inside. BIAS_OFFERED: nobody has entered yet. */
	_Atomic uintptr_t owner;
	/* For each owner: 1 while it is inside, or about to look whether it may be. */
	_Atomic uint32_t inside[BIAS_OWNERS];
	uint32_t owners; /* so far; BIAS_OWNERS, too, if the system refuses membarrier */
};

/* Makes a bias that is nobody's. */
void bias_init(struct bias *bias);
/* Gives the bias to the calling thread, unless the bias has had BIAS_OWNERS owners. The bias must
 * be nobody's, and no other thread may call this or bias_revoke meanwhile. */
void bias_give(struct bias *bias);
/* Call after bias_init if the first thread that wants to enter is to get the bias, by bias_give.
 * Until then bias_has_owner is true, so that a thread which cannot enter has to look no further. */
void bias_offer(struct bias *bias);
static inline bool bias_is_offered(const struct bias *bias)
{
	return atomic_load_explicit(&bias->owner, memory_order_relaxed) == BIAS_OFFERED;
}
/* Takes the bias from its owner, and returns when that thread has left. That is soon, because an
 * owner waits for nothing inside; but the owner may be off its processor. Afterwards the caller
 * sees what the owner did inside. */
void bias_revoke(struct bias *bias);

/* Its address names the calling thread, as long as the thread lives. */
extern _Thread_local _Alignas(BIAS_OWNERS) char bias_thread;
static inline uintptr_t bias_me(void)
{
	return (uintptr_t)&bias_thread;
}

/* False: no owner is inside, and what owners did inside is seen. */
static inline bool bias_has_owner(const struct bias *bias)
{
	return atomic_load_explicit(&bias->owner, memory_order_acquire) != 0;
}

/* Not NULL: the caller is the owner and is inside until it passes this to bias_leave. It must not
 * wait, nor enter again, before that. NULL: it is not the owner. */
static inline _Atomic uint32_t *bias_enter(struct bias *bias)
{
	uintptr_t owner = atomic_load_explicit(&bias->owner, memory_order_acquire);
	uintptr_t index = owner ^ bias_me();
	if (__builtin_expect(index >= BIAS_OWNERS, 0))
		return NULL;
	_Atomic uint32_t *inside = &bias->inside[index];
	/* A thread that has ended may have had the same address: what it did inside is seen. */
	(void)atomic_load_explicit(inside, memory_order_acquire);
	atomic_store_explicit(inside, 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	if (__builtin_expect(atomic_load_explicit(&bias->owner, memory_order_acquire) == owner, 1))
		return inside;
	atomic_store_explicit(inside, 0, memory_order_release);
	return NULL;
}

static inline void bias_leave(_Atomic uint32_t *inside)
{
	atomic_store_explicit(inside, 0, memory_order_release);
}

#endif
