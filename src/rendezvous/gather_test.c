/* SPDX-License-Identifier: BSD-3-Clause
 * The second round, from rank to rank: all get the cards of all, or the same error, whichever rank
 * fails, ends, is silent or sends nonsense between the rounds. */
#include "base/ranks.h"
#include "rendezvous/gather_fixture.h"

static const int sizes[] = {2, 8, RANKS_WORLD_MAX};
enum { CASES = 2 * sizeof sizes / sizeof sizes[0] };

static struct fixture new_case(int i)
{
	struct rendezvous_place place = fixture_place(i % 2, sizes[i / 2]);
	return fixture_new_hosts(&place, false);
}

static void run(struct fixture *fixture)
{
	fixture_start(fixture);
	fixture_wait(fixture);
}

static void test_all_get_all(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		struct fixture fixture = new_case(i);
		run(&fixture);
		fixture_check_met(&fixture, false);
		fixture_free(&fixture);
	}
}

/* One rank fails: the first one, which is the server, or the last one. */
static void test_one_fails(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++)
		for (int who = 0; who < 2; who++) {
			struct fixture fixture = new_case(i);
			int rank = who ? fixture.size - 1 : 0;
			char expected[80];
			snprintf(expected, sizeof expected,
				 "rank %d (pid %d) on host %s: no UCX here", rank, getpid(),
				 who ? "b" : "a");
			fixture.ranks[rank].second = fixture_give_error;
			run(&fixture);
			fixture_check_share_failed(&fixture, LS_UNSUPPORTED,
						   FIXTURE_WORDS(expected));
		}
}

static void test_one_leaves(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		struct fixture fixture = new_case(i);
		char expected[80];
		snprintf(expected, sizeof expected,
			 "rank 1 (pid %d) on host b ended or gave up after", getpid());
		fixture.ranks[1].second = NULL;
		run(&fixture);
		assert_int_equal(fixture.ranks[1].status, LS_OK);
		fixture_check_share_failed(&fixture, LS_RANK_MISSING,
					   FIXTURE_WORDS(expected, "see what it printed"));
	}
}

static void test_rank_0_leaves(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		struct fixture fixture = new_case(i);
		char expected[80];
		snprintf(expected, sizeof expected,
			 "rank 0 (pid %d), ended after all ranks had met", getpid());
		fixture.ranks[0].second = NULL;
		run(&fixture);
		assert_int_equal(fixture.ranks[0].status, LS_OK);
		fixture_check_share_failed(&fixture, LS_NO_MASTER,
					   FIXTURE_WORDS("holds the rendezvous", expected));
	}
}

/* ---- a rank that is silent ---- */

static struct fixture *silent_fixture;

/* Says nothing before the others have their answer; then it hears it as well. */
static void be_silent(struct fixture_rank *rank)
{
	const struct fixture *fixture = silent_fixture;

	for (int i = 0; i < fixture->size; i++)
		while (&fixture->ranks[i] != rank && !atomic_load(&fixture->ranks[i].done))
			if (wait_fds(NULL, NULL, 0, -1, clock_deadline_ns(2)) != LS_TIMED_OUT)
				abort();
	fixture_give_card(rank);
}

static void test_one_is_silent(void **state)
{
	(void)state;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct rendezvous_place place = fixture_place(tcp, 4);
		struct fixture fixture = fixture_new_hosts(&place, false);
		char expected[80];
		snprintf(expected, sizeof expected, "reached: rank 3 (rank 3 (pid %d) on host b)",
			 getpid());
		silent_fixture = &fixture;
		fixture.ranks[3].second = be_silent;
		fixture.ranks[2].limit_ms = FIXTURE_COME_MS; /* the least counts */
		run(&fixture);
		fixture_check_share_failed(
			&fixture, LS_RANK_MISSING,
			FIXTURE_WORDS("1 of 4 ranks met", expected, "LOCKSTEP_OPEN_TIMEOUT_MS"));
	}
}

static void on_signal(int signal)
{
	(void)signal;
}

static _Atomic int gathering;

static void give_card_aloud(struct fixture_rank *rank)
{
	atomic_fetch_add(&gathering, 1);
	fixture_give_card(rank);
}

static void test_interrupted(void **state)
{
	(void)state;
	struct sigaction action = {.sa_handler = on_signal};
	assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
	for (int who = 0; who < 2; who++) {
		struct rendezvous_place place = fixture_place(who, 4);
		struct fixture fixture = fixture_new_hosts(&place, false);
		struct fixture_rank *struck = &fixture.ranks[who];
		silent_fixture = &fixture;
		atomic_store(&gathering, 0);
		for (int i = 0; i < 3; i++)
			fixture.ranks[i].second = give_card_aloud;
		fixture.ranks[3].second = be_silent;
		fixture_start(&fixture);
		while (atomic_load(&gathering) < 3)
			assert_int_equal(wait_fds(NULL, NULL, 0, -1, clock_deadline_ns(2)),
					 LS_TIMED_OUT);
		while (!atomic_load(&struck->done)) {
			assert_int_equal(pthread_kill(struck->thread, SIGUSR1), 0);
			assert_int_equal(wait_fds(NULL, NULL, 0, -1, clock_deadline_ns(2)),
					 LS_TIMED_OUT);
		}
		fixture_wait(&fixture);
		assert_int_equal(struck->status, LS_INTERRUPTED);
		struck->second = NULL;
		char expected[80];
		snprintf(expected, sizeof expected, "rank %d (pid %d) ", who, getpid());
		fixture_check_share_failed(&fixture, LS_RANK_MISSING,
					   FIXTURE_WORDS(expected, "ended"));
	}
}

/* ---- a server that ends ---- */

static pid_t fork_server(const struct fixture *fixture)
{
	struct rendezvous_self self = fixture->ranks[0].self;
	struct rendezvous_meeting *meeting;
	struct rendezvous_table table;
	char text[RENDEZVOUS_TEXT_BYTES] = "";
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	self.me.pid = getpid();
	if (rendezvous_meet(&fixture->ranks[0].place, &self, NULL,
			    clock_deadline_ns(FIXTURE_QUICK_MS), &table, &meeting, text) == LS_OK)
		raise(SIGKILL);
	_exit(1);
}

static void test_server_is_killed(void **state)
{
	(void)state;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct rendezvous_place place = fixture_place(tcp, 3);
		struct fixture fixture = fixture_new_hosts(&place, false);
		char expected[80];
		fixture.ranks[0].absent = true;
		pid_t pid = fork_server(&fixture);
		snprintf(expected, sizeof expected,
			 "rank 0 (pid %d), ended after all ranks had met", pid);
		run(&fixture);
		assert_true(WIFSIGNALED(fixture_reap(pid)));
		fixture_check_share_failed(&fixture, LS_NO_MASTER, FIXTURE_WORDS(expected));
	}
}

/* A server that sends rank 1 of 2 a table of two hosts and, behind it, `count` bytes. */
static void serve_strangely(const void *bytes, size_t count, ls_status status, const char *words)
{
	struct rendezvous_place place = fixture_place(true, 2), bound;
	struct fixture fixture = fixture_new_hosts(&place, false);
	struct wire_hello hello;
	struct wire_answer answer;
	char text[RENDEZVOUS_TEXT_BYTES] = "";
	int listen_fd;

	fixture.ranks[0].absent = true;
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
	assert_int_equal(rendezvous_send(fd, &answer, WIRE_ANSWER_BYTES(2), -1),
			 WIRE_ANSWER_BYTES(2));
	assert_int_equal(rendezvous_send(fd, bytes, count, -1), count);
	fixture_wait(&fixture);
	fixture_check_share_failed(&fixture, status, FIXTURE_WORDS(words));
	rendezvous_close_fd(&fd);
	rendezvous_close_fd(&listen_fd);
}

static void test_strange_server(void **state)
{
	(void)state;
	static struct wire_cards cards;
	struct wire_head welcome;

	serve_strangely("HTTP/1.1", 8, LS_UNTRUSTED_PEER, "is not what Lockstep says");
	rendezvous_head_fill(&welcome, WIRE_WELCOME, sizeof welcome, 0, getpid());
	serve_strangely(&welcome, sizeof welcome, LS_UNTRUSTED_PEER, "is not what Lockstep says");
	rendezvous_head_fill(&cards.head, WIRE_CARDS, WIRE_CARDS_BYTES(3), 0, getpid());
	cards.size = 3;
	serve_strangely(&cards, WIRE_CARDS_BYTES(3), LS_UNTRUSTED_PEER, "is not of this job");
	/* What is right may come as early. */
	rendezvous_head_fill(&cards.head, WIRE_CARDS, WIRE_CARDS_BYTES(0), 0, getpid());
	cards.size = 0;
	cards.status = LS_UNSUPPORTED;
	snprintf(cards.text, sizeof cards.text, "rank 0 on host a: no network");
	serve_strangely(&cards, WIRE_CARDS_BYTES(0), LS_UNSUPPORTED, "rank 0 on host a: no network");
}

/* ---- a rank that says something else ---- */

/* Rank `rank` of host b, with the table of all in its hands. */
static int meet_raw(const struct rendezvous_place *place, int rank)
{
	struct wire_hello hello = fixture_hello(place, rank);
	struct wire_answer answer;
	size_t bytes = WIRE_ANSWER_BYTES(place->world_size);

	hello.host_key = 2;
	snprintf(hello.host, sizeof hello.host, "b");
	int fd = fixture_say(place, &hello, sizeof hello);
	assert_int_equal(fixture_read(fd, &answer.head, sizeof answer.head), sizeof answer.head);
	assert_int_equal(answer.head.kind, WIRE_WELCOME);
	assert_int_equal(fixture_read(fd, &answer, bytes), bytes);
	assert_int_equal(answer.status, LS_OK);
	return fd;
}

static _Atomic bool heard;

static void give_card_late(struct fixture_rank *rank)
{
	while (!atomic_load(&heard))
		if (wait_fds(NULL, NULL, 0, -1, clock_deadline_ns(2)) != LS_TIMED_OUT)
			abort();
	fixture_give_card(rank);
}

/* Rank 1 of 3 says `count` bytes; the others hear of it, and so does the rank. */
static void say_instead(bool tcp, const void *bytes, size_t count, ls_status status,
			const char *words)
{
	struct rendezvous_place place = fixture_place(tcp, 3);
	struct fixture fixture = fixture_new_hosts(&place, false);
	struct wire_cards cards, parsed;
	char expected[80];

	snprintf(expected, sizeof expected, "rank 1 (pid %d) on host b%s", getpid(), words);
	atomic_store(&heard, false);
	fixture.ranks[1].absent = true;
	fixture.ranks[2].second = give_card_late;
	fixture_start(&fixture);
	int fd = meet_raw(&place, 1);
	assert_int_equal(rendezvous_send(fd, bytes, count, -1), count);
	assert_int_equal(fixture_read(fd, &cards, WIRE_CARDS_BYTES(0)), WIRE_CARDS_BYTES(0));
	assert_int_equal(rendezvous_cards_parse(&cards, WIRE_CARDS_BYTES(0), &parsed), WIRE_WHOLE);
	assert_int_equal(parsed.status, status);
	rendezvous_close_fd(&fd);
	atomic_store(&heard, true);
	fixture_wait(&fixture);
	assert_string_equal(parsed.text, fixture.ranks[0].text);
	fixture_check_share_failed(&fixture, status, FIXTURE_WORDS(expected));
}

static void test_nonsense(void **state)
{
	(void)state;
	struct rendezvous_place place = {.world_size = 3};
	struct wire_hello hello = fixture_hello(&place, 1);
	unsigned char mine[RENDEZVOUS_CARD_BYTES] = {1};
	struct wire_card cards[2], bad;
	const char *nonsense = " said something that Lockstep does not understand";

	rendezvous_card_fill(&cards[0], 1, getpid(), LS_OK, "", mine);
	cards[1] = cards[0];
	for (int tcp = 0; tcp < 2; tcp++) {
		say_instead(tcp, "G", 1, LS_UNTRUSTED_PEER, nonsense);
		say_instead(tcp, &hello, sizeof hello, LS_UNTRUSTED_PEER, nonsense);
		say_instead(tcp, cards, sizeof cards, LS_UNTRUSTED_PEER, nonsense);
		bad = cards[0];
		bad.head.rank = 2; /* another one's */
		say_instead(tcp, &bad, sizeof bad, LS_UNTRUSTED_PEER, nonsense);
		bad = cards[0];
		bad.head.version[0]++;
		say_instead(tcp, &bad, sizeof bad, LS_UNTRUSTED_PEER, nonsense);
		bad = cards[0];
		bad.status = LS_UNREACHABLE + 1;
		say_instead(tcp, &bad, sizeof bad, LS_UNTRUSTED_PEER, nonsense);
	}
	/* And a proper error without a reason. */
	rendezvous_card_fill(&bad, 1, getpid(), LS_OUT_OF_MEMORY, "", mine);
	say_instead(true, &bad, sizeof bad, LS_OUT_OF_MEMORY, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_get_all),      cmocka_unit_test(test_one_fails),
		cmocka_unit_test(test_one_leaves),       cmocka_unit_test(test_rank_0_leaves),
		cmocka_unit_test(test_one_is_silent),    cmocka_unit_test(test_interrupted),
		cmocka_unit_test(test_server_is_killed), cmocka_unit_test(test_strange_server),
		cmocka_unit_test(test_nonsense),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
