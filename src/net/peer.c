/* SPDX-License-Identifier: BSD-3-Clause
 * Lists that progress on the link works off: peers that need attention, peers whose connection is
 * broken, and transfers that have ended; and the ends of what UCX keeps for a peer. */
#include "net/peer.h"

bool net_peer_is_valid(const struct net_peer *peer)
{
	bool in_window = true;
	for (uint32_t i = 0; i < NET_ROOM; i++) {
		const struct net_in *in = &peer->ring[i];
		uint32_t ahead = (uint32_t)in->message.position - peer->delivered;
		in_window = in_window && (!in->is_here || (ahead >= 1 && ahead <= NET_ROOM));
	}
	return in_window && peer->sent - peer->acknowledged <= NET_ROOM &&
	       peer->delivered - peer->announced <= NET_ROOM;
}

void net_attend(struct net_peer *peer)
{
	if (peer->attends)
		return;
	peer->attends = true;
	peer->next_attending = peer->net->attention;
	peer->net->attention = peer;
}

void net_break(struct net_peer *peer)
{
	if (net_peer_is_gone(peer))
		return;
	peer->is_broken = true;
	peer->net->breaking++;
	net_attend(peer);
}

void net_break_by(struct net_peer *peer, ucs_status_t status)
{
	peer->broken_by = status;
	net_break(peer);
}

void net_close_request(struct net_peer *peer, void *request)
{
	peer->net->ucx->ucp_request_free(request);
	if (--peer->open_requests == 0 && peer->is_broken)
		net_attend(peer);
}

void net_release_offer(const struct net_peer *peer, void *handle)
{
	const struct net *net = peer->net;
	if (!net->has_payload_sockets)
		net->ucx->ucp_am_data_release(net->worker, handle);
}

void net_end(struct link_transfer *transfer, ls_status status)
{
	struct net *net = net_transfer_of(transfer)->peer->net;
	transfer->status = status;
	net_transfer_of(transfer)->next = NULL;
	*net->ended_end = transfer;
	net->ended_end = &net_transfer_of(transfer)->next;
}

bool net_tell_ended(struct net *net, const struct net_peer *only)
{
	struct link_transfer *ended = net->ended;
	bool did = false;
	net->ended = NULL;
	net->ended_end = &net->ended;
	while (ended) {
		struct link_transfer *transfer = ended;
		struct net_transfer *own = net_transfer_of(transfer);
		ended = own->next;
		if (only && own->peer != only) {
			net_end(transfer, transfer->status);
			continue;
		}
		did = true;
		/* the transfer is the user's again */
		net->link.events.done(net->link.events.context, transfer);
	}
	return did;
}
