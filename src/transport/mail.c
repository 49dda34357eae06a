/* SPDX-License-Identifier: BSD-3-Clause
 * A ring of messages; the protocol is in mail.h. Nothing here blocks, wakes a thread, or takes a
 * lock: the caller ensures that source and owner are one thread each at a time. */
#include "transport/mail.h"

/* ---- the source ---- */

void transport_mail_out_init(struct mail_out *out)
{
	*out = (struct mail_out){.next = 1, .clear = 1 + MAIL_SLOTS, .free = 1 + MAIL_SLOTS};
}

bool transport_mail_look_for_room(const struct mail_ring *ring, struct mail_out *out, unsigned limit)
{
	/* This line of the owner is read once for as many messages as there were free slots. */
	uint64_t before = out->seen;
	out->seen = atomic_load_explicit(&ring->taken, memory_order_acquire);
	/* If none was taken, the difference wraps around, so a ring that stands still does not
	 * count. */
	out->receiver_lags = out->seen - before - 1 < limit / 4;
	if (out->seen == out->posted)
		out->clear = out->free = out->next + MAIL_SLOTS;
	return out->posted - out->seen < limit;
}

unsigned transport_mail_rts_alloc(struct mail_ring *ring, struct mail_out *out, bool block,
				  uint64_t window, bool by_address, uint64_t bytes)
{
	unsigned bit = (unsigned)__builtin_ctzll(~out->rts[block]);
	unsigned index = block * MAIL_SLOTS + bit;
	struct mail_rts *rts = &ring->rts[index];
	/* 0 says that the slot was never used. So a generation that wraps around skips it. */
	uint32_t generation = ++out->generations[index];
	if (generation == 0)
		generation = ++out->generations[index];
	out->rts[block] |= UINT64_C(1) << bit;
	rts->window = window;
	rts->bytes = bytes;
	rts->by_address = by_address;
	rts->in_places = false;
	rts->generation = generation;
	atomic_store_explicit(&rts->cursor, transport_mail_word(generation, 0),
			      memory_order_relaxed);
	return index;
}

void transport_mail_rts_free(struct mail_out *out, unsigned index, uint32_t generation)
{
	if (out->generations[index] == generation)
		out->rts[index / MAIL_SLOTS] &= ~(UINT64_C(1) << index % MAIL_SLOTS);
}

void transport_mail_reclaim(const struct mail_ring *ring, struct mail_out *out, bool block,
			    const uint64_t *kept)
{
	if (transport_mail_has_rts(out, block))
		return;
	/* This word counts for both halves. */
	out->returned = atomic_load_explicit(&ring->returned, memory_order_acquire);
	for (unsigned i = 0; i < MAIL_RTS; i++) {
		uint64_t done = atomic_load_explicit(&ring->rts[i].done, memory_order_acquire);
		uint64_t mine = transport_mail_word(out->generations[i], 0);
		bool is_kept = kept[i / MAIL_SLOTS] >> i % MAIL_SLOTS & 1;
		if (!is_kept && (int64_t)(done - mine) >= 0)
			transport_mail_rts_free(out, i, out->generations[i]);
	}
}

void transport_mail_skip(struct mail_ring *ring, struct mail_out *out)
{
	wait_store(&ring->slots[transport_mail_index(out->next)].sequence, out->next);
	out->next++;
}

/* Whether the slot of this position holds an older message that was not matched yet. */
static bool is_occupied(const struct mail_ring *ring, uint64_t position)
{
	const struct mail_slot *slot = &ring->slots[transport_mail_index(position)];
	return atomic_load_explicit(&ring->freed[position % MAIL_SLOTS], memory_order_acquire) !=
	       atomic_load_explicit(&slot->held, memory_order_relaxed);
}

/* The words of `freed` lie in lines that the owner writes all the time, so this looks at some at
 * once. A slot whose last use was skipped does not count: it is looked at when its turn comes. */
static void find_free(const struct mail_ring *ring, struct mail_out *out)
{
	enum { AT_ONCE = 16 };
	out->free = out->next + 1;
	while (out->free < out->next + AT_ONCE &&
	       atomic_load_explicit(&ring->freed[out->free % MAIL_SLOTS], memory_order_acquire) ==
		       out->free - MAIL_SLOTS)
		out->free++;
}

void transport_mail_step_over(struct mail_ring *ring, struct mail_out *out)
{
	for (int i = 0; i < MAIL_SLOTS && is_occupied(ring, out->next); i++) {
		/* The owner learns of the skipped position by `sequence`. */
		atomic_store_explicit(&ring->slots[transport_mail_index(out->next)].sequence,
				      out->next, memory_order_release);
		out->next++;
	}
	find_free(ring, out);
}

void transport_mail_post(struct mail_ring *ring, struct mail_out *out,
			 const struct mail_envelope *envelope, const void *payload, uint64_t bytes)
{
	transport_mail_post_inline(ring, out, envelope, payload, bytes);
}

/* ---- the owner ---- */

void transport_mail_in_init(struct mail_in *in)
{
	*in = (struct mail_in){.next = 1};
}

bool transport_mail_poll(struct mail_ring *ring, struct mail_in *in, struct mail_message *out)
{
	for (;;) {
		uint32_t index = transport_mail_index(in->next);
		struct mail_slot *slot = &ring->slots[index];
		uint64_t sequence = atomic_load_explicit(&slot->sequence, memory_order_acquire);
		if ((int64_t)(sequence - in->next) < 0)
			return false;
		uint64_t position = in->next++;
		if (atomic_load_explicit(&slot->held, memory_order_acquire) != position) {
			in->skipped = true;
			continue;
		}
		out->envelope = slot->envelope;
		out->position = position;
		out->slot = index;
		return true;
	}
}

void transport_mail_free_slot(struct mail_ring *ring, struct mail_in *in,
			      const struct mail_message *message)
{
	/* In a line of my own: the slot's line would have to be fetched from the source first. */
	atomic_store_explicit(&ring->freed[message->position % MAIL_SLOTS], message->position,
			      memory_order_release);
	wait_store(&ring->taken, ++in->taken);
}

void transport_mail_reset(struct mail_ring *ring)
{
	/* Slots and RTS slots are first used one after the other. */
	for (unsigned i = 1; i <= MAIL_SLOTS; i++) {
		struct mail_slot *slot = &ring->slots[transport_mail_index(i)];
		if (atomic_load_explicit(&slot->sequence, memory_order_relaxed) == 0)
			break;
		atomic_store_explicit(&slot->sequence, 0, memory_order_relaxed);
		atomic_store_explicit(&slot->held, 0, memory_order_relaxed);
		atomic_store_explicit(&ring->freed[i % MAIL_SLOTS], 0, memory_order_relaxed);
	}
	for (int half = 0; half < MAIL_RTS; half += MAIL_SLOTS)
		for (int i = half; i < half + MAIL_SLOTS && ring->rts[i].generation != 0; i++)
			memset(&ring->rts[i], 0, sizeof ring->rts[i]);
	atomic_store_explicit(&ring->taken, 0, memory_order_relaxed);
	atomic_store_explicit(&ring->reported, 0, memory_order_relaxed);
	atomic_store_explicit(&ring->crossed, 0, memory_order_relaxed);
	atomic_store_explicit(&ring->returned, 0, memory_order_relaxed);
}

/* ---- RTS slots ---- */

void transport_mail_rts_done(struct mail_ring *ring, unsigned index, uint32_t generation)
{
	_Atomic uint64_t *done = &ring->rts[index].done;
	uint64_t word = transport_mail_word(generation, 0), before = atomic_load(done);
	/* A source on another host may already have got the slot back, and its next use may be
	 * done, too. */
	while ((int64_t)(word - before) > 0 && !atomic_compare_exchange_weak(done, &before, word))
		continue;
	atomic_fetch_add(&ring->returned, 1);
}

bool transport_mail_match(struct mail_rts *rts, uint32_t generation)
{
	uint64_t expected = transport_mail_word(generation, 0);
	return atomic_compare_exchange_strong(&rts->cursor, &expected,
					      transport_mail_word(generation, MAIL_MATCHED));
}

bool transport_mail_cancel(struct mail_rts *rts, uint32_t generation)
{
	uint64_t expected = transport_mail_word(generation, 0);
	return atomic_compare_exchange_strong(&rts->cursor, &expected,
					      transport_mail_word(generation, MAIL_CLOSED));
}

static bool is_of(uint64_t cursor, uint32_t generation)
{
	return cursor >> 32 == generation;
}

bool transport_mail_claim(struct mail_rts *rts, uint32_t generation, uint64_t pieces,
			  uint64_t *piece)
{
	uint64_t before = atomic_load_explicit(&rts->cursor, memory_order_relaxed);
	do {
		*piece = before & MAIL_CLAIMS;
		if (before & MAIL_CLOSED || *piece >= pieces || !is_of(before, generation))
			return false;
	} while (!atomic_compare_exchange_weak(&rts->cursor, &before, before + 1));
	return true;
}

uint64_t transport_mail_close(struct mail_rts *rts, uint32_t generation, uint64_t pieces)
{
	uint64_t before = atomic_load_explicit(&rts->cursor, memory_order_relaxed);
	do {
		if (!is_of(before, generation)) /* it was done, so nobody copies */
			return 0;
	} while (!atomic_compare_exchange_weak(&rts->cursor, &before, before | MAIL_CLOSED));
	uint64_t begun = before & MAIL_CLAIMS;
	return begun < pieces ? begun : pieces; /* even if the other rank wrote nonsense */
}
