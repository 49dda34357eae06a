/* SPDX-License-Identifier: BSD-3-Clause
 * Messages that have not been received yet, read from a segment by any process, for a diagnosis.
 * Nothing is trusted: torn or nonsensical messages are left out. */
#include <string.h>

#include "base/ranks.h"
#include "base/seqlock.h"
#include "transport/transport.h"

static bool read_slot(const struct mail_box *box, int index, struct transport_unexpected *out)
{
	const struct mail_slot *slot = &box->slots[index];
	uint64_t before = atomic_load_explicit(&slot->held, memory_order_acquire);
	struct mail_envelope envelope;
	_Static_assert(sizeof envelope % 8 == 0, "is copied as words");
	seqlock_load(&envelope, &slot->envelope, sizeof envelope);
	if (atomic_load_explicit(&box->freed[index], memory_order_acquire) == before ||
	    atomic_load_explicit(&slot->held, memory_order_acquire) != before)
		return false;
	*out = (struct transport_unexpected){.position = before,
					     .count = envelope.count,
					     .tag = envelope.tag,
					     .record = envelope.record,
					     .dtype = envelope.dtype};
	return true;
}

/* Keeps the oldest, in their order. */
static void keep(struct transport_unexpected *all, int max, int *count,
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

int transport_unexpected(const void *segment, size_t bytes, int world_size, unsigned area,
			 int source, struct transport_unexpected *out, int max, int *total)
{
	int count = 0;
	*total = 0;
	if (world_size < 1 || world_size > RANKS_HOST_MAX || area >= TRANSPORT_AREAS || source < 0 ||
	    source >= world_size || max < 1 || bytes < transport_segment_bytes(world_size))
		return 0;
	const struct transport_area *at = transport_area_at(segment, world_size, area);
	const struct mail_box *box = &((const struct transport_lanes *)(at + 1))[source].mail;
	for (int i = 0; i < MAIL_SLOTS; i++) {
		struct transport_unexpected one;
		if (!read_slot(box, i, &one))
			continue;
		++*total;
		keep(out, max, &count, &one);
	}
	return count;
}
