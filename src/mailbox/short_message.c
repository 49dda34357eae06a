/* SPDX-License-Identifier: BSD-3-Clause
 * Short messages that complete at once: a send that is complete when it is in its slot or in cells,
 * a receive whose message has arrived. They are never in a list, so they need no struct op.
 * All others go through mailbox_submit and mailbox_advance, as if this had not been tried. */
#include <string.h>

#include "kernel/kernel.h"
#include "mailbox/mailbox_private.h"

static uint64_t *counter_of(struct mailbox *mailbox, enum trace_kind kind, int peer)
{
	if (peer == MATCH_ANY)
		return &mailbox->any_receives;
	return kind == TRACE_SEND ? &mailbox->peers[peer].sends : &mailbox->peers[peer].receives;
}

uint64_t mailbox_number(struct mailbox *mailbox, enum trace_kind kind, int peer)
{
	lock_mail_acquire(&mailbox->lock);
	uint64_t number = ++*counter_of(mailbox, kind, peer);
	lock_mail_release(&mailbox->lock);
	return number;
}

uint64_t mailbox_increment(struct mailbox *mailbox, _Atomic uint64_t *word)
{
	lock_mail_acquire(&mailbox->lock);
	uint64_t value = 1 + atomic_load_explicit(word, memory_order_relaxed);
	atomic_store_explicit(word, value, memory_order_relaxed);
	lock_mail_release(&mailbox->lock);
	return value;
}

void mailbox_note_waited(struct mailbox *mailbox)
{
	uint64_t count = atomic_load_explicit(&mailbox->waited_sends, memory_order_relaxed);
	atomic_store_explicit(&mailbox->waited_sends, count + 1, memory_order_relaxed);
}

static bool fits_slot(const struct mailbox_short *call)
{
	return __builtin_expect(call->bytes <= MAIL_INLINE_BYTES, 1);
}

/* Whether the send can be posted now: no other send is queued, and a slot is free. A posted receive
 * does not prevent it, not even one of this rank for this message: its thread waits for the slot,
 * and is woken as by another rank. */
static bool prepare_post(struct mailbox *mailbox, struct mailbox_peer *peer,
			 const struct mailbox_short *call) LOCK_REQUIRES(mail)
{
	if (__builtin_expect(!peer->to_open, 0) && !mailbox_open_to(mailbox, call->peer))
		return false;
	return !peer->queue && transport_mail_find_room(peer->to, &peer->out, mailbox->limit) &&
	       (fits_slot(call) || mailbox_reclaim_cells(mailbox, call->bytes));
}

static inline struct mail_envelope envelope_of(const struct mailbox_short *call, uint64_t record)
{
	return (struct mail_envelope){.count = call->count,
				      .tag = call->tag,
				      .record = (uint32_t)record,
				      .dtype = (uint8_t)call->dtype};
}

static void post_short(struct mailbox *mailbox, struct mailbox_peer *peer,
		       const struct mailbox_short *call, uint64_t record) LOCK_REQUIRES(mail)
{
	if (fits_slot(call)) {
		/* A variable of its own: it is only read inline, so it stays in registers. */
		const struct mail_envelope envelope = envelope_of(call, record);
		transport_mail_post_inline(peer->to, &peer->out, &envelope, call->send, call->bytes);
		return;
	}
	struct mail_envelope envelope = envelope_of(call, record);
	mailbox_post_eager(mailbox, call->peer, &envelope, call->send, call->bytes);
}

bool mailbox_send_short(struct mailbox *mailbox, const struct mailbox_short *call, uint64_t record,
			struct mailbox_short_sent *out)
{
	struct mailbox_peer *peer = &mailbox->peers[call->peer];
	lock_mail_acquire(&mailbox->lock);
	bool goes = prepare_post(mailbox, peer, call);
	if (goes) {
		post_short(mailbox, peer, call, record);
		out->number = ++peer->sends;
		out->receiver_lags = peer->out.receiver_lags;
		peer->out.receiver_lags = false;
		mailbox_note_thread(mailbox);
		mailbox_note_sent(mailbox, call->peer,
				  call->is_blocking ? MAILBOX_WAITED : MAILBOX_HANDLE);
	}
	lock_mail_release(&mailbox->lock);
	if (goes)
		transport_notify_message(mailbox->team, call->peer);
	return goes;
}

bool mailbox_awaits_room(struct mailbox *mailbox, int q, struct wait_word *word)
{
	struct mailbox_peer *peer = &mailbox->peers[q];
	lock_mail_acquire(&mailbox->lock);
	bool is_full = peer->to_open && peer->is_here && q != mailbox->team->rank && !peer->queue &&
		       peer->out.posted - peer->out.seen >= mailbox->limit;
	if (is_full)
		mailbox_room_word(mailbox, q, word);
	lock_mail_release(&mailbox->lock);
	return is_full;
}

static bool fits_call(const struct mailbox_short *call, const struct mail_envelope *envelope)
{
	return !envelope->rts && envelope->dtype == (uint8_t)call->dtype &&
	       envelope->count == call->count &&
	       (fits_slot(call) || transport_mail_is_in_cell(envelope, call->bytes));
}

/* The oldest message of the source with the tag, if its other fields match as well. */
static bool find_message(struct mailbox *mailbox, const struct mailbox_short *call,
			 struct mail_message *out) LOCK_REQUIRES(mail)
{
	struct mailbox_peer *peer = &mailbox->peers[call->peer];
	/* Messages that have arrived belong to receives that were posted before; and sources may
	 * have cancelled some of the unexpected ones. */
	if (__builtin_expect(mailbox->posted.count > 0 || peer->in.skipped, 0))
		mailbox_arrive(mailbox, call->peer);
	int place = peer->unexpected_count ? mailbox_find_unexpected(peer, call->tag) : -1;
	if (place < 0 && mailbox->posted.count == 0) {
		if (!transport_mail_poll(peer->from, &peer->in, out))
			return false;
		out->source = call->peer;
		if ((call->tag == MATCH_ANY || call->tag == out->envelope.tag) &&
		    fits_call(call, &out->envelope))
			return true;
		/* There is room, unless the peer has overwritten slots that are in use. */
		if (peer->unexpected_count < MAIL_SLOTS)
			peer->unexpected[peer->unexpected_count++] = *out;
		mailbox_arrive(mailbox, call->peer);
		place = mailbox_find_unexpected(peer, call->tag);
	}
	if (place < 0 || !fits_call(call, &peer->unexpected[place].envelope))
		return false;
	mailbox_take_unexpected(peer, place, out);
	return true;
}

bool mailbox_receive_short(struct mailbox *mailbox, const struct mailbox_short *call, bool numbers,
			   struct mailbox_short_received *out, struct wait_word *word)
{
	struct mailbox_peer *peer = &mailbox->peers[call->peer];
	lock_mail_acquire(&mailbox->lock);
	bool opened = __builtin_expect(peer->from_open, 1) || mailbox_open_from(mailbox, call->peer);
	bool there = opened && find_message(mailbox, call, &out->message);
	if (there) {
		const void *payload =
			transport_mail_payload(peer->from, peer->cells, &out->message, call->bytes);
		if (__builtin_expect(call->bytes < KERNEL_LONG_COPY, 1))
			transport_mail_copy(call->recv, payload, call->bytes);
		else
			kernel_copy(call->recv, payload, call->bytes, false);
		transport_mail_free_slot(peer->from, &peer->in, &out->message);
		mailbox_note_thread(mailbox);
		out->crossed = call->is_blocking && mailbox_crossed(mailbox, &out->message);
		if (word)
			transport_mail_prefetch_early(peer->from, &peer->in);
		else
			transport_mail_prefetch(peer->from, &peer->in);
	} else if (word && opened) {
		mailbox_source_word(mailbox, call->peer, word);
	} else if (word) {
		/* No message can come; the general path prints the reason. This word never gets the
		 * value 2, so the wait ends by a failure, a death or its time limit. */
		const struct transport_area *mine =
			transport_area_of(mailbox->team, mailbox->team->rank);
		mailbox_wait_word(mailbox, mailbox->team->rank, &mine->mail_ended, 2, call->peer,
				  word);
	}
	out->number = (there && numbers) || (opened && call->posts) ? ++peer->receives : 0;
	lock_mail_release(&mailbox->lock);
	if (there)
		transport_notify_message(mailbox->team, call->peer);
	return there;
}
