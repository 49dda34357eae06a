/* SPDX-License-Identifier: BSD-3-Clause
 * Order, credits and foreign messages, without UCX. */
#include "net/fake_fixture.h"

/* A batch of its own. */
static bool send_word(struct fake *fake)
{
	struct link *link = &fake->net->link;
	bool goes = net_store(link, FAKE_PEER, 1, 2);
	net_push(link, FAKE_PEER);
	return goes;
}

/* ---- order and credits ---- */

static void early_ones_wait(void **state)
{
	struct fake *fake = *state;
	for (uint32_t position = NET_ROOM; position > 1; position--) {
		fake_bring_note(fake, position);
		fake_advance(fake);
	}
	fake_expect_told(fake, 0);
	fake_bring_note(fake, 1);
	fake_advance(fake);
	fake_expect_told(fake, NET_ROOM);
	assert_int_equal(fake->net->dropped, 0);
}

/* The source is told of deliveries in time to go on, and not of each. */
static void credits_return(void **state)
{
	struct fake *fake = *state;
	for (uint32_t position = 1; position <= 4 * NET_CREDIT; position++) {
		fake_bring_note(fake, position);
		fake_advance(fake);
		assert_int_equal(fake_ucx.sends, position / NET_CREDIT);
	}
	for (int i = 0; i < fake_ucx.sends; i++) {
		assert_int_equal(fake_ucx.sent[i].kind, NET_CREDIT_ONLY);
		assert_int_equal(fake_ucx.sent[i].taken, (i + 1) * NET_CREDIT);
	}
	/* They travel with whatever else is sent. */
	struct link_note note = {.words = {1}};
	fake_bring_note(fake, 4 * NET_CREDIT + 1);
	fake_advance(fake);
	assert_true(net_post(&fake->net->link, FAKE_PEER, &note, NULL, 0, NULL));
	net_push(&fake->net->link, FAKE_PEER);
	assert_int_equal(fake_ucx.sent[fake_ucx.sends - 1].taken, 4 * NET_CREDIT + 1);
}

/* A credit that cannot be sent yet is sent later, with the newest value. */
static void a_credit_waits(void **state)
{
	struct fake *fake = *state;
	fake_ucx.keeps = true;
	for (uint32_t position = 1; position <= 3 * NET_CREDIT; position++) {
		fake_bring_note(fake, position);
		fake_advance(fake);
	}
	assert_int_equal(fake_ucx.sends, 1);
	assert_int_equal(fake_ucx.sent[0].taken, NET_CREDIT);
	fake_complete(0, UCS_OK);
	fake_advance(fake);
	assert_int_equal(fake_ucx.sends, 2);
	assert_int_equal(fake_ucx.sent[1].taken, 3 * NET_CREDIT);
	fake_complete(1, UCS_OK);
}

static void room_is_what_the_target_took(void **state)
{
	struct fake *fake = *state;
	struct link *link = &fake->net->link;
	struct link_note note = {.words = {1}};
	for (int i = 0; i < NET_ROOM; i++)
		assert_true(send_word(fake));
	assert_false(net_store(link, FAKE_PEER, 1, 2));
	assert_false(net_post(link, FAKE_PEER, &note, NULL, 0, NULL));
	struct net_header header = fake_header(NET_CREDIT_ONLY, 0);
	header.taken = NET_ROOM + 1; /* more than was sent */
	fake_bring(fake, &header, NULL, 0);
	assert_false(net_store(link, FAKE_PEER, 1, 2));
	header.taken = 3;
	fake_bring(fake, &header, NULL, 0);
	header.taken = 2; /* an older one, late */
	fake_bring(fake, &header, NULL, 0);
	for (int i = 0; i < 3; i++) {
		assert_true(net_post(link, FAKE_PEER, &note, NULL, 0, NULL));
		net_push(link, FAKE_PEER);
	}
	assert_false(net_post(link, FAKE_PEER, &note, NULL, 0, NULL));
	assert_int_equal(fake_ucx.sent[fake_ucx.sends - 1].position, NET_ROOM + 3);
}

/* Positions wrap. */
static void after_four_thousand_million(void **state)
{
	struct fake *fake = *state;
	struct net_peer *peer = &fake->net->peers[FAKE_PEER];
	peer->delivered = peer->announced = peer->sent = peer->acknowledged = UINT32_MAX - 2;
	fake_bring_note(fake, 1);
	fake_bring_note(fake, UINT32_MAX);
	fake_bring_note(fake, UINT32_MAX - 1);
	fake_bring_note(fake, 0);
	fake_advance(fake);
	assert_int_equal(fake->told, 4);
	assert_int_equal(fake->values[3], 1);
	for (int i = 0; i < NET_ROOM; i++)
		assert_true(send_word(fake));
	assert_false(send_word(fake));
	assert_int_equal(fake->net->dropped, 0);
}

/* Its memory is UCX's until the send is complete. */
static void a_slot_stays_until_it_is_sent(void **state)
{
	struct fake *fake = *state;
	fake_ucx.keeps = true;
	for (int i = 0; i < NET_ROOM; i++)
		assert_true(send_word(fake));
	struct net_header header = fake_header(NET_CREDIT_ONLY, 0);
	header.taken = NET_ROOM;
	fake_bring(fake, &header, NULL, 0);
	assert_false(send_word(fake));
	fake_complete(7, UCS_OK);
	assert_true(send_word(fake));
	assert_false(send_word(fake));
	for (int i = 0; i <= NET_ROOM; i++)
		if (i != 7)
			fake_complete(i, UCS_OK);
	assert_int_equal(fake->net->peers[FAKE_PEER].open_requests, 0);
	assert_int_equal(fake_ucx.freed, NET_ROOM + 1);
}

/* UCX may be out of memory for a moment: what the link has taken it sends later by itself, and
 * whatever it has not taken can be tried again. */
static void without_memory(void **state)
{
	struct fake *fake = *state;
	struct link *link = &fake->net->link;
	struct link_note note = {.words = {1}};
	struct link_transfer transfer = {.status = LS_PENDING};
	unsigned char payload[8] = {0};
	fake_ucx.error = UCS_ERR_NO_MEMORY;
	assert_false(net_post(link, FAKE_PEER, &note, payload, 8, &transfer));
	assert_true(send_word(fake));
	assert_false(net_post(link, FAKE_PEER, &note, payload, 8, &transfer)); /* it comes later */
	assert_false(net_flush(link, FAKE_PEER));
	int fd;
	assert_false(net_arm(link, &fd));
	net_advance(link);
	assert_int_equal(fake_ucx.sends, 0);
	fake_ucx.error = UCS_OK;
	fake_advance(fake);
	assert_int_equal(fake_ucx.sends, 1);
	assert_int_equal(fake_ucx.sent[0].position, 1);
	assert_true(send_word(fake));
	assert_int_equal(fake_ucx.sent[1].position, 2);
	assert_int_equal(fake->done + fake->lost, 0);
}

/* The answer of the peer says that it has got all that was sent before. */
static void a_flush_is_a_ping(void **state)
{
	struct fake *fake = *state;
	struct link *link = &fake->net->link;
	assert_true(net_store(link, FAKE_PEER, ~UINT64_C(1), 1));
	assert_false(net_flush(link, FAKE_PEER));
	assert_false(net_flush(link, FAKE_PEER));
	fake_advance(fake);
	assert_int_equal(fake_ucx.sends, 2);
	assert_int_equal(fake_ucx.sent[0].kind, NET_BATCH);
	assert_int_equal(fake_ucx.sent[1].kind, NET_PING);
	assert_int_equal(fake_ucx.sent[1].position, NET_FLUSH_PING);
	struct net_header pong = fake_header(NET_PONG, 0); /* of connect */
	fake_bring(fake, &pong, NULL, 0);
	assert_false(net_flush(link, FAKE_PEER));
	pong.position = NET_FLUSH_PING;
	fake_bring(fake, &pong, NULL, 0);
	assert_true(net_flush(link, FAKE_PEER));
	struct net_header ping = fake_header(NET_PING, NET_FLUSH_PING);
	fake_bring(fake, &ping, NULL, 0);
	fake_advance(fake);
	assert_int_equal(fake_ucx.sends, 3);
	assert_int_equal(fake_ucx.sent[2].kind, NET_PONG);
	assert_int_equal(fake_ucx.sent[2].position, NET_FLUSH_PING);
}

/* Nobody answers for a peer that is gone; nor does it count as flushed if nobody asked. */
static void a_flush_ends_with_its_peer(void **state)
{
	struct fake *fake = *state;
	struct link *link = &fake->net->link;
	struct net_header pong = fake_header(NET_PONG, NET_FLUSH_PING);
	fake_bring(fake, &pong, NULL, 0);
	assert_false(net_flush(link, FAKE_PEER));
	net_break(&fake->net->peers[FAKE_PEER]);
	assert_true(net_flush(link, FAKE_PEER));
}

/* ---- batches ---- */

/* Posts and stores that follow each other go in one message, in their order. */
static void several_go_together(void **state)
{
	struct fake *fake = *state;
	struct link *link = &fake->net->link;
	struct link_note note = {.words = {2}};
	unsigned char payload[LINK_SHORT_BYTES];
	for (size_t i = 0; i < sizeof payload; i++)
		payload[i] = (unsigned char)(i * 7);
	assert_true(net_store(link, FAKE_PEER, ~UINT64_C(1), 1));
	assert_true(net_post(link, FAKE_PEER, &note, payload, 13, NULL));
	assert_true(net_store(link, FAKE_PEER, ~UINT64_C(3), 3));
	note.words[0] = 4;
	assert_true(net_post(link, FAKE_PEER, &note, NULL, 0, NULL));
	assert_int_equal(fake_ucx.sends, 0);
	net_push(link, FAKE_PEER);
	net_push(link, FAKE_PEER);
	assert_int_equal(fake_ucx.sends, 1);
	assert_int_equal(fake_ucx.bytes[0], 2 * NET_WORD_BYTES + 2 * NET_NOTE_BYTES + 16);
	struct net_header header = fake_header(NET_BATCH, 1);
	fake_bring(fake, &header, fake_ucx.items, fake_ucx.bytes[0]); /* as if from the peer */
	fake_advance(fake);
	fake_expect_told(fake, 4);
	assert_memory_equal(fake->payload, payload, 13);
	/* A batch that is full goes by itself. */
	uint64_t taken = 0;
	for (; fake_ucx.sends == 1; taken++)
		assert_true(net_store(link, FAKE_PEER, 1, 2));
	assert_int_equal(taken - 1, NET_BATCH_BYTES / NET_WORD_BYTES);
	assert_int_equal(fake_ucx.bytes[1], (taken - 1) * NET_WORD_BYTES);
	/* What was kept back goes before an offer, but not because the thread sleeps. */
	struct link_transfer transfer = {.status = LS_PENDING};
	fake_ucx.keeps = true;
	assert_true(net_post(link, FAKE_PEER, &note, payload, sizeof payload, &transfer));
	assert_int_equal(fake_ucx.sends, 4);
	assert_true(fake_ucx.sent[2].kind == NET_BATCH && fake_ucx.sent[2].position == 3);
	assert_true(fake_ucx.sent[3].kind == NET_OFFER && fake_ucx.sent[3].position == 4);
	assert_true(net_store(link, FAKE_PEER, 1, 2));
	int fd;
	assert_true(net_arm(link, &fd));
	assert_int_equal(fake_ucx.sends, 4);
	net_push(link, FAKE_PEER);
	assert_int_equal(fake_ucx.sends, 5);
	for (int i = 2; i < 5; i++)
		fake_complete(i, UCS_OK);
}

/* Items that no peer sends: what comes before them in the batch counts. */
static void wrong_items_are_dropped(void **state)
{
	struct fake *fake = *state;
	static const struct {
		uint64_t first;
		size_t bytes;
	} wrong[] = {{NET_ITEM_WORD, NET_WORD_BYTES - 1},
		     {NET_ITEM_WORD, 8},
		     {0, NET_NOTE_BYTES - 8},
		     {1, NET_NOTE_BYTES},
		     {LINK_SHORT_BYTES + 1, 5500},
		     {UINT64_MAX - 1, 5500},
		     {LINK_SHORT_BYTES, 48 + 4096 - 8}};
	unsigned char items[NET_BATCH_BYTES] = {0};
	int count = (int)(sizeof wrong / sizeof wrong[0]);
	for (int i = 0; i < count; i++) {
		struct net_header header = fake_header(NET_BATCH, (uint32_t)i + 1);
		size_t at = fake_item(i % 2, (uint64_t)i + 1, items);
		memcpy(items + at, &wrong[i].first, 8);
		fake_bring(fake, &header, items, at + wrong[i].bytes);
		fake_advance(fake);
		assert_int_equal(net_dropped(&fake->net->link), i + 1);
	}
	fake_expect_told(fake, count);
}

/* ---- foreign messages ---- */

/* Each with one thing wrong. */
static void what_is_not_ours_is_dropped(void **state)
{
	struct fake *fake = *state;
	static const unsigned char long_one[NET_BATCH_BYTES + 1];
	enum { CASES = 12 };
	for (int wrong = 0; wrong < CASES; wrong++) {
		struct net_header header = fake_header(NET_BATCH, 1);
		size_t bytes = 0;
		header.job += wrong == 0;
		header.epoch += wrong == 1;
		header.epoch -= wrong == 2;
		header.source = wrong == 3 ? FAKE_RANK : wrong == 4 ? FAKE_SIZE : header.source;
		header.target = wrong == 5 ? FAKE_PEER : header.target;
		header.kind = wrong == 6 ? NET_KINDS : header.kind;
		bytes = wrong == 7 ? sizeof long_one : 0;
		header.position = wrong == 8 ? 0 : wrong == 9 ? NET_ROOM + 1 : header.position;
		if (wrong == 10) {
			header.kind = NET_CREDIT_ONLY;
			bytes = 1;
		}
		if (wrong == 11) {
			header.kind = NET_PING;
			bytes = 1;
		}
		assert_int_equal(fake_bring(fake, &header, long_one, bytes), UCS_OK);
		assert_int_equal(net_dropped(&fake->net->link), wrong + 1);
	}
	struct net_header offer = fake_header(NET_OFFER, 1);
	offer.epoch++;
	assert_true(UCS_STATUS_IS_ERR(fake_bring(fake, &offer, long_one, 100)));
	const ucp_am_recv_param_t plain = {.recv_attr = 0};
	offer.epoch--;
	net_on_message(fake->net, &offer, sizeof offer, (void *)(uintptr_t)long_one, 100, &plain);
	net_on_message(fake->net, &offer, sizeof offer - 1, NULL, 0, &plain);
	fake_bring_note(fake, 1);
	fake_bring_note(fake, 1); /* twice */
	assert_int_equal(net_dropped(&fake->net->link), CASES + 4);
	fake_advance(fake);
	fake_bring_note(fake, 1);
	assert_int_equal(net_dropped(&fake->net->link), CASES + 5);
	fake_advance(fake);
	fake_expect_told(fake, 1);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, fake_open, fake_end)
	const struct CMUnitTest tests[] = {
		TEST(early_ones_wait),
		TEST(credits_return),
		TEST(a_credit_waits),
		TEST(room_is_what_the_target_took),
		TEST(after_four_thousand_million),
		TEST(a_slot_stays_until_it_is_sent),
		TEST(without_memory),
		TEST(a_flush_is_a_ping),
		TEST(a_flush_ends_with_its_peer),
		TEST(several_go_together),
		TEST(wrong_items_are_dropped),
		TEST(what_is_not_ours_is_dropped),
	};
#undef TEST
	return cmocka_run_group_tests(tests, NULL, NULL);
}
