/* SPDX-License-Identifier: BSD-3-Clause
 * For tests: what every implementation of link_ops has to do, over a factory of ends that are
 * connected within this process. One thread makes progress on all ends, so that each test says in
 * which order things are asked for. An implementation is free in all else. */
#ifndef LINK_CONTRACT_FIXTURE_H
#define LINK_CONTRACT_FIXTURE_H

#include <poll.h>

#include "link/contract_ends_fixture.h"

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

/* An eager payload ends at its source without the target, which fetches or returns it later, also
 * when the source is gone. */
static inline void contract_eager(void **state)
{
	enum { COUNT = 4 };
	static const uint64_t sizes[COUNT] = {LINK_EAGER_BYTES, 1, LINK_SHORT_BYTES + 1, 30000};
	struct contract_end *source = contract_end(state, 0), *target = contract_end(state, 1);
	unsigned char *from = malloc(LINK_EAGER_BYTES), *to = calloc(1, LINK_EAGER_BYTES + 2);
	struct link_transfer sent[COUNT], fetched[COUNT];
	for (int i = 0; i < COUNT; i++) {
		sent[i] = (struct link_transfer){.status = LS_PENDING, .is_eager = true};
		fetched[i] = (struct link_transfer){.status = LS_PENDING};
		contract_fill(from, (uint64_t)i, sizes[i]);
		contract_offer(state, 0, 1, (uint64_t)i, from, sizes[i], &sent[i]);
		assert_true(target->kept[i].is_eager);
		contract_until(state, &source->done, i + 1);
		assert_int_equal(sent[i].status, LS_OK);
		memset(from, 0xee, sizes[i]); /* it belongs to the caller again */
	}
	target->link->ops->fetch(target->link, 0, &target->kept[3], NULL, NULL);
	target->link->ops->fetch(target->link, 0, &target->kept[2], to + 1, &fetched[2]);
	contract_until(state, &target->done, 1);
	contract_check(to + 1, 2, sizes[2]);
	contract_cut(source, 1);
	contract_until(state, &target->lost[0], 1);
	contract_check(target->kept[0].payload, 0, sizes[0]);
	target->link->ops->fetch(target->link, 0, &target->kept[0], to + 1, &fetched[0]);
	contract_until(state, &target->done, 2);
	contract_check(to + 1, 0, LINK_EAGER_BYTES);
	assert_true(to[0] == 0 && to[LINK_EAGER_BYTES + 1] == 0);
	assert_true(fetched[0].status == LS_OK && fetched[2].status == LS_OK);
	contract_cut(target, 0);
	target->link->ops->fetch(target->link, 0, &target->kept[1], to, &fetched[1]);
	contract_until(state, &target->done, 3);
	assert_int_equal(fetched[1].status, LS_ABORTED);
	assert_int_equal(source->done, COUNT);
	free(from);
	free(to);
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
	struct pollfd door = {.events = POLLIN};
	uint64_t deadline_ns = clock_deadline_ns(CONTRACT_LIMIT_MS);
	for (uint64_t n = 0; n < 50; n++) {
		while (!link->ops->arm(link, &door.fd)) {
			contract_advance(end);
			assert_true(clock_now_ns() < deadline_ns);
		}
		assert_int_equal(poll(&door, 1, 0), 0);
		contract_post(state, 0, 1, n, NULL, 0, NULL);
		/* The source may need progress, but not the end that sleeps. */
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

/* Runs all tests; the initial state of each is the factory. */
static inline int contract_run(const struct contract_factory *factory)
{
	void *initial = (void *)(uintptr_t)factory;
#define CONTRACT_TEST(test)                                         \
	{                                                           \
#test, test, contract_open, contract_close, initial \
	}
	const struct CMUnitTest tests[] = {
		CONTRACT_TEST(contract_order),         CONTRACT_TEST(contract_long),
		CONTRACT_TEST(contract_many),          CONTRACT_TEST(contract_unwanted),
		CONTRACT_TEST(contract_cut_by_source), CONTRACT_TEST(contract_cut_by_target),
		CONTRACT_TEST(contract_eager),         CONTRACT_TEST(contract_sleep),
		CONTRACT_TEST(contract_after_cut),
	};
#undef CONTRACT_TEST
	print_message("# %s, seed %llu\n", factory->name, (unsigned long long)factory->seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
