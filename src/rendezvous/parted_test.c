/* SPDX-License-Identifier: BSD-3-Clause
 * After the second round the ranks connect: what rank 0 reports of that to the others, and what
 * they get if it ends without a report. */
#include "rendezvous/gather_fixture.h"

enum { SIZE = 4 };

static _Atomic int waiting; /* ranks that wait for a word of rank 0 */

static struct fixture new_job(int tcp)
{
	struct rendezvous_place place = fixture_place(tcp, SIZE);
	struct fixture fixture = fixture_new_hosts(&place, false);
	atomic_store(&waiting, 0);
	return fixture;
}

/* As rendezvous_hear, with the text for the test. */
static ls_status hear(struct fixture_rank *rank)
{
	bool over;
	rank->meeting->client.text = rank->text;
	ls_status status = rendezvous_client_hear(&rank->meeting->client, &over);
	rank->meeting->hears = !over;
	return status;
}

static void give_card_and_hear(struct fixture_rank *rank)
{
	fixture_give_card(rank);
	if (rank->status == LS_OK)
		rank->status = hear(rank);
	atomic_fetch_add(&waiting, 1);
	while (rank->status == LS_OK && rendezvous_ear(rank->meeting) >= 0) {
		if (!fixture_ready(rendezvous_ear(rank->meeting), POLLIN))
			abort();
		rank->status = hear(rank);
	}
}

/* Rank 0 waits until all others hear nothing yet. */
static void give_card_first(struct fixture_rank *rank)
{
	fixture_give_card(rank);
	if (rendezvous_ear(rank->meeting) != -1)
		abort();
	while (atomic_load(&waiting) < SIZE - 1)
		if (wait_fds(NULL, NULL, 0, -1, clock_deadline_ns(2)) != LS_TIMED_OUT)
			abort();
}

static void part_well(struct fixture_rank *rank)
{
	give_card_first(rank);
	rendezvous_part(rank->meeting, LS_OK, "what was said before");
}

/* At once, so that it may come together with the cards. */
static void part_early(struct fixture_rank *rank)
{
	fixture_give_card(rank);
	rendezvous_part(rank->meeting, LS_OK, "");
}

static void part_badly(struct fixture_rank *rank)
{
	give_card_first(rank);
	rendezvous_part(rank->meeting, LS_OUT_OF_MEMORY, "no\nmemory");
}

static void run(struct fixture *fixture, void (*first)(struct fixture_rank *))
{
	for (int i = 0; i < SIZE; i++)
		fixture->ranks[i].second = i == 0 ? first : give_card_and_hear;
	fixture_start(fixture);
	fixture_wait(fixture);
	assert_int_equal(fixture->ranks[0].status, LS_OK);
}

static void test_all_is_well(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		struct fixture fixture = new_job(i % 2);
		run(&fixture, i / 2 ? part_early : part_well);
		fixture_check_met(&fixture, false);
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
		run(&fixture, part_badly);
		fixture.ranks[0].second = NULL;
		fixture_check_share_failed(&fixture, LS_OUT_OF_MEMORY, FIXTURE_WORDS(expected));
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
		run(&fixture, give_card_first);
		fixture.ranks[0].second = NULL;
		fixture_check_share_failed(&fixture, LS_NO_MASTER, FIXTURE_WORDS(expected));
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
	fixture.ranks[1].second = give_card_and_hear;
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

/* Nobody is to be heard where there is no second round, and nobody to be told without a meeting. */
static void test_nothing_to_hear(void **state)
{
	struct rendezvous_meeting none = {.size = 1};
	(void)state;
	none.client.fd = -1;
	assert_int_equal(rendezvous_ear(&none), -1);
	assert_int_equal(rendezvous_hear(&none), LS_OK);
	rendezvous_part(&none, LS_OK, "");
	rendezvous_part(NULL, LS_OK, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_is_well),     cmocka_unit_test(test_rank_0_fails),
		cmocka_unit_test(test_rank_0_ends),     cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_nothing_to_hear),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
