/* SPDX-License-Identifier: BSD-3-Clause
 * After the second round the ranks connect: what they tell rank 0 of that, what rank 0 tells all,
 * and what they get if one ends without a word. */
#include "rendezvous/gather_fixture.h"

enum { SIZE = 4, FAULTY = 2 };

static _Atomic int told;          /* ranks that have said how they got connected */
static _Atomic bool first_faulty; /* rank 1 is not connected before the faulty rank is gone */

static struct fixture new_job(int tcp)
{
	struct rendezvous_place place = fixture_place(tcp, SIZE);
	struct fixture fixture = fixture_new_hosts(&place, false);
	atomic_store(&told, 0);
	return fixture;
}

/* Until the result is known, or for the server until all have said that they are connected. */
static void hear(struct fixture_rank *rank)
{
	struct pollfd fds[SIZE];
	bool over = false;
	for (;;) {
		rank->status = rendezvous_listen_to(rank->meeting, &over, rank->text);
		if (rank->status != LS_OK || over)
			return;
		int count = rendezvous_poll(rank->meeting, fds, SIZE);
		if (wait_fds(NULL, fds, count, -1, clock_deadline_ns(FIXTURE_LONG_MS)) != LS_OK)
			abort();
	}
}

static void await_told(int count)
{
	while (atomic_load(&told) < count)
		if (wait_fds(NULL, NULL, 0, -1, clock_deadline_ns(2)) != LS_TIMED_OUT)
			abort();
}

static void connect_well(struct fixture_rank *rank)
{
	fixture_give_card(rank);
	if (rank->status != LS_OK)
		return;
	if (rank->place.rank == 0) {
		hear(rank);
		rendezvous_part(rank->meeting, rank->status, rank->text);
		rendezvous_part(rank->meeting, LS_UNSUPPORTED, "nobody hears this");
		return;
	}
	while (rank->place.rank == 1 && atomic_load(&first_faulty))
		if (wait_fds(NULL, NULL, 0, -1, clock_deadline_ns(2)) != LS_TIMED_OUT)
			abort();
	rendezvous_part(rank->meeting, LS_OK, "what was said before");
	atomic_fetch_add(&told, 1);
	hear(rank);
}

/* The others have been connected. */
static void end_late(struct fixture_rank *rank)
{
	fixture_give_card(rank);
	await_told(SIZE - 2);
}

static void end_after_its_word(struct fixture_rank *rank)
{
	fixture_give_card(rank);
	rendezvous_part(rank->meeting, LS_OK, "");
	rendezvous_close_fd(&rank->meeting->client.fd);
	atomic_store(&first_faulty, false);
}

static void end_early(struct fixture_rank *rank)
{
	fixture_give_card(rank);
}

static void fail_early(struct fixture_rank *rank)
{
	fixture_give_card(rank);
	rendezvous_part(rank->meeting, LS_OUT_OF_MEMORY, "no\nmemory");
}

static void give_up_after_its_word(struct fixture_rank *rank)
{
	fixture_give_card(rank);
	rendezvous_part(rank->meeting, LS_OK, "");
	rendezvous_part(rank->meeting, LS_OUT_OF_MEMORY, "no\nmemory");
	atomic_store(&first_faulty, false);
}

static void rank_0_fails(struct fixture_rank *rank)
{
	fixture_give_card(rank);
	await_told(SIZE - 1);
	rendezvous_part(rank->meeting, LS_OUT_OF_MEMORY, "no\nmemory");
}

static void rank_0_ends(struct fixture_rank *rank)
{
	fixture_give_card(rank);
	await_told(SIZE - 1);
}

/* Runs all ranks; the faulty one calls `instead` where the others connect. */
static void run(struct fixture *fixture, int faulty, void (*instead)(struct fixture_rank *))
{
	for (int i = 0; i < SIZE; i++)
		fixture->ranks[i].second = i == faulty ? instead : connect_well;
	fixture_start(fixture);
	fixture_wait(fixture);
}

static void test_all_is_well(void **state)
{
	(void)state;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct fixture fixture = new_job(tcp);
		run(&fixture, -1, NULL);
		fixture_check_met(&fixture, false);
		fixture_free(&fixture);
	}
}

/* All others, also rank 0, get an error with these words. */
static void check_failed(struct fixture *fixture, int faulty, ls_status status, const char *words)
{
	for (int i = 0; i < SIZE; i++) {
		struct fixture_rank *rank = &fixture->ranks[i];
		if (i == faulty)
			continue;
		assert_in_range(rank->took_ms, 0, FIXTURE_QUICK_MS);
		rank->table.size = 0;
		rendezvous_close_fd(&rank->control); /* rank 0 has had a port */
		fixture_check_rank(rank, status, FIXTURE_WORDS(words));
	}
	fixture_free(fixture);
}

static void test_one_ends(void **state)
{
	static void (*const ends[])(struct fixture_rank *) = {end_early, end_late,
							      end_after_its_word};
	(void)state;
	for (int i = 0; i < 6; i++) {
		struct fixture fixture = new_job(i % 2);
		char expected[128];
		snprintf(expected, sizeof expected,
			 "rank %d (pid %d) on host a ended or gave up after all ranks had met",
			 FAULTY, getpid());
		atomic_store(&first_faulty, ends[i / 2] == end_after_its_word);
		run(&fixture, FAULTY, ends[i / 2]);
		check_failed(&fixture, FAULTY, LS_RANK_MISSING, expected);
	}
}

static void test_one_fails(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		struct fixture fixture = new_job(i % 2);
		char expected[128];
		snprintf(expected, sizeof expected,
			 "rank %d (pid %d) on host a could not be connected to all ranks: no?memory",
			 FAULTY, getpid());
		atomic_store(&first_faulty, i / 2);
		run(&fixture, FAULTY, i / 2 ? give_up_after_its_word : fail_early);
		check_failed(&fixture, FAULTY, LS_OUT_OF_MEMORY, expected);
	}
}

static void be_interrupted(struct fixture_rank *rank)
{
	fixture_give_card(rank);
	rendezvous_part(rank->meeting, LS_INTERRUPTED, "");
}

/* A signal handler has ended the wait of one rank. The others were not interrupted. */
static void test_one_is_interrupted(void **state)
{
	(void)state;
	for (int faulty = 0; faulty <= FAULTY; faulty += FAULTY) {
		struct fixture fixture = new_job(1);
		char expected[128];
		snprintf(expected, sizeof expected, "rank %d (pid %d)", faulty, getpid());
		run(&fixture, faulty, be_interrupted);
		check_failed(&fixture, faulty, LS_RANK_MISSING, expected);
	}
}

/* All others give up at once, so that rank 0 may find their words and their ends in one look: none
 * counts as one that ended without a word. */
static void fail_and_go(struct fixture_rank *rank)
{
	fixture_give_card(rank);
	rendezvous_part(rank->meeting, LS_OUT_OF_MEMORY, "no\nmemory");
	rendezvous_close_fd(&rank->meeting->client.fd);
	atomic_fetch_add(&told, 1);
}

static void hear_late(struct fixture_rank *rank)
{
	fixture_give_card(rank);
	await_told(SIZE - 1);
	hear(rank);
}

static void test_all_fail(void **state)
{
	(void)state;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct fixture fixture = new_job(tcp);
		for (int i = 0; i < SIZE; i++)
			fixture.ranks[i].second = i ? fail_and_go : hear_late;
		fixture_start(&fixture);
		fixture_wait(&fixture);
		fixture.ranks[0].table.size = 0;
		rendezvous_close_fd(&fixture.ranks[0].control);
		fixture_check_rank(&fixture.ranks[0], LS_OUT_OF_MEMORY,
				   FIXTURE_WORDS("rank 1 (pid", "no?memory"));
		fixture_free(&fixture);
	}
}

static void test_rank_0_fails(void **state)
{
	(void)state;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct fixture fixture = new_job(tcp);
		char expected[128];
		snprintf(expected, sizeof expected,
			 "rank 0 (pid %d) could not be connected to all ranks: no?memory", getpid());
		run(&fixture, 0, rank_0_fails);
		check_failed(&fixture, 0, LS_OUT_OF_MEMORY, expected);
	}
}

static void test_rank_0_ends(void **state)
{
	(void)state;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct fixture fixture = new_job(tcp);
		char expected[80];
		snprintf(expected, sizeof expected,
			 "rank 0 (pid %d), ended after all ranks had met", getpid());
		run(&fixture, 0, rank_0_ends);
		check_failed(&fixture, 0, LS_NO_MASTER, expected);
	}
}

/* A server that sends rank 1 of 2 the table and the cards, and behind them something else. */
static void say_instead(const void *bytes, size_t count)
{
	static struct wire_cards cards;
	struct rendezvous_place place = fixture_place(true, 2), bound;
	struct fixture fixture = fixture_new_hosts(&place, false);
	struct wire_hello hello;
	struct wire_answer answer;
	char text[RENDEZVOUS_TEXT_BYTES] = "";
	int listen_fd;

	fixture.ranks[0].absent = true;
	fixture.ranks[1].second = connect_well;
	assert_int_equal(rendezvous_listen(&place, &bound, &listen_fd, text), LS_OK);
	fixture_start(&fixture);
	int fd = fixture_accept(listen_fd);
	assert_int_equal(fixture_read(fd, &hello, sizeof hello), sizeof hello);
	memset(&answer, 0, sizeof answer);
	rendezvous_head_fill(&answer.head, WIRE_ANSWER, WIRE_ANSWER_BYTES(2), 0, getpid());
	answer.size = 2;
	answer.job = 1;
	for (int i = 0; i < 2; i++)
		answer.ranks[i] = fixture.ranks[i].self.me;
	rendezvous_head_fill(&cards.head, WIRE_CARDS, WIRE_CARDS_BYTES(2), 0, getpid());
	cards.size = 2;
	for (int i = 0; i < 2; i++)
		fixture_fill_card(i, cards.cards[i]);
	assert_int_equal(rendezvous_send(fd, &answer, WIRE_ANSWER_BYTES(2), -1),
			 WIRE_ANSWER_BYTES(2));
	assert_int_equal(rendezvous_send(fd, &cards, WIRE_CARDS_BYTES(2), -1), WIRE_CARDS_BYTES(2));
	assert_int_equal(rendezvous_send(fd, bytes, count, -1), count);
	fixture_wait(&fixture);
	fixture_check_share_failed(&fixture, LS_UNTRUSTED_PEER,
				   FIXTURE_WORDS("is not what Lockstep says"));
	rendezvous_close_fd(&fd);
	rendezvous_close_fd(&listen_fd);
}

static void test_nonsense(void **state)
{
	struct wire_parted parted;
	(void)state;
	say_instead("HTTP/1.1", 8);
	rendezvous_parted_fill(&parted, 0, getpid(), LS_OK, "");
	parted.status = LS_UNREACHABLE + 1;
	say_instead(&parted, sizeof parted);
}

/* The bytes that rank 2 sends in the place of its message. */
static const void *instead;
static size_t instead_bytes;

static void speak_otherwise(struct fixture_rank *rank)
{
	fixture_give_card(rank);
	if (rendezvous_send(rank->meeting->client.fd, instead, instead_bytes, -1) !=
	    (ssize_t)instead_bytes)
		abort();
	hear(rank);
}

static void test_nonsense_from_a_rank(void **state)
{
	struct wire_parted of_another;
	(void)state;
	rendezvous_parted_fill(&of_another, 1, getpid(), LS_OK, "");
	for (int i = 0; i < 4; i++) {
		struct fixture fixture = new_job(i % 2);
		instead = i / 2 ? (const void *)&of_another : "HTTP/1.1";
		instead_bytes = i / 2 ? sizeof of_another : 8;
		run(&fixture, FAULTY, speak_otherwise);
		check_failed(&fixture, FAULTY, LS_UNTRUSTED_PEER, "is not what Lockstep says");
	}
}

/* Time is up: each rank says for whom it waits. */
static void be_late(struct fixture_rank *rank)
{
	fixture_give_card(rank);
	await_told(1);
}

static void lose_patience(struct fixture_rank *rank)
{
	fixture_give_card(rank);
	rank->status = rendezvous_server_give_up(rank->meeting->server, rank->text);
	atomic_fetch_add(&told, 1);
}

static void test_time_is_up(void **state)
{
	(void)state;
	struct fixture fixture = new_job(1);
	for (int i = 0; i < SIZE; i++)
		fixture.ranks[i].second = i ? be_late : lose_patience;
	fixture_start(&fixture);
	fixture_wait(&fixture);
	fixture.ranks[0].table.size = 0;
	rendezvous_close_fd(&fixture.ranks[0].control);
	fixture_check_rank(&fixture.ranks[0], LS_RANK_MISSING,
			   FIXTURE_WORDS("in time: 1-3 (rank 1 (pid", "on host b", "stopped"));
	fixture_free(&fixture);
}

/* Nobody is to be heard where there is no second round, and nobody to be told without a meeting. */
static void test_nothing_to_hear(void **state)
{
	struct rendezvous_meeting none = {.size = 1};
	struct pollfd fds;
	bool over = false;
	(void)state;
	none.client.fd = -1;
	assert_int_equal(rendezvous_poll(&none, &fds, 1), 0);
	assert_int_equal(rendezvous_hear(&none, &over), LS_OK);
	assert_true(over);
	rendezvous_part(&none, LS_OK, "");
	rendezvous_part(NULL, LS_OK, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_is_well),
		cmocka_unit_test(test_one_ends),
		cmocka_unit_test(test_one_fails),
		cmocka_unit_test(test_rank_0_fails),
		cmocka_unit_test(test_rank_0_ends),
		cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_nonsense_from_a_rank),
		cmocka_unit_test(test_time_is_up),
		cmocka_unit_test(test_nothing_to_hear),
		cmocka_unit_test(test_one_is_interrupted),
		cmocka_unit_test(test_all_fail),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
