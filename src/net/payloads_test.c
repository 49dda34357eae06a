/* SPDX-License-Identifier: BSD-3-Clause
 * Payloads over a payload socket, without UCX: the peer is the other end of a pair of sockets. */
#include "net/fake_fixture.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LONG_BYTES = 1 << 20, SHORT_BYTES = 100 };

static unsigned char payload[LONG_BYTES], got[sizeof(struct net_payload_head) + LONG_BYTES];
static int theirs; /* the peer's end */

static int open_with_socket(void **state)
{
	int fds[2];
	fake_open(state);
	struct net *net = ((struct fake *)*state)->net;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	net->has_payload_sockets = true;
	net->ucx_fd = -1;
	net->poll_fd = epoll_create1(EPOLL_CLOEXEC);
	net->peers[FAKE_PEER].payloads.fd = fds[0];
	theirs = fds[1];
	for (int i = 0; i < LONG_BYTES; i++)
		payload[i] = (unsigned char)(i * 7 + i / 251);
	return 0;
}

static int end_with_socket(void **state)
{
	struct net *net = ((struct fake *)*state)->net;
	net_close_payload_socket(&net->peers[FAKE_PEER]);
	close(net->poll_fd);
	close(theirs);
	return fake_end(state);
}

static void offer(struct fake *fake, struct link_transfer *transfer, uint64_t bytes)
{
	const struct link_note note = {.words = {1}};
	*transfer = (struct link_transfer){.status = LS_PENDING};
	assert_true(net_post(&fake->net->link, FAKE_PEER, &note, payload, bytes, transfer));
}

static void bring(struct fake *fake, enum net_kind kind, uint32_t position)
{
	struct net_header header = fake_header(kind, position);
	assert_int_equal(fake_bring(fake, &header, NULL, 0), UCS_OK);
}

/* An offer comes; fake->last is its message. */
static void bring_offer(struct fake *fake, uint32_t position, uint64_t bytes)
{
	struct net_header header = fake_header(NET_OFFER, position);
	const ucp_am_recv_param_t param = {.recv_attr = 0};
	assert_int_equal(
		net_on_message(fake->net, &header, sizeof header, &bytes, sizeof bytes, &param),
		UCS_OK);
	fake_advance(fake);
	assert_true(fake->last.handle && !fake->last.payload && fake->last.bytes == bytes);
}

/* The same, and this rank wants the payload. */
static void ask(struct fake *fake, uint32_t position, unsigned char to[SHORT_BYTES],
		struct link_transfer *transfer)
{
	bring_offer(fake, position, SHORT_BYTES);
	*transfer = (struct link_transfer){.status = LS_PENDING};
	net_fetch(&fake->net->link, FAKE_PEER, &fake->last, to, transfer);
}

/* Reads what this rank has sent, until there is no more. Returns how much of it there is. */
static size_t read_theirs(size_t at)
{
	ssize_t more;
	while ((more = recv(theirs, got + at, sizeof got - at, MSG_DONTWAIT)) > 0)
		at += (size_t)more;
	return at;
}

static void send_theirs(uint64_t position, uint64_t says_bytes, uint64_t bytes)
{
	const struct net_payload_head head = {position, says_bytes};
	assert_int_equal(send(theirs, &head, sizeof head, MSG_DONTWAIT), sizeof head);
	assert_int_equal(send(theirs, payload, bytes, MSG_DONTWAIT), bytes);
}

/* ---- at the source ---- */

/* Longer than the socket's buffers: the source goes on when there is room, and is woken for it. */
static void a_payload_goes_when_it_is_wanted(void **state)
{
	struct fake *fake = *state;
	struct link_transfer sent;
	int fd;
	offer(fake, &sent, LONG_BYTES);
	assert_true(fake_ucx.sent[0].kind == NET_OFFER && fake_ucx.bytes[0] == 8);
	fake_advance(fake);
	assert_true(net_arm(&fake->net->link, &fd));
	assert_int_equal(fd, fake->net->ucx_fd); /* nothing moves */
	assert_int_equal(read_theirs(0), 0);
	bring(fake, NET_FETCH, 1);
	fake_advance(fake);
	assert_int_equal(fake->done, 0);
	size_t count = 0;
	while (fake->net->moving) {
		struct pollfd door = {.events = POLLIN};
		assert_true(net_arm(&fake->net->link, &door.fd));
		assert_int_equal(door.fd, fake->net->poll_fd);
		assert_int_equal(poll(&door, 1, 0), 0);
		count = read_theirs(count);
		assert_int_equal(poll(&door, 1, 0), 1);
		fake_advance(fake);
	}
	assert_int_equal(read_theirs(count), sizeof got);
	assert_int_equal(fake->done, 0);
	bring(fake, NET_GOT, 1);
	fake_advance(fake);
	assert_true(fake->done == 1 && sent.status == LS_OK);
	const struct net_payload_head head = {1, LONG_BYTES};
	assert_memory_equal(got, &head, sizeof head);
	assert_memory_equal(got + sizeof head, payload, LONG_BYTES);
}

/* In the order in which the target asks for them. */
static void several_go_in_order(void **state)
{
	struct fake *fake = *state;
	struct link_transfer sent[3];
	struct net_payload_head heads[3];
	for (int i = 0; i < 3; i++)
		offer(fake, &sent[i], SHORT_BYTES);
	bring(fake, NET_FETCH, 3);
	bring(fake, NET_FETCH, 1);
	fake_advance(fake);
	bring(fake, NET_GOT, 3);
	bring(fake, NET_GOT, 1);
	fake_advance(fake);
	assert_true(fake->done == 2 && sent[1].status == LS_PENDING);
	bring(fake, NET_FETCH, 2);
	fake_advance(fake);
	bring(fake, NET_GOT, 2);
	fake_advance(fake);
	assert_int_equal(fake->done, 3);
	assert_int_equal(read_theirs(0), 3 * (sizeof heads[0] + SHORT_BYTES));
	for (size_t i = 0; i < 3; i++)
		memcpy(&heads[i], got + i * (sizeof heads[0] + SHORT_BYTES), sizeof heads[0]);
	assert_true(heads[0].position == 3 && heads[1].position == 1 && heads[2].position == 2);
	assert_null(fake->net->peers[FAKE_PEER].offers);
}

static void a_refused_payload_does_not_go(void **state)
{
	struct fake *fake = *state;
	struct link_transfer sent[2];
	for (int i = 0; i < 2; i++)
		offer(fake, &sent[i], SHORT_BYTES);
	struct net_header header = fake_header(NET_REFUSE, 2);
	fake_bring(fake, &header, NULL, 0);
	fake_advance(fake);
	assert_true(fake->done == 1 && sent[1].status == LS_CANCELLED);
	assert_int_equal(sent[0].status, LS_PENDING);
	assert_int_equal(read_theirs(0), 0);
	bring(fake, NET_FETCH, 1);
	fake_advance(fake);
	bring(fake, NET_GOT, 1);
	fake_advance(fake);
	assert_true(fake->done == 2 && sent[0].status == LS_OK);
}

/* What no target sends: for an eager payload, for no offer, twice, and too early. */
static void wrong_answers_are_ignored(void **state)
{
	struct fake *fake = *state;
	struct link_transfer sent, eager = {.status = LS_PENDING, .is_eager = true};
	const struct link_note note = {.words = {1}};
	fake_ucx.keeps = true;
	assert_true(net_post(&fake->net->link, FAKE_PEER, &note, payload, 8, &eager));
	fake_ucx.keeps = false;
	offer(fake, &sent, SHORT_BYTES);
	bring(fake, NET_FETCH, 1);
	bring(fake, NET_FETCH, 7);
	bring(fake, NET_GOT, 2);
	bring(fake, NET_FETCH, 2);
	bring(fake, NET_FETCH, 2);
	fake_advance(fake);
	bring(fake, NET_FETCH, 2);
	bring(fake, NET_REFUSE, 2);
	fake_advance(fake);
	assert_int_equal(fake->done, 0);
	bring(fake, NET_GOT, 2);
	bring(fake, NET_GOT, 2);
	fake_advance(fake);
	assert_true(fake->done == 1 && sent.status == LS_OK && eager.status == LS_PENDING);
	assert_int_equal(read_theirs(0), sizeof(struct net_payload_head) + SHORT_BYTES);
	fake_complete(0, UCS_OK);
	fake_advance(fake);
	assert_int_equal(eager.status, LS_OK);
}

/* The target answers an offer before UCX has completed sending it. */
static void an_answer_waits_for_ucx(void **state)
{
	struct fake *fake = *state;
	struct link_transfer sent[2];
	fake_ucx.keeps = true;
	for (int i = 0; i < 2; i++)
		offer(fake, &sent[i], SHORT_BYTES);
	bring(fake, NET_REFUSE, 1);
	bring(fake, NET_FETCH, 1);
	bring(fake, NET_FETCH, 2);
	fake_advance(fake);
	bring(fake, NET_GOT, 2);
	fake_advance(fake);
	assert_int_equal(fake->done, 0);
	for (int i = 0; i < 2; i++)
		fake_complete(i, UCS_OK);
	fake_advance(fake);
	assert_int_equal(fake->done, 2);
	assert_true(sent[0].status == LS_CANCELLED && sent[1].status == LS_OK);
	assert_int_equal(fake->net->peers[FAKE_PEER].open_requests, 0);
}

/* The answer comes before this rank has looked at anything else: the payload is just as long as a
 * rank sends in one turn. */
static void an_answer_may_come_at_once(void **state)
{
	struct fake *fake = *state;
	struct link_transfer sent;
	const uint64_t turn = LONG_BYTES, heads = sizeof(struct net_payload_head);
	int room = 4 * LONG_BYTES;
	assert_int_equal(setsockopt(fake->net->peers[FAKE_PEER].payloads.fd, SOL_SOCKET,
				    SO_SNDBUFFORCE, &room, sizeof room),
			 0);
	offer(fake, &sent, turn - heads);
	bring(fake, NET_FETCH, 1);
	net_advance(&fake->net->link);
	assert_int_equal(read_theirs(0), turn);
	bring(fake, NET_GOT, 1);
	fake_advance(fake);
	assert_true(fake->done == 1 && sent.status == LS_OK);
}

/* ---- at the target ---- */

static void a_payload_comes_in_pieces(void **state)
{
	struct fake *fake = *state;
	struct link_transfer fetched;
	static unsigned char to[SHORT_BYTES];
	ask(fake, 1, to, &fetched);
	assert_true(fake_ucx.sent[0].kind == NET_FETCH && fake_ucx.sent[0].position == 1);
	const struct net_payload_head head = {1, SHORT_BYTES};
	for (size_t i = 0; i < sizeof head + SHORT_BYTES; i++) {
		fake_advance(fake);
		assert_int_equal(fake->done, 0);
		const unsigned char *byte = i < sizeof head ? (const unsigned char *)&head + i
							    : payload + i - sizeof head;
		assert_int_equal(send(theirs, byte, 1, MSG_DONTWAIT), 1);
	}
	fake_advance(fake);
	assert_true(fake->done == 1 && fetched.status == LS_OK);
	assert_memory_equal(to, payload, SHORT_BYTES);
	assert_true(fake_ucx.sends == 2 && fake_ucx.sent[1].kind == NET_GOT &&
		    fake_ucx.sent[1].position == 1);
	assert_int_equal(fake_ucx.released, 0); /* UCX keeps nothing of such an offer */
}

/* UCX has no memory for the FETCH of one; that of the next does not overtake it. */
static void fetches_keep_their_order(void **state)
{
	struct fake *fake = *state;
	struct link_transfer fetched[2];
	static unsigned char to[2][SHORT_BYTES];
	for (uint32_t i = 0; i < 2; i++) {
		fake_ucx.error = i == 0 ? UCS_ERR_NO_MEMORY : UCS_OK;
		ask(fake, i + 1, to[i], &fetched[i]);
	}
	fake_advance(fake);
	assert_int_equal(fake_ucx.sends, 2);
	for (uint32_t i = 0; i < 2; i++) {
		assert_true(fake_ucx.sent[i].kind == NET_FETCH && fake_ucx.sent[i].position == i + 1);
		send_theirs(i + 1, SHORT_BYTES, SHORT_BYTES);
	}
	fake_ucx.error = UCS_ERR_NO_MEMORY; /* and for GOT */
	for (int i = 0; i < 10; i++)
		net_advance(&fake->net->link);
	int fd;
	assert_false(net_arm(&fake->net->link, &fd)); /* it is due */
	assert_int_equal(fake->done, 0);
	fake_ucx.error = UCS_OK;
	fake_advance(fake);
	assert_true(fetched[0].status == LS_OK && fetched[1].status == LS_OK);
	assert_memory_equal(to[1], payload, SHORT_BYTES);
}

static void an_unwanted_payload_is_refused(void **state)
{
	struct fake *fake = *state;
	bring_offer(fake, 1, SHORT_BYTES);
	net_fetch(&fake->net->link, FAKE_PEER, &fake->last, NULL, NULL);
	assert_true(fake_ucx.sent[0].kind == NET_REFUSE && fake_ucx.sent[0].position == 1);
	assert_int_equal(fake_ucx.released, 0);
}

/* The peer sends something else than it was asked for, or ends in the middle. */
static void wrong_bytes_break_the_peer(void **state)
{
	struct fake *fake = *state;
	struct link_transfer fetched, sent;
	static unsigned char to[SHORT_BYTES];
	static const struct net_payload_head wrong[] = {{2, SHORT_BYTES}, {1, SHORT_BYTES - 1}};
	static int turn;
	offer(fake, &sent, SHORT_BYTES);
	ask(fake, 1, to, &fetched);
	if (turn < 2)
		send_theirs(wrong[turn].position, wrong[turn].bytes, SHORT_BYTES - 1);
	else
		assert_int_equal(shutdown(theirs, SHUT_WR), 0);
	turn++;
	fake_advance(fake);
	assert_true(fake->done == 2 && fake->lost == 1);
	assert_true(fetched.status == LS_PEER_DIED && sent.status == LS_PEER_DIED);
}

/* ---- the end of a peer ---- */

/* UCX finds first that the peer has ended. What the peer has sent before it ended arrives. */
static void last_bytes_arrive(void **state)
{
	struct fake *fake = *state;
	struct link_transfer fetched[2];
	static unsigned char to[2][SHORT_BYTES];
	for (uint32_t i = 0; i < 2; i++)
		ask(fake, i + 1, to[i], &fetched[i]);
	send_theirs(1, SHORT_BYTES, SHORT_BYTES / 2);
	net_break(&fake->net->peers[FAKE_PEER]);
	for (int i = 0; i < 10; i++)
		net_advance(&fake->net->link);
	assert_int_equal(fake->lost + fake->done, 0);
	assert_int_equal(recv(theirs, got, 1, MSG_DONTWAIT), 0); /* the other side need not wait */
	assert_int_equal(send(theirs, payload + SHORT_BYTES / 2, SHORT_BYTES / 2, 0),
			 SHORT_BYTES / 2);
	assert_int_equal(shutdown(theirs, SHUT_WR), 0);
	fake_advance(fake);
	assert_true(fake->lost == 1 && fetched[0].status == LS_OK);
	assert_int_equal(fetched[1].status, LS_PEER_DIED);
	assert_memory_equal(to[0], payload, SHORT_BYTES);
}

/* UCX has lost the peer, whose payload socket neither ends nor brings anything. */
static void a_silent_peer_is_lost(void **state)
{
	struct fake *fake = *state;
	struct link_transfer fetched;
	static unsigned char to[SHORT_BYTES];
	ask(fake, 1, to, &fetched);
	send_theirs(1, SHORT_BYTES, SHORT_BYTES / 2);
	net_break(&fake->net->peers[FAKE_PEER]);
	for (int i = 0; i < 10; i++)
		net_advance(&fake->net->link);
	assert_int_equal(fake->lost, 0);
	while (!fake->lost) /* for as long as bytes may come: a second */
		net_advance(&fake->net->link);
	assert_int_equal(fetched.status, LS_PEER_DIED);
}

static void a_cut_ends_all(void **state)
{
	struct fake *fake = *state;
	struct link_transfer fetched, sent[2];
	static unsigned char to[SHORT_BYTES];
	ask(fake, 1, to, &fetched);
	offer(fake, &sent[0], LONG_BYTES);
	offer(fake, &sent[1], SHORT_BYTES);
	bring(fake, NET_FETCH, 1);
	fake_advance(fake);
	assert_int_equal(fake->done, 0);
	net_cut(&fake->net->link, FAKE_PEER);
	assert_int_equal(fake->done, 3);
	assert_true(fetched.status == LS_ABORTED && sent[0].status == LS_ABORTED &&
		    sent[1].status == LS_ABORTED);
	fake_advance(fake);
	assert_int_equal(fake->lost, 0);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, open_with_socket, end_with_socket)
	const struct CMUnitTest tests[] = {
		TEST(a_payload_goes_when_it_is_wanted),
		TEST(several_go_in_order),
		TEST(a_refused_payload_does_not_go),
		TEST(wrong_answers_are_ignored),
		TEST(an_answer_waits_for_ucx),
		TEST(an_answer_may_come_at_once),
		TEST(a_payload_comes_in_pieces),
		TEST(fetches_keep_their_order),
		TEST(an_unwanted_payload_is_refused),
		TEST(wrong_bytes_break_the_peer), /* another position */
		TEST(wrong_bytes_break_the_peer), /* another length */
		TEST(wrong_bytes_break_the_peer), /* none */
		TEST(last_bytes_arrive),
		TEST(a_silent_peer_is_lost),
		TEST(a_cut_ends_all),
	};
#undef TEST
	return cmocka_run_group_tests(tests, NULL, NULL);
}
