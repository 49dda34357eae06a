/* SPDX-License-Identifier: BSD-3-Clause
 * For contract_fixture.h: connected ends of an implementation, what they were told, and calls. */
#ifndef LINK_CONTRACT_ENDS_FIXTURE_H
#define LINK_CONTRACT_ENDS_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "link/link.h"

enum { CONTRACT_ENDS = 3, CONTRACT_LIMIT_MS = 20000, CONTRACT_LONG = 100000, CONTRACT_KEPT = 64 };

/* Makes ends of one implementation of link_ops: `open` fills all of them except their events, and
 * connects none. */
struct contract_factory {
	const char *name;
	void *(*open)(int ends, uint64_t seed, struct link **links);
	bool (*close)(void *made); /* after ops->close of all; false: something was left behind */
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
	const struct contract_factory *of;
	void *made;
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
		assert_int_equal(message->payload != NULL, message->is_eager);
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

/* Makes progress on all ends until a number is reached. */
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

/* Posts note `number`; makes progress on all ends until there was room for it. */
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

/* Offers `bytes`, and makes progress until the target has been told. Returns its message. */
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
	const struct contract_factory *of = *state;
	struct contract *contract = calloc(1, sizeof *contract);
	struct link *links[CONTRACT_ENDS];
	assert_non_null(contract);
	contract->of = of;
	contract->made = of->open(CONTRACT_ENDS, of->seed, links);
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
	assert_true(contract->of->close(contract->made));
	*state = (void *)(uintptr_t)contract->of;
	free(contract);
	return 0;
}

#endif
