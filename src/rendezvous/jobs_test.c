/* SPDX-License-Identifier: BSD-3-Clause
 * Two jobs of one user at one port: what tells them apart, and what the ranks of the second get. */
#include "rendezvous/rendezvous_fixture.h"

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

/* As long as a job runs that has met at a port, rank 0 of no other can listen there. */
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
		cmocka_unit_test(test_the_port_stays_taken),
		cmocka_unit_test(test_one_comes_again_early),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
