/* SPDX-License-Identifier: BSD-3-Clause
 * A long message that its receiver reads by address, and whose sender does not block: the sender
 * helps while one of its threads makes progress anyway (decision 046). It copies pieces ahead of
 * the receiver into a few places (struct mail_places), out of which the receiver takes them faster
 * than it can read. The receiver needs no help: it reads each piece that is not in its place. */
#include "mailbox/mailbox_private.h"

#include "base/clock.h"
#include "kernel/kernel.h"

/* ---- the receiver ---- */

void mailbox_ask_for_help(struct mailbox *mailbox, struct op *op)
{
	struct op_p2p *p2p = &op->p2p;
	if (p2p->asked)
		return;
	p2p->asked = true;
	p2p->patience = mailbox->polls ? MAILBOX_PATIENCE : 0;
	wait_store(&p2p->rts->matched, transport_mail_word(p2p->generation, 0));
	transport_notify_message(mailbox->team, p2p->message.source);
}

/* Where the sender copies pieces; NULL: it does not help yet. */
static const struct mail_places *find_places(struct mailbox *mailbox, const struct op *op)
{
	const struct op_p2p *p2p = &op->p2p;
	const struct mail_rts *rts = p2p->rts;
	if (!mailbox_is_reached(&rts->helps, transport_mail_word(p2p->generation, 1)))
		return NULL;
	return memory_view_at(transport_arena(mailbox->team, p2p->message.source), rts->places,
			      transport_mail_places_bytes(p2p->piece_bytes));
}

const void *mailbox_find_ahead(struct mailbox *mailbox, struct op *op, bool *waits)
{
	struct op_p2p *p2p = &op->p2p;
	uint64_t cursor = atomic_load_explicit(&p2p->rts->cursor, memory_order_acquire);
	uint64_t piece = cursor & MAIL_CLAIMS, place = piece % MAIL_PLACES;
	const struct mail_places *places = find_places(mailbox, op);
	const _Atomic uint64_t *word = places ? &places->holds[place].word : &p2p->rts->helps;
	uint64_t value = transport_mail_word(p2p->generation, places ? piece + 1 : 1);
	*waits = false;
	if (piece >= p2p->pieces)
		return NULL;
	struct mailbox_peer *peer = &mailbox->peers[p2p->message.source];
	if (p2p->detached && peer->takes) {
		peer->takes = false;
		/* Once: a peer that never helps would otherwise hold up this receive for as long as
		 * it takes what this rank sends. */
		if (places || !p2p->extended)
			p2p->patience = mailbox->polls ? MAILBOX_PATIENCE_LATER : 0;
		p2p->extended = true;
	}
	bool polls = p2p->patience > 0;
	if (polls)
		(void)mailbox_poll_word(mailbox, word, value);
	bool is_there = atomic_load_explicit(word, memory_order_acquire) == value;
	if (places && is_there) {
		p2p->patience = mailbox->polls ? MAILBOX_PATIENCE_LATER : 0;
		return places->bytes + place * p2p->piece_bytes;
	}
	*waits = polls;
	p2p->patience -= polls;
	return NULL;
}

/* ---- the sender ---- */

/* Takes a block for the pieces, and says where it is. False: the arena has no room. */
static bool begin_help(struct mailbox *mailbox, struct op *op)
{
	struct op_p2p *p2p = &op->p2p;
	uint64_t offset, bytes = transport_mail_places_bytes(p2p->piece_bytes);
	struct mail_places *places = memory_alloc_quietly(mailbox->memory, bytes);
	if (!places)
		return false;
	op->input_block = places;
	if (!memory_offset(mailbox->memory, places, bytes, &offset))
		return false;
	for (int i = 0; i < MAIL_PLACES; i++)
		atomic_store_explicit(&places->holds[i].word, 0, memory_order_relaxed);
	p2p->nontemporal = mailbox_begin_stores(mailbox, op);
	p2p->rts->places = offset;
	atomic_store_explicit(&p2p->rts->helps, transport_mail_word(p2p->generation, 1),
			      memory_order_release);
	return true;
}

/* The next piece to copy: the receiver has not begun it, and, if it reads at the moment, will not
 * before the copy is there. */
static uint64_t next_piece(const struct op_p2p *p2p)
{
	uint64_t cursor = atomic_load_explicit(&p2p->rts->cursor, memory_order_acquire);
	uint64_t begun = cursor & MAIL_CLAIMS;
	if (cursor >> 32 != p2p->generation || cursor & MAIL_CLOSED)
		return p2p->pieces;
	if (begun <= p2p->pieces_staged)
		return p2p->pieces_staged;
	return begun + 1;
}

static void copy_ahead(struct op *op, uint64_t piece)
{
	struct op_p2p *p2p = &op->p2p;
	struct mail_places *places = op->input_block;
	uint64_t place = piece % MAIL_PLACES;
	uint64_t first = piece * p2p->piece_bytes, bytes = op->call.send.bytes - first;
	uint64_t before = clock_ticks();
	if (bytes > p2p->piece_bytes)
		bytes = p2p->piece_bytes;
	kernel_copy(places->bytes + place * p2p->piece_bytes,
		    (const unsigned char *)op->call.send.address + first, bytes, p2p->nontemporal);
	atomic_store_explicit(&places->holds[place].word,
			      transport_mail_word(p2p->generation, piece + 1), memory_order_release);
	p2p->staging_ticks += clock_ticks() - before;
}

/* Whether the receiver has copied what was in the place for this piece before. If not, the send
 * waits until half of the places are free, as one that blocks (places.c). */
static bool has_place(struct mailbox *mailbox, struct op *op, uint64_t piece, bool polls)
{
	const struct op_p2p *p2p = &op->p2p;
	const _Atomic uint64_t *copied = &p2p->rts->owner_copied;
	if (piece < MAIL_PLACES)
		return true;
	uint64_t needed = transport_mail_word(p2p->generation, piece - MAIL_PLACES + 1);
	if (polls ? mailbox_poll_word(mailbox, copied, needed) : mailbox_is_reached(copied, needed))
		return true;
	mailbox_add_word(mailbox, op, op->call.peer, copied, needed + MAIL_PLACES / 2 - 1);
	return false;
}

enum op_progress mailbox_help(struct mailbox *mailbox, struct op *op)
{
	struct op_p2p *p2p = &op->p2p;
	if (!op->input_block && !begin_help(mailbox, op)) {
		p2p->in_places = false;
		return OP_BLOCKED;
	}
	for (unsigned done = 0; done < MAIL_PLACES; done++) {
		uint64_t piece = next_piece(p2p);
		if (piece >= p2p->pieces || !has_place(mailbox, op, piece, done > 0))
			return OP_BLOCKED;
		if (piece != p2p->pieces_staged)
			p2p->stores.at = NULL; /* it does not copy all, so nothing is measured */
		copy_ahead(op, piece);
		p2p->pieces_staged = piece + 1;
		mailbox->peers[op->call.peer].takes = true;
	}
	return OP_MORE;
}
