/* SPDX-License-Identifier: BSD-3-Clause
 * Short messages that nothing stands in the way of: a send that is over as soon as it lies in its
 * slot, a receive whose message is there. They are never in a list, so they need no struct
 * engine_op; what they cannot do is done by engine_submit and engine_advance, as if they had not
 * been tried. */
#include <string.h>

#include "engine/mailbox.h"

bool engine_p2p_send_short(struct engine *engine, const struct engine_call *call, uint64_t bytes,
			   uint64_t record, bool blocks)
{
	struct engine_mailbox *mailbox = engine->mailbox;
	struct mailbox_peer *peer = &mailbox->peers[call->peer];
	if (bytes > MAIL_INLINE_BYTES)
		return false;
	lock_mail_acquire(&mailbox->lock);
	/* To oneself nobody else would see that somebody asks for it. */
	bool asked = call->peer == engine->team->rank && mailbox->posted.count > 0;
	bool goes = !asked && !peer->queue &&
		    transport_mail_has_room(peer->to, &peer->out, mailbox->limit);
	if (goes) {
		engine_mailbox_note_thread(mailbox);
		struct mail_envelope envelope = engine_mailbox_envelope(call, record);
		transport_mail_post(peer->to, &peer->out, &envelope, call->send.address, bytes);
		engine_mailbox_note_sent(engine, call->peer,
					 blocks ? MAILBOX_WAITED : MAILBOX_BEGUN);
	}
	lock_mail_release(&mailbox->lock);
	if (goes)
		transport_publish(engine->team, call->peer);
	return goes;
}

static bool fits(const struct engine_call *call, const struct mail_envelope *envelope)
{
	return !envelope->rts && envelope->dtype == (uint8_t)call->dtype &&
	       envelope->count == call->count;
}

/* The oldest message of the source with the tag, if it is one that fits in all else, too. */
static bool find(struct engine *engine, const struct engine_call *call, struct mail_message *out)
	LOCK_REQUIRES(mail)
{
	struct engine_mailbox *mailbox = engine->mailbox;
	struct mailbox_peer *peer = &mailbox->peers[call->peer];
	if (mailbox->posted.count == 0 && peer->unexpected_count == 0) {
		if (!transport_mail_look(peer->from, &peer->in, out))
			return false;
		out->source = call->peer;
		if ((call->tag == MATCH_ANY || call->tag == out->envelope.tag) &&
		    fits(call, &out->envelope))
			return true;
		peer->unexpected[peer->unexpected_count++] = *out;
	}
	/* What has arrived already belongs to those who have asked before. */
	engine_mailbox_arrive(engine, call->peer);
	int place = engine_mailbox_find_unexpected(peer, call->tag);
	if (place < 0 || !fits(call, &peer->unexpected[place].envelope))
		return false;
	engine_mailbox_take_unexpected(peer, place, out);
	return true;
}

bool engine_p2p_receive_short(struct engine *engine, const struct engine_call *call, uint64_t bytes,
			      bool blocks, struct mail_message *out, uint64_t *unsafe,
			      struct wait_word *word)
{
	struct engine_mailbox *mailbox = engine->mailbox;
	struct mailbox_peer *peer = &mailbox->peers[call->peer];
	if (bytes > MAIL_INLINE_BYTES)
		return false;
	lock_mail_acquire(&mailbox->lock);
	bool there = find(engine, call, out);
	if (there) {
		engine_mailbox_note_thread(mailbox);
		*unsafe = blocks ? engine_mailbox_crossed(engine, out) : 0;
		if (bytes)
			memcpy(call->recv.address, transport_mail_payload(peer->from, out, bytes),
			       bytes);
		transport_mail_take(peer->from, &peer->in, out);
	} else {
		engine_mailbox_source_word(engine, call->peer, word);
	}
	lock_mail_release(&mailbox->lock);
	if (there)
		transport_publish(engine->team, call->peer);
	return there;
}
