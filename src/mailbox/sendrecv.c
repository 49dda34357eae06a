/* SPDX-License-Identifier: BSD-3-Clause
 * The life of one send or receive. A long message is copied in pieces: by the receiver, and also by
 * the sender if both can access each other's buffer and the sender has nothing else to do. A
 * message of plain memory is first copied into a block of the sender's. A blocking send is posted
 * before that, so that the receiver copies the first pieces while the sender still copies others to
 * the block. Or the receiver reads by address, and the sender helps (help.c). */
#include "mailbox/mailbox_private.h"
#include "op/stream.h"

#include "base/clock.h"
#include "base/messages.h"
#include "kernel/kernel.h"
#include "op/device.h"
#include "hosts/hosts.h"

/* ---- a new send ---- */

/* A message that may use cells is staged if no cells are free when it gets a slot. */
static bool prepare_send(struct mailbox *mailbox, struct op *op)
{
	uint64_t bytes = op->call.send.bytes;
	bool plain = !op->p2p.hands_over_block && !op->p2p.cancellable && !op_is_on_stream(op);
	lock_mail_acquire(&mailbox->lock);
	bool open = mailbox_open_to(mailbox, op->call.peer);
	lock_mail_release(&mailbox->lock);
	if (!open) {
		op->status = LS_OUT_OF_MEMORY;
		return false;
	}
	op->p2p.posted_first = false;
	op->p2p.uses_cells = plain && bytes > MAIL_INLINE_BYTES && bytes <= MAIL_EAGER_BYTES;
	if (op->p2p.uses_cells || (plain && bytes <= MAIL_INLINE_BYTES))
		return true;
	return mailbox_stage_payload(mailbox, op);
}

/* ---- pieces ---- */

/* Both buffers, as one rank sees them. */
struct pieces {
	const unsigned char *from; /* NULL: it is at `address` in the process of `source` */
	unsigned char *to;
	uint64_t address, bytes;
	int source;
	bool in_places; /* `from` is a block of places */
	bool helped;    /* it is at `address`, and the sender may help */
};

/* ahead: where the sender has copied the piece; NULL: nowhere. */
static bool copy_piece(struct mailbox *mailbox, struct op *op, const struct pieces *all,
		       uint64_t piece, const void *ahead)
{
	uint64_t first = piece * op->p2p.piece_bytes;
	uint64_t bytes = all->bytes - first;
	if (bytes > op->p2p.piece_bytes)
		bytes = op->p2p.piece_bytes;
	if (ahead) {
		kernel_copy(all->to + first, ahead, bytes, false);
		return true;
	}
	if (all->from) {
		kernel_copy(all->to + first,
			    all->from + mailbox_place_of(op, all->in_places, piece), bytes, false);
		return true;
	}
	ls_status status = transport_read(mailbox->team, all->source, all->address + first,
					  all->to + first, bytes);
	if (status != LS_OK) {
		op->status = status;
		op->culprit = status == LS_PEER_DIED ? all->source : -1;
	}
	return status == LS_OK;
}

/* Claims and copies staged pieces, up to a slice. True if no piece is left to claim; false with
 * op->status LS_OK if there may be. `word` counts my pieces, so that the peer knows when I have
 * finished. */
static bool copy_pieces(struct mailbox *mailbox, struct op *op, const struct pieces *all,
			_Atomic uint64_t *word)
{
	struct op_p2p *p2p = &op->p2p;
	uint64_t piece;
	for (uint64_t done = 0; done < MAILBOX_SLICE_BYTES; done += p2p->piece_bytes) {
		uint64_t unstaged = transport_mail_unstaged(p2p->rts, p2p->generation, p2p->pieces);
		/* A thread that makes progress on several operations does not poll for one of which
		 * nothing has come. */
		bool polls = all->in_places && (done > 0 || !p2p->detached);
		if (unstaged && !(polls && mailbox_poll_word(mailbox, &p2p->rts->staged, unstaged)))
			return false;
		bool waits = false;
		const void *ahead = all->helped ? mailbox_find_ahead(mailbox, op, &waits) : NULL;
		if (waits)
			return false;
		if (!transport_mail_claim(p2p->rts, p2p->generation, p2p->pieces, &piece))
			return true;
		uint64_t before = clock_ticks();
		bool whole = copy_piece(mailbox, op, all, piece, ahead);
		p2p->ticks += clock_ticks() - before;
		p2p->pieces_copied++;
		wait_store(word, transport_mail_word(p2p->generation, p2p->pieces_copied));
		if (all->in_places || all->helped) /* the source may wait for a place */
			transport_notify_message(mailbox->team, all->source);
		if (!whole)
			return false;
		if (mailbox_has_failed_hint(mailbox)) {
			op->status = LS_ABORTED;
			return false;
		}
	}
	return false;
}

/* ---- sends ---- */

/* Copies one slice, if the receiver has said where to. OP_MORE: pieces remain; OP_BLOCKED:
 * nothing remains that this rank can copy. */
static enum op_progress copy_slice(struct mailbox *mailbox, struct op *op)
{
	struct mail_rts *rts = op->p2p.rts;
	uint64_t target = rts->target;
	/* A block of places no longer has all pieces. */
	bool whole = op->input_block && !op->p2p.in_places;
	struct pieces all = {.from = whole ? op->input_block : op->call.send.address,
			     .bytes = op->call.send.bytes};
	if (target)
		all.to = memory_view_at(transport_arena(mailbox->team, op->call.peer), target - 1,
					all.bytes);
	if (!all.to)
		return OP_BLOCKED;
	bool all_claimed = copy_pieces(mailbox, op, &all, &rts->source_copied);
	transport_request_progress(mailbox->team, op->call.peer);
	return op->status != LS_OK ? OP_FAILED : all_claimed ? OP_BLOCKED : OP_MORE;
}

/* A send on a stream is posted before its payload is there: the receiver may match it, and waits
 * for the pieces. */
static enum op_progress await_payload(struct mailbox *mailbox, struct op *op)
{
	enum op_progress progress = op_stream_fetched(op);
	if (progress != OP_DONE)
		return progress;
	op->p2p.fetches = false;
	wait_store(&op->p2p.rts->staged, transport_mail_word(op->p2p.generation, MAIL_CLAIMS));
	transport_request_progress(mailbox->team, op->call.peer);
	return OP_DONE;
}

static enum op_progress await_receiver(struct mailbox *mailbox, struct op *op)
{
	struct mail_rts *rts = op->p2p.rts;
	uint64_t done = transport_mail_word(op->p2p.generation, 0);
	if (op->p2p.fetches) {
		enum op_progress progress = await_payload(mailbox, op);
		if (progress != OP_DONE)
			return progress;
	}
	op->word_count = 0;
	op->any_suffices = true;
	for (;;) {
		bool cancelled = mailbox_finish_cancel(mailbox, op);
		if (cancelled || mailbox_is_reached(&rts->done, done)) {
			if (!cancelled)
				mailbox_end_stores(mailbox, op);
			mailbox_complete_send(mailbox, op);
			mailbox_release_payload(mailbox, op, false);
			if (op_is_on_stream(op))
				op_stream_end(mailbox->memory, op);
			return OP_DONE;
		}
		if (!mailbox_is_reached(&rts->matched, done)) {
			mailbox_add_word(mailbox, op, op->call.peer, &rts->matched, done);
			break;
		}
		bool helps = op->p2p.by_address && op->p2p.in_places;
		enum op_progress progress =
			helps ? mailbox_help(mailbox, op) : copy_slice(mailbox, op);
		if (progress == OP_FAILED)
			return OP_FAILED;
		if (progress == OP_BLOCKED)
			break;
		if (op->p2p.detached)
			return OP_MORE;
	}
	mailbox_add_word(mailbox, op, op->call.peer, &rts->done, done);
	return OP_BLOCKED;
}

static enum op_progress advance_send(struct mailbox *mailbox, struct op *op)
{
	bool detached = op->p2p.detached;
	if (mailbox_state_of(op) == OP_P2P_NEW) {
		if (!prepare_send(mailbox, op))
			return OP_FAILED;
		if (!mailbox_send(mailbox, op)) {
			if (!mailbox_post_later(mailbox, op))
				return OP_FAILED;
			(void)mailbox_send(mailbox, op);
		}
	}
	if (detached)
		return OP_BLOCKED; /* it may be complete, and gone */
	if (op->p2p.posted_first) {
		enum op_progress progress = mailbox_stage_pieces(mailbox, op);
		if (progress != OP_DONE)
			return progress;
	}
	op->any_suffices = true;
	op->word_count = 1;
	if (mailbox_state_of(op) == OP_P2P_QUEUED && !mailbox_flush(mailbox, op, &op->words[0]))
		return OP_BLOCKED;
	return mailbox_state_of(op) == OP_P2P_SENT ? await_receiver(mailbox, op) : OP_DONE;
}

/* ---- receives ---- */

static enum op_progress copy_matched(struct mailbox *mailbox, struct op *op)
{
	struct op_p2p *p2p = &op->p2p;
	struct mail_rts *rts = p2p->rts;
	int source = p2p->message.source;
	struct pieces all = {
		.to = op->call.recv.address, .bytes = op->call.recv.bytes, .source = source};
	uint64_t places = MAIL_PLACES * p2p->piece_bytes;
	all.helped = p2p->window_in_places && p2p->window_by_address;
	all.in_places = p2p->window_in_places && !all.helped;
	op->word_count = 0;
	if (all.helped) {
		if (p2p->detached && mailbox->peers[source].in_turn++ >= MAILBOX_IN_TURN)
			return OP_MORE;
		mailbox_ask_for_help(mailbox, op);
	}
	if (p2p->window_by_address)
		all.address = p2p->window;
	else
		all.from = memory_view_at(transport_arena(mailbox->team, source), p2p->window,
					  all.in_places && places < all.bytes ? places : all.bytes);
	if ((!all.from && !p2p->window_by_address) || p2p->window_bytes != all.bytes)
		return op_fail(op, LS_INTERNAL, source);
	while (!copy_pieces(mailbox, op, &all, &rts->owner_copied)) {
		if (op->status != LS_OK)
			return OP_FAILED;
		uint64_t unstaged = transport_mail_unstaged(rts, p2p->generation, p2p->pieces);
		if (unstaged) {
			mailbox_add_word(mailbox, op, mailbox->team->rank, &rts->staged, unstaged);
			return OP_BLOCKED;
		}
		if (p2p->detached)
			return OP_MORE;
	}
	if (op->status != LS_OK)
		return OP_FAILED;
	mailbox_set_state(op, OP_P2P_SENDER_COPIES);
	return OP_DONE;
}

/* Waits until the source has copied the pieces that it has claimed. */
static enum op_progress await_source(struct mailbox *mailbox, struct op *op)
{
	struct op_p2p *p2p = &op->p2p;
	struct mail_rts *rts = p2p->rts;
	uint64_t theirs = transport_mail_word(p2p->generation, p2p->pieces - p2p->pieces_copied);
	if (p2p->pieces_copied < p2p->pieces && !mailbox_is_reached(&rts->source_copied, theirs)) {
		mailbox_add_word(mailbox, op, mailbox->team->rank, &rts->source_copied, theirs);
		return OP_BLOCKED;
	}
	int from = p2p->message.source;
	/* The source closes the RTS slot when it fails, and then takes its buffer back. */
	if (transport_mail_is_closed(rts, p2p->generation)) {
		ls_status why = hosts_fetch_status(mailbox->team, from, p2p->index);
		return op_fail(op, why, why == LS_ABORTED ? -1 : from);
	}
	atomic_store_explicit(&rts->ticks, p2p->ticks, memory_order_relaxed);
	atomic_store_explicit(&rts->elapsed, clock_ticks() - p2p->matched_ticks,
			      memory_order_relaxed);
	transport_mail_rts_done(mailbox->peers[from].from, p2p->index, p2p->generation);
	transport_notify_message(mailbox->team, from);
	p2p->rts = NULL;
	return OP_DONE;
}

static enum op_progress advance_receive(struct mailbox *mailbox, struct op *op)
{
	bool detached = op->p2p.detached, is_new = mailbox_state_of(op) == OP_P2P_NEW;
	if (is_new)
		mailbox_receive(mailbox, op);
	if (detached)
		return OP_BLOCKED; /* it may be complete, and gone */
	op->any_suffices = true;
	if (mailbox_state_of(op) == OP_P2P_POSTED && (is_new || mailbox_poll_posted(mailbox, op)))
		return OP_BLOCKED;
	enum op_progress progress = OP_DONE;
	op->word_count = 0;
	if (mailbox_state_of(op) == OP_P2P_MATCHED)
		progress = copy_matched(mailbox, op);
	if (progress == OP_DONE && mailbox_state_of(op) == OP_P2P_SENDER_COPIES)
		progress = await_source(mailbox, op);
	return progress;
}

/* A receive on a stream has its message, and the stream copies it out. */
static enum op_progress await_delivery(struct mailbox *mailbox, struct op *op)
{
	enum op_progress progress = op_stream_deliver(op);
	if (progress == OP_DONE)
		op_stream_end(mailbox->memory, op);
	return progress;
}

/* The operation has failed before. */
static enum op_progress await_failed_device(struct mailbox *mailbox, struct op *op)
{
	enum op_progress progress = op_stream_abandon(op);
	if (progress != OP_BLOCKED)
		atomic_fetch_sub_explicit(&mailbox->busy, 1, memory_order_relaxed);
	return progress;
}

enum op_progress mailbox_copy_pieces(struct mailbox *mailbox, struct op *op)
{
	enum op_progress progress = OP_DONE;
	op->word_count = 0;
	if (mailbox_state_of(op) == OP_P2P_DELIVERING)
		return await_delivery(mailbox, op);
	if (mailbox_state_of(op) == OP_P2P_DEVICE_BUSY)
		return await_failed_device(mailbox, op);
	if (op->call.kind == TRACE_SEND)
		return await_receiver(mailbox, op);
	if (mailbox_state_of(op) == OP_P2P_MATCHED)
		progress = copy_matched(mailbox, op);
	return progress == OP_DONE ? await_source(mailbox, op) : progress;
}

uint64_t mailbox_unstaged(const struct op *op)
{
	const struct op_p2p *p2p = &op->p2p;
	return mailbox_state_of(op) == OP_P2P_MATCHED
		       ? transport_mail_unstaged(p2p->rts, p2p->generation, p2p->pieces)
		       : 0;
}

void mailbox_rts_word(struct mailbox *mailbox, const struct op *op, struct wait_word *word)
{
	const struct op_p2p *p2p = &op->p2p;
	int rank = mailbox->team->rank;
	uint64_t unstaged = mailbox_unstaged(op);
	enum op_p2p_state state = mailbox_state_of(op);
	bool on_stream =
		op->p2p.fetches || state == OP_P2P_DELIVERING || state == OP_P2P_DEVICE_BUSY;
	if (on_stream) {
		(void)op_stream_word(op, word);
		return;
	}
	if (op->call.kind == TRACE_SEND)
		mailbox_wait_word(mailbox, op->call.peer, &p2p->rts->done,
				  transport_mail_word(p2p->generation, 0), op->call.peer, word);
	else if (unstaged)
		mailbox_wait_word(mailbox, rank, &p2p->rts->staged, unstaged, op->call.peer, word);
	else
		mailbox_wait_word(
			mailbox, rank, &p2p->rts->source_copied,
			transport_mail_word(p2p->generation, p2p->pieces - p2p->pieces_copied),
			op->call.peer, word);
}

static enum op_progress advance_probe(struct mailbox *mailbox, struct op *op)
{
	op->any_suffices = true;
	enum op_progress progress = mailbox_probe(mailbox, op->call.peer, op->call.tag,
						  &op->p2p.message, op->words, &op->word_count);
	return progress == OP_BLOCKED && op->word_count == 0 ? op_fail(op, LS_OUT_OF_MEMORY, -1)
							     : progress;
}

enum op_progress mailbox_advance_host(struct mailbox *mailbox, struct op *op)
{
	bool detached = op->p2p.detached;
	enum op_progress progress = op->call.kind == TRACE_SEND   ? advance_send(mailbox, op)
				    : op->call.kind == TRACE_RECV ? advance_receive(mailbox, op)
								  : advance_probe(mailbox, op);
	if (detached || progress != OP_DONE)
		return progress;
	mailbox_set_state(op, OP_P2P_COMPLETE);
	return op->status == LS_OK ? OP_DONE : OP_FAILED;
}

/* ---- the operation, also with a buffer of a device ---- */

static void submit_host(void *self, struct op *op, struct op_workspace *workspace)
{
	struct op_p2p *p2p = &op->p2p;
	(void)self;
	op_reset(op, workspace);
	op->state = OP_STATE_STEPS;
	p2p->rts = NULL;
	p2p->ends_failed = false;
	atomic_store_explicit(&p2p->lingers, false, memory_order_relaxed);
	p2p->cancelled = p2p->asks_cancel = p2p->by_address = p2p->fetches = p2p->crossed = false;
	p2p->posted_first = p2p->in_places = false;
	atomic_store_explicit(&p2p->state, OP_P2P_NEW, memory_order_relaxed);
}

static enum op_progress advance_host(void *self, struct op *op)
{
	return mailbox_advance_host(self, op);
}

static enum op_progress abandon_host(void *self, struct op *op, const struct ranks *gone, bool force)
{
	return mailbox_abandon_host(self, op, gone, force);
}

static const struct op_runner runner = {
	.submit = submit_host, .advance = advance_host, .abandon = abandon_host};

void mailbox_submit(struct mailbox *mailbox, struct op *op, struct op_workspace *workspace)
{
	op->device.state = OP_DEVICE_NONE;
	if (op_is_on_stream(op) || !memory_inspects_buffers(mailbox->memory) ||
	    !op_device_submit(mailbox->memory, op, workspace, &op->device.own_done))
		submit_host(mailbox, op, workspace);
}

enum op_progress mailbox_advance(struct mailbox *mailbox, struct op *op)
{
	return op->device.state == OP_DEVICE_NONE
		       ? mailbox_advance_host(mailbox, op)
		       : op_device_advance(mailbox->memory, op, &runner, mailbox);
}

enum op_progress mailbox_abandon(struct mailbox *mailbox, struct op *op, const struct ranks *gone,
				 bool force)
{
	return op->device.state == OP_DEVICE_NONE && !op_is_on_stream(op)
		       ? mailbox_abandon_host(mailbox, op, gone, force)
		       : op_device_abandon(mailbox->memory, op, &runner, mailbox, gone, force);
}
