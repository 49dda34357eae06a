/* SPDX-License-Identifier: BSD-3-Clause
 * The life of a mailbox; the lists of its operations; words to wait for. */
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

void mailbox_begin(struct mailbox *mailbox, const struct waiter *waiter)
{
	const struct transport_team *team = mailbox->team;
	mailbox->cause = waiter->cause;
	mailbox->polls = !waiter->yield && waiter->spin_ns > 0;
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
		peer->takes = false;
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

void mailbox_free_block(struct mailbox *mailbox, void *block)
{
	/* memory_free has printed a message about a block that is not mine. */
	ls_status status = memory_free(mailbox->memory, block, trace_caller_text);
	(void)status;
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

bool mailbox_needs_delivery(const struct op *op)
{
	return op_is_on_stream(op) && op->call.kind == TRACE_RECV && op->status == LS_OK &&
	       mailbox_state_of(op) != OP_P2P_DELIVERING;
}

void mailbox_complete(struct mailbox *mailbox, struct op *op) LOCK_REQUIRES(mail)
{
	if (mailbox_needs_delivery(op)) {
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

/* ---- what to wait for ---- */

void mailbox_source_word(struct mailbox *mailbox, int q, struct wait_word *word)
{
	const struct mailbox_peer *peer = &mailbox->peers[q];
	mailbox_wait_word(mailbox, mailbox->team->rank,
			  transport_mail_awaited(peer->from, &peer->in), peer->in.next, q, word);
}

void mailbox_room_word(struct mailbox *mailbox, int q, struct wait_word *word)
{
	struct mailbox_peer *peer = &mailbox->peers[q];
	if (peer->out.posted - peer->out.seen < mailbox->limit) {
		/* All RTS slots are in use. */
		mailbox_wait_word(mailbox, q, &peer->to->returned, peer->out.returned + 1, q, word);
		return;
	}
	mailbox_wait_word(mailbox, q, &peer->to->taken, peer->out.seen + 1, q, word);
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
