/* SPDX-License-Identifier: BSD-3-Clause
 * Two jobs of one user at one port: what tells them apart, and what the ranks of the second get. */
#include "rendezvous/rendezvous_fixture.h"
#include "rendezvous/server.h"

enum { MARK_LAUNCH, MARK_SECRET, MARK_NO_SECRET, MARKS };

/* A place of another job. */
static bool mark(struct rendezvous_place *place, int which)
{
	if (which == MARK_LAUNCH)
		place->launch = 7;
	if (which == MARK_SECRET) {
		if (auth_token_open(&place->token) != LS_OK)
			return false; /* libsodium is not installed */
		place->token.key[0] ^= 1;
		place->has_token = true;
	}
	if (which == MARK_NO_SECRET)
		place->has_token = false;
	return true;
}

static void finish_refused(struct fixture *other, int which)
{
	const char *why = which == MARK_LAUNCH ? "started by two launchers" : "the same secret";
	fixture_wait(other);
	fixture_check_failed(other, LS_UNTRUSTED_PEER, FIXTURE_QUICK_MS,
			     FIXTURE_WORDS("rank 0 (pid", why, "two jobs", "MASTER_PORT of its own"));
	fixture_free(other);
}

/* Rank 1 of another job, and then its rank 0, come to the port at which rank 0 waits. They are
 * refused, and the job meets. */
static void test_another_job_is_refused(void **state)
{
	(void)state;
	for (int which = 0; which < MARKS; which++) {
		struct rendezvous_place place = fixture_place(true, 2);
		if (which != MARK_LAUNCH && auth_token_open(&place.token) != LS_OK)
			continue;
		place.has_token = which != MARK_LAUNCH;
		struct fixture fixture = fixture_new(&place, false);
		fixture_start_rank(&fixture.ranks[0]);
		for (int rank = 1; rank >= 0; rank--) {
			struct rendezvous_place foreign = place;
			assert_true(mark(&foreign, which));
			struct fixture other = fixture_new(&foreign, false);
			other.ranks[!rank].absent = true;
			close(fixture_connect(&place)); /* rank 0 listens */
			fixture_start(&other);
			finish_refused(&other, which);
		}
		fixture_start_rank(&fixture.ranks[1]);
		fixture_wait(&fixture);
		fixture_check_met(&fixture, false);
		fixture_free(&fixture);
	}
}

/* The error of a job whose rank is missing says that ranks of another job came. */
static void test_another_job_is_counted(void **state)
{
	(void)state;
	struct rendezvous_place place = fixture_place(true, 2);
	struct fixture fixture = fixture_new(&place, false);
	struct wire_hello hello = fixture_hello(&place, 1);
	fixture.ranks[1].absent = true;
	fixture.ranks[0].limit_ms = FIXTURE_COME_MS;
	fixture_start(&fixture);
	hello.launch = 3;
	int fd = fixture_say(&place, &hello, sizeof hello);
	fixture_check_answer(fd, LS_UNTRUSTED_PEER, FIXTURE_WORDS("two launchers"));
	fixture_wait(&fixture);
	fixture_check_rank(&fixture.ranks[0], LS_RANK_MISSING,
			   FIXTURE_WORDS("1 connection came from ranks of another job"));
	fixture_free(&fixture);
}

/* A server of two ranks by hand, to which rank 1 has come, and a second rank 1 is to come. */
static struct rendezvous_server *serve_by_hand(struct rendezvous_place *place, uint64_t waited_ms,
					       int *first)
{
	struct rendezvous_self self = {.me = {.pid = getpid(), .uid = geteuid()}, .trace_fd = -1};
	struct rendezvous_server *server;
	char text[RENDEZVOUS_TEXT_BYTES] = "";

	*place = fixture_place(true, 2);
	place->by_hand = true;
	assert_int_equal(rendezvous_server_start(place, &self, CLOCK_NEVER, text, &server), LS_OK);
	struct wire_hello hello = fixture_hello(place, 1);
	hello.waited_ms = waited_ms;
	*first = fixture_say(place, &hello, sizeof hello);
	while (rendezvous_count_hellos(server) < 2)
		assert_int_equal(rendezvous_server_step(server), LS_OK);
	return server;
}

/* All ranks of a job by hand are there, and one more comes: none gets a table. */
static void test_a_rank_comes_twice(void **state)
{
	(void)state;
	const char *early[] = {"Pid ", " had looked for rank 0 for 20.", "end it", NULL};
	for (int left_over = 0; left_over < 2; left_over++) {
		struct rendezvous_place place;
		int first;
		struct rendezvous_server *server =
			serve_by_hand(&place, left_over ? 20500 : 0, &first);
		assert_null(rendezvous_server_met(server));
		server->settled_ns = CLOCK_NEVER; /* however slow this machine is */
		struct wire_hello hello = fixture_hello(&place, 1);
		int second = fixture_say(&place, &hello, sizeof hello);
		while (rendezvous_server_step(server) == LS_OK)
			assert_null(rendezvous_server_met(server));
		struct wire_head welcome;
		assert_int_equal(fixture_read(first, &welcome, sizeof welcome), sizeof welcome);
		for (int i = 0; i < 2; i++)
			fixture_check_answer(i ? second : first, LS_DUPLICATE_RANK,
					     left_over ? early : FIXTURE_WORDS("are of two jobs"));
		assert_true(left_over == !!strstr(rendezvous_server_text(server), early[1]));
		rendezvous_server_close(server);
	}
}

/* How long the server waits for that: longer if a rank may be left over from an earlier start, not
 * at all if something tells the jobs apart. */
static void test_how_long_a_job_settles(void **state)
{
	(void)state;
	const uint64_t looked_ms[] = {0, 1900, 20500, UINT64_MAX},
		       settles_ms[] = {200, 200, 1000, 200};
	for (int i = 0; i < 4; i++) {
		struct rendezvous_place place;
		int first;
		uint64_t began_ns = clock_now_ns();
		struct rendezvous_server *server = serve_by_hand(&place, looked_ms[i], &first);
		uint64_t most_ns = clock_deadline_ns(settles_ms[i]);
		assert_in_range(server->settled_ns, began_ns + settles_ms[i] * 1000000, most_ns);
		assert_int_equal(rendezvous_server_deadline_ns(server), server->settled_ns);
		rendezvous_close_fd(&first);
		rendezvous_server_close(server);
	}
	for (int by_hand = 0; by_hand < 2; by_hand++) {
		struct rendezvous_place place = fixture_place(true, 2);
		place.by_hand = by_hand;
		struct fixture fixture = fixture_new(&place, false);
		fixture_start(&fixture);
		fixture_wait(&fixture);
		fixture_check_met(&fixture, false);
		if (by_hand)
			assert_in_range(fixture.ranks[1].took_ms, 199, FIXTURE_QUICK_MS);
		fixture_free(&fixture);
	}
}

/* A rank ends while the server waits: the others get an error that does not list missing ranks. */
static void test_a_rank_ends_before_the_table(void **state)
{
	(void)state;
	struct rendezvous_place place;
	int first;
	struct rendezvous_server *server = serve_by_hand(&place, 0, &first);
	server->settled_ns = CLOCK_NEVER;
	rendezvous_close_fd(&first);
	while (rendezvous_server_step(server) == LS_OK)
		assert_null(rendezvous_server_met(server));
	assert_non_null(strstr(rendezvous_server_text(server), "ended before all ranks had met at"));
	assert_null(strstr(rendezvous_server_text(server), "Not yet here"));
	rendezvous_server_close(server);
}

/* Rank 0 of both jobs is there first: all ranks of both hear what is wrong. */
static void test_both_jobs_hear_of_it(void **state)
{
	(void)state;
	struct rendezvous_place place = fixture_place(true, 2);
	struct fixture jobs[2] = {fixture_new(&place, false), fixture_new(&place, false)};
	for (int rank = 0; rank < 2; rank++) {
		for (int i = 0; i < 2; i++) {
			fixture_start_rank(&jobs[i].ranks[rank]);
			if (rank == 0 && i == 0)
				close(fixture_connect(&place)); /* it listens */
		}
		while (rank == 0 && !atomic_load(&jobs[1].ranks[0].done))
			assert_int_equal(wait_fds(NULL, NULL, 0, -1, clock_deadline_ns(1)),
					 LS_TIMED_OUT);
	}
	for (int i = 0; i < 2; i++) {
		fixture_wait(&jobs[i]);
		fixture_check_failed(&jobs[i], LS_DUPLICATE_RANK, FIXTURE_QUICK_MS,
				     FIXTURE_WORDS("say that they are rank 0", "of two jobs"));
		fixture_free(&jobs[i]);
	}
}

/* As long as a job runs that has met at a port, no rank 0 of another job can listen there. */
static void test_the_port_stays_taken(void **state)
{
	(void)state;
	struct rendezvous_place place = fixture_place(true, 2);
	struct fixture fixture = fixture_new(&place, false);
	fixture_start(&fixture);
	fixture_wait(&fixture);
	fixture_check_met(&fixture, false);
	struct fixture other = fixture_new(&place, false);
	other.ranks[1].absent = true;
	fixture_start(&other);
	fixture_wait(&other);
	fixture_check_failed(&other, LS_PORT_TAKEN, FIXTURE_QUICK_MS,
			     FIXTURE_WORDS("choose a free MASTER_PORT",
					   "a job that has begun without this rank"));
	fixture_free(&other);
	/* The job is over. */
	fixture_free(&fixture);
	fixture = fixture_new(&place, false);
	fixture_start(&fixture);
	fixture_wait(&fixture);
	fixture_check_met(&fixture, false);
	fixture_free(&fixture);
}

/* A rank opens its group again while rank 0 has not closed its own: it waits for rank 0. */
static void test_one_comes_again_early(void **state)
{
	(void)state;
	struct rendezvous_place place = fixture_place(true, 2);
	struct fixture fixture = fixture_new(&place, false), again = fixture_new(&place, false);
	struct wait_slot_body body;
	fixture_start(&fixture);
	fixture_wait(&fixture);
	fixture_check_met(&fixture, false);
	fixture_start_rank(&again.ranks[1]);
	do
		fixture_look(&again.ranks[1], &body);
	while (body.state != WAIT_FDS);
	fixture_free(&fixture);
	fixture_start_rank(&again.ranks[0]);
	fixture_wait(&again);
	fixture_check_met(&again, false);
	fixture_free(&again);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_another_job_is_refused),
		cmocka_unit_test(test_another_job_is_counted),
		cmocka_unit_test(test_a_rank_comes_twice),
		cmocka_unit_test(test_how_long_a_job_settles),
		cmocka_unit_test(test_a_rank_ends_before_the_table),
		cmocka_unit_test(test_both_jobs_hear_of_it),
		cmocka_unit_test(test_the_port_stays_taken),
		cmocka_unit_test(test_one_comes_again_early),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
