/* SPDX-License-Identifier: BSD-3-Clause
 * Fuzz entry: what peers on other hosts send, in any form and order, and what this rank does with
 * the link meanwhile. The input is a list of steps; UCX's functions are replaced. In a quarter of
 * the inputs long payloads pass through sockets, whose other ends the steps read and write.
 * Whatever comes, the positions of each peer keep their equations, and events come in order. At
 * the end every accepted payload has been fetched or released, and every transfer is done, once. */
#include "fuzz.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/peer.h"

enum {
	RANK = 1,
	SIZE = 3,
	JOB = 77,
	EPOCH = 5,
	SENDS = 64,
	OFFERS = 128,
	TRANSFERS = 16,
	LONG_BYTES = 4096
};

static volatile unsigned sum;
static const struct link_note a_note = {.words = {1, 2, 3, 4, 5}};

/* A send that UCX has not completed. */
struct send {
	ucp_send_nbx_callback_t done; /* NULL: this entry is free */
	void *user;
};

static struct {
	struct net *net;
	struct send sends[SENDS];
	bool fails;                         /* the next send fails */
	int accepted, released, fetched;    /* accepted payloads */
	struct link_message offers[OFFERS]; /* offers that were reported and not fetched yet */
	int offer_count, offer_peer[OFFERS];
	struct link_transfer transfers[TRANSFERS];
	bool is_used[TRANSFERS], is_offered[TRANSFERS];
	bool is_lost[SIZE];
	/* By peer: its end of the payload socket. */
	int theirs[SIZE];
	size_t said[SIZE];      /* bytes of the answer to the first fetch that the peer has sent */
	uint32_t said_of[SIZE]; /* the position of that fetch */
} self;

static unsigned char payload[LONG_BYTES], memory[TRANSFERS][LONG_BYTES];

/* ---- UCX ---- */

static ucs_status_ptr_t send_am(ucp_ep_h endpoint, unsigned id, const void *header,
				size_t header_bytes, const void *buffer, size_t bytes,
				const ucp_request_param_t *param)
{
	(void)id, (void)header, (void)buffer, (void)bytes;
	MUST(endpoint && header_bytes == sizeof(struct net_header));
	if (self.fails) {
		self.fails = false;
		return UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE);
	}
	for (int i = 0; i < SENDS; i++)
		if (!self.sends[i].done) {
			self.sends[i] = (struct send){param->cb.send, param->user_data};
			return &self.sends[i];
		}
	return NULL; /* sent at once */
}

static void complete(struct send *send, ucs_status_t status)
{
	struct send it = *send;
	if (it.done) {
		send->done = NULL;
		it.done(send, status, it.user);
	}
}

static void release(ucp_worker_h worker, void *data)
{
	(void)worker, (void)data;
	self.released++;
}

static ucs_status_ptr_t receive(ucp_worker_h worker, void *data, void *to, size_t bytes,
				const ucp_request_param_t *param)
{
	(void)worker, (void)data, (void)to, (void)bytes, (void)param;
	self.fetched++;
	return NULL;
}

static void free_request(void *request)
{
	(void)request;
}

/* Closing a connection by force ends all operations that are in progress. */
static unsigned progress(ucp_worker_h worker)
{
	unsigned did = 0;
	(void)worker;
	for (int i = 0; i < SENDS; i++) {
		did += self.sends[i].done != NULL;
		complete(&self.sends[i], UCS_ERR_CANCELED);
	}
	return did;
}

static unsigned idle(ucp_worker_h worker)
{
	(void)worker;
	return 0;
}

static ucs_status_ptr_t close_endpoint(ucp_ep_h endpoint, const ucp_request_param_t *param)
{
	(void)endpoint, (void)param;
	return NULL;
}

static struct net_library library = {.ucp_am_send_nbx = send_am,
				     .ucp_am_data_release = release,
				     .ucp_am_recv_data_nbx = receive,
				     .ucp_request_free = free_request,
				     .ucp_worker_progress = idle,
				     .ucp_ep_close_nbx = close_endpoint};

/* ---- events ---- */

static void check_peer(int peer)
{
	MUST(peer >= 0 && peer < SIZE && peer != RANK && !self.is_lost[peer]);
	MUST(!self.net->peers[peer].is_cut);
}

static void arrived(void *context, int peer, const struct link_message *message)
{
	(void)context;
	check_peer(peer);
	MUST((uint32_t)message->position == self.net->peers[peer].delivered + 1);
	MUST(message->payload ? message->bytes <= LINK_SHORT_BYTES
			      : !message->bytes || message->handle);
	for (uint64_t i = 0; message->payload && i < message->bytes; i++)
		/* so that a sanitizer sees each byte */
		sum += ((const unsigned char *)message->payload)[i];
	if (!message->handle)
		return;
	MUST(self.offer_count < OFFERS);
	self.offer_peer[self.offer_count] = peer;
	self.offers[self.offer_count++] = *message;
}

static void word(void *context, int peer, uint64_t index, uint64_t value)
{
	(void)context, (void)index, (void)value;
	check_peer(peer);
}

static void done(void *context, struct link_transfer *transfer)
{
	(void)context;
	long index = transfer - self.transfers;
	MUST(index >= 0 && index < TRANSFERS && self.is_used[index]);
	self.is_used[index] = false;
}

static void lost(void *context, int peer)
{
	(void)context;
	check_peer(peer);
	self.is_lost[peer] = true;
}

/* ---- steps ---- */

static void open_sockets(struct net *net)
{
	net->has_payload_sockets = true;
	net->poll_fd = epoll_create1(EPOLL_CLOEXEC);
	MUST(net->poll_fd >= 0);
	for (int q = 0; q < SIZE; q++) {
		int fds[2];
		if (q == RANK)
			continue;
		MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
		net->peers[q].payloads.fd = fds[0];
		self.theirs[q] = fds[1];
	}
}

static void open_net(bool by_socket)
{
	memset(&self, 0, sizeof self);
	library.ucp_worker_progress = idle;
	struct net *net = calloc(1, sizeof *net + SIZE * sizeof net->peers[0]);
	MUST(net);
	self.net = net;
	net->options = (struct net_options){.rank = RANK, .size = SIZE, .job = JOB, .epoch = EPOCH};
	net->link = (struct link){.state = net,
				  .rank = RANK,
				  .size = SIZE,
				  .events = {NULL, arrived, word, done, lost}};
	net->ucx = &library;
	net->ended_end = &net->ended;
	net->is_connected = net->has_begun = true;
	for (int q = 0; q < SIZE; q++) {
		net->peers[q].net = net;
		net->peers[q].rank = q;
		net->peers[q].endpoint = (ucp_ep_h)(uintptr_t)1;
		net_send_init(&net->peers[q]);
	}
	net->poll_fd = -1;
	if (by_socket)
		open_sockets(net);
}

/* Words and notes, as far as there is room, one with a changed length; or bytes of payloads. */
static size_t fill_batch(unsigned char *out, const uint8_t *step)
{
	size_t at = 0;
	for (unsigned i = 0; i < step[4] % 8u; i++) {
		const uint64_t word[] = {NET_ITEM_WORD, 1, 2};
		const uint64_t note[1 + LINK_NOTE_WORDS] = {
			(uint64_t)step[4] * i * 3, 1, 2, 3, 4, 5};
		bool is_word = step[6] >> i & 1;
		size_t bytes = is_word ? sizeof word : sizeof note + (note[0] + 7) / 8 * 8;
		if (at + bytes > NET_BATCH_BYTES)
			break;
		memcpy(out + at, is_word ? word : note, is_word ? sizeof word : sizeof note);
		at += bytes;
	}
	if (step[5] & 8)
		out[step[7] % 64u * 8] ^= step[6];
	return at;
}

/* A message with a valid header, of which some bytes are changed. */
static void bring(const uint8_t *step)
{
	static unsigned char body[NET_BATCH_BYTES + 1];
	int source = step[1] & 1 ? 2 : 0;
	struct net_peer *peer = &self.net->peers[source];
	memset(body, 0xa5, sizeof body);
	struct net_header header = {.job = JOB,
				    .epoch = EPOCH,
				    .source = (uint16_t)source,
				    .target = RANK,
				    .kind = step[1] >> 1 & 7,
				    .position = peer->delivered + 1 + (step[2] & 63),
				    .taken = peer->acknowledged + (step[3] & 63)};
	size_t bytes = header.kind == NET_BATCH   ? fill_batch(body, step)
		       : header.kind == NET_OFFER ? step[4] * 17u
						  : 0;
	bool by_socket = self.net->has_payload_sockets;
	if (header.kind == NET_OFFER && by_socket) {
		memcpy(body, &(uint64_t){bytes}, sizeof(uint64_t));
		bytes = sizeof(uint64_t);
	}
	ucp_am_recv_param_t param = {.recv_attr = header.kind == NET_OFFER && !by_socket
							  ? UCP_AM_RECV_ATTR_FLAG_RNDV
							  : 0};
	if (step[5] & 1)
		((unsigned char *)&header)[step[6] % sizeof header] ^= step[7];
	if (step[5] & 2)
		param.recv_attr ^= UCP_AM_RECV_ATTR_FLAG_RNDV;
	if (step[5] & 4)
		bytes = step[4];
	if (self.offer_count >= OFFERS - NET_ROOM * SIZE) /* so that offers in rings have room */
		return;
	size_t header_bytes = step[5] >> 3 == 31 ? step[6] % sizeof header : sizeof header;
	ucs_status_t status = net_on_message(self.net, &header, header_bytes, body,
					     bytes < sizeof body ? bytes : sizeof body, &param);
	self.accepted += status == UCS_INPROGRESS;
	memset(body, 0, sizeof body); /* the link has copied it, or it is an offer */
}

static void offer(const uint8_t *step)
{
	int i = step[2] % TRANSFERS;
	if (self.is_used[i])
		return;
	memset(&self.transfers[i], 0, sizeof self.transfers[i]);
	self.is_used[i] = true;
	if (!net_post(&self.net->link, step[1] & 1 ? 2 : 0, &a_note, payload, step[3] * 16,
		      &self.transfers[i]))
		self.is_used[i] = false;
}

static void fetch(const uint8_t *step)
{
	if (self.offer_count == 0)
		return;
	int last = --self.offer_count, i = step[2] % TRANSFERS;
	bool wanted = (step[1] & 1) && !self.is_used[i] && self.offers[last].bytes <= LONG_BYTES;
	self.is_used[i] = self.is_used[i] || wanted;
	net_fetch(&self.net->link, self.offer_peer[last], &self.offers[last],
		  wanted ? memory[i] : NULL, wanted ? &self.transfers[i] : NULL);
}

/* The peer reads what comes over the payload socket, and answers its next fetch a bit further. */
static void speak(const uint8_t *step)
{
	static unsigned char said[sizeof(struct net_payload_head) + LONG_BYTES], heard[512];
	int q = step[1] & 1 ? 2 : 0;
	struct link_transfer *first = self.net->peers[q].payloads.in.first;
	(void)recv(self.theirs[q], heard, sizeof heard, MSG_DONTWAIT);
	if (!first)
		return;
	const struct net_transfer *own = net_transfer_of(first);
	struct net_payload_head head = {own->header.position, own->bytes};
	if (self.said_of[q] != own->header.position) {
		self.said_of[q] = own->header.position;
		self.said[q] = 0;
	}
	size_t all = sizeof head + own->bytes, at = self.said[q], bytes = step[4] * 16u;
	memcpy(said, &head, sizeof head);
	memcpy(said + sizeof head, payload, own->bytes);
	if (step[5] & 1) /* nonsense, with which the peer is lost if it is in a head */
		said[step[6] % all] ^= step[7];
	bytes = bytes < all - at ? bytes : all - at;
	ssize_t sent = send(self.theirs[q], said + at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
	self.said[q] += sent > 0 ? (size_t)sent : 0;
	if (step[2] == 63)
		(void)shutdown(self.theirs[q], SHUT_RDWR);
}

static void do_step(const uint8_t *step)
{
	int peer = step[1] & 1 ? 2 : 0;
	switch (step[0] % 16) {
	default:
		bring(step);
		break;
	case 6:
	case 7:
		if (self.net->has_payload_sockets)
			speak(step);
		else
			bring(step);
		break;
	case 8:
	case 9:
		net_advance(&self.net->link);
		break;
	case 10:
		(void)net_post(&self.net->link, peer, &a_note, step, step[2] % 8, NULL);
		if (step[2] & 8)
			net_push(&self.net->link, peer);
		break;
	case 11:
		offer(step);
		break;
	case 12:
		fetch(step);
		break;
	case 13:
		complete(&self.sends[step[1] % SENDS], step[2] % 8 ? UCS_OK : UCS_ERR_CANCELED);
		break;
	case 14:
		(void)net_store(&self.net->link, peer, 1, 2);
		self.fails = true;
		net_push(&self.net->link, peer);
		self.fails = false;
		break;
	case 15:
		if (step[2] % 32 == 0) { /* rarely, because afterwards the peer can do nothing */
			library.ucp_worker_progress = progress;
			net_cut(&self.net->link, peer);
			library.ucp_worker_progress = idle;
		}
		break;
	}
	for (int q = 0; q < SIZE; q++)
		MUST(net_peer_is_valid(&self.net->peers[q]));
}

static void close_net(void)
{
	static const uint8_t unwanted[8] = {12, 0};
	while (self.offer_count > 0)
		fetch(unwanted);
	library.ucp_worker_progress = progress;
	for (int q = 0; q < SIZE; q++)
		net_cut(&self.net->link, q);
	MUST(self.accepted == self.released + self.fetched);
	for (int i = 0; i < TRANSFERS; i++)
		MUST(!self.is_used[i]);
	for (int q = 0; q < SIZE && self.net->has_payload_sockets; q++)
		if (q != RANK)
			close(self.theirs[q]);
	if (self.net->has_payload_sockets)
		close(self.net->poll_fd);
	free(self.net);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	open_net(size > 0 && data[0] >= 0xc0);
	for (size_t at = 0; at + 8 <= size; at += 8)
		do_step(data + at);
	close_net();
	return 0;
}

size_t fuzz_draw(uint64_t *state, uint8_t *data)
{
	size_t size = 8 * (1 + fuzz_random(state) % 100);
	for (size_t i = 0; i < size; i++)
		data[i] = (uint8_t)fuzz_random(state);
	/* most messages are nearly valid, and near the next position */
	for (size_t i = 0; i < size; i += 8) {
		data[i + 2] &= fuzz_random(state) % 4 ? 3 : 63;
		data[i + 5] &= fuzz_random(state) % 4 ? 0xf8 : 0xff;
	}
	return size;
}
