/* SPDX-License-Identifier: BSD-3-Clause
 * Long payloads, offered and eager, and the end of a peer, without UCX. */
#include "net/fake_fixture.h"

static void offer_all(struct fake *fake, struct link_transfer *transfers, int count)
{
	struct link_note note = {.words = {1}};
	static unsigned char payload[8];
	fake_ucx.keeps = true;
	for (int i = 0; i < count; i++) {
		transfers[i] = (struct link_transfer){.status = LS_PENDING};
		assert_true(net_post(&fake->net->link, FAKE_PEER, &note, payload, 8, &transfers[i]));
	}
}

static void a_refusal_ends_its_own_offer(void **state)
{
	struct fake *fake = *state;
	struct link_transfer transfers[3];
	offer_all(fake, transfers, 3);
	struct net_header header = fake_header(NET_REFUSE, 2);
	fake_bring(fake, &header, NULL, 0);
	header.position = 9; /* of nothing */
	fake_bring(fake, &header, NULL, 0);
	for (int i = 0; i < 3; i++)
		fake_complete(i, UCS_OK);
	assert_int_equal(fake->done, 0);
	fake_advance(fake);
	assert_int_equal(fake->done, 3);
	assert_int_equal(transfers[0].status, LS_OK);
	assert_int_equal(transfers[1].status, LS_CANCELLED);
	assert_int_equal(transfers[2].status, LS_OK);
	assert_null(fake->net->peers[FAKE_PEER].offers);
}

/* The descriptor is released, which tells the source that it is done, only after the refusal. */
static void a_refusal_goes_first(void **state)
{
	struct fake *fake = *state;
	struct net_header header = fake_header(NET_OFFER, 1);
	assert_int_equal(fake_bring(fake, &header, fake, 100), UCS_INPROGRESS);
	fake_advance(fake);
	assert_ptr_equal(fake->last.handle, fake);
	assert_null(fake->last.payload);
	fake_ucx.keeps = true;
	net_fetch(&fake->net->link, FAKE_PEER, &fake->last, NULL, NULL);
	assert_int_equal(fake_ucx.sent[0].kind, NET_REFUSE);
	assert_int_equal(fake_ucx.sent[0].position, 1);
	assert_int_equal(fake_ucx.released, 0);
	fake_complete(0, UCS_OK);
	assert_int_equal(fake_ucx.released, 1);
}

/* The link keeps an eager payload until it is fetched or returned; also when the peer is lost. */
static void an_eager_payload_is_kept(void **state)
{
	struct fake *fake = *state;
	struct link *link = &fake->net->link;
	struct net_header header = fake_header(NET_EAGER, 1);
	struct link_transfer fetched = {.status = LS_PENDING};
	char payload[] = "one", to[4] = "";
	assert_int_equal(fake_bring_eager(fake, &header, payload, 4, false), UCS_OK);
	fake_advance(fake);
	net_fetch(link, FAKE_PEER, &fake->last, NULL, NULL);
	header.position = 3;
	assert_int_equal(fake_bring_eager(fake, &header, payload, 4, false), UCS_OK);
	fake_advance(fake);
	fake_expect_told(fake, 1); /* the third is early */
	fake_bring_note(fake, 2);
	fake_advance(fake);
	assert_int_equal(fake->told, 3);
	assert_true(fake->last.is_eager && fake->last.bytes == 4 &&
		    fake->last.payload == fake->last.handle);
	memset(payload, 0, sizeof payload); /* UCX has it again */
	struct link_message third = fake->last;
	header.position = 5; /* what precedes it never comes */
	assert_int_equal(fake_bring_eager(fake, &header, payload, 4, false), UCS_OK);
	net_break(&fake->net->peers[FAKE_PEER]);
	fake_advance(fake);
	assert_int_equal(fake->lost, 1);
	net_fetch(link, FAKE_PEER, &third, to, &fetched);
	assert_int_equal(fake->done, 0);
	fake_advance(fake);
	assert_true(fake->done == 1 && fetched.status == LS_OK);
	assert_string_equal(to, "one");
	assert_int_equal(fake_ucx.sends, 0); /* no refusal */
}

static void wrong_eager_ones_are_dropped(void **state)
{
	struct fake *fake = *state;
	static const unsigned char payload[LINK_EAGER_BYTES + 1];
	struct net_header header = fake_header(NET_EAGER, 1);
	uint64_t before = net_dropped(&fake->net->link);
	assert_int_equal(fake_bring_eager(fake, &header, payload, 100, true), UCS_ERR_CANCELED);
	assert_int_equal(fake_bring_eager(fake, &header, payload, 0, false), UCS_OK);
	assert_int_equal(fake_bring_eager(fake, &header, payload, sizeof payload, false), UCS_OK);
	assert_int_equal(fake_bring(fake, &header, payload, 100), UCS_OK); /* the other number */
	header.kind = NET_OFFER;
	assert_int_equal(fake_bring_eager(fake, &header, payload, 100, false), UCS_OK);
	header = fake_header(NET_EAGER, NET_ROOM + 1);
	assert_int_equal(fake_bring_eager(fake, &header, payload, 100, false), UCS_OK);
	header = fake_header(NET_EAGER, 1);
	header.epoch++;
	assert_int_equal(fake_bring_eager(fake, &header, payload, 100, false), UCS_OK);
	assert_int_equal(net_dropped(&fake->net->link), before + 7);
	fake_advance(fake);
	fake_expect_told(fake, 0);
}

/* The source is done as soon as UCX has copied the payload; a refusal is of no meaning. */
static void an_eager_source_is_done_early(void **state)
{
	struct fake *fake = *state;
	struct link_transfer sent[2] = {{.status = LS_PENDING, .is_eager = true},
					{.status = LS_PENDING, .is_eager = true}};
	struct link_note note = {.words = {1}};
	assert_true(net_post(&fake->net->link, FAKE_PEER, &note, "12345678", 8, &sent[0]));
	fake_ucx.keeps = true;
	assert_true(net_post(&fake->net->link, FAKE_PEER, &note, "12345678", 8, &sent[1]));
	assert_true(fake_ucx.sent[1].kind == NET_EAGER && fake_ucx.sent[1].position == 2);
	fake_advance(fake);
	assert_true(fake->done == 1 && sent[0].status == LS_OK);
	fake_complete(1, UCS_OK);
	fake_advance(fake);
	assert_true(fake->done == 2 && sent[1].status == LS_OK);
	assert_null(fake->net->peers[FAKE_PEER].offers);
}

/* `lost` comes after the messages and after the ends of all transfers. */
static void lost_is_the_last(void **state)
{
	struct fake *fake = *state;
	struct net_peer *peer = &fake->net->peers[FAKE_PEER];
	struct link_transfer transfers[2];
	offer_all(fake, transfers, 2);
	fake_bring_note(fake, 1);
	struct net_header header = fake_header(NET_OFFER, 3); /* what precedes it never comes */
	assert_int_equal(fake_bring(fake, &header, fake, 100), UCS_INPROGRESS);
	net_break(peer);
	for (int i = 0; i < 10; i++)
		net_advance(&fake->net->link);
	fake_expect_told(fake, 1);
	assert_int_equal(fake->lost, 0);
	int fd;
	assert_false(net_arm(&fake->net->link, &fd));
	fake_complete(0, UCS_ERR_ENDPOINT_TIMEOUT);
	fake_advance(fake);
	assert_int_equal(fake->done, 1);
	assert_int_equal(fake->lost, 0);
	fake_complete(1, UCS_ERR_ENDPOINT_TIMEOUT);
	fake_advance(fake);
	assert_int_equal(fake->done, 2);
	assert_int_equal(fake->lost, 1);
	assert_int_equal(fake_ucx.released, 1);
	assert_int_equal(transfers[0].status, LS_PEER_DIED);
	fake_bring_note(fake, 2); /* nothing comes from it any more */
	fake_advance(fake);
	fake_expect_told(fake, 1);
	net_break(peer);
	fake_advance(fake);
	assert_int_equal(fake->lost, 1);
}

/* UCX finds that the connection is broken while it takes an offer. */
static void an_offer_ends_once(void **state)
{
	struct fake *fake = *state;
	struct link *link = &fake->net->link;
	struct net_peer *peer = &fake->net->peers[FAKE_PEER];
	struct link_transfer transfer = {.status = LS_PENDING};
	struct link_note note = {.words = {1}};
	fake_ucx.keeps = true;
	fake_ucx.breaks = peer;
	assert_true(net_post(link, FAKE_PEER, &note, "x", 1, &transfer));
	fake_advance(fake);
	assert_int_equal(fake->done + fake->lost, 0);
	fake_complete(0, UCS_ERR_CONNECTION_RESET);
	assert_null(peer->offers);
	fake_advance(fake);
	assert_int_equal(fake->done, 1);
	assert_int_equal(fake->lost, 1);
	assert_int_equal(transfer.status, LS_PEER_DIED);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, fake_open, fake_end)
	const struct CMUnitTest tests[] = {
		TEST(a_refusal_ends_its_own_offer),
		TEST(a_refusal_goes_first),
		TEST(an_eager_payload_is_kept),
		TEST(wrong_eager_ones_are_dropped),
		TEST(an_eager_source_is_done_early),
		TEST(lost_is_the_last),
		TEST(an_offer_ends_once),
	};
#undef TEST
	return cmocka_run_group_tests(tests, NULL, NULL);
}
