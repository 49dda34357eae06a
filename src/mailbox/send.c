/* SPDX-License-Identifier: BSD-3-Clause
 * Posts sends, and queues them while there is no free slot. Frees RTS slots that receivers have
 * returned. */
#include "mailbox/mailbox_private.h"
#include "op/stream.h"

/* Frees RTS slots that no operation waits for, and whose blocks the receiver has returned. */
static void free_returned_rts(struct mailbox *mailbox, struct mailbox_peer *peer, unsigned half)
{
	for (uint64_t left = peer->unowned_rts[half]; left; left &= left - 1) {
		unsigned i = half * MAIL_SLOTS + (unsigned)__builtin_ctzll(left);
		uint64_t done = atomic_load_explicit(&peer->to->rts[i].done, memory_order_acquire);
		if ((int64_t)(done - transport_mail_word(peer->out.generations[i], 0)) < 0)
			continue;
		mailbox_free_block(mailbox, peer->blocks[i]);
		peer->blocks[i] = NULL;
		peer->unowned_rts[half] &= ~(left & -left);
		transport_mail_rts_free(&peer->out, i, peer->out.generations[i]);
	}
}

void mailbox_free_returned(struct mailbox *mailbox)
{
	lock_mail_acquire(&mailbox->lock);
	for (int q = 0; q < mailbox->team->size; q++)
		for (unsigned half = 0; half < 2; half++)
			free_returned_rts(mailbox, &mailbox->peers[q], half);
	lock_mail_release(&mailbox->lock);
}

void mailbox_free_left(struct mailbox *mailbox)
{
	lock_mail_acquire(&mailbox->lock);
	for (int q = 0; q < mailbox->team->size; q++) {
		struct mailbox_peer *peer = &mailbox->peers[q];
		for (uint64_t left = peer->unowned_rts[0]; left; left &= left - 1) {
			unsigned i = (unsigned)__builtin_ctzll(left);
			mailbox_free_block(mailbox, peer->blocks[i]);
			peer->blocks[i] = NULL;
		}
		peer->unowned_rts[0] = 0;
	}
	lock_mail_release(&mailbox->lock);
}

/* Whether the receiver gets the block itself, and returns it at any time. A receiver on another
 * host gets a copy. */
static bool hands_over_here(const struct mailbox_peer *peer, const struct op *op)
{
	return op->p2p.hands_over_block && peer->is_here;
}

static bool wants_rts(struct mailbox *mailbox, const struct op *op) LOCK_REQUIRES(mail)
{
	if (op->p2p.uses_cells)
		return !mailbox_reclaim_cells(mailbox, op->call.send.bytes);
	/* A link offers no payload without a byte. */
	bool hands_over = op->p2p.hands_over_block &&
			  (op->call.send.bytes > 0 || mailbox->peers[op->call.peer].is_here);
	return op->call.send.bytes > MAIL_INLINE_BYTES || hands_over || op->p2p.cancellable ||
	       op_is_on_stream(op);
}

static bool has_room(struct mailbox *mailbox, struct mailbox_peer *peer, const struct op *op)
	LOCK_REQUIRES(mail)
{
	if (!transport_mail_find_room(peer->to, &peer->out, mailbox->limit))
		return false;
	if (!wants_rts(mailbox, op))
		return true;
	bool block = hands_over_here(peer, op);
	transport_mail_reclaim(peer->to, &peer->out, block, peer->unowned_rts);
	for (unsigned half = 0; half < 2; half++) /* so that no returned block stays in use */
		if (peer->unowned_rts[half])
			free_returned_rts(mailbox, peer, half);
	return transport_mail_has_rts(&peer->out, block);
}

static void take_rts(struct mailbox_peer *peer, struct op *op)
{
	struct op_p2p *p2p = &op->p2p;
	p2p->index =
		transport_mail_rts_alloc(peer->to, &peer->out, hands_over_here(peer, op),
					 op->input_offset, p2p->by_address, op->call.send.bytes);
	p2p->rts = &peer->to->rts[p2p->index];
	p2p->rts->in_places = p2p->in_places;
	p2p->generation = peer->out.generations[p2p->index];
	p2p->piece_bytes = transport_mail_piece_bytes(op->call.send.bytes);
	p2p->pieces = transport_mail_pieces(op->call.send.bytes);
	p2p->pieces_copied = p2p->pieces_staged = 0;
	p2p->fetches = op_is_on_stream(op);
	if (!p2p->posted_first && !p2p->fetches)
		wait_store(&p2p->rts->staged, transport_mail_word(p2p->generation, MAIL_CLAIMS));
}

struct mail_envelope mailbox_envelope(const struct op_call *call, uint64_t record)
{
	return (struct mail_envelope){
		.count = call->count,
		.tag = call->tag,
		.record = (uint32_t)record,
		.dtype = (uint8_t)call->dtype,
	};
}

/* Whether the call would have waited for the receiver of a long message. A call that sends a block
 * never waits. */
static bool would_wait(const struct op *op)
{
	return op->p2p.is_blocking && !op->p2p.hands_over_block;
}

void mailbox_disown_rts(struct mailbox_peer *peer, unsigned index, void *block)
{
	peer->unowned_rts[index / MAIL_SLOTS] |= UINT64_C(1) << index % MAIL_SLOTS;
	peer->blocks[index] = block;
}

static void post_send(struct mailbox *mailbox, struct mailbox_peer *peer, struct op *op)
	LOCK_REQUIRES(mail)
{
	bool rts = wants_rts(mailbox, op);
	struct mail_envelope envelope = mailbox_envelope(&op->call, op->record);
	if (rts && op->p2p.uses_cells && !mailbox_stage_payload(mailbox, op)) {
		mailbox_complete(mailbox, op);
		return;
	}
	if (rts) {
		take_rts(peer, op);
		envelope.rts = (uint16_t)(op->p2p.index + 1);
	}
	if (op->p2p.hands_over_block && rts)
		envelope.flags |= MAIL_BLOCK;
	if (op->p2p.uses_cells && !rts)
		mailbox_post_eager(mailbox, op->call.peer, &envelope, op->call.send.address,
				   op->call.send.bytes);
	else
		transport_mail_post(peer->to, &peer->out, &envelope, op->call.send.address,
				    op->call.send.bytes);
	mailbox_note_sent(mailbox, op->call.peer,
			  would_wait(op) ? MAILBOX_WAITED : MAILBOX_NONBLOCKING);
	if (op->p2p.hands_over_block)
		memory_give_block(mailbox->memory, op->call.send.address);
	if (op->p2p.hands_over_block && rts) {
		mailbox_disown_rts(peer, op->p2p.index, op->call.send.address);
		op->p2p.rts = NULL;
	} else if (op->p2p.hands_over_block) {
		mailbox_free_block(mailbox, op->call.send.address);
	}
	if (rts && !op->p2p.hands_over_block)
		mailbox_activate(mailbox, op, OP_P2P_SENT);
	else
		mailbox_complete(mailbox, op);
}

bool mailbox_send(struct mailbox *mailbox, struct op *op)
{
	int q = op->call.peer;
	struct mailbox_peer *peer = &mailbox->peers[q];
	lock_mail_acquire(&mailbox->lock);
	bool posted = !peer->queue && has_room(mailbox, peer, op);
	if (op->p2p.posted_first && !posted) {
		lock_mail_release(&mailbox->lock);
		return false;
	}
	mailbox_count(mailbox, op);
	bool requests = !posted || wants_rts(mailbox, op);
	if (posted) {
		post_send(mailbox, peer, op);
	} else {
		op->p2p.next = NULL;
		if (peer->queue)
			peer->queue_last->p2p.next = op;
		else
			peer->queue = op;
		peer->queue_last = op;
		mailbox_set_state(op, OP_P2P_QUEUED);
	}
	/* This rank receives it, too: what is posted is matched at once. */
	if (q == mailbox->team->rank)
		mailbox_arrive(mailbox, q);
	lock_mail_release(&mailbox->lock);
	/* From here on a detached operation may be complete, and its memory gone. A queued one
	 * needs the peer to take earlier messages out of the ring. */
	if (requests)
		transport_request_progress(mailbox->team, q);
	else
		transport_notify_message(mailbox->team, q);
	return true;
}

bool mailbox_flush_peer(struct mailbox *mailbox, int q)
{
	struct mailbox_peer *peer = &mailbox->peers[q];
	bool posted = false;
	while (peer->queue && has_room(mailbox, peer, peer->queue)) {
		struct op *op = peer->queue;
		peer->queue = op->p2p.next;
		post_send(mailbox, peer, op);
		posted = true;
	}
	return posted;
}

bool mailbox_flush(struct mailbox *mailbox, const struct op *op, struct wait_word *word)
{
	int q = op->call.peer;
	lock_mail_acquire(&mailbox->lock);
	bool posted = mailbox_flush_peer(mailbox, q);
	bool queued = mailbox_state_of(op) == OP_P2P_QUEUED;
	if (queued)
		mailbox_room_word(mailbox, q, word);
	lock_mail_release(&mailbox->lock);
	if (posted)
		transport_request_progress(mailbox->team, q);
	return !queued;
}

void mailbox_complete_send(struct mailbox *mailbox, struct op *op)
{
	struct op_p2p *p2p = &op->p2p;
	lock_mail_acquire(&mailbox->lock);
	if (p2p->cancelled)
		op->status = LS_CANCELLED;
	else
		transport_mail_rts_free(&mailbox->peers[op->call.peer].out, p2p->index,
					p2p->generation);
	p2p->rts = NULL;
	lock_mail_release(&mailbox->lock);
}
