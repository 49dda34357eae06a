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

/* Shorter payloads are staged with plain stores, some of them under the mailbox's lock. */
static bool is_measured(const struct op *op)
{
	return op->call.send.bytes >= UINT64_C(1) << OP_TUNER_MIN_LOG2;
}

bool mailbox_begin_stores(struct mailbox *mailbox, struct op *op)
{
	struct op_p2p *p2p = &op->p2p;
	struct op_tuner_use *use = &p2p->stores;
	uint64_t bytes = op->call.send.bytes;
	if (!is_measured(op) || !mailbox->peers[op->call.peer].is_here)
		return false;
	lock_mail_acquire(&mailbox->lock);
	bool nontemporal = op_tuner_begin(
		&mailbox->tuner,
		p2p->posted_first || p2p->in_places ? OP_CHOICE_STAGE_PIECES : OP_CHOICE_STAGE,
		PLAN_STORES_AUTO, bytes, bytes, use);
	lock_mail_release(&mailbox->lock);
	return nontemporal;
}

/* If the payload was staged whole, the stores count only if the receiver alone has copied it. */
void mailbox_end_stores(struct mailbox *mailbox, const struct op *op)
{
	const struct op_p2p *p2p = &op->p2p;
	uint64_t theirs = p2p->pieces - p2p->pieces_copied;
	bool whole = !p2p->by_address || p2p->pieces_staged == p2p->pieces;
	bool counts =
		p2p->stores.at && whole && (p2p->staged_all ? !p2p->pieces_copied : theirs > 0);
	if (!counts && !p2p->transfer.at)
		return;
	/* The copies of a blocking send overlap. A nonblocking send may be one of many, which wait
	 * for each other: only its own copies count. */
	bool overlaps = p2p->transfer.choice == OP_CHOICE_SEND_BLOCKING && !p2p->staged_all;
	uint64_t copied = atomic_load_explicit(&p2p->rts->ticks, memory_order_relaxed);
	uint64_t elapsed = atomic_load_explicit(&p2p->rts->elapsed, memory_order_relaxed);
	uint64_t staging = p2p->staged_all ? p2p->ticks : p2p->staging_ticks;
	lock_mail_acquire(&mailbox->lock);
	if (counts)
		op_tuner_record(&p2p->stores, staging + copied * p2p->pieces / theirs);
	if (p2p->transfer.at)
		op_tuner_record(&p2p->transfer, overlaps ? elapsed : copied + staging);
	lock_mail_release(&mailbox->lock);
}

void mailbox_release_payload(struct mailbox *mailbox, struct op *op, bool lost)
{
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

/* Whether the sender can help a receiver of this host that reads by address (help.c). */
static bool may_help(const struct mailbox *mailbox, const struct op *op)
{
	uint64_t bytes = op->call.send.bytes;
	uint64_t block = transport_mail_places_bytes(transport_mail_piece_bytes(bytes));
	return op->p2p.detached && bytes > MAILBOX_PLACES_BYTES &&
	       op->call.peer != mailbox->team->rank && mailbox->cma == SETTING_CMA_AUTO &&
	       block <= mailbox->memory->bytes / MAILBOX_ARENA_SHARE;
}

/* Whether the receiver reads the plain memory by address: only on this host. */
static bool is_read(struct mailbox *mailbox, struct op *op, bool helps)
{
	uint64_t bytes = op->call.send.bytes;
	bool always = mailbox->cma == SETTING_CMA_ALWAYS;
	uint64_t least = op->p2p.posted_first || always ? MAILBOX_READ_BLOCKING_MIN_BYTES
							: MAILBOX_READ_MIN_BYTES;
	if (mailbox->cma == SETTING_CMA_OFF || (bytes < least && !helps) ||
	    !mailbox->peers[op->call.peer].is_here ||
	    !transport_reads_buffer(mailbox->team, op->call.send.address, bytes))
		return false;
	if (always)
		return true;
	bool has_room = block_bytes(op) <= mailbox->memory->bytes / MAILBOX_ARENA_SHARE;
	if (!transport_reads_fast(mailbox->team))
		return !has_room || helps;
	if (bytes <= MAILBOX_READ_MAX_BYTES)
		return !has_room || reading_is_faster(mailbox, op);
	return helps || (bytes >= MAILBOX_READ_LONG_BYTES && !(op->p2p.in_places && has_room));
}

/* Shows the payload to its receiver, or allocates the block for it. */
static bool place_payload(struct mailbox *mailbox, struct op *op)
{
	struct op_p2p *p2p = &op->p2p;
	p2p->transfer.at = NULL;
	p2p->in_places = p2p->posted_first && op->call.send.bytes > MAILBOX_PLACES_BYTES;
	bool helps = may_help(mailbox, op);
	p2p->by_address = is_read(mailbox, op, helps);
	if (p2p->by_address) {
		p2p->posted_first = false;
		p2p->in_places = helps;
		op->input_offset = (uint64_t)(uintptr_t)op->call.send.address;
		return true;
	}
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
	p2p->by_address = p2p->posted_first = p2p->staged_all = p2p->in_places = false;
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
	if (!p2p->by_address && !p2p->posted_first)
		stage_all(mailbox, op);
	return true;
}
