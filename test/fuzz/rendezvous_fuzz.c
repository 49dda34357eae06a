/* SPDX-License-Identifier: BSD-3-Clause
 * Fuzz entry: the parsers get the bytes whole and in pieces, and a live server gets them over a
 * socket. The first byte chooses. Its lowest bit: the rest changes a valid struct, so that checks
 * behind the magic number are reached, too. The next bit: TCP. The third: another user. A server in
 * the second round gets the bytes from a rank that it knows. */
#include "fuzz.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/ranks.h"
#include "rendezvous/meet.h"

enum { WORLD_SIZE = 4 };

struct input {
	size_t size;
	_Alignas(8) uint8_t bytes[sizeof(struct wire_cards)];
};

static void make_hello(struct wire_hello *out)
{
	struct rendezvous_place place = {.rank = 1, .world_size = WORLD_SIZE};
	struct rendezvous_self self = {.me = {.pid = 5, .uid = geteuid()}, .trace_fd = -1};
	rendezvous_hello_fill(out, &place, &self, 1000000, 0);
}

static void make_answer(struct wire_answer *out)
{
	memset(out, 0, sizeof *out);
	rendezvous_head_fill(&out->head, WIRE_ANSWER, WIRE_ANSWER_BYTES(WORLD_SIZE), 0, 1);
	out->size = WORLD_SIZE;
	out->job = 7;
	for (int i = 0; i < WORLD_SIZE; i++)
		out->ranks[i].pid = i + 1;
}

/* data: bytes; or pairs of (position, difference) that change a valid struct. */
static void make_input(struct input *out, const void *valid, size_t valid_bytes,
		       const uint8_t *data, size_t size)
{
	if (!valid) {
		out->size = size < sizeof out->bytes ? size : sizeof out->bytes;
		memcpy(out->bytes, data, out->size);
		return;
	}
	memcpy(out->bytes, valid, valid_bytes);
	out->size = valid_bytes;
	for (size_t i = 0; i + 2 < size; i += 3)
		out->bytes[(data[i] * 256u + data[i + 1]) % valid_bytes] ^= data[i + 2];
}

static bool ends(const char *text, size_t bytes)
{
	return memchr(text, '\0', bytes) != NULL;
}

/* More bytes may decide what was undecided, and never change what was decided. */
static enum wire_check feed_hello(const struct input *input)
{
	struct wire_hello hello;
	enum wire_check verdict = WIRE_MORE;

	for (size_t got = 0; got <= input->size; got++) {
		enum wire_check next = rendezvous_hello_parse(input->bytes, got, &hello);
		MUST(verdict == WIRE_MORE || next == verdict);
		verdict = next;
	}
	if (verdict == WIRE_WHOLE) {
		MUST(hello.head.rank >= 0 && hello.head.rank < hello.world_size);
		MUST(ends(hello.host, sizeof hello.host));
		MUST(ends(hello.address, sizeof hello.address));
	}
	if (verdict == WIRE_WHOLE || verdict == WIRE_OTHER)
		MUST(ends(hello.head.version, sizeof hello.head.version));
	return verdict;
}

static void feed_reply(const struct input *input)
{
	struct wire_answer answer;
	enum wire_check verdict = WIRE_MORE;
	size_t step = input->size / 32 + 1;

	for (size_t got = 0; got <= input->size; got += step) {
		enum wire_check next = rendezvous_reply_parse(input->bytes, got, &answer);
		MUST(verdict == WIRE_MORE || next == verdict);
		verdict = next;
	}
	verdict = rendezvous_reply_parse(input->bytes, input->size, &answer);
	if (verdict != WIRE_WHOLE || answer.head.kind != WIRE_ANSWER)
		return;
	MUST(answer.size >= 0 && answer.size <= RANKS_WORLD_MAX);
	MUST((answer.size > 0) == (answer.status == LS_OK));
	MUST(ends(answer.text, sizeof answer.text));
	for (int i = 0; i < answer.size; i++)
		MUST(ends(answer.ranks[i].address, sizeof answer.ranks[i].address));
}

static void feed_proof(const struct input *input)
{
	struct wire_proof proof;
	enum wire_check verdict = WIRE_MORE;

	for (size_t got = 0; got <= input->size; got++) {
		enum wire_check next = rendezvous_proof_parse(input->bytes, got, &proof);
		MUST(verdict == WIRE_MORE || next == verdict);
		verdict = next;
	}
	if (verdict == WIRE_WHOLE)
		MUST(proof.head.kind == WIRE_PROOF && input->size >= sizeof proof);
}

static enum wire_check feed_card(const struct input *input, struct wire_card *card)
{
	enum wire_check verdict = WIRE_MORE;

	for (size_t got = 0; got <= input->size; got++) {
		enum wire_check next = rendezvous_card_parse(input->bytes, got, card);
		MUST(verdict == WIRE_MORE || next == verdict);
		verdict = next;
	}
	if (verdict == WIRE_WHOLE) {
		MUST(card->status >= LS_OK && card->status <= LS_UNREACHABLE);
		MUST(ends(card->reason, sizeof card->reason));
	}
	return verdict;
}

static void feed_parted(const struct input *input)
{
	struct wire_parted parted;
	enum wire_check verdict = WIRE_MORE;

	for (size_t got = 0; got <= input->size; got++) {
		enum wire_check next = rendezvous_parted_parse(input->bytes, got, &parted);
		MUST(verdict == WIRE_MORE || next == verdict);
		verdict = next;
	}
	if (verdict == WIRE_WHOLE) {
		MUST(parted.status >= LS_OK && parted.status <= LS_UNREACHABLE);
		MUST(ends(parted.reason, sizeof parted.reason));
	}
}

static void feed_cards(const struct input *input)
{
	struct wire_cards cards;
	enum wire_check verdict = WIRE_MORE;
	size_t step = input->size / 32 + 1;

	for (size_t got = 0; got <= input->size; got += step) {
		enum wire_check next = rendezvous_cards_parse(input->bytes, got, &cards);
		MUST(verdict == WIRE_MORE || next == verdict);
		verdict = next;
	}
	if (rendezvous_cards_parse(input->bytes, input->size, &cards) != WIRE_WHOLE)
		return;
	MUST(cards.size >= 0 && cards.size <= RANKS_WORLD_MAX);
	MUST((cards.size > 0) == (cards.status == LS_OK));
	MUST(ends(cards.text, sizeof cards.text));
}

/* Connects as another user, if this process may do so. */
static bool dial_as_other_user(const struct rendezvous_place *place, int *fd)
{
	if (geteuid() != 0 || seteuid(65534) != 0)
		return false;
	int error = rendezvous_dial(place, fd);
	MUST(error == 0 || error == EINPROGRESS);
	MUST(seteuid(0) == 0);
	return true;
}

/* The server fails only because of a hello, and never because of what another user sends. Anything
 * else leaves it as it was. */
static void feed_server(const struct input *input, enum wire_check verdict, bool tcp, bool foreign)
{
	struct rendezvous_place place = {.tcp = tcp, .world_size = WORLD_SIZE};
	struct rendezvous_server *server;
	char text[RENDEZVOUS_TEXT_BYTES] = "";
	int fd;

	MUST(rendezvous_server_start(&place, NULL, clock_deadline_ns(60000), text, &server) == LS_OK);
	if (!foreign || !dial_as_other_user(rendezvous_server_place(server), &fd)) {
		foreign = false;
		int error = rendezvous_dial(rendezvous_server_place(server), &fd);
		MUST(error == 0 || error == EINPROGRESS);
	}
	size_t half = input->size / 2;
	MUST(rendezvous_send(fd, input->bytes, half, -1) == (ssize_t)half);
	ls_status status = rendezvous_server_step(server);
	/* The server may have closed the connection after the first half. */
	ssize_t sent = rendezvous_send(fd, input->bytes + half, input->size - half, -1);
	MUST(sent >= 0 || errno == EPIPE || errno == ECONNRESET);
	if (status == LS_OK)
		status = rendezvous_server_step(server);
	if (status == LS_RANK_MISSING)
		status = LS_OK; /* a hello with an expired time limit */
	MUST((!foreign && (verdict == WIRE_WHOLE || verdict == WIRE_OTHER)) || status == LS_OK);
	/* TCP may not have delivered the bytes yet. */
	MUST(foreign || tcp || verdict != WIRE_OTHER || status == LS_WRONG_VERSION);
	rendezvous_close_fd(&fd);
	rendezvous_server_close(server);
}

/* A rank of another host has met, and then sends the input. Only its own card leaves the round as
 * it was. */
static void feed_round(const struct input *input)
{
	struct rendezvous_place place = {.world_size = 2};
	struct rendezvous_server *server;
	struct wire_card card;
	char text[RENDEZVOUS_TEXT_BYTES] = "";
	int fds[2];
	ls_status status = LS_OK;

	MUST(rendezvous_server_start(&place, NULL, clock_deadline_ns(60000), text, &server) == LS_OK);
	for (int rank = 0; rank < 2; rank++) {
		struct wire_hello hello;
		make_hello(&hello);
		hello.head.rank = rank;
		hello.world_size = 2;
		hello.host_key = 1 + (uint64_t)rank;
		MUST(rendezvous_dial(rendezvous_server_place(server), &fds[rank]) == 0);
		MUST(rendezvous_send(fds[rank], &hello, sizeof hello, -1) == (ssize_t)sizeof hello);
	}
	MUST(rendezvous_server_step(server) == LS_OK && rendezvous_server_met(server) != NULL);
	size_t half = input->size / 2;
	enum wire_check verdict = feed_card(input, &card);
	MUST(rendezvous_send(fds[1], input->bytes, half, -1) == (ssize_t)half || half == 0);
	status = rendezvous_server_step(server);
	ssize_t sent = rendezvous_send(fds[1], input->bytes + half, input->size - half, -1);
	MUST(sent >= 0 || errno == EPIPE || errno == ECONNRESET);
	if (status == LS_OK)
		status = rendezvous_server_step(server);
	ls_status expected = verdict == WIRE_MORE ? LS_OK : LS_UNTRUSTED_PEER;
	if (verdict == WIRE_WHOLE && card.head.rank == 1 &&
	    (card.status != LS_OK || input->size == sizeof card))
		expected = (ls_status)card.status;
	MUST(status == expected && !rendezvous_server_complete(server));
	MUST((status == LS_OK) == (rendezvous_server_text(server)[0] == '\0'));
	rendezvous_close_fd(&fds[1]);
	MUST(rendezvous_server_step(server) == (status == LS_OK ? LS_RANK_MISSING : status));
	rendezvous_close_fd(&fds[0]);
	rendezvous_server_close(server);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire_hello hello;
	struct wire_answer answer;
	struct input input;

	if (size == 0)
		return 0;
	make_hello(&hello);
	make_answer(&answer);
	bool over = data[0] & 1;
	make_input(&input, over ? &hello : NULL, sizeof hello, data + 1, size - 1);
	feed_server(&input, feed_hello(&input), data[0] & 2, data[0] & 4);
	make_input(&input, over ? &answer : NULL, WIRE_ANSWER_BYTES(WORLD_SIZE), data + 1, size - 1);
	feed_reply(&input);
	struct wire_challenge challenge = {.nonce = {1}};
	rendezvous_head_fill(&challenge.head, WIRE_CHALLENGE, sizeof challenge, 0, 7);
	make_input(&input, over ? &challenge : NULL, sizeof challenge, data + 1, size - 1);
	feed_reply(&input);
	struct wire_proof proof = {.tag = {{1}}};
	rendezvous_head_fill(&proof.head, WIRE_PROOF, sizeof proof, 1, 7);
	make_input(&input, over ? &proof : NULL, sizeof proof, data + 1, size - 1);
	feed_proof(&input);
	struct wire_card card;
	uint8_t bytes[RENDEZVOUS_CARD_BYTES] = {1};
	rendezvous_card_fill(&card, 1, 5, data[0] & 8 ? LS_UNSUPPORTED : LS_OK, "why", bytes);
	make_input(&input, over ? &card : NULL, sizeof card, data + 1, size - 1);
	feed_round(&input);
	struct wire_cards cards = {.size = WORLD_SIZE};
	rendezvous_head_fill(&cards.head, WIRE_CARDS, WIRE_CARDS_BYTES(WORLD_SIZE), 0, 5);
	make_input(&input, over ? &cards : NULL, WIRE_CARDS_BYTES(WORLD_SIZE), data + 1, size - 1);
	feed_cards(&input);
	feed_parted(&input);
	return 0;
}

size_t fuzz_draw(uint64_t *state, uint8_t *data)
{
	/* With few changes a struct stays nearly valid, so most inputs are short. */
	size_t size = 1 + fuzz_random(state) % (fuzz_random(state) % 4 == 0 ? 700 : 10);
	for (size_t i = 0; i < size; i++)
		data[i] = (uint8_t)fuzz_random(state);
	return size;
}
