/* SPDX-License-Identifier: BSD-3-Clause
 * Messages from a peer: first into its ring, then in order to the user of the link. */
#include "net/peer.h"

#include <stdlib.h>
#include <string.h>

enum { OFFER_BYTES = 8 }; /* what comes with an OFFER over the payload socket: how long it is */

/* ---- into the ring: called by UCX ---- */

/* Reads the header. Returns the peer that has sent it; NULL: the message is not of this job. */
static struct net_peer *source_of(struct net *net, const void *from, size_t bytes,
				  struct net_header *out)
{
	if (bytes != sizeof *out)
		return NULL;
	memcpy(out, from, sizeof *out);
	if (out->job != net->options.job || out->epoch != net->options.epoch ||
	    out->source >= net->link.size || out->source == net->link.rank ||
	    out->target != net->link.rank)
		return NULL;
	return &net->peers[out->source];
}

/* Whether the message has a form that peers send without NET_AM_EAGER. is_long: UCX has kept the
 * payload at the source. */
static bool is_well_formed(const struct net *net, const struct net_header *header, bool is_long,
			   uint64_t bytes)
{
	if (header->kind >= NET_KINDS || header->kind == NET_EAGER)
		return false;
	if (header->kind == NET_OFFER)
		return is_long != net->has_payload_sockets && (is_long || bytes == OFFER_BYTES);
	return !is_long && bytes <= (header->kind == NET_BATCH ? NET_BATCH_BYTES : 0);
}

static void take_credit(struct net_peer *peer, uint32_t taken)
{
	uint32_t more = taken - peer->acknowledged;
	if (more <= peer->sent - peer->acknowledged) /* else an older message came late */
		peer->acknowledged = taken;
}

/* NULL: there is none. */
static struct link_transfer *find_offer(const struct net_peer *peer, uint32_t position)
{
	struct link_transfer *t = peer->offers;
	while (t && (net_transfer_of(t)->header.position != position ||
		     net_transfer_of(t)->header.kind != NET_OFFER))
		t = net_transfer_of(t)->next;
	return t;
}

/* What the target says of an offer. Without payload sockets UCX ends the transfer. */
static void take_answer(struct net_peer *peer, enum net_kind kind, uint32_t position)
{
	struct link_transfer *offer = find_offer(peer, position);
	struct net_transfer *own = offer ? net_transfer_of(offer) : NULL;
	bool by_socket = peer->net->has_payload_sockets;
	if (!own || own->is_answered)
		return;
	if (kind == NET_REFUSE && own->moved == 0)
		own->is_refused = true;
	if (!by_socket)
		return;
	if (kind == NET_FETCH && own->moved == 0)
		net_take_fetch(peer, net_take_offer(peer, offer));
	else if (own->is_refused || (kind == NET_GOT && net_has_moved(own)))
		net_end_offer(peer, offer);
}

static void take_control(struct net_peer *peer, const struct net_header *header)
{
	if (header->kind == NET_REFUSE || header->kind == NET_FETCH || header->kind == NET_GOT)
		take_answer(peer, (enum net_kind)header->kind, header->position);
	if (header->kind == NET_PONG && !peer->has_answered) {
		peer->has_answered = true;
		peer->net->ready += net_peer_is_ready(peer);
	}
	if (header->kind == NET_PONG && header->position == NET_FLUSH_PING)
		peer->is_flushed = peer->has_sent_flush;
	if (header->kind == NET_PING) {
		peer->pong.number = header->position;
		peer->pong.is_due = true;
		net_attend(peer);
	}
}

/* False: no slot is kept for this message. */
static bool put_into_ring(struct net_peer *peer, const struct net_header *header, void *data,
			  uint64_t bytes)
{
	struct net_in *in = &peer->ring[header->position % NET_ROOM];
	if (header->position - peer->delivered - 1 >= NET_ROOM || in->is_here)
		return false;
	in->is_here = true;
	in->kind = header->kind;
	if (header->kind == NET_OFFER && peer->net->has_payload_sockets)
		memcpy(&bytes, data, OFFER_BYTES);
	in->message = (struct link_message){.note = header->note,
					    .bytes = bytes,
					    .position = header->position,
					    .is_eager = header->kind == NET_EAGER};
	if (header->kind != NET_BATCH) /* of an offer by socket, any but NULL */
		in->message.handle =
			peer->net->has_payload_sockets && header->kind == NET_OFFER ? peer : data;
	if (header->kind == NET_EAGER)
		in->message.payload = data;
	if (header->kind == NET_BATCH && bytes)
		memcpy(in->items, data, bytes);
	net_attend(peer);
	return true;
}

static bool is_dropped(const struct net_peer *peer)
{
	return peer->is_cut || peer->is_lost;
}

ucs_status_t net_on_message(void *context, const void *from, size_t header_bytes, void *data,
			    size_t bytes, const ucp_am_recv_param_t *param)
{
	struct net *net = context;
	bool is_long = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;
	struct net_header header;
	struct net_peer *peer = source_of(net, from, header_bytes, &header);
	if (peer && !is_well_formed(net, &header, is_long, bytes))
		peer = NULL;
	bool taken = false;
	if (peer && !is_dropped(peer)) {
		take_credit(peer, header.taken);
		taken = header.kind > NET_EAGER || put_into_ring(peer, &header, data, bytes);
		if (header.kind > NET_EAGER)
			take_control(peer, &header);
	}
	if (!taken && !(peer && net_peer_is_gone(peer)))
		net->dropped++;
	if (is_long) /* an error ends the source's request */
		return taken ? UCS_INPROGRESS : UCS_ERR_CANCELED;
	return UCS_OK;
}

/* Copies the payload. With UCP_AM_FLAG_PERSISTENT_DATA UCX would keep the payload, but over TCP UCX
 * makes a copy for that as well. */
ucs_status_t net_on_eager(void *context, const void *from, size_t header_bytes, void *data,
			  size_t bytes, const ucp_am_recv_param_t *param)
{
	struct net *net = context;
	struct net_header header;
	struct net_peer *peer = source_of(net, from, header_bytes, &header);
	bool is_offer = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;
	if (peer && (header.kind != NET_EAGER || is_offer || bytes == 0 || bytes > LINK_EAGER_BYTES))
		peer = NULL;
	void *copy = NULL;
	if (peer && !is_dropped(peer)) {
		take_credit(peer, header.taken);
		copy = malloc(bytes);
		if (!copy) /* the source takes the message for delivered */
			net_break(peer);
		else if (!put_into_ring(peer, &header, memcpy(copy, data, bytes), bytes)) {
			free(copy);
			copy = NULL;
		}
	}
	if (!copy && !(peer && net_peer_is_gone(peer)))
		net->dropped++;
	return is_offer ? UCS_ERR_CANCELED : UCS_OK;
}

/* ---- to the user ---- */

/* Tells the user of the item at byte `at`. Returns the bytes of the item; 0: it does not have a
 * form that peers send. */
static uint64_t tell_item(const struct net_peer *peer, const struct net_in *in, uint64_t at)
{
	const struct link_events *events = &peer->net->link.events;
	const unsigned char *item = in->items + at;
	uint64_t left = in->message.bytes - at, words[3];
	struct link_message message = {.position = in->message.position};
	if (left < NET_WORD_BYTES)
		return 0;
	memcpy(words, item, NET_WORD_BYTES);
	if (words[0] == NET_ITEM_WORD) {
		events->word(events->context, peer->rank, words[1], words[2]);
		return NET_WORD_BYTES;
	}
	uint64_t padded = (words[0] + 7) / 8 * 8;
	if (words[0] > LINK_SHORT_BYTES || left < NET_NOTE_BYTES + padded)
		return 0;
	memcpy(&message.note, item + 8, sizeof message.note);
	message.bytes = words[0];
	message.payload = words[0] ? item + NET_NOTE_BYTES : NULL;
	events->arrived(events->context, peer->rank, &message);
	return NET_NOTE_BYTES + padded;
}

static void tell_message(const struct net_peer *peer, const struct net_in *in)
{
	const struct link_events *events = &peer->net->link.events;
	if (in->kind != NET_BATCH) {
		events->arrived(events->context, peer->rank, &in->message);
		return;
	}
	for (uint64_t at = 0, bytes; at < in->message.bytes; at += bytes) {
		bytes = tell_item(peer, in, at);
		if (!bytes) {
			peer->net->dropped++;
			return;
		}
	}
}

bool net_deliver(struct net_peer *peer)
{
	bool did = false;
	for (int i = 0; i < NET_ROOM; i++) {
		struct net_in *in = &peer->ring[(peer->delivered + 1) % NET_ROOM];
		if (!in->is_here)
			break;
		tell_message(peer, in);
		in->is_here = false;
		peer->delivered++;
		did = true;
	}
	return did;
}

void net_discard(struct net_peer *peer)
{
	for (int i = 0; i < NET_ROOM; i++) {
		struct net_in *in = &peer->ring[i];
		if (in->is_here && in->kind == NET_OFFER)
			net_release_offer(peer, in->message.handle);
		if (in->is_here && in->kind == NET_EAGER)
			free(in->message.handle);
		in->is_here = false;
	}
}

/* ---- long payloads ---- */

static void on_payload_fetched(void *request, ucs_status_t status, size_t bytes, void *user)
{
	struct link_transfer *transfer = user;
	struct net_peer *peer = net_transfer_of(transfer)->peer;
	(void)bytes;
	if (status != UCS_OK && !net_peer_is_gone(peer))
		net_break(peer);
	net_end(transfer, status == UCS_OK ? LS_OK : net_peer_end(peer));
	net_close_request(peer, request);
}

static void fetch_offer(struct net_peer *peer, const struct link_message *message, void *to,
			struct link_transfer *transfer)
{
	const struct net *net = peer->net;
	const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
							   UCP_OP_ATTR_FIELD_USER_DATA |
							   UCP_OP_ATTR_FIELD_MEMORY_TYPE,
					   .cb.recv_am = on_payload_fetched,
					   .user_data = transfer,
					   .memory_type = UCS_MEMORY_TYPE_HOST};
	ucs_status_ptr_t got = net->ucx->ucp_am_recv_data_nbx(net->worker, message->handle, to,
							      message->bytes, &param);
	if (UCS_PTR_IS_PTR(got)) {
		peer->open_requests++;
		return;
	}
	if (got)
		net_break(peer);
	net_end(transfer, got ? net_peer_end(peer) : LS_OK);
}

void net_fetch(struct link *link, int from, const struct link_message *message, void *to,
	       struct link_transfer *transfer)
{
	struct net *net = net_of(link);
	struct net_peer *peer = &net->peers[from];
	if (transfer)
		*net_transfer_of(transfer) = (struct net_transfer){.peer = peer};
	if (message->is_eager) {
		if (to && !peer->is_cut)
			memcpy(to, message->handle, message->bytes);
		if (to)
			net_end(transfer, peer->is_cut ? LS_ABORTED : LS_OK);
		free(message->handle);
	} else if (net_peer_is_gone(peer)) {
		net_release_offer(peer, message->handle);
		if (to)
			net_end(transfer, net_peer_end(peer));
	} else if (to && net->has_payload_sockets) {
		net_ask(peer, message, to, transfer);
	} else if (to) {
		fetch_offer(peer, message, to, transfer);
	} else {
		net_send_refusal(peer, (uint32_t)message->position, message->handle);
	}
}
