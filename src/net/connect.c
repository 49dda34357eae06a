/* SPDX-License-Identifier: BSD-3-Clause
 * Connections: each rank listens, and connects to all ranks above it. So a pair has one connection,
 * full duplex; closing it breaks both ends. Endpoints made from the addresses of workers would
 * share a connection whose receiving half survives: after a cut the peer would continue to write
 * into memory here, and would not notice the cut. */
#include "net/peer.h"

#include "base/clock.h"
#include "base/messages.h"
#include "base/open_limit.h"

/* UCX does not tell reasons apart. */
static void on_error(void *user, ucp_ep_h endpoint, ucs_status_t status)
{
	(void)endpoint;
	net_break_by(user, status);
}

/* Completes the parameters, and makes the endpoint. */
static ucs_status_t make_endpoint(struct net_peer *peer, ucp_ep_params_t *params)
{
	const struct net *net = peer->net;
	params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
	params->err_mode = UCP_ERR_HANDLING_MODE_PEER;
	params->err_handler.cb = on_error;
	params->err_handler.arg = peer;
	ucs_status_t status = net->ucx->ucp_ep_create(net->worker, params, &peer->endpoint);
	if (status != UCS_OK) {
		peer->endpoint = NULL;
		return status;
	}
	peer->ping.is_due = true;
	net_attend(peer);
	return UCS_OK;
}

/* ---- to the ranks above ---- */

static ls_status connect_peer(struct net_peer *peer)
{
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
		.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER | UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID,
		.sockaddr = {.addr = (const struct sockaddr *)(const void *)peer->address.data,
			     .addrlen = (socklen_t)peer->address.bytes}};
	const struct net *net = peer->net;
	/* The peer takes the address that it sees for the one at which UCX listens here. */
	if (net->device[0]) {
		params.field_mask |= UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR;
		params.local_sockaddr.addr = (const struct sockaddr *)(const void *)net->host.data;
		params.local_sockaddr.addrlen = (socklen_t)net->host.bytes;
	}
	ucs_status_t status = make_endpoint(peer, &params);
	if (status == UCS_OK)
		return LS_OK;
	if (open_limit_is_reached())
		return net_say_limit(net);
	MESSAGE_SAY(MESSAGE_NET_PEER, peer->rank, peer->net->ucx->ucs_status_string(status));
	return status == UCS_ERR_NO_MEMORY ? LS_OUT_OF_MEMORY : LS_NO_MASTER;
}

/* ---- from the ranks below ---- */

void net_on_request(ucp_conn_request_h request, void *context)
{
	struct net *net = context;
	ucp_conn_request_attr_t attributes = {.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID};
	if (net->ucx->ucp_conn_request_query(request, &attributes) == UCS_OK) {
		int rank = (int)(attributes.client_id & UINT16_MAX);
		struct net_peer *peer = &net->peers[rank < net->link.rank ? rank : 0];
		if (rank < net->link.rank && attributes.client_id == net_client_id(net, rank) &&
		    !peer->endpoint && !peer->request && !net_peer_is_gone(peer)) {
			peer->request = request;
			net_attend(peer);
			return;
		}
	}
	net->dropped++;
	net->ucx->ucp_listener_reject(net->listener, request);
}

void net_accept(struct net_peer *peer)
{
	ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST,
				  .conn_request = peer->request};
	peer->request = NULL;
	ucs_status_t status = make_endpoint(peer, &params);
	if (status != UCS_OK)
		net_break_by(peer, status);
}

void net_stop_listening(struct net *net)
{
	if (!net->listener)
		return;
	net_forget_accepted(net);
	for (int q = 0; q < net->link.size; q++)
		if (net->peers[q].request)
			net->ucx->ucp_listener_reject(net->listener, net->peers[q].request);
	net->ucx->ucp_listener_destroy(net->listener);
	net->listener = NULL;
}

/* ---- all ---- */

static ls_status begin_connecting(struct net *net)
{
	ls_status status = LS_OK;
	net->has_begun = true;
	for (int q = 0; q < net->link.size && status == LS_OK; q++) {
		struct net_peer *peer = &net->peers[q];
		peer->is_cut = peer->address.bytes == 0;
		if (!peer->is_cut && q > net->link.rank)
			status = connect_peer(peer);
		if (!peer->is_cut && q > net->link.rank && status == LS_OK &&
		    net->has_payload_sockets)
			status = net_connect_payload_socket(peer);
		net_attend(peer); /* a rank that came early waits to be accepted */
	}
	return status;
}

/* The peer's process may have ended, or have closed its connections because of another rank. */
static ls_status judge_break(const struct net_peer *peer)
{
	struct net *net = peer->net;
	if (net->fails_ns == 0)
		net->fails_ns = clock_deadline_ns(net->options.patience_ms);
	if (clock_now_ns() < net->fails_ns)
		return LS_OK;
	if (open_limit_is_reached())
		return net_say_limit(net);
	MESSAGE_SAY(MESSAGE_NET_BROKEN, peer->rank, net->ucx->ucs_status_string(peer->broken_by));
	return peer->has_answered ? LS_PEER_DIED : LS_NO_MASTER;
}

ls_status net_connect(struct link *link, bool *done)
{
	struct net *net = net_of(link);
	*done = false;
	ls_status status = net->has_begun ? LS_OK : begin_connecting(net);
	if (status != LS_OK)
		return status;
	for (int q = 0; q < link->size && net->breaking; q++) {
		/* A peer that was ready counts as lost as soon as all are connected. */
		if (net->peers[q].is_broken && !net_peer_is_ready(&net->peers[q]))
			return judge_break(&net->peers[q]);
	}
	status = net_connect_payloads(net);
	if (status != LS_OK)
		return status;
	*done = net->ready == net->addressed;
	if (!*done || net->is_connected)
		return LS_OK;
	net->is_connected = true;
	net_stop_listening(net);
	net_stop_listening_for_payloads(net);
	net_guard_sockets(net);
	net_stop_hearing(net);
	for (int q = 0; q < link->size; q++)
		net_attend(&net->peers[q]); /* peers that were ready first may have sent */
	return LS_OK;
}

void net_close_endpoint(struct net_peer *peer)
{
	const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
					   .flags = UCP_EP_CLOSE_FLAG_FORCE};
	const struct net_library *ucx = peer->net->ucx;
	if (!peer->endpoint)
		return;
	ucs_status_ptr_t closed = ucx->ucp_ep_close_nbx(peer->endpoint, &param);
	if (UCS_PTR_IS_PTR(closed))
		ucx->ucp_request_free(closed);
	peer->endpoint = NULL;
}
