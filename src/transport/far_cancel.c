/* SPDX-License-Identifier: BSD-3-Clause
 * Cancels of long messages to other hosts. Until the payload is offered, the source decides, as on
 * one host. From then on the message may be matched there, so the owner decides; its thread that
 * drives the link does so, whatever the rank itself does.
 *
 *   source                                     owner
 *   transport_cancel  ---- note CANCEL ----->  not matched: cancels it, refuses the payload
 *                                              matched: nothing; the payload is fetched
 *   the payload's end: LS_CANCELLED or LS_OK
 *
 * The slot of a cancelled message stays in the ring until the owner looks for it (mail.h). */
#include "transport/relay.h"

bool transport_cancel(struct transport_team *team, int target, unsigned index, uint32_t generation)
{
	const struct transport_member *member = &team->members[target];
	if (!member->peer->remote || index >= MAIL_SLOTS)
		return false;
	struct transport_relay *relay = &team->relays[member->world];
	atomic_store(&relay->cancelled[index], generation);
	atomic_fetch_or(&relay->cancels, UINT64_C(1) << index);
	transport_notify(team, target);
	return true;
}

bool transport_send_cancels(const struct transport_path *path)
{
	struct transport_relay *relay = path->relay;
	if (!atomic_load_explicit(&relay->cancels, memory_order_relaxed))
		return true;
	for (uint64_t left = atomic_exchange(&relay->cancels, 0); left; left &= left - 1) {
		unsigned i = (unsigned)__builtin_ctzll(left);
		const struct transport_carried *carried = &relay->sent[i];
		uint32_t generation = atomic_load(&relay->cancelled[i]);
		struct link_note note = {
			.words = {TRANSPORT_NOTE_CANCEL,
				  transport_place(path->mirror, relay->to, TRANSPORT_OF_TARGET), i,
				  generation}};
		if (!carried->is_under_way || carried->generation != generation)
			continue; /* it has ended, or its payload is not offered yet */
		if (!transport_path_post(path, &note, NULL, 0, NULL)) {
			atomic_fetch_or(&relay->cancels, left);
			return false;
		}
	}
	return true;
}

static void cancel(struct transport_hosts *hosts, int peer, struct transport_relay *relay,
		   unsigned index, uint32_t generation)
{
	struct link_message *message = &relay->offered[index];
	if (!message->handle || !transport_mail_cancel(&relay->from->rts[index], generation))
		return;
	transport_mirror_return(hosts, peer, message);
	message->handle = NULL;
}

void transport_cancel_arrived(struct transport_hosts *hosts, int peer,
			      struct transport_relay *relay, uint64_t index, uint32_t generation)
{
	if (index < MAIL_SLOTS)
		cancel(hosts, peer, relay, (unsigned)index, generation);
}

void transport_cancel_offered(struct transport_hosts *hosts, int peer, struct transport_relay *relay)
{
	for (unsigned i = 0; i < MAIL_SLOTS; i++)
		cancel(hosts, peer, relay, i, relay->from->rts[i].generation);
}
