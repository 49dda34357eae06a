/* SPDX-License-Identifier: BSD-3-Clause
 * Part of loop_fixture.h: the life of a long payload, from its post until neither end needs it. */
#ifndef LINK_LOOP_OFFERS_FIXTURE_H
#define LINK_LOOP_OFFERS_FIXTURE_H

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "link/loop_types_fixture.h"

static inline uint64_t loop_draw(struct loop *loop, uint64_t below) LOCK_REQUIRES(peer)
{
	loop->seed = loop->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (loop->seed >> 33) % below;
}

/* Whether either has given the other up. */
static inline bool loop_is_cut(const struct loop *loop, int a, int b) LOCK_REQUIRES(peer)
{
	return loop->ends[a].has_cut[b] || loop->ends[b].has_cut[a];
}

static inline void loop_poke(struct loop_end *end)
{
	if (end->is_armed && eventfd_write(end->fd, 1) != 0)
		abort();
}

static inline struct loop_offer *loop_offer(struct loop *loop, int source, int target,
					    const void *payload, uint64_t bytes,
					    struct link_transfer *transfer) LOCK_REQUIRES(peer)
{
	struct loop_offer *offer = calloc(1, sizeof *offer);
	if (!offer)
		abort();
	*offer = (struct loop_offer){.next = loop->offers,
				     .source = source,
				     .target = target,
				     .from = payload,
				     .bytes = bytes,
				     .sent = transfer};
	loop->offers = offer;
	return offer;
}

/* The source is soon done, whatever becomes of the copy. */
static inline void loop_copy(struct loop *loop, struct loop_offer *offer) LOCK_REQUIRES(peer)
{
	struct loop_end *source = &loop->ends[offer->source];
	if (offer->bytes > LINK_EAGER_BYTES || !(offer->copy = malloc(offer->bytes)))
		abort();
	memcpy(offer->copy, offer->from, offer->bytes);
	offer->from = offer->copy;
	offer->source_ends = true;
	offer->source_status = LS_OK;
	offer->ready = source->tick + loop_draw(loop, LOOP_DELAY);
	loop_poke(source);
}

static inline void loop_free_offer(struct loop_offer *offer)
{
	free(offer->copy);
	free(offer);
}

/* Its payload was fetched. */
static inline void loop_end_source(struct loop *loop, struct loop_offer *offer) LOCK_REQUIRES(peer)
{
	struct loop_end *source = &loop->ends[offer->source];
	offer->source_ends = true;
	offer->ready = source->tick + loop_draw(loop, 4 * LOOP_DELAY);
	loop_poke(source);
}

/* Frees those that neither end needs. */
static inline void loop_sweep(struct loop *loop) LOCK_REQUIRES(peer)
{
	struct loop_offer **at = &loop->offers;
	while (*at) {
		struct loop_offer *offer = *at;
		if (offer->sent || offer->fetched || offer->is_held || offer->is_queued) {
			at = &offer->next;
			continue;
		}
		*at = offer->next;
		loop_free_offer(offer);
	}
}

/* The next transfer of mine with a peer that has to end; and at the peer's all break. */
static inline struct link_transfer *loop_break(struct loop *loop, int me, int peer)
	LOCK_REQUIRES(peer)
{
	for (struct loop_offer *offer = loop->offers; offer; offer = offer->next) {
		bool is_source = offer->source == me && offer->target == peer;
		if (!is_source && (offer->target != me || offer->source != peer))
			continue;
		struct link_transfer **mine = is_source ? &offer->sent : &offer->fetched;
		struct link_transfer *theirs = is_source ? offer->fetched : offer->sent;
		bool *ends = is_source ? &offer->target_ends : &offer->source_ends;
		bool outlives = is_source && offer->copy; /* what is there can still be fetched */
		if (theirs && !*ends && !outlives) {
			*ends = true;
			*(is_source ? &offer->target_status : &offer->source_status) = LS_PEER_DIED;
		}
		if (!outlives) {
			offer->is_broken = true;
			offer->is_fetching = false;
		}
		struct link_transfer *transfer = *mine;
		*mine = NULL;
		if (transfer) {
			transfer->status = LS_ABORTED;
			return transfer;
		}
	}
	return NULL;
}

#endif
