/* SPDX-License-Identifier: BSD-3-Clause
 * Matches messages that have arrived with posted receives. */
#include "mailbox/mailbox_private.h"

#include <string.h>

#include "base/clock.h"
#include "hosts/hosts.h"
#include "kernel/kernel.h"

/* ---- what arrives ---- */

/* Whether the message has an RTS slot. A receiver on another host keeps no blocks: see
 * hands_over_here in send.c. */
static bool has_rts(const struct mailbox_peer *peer, const struct mail_message *message)
{
	unsigned count = peer->is_here ? MAIL_RTS : MAIL_SLOTS;
	return message->envelope.rts > 0 && message->envelope.rts <= count;
}

/* The source has cancelled the message before it was matched. */
static void discard_message(struct mailbox *mailbox, struct mailbox_peer *peer,
			    const struct mail_message *message)
{
	unsigned index = message->envelope.rts - 1u;
	transport_mail_rts_done(peer->from, index, peer->from->rts[index].generation);
	transport_mail_free_slot(peer->from, &peer->in, message);
	transport_notify_message(mailbox->team, message->source);
}

/* Discards the message if its source has cancelled it. */
static bool discard_cancelled(struct mailbox *mailbox, struct mailbox_peer *peer,
			      const struct mail_message *message)
{
	if (!has_rts(peer, message) ||
	    !transport_mail_is_cancelled(&peer->from->rts[message->envelope.rts - 1]))
		return false;
	discard_message(mailbox, peer, message);
	return true;
}

static void fail_receive(struct mailbox *mailbox, struct op *op, ls_status status)
	LOCK_REQUIRES(mail)
{
	op->status = status;
	op->culprit = op->p2p.message.source;
	mailbox_complete(mailbox, op);
}

/* Sets where the payload goes: the receive's buffer, or a new block; false, with op->status. */
static bool make_room(struct mailbox *mailbox, struct op *op)
{
	if (!op->p2p.receives_block)
		return true;
	ls_status status =
		memory_alloc(mailbox->memory, op->call.recv.bytes ? op->call.recv.bytes : 1,
			     &op->call.recv.address);
	op->status = status;
	return status == LS_OK;
}

static void receive_short(struct mailbox *mailbox, struct mailbox_peer *peer, struct op *op,
			  const void *payload) LOCK_REQUIRES(mail)
{
	const struct mail_message *message = &op->p2p.message;
	int source = message->source;
	uint64_t bytes = op->call.recv.bytes;
	if (bytes >= KERNEL_LONG_COPY)
		kernel_copy(op->call.recv.address, payload, bytes, false);
	else
		transport_mail_copy(op->call.recv.address, payload, bytes);
	transport_mail_free_slot(peer->from, &peer->in, message);
	mailbox_complete(mailbox, op);
	transport_notify_message(mailbox->team, source);
}

static bool receive_block(struct mailbox *mailbox, struct mailbox_peer *peer, struct op *op)
	LOCK_REQUIRES(mail)
{
	struct op_p2p *p2p = &op->p2p;
	void *block = memory_view_at(transport_arena(mailbox->team, p2p->message.source),
				     p2p->window, op->call.recv.bytes);
	if (!block || p2p->index < MAIL_SLOTS)
		return false;
	op->call.recv.address = block;
	peer->held[p2p->index - MAIL_SLOTS] = block;
	peer->holds++;
	p2p->rts = NULL;
	mailbox_complete(mailbox, op);
	return true;
}

/* Lets the source copy pieces, if it can access my buffer, and if the message is long enough. True:
 * the source is on another host, and the link brings all pieces. */
static bool invite_source(struct mailbox *mailbox, struct op *op)
{
	struct op_p2p *p2p = &op->p2p;
	struct mail_rts *rts = p2p->rts;
	uint64_t offset;
	rts->target = 0;
	if (hosts_fetch_message(mailbox->team, p2p->message.source, p2p->index,
				op->call.recv.address, op->call.recv.bytes))
		return true;
	if (p2p->pieces < 2 || p2p->window_by_address ||
	    !memory_offset_for(mailbox->memory, op->call.recv.address, op->call.recv.bytes,
			       &mailbox->members, &offset))
		return false;
	rts->target = offset + 1;
	wait_store(&rts->matched, transport_mail_word(p2p->generation, 0));
	return false;
}

static void receive_long(struct mailbox *mailbox, struct mailbox_peer *peer, struct op *op)
	LOCK_REQUIRES(mail)
{
	struct op_p2p *p2p = &op->p2p;
	bool given = p2p->message.envelope.flags & MAIL_BLOCK;
	/* This rank alone copies a payload that is given by address (process_vm_readv). The
	 * payload is split only to read the group's cause between the pieces. */
	p2p->piece_bytes = p2p->window_by_address && !p2p->window_in_places
				   ? MAILBOX_READ_PIECE_BYTES
				   : transport_mail_piece_bytes(op->call.recv.bytes);
	p2p->pieces = (op->call.recv.bytes + p2p->piece_bytes - 1) / p2p->piece_bytes;
	p2p->pieces_copied = p2p->ticks = 0;
	p2p->asked = p2p->extended = false;
	p2p->matched_ticks = clock_ticks();
	struct mail_message message =
		p2p->message; /* after this the operation may be complete, and its memory gone */
	if (given && p2p->receives_block) {
		if (!receive_block(mailbox, peer, op)) {
			fail_receive(mailbox, op, LS_INTERNAL);
			return;
		}
	} else {
		if (!make_room(mailbox, op)) {
			fail_receive(mailbox, op, op->status);
			return;
		}
		bool brought = !given && invite_source(mailbox, op);
		if (brought && p2p->pieces == 0)
			p2p->pieces = 1; /* it is waited for, although it has no byte */
		mailbox_activate(mailbox, op, brought ? OP_P2P_SENDER_COPIES : OP_P2P_MATCHED);
	}
	transport_mail_free_slot(peer->from, &peer->in, &message);
	transport_notify_message(mailbox->team, message.source);
}

/* Claims the message for a receive. False: the source has cancelled the message, which is
 * discarded. */
static bool claim_message(struct mailbox *mailbox, struct op *op,
			  const struct mail_message *message) LOCK_REQUIRES(mail)
{
	struct mailbox_peer *peer = &mailbox->peers[message->source];
	struct op_p2p *p2p = &op->p2p;
	p2p->rts = NULL;
	if (!has_rts(peer, message))
		return true;
	struct mail_rts *rts = &peer->from->rts[message->envelope.rts - 1];
	uint32_t generation = rts->generation;
	if (!transport_mail_match(rts, generation)) {
		discard_message(mailbox, peer, message);
		return false;
	}
	p2p->index = message->envelope.rts - 1u;
	p2p->rts = rts;
	p2p->generation = generation;
	p2p->window = rts->window;
	p2p->window_bytes = rts->bytes;
	p2p->window_by_address = rts->by_address;
	p2p->window_in_places = rts->in_places;
	return true;
}

/* Gives the claimed message to the receive, which is in no list any more. */
static void match_message(struct mailbox *mailbox, struct op *op,
			  const struct mail_message *message) LOCK_REQUIRES(mail)
{
	struct mailbox_peer *peer = &mailbox->peers[message->source];
	const struct mail_envelope *envelope = &message->envelope;
	const void *payload = NULL;
	op->p2p.message = *message;
	op->p2p.crossed = op->p2p.is_blocking && mailbox_crossed(mailbox, message);
	op->call.peer = message->source;
	op->call.tag = envelope->tag;
	if (envelope->dtype != (uint8_t)op->call.dtype || envelope->count < op->call.count)
		fail_receive(mailbox, op, LS_MISMATCH);
	else if (envelope->count > op->call.count)
		fail_receive(mailbox, op, LS_TRUNCATED);
	else if (op->p2p.rts)
		receive_long(mailbox, peer, op);
	else if (!(payload = transport_mail_payload(peer->from, peer->cells, message,
						    op->call.recv.bytes)))
		fail_receive(mailbox, op, LS_INTERNAL);
	else if (!make_room(mailbox, op))
		fail_receive(mailbox, op, op->status);
	else
		receive_short(mailbox, peer, op, payload);
}

static void count_unposted(struct mailbox *mailbox, const struct op *op) LOCK_REQUIRES(mail)
{
	if (op->p2p.entry.source != MATCH_ANY)
		mailbox->peers[op->p2p.entry.source].posted_count--;
}

void mailbox_unpost(struct mailbox *mailbox, struct op *op) LOCK_REQUIRES(mail)
{
	count_unposted(mailbox, op);
	mailbox_match_remove(&mailbox->posted, &op->p2p.entry);
}

/* Discards unexpected messages that their source has cancelled. */
static void purge_cancelled(struct mailbox *mailbox, struct mailbox_peer *peer) LOCK_REQUIRES(mail)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < peer->unexpected_count; i++)
		if (!discard_cancelled(mailbox, peer, &peer->unexpected[i]))
			peer->unexpected[kept++] = peer->unexpected[i];
	peer->unexpected_count = kept;
}

__attribute__((noinline)) static void take_news(struct mailbox *mailbox, int q) LOCK_REQUIRES(mail)
{
	struct mailbox_peer *peer = &mailbox->peers[q];
	struct mail_message message;
	if (!peer->from_open &&
	    !transport_inbox_is_open(transport_area_of(mailbox->team, mailbox->team->rank), q))
		return; /* q has never sent anything */
	peer->from_open = true;
	while (transport_mail_poll(peer->from, &peer->in, &message)) {
		message.source = q;
		transport_mail_prefetch(peer->from, &peer->in);
		struct match_entry **place =
			mailbox_match_find(&mailbox->posted, q, message.envelope.tag);
		if (place) {
			struct op *op = mailbox_op_of(*place);
			if (!claim_message(mailbox, op, &message))
				continue;
			count_unposted(mailbox, op);
			mailbox_match_remove_at(&mailbox->posted, place);
			match_message(mailbox, op, &message);
		} else if (peer->unexpected_count < MAIL_SLOTS) {
			peer->unexpected[peer->unexpected_count++] = message;
		}
	}
	if (peer->in.skipped) {
		peer->in.skipped = false;
		purge_cancelled(mailbox, peer);
	}
}

void mailbox_arrive(struct mailbox *mailbox, int q) LOCK_REQUIRES(mail)
{
	const struct mailbox_peer *peer = &mailbox->peers[q];
	if (!peer->from_open || peer->in.skipped ||
	    mailbox_is_reached(transport_mail_awaited(peer->from, &peer->in), peer->in.next))
		take_news(mailbox, q);
}

static void arrive_from(struct mailbox *mailbox, int source) LOCK_REQUIRES(mail)
{
	if (source != MATCH_ANY) {
		mailbox_arrive(mailbox, source);
		return;
	}
	for (int q = 0; q < mailbox->team->size; q++)
		mailbox_arrive(mailbox, q);
}

bool mailbox_poll_posted(struct mailbox *mailbox, struct op *op)
{
	lock_mail_acquire(&mailbox->lock);
	arrive_from(mailbox, op->p2p.entry.source);
	bool asks = mailbox_state_of(op) == OP_P2P_POSTED;
	if (asks)
		op->word_count = mailbox_source_words(mailbox, op->p2p.entry.source, op->words);
	lock_mail_release(&mailbox->lock);
	return asks;
}

bool mailbox_poll_receive(struct mailbox *mailbox, const struct op *op, struct wait_word *word)
{
	if (mailbox_state_of(op) != OP_P2P_POSTED || op->p2p.entry.source == MATCH_ANY)
		return false;
	lock_mail_acquire(&mailbox->lock);
	mailbox_arrive(mailbox, op->p2p.entry.source);
	bool posted = mailbox_state_of(op) == OP_P2P_POSTED;
	if (posted)
		mailbox_source_word(mailbox, op->p2p.entry.source, word);
	lock_mail_release(&mailbox->lock);
	return posted;
}

/* ---- receives ---- */

/* Allocates the inboxes of this source, or of all sources. */
static bool open_from(struct mailbox *mailbox, int source) LOCK_REQUIRES(mail)
{
	for (int q = 0; source == MATCH_ANY && q < mailbox->team->size; q++)
		if (!mailbox_open_from(mailbox, q))
			return false;
	return source == MATCH_ANY || mailbox_open_from(mailbox, source);
}

int mailbox_find_unexpected(const struct mailbox_peer *peer, int tag)
{
	for (uint32_t i = 0; i < peer->unexpected_count; i++)
		if (tag == MATCH_ANY || peer->unexpected[i].envelope.tag == tag)
			return (int)i;
	return -1;
}

/* Finds the oldest unexpected message of a source, or of any source in turn. Returns the source;
 * -1: none. */
static int find_source(struct mailbox *mailbox, int size, int source, int tag, int *place)
	LOCK_REQUIRES(mail)
{
	if (source != MATCH_ANY) {
		*place = mailbox_find_unexpected(&mailbox->peers[source], tag);
		return *place < 0 ? -1 : source;
	}
	for (int i = 0; i < size; i++) {
		int q = (mailbox->next_source + i) % size;
		*place = mailbox_find_unexpected(&mailbox->peers[q], tag);
		if (*place >= 0)
			return q;
	}
	return -1;
}

void mailbox_take_unexpected(struct mailbox_peer *peer, int place, struct mail_message *out)
{
	*out = peer->unexpected[place];
	peer->unexpected_count--;
	memmove(&peer->unexpected[place], &peer->unexpected[place + 1],
		(peer->unexpected_count - (uint32_t)place) * sizeof peer->unexpected[0]);
}

/* True if the receive has matched an unexpected message. */
static bool match_unexpected(struct mailbox *mailbox, struct op *op) LOCK_REQUIRES(mail)
{
	const struct match_entry *entry = &op->p2p.entry;
	int size = mailbox->team->size, place, q;
	while ((q = find_source(mailbox, size, entry->source, entry->tag, &place)) >= 0) {
		struct mail_message message;
		mailbox_take_unexpected(&mailbox->peers[q], place, &message);
		if (entry->source == MATCH_ANY)
			mailbox->next_source = (q + 1) % size;
		if (!claim_message(mailbox, op, &message))
			continue;
		match_message(mailbox, op, &message);
		return true;
	}
	return false;
}

/* Matches the receive, or posts it: true. */
static bool match_or_post(struct mailbox *mailbox, struct op *op) LOCK_REQUIRES(mail)
{
	struct match_entry *entry = &op->p2p.entry;
	bool may_match =
		entry->source == MATCH_ANY || mailbox->peers[entry->source].unexpected_count > 0;
	if (may_match && match_unexpected(mailbox, op))
		return false;
	mailbox_match_add(&mailbox->posted, entry);
	if (entry->source != MATCH_ANY)
		mailbox->peers[entry->source].posted_count++;
	mailbox_set_state(op, OP_P2P_POSTED);
	return true;
}

bool mailbox_post_short(struct mailbox *mailbox, struct op *op)
{
	struct match_entry *entry = &op->p2p.entry;
	entry->source = op->call.peer;
	entry->tag = op->call.tag;
	lock_mail_acquire(&mailbox->lock);
	mailbox_count(mailbox, op);
	/* Receives that were posted before come first for messages that have arrived already. */
	mailbox_arrive(mailbox, entry->source);
	bool posted = match_or_post(mailbox, op);
	lock_mail_release(&mailbox->lock);
	return posted;
}

void mailbox_receive(struct mailbox *mailbox, struct op *op)
{
	struct match_entry *entry = &op->p2p.entry;
	*entry = (struct match_entry){.source = op->call.peer, .tag = op->call.tag};
	lock_mail_acquire(&mailbox->lock);
	mailbox_count(mailbox, op);
	if (entry->source == MATCH_ANY && !op->p2p.is_blocking)
		mailbox->crossing.left_any_open = true;
	if (!open_from(mailbox, entry->source)) {
		op->status = LS_OUT_OF_MEMORY;
		mailbox_complete(mailbox, op);
		lock_mail_release(&mailbox->lock);
		return;
	}
	/* Receives that were posted before come first for messages that have arrived already. */
	arrive_from(mailbox, entry->source);
	bool detached = op->p2p.detached; /* afterwards the operation may be complete, and gone */
	if (match_or_post(mailbox, op) && !detached)
		op->word_count = mailbox_source_words(mailbox, entry->source, op->words);
	lock_mail_release(&mailbox->lock);
}

/* Also discards cancelled messages that come first. */
enum op_progress mailbox_probe(struct mailbox *mailbox, int source, int tag,
			       struct mail_message *out, struct wait_word *words, int *count)
{
	int place, q;
	lock_mail_acquire(&mailbox->lock);
	mailbox_note_thread(mailbox); /* this thread is about to receive */
	arrive_from(mailbox, source);
	while ((q = find_source(mailbox, mailbox->team->size, source, tag, &place)) >= 0) {
		struct mailbox_peer *peer = &mailbox->peers[q];
		*out = peer->unexpected[place];
		if (!discard_cancelled(mailbox, peer, out))
			break;
		mailbox_take_unexpected(peer, place, out);
	}
	bool waits = q < 0 && open_from(mailbox, source);
	*count = waits ? mailbox_source_words(mailbox, source, words) : 0;
	lock_mail_release(&mailbox->lock);
	return q >= 0 ? OP_DONE : OP_BLOCKED;
}

/* The RTS slot of a block that this rank holds; NULL: it holds no such block. */
static const struct mail_rts *find_held(struct mailbox_peer *peer, const void *block, void ***held)
	LOCK_REQUIRES(mail)
{
	for (unsigned i = 0; i < MAIL_SLOTS && peer->holds; i++)
		if (peer->held[i] == block) {
			*held = &peer->held[i];
			return &peer->from->rts[MAIL_SLOTS + i];
		}
	return NULL;
}

bool mailbox_give_back(struct mailbox *mailbox, void *block)
{
	bool found = false;
	lock_mail_acquire(&mailbox->lock);
	for (int q = 0; q < mailbox->team->size && !found; q++) {
		struct mailbox_peer *peer = &mailbox->peers[q];
		void **held;
		const struct mail_rts *rts = find_held(peer, block, &held);
		if (!rts)
			continue;
		*held = NULL;
		peer->holds--;
		transport_mail_rts_done(peer->from, (unsigned)(rts - peer->from->rts),
					rts->generation);
		transport_notify_message(mailbox->team, q);
		found = true;
	}
	lock_mail_release(&mailbox->lock);
	return found;
}

size_t mailbox_held_bytes(struct mailbox *mailbox, const void *block)
{
	size_t bytes = 0;
	lock_mail_acquire(&mailbox->lock);
	for (int q = 0; q < mailbox->team->size && bytes == 0; q++) {
		void **held;
		const struct mail_rts *rts = find_held(&mailbox->peers[q], block, &held);
		bytes = rts ? rts->bytes : 0;
	}
	lock_mail_release(&mailbox->lock);
	return bytes;
}
