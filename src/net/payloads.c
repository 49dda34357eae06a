/* SPDX-License-Identifier: BSD-3-Clause
 * Long payloads over TCP: each pair of ranks has a connection of its own for them, the payload
 * socket. UCX 1.13 would copy each byte once more at either end, in pieces of 36 KiB; here the
 * kernel copies from the source's memory and to the target's. UCX still carries the messages about
 * payloads, so that their order is that of all messages:
 *
 *   source   OFFER (note, bytes) ->   target   arrived
 *            <- FETCH (position)               fetch: the transfer stands in `in`
 *   stands in `out`; then over the payload socket: position, bytes, payload -> into its memory
 *   done            <- GOT (position)             done
 *
 * FETCHes of one target keep their order on the way, so payloads come in the order of `in`. The
 * source awaits GOT because messages that it posts after `done` must not overtake the payload. */
#include "net/peer.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/clock.h"

enum {
	TURN_BYTES = 1 << 20, /* each way, before the next peer has its turn */
	/* Once UCX has found that the connection is broken: how long nothing may come over the
	 * payload socket, which breaks as well, until what is missing counts as lost. */
	LAST_BYTES_MS = 1000,
	LAST_MESSAGES = 1000, /* calls of UCX's progress that read what came before an end */
};

static struct net_payload_head head_of(const struct net_transfer *own)
{
	return (struct net_payload_head){own->header.position, own->bytes};
}

/* ---- lists ---- */

static void append(struct net_payload_list *list, struct link_transfer *transfer)
{
	net_transfer_of(transfer)->next = NULL;
	if (list->last)
		net_transfer_of(list->last)->next = transfer;
	else
		list->first = transfer;
	list->last = transfer;
}

static struct link_transfer *take_first(struct net_payload_list *list)
{
	struct link_transfer *first = list->first;
	list->first = net_transfer_of(first)->next;
	if (!list->first)
		list->last = NULL;
	return first;
}

static void end_all(struct net_payload_list *list, ls_status status)
{
	while (list->first)
		net_end(take_first(list), status);
}

static void begin_moving(struct net_peer *peer)
{
	struct net_payloads *own = &peer->payloads;
	if (own->moves)
		return;
	own->moves = true;
	own->next_moving = peer->net->moving;
	peer->net->moving = peer;
}

/* ---- messages about payloads ---- */

void net_send_due_fetches(struct net_peer *peer)
{
	for (struct link_transfer *t = peer->payloads.in.first; t; t = net_transfer_of(t)->next) {
		struct net_transfer *own = net_transfer_of(t);
		if (!own->is_due || net_peer_is_gone(peer))
			continue;
		ucs_status_ptr_t sent = net_send_answer(peer, t, NET_FETCH);
		if (UCS_PTR_IS_ERR(sent)) {
			net_attend(peer);
			return;
		}
		own->is_due = false;
		own->is_under_way = sent != NULL;
	}
}

void net_ask(struct net_peer *peer, const struct link_message *message, void *to,
	     struct link_transfer *transfer)
{
	struct net_transfer *own = net_transfer_of(transfer);
	own->header.position = (uint32_t)message->position;
	own->memory = to;
	own->bytes = message->bytes;
	own->is_due = true;
	append(&peer->payloads.in, transfer);
	begin_moving(peer);
	net_send_due_fetches(peer);
}

void net_take_fetch(struct net_peer *peer, struct link_transfer *offer)
{
	append(&peer->payloads.out, offer);
	begin_moving(peer);
}

/* ---- bytes ---- */

/* The next bytes of a payload and of its head. */
static struct msghdr next_bytes(const struct net_transfer *own, struct net_payload_head *head,
				struct iovec parts[2])
{
	size_t heads = sizeof *head, at = own->moved;
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	parts[0] = (struct iovec){(unsigned char *)head + (at < heads ? at : heads),
				  at < heads ? heads - at : 0};
	at = at < heads ? 0 : at - heads;
	parts[1] = (struct iovec){own->memory + at, own->bytes - at};
	return message;
}

/* The payload socket is of no use any more. If the process of the peer has ended, UCX's connection
 * has too, and messages may be unread there, which count as having arrived. */
static void lose_socket(struct net_peer *peer)
{
	struct net *net = peer->net;
	net_close_payload_socket(peer);
	for (int i = 0; i < LAST_MESSAGES && net->ucx->ucp_worker_progress(net->worker); i++)
		;
	net_break(peer);
}

static bool can_wait(int error)
{
	return error == EAGAIN || error == EINTR || error == ENOBUFS || error == ENOMEM;
}

/* Sends what the peer has asked for. True: there was something to do. */
static bool move_out(struct net_peer *peer)
{
	struct net_payload_list *out = &peer->payloads.out;
	bool did = false;
	for (uint64_t left = TURN_BYTES; out->first && peer->payloads.fd >= 0 && left;) {
		struct net_transfer *own = net_transfer_of(out->first);
		struct net_payload_head head = head_of(own);
		struct iovec parts[2];
		struct msghdr message = next_bytes(own, &head, parts);
		ssize_t sent = sendmsg(peer->payloads.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent < 0 && can_wait(errno))
			break;
		if (sent < 0) {
			lose_socket(peer);
			return true;
		}
		own->moved += (uint64_t)sent;
		if (net_has_moved(own)) /* GOT may be the next that UCX's progress finds */
			net_keep_offer(peer, take_first(out));
		left -= (uint64_t)sent < left ? (uint64_t)sent : left;
		did = true;
	}
	return did;
}

static bool is_expected(const struct net_peer *peer, const struct net_transfer *own)
{
	struct net_payload_head head = head_of(own);
	return own->moved < sizeof head || memcmp(&head, &peer->payloads.head, sizeof head) == 0;
}

/* Says that a payload has come. True: the transfer is done. */
static bool tell_source(struct net_peer *peer, struct link_transfer *transfer)
{
	struct net_transfer *own = net_transfer_of(transfer);
	if (own->is_under_way)
		return false;
	if (own->is_told || net_peer_is_gone(peer))
		return true;
	ucs_status_ptr_t sent = net_send_answer(peer, transfer, NET_GOT);
	own->is_told = !UCS_PTR_IS_ERR(sent);
	own->is_under_way = UCS_PTR_IS_PTR(sent);
	return own->is_told && !own->is_under_way;
}

/* Receives what this rank has asked for. */
static bool move_in(struct net_peer *peer)
{
	struct net_payload_list *in = &peer->payloads.in;
	bool did = false;
	for (uint64_t left = TURN_BYTES; in->first && peer->payloads.fd >= 0 && left;) {
		struct net_transfer *own = net_transfer_of(in->first);
		struct iovec parts[2];
		struct msghdr message = next_bytes(own, &peer->payloads.head, parts);
		if (net_has_moved(own)) {
			if (!tell_source(peer, in->first))
				break;
			net_end(take_first(in), LS_OK);
			continue;
		}
		ssize_t got = recvmsg(peer->payloads.fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (got < 0 && can_wait(errno))
			break;
		if (got > 0) {
			own->moved += (uint64_t)got;
			left -= (uint64_t)got < left ? (uint64_t)got : left;
		}
		if (got <= 0 || !is_expected(peer, own)) {
			lose_socket(peer);
			return true;
		}
		did = true;
	}
	return did;
}

bool net_move_payloads(struct net *net)
{
	bool did = false;
	struct net_peer *peer = net->moving;
	net->moving = NULL; /* UCX's progress adds others meanwhile */
	while (peer) {
		struct net_peer *next = peer->payloads.next_moving;
		if (!net_peer_is_gone(peer))
			did = move_out(peer) || did;
		if (!net_peer_is_gone(peer))
			did = move_in(peer) || did;
		peer->payloads.moves = false;
		if (peer->payloads.in.first || peer->payloads.out.first)
			begin_moving(peer);
		else
			net_poll_payload_socket(peer, 0);
		peer = next;
	}
	return did;
}

/* ---- the end of a peer ---- */

bool net_await_last_bytes(struct net_peer *peer)
{
	struct net_payloads *own = &peer->payloads;
	if (own->fd < 0 || !own->in.first)
		return false;
	if (own->gives_up_ns == 0) {
		/* The peer may wait here as well: so it learns at once that nothing comes. */
		shutdown(own->fd, SHUT_WR);
		own->gives_up_ns = clock_deadline_ns(LAST_BYTES_MS);
	}
	if (move_in(peer))
		own->gives_up_ns = clock_deadline_ns(LAST_BYTES_MS);
	return own->fd >= 0 && own->in.first && clock_now_ns() < own->gives_up_ns;
}

void net_end_payloads(struct net_peer *peer)
{
	ls_status status = net_peer_end(peer);
	net_close_payload_socket(peer);
	end_all(&peer->payloads.out, status);
	end_all(&peer->payloads.in, status);
	if (!peer->net->has_payload_sockets)
		return;
	while (peer->offers)
		net_end(net_take_offer(peer, peer->offers), status);
}
