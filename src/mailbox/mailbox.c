/* SPDX-License-Identifier: BSD-3-Clause
 * The life of a mailbox; posting and queueing of sends; the list of complete operations; words to
 * wait for. */
#include "mailbox/mailbox_private.h"
#include "op/stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/messages.h"

/* ---- life ---- */

ls_status mailbox_init(struct mailbox **out, struct transport_team *team, struct memory *memory,
		       const struct settings *settings)
{
	int world_size = team->transport->size;
	size_t peers = sizeof(struct mailbox) + (size_t)world_size * sizeof(struct mailbox_peer);
	size_t bytes = peers + (size_t)world_size * sizeof(struct mailbox_store);
	struct mailbox *mailbox = *out = calloc(1, bytes);
	if (!mailbox) {
		MESSAGE_SAY(MESSAGE_ENGINE_MAILBOX, bytes);
		return LS_OUT_OF_MEMORY;
	}
	lock_mail_init(&mailbox->lock);
	lock_mail_acquire(&mailbox->lock);
	mailbox_match_init(&mailbox->posted);
	lock_mail_release(&mailbox->lock);
	mailbox->team = team;
	mailbox->memory = memory;
	mailbox->cma = (enum setting_cma)settings->cma;
	mailbox->limit = (unsigned)settings->messages;
	struct mailbox_store *stores = (void *)((unsigned char *)mailbox + peers);
	for (int q = 0; q < world_size; q++) {
		mailbox->peers[q].blocks = stores[q].blocks;
		mailbox->peers[q].held = stores[q].held;
		mailbox->peers[q].unexpected = stores[q].unexpected;
	}
	return LS_OK;
}

void mailbox_begin(struct mailbox *mailbox, const _Atomic uint64_t *cause)
{
	const struct transport_team *team = mailbox->team;
	mailbox->cause = cause;
	mailbox->members = transport_team_ranks(team);
	mailbox->tid = 0;
	mailbox->several_threads = false;
	mailbox->crossing = (struct mailbox_crossing){.to = -1};
	atomic_store_explicit(&mailbox->waited_sends, 0, memory_order_relaxed);
	mailbox->next_source = 0;
	mailbox->any_receives = 0;
	for (int q = 0; q < team->size; q++) {
		struct mailbox_peer *peer = &mailbox->peers[q];
		peer->to = transport_mail(team, q, team->rank);
		peer->from = transport_mail(team, team->rank, q);
		peer->to_open = peer->from_open = false;
		transport_mail_out_init(&peer->out);
		transport_mail_in_init(&peer->in);
		peer->queue = peer->queue_last = NULL;
		peer->posted_count = peer->unexpected_count = 0;
		peer->waited_from = peer->sends = peer->receives = 0;
		if (peer->unowned_rts[0] | peer->unowned_rts[1]) /* the receiver has kept them */
			memset(peer->blocks, 0, MAIL_RTS * sizeof *peer->blocks);
		if (peer->holds)
			memset(peer->held, 0, MAIL_SLOTS * sizeof *peer->held);
		peer->unowned_rts[0] = peer->unowned_rts[1] = 0;
		peer->holds = 0;
	}
	mailbox_cells_init(mailbox);
}

void mailbox_fini(struct mailbox *mailbox)
{
	if (!mailbox)
		return;
	lock_mail_acquire(&mailbox->lock);
	mailbox_match_fini(&mailbox->posted);
	lock_mail_release(&mailbox->lock);
	lock_mail_fini(&mailbox->lock);
	free(mailbox);
}

/* ---- lists ---- */

/* A complete detached operation stays in this list until mailbox_take_complete returns it. */
void mailbox_add_complete(struct mailbox *mailbox, struct op *op) LOCK_REQUIRES(mail)
{
	op->p2p.next = NULL;
	if (mailbox->complete_last)
		mailbox->complete_last->p2p.next = op;
	else
		mailbox->complete = op;
	mailbox->complete_last = op;
	mailbox_tally(&mailbox->complete_count, 1);
}

void mailbox_activate(struct mailbox *mailbox, struct op *op, enum op_p2p_state state)
	LOCK_REQUIRES(mail)
{
	bool detached = op->p2p.detached;
	mailbox_set_state(op, state);
	if (!detached)
		return;
	/* Behind the others, which began earlier. */
	struct op **at = &mailbox->active;
	while (*at)
		at = &(*at)->p2p.next;
	op->p2p.next = NULL;
	*at = op;
}

bool mailbox_is_delivered_next(const struct op *op)
{
	return op_is_on_stream(op) && op->call.kind == TRACE_RECV && op->status == LS_OK &&
	       mailbox_state_of(op) != OP_P2P_DELIVERING;
}

void mailbox_complete(struct mailbox *mailbox, struct op *op) LOCK_REQUIRES(mail)
{
	if (mailbox_is_delivered_next(op)) {
		op_stream_arrived(op);
		mailbox_activate(mailbox, op, OP_P2P_DELIVERING);
		return;
	}
	bool detached = op->p2p.detached;
	mailbox_set_state(op, OP_P2P_COMPLETE);
	if (detached)
		mailbox_add_complete(mailbox, op);
}

static bool ends_quietly(const struct op *op)
{
	return op && op->p2p.ends_quietly && op->status == LS_OK;
}

__attribute__((noinline)) static struct op *take_complete(struct mailbox *mailbox)
{
	lock_mail_acquire(&mailbox->lock);
	struct op *first = mailbox->complete, *last = first;
	int count = first != NULL;
	if (ends_quietly(first))
		for (; ends_quietly(last->p2p.next); count++)
			last = last->p2p.next;
	if (last) {
		mailbox->complete = last->p2p.next;
		last->p2p.next = NULL;
		if (!mailbox->complete)
			mailbox->complete_last = NULL;
		mailbox_tally(&mailbox->complete_count, -count);
		mailbox_tally(&mailbox->pending, -count);
	}
	lock_mail_release(&mailbox->lock);
	return first;
}

struct op *mailbox_take_complete(struct mailbox *mailbox)
{
	uint32_t count = atomic_load_explicit(&mailbox->complete_count, memory_order_relaxed);
	return __builtin_expect(count != 0, 0) ? take_complete(mailbox) : NULL;
}

uint32_t mailbox_pending(const struct mailbox *mailbox)
{
	return atomic_load_explicit(&mailbox->pending, memory_order_relaxed);
}

void mailbox_count(struct mailbox *mailbox, struct op *op)
{
	if (op->p2p.detached)
		mailbox_tally(&mailbox->pending, 1);
	mailbox_note_thread(mailbox);
}

bool mailbox_open_to(struct mailbox *mailbox, int q)
{
	const struct transport_team *team = mailbox->team;
	struct mailbox_peer *peer = &mailbox->peers[q];
	if (!peer->to_open)
		peer->to_open = transport_inbox_open(team, q, team->rank);
	return peer->to_open;
}

bool mailbox_open_from(struct mailbox *mailbox, int q)
{
	const struct transport_team *team = mailbox->team;
	struct mailbox_peer *peer = &mailbox->peers[q];
	if (!peer->from_open)
		peer->from_open = transport_inbox_open(team, team->rank, q);
	return peer->from_open;
}

/* ---- sends ---- */

/* Frees RTS slots that no operation waits for, and whose blocks the receiver has returned. */
static void free_returned_rts(struct mailbox *mailbox, struct mailbox_peer *peer, unsigned half)
{
	for (uint64_t left = peer->unowned_rts[half]; left; left &= left - 1) {
		unsigned i = half * MAIL_SLOTS + (unsigned)__builtin_ctzll(left);
		uint64_t done = atomic_load_explicit(&peer->to->rts[i].done, memory_order_acquire);
		if ((int64_t)(done - transport_mail_word(peer->out.generations[i], 0)) < 0)
			continue;
		/* memory_free has printed a message about a block that is not mine. */
		ls_status status = memory_free(mailbox->memory, peer->blocks[i], trace_caller_text);
		(void)status;
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
	return op->call.send.bytes > MAIL_INLINE_BYTES || op->p2p.hands_over_block ||
	       op->p2p.cancellable || op_is_on_stream(op);
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
	p2p->generation = peer->out.generations[p2p->index];
	p2p->piece_bytes = transport_mail_piece_bytes(op->call.send.bytes);
	p2p->pieces = transport_mail_pieces(op->call.send.bytes);
	p2p->pieces_copied = 0;
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
	if (op->p2p.hands_over_block)
		envelope.flags |= MAIL_BLOCK;
	if (op->p2p.uses_cells && !rts)
		mailbox_post_eager(mailbox, op->call.peer, &envelope, op->call.send.address,
				   op->call.send.bytes);
	else
		transport_mail_post(peer->to, &peer->out, &envelope, op->call.send.address,
				    op->call.send.bytes);
	mailbox_note_sent(mailbox, op->call.peer,
			  would_wait(op) ? MAILBOX_WAITED : MAILBOX_NONBLOCKING);
	if (op->p2p.hands_over_block) {
		memory_give_block(mailbox->memory, op->call.send.address);
		mailbox_disown_rts(peer, op->p2p.index, op->call.send.address);
		op->p2p.rts = NULL;
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
		transport_notify(mailbox->team, q);
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

/* ---- what to wait for ---- */

void mailbox_source_word(struct mailbox *mailbox, int q, struct wait_word *word)
{
	const struct mailbox_peer *peer = &mailbox->peers[q];
	transport_wait_word(mailbox->team, mailbox->team->rank,
			    transport_mail_awaited(peer->from, &peer->in), peer->in.next, q, word);
}

void mailbox_room_word(struct mailbox *mailbox, int q, struct wait_word *word)
{
	struct mailbox_peer *peer = &mailbox->peers[q];
	if (peer->out.posted - peer->out.seen < mailbox->limit) {
		/* All RTS slots are in use. */
		transport_wait_word(mailbox->team, q, &peer->to->returned, peer->out.returned + 1,
				    q, word);
		return;
	}
	transport_wait_word(mailbox->team, q, &peer->to->taken, peer->out.seen + 1, q, word);
}

int mailbox_source_words(struct mailbox *mailbox, int source, struct wait_word *words)
{
	int count = 0;
	for (int q = 0; q < mailbox->team->size; q++) {
		if (source != MATCH_ANY && source != q)
			continue;
		mailbox_source_word(mailbox, q, &words[count]);
		/* A message for a receive from any source may come from another thread of this
		 * rank. But such a message is not expected when all other ranks are gone. */
		if (source == MATCH_ANY && q == mailbox->team->rank && mailbox->team->size > 1)
			words[count].edge.record = WAIT_RECORD_OTHERS;
		count++;
	}
	return count;
}
