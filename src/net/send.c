/* SPDX-License-Identifier: BSD-3-Clause
 * Messages to a peer. UCX reads header and payload until a request is completed, so both are in
 * memory that stays: a slot, the user's transfer, or a record of its own. Each message costs a
 * system call, at the target as well, so short ones are collected in a batch. Longer ones are
 * offered, or, if their transfer is eager, sent at once. */
#include "net/peer.h"

#include <stdlib.h>
#include <string.h>

static struct net_header header_of(struct net_peer *peer, enum net_kind kind, uint32_t position)
{
	const struct net *net = peer->net;
	return (struct net_header){.job = net->options.job,
				   .epoch = net->options.epoch,
				   .source = (uint16_t)net->link.rank,
				   .target = (uint16_t)peer->rank,
				   .kind = (uint8_t)kind,
				   .position = position,
				   .taken = peer->delivered};
}

/* Calls UCX, and returns its answer. NULL: the message has been sent; a request: `done` will be
 * called; or an error. how: EAGER or RNDV, because by itself UCX always sends the first message of
 * an endpoint eagerly. */
static ucs_status_ptr_t send_am(struct net_peer *peer, const struct net_header *header,
				const void *payload, uint64_t bytes, uint32_t how,
				ucp_send_nbx_callback_t done, void *user)
{
	const ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
		.flags = how,
		.cb.send = done,
		.user_data = user,
		.memory_type = UCS_MEMORY_TYPE_HOST};
	unsigned id = header->kind == NET_EAGER ? NET_AM_EAGER : NET_AM;
	ucs_status_ptr_t sent = peer->net->ucx->ucp_am_send_nbx(
		peer->endpoint, id, header, sizeof *header, payload, bytes, &param);
	if (UCS_PTR_IS_ERR(sent)) {
		if (UCS_PTR_STATUS(sent) != UCS_ERR_NO_MEMORY)
			net_break(peer);
		return sent;
	}
	peer->announced = header->taken;
	peer->open_requests += sent != NULL;
	return sent;
}

/* ---- batches of notes and words ---- */

void net_send_init(struct net_peer *peer)
{
	for (int i = NET_ROOM; i-- > 0;) {
		struct net_out *out = &peer->out[i];
		out->peer = peer;
		out->next = peer->free;
		peer->free = out;
	}
	peer->ping.peer = peer->pong.peer = peer->credit.peer = peer;
	peer->payloads.fd = peer->payloads.mark = -1;
}

static void give_slot(struct net_out *out)
{
	out->next = out->peer->free;
	out->peer->free = out;
}

static void on_slot_sent(void *request, ucs_status_t status, void *user)
{
	struct net_out *out = user;
	give_slot(out);
	if (status != UCS_OK)
		net_break(out->peer);
	net_close_request(out->peer, request);
}

static bool has_room(const struct net_peer *peer)
{
	return peer->sent - peer->acknowledged < NET_ROOM;
}

bool net_send_batch(struct net_peer *peer)
{
	struct net_out *out = peer->batch;
	if (!out || net_peer_is_gone(peer))
		return true;
	out->header = header_of(peer, NET_BATCH, peer->sent + 1);
	ucs_status_ptr_t sent = send_am(peer, &out->header, out->items, out->bytes,
					UCP_AM_SEND_FLAG_EAGER, on_slot_sent, out);
	peer->is_push_due = UCS_PTR_IS_ERR(sent) && !net_peer_is_gone(peer);
	if (peer->is_push_due) {
		net_attend(peer);
		return false;
	}
	peer->batch = NULL;
	peer->sent += !UCS_PTR_IS_ERR(sent);
	if (!UCS_PTR_IS_PTR(sent))
		give_slot(out);
	return true;
}

void net_push(struct link *link, int to)
{
	net_send_batch(&net_of(link)->peers[to]);
}

/* The place of the next `bytes` of a batch; NULL: there is no room, or the peer is gone. */
static unsigned char *add_bytes(struct net_peer *peer, uint64_t bytes)
{
	if (peer->batch && peer->batch->bytes + bytes > NET_BATCH_BYTES && !net_send_batch(peer))
		return NULL;
	if (!peer->batch) {
		struct net_out *out = peer->free;
		if (!out || !has_room(peer) || net_peer_is_gone(peer))
			return NULL;
		peer->free = out->next;
		out->bytes = 0;
		peer->batch = out;
	}
	unsigned char *at = peer->batch->items + peer->batch->bytes;
	peer->batch->bytes += bytes;
	return at;
}

static bool add_note(struct net_peer *peer, const struct link_note *note, const void *payload,
		     uint64_t bytes)
{
	uint64_t padded = (bytes + 7) / 8 * 8;
	unsigned char *at = net_peer_is_gone(peer) ? NULL : add_bytes(peer, NET_NOTE_BYTES + padded);
	if (!at)
		return net_peer_is_gone(peer);
	memcpy(at, &bytes, 8);
	memcpy(at + 8, note->words, sizeof note->words);
	memset(at + NET_NOTE_BYTES + padded - 8, 0, padded ? 8 : 0);
	if (bytes)
		memcpy(at + NET_NOTE_BYTES, payload, bytes);
	return true;
}

bool net_store(struct link *link, int to, uint64_t index, uint64_t value)
{
	struct net_peer *peer = &net_of(link)->peers[to];
	const uint64_t words[] = {NET_ITEM_WORD, index, value};
	_Static_assert(sizeof words == NET_WORD_BYTES, "a word");
	unsigned char *at = net_peer_is_gone(peer) ? NULL : add_bytes(peer, NET_WORD_BYTES);
	if (!at)
		return net_peer_is_gone(peer);
	memcpy(at, words, sizeof words);
	return true;
}

/* ---- long payloads ---- */

void net_keep_offer(struct net_peer *peer, struct link_transfer *transfer)
{
	struct net_transfer *own = net_transfer_of(transfer);
	own->prev = NULL;
	own->next = peer->offers;
	if (own->next)
		net_transfer_of(own->next)->prev = transfer;
	peer->offers = transfer;
}

struct link_transfer *net_take_offer(struct net_peer *peer, struct link_transfer *transfer)
{
	struct net_transfer *own = net_transfer_of(transfer);
	if (own->next)
		net_transfer_of(own->next)->prev = own->prev;
	if (own->prev)
		net_transfer_of(own->prev)->next = own->next;
	else
		peer->offers = own->next;
	return transfer;
}

static void on_payload_sent(void *request, ucs_status_t status, void *user)
{
	struct link_transfer *transfer = user;
	struct net_transfer *own = net_transfer_of(transfer);
	struct net_peer *peer = own->peer;
	net_take_offer(peer, transfer);
	if (status != UCS_OK && !net_peer_is_gone(peer))
		net_break(peer);
	if (status == UCS_OK)
		net_end(transfer, own->is_refused ? LS_CANCELLED : LS_OK);
	else
		net_end(transfer, net_peer_end(peer));
	net_close_request(peer, request);
}

void net_end_offer(struct net_peer *peer, struct link_transfer *offer)
{
	struct net_transfer *own = net_transfer_of(offer);
	own->is_answered = true;
	if (!own->is_under_way)
		net_end(net_take_offer(peer, offer), own->is_refused ? LS_CANCELLED : LS_OK);
}

/* An OFFER, FETCH or GOT has been sent. */
static void on_asked(void *request, ucs_status_t status, void *user)
{
	struct net_transfer *own = net_transfer_of(user);
	struct net_peer *peer = own->peer;
	own->is_under_way = false;
	if (status != UCS_OK)
		net_break(peer);
	if (own->is_answered)
		net_end_offer(peer, user);
	net_close_request(peer, request);
}

static bool send_long(struct net_peer *peer, const struct link_note *note, const void *payload,
		      uint64_t bytes, struct link_transfer *transfer)
{
	struct net_transfer *own = net_transfer_of(transfer);
	enum net_kind kind = transfer->is_eager ? NET_EAGER : NET_OFFER;
	if (!net_send_batch(peer)) /* the batch comes first */
		return false;
	*own = (struct net_transfer){.peer = peer, .header = header_of(peer, kind, peer->sent + 1)};
	own->header.note = *note;
	own->memory = (unsigned char *)(uintptr_t)payload; /* is only read */
	own->bytes = bytes;
	bool by_socket = peer->net->has_payload_sockets && !transfer->is_eager;
	bool gone = net_peer_is_gone(peer);
	if (!gone && !has_room(peer))
		return false;
	ucs_status_ptr_t sent = NULL;
	if (!gone && by_socket)
		sent = send_am(peer, &own->header, &own->bytes, sizeof own->bytes,
			       UCP_AM_SEND_FLAG_EAGER, on_asked, transfer);
	else if (!gone)
		sent = send_am(peer, &own->header, payload, bytes,
			       transfer->is_eager ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV,
			       on_payload_sent, transfer);
	/* UCX may find inside the call that the connection is broken, and still return a request.
	 * The request then ends by itself. */
	if (gone || (UCS_PTR_IS_ERR(sent) && net_peer_is_gone(peer))) {
		net_end(transfer, net_peer_end(peer));
		return true;
	}
	if (UCS_PTR_IS_ERR(sent))
		return false;
	peer->sent++;
	own->is_under_way = by_socket && sent;
	if (!sent && !by_socket) { /* UCX has copied the payload */
		net_end(transfer, LS_OK);
		return true;
	}
	net_keep_offer(peer, transfer);
	return true;
}

bool net_post(struct link *link, int to, const struct link_note *note, const void *payload,
	      uint64_t bytes, struct link_transfer *transfer)
{
	struct net_peer *peer = &net_of(link)->peers[to];
	return transfer ? send_long(peer, note, payload, bytes, transfer)
			: add_note(peer, note, payload, bytes);
}

/* ---- control ---- */

static void on_control_sent(void *request, ucs_status_t status, void *user)
{
	struct net_control *control = user;
	struct net_peer *peer = control->peer;
	control->is_under_way = false;
	if (status != UCS_OK)
		net_break(peer);
	if (control->is_due)
		net_attend(peer);
	net_close_request(peer, request);
}

static void send_if_due(struct net_control *control, enum net_kind kind)
{
	struct net_peer *peer = control->peer;
	if (!control->is_due || control->is_under_way || !peer->endpoint || net_peer_is_gone(peer))
		return;
	control->header = header_of(peer, kind, control->number);
	ucs_status_ptr_t sent = send_am(peer, &control->header, NULL, 0, UCP_AM_SEND_FLAG_EAGER,
					on_control_sent, control);
	control->is_due = UCS_PTR_IS_ERR(sent);
	control->is_under_way = UCS_PTR_IS_PTR(sent);
	if (control->is_due)
		net_attend(peer);
	if (kind != NET_PONG || control->is_due || peer->was_answered)
		return;
	peer->was_answered = true;
	peer->net->ready += net_peer_is_ready(peer);
}

void net_send_control(struct net_peer *peer)
{
	send_if_due(&peer->ping, NET_PING);
	send_if_due(&peer->pong, NET_PONG);
	if (peer->delivered - peer->announced >= NET_CREDIT)
		peer->credit.is_due = true;
	send_if_due(&peer->credit, NET_CREDIT_ONLY);
}

ucs_status_ptr_t net_send_answer(struct net_peer *peer, struct link_transfer *transfer,
				 enum net_kind kind)
{
	struct net_transfer *own = net_transfer_of(transfer);
	own->header = header_of(peer, kind, own->header.position);
	return send_am(peer, &own->header, NULL, 0, UCP_AM_SEND_FLAG_EAGER, on_asked, transfer);
}

/* ---- refusals ---- */

struct refusal {
	struct net_header header;
	struct net_peer *peer;
	void *handle;
};

static void end_refusal(struct refusal *refusal)
{
	net_release_offer(refusal->peer, refusal->handle);
	free(refusal);
}

static void on_refusal_sent(void *request, ucs_status_t status, void *user)
{
	struct refusal *refusal = user;
	struct net_peer *peer = refusal->peer;
	if (status != UCS_OK)
		net_break(peer);
	end_refusal(refusal);
	net_close_request(peer, request);
}

void net_send_refusal(struct net_peer *peer, uint32_t position, void *handle)
{
	struct refusal *refusal = malloc(sizeof *refusal);
	if (!refusal) { /* the source must not take the payload for delivered */
		net_break(peer);
		net_release_offer(peer, handle);
		return;
	}
	*refusal = (struct refusal){
		.header = header_of(peer, NET_REFUSE, position), .peer = peer, .handle = handle};
	ucs_status_ptr_t sent = send_am(peer, &refusal->header, NULL, 0, UCP_AM_SEND_FLAG_EAGER,
					on_refusal_sent, refusal);
	if (UCS_PTR_IS_ERR(sent))
		net_break(peer);
	if (!UCS_PTR_IS_PTR(sent))
		end_refusal(refusal);
}

/* ---- the end ---- */

/* A second ping: connections keep the order, so its answer says that the peer has got all that was
 * sent before. This is not UCX's own flush, which over TCP is a put of no bytes. With that, UCX
 * 1.13 ends the process by an assertion (tcp_ep.c, UCT_TCP_EP_FLAG_PUT_TX_WAITING_ACK) if it finds
 * that a peer has gone while it answers the peer's put, and the peer's answer to UCX's own put is
 * next. */
bool net_flush(struct link *link, int to)
{
	struct net_peer *peer = &net_of(link)->peers[to];
	if (net_peer_is_gone(peer) || !peer->endpoint || peer->is_flushed)
		return true;
	if (peer->has_sent_flush || !net_send_batch(peer))
		return false;
	peer->has_sent_flush = true;
	peer->ping.number = NET_FLUSH_PING;
	peer->ping.is_due = true;
	send_if_due(&peer->ping, NET_PING);
	return false;
}
