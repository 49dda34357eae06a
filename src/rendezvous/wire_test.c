/* SPDX-License-Identifier: BSD-3-Clause
 * The parsers: what is complete, what is not yet, and what can never be. */
#include "base/ranks.h"
#include "rendezvous/rendezvous_fixture.h"

static struct rendezvous_place place = {.world_size = 4};

static enum wire_check parse(const struct wire_hello *hello)
{
	struct wire_hello out;
	return rendezvous_hello_parse(hello, sizeof *hello, &out);
}

static void test_hello_comes_whole(void **state)
{
	(void)state;
	struct wire_hello hello = fixture_hello(&place, 2), out;

	for (size_t got = 0; got < sizeof hello; got++)
		assert_int_equal(rendezvous_hello_parse(&hello, got, &out), WIRE_MORE);
	assert_int_equal(rendezvous_hello_parse(&hello, sizeof hello, &out), WIRE_WHOLE);
	assert_memory_equal(&hello, &out, sizeof out);
}

static void test_hello_is_checked(void **state)
{
	(void)state;
	struct wire_hello good = fixture_hello(&place, 2), hello;

#define REFUSED(check, change)                          \
	do {                                            \
		hello = good;                           \
		change;                                 \
		assert_int_equal(parse(&hello), check); \
	} while (0)
	for (int i = 0; i < WIRE_MAGIC_BYTES; i++)
		REFUSED(WIRE_NONSENSE, hello.head.magic[i] ^= 1);
	REFUSED(WIRE_NONSENSE, hello.head.byte_order = 0x01020403);
	REFUSED(WIRE_OTHER, hello.head.byte_order = 0x04030201);
	REFUSED(WIRE_OTHER, hello.head.protocol++);
	REFUSED(WIRE_OTHER, hello.head.version[0]++);
	REFUSED(WIRE_OTHER, memset(hello.head.version, 'x', sizeof hello.head.version));
	REFUSED(WIRE_NONSENSE, hello.head.kind = WIRE_ANSWER);
	REFUSED(WIRE_NONSENSE, hello.head.bytes++);
	REFUSED(WIRE_NONSENSE, hello.head.rank = -1);
	REFUSED(WIRE_NONSENSE, hello.head.rank = 4);
	REFUSED(WIRE_NONSENSE, hello.head.pid = 0);
	REFUSED(WIRE_NONSENSE, hello.world_size = 0);
	REFUSED(WIRE_NONSENSE, hello.world_size = INT32_MIN);
	REFUSED(WIRE_NONSENSE, memset(hello.host, 'x', sizeof hello.host));
	REFUSED(WIRE_NONSENSE, hello.host[0] = '\033');
	REFUSED(WIRE_NONSENSE, memset(hello.address, 'x', sizeof hello.address));
	REFUSED(WIRE_NONSENSE, hello.address[0] = '\n');
	REFUSED(WIRE_WHOLE, hello.remaining_ms = UINT64_MAX);
#undef REFUSED
}

/* Nonsense is known from its first wrong byte. */
static void test_nonsense_at_once(void **state)
{
	(void)state;
	struct wire_hello hello;
	struct wire_answer answer;
	assert_int_equal(rendezvous_hello_parse("G", 1, &hello), WIRE_NONSENSE);
	assert_int_equal(rendezvous_hello_parse("LSRDW", 5, &hello), WIRE_NONSENSE);
	assert_int_equal(rendezvous_reply_parse("H", 1, &answer), WIRE_NONSENSE);
	assert_int_equal(rendezvous_reply_parse("LSRDV", 5, &answer), WIRE_MORE);
}

/* `out` is a pointer because copies of the answer and the cards of the largest job outgrow a stack
 * under AddressSanitizer. */
static void fill_good_answer(struct wire_answer *out, int size)
{
	memset(out, 0, sizeof *out);
	rendezvous_head_fill(&out->head, WIRE_ANSWER, WIRE_ANSWER_BYTES(size), 0, 1);
	out->size = size;
	out->status = size == 0 ? LS_RANK_MISSING : LS_OK;
	out->job = 1;
	for (int i = 0; i < size; i++)
		out->ranks[i].pid = i + 1;
}

static void test_answer_comes_whole(void **state)
{
	(void)state;
	static const int sizes[] = {0, 1, 5, RANKS_WORLD_MAX};
	static struct wire_answer answer, out;
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		fill_good_answer(&answer, sizes[i]);
		size_t bytes = WIRE_ANSWER_BYTES(sizes[i]);
		for (size_t got = 0; got < bytes; got++)
			assert_int_equal(rendezvous_reply_parse(&answer, got, &out), WIRE_MORE);
		assert_int_equal(rendezvous_reply_parse(&answer, bytes, &out), WIRE_WHOLE);
		assert_memory_equal(&answer, &out, sizeof out);
	}
	struct wire_head welcome;
	rendezvous_head_fill(&welcome, WIRE_WELCOME, sizeof welcome, WIRE_LAUNCHER, 9);
	assert_int_equal(rendezvous_reply_parse(&welcome, sizeof welcome - 1, &out), WIRE_MORE);
	assert_int_equal(rendezvous_reply_parse(&welcome, sizeof welcome, &out), WIRE_WHOLE);
	assert_int_equal(out.head.kind, WIRE_WELCOME);
}

static void test_answer_is_checked(void **state)
{
	(void)state;
	static struct wire_answer answer, out;

#define REFUSED(size_given, change)                                                    \
	do {                                                                           \
		fill_good_answer(&answer, size_given);                                 \
		change;                                                                \
		assert_int_equal(rendezvous_reply_parse(&answer, sizeof answer, &out), \
				 WIRE_NONSENSE);                                       \
	} while (0)
	REFUSED(3, answer.head.kind = WIRE_HELLO);
	REFUSED(3, answer.head.kind = 4);
	REFUSED(3, answer.head.bytes++);
	REFUSED(3, answer.head.bytes = UINT32_MAX);
	REFUSED(3, answer.head.bytes = 0);
	REFUSED(3, answer.head.rank = -2);
	REFUSED(3, answer.head.pid = 0);
	REFUSED(3, answer.size = 4);
	REFUSED(3, answer.size = -1);
	REFUSED(3, answer.size = INT32_MAX);
	REFUSED(3, answer.status = LS_RANK_MISSING);
	REFUSED(0, answer.status = LS_OK);
	REFUSED(0, answer.status = LS_UNREACHABLE + 1);
	REFUSED(0, answer.status = -1);
	REFUSED(0, answer.text[3] = answer.text[2] = answer.text[1] = answer.text[0] = '\n');
	REFUSED(0, memset(answer.text, 'x', sizeof answer.text));
	REFUSED(3, answer.job = 0);
	REFUSED(3, answer.ranks[2].pid = 0);
	REFUSED(3, memset(answer.ranks[1].address, 'x', sizeof answer.ranks[1].address));
	REFUSED(3, answer.ranks[0].host[0] = '\177');
#undef REFUSED
}

static struct wire_card good_card(ls_status status)
{
	static const unsigned char bytes[RENDEZVOUS_CARD_BYTES] = {1, 2, 3};
	struct wire_card card;
	rendezvous_card_fill(&card, 2, 7, status, "no\x7f device", bytes);
	return card;
}

static void test_card_is_checked(void **state)
{
	(void)state;
	struct wire_card card = good_card(LS_OK), out;

	for (size_t got = 0; got < sizeof card; got++)
		assert_int_equal(rendezvous_card_parse(&card, got, &out), WIRE_MORE);
	assert_int_equal(rendezvous_card_parse(&card, sizeof card, &out), WIRE_WHOLE);
	assert_memory_equal(&card, &out, sizeof out);
	assert_string_equal(card.reason, "");
	card = good_card(LS_UNSUPPORTED);
	assert_int_equal(rendezvous_card_parse(&card, sizeof card, &out), WIRE_WHOLE);
	assert_string_equal(out.reason, "no? device");
	assert_int_equal(out.card[0], 0);
#define REFUSED(status_given, change)                                                             \
	do {                                                                                      \
		card = good_card(status_given);                                                   \
		change;                                                                           \
		assert_int_equal(rendezvous_card_parse(&card, sizeof card, &out), WIRE_NONSENSE); \
	} while (0)
	REFUSED(LS_OK, card.head.kind = WIRE_HELLO);
	REFUSED(LS_OK, card.head.bytes--);
	REFUSED(LS_OK, card.zero = 1);
	REFUSED(LS_OK, card.status = -1);
	REFUSED(LS_OK, card.status = LS_UNREACHABLE + 1);
	REFUSED(LS_OK, card.reason[0] = 'x');
	REFUSED(LS_UNSUPPORTED, card.reason[0] = '\n');
	REFUSED(LS_UNSUPPORTED, memset(card.reason, 'x', sizeof card.reason));
	REFUSED(LS_UNSUPPORTED, card.status = LS_OK);
#undef REFUSED
}

static struct wire_parted good_parted(ls_status status)
{
	struct wire_parted parted;
	rendezvous_parted_fill(&parted, 0, 7, status, "no\x7f device");
	return parted;
}

static void test_parted_is_checked(void **state)
{
	(void)state;
	struct wire_parted parted = good_parted(LS_OK), out;

	for (size_t got = 0; got < sizeof parted; got++)
		assert_int_equal(rendezvous_parted_parse(&parted, got, &out), WIRE_MORE);
	assert_int_equal(rendezvous_parted_parse(&parted, sizeof parted, &out), WIRE_WHOLE);
	assert_memory_equal(&parted, &out, sizeof out);
	assert_string_equal(parted.reason, "");
	parted = good_parted(LS_UNSUPPORTED);
	assert_int_equal(rendezvous_parted_parse(&parted, sizeof parted, &out), WIRE_WHOLE);
	assert_string_equal(out.reason, "no? device");
#define REFUSED(status_given, change)                                                   \
	do {                                                                            \
		parted = good_parted(status_given);                                     \
		change;                                                                 \
		assert_int_equal(rendezvous_parted_parse(&parted, sizeof parted, &out), \
				 WIRE_NONSENSE);                                        \
	} while (0)
	REFUSED(LS_OK, parted.head.kind = WIRE_CARD);
	REFUSED(LS_OK, parted.head.bytes++);
	REFUSED(LS_OK, parted.zero = 1);
	REFUSED(LS_OK, parted.status = -1);
	REFUSED(LS_OK, parted.status = LS_UNREACHABLE + 1);
	REFUSED(LS_OK, parted.reason[0] = 'x');
	REFUSED(LS_UNSUPPORTED, parted.reason[0] = '\n');
	REFUSED(LS_UNSUPPORTED, memset(parted.reason, 'x', sizeof parted.reason));
	REFUSED(LS_UNSUPPORTED, parted.status = LS_OK);
#undef REFUSED
}

static void fill_good_cards(struct wire_cards *out, int size)
{
	memset(out, 0, sizeof *out);
	rendezvous_head_fill(&out->head, WIRE_CARDS, WIRE_CARDS_BYTES(size), WIRE_LAUNCHER, 1);
	out->size = size;
	out->status = size == 0 ? LS_UNSUPPORTED : LS_OK;
}

static void test_cards_are_checked(void **state)
{
	(void)state;
	static const int sizes[] = {0, 1, 5, RANKS_WORLD_MAX};
	static struct wire_cards cards, out;

	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		size_t bytes = WIRE_CARDS_BYTES(sizes[i]);
		fill_good_cards(&cards, sizes[i]);
		cards.cards[0][0] = 9;
		for (size_t got = 0; got < bytes; got += got < 200 ? 1 : 64)
			assert_int_equal(rendezvous_cards_parse(&cards, got, &out), WIRE_MORE);
		assert_int_equal(rendezvous_cards_parse(&cards, bytes, &out), WIRE_WHOLE);
		assert_memory_equal(&cards, &out, bytes);
	}
#define REFUSED(size_given, change)                                                  \
	do {                                                                         \
		fill_good_cards(&cards, size_given);                                 \
		change;                                                              \
		assert_int_equal(rendezvous_cards_parse(&cards, sizeof cards, &out), \
				 WIRE_NONSENSE);                                     \
	} while (0)
	REFUSED(3, cards.head.kind = WIRE_CARD);
	REFUSED(3, cards.head.bytes++);
	REFUSED(3, cards.head.bytes = UINT32_MAX);
	REFUSED(3, cards.head.bytes = 0);
	REFUSED(3, cards.head.rank = -2);
	REFUSED(3, cards.head.pid = 0);
	REFUSED(3, cards.size = 4);
	REFUSED(3, cards.size = -1);
	REFUSED(3, cards.size = INT32_MAX);
	REFUSED(3, cards.status = LS_UNSUPPORTED);
	REFUSED(0, cards.status = LS_OK);
	REFUSED(0, cards.status = LS_UNREACHABLE + 1);
	REFUSED(0, cards.status = -1);
	REFUSED(0, cards.text[0] = '\n');
	REFUSED(0, memset(cards.text, 'x', sizeof cards.text));
#undef REFUSED
}

static void test_words(void **state)
{
	(void)state;
	static const bool in[] = {true, false, true, true, false, true, true, true};
	char text[RENDEZVOUS_TEXT_BYTES] = "";
	rendezvous_text_ranks(text, in, 8, true);
	assert_string_equal(text, "0, 2, 3, 5-7");
	text[0] = '\0';
	rendezvous_text_ranks(text, in, 8, false);
	assert_string_equal(text, "1, 4");
	for (int i = 0; i < 100; i++)
		rendezvous_text_add(text, "%s", "0123456789");
	assert_int_equal(strlen(text), sizeof text - 1);

	char out[4];
	rendezvous_copy_printable(out, sizeof out, "a\tbcd", 5);
	assert_string_equal(out, "a?b");
	rendezvous_copy_printable(out, sizeof out, "\200", 1);
	assert_string_equal(out, "?");
	assert_true(rendezvous_is_printable("abc", 4));
	assert_false(rendezvous_is_printable("abc", 3));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hello_comes_whole), cmocka_unit_test(test_hello_is_checked),
		cmocka_unit_test(test_nonsense_at_once),  cmocka_unit_test(test_answer_comes_whole),
		cmocka_unit_test(test_answer_is_checked), cmocka_unit_test(test_words),
		cmocka_unit_test(test_card_is_checked),   cmocka_unit_test(test_cards_are_checked),
		cmocka_unit_test(test_parted_is_checked),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
