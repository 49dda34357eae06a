/* SPDX-License-Identifier: BSD-3-Clause
 * For tests: what every body of link_ops has to do, over a factory of ends that are connected
 * within this process. One thread drives all ends, so that each test says in which order things are
 * asked for; a body is free in all else. */
#ifndef LINK_CONTRACT_FIXTURE_H
#define LINK_CONTRACT_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "link/link.h"

enum { CONTRACT_ENDS = 3, CONTRACT_LIMIT_MS = 20000, CONTRACT_LONG = 100000, CONTRACT_KEPT = 64 };

/* How a body is had: `open` makes ends that are filled but for their events, and not connected. */
struct contract_body {
	const char *name;
	void *(*open)(int ends, uint64_t seed, struct link **links);
	bool (*close)(void *body); /* after ops->close of all; false: something was left behind */
	uint64_t seed;
	uint64_t cut_bytes; /* a payload of which ten calls of advance at all ends bring a part */
};

struct contract_end {
	struct link *link;
	struct contract *contract;
	/* Of each peer: the number that its next note or word must have; what it was told. */
	uint64_t next[CONTRACT_ENDS], told[CONTRACT_ENDS];
	int lost[CONTRACT_ENDS];
	int done;
	/* Messages whose bytes are to be fetched. */
	int kept_count;
	int kept_from[CONTRACT_KEPT];
	struct link_message kept[CONTRACT_KEPT];
	int inside; /* calls of advance or cut: events are told within one */
};

struct contract {
	const struct contract_body *of;
	void *body;
	struct contract_end ends[CONTRACT_ENDS];
};

/* ---- events ---- */

/* Byte i of the payload of the note with this number. */
static inline unsigned char contract_byte(uint64_t number, uint64_t i)
{
	return (unsigned char)(number * 31 + i * 7 + i / 251);
}

static inline void contract_fill(unsigned char *out, uint64_t number, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		out[i] = contract_byte(number, i);
}

static inline void contract_check(const unsigned char *bytes, uint64_t number, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		assert_int_equal(bytes[i], contract_byte(number, i));
}

static inline void contract_arrived(void *context, int peer, const struct link_message *message)
{
	struct contract_end *end = context;
	uint64_t number = message->note.words[0];
	assert_int_equal(end->inside, 1);
	assert_int_equal(number, end->next[peer]++);
	for (int i = 1; i < LINK_NOTE_WORDS; i++)
		assert_int_equal(message->note.words[i], number * 1000 + (uint64_t)i);
	end->told[peer]++;
	if (message->handle) {
		assert_null(message->payload);
		assert_true(end->kept_count < CONTRACT_KEPT);
		end->kept_from[end->kept_count] = peer;
		end->kept[end->kept_count++] = *message;
	} else if (message->bytes) {
		contract_check(message->payload, number, message->bytes);
	}
}

static inline void contract_word(void *context, int peer, uint64_t index, uint64_t value)
{
	struct contract_end *end = context;
	assert_int_equal(end->inside, 1);
	assert_int_equal(value, end->next[peer]++);
	assert_int_equal(index, UINT64_MAX - value);
	end->told[peer]++;
}

static inline void contract_done(void *context, struct link_transfer *transfer)
{
	struct contract_end *end = context;
	(void)transfer;
	assert_int_equal(end->inside, 1);
	end->done++;
}

static inline void contract_lost(void *context, int peer)
{
	struct contract_end *end = context;
	assert_int_equal(end->inside, 1);
	assert_int_equal(end->lost[peer]++, 0);
}

/* ---- calls ---- */

static inline struct contract_end *contract_end(void **state, int rank)
{
	return &((struct contract *)*state)->ends[rank];
}

static inline bool contract_advance(struct contract_end *end)
{
	end->inside++;
	bool did = end->link->ops->advance(end->link);
	end->inside--;
	return did;
}

static inline void contract_advance_all(void **state)
{
	for (int r = 0; r < CONTRACT_ENDS; r++)
		contract_advance(contract_end(state, r));
}

/* Drives all ends until a number is reached. */
static inline void contract_until(void **state, const int *count, int value)
{
	uint64_t deadline_ns = clock_deadline_ns(CONTRACT_LIMIT_MS);
	while (*count < value) {
		contract_advance_all(state);
		assert_true(clock_now_ns() < deadline_ns);
	}
	assert_int_equal(*count, value);
}

static inline void contract_cut(struct contract_end *end, int peer)
{
	end->inside++;
	end->link->ops->cut(end->link, peer);
	end->inside--;
}

static inline struct link_note contract_note(uint64_t number)
{
	struct link_note note = {.words = {number}};
	for (int i = 1; i < LINK_NOTE_WORDS; i++)
		note.words[i] = number * 1000 + (uint64_t)i;
	return note;
}

/* Posts note `number` and drives all ends until there was room for it. */
static inline void contract_post(void **state, int from, int to, uint64_t number,
				 const void *payload, uint64_t bytes, struct link_transfer *transfer)
{
	struct link *link = contract_end(state, from)->link;
	struct link_note note = contract_note(number);
	uint64_t deadline_ns = clock_deadline_ns(CONTRACT_LIMIT_MS);
	while (!link->ops->post(link, to, &note, payload, bytes, transfer)) {
		contract_advance_all(state);
		assert_true(clock_now_ns() < deadline_ns);
	}
	memset(&note, 0, sizeof note);
	link->ops->push(link, to);
}

/* Offers `bytes` and drives until the target has been told. Returns its message. */
static inline const struct link_message *contract_offer(void **state, int from, int to,
							uint64_t number, const void *payload,
							uint64_t bytes,
							struct link_transfer *transfer)
{
	struct contract_end *target = contract_end(state, to);
	int before = target->kept_count;
	contract_post(state, from, to, number, payload, bytes, transfer);
	contract_until(state, &target->kept_count, before + 1);
	assert_int_equal(target->kept[before].bytes, bytes);
	return &target->kept[before];
}

/* ---- life ---- */

static inline int contract_open(void **state)
{
	const struct contract_body *of = *state;
	struct contract *contract = calloc(1, sizeof *contract);
	struct link *links[CONTRACT_ENDS];
	assert_non_null(contract);
	contract->of = of;
	contract->body = of->open(CONTRACT_ENDS, of->seed, links);
	for (int r = 0; r < CONTRACT_ENDS; r++) {
		struct contract_end *end = &contract->ends[r];
		assert_false(link_is_valid(links[r])); /* nobody listens yet */
		end->link = links[r];
		end->link->events = (struct link_events){.context = end,
							 .arrived = contract_arrived,
							 .word = contract_word,
							 .done = contract_done,
							 .lost = contract_lost};
		assert_true(link_is_valid(links[r]));
		assert_int_equal(links[r]->rank, r);
	}
	*state = contract;
	uint64_t deadline_ns = clock_deadline_ns(CONTRACT_LIMIT_MS);
	for (bool all = false; !all;) {
		all = true;
		for (int r = 0; r < CONTRACT_ENDS; r++) {
			bool done;
			assert_int_equal(links[r]->ops->connect(links[r], &done), LS_OK);
			all = all && done;
		}
		contract_advance_all(state);
		assert_true(clock_now_ns() < deadline_ns);
	}
	return 0;
}

static inline int contract_close(void **state)
{
	struct contract *contract = *state;
	for (int r = 0; r < CONTRACT_ENDS; r++)
		for (int q = 0; q < CONTRACT_ENDS; q++)
			if (q != r)
				contract_cut(&contract->ends[r], q);
	for (int r = 0; r < CONTRACT_ENDS; r++)
		contract->ends[r].link->ops->close(contract->ends[r].link);
	assert_true(contract->of->close(contract->body));
	*state = (void *)(uintptr_t)contract->of;
	free(contract);
	return 0;
}

/* ---- what it has to do ---- */

/* Notes and words of any length between all pairs at once; there is not room for all of them. */
static inline void contract_order(void **state)
{
	enum { COUNT = 300 };
	uint64_t sent[CONTRACT_ENDS][CONTRACT_ENDS] = {{0}};
	unsigned char payload[LINK_SHORT_BYTES];
	uint64_t deadline_ns = clock_deadline_ns(CONTRACT_LIMIT_MS), refused = 0, left = 1;
	while (left) {
		left = 0;
		assert_true(clock_now_ns() < deadline_ns);
		for (int pair = 0; pair < CONTRACT_ENDS * CONTRACT_ENDS; pair++) {
			int from = pair / CONTRACT_ENDS, to = pair % CONTRACT_ENDS;
			struct link *link = contract_end(state, from)->link;
			for (uint64_t *n = &sent[from][to]; from != to && *n < COUNT; ++*n) {
				struct link_note note = contract_note(*n);
				uint64_t bytes = *n * 97 % (LINK_SHORT_BYTES + 1);
				contract_fill(payload, *n, bytes);
				if (!(*n % 3 ? link->ops->post(link, to, &note, payload, bytes, NULL)
					     : link->ops->store(link, to, UINT64_MAX - *n, *n))) {
					refused++;
					break;
				}
				memset(payload, 0, bytes); /* it has been copied */
				if (*n % 5 == 0)
					link->ops->push(link, to);
			}
			contract_end(state, from)->link->ops->push(contract_end(state, from)->link, to);
			left += from == to ? 0 : COUNT - contract_end(state, to)->told[from];
		}
		contract_advance_all(state);
	}
	assert_true(refused > 0);
}

/* A long payload stays until it is fetched, to any place, and both learn that it is done. */
static inline void contract_long(void **state)
{
	struct contract_end *source = contract_end(state, 0), *target = contract_end(state, 1);
	unsigned char *from = malloc(CONTRACT_LONG), *to = calloc(1, CONTRACT_LONG + 2);
	struct link_transfer sent = {.status = LS_PENDING}, fetched = {.status = LS_PENDING};
	contract_fill(from, 0, CONTRACT_LONG);
	const struct link_message *message =
		contract_offer(state, 0, 1, 0, from, CONTRACT_LONG, &sent);
	for (int i = 0; i < 100; i++)
		contract_advance_all(state);
	assert_int_equal(source->done, 0);
	target->link->ops->fetch(target->link, 0, message, to + 1, &fetched);
	assert_int_equal(target->done, 0); /* not even if it was at once */
	contract_until(state, &target->done, 1);
	contract_check(to + 1, 0, CONTRACT_LONG);
	assert_true(to[0] == 0 && to[CONTRACT_LONG + 1] == 0);
	contract_until(state, &source->done, 1);
	assert_true(sent.status == LS_OK && fetched.status == LS_OK);
	free(from);
	free(to);
}

/* Several are under way at once, fetched in another order, while notes pass them. */
static inline void contract_many(void **state)
{
	enum { COUNT = 12 };
	struct contract_end *source = contract_end(state, 2), *target = contract_end(state, 0);
	unsigned char *from[COUNT], *to[COUNT];
	struct link_transfer sent[COUNT], fetched[COUNT];
	for (int i = 0; i < COUNT; i++) {
		uint64_t bytes = 1 + (uint64_t)i * 4999;
		from[i] = malloc(bytes);
		to[i] = malloc(bytes);
		sent[i] = fetched[i] = (struct link_transfer){.status = LS_PENDING};
		contract_fill(from[i], 2 * (uint64_t)i, bytes);
		contract_offer(state, 2, 0, 2 * (uint64_t)i, from[i], bytes, &sent[i]);
		contract_post(state, 2, 0, 2 * (uint64_t)i + 1, NULL, 0, NULL);
	}
	for (int i = COUNT; i-- > 0;)
		target->link->ops->fetch(target->link, 2, &target->kept[i], to[i], &fetched[i]);
	contract_until(state, &target->done, COUNT);
	contract_until(state, &source->done, COUNT);
	for (int i = 0; i < COUNT; i++) {
		assert_true(sent[i].status == LS_OK && fetched[i].status == LS_OK);
		contract_check(to[i], 2 * (uint64_t)i, 1 + (uint64_t)i * 4999);
		free(from[i]);
		free(to[i]);
	}
}

static inline void contract_unwanted(void **state)
{
	struct contract_end *source = contract_end(state, 0), *target = contract_end(state, 1);
	unsigned char *from = malloc(CONTRACT_LONG);
	struct link_transfer sent = {.status = LS_PENDING};
	const struct link_message *message =
		contract_offer(state, 0, 1, 0, from, CONTRACT_LONG, &sent);
	target->link->ops->fetch(target->link, 0, message, NULL, NULL);
	contract_until(state, &source->done, 1);
	assert_int_equal(sent.status, LS_CANCELLED);
	free(from);
}

/* One end cuts while bytes are under way: at return none is touched any more, on its side. The
 * other learns that it has lost a peer, and so do its transfers; a third notices nothing. */
static inline void contract_cut_under_way(void **state, int cutting)
{
	uint64_t bytes = ((struct contract *)*state)->of->cut_bytes;
	struct contract_end *source = contract_end(state, 0), *target = contract_end(state, 1);
	struct contract_end *cut = cutting ? target : source, *other = cutting ? source : target;
	unsigned char *from = malloc(bytes), *to = calloc(1, bytes), *copy;
	struct link_transfer sent = {.status = LS_PENDING}, fetched = {.status = LS_PENDING};
	contract_fill(from, 0, bytes);
	const struct link_message *message = contract_offer(state, 0, 1, 0, from, bytes, &sent);
	target->link->ops->fetch(target->link, 0, message, to, &fetched);
	for (int i = 0; i < 10; i++)
		contract_advance_all(state);
	assert_int_equal(target->done, 0); /* it is under way, or this tests nothing */
	contract_cut(cut, !cutting);
	assert_int_equal(cut->done, 1);
	assert_int_equal((cutting ? fetched : sent).status, LS_ABORTED);
	/* After a cut this side's memory may be freed, or reused. */
	copy = malloc(bytes);
	memset(from, 0xee, bytes);
	if (cutting)
		memcpy(copy, to, bytes);
	for (int i = 0; i < 100; i++) /* without the other */
		contract_advance(cut);
	contract_until(state, &other->done, 1);
	if (!cutting) /* what was on its way may have arrived, but nothing of what came later */
		memcpy(copy, to, bytes);
	for (uint64_t i = 0; i < bytes; i++)
		if (to[i] != 0 && to[i] != contract_byte(0, i))
			fail_msg("byte %llu was read after the cut", (unsigned long long)i);
	contract_until(state, &other->lost[!!cutting], 1);
	assert_int_equal((cutting ? sent : fetched).status, LS_PEER_DIED);
	assert_int_equal(cut->lost[!cutting], 0);
	for (int i = 0; i < 100; i++)
		contract_advance_all(state);
	assert_memory_equal(copy, to, bytes);
	contract_cut(cut, !cutting);
	contract_post(state, cutting, 2, 0, NULL, 0, NULL);
	contract_post(state, 2, cutting, 0, NULL, 0, NULL);
	while (contract_end(state, 2)->told[!!cutting] + cut->told[2] < 2)
		contract_advance_all(state);
	assert_int_equal(contract_end(state, 2)->lost[0] + contract_end(state, 2)->lost[1], 0);
	free(copy);
	free(from);
	free(to);
}

static inline void contract_cut_by_source(void **state)
{
	contract_cut_under_way(state, 0);
}

static inline void contract_cut_by_target(void **state)
{
	contract_cut_under_way(state, 1);
}

/* What is asked of a peer that is cut, or lost, ends; nothing is left of it. */
static inline void contract_after_cut(void **state)
{
	struct contract_end *source = contract_end(state, 0), *target = contract_end(state, 1);
	unsigned char from[5000] = {0}, to[5000];
	struct link_transfer sent[2] = {{.status = LS_PENDING}, {.status = LS_PENDING}};
	struct link_transfer fetched = {.status = LS_PENDING};
	struct link_note note = contract_note(1);
	const struct link_message *message =
		contract_offer(state, 0, 1, 0, from, sizeof from, &sent[0]);
	contract_cut(source, 1);
	assert_true(source->done == 1 && sent[0].status == LS_ABORTED);
	for (int i = 0; i < 100; i++) /* there is always room for what goes nowhere */
		assert_true(source->link->ops->post(source->link, 1, &note, NULL, 0, NULL));
	assert_true(source->link->ops->post(source->link, 1, &note, from, sizeof from, &sent[1]));
	assert_int_equal(source->done, 1);
	contract_until(state, &source->done, 2);
	assert_int_equal(sent[1].status, LS_ABORTED);
	contract_until(state, &target->lost[0], 1);
	target->link->ops->fetch(target->link, 0, message, to, &fetched);
	contract_until(state, &target->done, 1);
	assert_int_equal(fetched.status, LS_PEER_DIED);
}

/* An armed link wakes its user for what comes, and by nothing else. */
static inline void contract_sleep(void **state)
{
	struct contract_end *end = contract_end(state, 1);
	struct link *link = end->link;
	struct pollfd door = {.fd = link->fd, .events = POLLIN};
	uint64_t deadline_ns = clock_deadline_ns(CONTRACT_LIMIT_MS);
	for (uint64_t n = 0; n < 50; n++) {
		while (!link->ops->arm(link)) {
			contract_advance(end);
			assert_true(clock_now_ns() < deadline_ns);
		}
		assert_int_equal(poll(&door, 1, 0), 0);
		contract_post(state, 0, 1, n, NULL, 0, NULL);
		/* The source may have to be driven, but not the end that sleeps. */
		while (poll(&door, 1, 0) == 0) {
			contract_advance(contract_end(state, 0));
			assert_true(clock_now_ns() < deadline_ns);
		}
		while (end->told[0] <= n) {
			contract_advance(end);
			assert_true(clock_now_ns() < deadline_ns);
		}
	}
}

/* All of it; `state` of each is the body. */
static inline int contract_run(const struct contract_body *body)
{
	void *initial = (void *)(uintptr_t)body;
#define CONTRACT_TEST(test)                                         \
	{                                                           \
#test, test, contract_open, contract_close, initial \
	}
	const struct CMUnitTest tests[] = {
		CONTRACT_TEST(contract_order),         CONTRACT_TEST(contract_long),
		CONTRACT_TEST(contract_many),          CONTRACT_TEST(contract_unwanted),
		CONTRACT_TEST(contract_cut_by_source), CONTRACT_TEST(contract_cut_by_target),
		CONTRACT_TEST(contract_after_cut),     CONTRACT_TEST(contract_sleep),
	};
#undef CONTRACT_TEST
	print_message("# %s, seed %llu\n", body->name, (unsigned long long)body->seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
