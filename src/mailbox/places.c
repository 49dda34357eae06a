/* SPDX-License-Identifier: BSD-3-Clause
 * Stages the payload of a long send piece by piece, after the send was posted, while its receiver
 * copies the pieces that are there. A block of places has room for a few pieces, and is used again
 * and again (decision 045). */
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

/* Whether the receiver has copied what was in the place for this piece before. If not, the send
 * waits until half of the places are free: otherwise two ranks that share a processor would take
 * turns for each piece. */
static bool has_place(struct mailbox *mailbox, struct op *op, uint64_t piece)
{
	struct op_p2p *p2p = &op->p2p;
	const _Atomic uint64_t *copied = &p2p->rts->owner_copied;
	if (!p2p->in_places || piece < MAIL_PLACES)
		return true;
	uint64_t needed = transport_mail_word(p2p->generation, piece - MAIL_PLACES + 1);
	if (mailbox_poll_word(mailbox, copied, needed))
		return true;
	op->any_suffices = true;
	op->word_count = 0;
	mailbox_add_word(mailbox, op, op->call.peer, copied, needed + MAIL_PLACES / 2 - 1);
	return false;
}

enum op_progress mailbox_stage_pieces(struct mailbox *mailbox, struct op *op)
{
	struct op_p2p *p2p = &op->p2p;
	if (p2p->pieces_staged == 0)
		p2p->nontemporal = mailbox_begin_stores(mailbox, op);
	for (; p2p->pieces_staged < p2p->pieces; p2p->pieces_staged++) {
		uint64_t piece = p2p->pieces_staged;
		uint64_t first = piece * p2p->piece_bytes, bytes = op->call.send.bytes - first;
		if (!has_place(mailbox, op, piece))
			return OP_BLOCKED;
		if (bytes > p2p->piece_bytes)
			bytes = p2p->piece_bytes;
		uint64_t before = clock_ticks();
		kernel_copy((unsigned char *)op->input_block +
				    mailbox_place_of(op, p2p->in_places, piece),
			    (const unsigned char *)op->call.send.address + first, bytes,
			    p2p->nontemporal);
		p2p->staging_ticks += clock_ticks() - before;
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
