/* SPDX-License-Identifier: BSD-3-Clause
 * A peer that writes anything anywhere cannot crash this rank, block it, or make it touch memory
 * outside its mappings. Random, with fixed seeds, so that a failure can be repeated. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "transport/segment.h"
#include "transport/transport_fixture.h"

enum { ROUNDS = 3000, ROUNDS_BESIDE = 20000 };

static uint64_t next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/* Numbers that are almost right find more than those that are quite wrong. */
static uint64_t odd_number(uint64_t *seed)
{
	static const uint64_t numbers[] = {
		0,
		1,
		2,
		31,
		32,
		33,
		191,
		192,
		193,
		255,
		4096,
		TEST_JOB_ARENA_BYTES - 1,
		TEST_JOB_ARENA_BYTES,
		TEST_JOB_ARENA_BYTES + 1,
		UINT32_MAX,
		INT64_MAX,
		UINT64_C(1) << 63,
		UINT64_MAX - 1,
		UINT64_MAX,
	};
	uint64_t choice = next(seed) % (2 * sizeof numbers / sizeof numbers[0]);
	return choice < sizeof numbers / sizeof numbers[0] ? numbers[choice] : next(seed);
}

/* Writes `count` odd words anywhere in rank 0's segment, through rank 1's mapping. */
static void scribble(struct transport_team *peer, uint64_t *seed, int count)
{
	_Atomic uint64_t *words = (_Atomic uint64_t *)peer->members[0].peer->segment;
	size_t bytes = transport_areas_at(2) + transport_area_bytes(2); /* all that is there */
	for (int i = 0; i < count; i++) {
		uint64_t value = odd_number(seed);
		atomic_store_explicit(&words[next(seed) % (bytes / 8)], value, memory_order_relaxed);
	}
	/* And some of the words that matter, in the channels of both directions. */
	for (int owner = 0; owner < 2; owner++) {
		struct transport_channel *channel = transport_channel(peer, owner, !owner);
		struct transport_slot *slot = &channel->slots[next(seed) % TRANSPORT_CHANNEL_SLOTS];
		uint64_t *packed[] = {&slot->packed.bytes, &slot->packed.window, &slot->packed.seq};
		atomic_store(&slot->state, odd_number(seed) % 64);
		atomic_store(&channel->posted, odd_number(seed));
		atomic_store(&channel->taken, odd_number(seed));
		atomic_store(&channel->matched, odd_number(seed));
		atomic_store(&channel->refused, odd_number(seed));
		atomic_store_explicit((_Atomic uint64_t *)packed[next(seed) % 3], odd_number(seed),
				      memory_order_relaxed);
	}
}

/* Reads what was received, as an engine would. */
static void use(const volatile unsigned char *payload, uint64_t bytes)
{
	for (uint64_t i = 0; payload && i < bytes; i += 509)
		(void)payload[i];
	if (payload && bytes)
		(void)payload[bytes - 1];
}

/* One of everything. Returns whether a message was received. */
static bool exercise(struct transport_team *me, uint64_t *seed)
{
	struct wait_word blocked;
	uint64_t ticket, word = 1;
	ls_status refused;
	struct transport_envelope envelope = {.bytes = sizeof word, .seq = next(seed) % 3};
	if (!transport_channel_post(me, 1, &envelope, &word, 0, &ticket, &blocked))
		assert_int_equal(blocked.edge.owner, 1);
	ticket = odd_number(seed); /* or almost any that was ever given */
	if (transport_channel_taken(me, 1, ticket, &refused, &blocked))
		assert_string_not_equal(ls_status_name(refused), "LS_?");
	if (!transport_channel_quiet(me, 1, &blocked))
		assert_int_equal(blocked.edge.owner, 1);
	struct transport_message *message =
		transport_channel_match(me, 1, (int64_t)(next(seed) % 3), &blocked);
	if (!message)
		return false;
	const unsigned char *payload = transport_channel_payload(me, 1, message);
	if (message->bytes > TEST_JOB_ARENA_BYTES)
		assert_null(payload);
	use(payload, message->bytes);
	transport_channel_take(me, 1, message, next(seed) % 4 ? LS_OK : LS_MISMATCH);
	return true;
}

static void test_one_after_the_other(void **state)
{
	(void)state;
	struct test_job *job = test_job_open(2);
	uint64_t seed = 0x9e3779b97f4a7c15;
	int received = 0;
	for (int i = 0; i < ROUNDS; i++) {
		scribble(&job->ranks[1].team, &seed, 200);
		for (int j = 0; j < 4; j++)
			received += exercise(&job->ranks[0].team, &seed);
	}
	assert_true(received > ROUNDS / 20); /* it got past the first check often enough */
	test_job_close(job);
}

struct vandal {
	struct transport_team *peer;
	_Atomic bool stop;
	pthread_t thread;
};

static void *run_vandal(void *argument)
{
	struct vandal *vandal = argument;
	uint64_t seed = 88172645463325252;
	while (!atomic_load(&vandal->stop))
		scribble(vandal->peer, &seed, 20);
	return NULL;
}

static void test_at_the_same_time(void **state)
{
	(void)state;
	struct test_job *job = test_job_open(2);
	struct vandal vandal = {.peer = &job->ranks[1].team};
	assert_int_equal(pthread_create(&vandal.thread, NULL, run_vandal, &vandal), 0);
	uint64_t seed = 0x2545f4914f6cdd1d;
	for (int i = 0; i < ROUNDS_BESIDE; i++)
		exercise(&job->ranks[0].team, &seed);
	atomic_store(&vandal.stop, true);
	wait_join(vandal.thread);
	test_job_close(job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_after_the_other),
		cmocka_unit_test(test_at_the_same_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
