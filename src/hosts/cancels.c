/* SPDX-License-Identifier: BSD-3-Clause
 * Cancels of long messages to other hosts. Until the payload is offered, the source decides, as on
 * one host. From then on the message may be matched there, so the owner decides. The thread that
 * makes progress on the owner's link does so, whatever the program there does.
 *
 *   source                                     owner
 *   hosts_cancel  ---- note CANCEL ----->  not matched: cancels it, refuses the payload
 *                                              matched: nothing; the payload is fetched
 *   the payload's end: LS_CANCELLED or LS_OK
 *
 * A receive that does not fit its message fails its group, and fetches nothing. After a failure the
 * owner therefore refuses also the payloads of messages that were matched.
 *
 * The slot of a cancelled message stays in the ring until the owner looks for it
 * (transport/mail.h). */
#include "hosts/hosts_private.h"

bool hosts_cancel(struct transport_team *team, int target, unsigned index, uint32_t generation)
{
	const struct transport_member *member = &team->members[target];
	if (!member->peer->mirror || index >= MAIL_SLOTS)
		return false;
	struct hosts_relay *relay = &team->relays[member->world];
	atomic_store(&relay->cancelled[index], generation);
	atomic_fetch_or(&relay->cancels, UINT64_C(1) << index);
	transport_notify(team, target);
	return true;
}

/* Ends a send that no other rank knows of, or knows of any more. */
static void end_send(const struct hosts *hosts, struct mail_rts *rts)
{
	uint32_t generation = rts->generation;
	uint64_t pieces = transport_mail_pieces(rts->bytes);
	wait_store(&rts->owner_copied, transport_mail_word(generation, pieces));
	wait_store(&rts->matched, transport_mail_word(generation, 0));
	hosts_wake(hosts);
}

void hosts_take_offer_back(const struct hosts *hosts, struct mail_rts *rts)
{
	uint64_t gone = transport_mail_word(rts->generation,
					    MAIL_MATCHED | transport_mail_pieces(rts->bytes));
	if (atomic_compare_exchange_strong(&rts->cursor, &gone,
					   transport_mail_word(rts->generation, 0)))
		return;
	/* The group has failed, and a thread of this rank waits for the end of the transfer. */
	atomic_store(&rts->cursor, transport_mail_word(rts->generation, MAIL_CLOSED));
	end_send(hosts, rts);
}

bool hosts_send_cancels(const struct hosts_path *path)
{
	struct hosts_relay *relay = path->relay;
	if (!atomic_load_explicit(&relay->cancels, memory_order_relaxed))
		return true;
	for (uint64_t left = atomic_exchange(&relay->cancels, 0); left; left &= left - 1) {
		unsigned i = (unsigned)__builtin_ctzll(left);
		const struct hosts_transfer *transfer = &relay->sent[i];
		uint32_t generation = atomic_load(&relay->cancelled[i]);
		struct link_note note = {.words = {HOSTS_NOTE_CANCEL,
						   hosts_place_at_target(path, relay->to), i,
						   generation}};
		if (!transfer->is_under_way && transport_mail_cancel(&relay->to->rts[i], generation))
			end_send(path->hosts, &relay->to->rts[i]); /* not offered yet */
		if (!transfer->is_under_way || transfer->generation != generation)
			continue;
		if (!hosts_path_post(path, HOSTS_KEEP_NOT, &note, NULL, 0, NULL)) {
			atomic_fetch_or(&relay->cancels, left);
			return false;
		}
	}
	return true;
}

static void cancel_offered(struct hosts *hosts, int peer, struct hosts_relay *relay, unsigned index,
			   uint32_t generation)
{
	struct link_message *message = &relay->offered[index];
	if (!message->handle || !transport_mail_cancel(&relay->from->rts[index], generation))
		return;
	hosts_return_offer(hosts, peer, message);
	message->handle = NULL;
}

void hosts_cancel_arrived(struct hosts *hosts, int peer, struct hosts_relay *relay, uint64_t index,
			  uint32_t generation)
{
	if (index < MAIL_SLOTS)
		cancel_offered(hosts, peer, relay, (unsigned)index, generation);
}

void hosts_cancel_offered(struct hosts *hosts, int peer, struct hosts_relay *relay)
{
	for (unsigned i = 0; i < MAIL_SLOTS; i++) {
		cancel_offered(hosts, peer, relay, i, relay->from->rts[i].generation);
		/* Matched. A receive that asks for it from now on fails: hosts_fetch_wanted. */
		hosts_return_offer(hosts, peer, &relay->offered[i]);
		relay->offered[i].handle = NULL;
	}
}
