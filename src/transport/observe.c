/* SPDX-License-Identifier: BSD-3-Clause
 * What a diagnosis reads from a segment, in any process: messages that have not been received yet,
 * and entries of collectives. It trusts nothing, and leaves out torn or nonsensical content. */
#include <string.h>

#include "base/ranks.h"
#include "base/seqlock.h"
#include "transport/observe.h"

static bool read_slot(const struct mail_ring *ring, unsigned index, struct transport_unexpected *out)
{
	const struct mail_slot *slot = &ring->slots[index];
	uint64_t before = atomic_load_explicit(&slot->held, memory_order_acquire);
	struct mail_envelope envelope;
	_Static_assert(sizeof envelope % 8 == 0, "is copied as words");
	seqlock_load(&envelope, &slot->envelope, sizeof envelope);
	if (!transport_mail_holds(ring, index, before) ||
	    atomic_load_explicit(&slot->held, memory_order_acquire) != before)
		return false;
	*out = (struct transport_unexpected){.position = before,
					     .count = envelope.count,
					     .tag = envelope.tag,
					     .record = envelope.record,
					     .dtype = envelope.dtype};
	return true;
}

/* Keeps the `max` oldest messages, in their order. */
static void keep_oldest(struct transport_unexpected *all, int max, int *count,
			const struct transport_unexpected *one)
{
	int at = *count;
	if (at == max && all[at - 1].position <= one->position)
		return;
	at -= at == max;
	for (; at > 0 && all[at - 1].position > one->position; at--)
		all[at] = all[at - 1];
	all[at] = *one;
	*count += *count < max;
}

/* NULL: the segment is too short for its job, or there is no such area. */
static const struct transport_area *find_area(const void *segment, size_t bytes, int world_size,
					      unsigned area)
{
	if (world_size < 1 || world_size > RANKS_WORLD_MAX || area >= TRANSPORT_AREAS ||
	    bytes < transport_segment_bytes(world_size))
		return NULL;
	return transport_area_at(segment, world_size, area);
}

bool transport_read_entry(const struct transport_area *area, uint64_t seq,
			  struct transport_entered *out)
{
	const struct transport_entry *entry = &area->entries[transport_entry_index(seq)];
	uint64_t signal = atomic_load_explicit(&entry->signal, memory_order_acquire);
	out->signature = __atomic_load_n(&entry->signature, __ATOMIC_ACQUIRE);
	out->count = __atomic_load_n(&entry->count, __ATOMIC_ACQUIRE);
	return transport_signal_is_of(signal, seq) &&
	       transport_signal_is_of(atomic_load_explicit(&entry->signal, memory_order_relaxed),
				      seq);
}

bool transport_read_entered(const void *segment, size_t bytes, int world_size, unsigned area,
			    uint64_t seq, struct transport_entered *out)
{
	const struct transport_area *at = find_area(segment, bytes, world_size, area);
	return at && transport_read_entry(at, seq, out);
}

int transport_unexpected(const void *segment, size_t bytes, int world_size, unsigned area,
			 int source, struct transport_unexpected *out, int max, int *total)
{
	int count = 0;
	*total = 0;
	const struct transport_area *at = find_area(segment, bytes, world_size, area);
	if (!at || source < 0 || source >= world_size || max < 1 ||
	    !transport_inbox_is_open(at, source))
		return 0;
	const struct mail_ring *ring = &((const struct transport_inbox *)(at + 1))[source].mail;
	for (int i = 0; i < MAIL_SLOTS; i++) {
		struct transport_unexpected one;
		if (!read_slot(ring, i, &one))
			continue;
		++*total;
		keep_oldest(out, max, &count, &one);
	}
	return count;
}
