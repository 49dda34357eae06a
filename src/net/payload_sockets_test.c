/* SPDX-License-Identifier: BSD-3-Clause
 * Who connects for payloads: peers, and strangers that say the wrong thing, or nothing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>

#include "net/peer.h"
#include "net/rank_fixture.h"

enum { RANKS = 2, HELLO_BYTES = 24, CROWD = 100, GUESTS_MORE = 64 };

static struct link *links[RANKS];

static int open_links(void **unused)
{
	static struct rank ranks[RANKS];
	(void)unused;
	for (int r = 0; r < RANKS; r++) {
		const struct net_options options = {
			.rank = r, .size = RANKS, .job = 1, .host = "127.0.0.1", .transports = "tcp"};
		assert_int_equal(net_open(&options, &links[r]), LS_OK);
		links[r]->events = (struct link_events){&ranks[r], rank_arrived, rank_word,
							rank_done, rank_lost};
	}
	for (int r = 0; r < RANKS; r++) {
		struct net_address address;
		net_address(links[r], &address);
		assert_int_equal(net_set_address(links[!r], r, &address), LS_OK);
	}
	return 0;
}

static int close_links(void **unused)
{
	(void)unused;
	for (int r = 0; r < RANKS; r++)
		links[r]->ops->cut(links[r], !r);
	for (int r = 0; r < RANKS; r++)
		links[r]->ops->close(links[r]);
	return 0;
}

/* A step of each rank. True: both are connected. */
static bool connect_a_bit(void)
{
	bool all = true;
	for (int r = 0; r < RANKS; r++) {
		bool done;
		assert_int_equal(links[r]->ops->connect(links[r], &done), LS_OK);
		links[r]->ops->advance(links[r]);
		all = all && done;
	}
	return all;
}

static void connect_all(void)
{
	uint64_t deadline_ns = clock_deadline_ns(RANK_LIMIT_MS);
	while (!connect_a_bit())
		assert_true(clock_now_ns() < deadline_ns);
}

/* Connects to where rank 1 listens for payload sockets, and says these bytes. */
static int connect_stranger(const void *says, size_t bytes)
{
	struct net_address address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	net_address(links[1], &address);
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = address.payload_port};
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
	assert_int_equal(send(fd, says, bytes, 0), bytes);
	return fd;
}

/* Whether the other side has closed the connection. */
static bool is_dropped(int fd)
{
	struct pollfd end = {.fd = fd, .events = POLLRDHUP};
	return poll(&end, 1, 0) == 1;
}

static void await_drop(int fd)
{
	uint64_t deadline_ns = clock_deadline_ns(RANK_LIMIT_MS);
	while (!is_dropped(fd)) {
		(void)connect_a_bit();
		assert_true(clock_now_ns() < deadline_ns);
	}
	close(fd);
}

/* A payload goes from rank 0 to rank 1 over the socket of the two. */
static void check_payload(void)
{
	static unsigned char payload[100000];
	const struct link_note note = {.words = {0}};
	struct rank *to = links[1]->events.context, *from = links[0]->events.context;
	struct link_transfer sent = {.status = LS_PENDING}, fetched = {.status = LS_PENDING};
	static unsigned char got[sizeof payload];
	uint64_t deadline_ns = clock_deadline_ns(RANK_LIMIT_MS);
	bool asked = false;
	*to = *from = (struct rank){.rank = 0};
	rank_fill(payload, 0, 0, sizeof payload);
	assert_true(links[0]->ops->post(links[0], 1, &note, payload, sizeof payload, &sent));
	while (to->done == 0 || from->done == 0) {
		for (int r = 0; r < RANKS; r++)
			links[r]->ops->advance(links[r]);
		if (to->kept_count == 1 && !asked)
			links[1]->ops->fetch(links[1], 0, &to->kept[0], got, &fetched);
		asked = to->kept_count == 1;
		assert_true(clock_now_ns() < deadline_ns);
	}
	assert_true(sent.status == LS_OK && fetched.status == LS_OK);
	assert_memory_equal(got, payload, sizeof payload);
}

static void strangers_are_dropped(void **unused)
{
	unsigned char hello[HELLO_BYTES] = "GET / HTTP/1.1\r\nHost: x";
	(void)unused;
	int silent = connect_stranger("", 0), talks = connect_stranger(hello, sizeof hello);
	int slow = connect_stranger("GET", 3);
	await_drop(talks);
	assert_false(is_dropped(silent) || is_dropped(slow));
	connect_all();
	await_drop(silent); /* nobody can connect any more */
	await_drop(slow);
	check_payload();
}

/* As rank 0 would say it, but of another job, to another rank, or from rank 1 itself. */
static void the_hello_is_checked(void **unused)
{
	struct {
		uint64_t magic, job;
		uint32_t epoch;
		uint16_t source, target;
	} hello = {UINT64_C(0x6c73207061796c64), 2, 0, 0, 1};
	(void)unused;
	await_drop(connect_stranger(&hello, sizeof hello));
	hello.job = 1;
	hello.epoch = 1;
	await_drop(connect_stranger(&hello, sizeof hello));
	hello.epoch = 0;
	hello.target = 0;
	await_drop(connect_stranger(&hello, sizeof hello));
	hello.target = 1;
	hello.source = 1;
	await_drop(connect_stranger(&hello, sizeof hello));
	hello.source = UINT16_MAX;
	await_drop(connect_stranger(&hello, sizeof hello));
	connect_all();
	check_payload();
}

/* More strangers than there is room for: the oldest goes, and the peer connects all the same. */
static void a_crowd_keeps_nobody_out(void **unused)
{
	int fds[CROWD], dropped = 0;
	(void)unused;
	struct net *net = net_of(links[1]);
	net->addressed++; /* so that it is not ready before all of them have come */
	for (int i = 0; i < CROWD; i++) {
		fds[i] = connect_stranger("", 0);
		assert_false(connect_a_bit());
	}
	net->addressed--;
	for (int i = 0; i < CROWD - RANKS - GUESTS_MORE; i++)
		assert_true(is_dropped(fds[i])); /* the oldest */
	assert_false(is_dropped(fds[CROWD - 1]));
	connect_all();
	for (int i = 0; i < CROWD; i++) {
		dropped += is_dropped(fds[i]);
		close(fds[i]);
	}
	assert_int_equal(dropped, CROWD);
	check_payload();
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, open_links, close_links)
	const struct CMUnitTest tests[] = {
		TEST(strangers_are_dropped),
		TEST(the_hello_is_checked),
		TEST(a_crowd_keeps_nobody_out),
	};
#undef TEST
	return cmocka_run_group_tests(tests, NULL, NULL);
}
