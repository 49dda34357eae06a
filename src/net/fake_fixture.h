/* SPDX-License-Identifier: BSD-3-Clause
 * For tests: one end of the link without UCX, whose functions are replaced. So a test can bring
 * messages in any order and form, and leave sends incomplete. */
#ifndef NET_FAKE_FIXTURE_H
#define NET_FAKE_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "net/peer.h"

enum {
	FAKE_RANK = 1,
	FAKE_SIZE = 3,
	FAKE_PEER = 0,
	FAKE_JOB = 77,
	FAKE_EPOCH = 5,
	FAKE_TOLD = 200
};

/* What the user of the link was told. */
struct fake {
	struct net *net;
	int told, done, lost;
	uint64_t values[FAKE_TOLD]; /* note.words[0], or the value of a word */
	struct link_message last;
	unsigned char payload[LINK_SHORT_BYTES];
};

/* What UCX was asked for: the calls of the library have no other place to put it. */
static struct {
	struct net_header sent[64];
	size_t bytes[64];
	unsigned char items[NET_BATCH_BYTES]; /* of the last batch */
	int sends, released, freed;
	bool keeps; /* a send returns a request, of which `done` is called by fake_complete */
	ucs_status_t error;      /* a send returns this instead */
	struct net_peer *breaks; /* during a send; NULL: none */
	ucp_send_nbx_callback_t done[64];
	void *user[64];
	char requests[64];
} fake_ucx;

static inline ucs_status_ptr_t fake_send(ucp_ep_h endpoint, unsigned id, const void *header,
					 size_t header_bytes, const void *buffer, size_t bytes,
					 const ucp_request_param_t *param)
{
	(void)endpoint;
	int i = fake_ucx.sends;
	assert_int_equal(header_bytes, sizeof fake_ucx.sent[0]);
	assert_int_equal(id, ((const struct net_header *)header)->kind == NET_EAGER ? NET_AM_EAGER
										    : NET_AM);
	assert_true(i < 64);
	if (fake_ucx.breaks)
		net_break(fake_ucx.breaks);
	if (fake_ucx.error != UCS_OK)
		return UCS_STATUS_PTR(fake_ucx.error);
	memcpy(&fake_ucx.sent[i], header, header_bytes);
	fake_ucx.bytes[i] = bytes;
	if (fake_ucx.sent[i].kind == NET_BATCH && bytes)
		memcpy(fake_ucx.items, buffer, bytes);
	fake_ucx.sends++;
	if (!fake_ucx.keeps)
		return NULL;
	fake_ucx.done[i] = param->cb.send;
	fake_ucx.user[i] = param->user_data;
	return &fake_ucx.requests[i];
}

static inline void fake_complete(int i, ucs_status_t status)
{
	fake_ucx.done[i](&fake_ucx.requests[i], status, fake_ucx.user[i]);
}

static inline void fake_release(ucp_worker_h worker, void *data)
{
	(void)worker, (void)data;
	fake_ucx.released++;
}

static inline void fake_free(void *request)
{
	(void)request;
	fake_ucx.freed++;
}

static inline unsigned fake_progress(ucp_worker_h worker)
{
	(void)worker;
	return 0;
}

static inline ucs_status_t fake_arm(ucp_worker_h worker)
{
	(void)worker;
	return UCS_OK;
}

static inline ucs_status_ptr_t fake_close(ucp_ep_h endpoint, const ucp_request_param_t *param)
{
	(void)endpoint, (void)param;
	return NULL;
}

static const struct net_library fake_library = {.ucp_am_send_nbx = fake_send,
						.ucp_am_data_release = fake_release,
						.ucp_request_free = fake_free,
						.ucp_worker_progress = fake_progress,
						.ucp_worker_arm = fake_arm,
						.ucp_ep_close_nbx = fake_close};

/* ---- events ---- */

static inline void fake_arrived(void *context, int peer, const struct link_message *message)
{
	struct fake *fake = context;
	assert_int_equal(peer, FAKE_PEER);
	assert_true(fake->told < FAKE_TOLD);
	fake->values[fake->told++] = message->note.words[0];
	fake->last = *message;
	if (message->payload)
		memcpy(fake->payload, message->payload, message->bytes);
}

static inline void fake_word(void *context, int peer, uint64_t index, uint64_t value)
{
	struct fake *fake = context;
	assert_int_equal(peer, FAKE_PEER);
	assert_int_equal(index, ~value);
	assert_true(fake->told < FAKE_TOLD);
	fake->values[fake->told++] = value;
}

static inline void fake_done(void *context, struct link_transfer *transfer)
{
	(void)transfer;
	((struct fake *)context)->done++;
}

static inline void fake_lost(void *context, int peer)
{
	assert_int_equal(peer, FAKE_PEER);
	((struct fake *)context)->lost++;
}

/* ---- one end ---- */

static inline int fake_open(void **state)
{
	struct fake *fake = calloc(1, sizeof *fake);
	struct net *net = calloc(1, sizeof *net + FAKE_SIZE * sizeof net->peers[0]);
	assert_true(fake && net);
	memset(&fake_ucx, 0, sizeof fake_ucx);
	net->options = (struct net_options){
		.rank = FAKE_RANK, .size = FAKE_SIZE, .job = FAKE_JOB, .epoch = FAKE_EPOCH};
	net->link = (struct link){.state = net,
				  .rank = FAKE_RANK,
				  .size = FAKE_SIZE,
				  .events = {fake, fake_arrived, fake_word, fake_done, fake_lost}};
	net->ucx = &fake_library;
	net->ended_end = &net->ended;
	net->is_connected = true;
	for (int q = 0; q < FAKE_SIZE; q++) {
		net->peers[q].net = net;
		net->peers[q].rank = q;
		net->peers[q].endpoint = (ucp_ep_h)(uintptr_t)1;
		net_send_init(&net->peers[q]);
	}
	fake->net = net;
	*state = fake;
	return 0;
}

static inline int fake_end(void **state)
{
	struct fake *fake = *state;
	assert_true(net_peer_is_valid(&fake->net->peers[FAKE_PEER]));
	free(fake->net);
	free(fake);
	return 0;
}

/* A header as FAKE_PEER sends it to me. */
static inline struct net_header fake_header(enum net_kind kind, uint32_t position)
{
	struct net_header header = {.job = FAKE_JOB,
				    .epoch = FAKE_EPOCH,
				    .source = FAKE_PEER,
				    .target = FAKE_RANK,
				    .kind = (uint8_t)kind,
				    .position = position};
	header.note.words[0] = kind == NET_OFFER || kind == NET_EAGER ? position : 0;
	return header;
}

/* A word or a note without payload, with this value, at `to`; returns its bytes. */
static inline size_t fake_item(bool is_word, uint64_t value, unsigned char *to)
{
	const uint64_t word[] = {NET_ITEM_WORD, ~value, value};
	const uint64_t note[1 + LINK_NOTE_WORDS] = {0, value};
	memcpy(to, is_word ? word : note, is_word ? sizeof word : sizeof note);
	return is_word ? sizeof word : sizeof note;
}

static inline ucs_status_t fake_bring_eager(struct fake *fake, const struct net_header *header,
					    const void *payload, size_t bytes, bool is_offer)
{
	const ucp_am_recv_param_t param = {.recv_attr = is_offer ? UCP_AM_RECV_ATTR_FLAG_RNDV : 0};
	return net_on_eager(fake->net, header, sizeof *header, (void *)(uintptr_t)payload, bytes,
			    &param);
}

static inline ucs_status_t fake_bring(struct fake *fake, const struct net_header *header,
				      const void *payload, size_t bytes)
{
	const ucp_am_recv_param_t param = {
		.recv_attr = header->kind == NET_OFFER ? UCP_AM_RECV_ATTR_FLAG_RNDV : 0};
	return net_on_message(fake->net, header, sizeof *header, (void *)(uintptr_t)payload, bytes,
			      &param);
}

static inline void fake_advance(struct fake *fake)
{
	while (net_advance(&fake->net->link))
		;
	assert_true(net_peer_is_valid(&fake->net->peers[FAKE_PEER]));
}

static inline void fake_bring_note(struct fake *fake, uint32_t position)
{
	unsigned char item[NET_NOTE_BYTES];
	struct net_header header = fake_header(NET_BATCH, position);
	size_t bytes = fake_item(position % 2 == 0, position, item);
	assert_int_equal(fake_bring(fake, &header, item, bytes), UCS_OK);
}

static inline void fake_expect_told(const struct fake *fake, int count)
{
	assert_int_equal(fake->told, count);
	for (int i = 0; i < count; i++)
		assert_int_equal(fake->values[i], i + 1);
}

#endif
