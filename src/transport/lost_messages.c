/* SPDX-License-Identifier: BSD-3-Clause
 * Messages that stay in a ring forever, because its owner has closed the group. Each of the two
 * ranks finds some when it closes the group: the owner those that are there then, the source those
 * that it has sent since. Each message is reported once.
 *
 *   owner: reported |= 1, looks, claims        source: posts its last, reported & 1? looks, claims
 *
 * All these accesses are sequentially consistent, so if the owner does not see a message, its
 * source sees that the owner has ended. The same holds for an inbox that is not open: the owner
 * stores mail_ended before it looks whether the inbox is open, and the source opens it before it
 * posts. */
#include "base/seqlock.h"
#include "transport/mail.h"

void transport_mail_end(struct mail_ring *ring)
{
	atomic_fetch_or(&ring->reported, 1);
}

bool transport_mail_has_ended(const struct mail_ring *ring)
{
	return atomic_load(&ring->reported) & 1;
}

/* Claims the positions from the returned one up to `next`, whose messages the caller reports. */
static uint64_t claim_positions(struct mail_ring *ring, uint64_t next)
{
	uint64_t reported = atomic_load(&ring->reported);
	while (reported >> 1 < next &&
	       !atomic_compare_exchange_weak(&ring->reported, &reported, next << 1 | 1))
		;
	return reported >> 1;
}

/* A long message does not count: its send is not complete, or was cancelled, so its sender
 * knows. */
static bool is_lost(const struct mail_ring *ring, unsigned slot, uint64_t *position,
		    struct mail_envelope *envelope)
{
	*position = atomic_load_explicit(&ring->slots[slot].held, memory_order_acquire);
	if (!transport_mail_holds(ring, slot, *position))
		return false;
	seqlock_load(envelope, &ring->slots[slot].envelope, sizeof *envelope);
	return !envelope->rts || envelope->flags & MAIL_BLOCK;
}

int transport_mail_lost(struct mail_ring *ring, uint64_t next, struct mail_envelope *first)
{
	uint64_t from = claim_positions(ring, next), oldest = next;
	int count = 0;
	for (unsigned i = 0; i < MAIL_SLOTS; i++) {
		struct mail_envelope envelope;
		uint64_t position;
		if (!is_lost(ring, i, &position, &envelope) || position < from || position >= next)
			continue;
		count++;
		if (position < oldest) {
			oldest = position;
			*first = envelope;
		}
	}
	return count;
}
