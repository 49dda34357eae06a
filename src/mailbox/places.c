/* SPDX-License-Identifier: BSD-3-Clause
 * Stages the payload of a long send piece by piece, after the send was posted, while its receiver
 * copies the pieces that are there. A block of places has room for a few pieces, and is used again
 * and again (decision 045). A blocking send has a block of its own, and is staged by its call. All
 * nonblocking sends to one peer share a block. Each is staged when its receiver has matched it, one
 * after the other, by whatever thread makes progress. */
#include "mailbox/mailbox_private.h"

#include "base/clock.h"
#include "kernel/kernel.h"

uint64_t mailbox_place_of(const struct op *op, bool in_places, uint64_t piece)
{
	return (in_places ? piece % MAIL_PLACES : piece) * op->p2p.piece_bytes;
}

bool mailbox_poll_word(const struct mailbox *mailbox, const _Atomic uint64_t *word, uint64_t value)
{
	enum { POLLS = 128 };
	bool reached = mailbox_is_reached(word, value);
	for (int i = 0; i < POLLS && mailbox->polls && !reached; i++) {
		wait_relax();
		reached = mailbox_is_reached(word, value);
	}
	return reached;
}

/* What `owner_copied` must reach before the place for this piece is free. */
static uint64_t place_word(const struct op *op, uint64_t piece)
{
	return transport_mail_word(op->p2p.generation, piece - MAIL_PLACES + 1);
}

/* Whether the receiver has copied what was in the place for this piece before. If not, the send
 * waits until half of the places are free: otherwise two ranks that share a processor would take
 * turns for each piece. */
static bool has_place(struct mailbox *mailbox, struct op *op, uint64_t piece, bool polls)
{
	struct op_p2p *p2p = &op->p2p;
	const _Atomic uint64_t *copied = &p2p->rts->owner_copied;
	if (!p2p->in_places || piece < MAIL_PLACES)
		return true;
	uint64_t needed = place_word(op, piece);
	if (polls ? mailbox_poll_word(mailbox, copied, needed) : mailbox_is_reached(copied, needed))
		return true;
	op->any_suffices = true;
	op->word_count = 0;
	mailbox_add_word(mailbox, op, op->call.peer, copied, needed + MAIL_PLACES / 2 - 1);
	return false;
}

enum op_progress mailbox_stage_pieces(struct mailbox *mailbox, struct op *op)
{
	struct op_p2p *p2p = &op->p2p;
	unsigned char *block =
		p2p->staged_late ? mailbox->peers[op->call.peer].places : op->input_block;
	if (p2p->pieces_staged == 0)
		p2p->nontemporal = mailbox_begin_stores(mailbox, op);
	for (uint64_t done = 0; p2p->pieces_staged < p2p->pieces; done += p2p->piece_bytes) {
		uint64_t piece = p2p->pieces_staged;
		uint64_t first = piece * p2p->piece_bytes, bytes = op->call.send.bytes - first;
		/* A thread that makes progress on several operations does not poll for one of which
		 * nothing has gone. */
		if (!has_place(mailbox, op, piece, done > 0 || !p2p->detached))
			return OP_BLOCKED;
		if (p2p->detached && done >= MAILBOX_SLICE_BYTES)
			return OP_MORE;
		if (bytes > p2p->piece_bytes)
			bytes = p2p->piece_bytes;
		uint64_t before = clock_ticks();
		kernel_copy(block + mailbox_place_of(op, p2p->in_places, piece),
			    (const unsigned char *)op->call.send.address + first, bytes,
			    p2p->nontemporal);
		p2p->staging_ticks += clock_ticks() - before;
		p2p->pieces_staged++;
		wait_store(&p2p->rts->staged, transport_mail_word(p2p->generation, piece + 1));
		transport_request_progress(mailbox->team, op->call.peer);
		if (mailbox_has_failed_hint(mailbox)) {
			op->status = LS_ABORTED;
			return OP_FAILED;
		}
	}
	p2p->posted_first = false;
	return OP_DONE;
}

/* ---- nonblocking sends ---- */

bool mailbox_may_stage_late(struct mailbox *mailbox, const struct op *op)
{
	uint64_t bytes = op->call.send.bytes;
	const struct mailbox_peer *peer = &mailbox->peers[op->call.peer];
	if (!op->p2p.detached || bytes <= MAILBOX_PLACES_BYTES || !peer->is_here ||
	    op->call.peer == mailbox->team->rank)
		return false;
	lock_mail_acquire(&mailbox->lock);
	bool few = __builtin_popcountll(peer->out.rts[0]) < MAILBOX_STAGED_FEW;
	lock_mail_release(&mailbox->lock);
	return bytes > MAILBOX_STAGED_MAX_BYTES || !few;
}

bool mailbox_has_late(struct mailbox *mailbox)
{
	bool has = false;
	if (mailbox_pending(mailbox) == 0)
		return false;
	lock_mail_acquire(&mailbox->lock);
	for (const struct op *op = mailbox->active; op && !has; op = op->p2p.next)
		has = op->p2p.staged_late;
	lock_mail_release(&mailbox->lock);
	return has;
}

bool mailbox_open_places(struct mailbox *mailbox, struct op *op)
{
	struct mailbox_peer *peer = &mailbox->peers[op->call.peer];
	void *block = NULL;
	uint64_t offset = 0;
	lock_mail_acquire(&mailbox->lock);
	bool open = peer->places;
	lock_mail_release(&mailbox->lock);
	if (!open &&
	    !op_alloc_block(mailbox->memory, op, MAIL_PLACES * MAIL_PIECE_BYTES, &block, &offset))
		return false;
	lock_mail_acquire(&mailbox->lock);
	if (!peer->places) {
		peer->places = block;
		peer->places_offset = offset;
		block = NULL;
	}
	op->input_offset = peer->places_offset;
	lock_mail_release(&mailbox->lock);
	if (block) /* another thread was first */
		mailbox_free_block(mailbox, block);
	return true;
}

static bool take_places(struct mailbox *mailbox, const struct op *op)
{
	struct mailbox_peer *peer = &mailbox->peers[op->call.peer];
	lock_mail_acquire(&mailbox->lock);
	if (!peer->in_places)
		peer->in_places = op;
	bool mine = peer->in_places == op;
	lock_mail_release(&mailbox->lock);
	return mine;
}

void mailbox_leave_places(struct mailbox *mailbox, const struct op *op, bool lost)
{
	struct mailbox_peer *peer = &mailbox->peers[op->call.peer];
	lock_mail_acquire(&mailbox->lock);
	if (peer->in_places == op) {
		peer->in_places = NULL;
		peer->places = lost ? NULL : peer->places;
	}
	lock_mail_release(&mailbox->lock);
}

enum op_progress mailbox_stage_late(struct mailbox *mailbox, struct op *op)
{
	const struct op_p2p *p2p = &op->p2p;
	if (p2p->pieces_staged == p2p->pieces)
		return OP_DONE;
	if (take_places(mailbox, op))
		return mailbox_stage_pieces(mailbox, op);
	/* The pass in which the other send ends is followed by another one. */
	mailbox_add_word(mailbox, op, op->call.peer, &p2p->rts->done,
			 transport_mail_word(p2p->generation, 0));
	return OP_BLOCKED;
}

void mailbox_late_word(struct mailbox *mailbox, const struct op *op, struct wait_word *word)
{
	const struct op_p2p *p2p = &op->p2p;
	const struct mail_rts *rts = p2p->rts;
	int peer = op->call.peer;
	uint64_t whole = transport_mail_word(p2p->generation, 0), piece = p2p->pieces_staged;
	const struct op *user = mailbox->peers[peer].in_places;
	bool stages = piece < p2p->pieces && (!user || user == op);
	if (!mailbox_is_reached(&rts->matched, whole) || (stages && piece < MAIL_PLACES))
		mailbox_wait_word(mailbox, peer, &rts->matched, whole, peer, word);
	else if (stages)
		mailbox_wait_word(mailbox, peer, &rts->owner_copied, place_word(op, piece), peer,
				  word);
	else
		mailbox_wait_word(mailbox, peer, &rts->done, whole, peer, word);
}
