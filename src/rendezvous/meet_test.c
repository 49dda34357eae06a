/* SPDX-License-Identifier: BSD-3-Clause
 * Meetings that succeed: with rank 0 as server and with a launcher, over Unix sockets and TCP, of
 * all sizes, whichever rank comes last. */
#include "base/ranks.h"
#include "rendezvous/rendezvous_fixture.h"

#include <sys/mman.h>

static const int sizes[] = {1, 2, 8, RANKS_WORLD_MAX};
enum { SIZE_COUNT = sizeof sizes / sizeof sizes[0] };

static void test_rank_0_serves(void **state)
{
	(void)state;
	for (int i = 0; i < 2 * SIZE_COUNT; i++) {
		struct rendezvous_place place = fixture_place(i % 2, sizes[i / 2]);
		struct fixture fixture = fixture_new(&place, false);
		fixture_start(&fixture);
		fixture_wait(&fixture);
		fixture_check_met(&fixture, false);
		fixture_free(&fixture);
	}
}

/* Over IPv6, too, the kernel tells which process is at the other end. */
static void test_ipv6(void **state)
{
	(void)state;
	struct rendezvous_place place = fixture_place(true, 3), bound;
	char text[RENDEZVOUS_TEXT_BYTES] = "", name[RENDEZVOUS_PLACE_BYTES];
	int fd;

	snprintf(place.address, sizeof place.address, "::1");
	place.port = 0;
	place.serve = true;
	if (rendezvous_listen(&place, &bound, &fd, text) != LS_OK)
		skip(); /* a system without IPv6 */
	rendezvous_close_fd(&fd);
	rendezvous_place_name(&bound, name);
	assert_memory_equal(name, "tcp:[::1]:", 10);
	struct fixture fixture = fixture_new(&bound, false);
	fixture_start(&fixture);
	fixture_wait(&fixture);
	fixture_check_met(&fixture, false);
	fixture_free(&fixture);
}

/* The system lets a host have any name; what goes to the others can be shown on a terminal. */
static void test_host_names(void **state)
{
	(void)state;
	struct rendezvous_place place = fixture_place(true, 2);
	struct fixture fixture = fixture_new(&place, false);
	for (int i = 0; i < 2; i++)
		snprintf(fixture.ranks[i].self.me.host, sizeof fixture.ranks[i].self.me.host,
			 "h\xc3\xb6st\n%d", i);
	fixture_start(&fixture);
	fixture_wait(&fixture);
	for (int i = 0; i < 2; i++) {
		if (fixture.ranks[i].status != LS_OK)
			fail_msg("rank %d: %s", i, fixture.ranks[i].text);
		assert_string_equal(fixture.ranks[i].table.ranks[0].host, "h??st?0");
		assert_string_equal(fixture.ranks[i].table.ranks[1].host, "h??st?1");
	}
	fixture_free(&fixture);
}

static void test_alone_needs_no_socket(void **state)
{
	(void)state;
	struct rendezvous_place place = fixture_place(false, 1);
	struct fixture fixture = fixture_new(&place, false);
	struct rendezvous_place bound;
	int fd;

	/* Although the address is taken: nobody looks at it. */
	assert_int_equal(rendezvous_listen(&place, &bound, &fd, fixture.ranks[0].text), LS_OK);
	fixture_start(&fixture);
	fixture_wait(&fixture);
	fixture_check_met(&fixture, false);
	rendezvous_close_fd(&fd);
	fixture_free(&fixture);
}

static int numbered_memfd(int number)
{
	int fd = memfd_create("trace", MFD_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, &number, sizeof number), sizeof number);
	return fd;
}

static void check_trace(const struct rendezvous_server *server, int rank, bool tcp)
{
	int number = -1, fd = rendezvous_server_trace(server, rank);

	if (tcp) {
		assert_int_equal(fd, -1);
		return;
	}
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &number, sizeof number, 0), sizeof number);
	assert_int_equal(number, rank);
}

static void meet_launcher(bool tcp, int size)
{
	struct rendezvous_place place = {.tcp = tcp, .world_size = size};
	struct rendezvous_server *server;
	uint64_t deadline_ns = clock_deadline_ns(FIXTURE_LONG_MS);

	assert_int_equal(rendezvous_server_open(&place, deadline_ns, &server), LS_OK);
	assert_null(rendezvous_server_table(server));
	assert_int_equal(rendezvous_server_pid(server, 0), 0);
	place = *rendezvous_server_place(server);
	struct fixture fixture = fixture_new(&place, true);
	for (int i = 0; i < size; i++)
		fixture.ranks[i].self.trace_fd = numbered_memfd(i);
	fixture_start(&fixture);
	assert_int_equal(fixture_run_server(server), LS_OK);
	fixture_wait(&fixture);
	fixture_check_met(&fixture, true);
	assert_memory_equal(rendezvous_server_table(server), &fixture.ranks[0].table,
			    sizeof fixture.ranks[0].table);
	assert_string_equal(rendezvous_server_text(server), "");
	for (int i = 0; i < size; i++) {
		assert_int_equal(rendezvous_server_pid(server, i), getpid());
		check_trace(server, i, tcp);
		rendezvous_close_fd(&fixture.ranks[i].self.trace_fd);
	}
	/* The job goes on, and the ranks see the launcher's end on their connection. */
	struct pollfd fds = {.fd = fixture.ranks[0].control, .events = POLLIN};
	assert_int_equal(wait_fds(NULL, &fds, 1, -1, 0), LS_TIMED_OUT);
	rendezvous_server_close(server);
	assert_int_equal(wait_fds(NULL, &fds, 1, -1, 0), LS_OK);
	fixture_free(&fixture);
}

static void test_launcher_serves(void **state)
{
	(void)state;
	for (int i = 0; i < 2 * SIZE_COUNT; i++)
		meet_launcher(i % 2, sizes[i / 2]);
}

/* Rank 0 comes late: the others connect in vain at first, and try again. */
static void test_rank_0_late(void **state)
{
	(void)state;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct rendezvous_place place = fixture_place(tcp, 4);
		struct fixture fixture = fixture_new(&place, false);
		fixture.ranks[0].absent = true;
		fixture_start(&fixture);
		assert_int_equal(wait_fds(NULL, NULL, 0, -1, clock_deadline_ns(60)), LS_TIMED_OUT);
		fixture.ranks[0].absent = false;
		fixture_start_rank(&fixture.ranks[0]);
		fixture_wait(&fixture);
		fixture_check_met(&fixture, false);
		fixture_free(&fixture);
	}
}

/* Two jobs, one after the other, at the same address. */
static void test_again_at_once(void **state)
{
	(void)state;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct rendezvous_place place = fixture_place(tcp, 3);
		uint64_t job = 0;
		for (int times = 0; times < 5; times++) {
			struct fixture fixture = fixture_new(&place, false);
			fixture_start(&fixture);
			fixture_wait(&fixture);
			fixture_check_met(&fixture, false);
			assert_true(fixture.ranks[0].table.job != job);
			job = fixture.ranks[0].table.job;
			fixture_free(&fixture);
		}
	}
}

/* A rank that comes once all have met is told so, and the launcher's table stays. */
static void test_latecomer(void **state)
{
	(void)state;
	struct rendezvous_place place = {.world_size = 2};
	struct rendezvous_server *server;
	uint64_t deadline_ns = clock_deadline_ns(FIXTURE_LONG_MS);

	assert_int_equal(rendezvous_server_open(&place, deadline_ns, &server), LS_OK);
	place = *rendezvous_server_place(server);
	struct fixture fixture = fixture_new(&place, true);
	fixture_start(&fixture);
	assert_int_equal(fixture_run_server(server), LS_OK);
	fixture_wait(&fixture);
	fixture_check_met(&fixture, true);

	struct wire_hello hello = fixture_hello(&place, 1);
	int fd = fixture_say(&place, &hello, sizeof hello);
	struct pollfd fds[RENDEZVOUS_FDS_MAX];
	assert_int_equal(rendezvous_server_fds(server, fds, RENDEZVOUS_FDS_MAX), 1);
	assert_true(fixture_ready(fds[0].fd, POLLIN));
	assert_int_equal(rendezvous_server_step(server), LS_OK);
	fixture_check_answer(fd, LS_DUPLICATE_RANK,
			     FIXTURE_WORDS("rank 1", "after all 2 ranks had met", "only once"));
	assert_true(rendezvous_server_complete(server));
	fixture_free(&fixture);
	rendezvous_server_close(server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rank_0_serves),
		cmocka_unit_test(test_ipv6),
		cmocka_unit_test(test_host_names),
		cmocka_unit_test(test_alone_needs_no_socket),
		cmocka_unit_test(test_launcher_serves),
		cmocka_unit_test(test_rank_0_late),
		cmocka_unit_test(test_again_at_once),
		cmocka_unit_test(test_latecomer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
