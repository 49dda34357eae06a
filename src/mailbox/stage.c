/* SPDX-License-Identifier: BSD-3-Clause
 * Where the payload of a long send lies for its receiver: in the caller's buffer, if peers can
 * access that or may read it by address, else in a block of the sender's arena. */
#include "mailbox/mailbox_private.h"

#include "base/clock.h"
#include "kernel/kernel.h"

/* A message in cells is staged under the mailbox's lock, which the choice takes itself. */
_Static_assert((int)MAIL_EAGER_BYTES < (int)MAILBOX_READ_BLOCKING_MIN_BYTES &&
		       MAIL_EAGER_BYTES < 1 << OP_TUNER_MIN_LOG2,
	       "nothing is chosen for a message in cells");

void mailbox_release_payload(struct mailbox *mailbox, struct op *op, bool lost)
{
	if (op->p2p.staged_late)
		mailbox_leave_places(mailbox, op, lost);
	if (lost)
		op->stream.lost = true;
	/* As in engine/window.c. */
	ls_status status =
		lost ? LS_OK : memory_free(mailbox->memory, op->input_block, trace_caller_text);
	(void)status;
	op->input_block = NULL;
}

/* Whether no other thread advances or cancels this send, so that its block stays valid while the
 * caller fills it. A payload for another host must be complete when it is posted. */
static bool may_post_first(const struct mailbox *mailbox, const struct op *op)
{
	const struct op_p2p *p2p = &op->p2p;
	return p2p->is_blocking && !p2p->detached && !p2p->cancellable && !p2p->uses_cells &&
	       op->call.peer != mailbox->team->rank && mailbox->peers[op->call.peer].is_here;
}

/* Whether reading by address was faster lately. */
static bool reading_is_faster(struct mailbox *mailbox, struct op *op)
{
	uint64_t bytes = op->call.send.bytes;
	enum op_choice choice = op->p2p.posted_first ? OP_CHOICE_SEND_BLOCKING : OP_CHOICE_SEND;
	lock_mail_acquire(&mailbox->lock);
	bool staged = op_tuner_begin(&mailbox->tuner, choice, PLAN_STORES_AUTO, bytes, bytes,
				     &op->p2p.transfer);
	lock_mail_release(&mailbox->lock);
	return !staged;
}

static uint64_t block_bytes(const struct op *op)
{
	uint64_t bytes = op->call.send.bytes;
	return op->p2p.in_places ? MAIL_PLACES * transport_mail_piece_bytes(bytes) : bytes;
}

/* Whether the receiver reads the plain memory by address: only on this host. */
static bool is_read(struct mailbox *mailbox, struct op *op)
{
	uint64_t bytes = op->call.send.bytes;
	bool always = mailbox->cma == SETTING_CMA_ALWAYS;
	uint64_t least = op->p2p.posted_first || always ? MAILBOX_READ_BLOCKING_MIN_BYTES
							: MAILBOX_READ_MIN_BYTES;
	if (mailbox->cma == SETTING_CMA_OFF || bytes < least ||
	    !mailbox->peers[op->call.peer].is_here ||
	    !transport_reads_buffer(mailbox->team, op->call.send.address, bytes))
		return false;
	if (always)
		return true;
	bool has_room = block_bytes(op) <= mailbox->memory->bytes / MAILBOX_ARENA_SHARE;
	if (!transport_reads_fast(mailbox->team))
		return !has_room;
	if (bytes <= MAILBOX_READ_MAX_BYTES)
		return !has_room || reading_is_faster(mailbox, op);
	return bytes >= MAILBOX_READ_LONG_BYTES && !(op->p2p.posted_first && has_room);
}

/* Shows the payload to its receiver, or allocates the block for it. */
static bool place_payload(struct mailbox *mailbox, struct op *op)
{
	struct op_p2p *p2p = &op->p2p;
	p2p->transfer.at = NULL;
	p2p->staged_late = mailbox_may_stage_late(mailbox, op);
	p2p->in_places = p2p->staged_late ||
			 (p2p->posted_first && op->call.send.bytes > MAILBOX_PLACES_BYTES);
	p2p->by_address = is_read(mailbox, op);
	if (p2p->by_address) {
		p2p->posted_first = p2p->staged_late = p2p->in_places = false;
		op->input_offset = (uint64_t)(uintptr_t)op->call.send.address;
		return true;
	}
	if (p2p->staged_late)
		return mailbox_open_places(mailbox, op);
	return op_alloc_block(mailbox->memory, op, block_bytes(op), &op->input_block,
			      &op->input_offset);
}

static void stage_all(struct mailbox *mailbox, struct op *op)
{
	op->p2p.staged_all = true;
	bool nontemporal = mailbox_begin_stores(mailbox, op);
	uint64_t before = clock_ticks();
	kernel_copy(op->input_block, op->call.send.address, op->call.send.bytes, nontemporal);
	op->p2p.ticks = clock_ticks() - before;
}

bool mailbox_post_later(struct mailbox *mailbox, struct op *op)
{
	struct op_p2p *p2p = &op->p2p;
	p2p->posted_first = false;
	if (p2p->in_places) {
		mailbox_release_payload(mailbox, op, false);
		if (!place_payload(mailbox, op))
			return false;
	}
	if (!p2p->by_address)
		stage_all(mailbox, op);
	return true;
}

bool mailbox_stage_payload(struct mailbox *mailbox, struct op *op)
{
	struct op_p2p *p2p = &op->p2p;
	p2p->by_address = p2p->posted_first = p2p->staged_all = false;
	p2p->in_places = p2p->staged_late = false;
	p2p->stores.at = p2p->transfer.at = NULL;
	p2p->staging_ticks = 0;
	if (memory_offset_for(mailbox->memory, op->call.send.address, op->call.send.bytes,
			      &mailbox->members, &op->input_offset))
		return true;
	/* The caller has checked that the buffer is a block; so peers no longer see the block. */
	if (p2p->hands_over_block) {
		op->status = LS_BAD_ARGUMENT;
		return false;
	}
	p2p->posted_first = may_post_first(mailbox, op);
	if (!place_payload(mailbox, op))
		return false;
	if (!p2p->by_address && !p2p->posted_first && !p2p->staged_late)
		stage_all(mailbox, op);
	return true;
}
