/* SPDX-License-Identifier: BSD-3-Clause
 * The second round at the server: in a launcher's event loop, with signed cards, with ranks that
 * read nothing. And which ranks are on one host. */
#include "base/ranks.h"
#include "rendezvous/gather_fixture.h"
#include "rendezvous/server.h"

static const int sizes[] = {2, 8, RANKS_WORLD_MAX};
enum { CASES = 2 * sizeof sizes / sizeof sizes[0] };

/* ---- a launcher ---- */

static struct rendezvous_server *open_server(struct rendezvous_place *place, uint64_t limit_ms)
{
	struct rendezvous_server *server;

	assert_int_equal(rendezvous_server_open(place, clock_deadline_ns(limit_ms), &server), LS_OK);
	*place = *rendezvous_server_place(server);
	return server;
}

static void test_launcher_serves(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		struct rendezvous_place place = {.tcp = i % 2, .world_size = sizes[i / 2]};
		struct rendezvous_server *server = open_server(&place, FIXTURE_LONG_MS);
		struct fixture fixture = fixture_new_hosts(&place, true);
		fixture_start(&fixture);
		assert_int_equal(fixture_run_server(server), LS_OK);
		assert_int_equal(rendezvous_server_table(server)->size, place.world_size);
		fixture_wait(&fixture);
		fixture_check_met(&fixture, true);
		fixture_free(&fixture);
		rendezvous_server_close(server);
	}
}

/* A launcher serves: it keeps the connections until all ranks have got the failure, and no
 * longer. */
static void test_launcher_hears_of_failures(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		struct rendezvous_place place = {.tcp = i % 2, .world_size = sizes[i / 2]};
		struct rendezvous_server *server = open_server(&place, FIXTURE_LONG_MS);
		struct fixture fixture = fixture_new_hosts(&place, true);
		struct pollfd fds[RENDEZVOUS_FDS_MAX];
		int count;
		fixture.ranks[1].second = fixture_give_error;
		fixture_start(&fixture);
		assert_int_equal(fixture_run_server(server), LS_UNSUPPORTED);
		assert_non_null(strstr(rendezvous_server_text(server), "on host b: no UCX here"));
		assert_null(rendezvous_server_table(server));
		assert_false(rendezvous_server_complete(server));
		assert_int_equal(rendezvous_server_deadline_ns(server), CLOCK_NEVER);
		fixture_wait(&fixture);
		for (int rank = 0; rank < fixture.size; rank++) {
			assert_true(fixture.ranks[rank].control >= 0);
			rendezvous_close_fd(&fixture.ranks[rank].control);
		}
		while ((count = rendezvous_server_fds(server, fds, RENDEZVOUS_FDS_MAX)) > 1) {
			assert_int_equal(
				wait_fds(NULL, fds, count, -1, clock_deadline_ns(FIXTURE_QUICK_MS)),
				LS_OK);
			assert_int_equal(rendezvous_server_step(server), LS_UNSUPPORTED);
		}
		assert_int_equal(rendezvous_server_told(server), place.world_size);
		fixture_check_share_failed(&fixture, LS_UNSUPPORTED, FIXTURE_WORDS("no UCX here"));
		rendezvous_server_close(server);
	}
}

/* Two ranks, a and b, that a server has met, and that hold their tables. */
struct pair {
	struct rendezvous_server *server;
	int a, b;
};

static void meet_pair(struct pair *pair, uint64_t limit_ms)
{
	struct rendezvous_place place = {.world_size = 2};
	pair->server = open_server(&place, limit_ms);
	struct wire_hello hello = fixture_hello(&place, 0), other = fixture_hello(&place, 1);
	unsigned char waste[sizeof(struct wire_head) + WIRE_ANSWER_BYTES(2)];

	hello.host_key = 1;
	other.host_key = 2;
	pair->a = fixture_say(&place, &hello, sizeof hello);
	pair->b = fixture_say(&place, &other, sizeof other);
	for (int i = 0; i < 2; i++)
		assert_int_equal(rendezvous_server_step(pair->server), LS_OK);
	assert_int_equal(pair->server->state, SERVER_GATHERING);
	assert_int_equal(fixture_read(pair->a, waste, sizeof waste), sizeof waste);
	assert_int_equal(fixture_read(pair->b, waste, sizeof waste), sizeof waste);
}

static void end_pair(struct pair *pair)
{
	rendezvous_close_fd(&pair->a);
	rendezvous_close_fd(&pair->b);
	rendezvous_server_close(pair->server);
}

/* b as a rank of another host: it signs, and hears what is signed. */
static void test_tags(void **state)
{
	(void)state;
	struct auth_token token;
	struct auth_session session;
	unsigned char mine[RENDEZVOUS_CARD_BYTES] = {1};
	struct wire_cards cards;
	struct auth_tag tag;

	if (auth_token_open(&token) != LS_OK)
		skip(); /* no libsodium */
	auth_session_begin(&token, "hello", 5, "challenge", 9, &session);
	/* 0: right. 1: none. 2: another number. 3: the server's. 4: of another card. */
	for (int wrong = 0; wrong < 5; wrong++) {
		struct pair pair;
		struct wire_card a, b;
		meet_pair(&pair, FIXTURE_LONG_MS);
		pair.server->ranks[1].remote = true;
		pair.server->ranks[1].session = session;
		rendezvous_card_fill(&a, 0, getpid(), LS_OK, "", mine);
		rendezvous_card_fill(&b, 1, getpid(), LS_OK, "", mine);
		auth_sign(&session, wrong == 3 ? AUTH_SERVER : AUTH_CLIENT, wrong == 2 ? 2 : 1, &b,
			  sizeof b, &tag);
		if (wrong != 1)
			b.tag = tag;
		b.card[0] = wrong == 4 ? 2 : 1;
		assert_int_equal(rendezvous_send(pair.a, &a, sizeof a, -1), sizeof a);
		assert_int_equal(rendezvous_send(pair.b, &b, sizeof b, -1), sizeof b);
		size_t bytes = WIRE_CARDS_BYTES(wrong ? 0 : 2);
		assert_int_equal(rendezvous_server_step(pair.server),
				 wrong ? LS_UNTRUSTED_PEER : LS_OK);
		assert_int_equal(rendezvous_server_complete(pair.server), !wrong);
		if (wrong)
			assert_non_null(strstr(rendezvous_server_text(pair.server),
					       "is not signed with it"));
		assert_int_equal(fixture_read(pair.b, &cards, bytes), bytes);
		tag = cards.tag;
		memset(&cards.tag, 0, sizeof cards.tag);
		assert_true(auth_verify(&session, AUTH_SERVER, 2, &cards, bytes, &tag));
		assert_int_equal(fixture_read(pair.a, &cards, bytes), bytes);
		memset(&tag, 0, sizeof tag);
		assert_memory_equal(&cards.tag, &tag, sizeof tag);
		end_pair(&pair);
	}
}

/* The launcher saw the process end; ranks that come late hear the same. */
static void test_launcher_fails_the_round(void **state)
{
	(void)state;
	struct pair pair;
	struct wire_cards cards, parsed;

	meet_pair(&pair, FIXTURE_LONG_MS);
	rendezvous_server_fail(pair.server, LS_RANK_MISSING, "rank 1 (pid 7) exited with 3");
	rendezvous_server_fail(pair.server, LS_SYSTEM, "only the first cause counts");
	assert_int_equal(rendezvous_server_step(pair.server), LS_RANK_MISSING);
	assert_int_equal(fixture_read(pair.a, &cards, sizeof cards), WIRE_CARDS_BYTES(0));
	assert_int_equal(rendezvous_cards_parse(&cards, WIRE_CARDS_BYTES(0), &parsed), WIRE_WHOLE);
	assert_int_equal(parsed.status, LS_RANK_MISSING);
	assert_string_equal(parsed.text, "rank 1 (pid 7) exited with 3");
	struct wire_hello late = fixture_hello(rendezvous_server_place(pair.server), 1);
	int fd = fixture_say(rendezvous_server_place(pair.server), &late, sizeof late);
	assert_int_equal(rendezvous_server_step(pair.server), LS_RANK_MISSING);
	fixture_check_answer(fd, LS_RANK_MISSING, FIXTURE_WORDS("rank 1 (pid 7) exited with 3"));
	end_pair(&pair);
}

/* All cards are there, but one rank does not take them: the server waits a second past the
 * deadline. Of a rank that does not take its table it does not wait longer than for a card. */
static void test_bytes_are_not_taken(void **state)
{
	(void)state;
	for (int cards_come = 0; cards_come < 2; cards_come++) {
		struct rendezvous_place place = {.world_size = RANKS_WORLD_MAX};
		uint64_t began_ns = clock_now_ns();
		struct rendezvous_server *server = open_server(&place, FIXTURE_MANY_COME_MS);
		unsigned char mine[RENDEZVOUS_CARD_BYTES] = {1};
		int ranks[RANKS_WORLD_MAX], least = 1;
		for (int i = 0; i < RANKS_WORLD_MAX; i++) {
			struct wire_hello hello = fixture_hello(&place, i);
			hello.host_key = 1 + (uint64_t)i % 2;
			ranks[i] = fixture_say(&place, &hello, sizeof hello);
			if (i == 1 && !cards_come)
				assert_int_equal(setsockopt(server->ranks[0].fd, SOL_SOCKET,
							    SO_SNDBUF, &least, sizeof least),
						 0);
			assert_int_equal(rendezvous_server_step(server), LS_OK);
		}
		assert_int_equal(server->state, SERVER_GATHERING);
		assert_int_equal(rendezvous_server_met(server) != NULL, cards_come);
		for (int i = 0; i < RANKS_WORLD_MAX && cards_come; i++) {
			struct wire_card card;
			rendezvous_card_fill(&card, i, getpid(), LS_OK, "", mine);
			assert_int_equal(rendezvous_send(ranks[i], &card, sizeof card, -1),
					 sizeof card);
		}
		assert_int_equal(setsockopt(server->ranks[0].fd, SOL_SOCKET, SO_SNDBUF, &least,
					    sizeof least),
				 0);
		assert_int_equal(fixture_run_server(server), cards_come ? LS_OK : LS_RANK_MISSING);
		assert_true(clock_now_ns() - began_ns >= (uint64_t)FIXTURE_MANY_COME_MS * 1000000);
		assert_int_equal(rendezvous_server_deadline_ns(server), CLOCK_NEVER);
		assert_int_equal(server->ranks[0].fd >= 0, cards_come);
		rendezvous_server_close(server);
		for (int i = 0; i < RANKS_WORLD_MAX; i++)
			rendezvous_close_fd(&ranks[i]);
	}
}

/* ---- which hosts there are ---- */

static void test_hosts(void **state)
{
	(void)state;
	static const struct {
		uint64_t keys[4];
		const char *ips[4];
		int hosts, first[4];
	} cases[] = {
		{{0, 0, 0, 0}, {"", "", "", ""}, 1, {0, 0, 0, 0}},
		{{5, 6, 5, 6}, {"x", "x", "x", "x"}, 2, {0, 1, 0, 1}},
		{{5, 5, 5, 5}, {"x", "y", "", "x"}, 1, {0, 0, 0, 0}},
		{{0, 0, 0, 0}, {"x", "y", "x", "y"}, 2, {0, 1, 0, 1}},
		{{5, 0, 6, 0}, {"x", "y", "y", "x"}, 2, {0, 1, 1, 0}},
		{{5, 0, 0, 6}, {"x", "x", "", "x"}, 2, {0, 0, 0, 3}},
		{{0, 5, 6, 0}, {"x", "x", "x", "z"}, 2, {0, 0, 0, 3}},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct rendezvous_table table = {.size = 4};
		int first[RANKS_WORLD_MAX];
		for (int q = 0; q < 4; q++) {
			table.ranks[q].host_key = cases[i].keys[q];
			snprintf(table.ranks[q].ip, RENDEZVOUS_IP_BYTES, "%s", cases[i].ips[q]);
		}
		assert_int_equal(rendezvous_find_hosts(&table, first), cases[i].hosts);
		assert_memory_equal(first, cases[i].first, sizeof cases[i].first);
		assert_int_equal(rendezvous_has_hosts(&table), cases[i].hosts > 1);
	}
}

/* On one host there is no second round, and nobody waits for one. */
static void test_one_host(void **state)
{
	(void)state;
	struct rendezvous_place place = fixture_place(false, 3);
	struct fixture fixture = fixture_new(&place, false);

	for (int i = 0; i < 3; i++)
		fixture.ranks[i].second = fixture_give_card;
	fixture_start(&fixture);
	fixture_wait(&fixture);
	for (int i = 0; i < 3; i++) {
		fixture.ranks[i].table.size = 0;
		fixture_check_rank(&fixture.ranks[i], LS_INTERNAL, FIXTURE_WORDS("no second round"));
	}
	fixture_free(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_launcher_serves),
		cmocka_unit_test(test_launcher_hears_of_failures),
		cmocka_unit_test(test_tags),
		cmocka_unit_test(test_launcher_fails_the_round),
		cmocka_unit_test(test_bytes_are_not_taken),
		cmocka_unit_test(test_hosts),
		cmocka_unit_test(test_one_host),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
