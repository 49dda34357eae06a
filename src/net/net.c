/* SPDX-License-Identifier: BSD-3-Clause
 * One end of the link: progress, and what it does for each peer that needs attention. */
#include "net/peer.h"

/* True: there was something to do. */
static bool attend_peer(struct net_peer *peer)
{
	struct net *net = peer->net;
	bool did = net->is_connected && !peer->is_cut && net_deliver(peer);
	if (peer->request && net->has_begun && !peer->is_cut)
		net_accept(peer);
	if (peer->is_push_due)
		net_send_batch(peer);
	net_send_control(peer);
	net_send_due_fetches(peer);
	if (!peer->is_broken || peer->is_lost || peer->is_cut || !net->is_connected)
		return did;
	if (net_await_last_bytes(peer)) {
		net_attend(peer);
		return true;
	}
	net_close_endpoint(peer);
	if (peer->open_requests)
		return true; /* attends again after the last request */
	net_end_payloads(peer);
	net_discard(peer);
	net_tell_ended(net, NULL);
	peer->is_lost = true;
	net->breaking--;
	net->link.events.lost(net->link.events.context, peer->rank);
	return true;
}

bool net_advance(struct link *link)
{
	struct net *net = net_of(link);
	bool did = net->ucx->ucp_worker_progress(net->worker) != 0;
	did = net_move_payloads(net) || did;
	struct net_peer *peer = net->attention;
	did = net_tell_ended(net, NULL) || did;
	net->attention = NULL;
	while (peer) {
		struct net_peer *next = peer->next_attending;
		peer->attends = false;
		did = attend_peer(peer) || did;
		peer = next;
	}
	return did;
}

bool net_arm(struct link *link, int *fd)
{
	struct net *net = net_of(link);
	/* UCX's descriptor says nothing of the steps in which UCX ends a connection. */
	if (net->attention || net->ended || net->breaking)
		return false;
	/* While nothing moves only UCX has to wake this rank: it is faster with one descriptor. */
	bool both = net->moving || (net->has_payload_sockets && !net->is_connected);
	*fd = both ? net->poll_fd : net->ucx_fd;
	return net_poll_payloads(net) && net->ucx->ucp_worker_arm(net->worker) == UCS_OK;
}

void net_cut(struct link *link, int rank)
{
	struct net *net = net_of(link);
	struct net_peer *peer = &net->peers[rank];
	if (rank == link->rank)
		return;
	net->breaking -= peer->is_broken && !peer->is_lost && !peer->is_cut;
	peer->is_cut = true;
	net_close_endpoint(peer);
	/* These are steps of this process alone. */
	while (peer->open_requests)
		net->ucx->ucp_worker_progress(net->worker);
	net_end_payloads(peer);
	net_discard(peer);
	net_tell_ended(net, peer);
}
