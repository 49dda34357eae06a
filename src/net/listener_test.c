/* SPDX-License-Identifier: BSD-3-Clause
 * The end of UCX's listener while somebody has connected to it and said nothing: UCX's thread then
 * must not listen to that connection any more, or it would call the freed listener. And the end of
 * a listener that UCX has closed by itself. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/resource.h>

#include "net/peer.h"
#include "net/rank_fixture.h"

enum { DESCRIPTORS = 1024 };

static struct {
	struct net_library calls; /* UCX's, but for ucp_listener_destroy */
	void (*destroy)(ucp_listener_h listener);
	int stranger, listener, destroyed;
} test;

/* Whether UCX's thread has something to do with the descriptor. */
static bool has_handler(int fd)
{
	void *library = dlopen("libucs.so.0", RTLD_NOW | RTLD_NOLOAD);
	assert_non_null(library);
	ucs_status_t (*modify)(int, ucs_event_set_types_t) =
		(__typeof__(modify))dlsym(library, "ucs_async_modify_handler");
	dlclose(library);
	return modify(fd, UCS_EVENT_SET_EVREAD) == UCS_OK;
}

static uint16_t port_of(int fd, int (*get)(int fd, struct sockaddr *address, socklen_t *bytes))
{
	struct sockaddr_in address = {.sin_port = 0};
	socklen_t bytes = sizeof address;
	return get(fd, (struct sockaddr *)&address, &bytes) == 0 ? address.sin_port : 0;
}

/* The socket of this process with these two ports (0: it is connected to nobody); -1: none. */
static int find_socket(uint16_t here, uint16_t there)
{
	for (int fd = 0; fd < DESCRIPTORS; fd++)
		if (port_of(fd, getsockname) == here && port_of(fd, getpeername) == there)
			return fd;
	return -1;
}

static void check_destroy(ucp_listener_h listener)
{
	assert_false(has_handler(test.listener));
	assert_false(has_handler(test.stranger));
	test.destroyed++;
	test.destroy(listener);
}

static struct link *open_rank(int rank)
{
	static struct rank ranks[2];
	const struct net_options options = {
		.rank = rank, .size = 2, .job = 1, .host = "127.0.0.1", .transports = "tcp"};
	struct link *link;
	assert_int_equal(net_open(&options, &link), LS_OK);
	link->events =
		(struct link_events){&ranks[rank], rank_arrived, rank_word, rank_done, rank_lost};
	return link;
}

/* Connects to where the rank listens, and says nothing. Returns when UCX has accepted that. */
static int connect_stranger(struct link *link)
{
	struct net_address address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	uint64_t deadline_ns = clock_deadline_ns(RANK_LIMIT_MS);
	net_address(link, &address);
	assert_int_equal(connect(fd, (const struct sockaddr *)(const void *)address.data,
				 (socklen_t)address.bytes),
			 0);
	uint16_t here = port_of(fd, getpeername), there = port_of(fd, getsockname);
	do {
		test.stranger = find_socket(here, there);
		assert_true(clock_now_ns() < deadline_ns);
	} while (test.stranger < 0 || !has_handler(test.stranger));
	test.listener = find_socket(here, 0);
	assert_true(has_handler(test.listener));

	struct net *net = net_of(link);
	test.calls = *net->ucx;
	test.destroy = net->ucx->ucp_listener_destroy;
	test.calls.ucp_listener_destroy = check_destroy;
	test.destroyed = 0;
	net->ucx = &test.calls;
	return fd;
}

static void before_all_are_connected(void **unused)
{
	(void)unused;
	struct link *link = open_rank(1);
	int stranger = connect_stranger(link);
	link->ops->close(link);
	assert_int_equal(test.destroyed, 1);
	close(stranger);
}

/* The rank closes its link because it can open no file: then it cannot list its files either. */
static void without_descriptors(void **unused)
{
	struct rlimit before, none;
	(void)unused;
	struct link *link = open_rank(1);
	int stranger = connect_stranger(link);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(open("/proc/self/fd", O_RDONLY | O_CLOEXEC), -1);
	link->ops->close(link);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(test.destroyed, 1);
	close(stranger);
}

/* The connection of the peer stays. */
static void when_all_are_connected(void **unused)
{
	struct link *links[2];
	bool done[2] = {false, false};
	uint64_t deadline_ns = clock_deadline_ns(RANK_LIMIT_MS);
	(void)unused;
	for (int r = 0; r < 2; r++)
		links[r] = open_rank(r);
	int stranger = connect_stranger(links[1]);
	for (int r = 0; r < 2; r++) {
		struct net_address address;
		net_address(links[r], &address);
		assert_int_equal(net_set_address(links[!r], r, &address), LS_OK);
	}
	uint16_t here = port_of(test.listener, getsockname);
	while (!done[0] || !done[1]) {
		for (int r = 0; r < 2; r++) {
			assert_int_equal(links[r]->ops->connect(links[r], &done[r]), LS_OK);
			links[r]->ops->advance(links[r]);
		}
		assert_true(clock_now_ns() < deadline_ns);
	}
	assert_int_equal(test.destroyed, 1);
	int kept = 0;
	for (int fd = 0; fd < DESCRIPTORS; fd++)
		if (port_of(fd, getsockname) == here && port_of(fd, getpeername) != 0)
			kept += has_handler(fd);
	assert_int_equal(kept, 1);
	for (int r = 0; r < 2; r++)
		links[r]->ops->cut(links[r], !r);
	for (int r = 0; r < 2; r++)
		links[r]->ops->close(links[r]);
	close(stranger);
}

/* UCX's TCP finds no descriptor for a connection, and closes its socket. The same process can open
 * a link again nevertheless. */
static void after_a_failed_accept(void **unused)
{
	struct rlimit before, none;
	(void)unused;
	struct link *link = open_rank(1);
	const struct net *net = net_of(link);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), listener = net->ports.tcp_fd;
	const struct sockaddr_in address = {.sin_family = AF_INET,
					    .sin_port = net->ports.tcp,
					    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	assert_int_equal(port_of(listener, getsockname), address.sin_port);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(
		connect(fd, (const struct sockaddr *)(const void *)&address, sizeof address), 0);
	uint64_t deadline_ns = clock_deadline_ns(RANK_LIMIT_MS);
	while (port_of(listener, getsockname) == address.sin_port)
		assert_true(clock_now_ns() < deadline_ns);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	link->ops->close(link);
	assert_false(has_handler(listener));
	close(fd);
	link = open_rank(1);
	link->ops->close(link);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(before_all_are_connected),
		cmocka_unit_test(without_descriptors),
		cmocka_unit_test(when_all_are_connected),
		cmocka_unit_test(after_a_failed_accept),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
