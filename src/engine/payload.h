/* SPDX-License-Identifier: BSD-3-Clause
 * Payloads in the pages beside the entries, which are a ring with the rule of the entries
 * (README.md); and what else the path of short collectives (inline.h) needs of the engine. */
#ifndef ENGINE_PAYLOAD_H
#define ENGINE_PAYLOAD_H

#include <string.h>

#include "base/prefetch.h"
#include "engine/engine.h"
#include "hosts/hosts.h"
#include "transport/payload.h"

/* Steps of a 64-bit hash that changes with every bit of both operands (the finaliser of
 * MurmurHash3). */
static inline uint64_t engine_mix(uint64_t hash, uint64_t value)
{
	hash ^= value;
	hash = (hash ^ hash >> 33) * UINT64_C(0xff51afd7ed558ccd);
	hash = (hash ^ hash >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
	return hash ^ hash >> 33;
}

/* The first page of a new payload of `bytes`. */
static inline unsigned engine_payload_page(const struct engine *engine, uint64_t bytes)
{
	return engine->payload_next + transport_payload_pages(bytes) <= TRANSPORT_INLINE_PAGES
		       ? engine->payload_next
		       : 0;
}
/* The collective that all ranks must have entered before I write to these pages: by then they have
 * finished the collective that used them. 0: none. */
static inline uint64_t engine_payload_needs(const struct engine *engine, uint64_t bytes)
{
	unsigned page = engine_payload_page(engine, bytes);
	uint64_t last = 0;
	for (unsigned i = 0; i < transport_payload_pages(bytes); i++)
		if (engine->payload_seqs[page + i] > last)
			last = engine->payload_seqs[page + i];
	return last ? last + 1 : 0;
}
_Static_assert(4 * TRANSPORT_INLINE_BYTES <= TRANSPORT_INLINE_PAGES * TRANSPORT_PAGE_BYTES,
	       "there are pages for three payloads in a row, and a gap before page 0");
_Static_assert(TRANSPORT_ENTRIES > 2, "as with the pages");
_Static_assert(TRANSPORT_ENTRIES - 1 - TRANSPORT_ENTRIES / 4 > HOSTS_ENTRIES_KEPT,
	       "a rank does not wait for entries that others keep back while they keep step with it");
/* Before collective `seq`, with a payload of `bytes` in pages, is entered: the collective that all
 * members must have entered, because the entry or the pages are in use. 0: they are free.
 *
 * need: the newest collective whose entry or payload pages this one reuses. It is at most seq - 2,
 * because neither of the last two collectives used them: so the rank never waits for peers to enter
 * a collective that it has yet to enter itself. If a peer has not entered `need`, the rank waits
 * until the peers have come half the way from there to seq, so that it does not wait again at the
 * next call: each check takes cache lines from the ranks that are behind. Where ranks share
 * processors it waits for all of the way. Between hosts it waits for a quarter: it may not know the
 * last HOSTS_ENTRIES_KEPT entries of a rank that keeps step with it, and would wait until that rank
 * pushes them.
 */
static inline uint64_t engine_room_awaits(const struct engine *engine, uint64_t seq, uint64_t bytes)
{
	uint64_t need = bytes > 0 ? engine_payload_needs(engine, bytes) : 0;
	if (seq >= TRANSPORT_ENTRIES && seq - TRANSPORT_ENTRIES + 1 > need)
		need = seq - TRANSPORT_ENTRIES + 1;
	if (engine->entered_by_all >= need)
		return 0;
	if (engine->team->host_count > 1)
		return need + (seq - need + 1) / 4;
	return engine->table.oversubscribed ? seq - 1 : need + (seq - need + 1) / 2;
}
/* Makes these pages the payload of entry `seq`. */
static inline unsigned char *engine_payload_take(struct engine *engine, uint64_t seq, uint64_t bytes)
{
	struct transport_team *team = engine->team;
	unsigned page = engine_payload_page(engine, bytes), pages = transport_payload_pages(bytes);
	transport_entry(team, team->rank, seq)->page = page;
	for (unsigned i = 0; i < pages; i++)
		engine->payload_seqs[page + i] = seq;
	engine->payload_last = page;
	engine->payload_next = page + pages;
	return transport_area_of(team, team->rank)->payloads[page];
}
static inline void engine_payload_put(struct engine *engine, uint64_t seq, const void *payload,
				      uint64_t bytes)
{
	memcpy(engine_payload_take(engine, seq, bytes), payload, bytes);
}
/* Call after an entry with a payload of `bytes` was published, while this rank waits anyway:
 * fetches the cache lines of the next payload back from the ranks that have read them. It guesses
 * that the next payload is as long. */
static inline void engine_payload_prefetch(const struct engine *engine, uint64_t bytes)
{
	const struct transport_team *team = engine->team;
	const unsigned char *payload =
		transport_area_of(team, team->rank)->payloads[engine_payload_page(engine, bytes)];
	for (uint64_t at = 0; at < bytes; at += 64)
		prefetch_for_store(payload + at);
}

/* Whether the group has failed: a load after this rank's stores in the sequentially consistent
 * order (README.md, late access). */
static inline bool engine_has_failed(const struct engine *engine)
{
	return wait_has_failed(atomic_load_explicit(engine->cause, memory_order_seq_cst));
}

/* The same without any order: it may lag, so nothing may depend on false. It only ends long work
 * early. */
static inline bool engine_has_failed_hint(const struct engine *engine)
{
	return wait_has_failed(atomic_load_explicit(engine->cause, memory_order_relaxed));
}

#endif
