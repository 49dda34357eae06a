/* SPDX-License-Identifier: BSD-3-Clause
 * Long messages from other hosts: once one is matched, the thread that makes progress on the link
 * fetches its bytes to the receiver's buffer, if they are as many as the envelope said. Those of a
 * send on a stream come later than the message, which is announced, and may be matched, before. */
#include "hosts/hosts_private.h"

void hosts_fetch_fail(struct hosts_relay *relay, unsigned index)
{
	struct mail_rts *rts = &relay->from->rts[index];
	uint64_t pieces = hosts_pieces(relay->target_bytes[index]);
	/* In this order: a reader that sees all pieces copied also sees that the cursor is
	 * closed. */
	transport_mail_close(rts, rts->generation, pieces);
	wait_store(&rts->source_copied, transport_mail_word(rts->generation, pieces));
	hosts_wake(relay->team->transport->hosts);
}

/* The payload of a matched message has arrived: it has no byte. */
static void end_empty(struct hosts_relay *relay, unsigned index)
{
	struct mail_rts *rts = &relay->from->rts[index];
	wait_store(&rts->source_copied, transport_mail_word(rts->generation, 1));
	hosts_wake(relay->team->transport->hosts);
}

void hosts_fetch_wanted(const struct hosts_path *path)
{
	struct hosts_relay *relay = path->relay;
	uint64_t late = atomic_load(&relay->channel.withdrawn) ? 0 : relay->late_received;
	uint64_t left = atomic_exchange(&relay->wanted, 0);
	atomic_fetch_or(&relay->wanted, left & late);
	for (left &= ~late; left; left &= left - 1) {
		unsigned i = (unsigned)__builtin_ctzll(left);
		struct link_message message = relay->offered[i];
		/* Only a message that was late may have no byte. */
		if (!message.handle && relay->target_bytes[i] == 0 &&
		    !(relay->late_received >> i & 1)) {
			end_empty(relay, i);
			continue;
		}
		if (!message.handle) {
			relay->received[i].link_transfer.status = LS_ABORTED;
			hosts_fetch_fail(relay, i);
			continue;
		}
		relay->offered[i].handle = NULL;
		if (message.bytes != relay->target_bytes[i]) {
			hosts_return_offer(path->hosts, path->peer, &message);
			relay->received[i].link_transfer.status = LS_INTERNAL;
			hosts_fetch_fail(relay, i);
			continue;
		}
		relay->received[i] =
			(struct hosts_transfer){.relay = relay,
						.generation = relay->from->rts[i].generation,
						.index = (uint8_t)i,
						.kind = HOSTS_TRANSFER_RECEIVE,
						.is_under_way = true};
		hosts_path_fetch(path, &message, relay->target[i],
				 &relay->received[i].link_transfer);
	}
}

void hosts_fetch_announced(struct hosts_relay *relay, unsigned index, uint64_t bytes,
			   uint32_t generation)
{
	struct mail_rts *rts = &relay->from->rts[index];
	rts->window = 0;
	rts->bytes = bytes;
	rts->by_address = true;
	rts->in_places = false;
	rts->generation = generation;
	atomic_store_explicit(&rts->staged, transport_mail_word(generation, MAIL_CLAIMS),
			      memory_order_relaxed);
	atomic_store_explicit(&rts->cursor, transport_mail_word(generation, 0),
			      memory_order_relaxed);
}

void hosts_fetch_offered(struct hosts *hosts, int peer, struct hosts_relay *relay, unsigned index,
			 const struct link_message *message)
{
	const struct mail_rts *rts = &relay->from->rts[index];
	bool fits = message->bytes == rts->bytes && (message->handle || message->bytes == 0);
	if (!fits || rts->generation != (uint32_t)message->note.words[3]) {
		hosts_return_offer(hosts, peer, message);
		return;
	}
	relay->late_received &= ~(UINT64_C(1) << index);
	relay->offered[index] = *message;
	hosts_mark(hosts, relay->team->area, peer); /* it may be wanted already */
}

bool hosts_fetch_message(struct transport_team *team, int source, unsigned index, void *to,
			 uint64_t bytes)
{
	const struct transport_member *member = &team->members[source];
	if (!member->peer->mirror)
		return false;
	struct hosts_relay *relay = &team->relays[member->world];
	atomic_fetch_add(&relay->from->rts[index].cursor, hosts_pieces(bytes));
	relay->target[index] = to;
	relay->target_bytes[index] = bytes;
	atomic_fetch_or(&relay->wanted, UINT64_C(1) << index);
	return true;
}

ls_status hosts_fetch_status(const struct transport_team *team, int source, unsigned index)
{
	const struct transport_member *member = &team->members[source];
	if (!member->peer->mirror)
		return LS_ABORTED;
	ls_status status = team->relays[member->world].received[index].link_transfer.status;
	return status == LS_PEER_DIED || status == LS_INTERNAL ? status : LS_ABORTED;
}
