/* SPDX-License-Identifier: BSD-3-Clause
 * Payloads that travel beside entries, in the pages of their rank's area. */
#ifndef TRANSPORT_PAYLOAD_H
#define TRANSPORT_PAYLOAD_H

#include "transport/transport.h"

/* Pages for a payload of `bytes`, which are at most TRANSPORT_INLINE_BYTES. */
static inline unsigned transport_payload_pages(uint64_t bytes)
{
	return (unsigned)((bytes + TRANSPORT_PAGE_BYTES - 1) / TRANSPORT_PAGE_BYTES);
}
/* The payload of an entry, of `bytes`; if the entry names pages that do not exist, other pages. */
static inline unsigned char *transport_entry_payload(const struct transport_team *team, int rank,
						     uint64_t seq, uint64_t bytes)
{
	unsigned page = __atomic_load_n(&transport_entry(team, rank, seq)->page, __ATOMIC_RELAXED);
	unsigned last = TRANSPORT_INLINE_PAGES - transport_payload_pages(bytes);
	return transport_area_of(team, rank)->payloads[page < last ? page : last];
}

#endif
