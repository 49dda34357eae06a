/* SPDX-License-Identifier: BSD-3-Clause
 * Channels: order, slots out of order, what is awaited, refusals, threads, and nonsense from
 * peers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "transport/segment.h"
#include "transport/transport_fixture.h"

enum { SLOTS = TRANSPORT_CHANNEL_SLOTS };

static struct transport_team *at(struct test_job *job, int rank)
{
	return &job->ranks[rank].team;
}

/* Posts a short message whose payload is `value`. */
static bool post(struct test_job *job, int from, int to, int tag, uint64_t value, uint64_t *ticket,
		 struct wait_word *blocked)
{
	struct transport_envelope envelope = {
		.seq = (uint64_t)tag, .count = 1, .bytes = sizeof value};
	return transport_channel_post(at(job, from), to, &envelope, &value, 0, ticket, blocked);
}

static void must_post(struct test_job *job, int from, int to, int tag, uint64_t value)
{
	uint64_t ticket;
	struct wait_word blocked;
	assert_true(post(job, from, to, tag, value, &ticket, &blocked));
}

static struct transport_message *match(struct test_job *job, int to, int from, int tag)
{
	struct wait_word blocked;
	return transport_channel_match(at(job, to), from, tag, &blocked);
}

static uint64_t value_of(struct test_job *job, int to, int from,
			 const struct transport_message *message)
{
	uint64_t value;
	assert_int_equal(message->bytes, sizeof value);
	memcpy(&value, transport_channel_payload(at(job, to), from, message), sizeof value);
	return value;
}

/* Receives the next message and checks it. */
static void must_take(struct test_job *job, int to, int from, int tag, uint64_t value)
{
	struct transport_message *message = match(job, to, from, tag);
	assert_non_null(message);
	assert_int_equal(message->seq, tag);
	assert_int_equal(value_of(job, to, from, message), value);
	transport_channel_take(at(job, to), from, message, LS_OK);
}

static void assert_edge(const struct wait_word *word, struct test_job *job, int seen_by, int owner,
			int peer)
{
	const struct transport_segment *segment = at(job, seen_by)->members[owner].peer->segment;
	assert_int_equal(word->edge.segment, WAIT_SEGMENT_MAPPED);
	assert_int_equal(word->edge.owner, owner);
	assert_int_equal(word->edge.peer, peer);
	assert_int_equal(word->edge.offset % 8, 0);
	assert_ptr_equal(word->word, (const char *)segment + word->edge.offset);
}

static bool satisfied(const struct wait_word *word)
{
	struct wait_call call = {.words = word, .count = 1};
	return wait_satisfied(&call);
}

static void test_order(void **state)
{
	(void)state;
	struct test_job *job = test_job_open(2);
	/* Several times around the slots, with one message of tag 9 left lying all the time. */
	must_post(job, 0, 1, 9, 1000);
	for (uint64_t i = 0; i < 10 * SLOTS; i += 3) {
		must_post(job, 0, 1, 5, i);
		must_post(job, 0, 1, 6, i + 1);
		must_post(job, 0, 1, 5, i + 2);
		must_take(job, 1, 0, 6, i + 1);
		must_take(job, 1, 0, 5, i);
		must_take(job, 1, 0, 5, i + 2);
		assert_null(match(job, 1, 0, 5));
	}
	assert_true(transport_is_valid(at(job, 1)));
	must_take(job, 1, 0, 9, 1000);
	assert_true(transport_is_valid(at(job, 1)));
	assert_null(match(job, 1, 0, 9));
	assert_null(match(job, 0, 1, 5)); /* the other direction is another channel */
	test_job_close(job);
}

static void test_oldest_first(void **state)
{
	(void)state;
	struct test_job *job = test_job_open(2);
	/* Free slots lie in an order that is not that of the positions. */
	for (uint64_t i = 0; i < SLOTS; i++)
		must_post(job, 0, 1, (int)i, i);
	for (int i = SLOTS - 1; i >= 0; i -= 5)
		must_take(job, 1, 0, i, (uint64_t)i);
	int freed = (SLOTS + 4) / 5;
	for (int i = 0; i < freed; i++)
		must_post(job, 0, 1, 100, (uint64_t)i);
	for (int i = 0; i < freed; i++)
		must_take(job, 1, 0, 100, (uint64_t)i);
	test_job_close(job);
}

/* A source in the middle of posting: what its count does not name yet does not count, for a message
 * that comes before it may lie in a slot that was looked at too early. */
static void test_half_posted(void **state)
{
	(void)state;
	struct test_job *job = test_job_open(2);
	struct wait_word blocked;
	must_post(job, 0, 1, 1, 10);
	struct transport_channel *channel = transport_channel(at(job, 0), 1, 0);
	must_post(job, 0, 1, 2, 11);
	atomic_store(&channel->posted, 1);
	assert_null(transport_channel_match(at(job, 1), 0, 2, &blocked));
	assert_int_equal(blocked.edge.value, 2);
	must_take(job, 1, 0, 1, 10);
	wait_store(&channel->posted, 2);
	assert_true(satisfied(&blocked));
	must_take(job, 1, 0, 2, 11);
	test_job_close(job);
}

static void test_claims(void **state)
{
	(void)state;
	struct test_job *job = test_job_open(2);
	must_post(job, 0, 1, 1, 10);
	must_post(job, 0, 1, 1, 11);
	struct transport_message *first = match(job, 1, 0, 1);
	struct transport_message *second = match(job, 1, 0, 1);
	assert_non_null(first);
	assert_non_null(second);
	assert_null(match(job, 1, 0, 1));
	assert_int_equal(value_of(job, 1, 0, first), 10);
	assert_int_equal(value_of(job, 1, 0, second), 11);
	transport_channel_take(at(job, 1), 0, second, LS_OK);
	transport_channel_take(at(job, 1), 0, first, LS_OK);
	assert_true(transport_is_valid(at(job, 1)));
	test_job_close(job);
}

static void test_full(void **state)
{
	(void)state;
	struct test_job *job = test_job_open(3);
	uint64_t ticket = 7;
	struct wait_word blocked;
	for (uint64_t i = 0; i < SLOTS; i++)
		must_post(job, 2, 1, (int)i, i);
	assert_false(post(job, 2, 1, 0, 99, &ticket, &blocked));
	assert_int_equal(ticket, 0);
	assert_edge(&blocked, job, 2, 1, 1);
	assert_int_equal(blocked.edge.value, 1);
	assert_false(satisfied(&blocked));
	/* a full channel delays no other peer, nor its own back way */
	must_post(job, 2, 0, 0, 1);
	must_post(job, 1, 2, 0, 1);
	must_take(job, 1, 2, 17, 17);
	assert_true(satisfied(&blocked));
	assert_true(post(job, 2, 1, 17, 99, &ticket, &blocked));
	assert_false(post(job, 2, 1, 17, 99, &ticket, &blocked));
	assert_int_equal(blocked.edge.value, 2);
	must_take(job, 1, 2, 17, 99);
	test_job_close(job);
}

static void test_nothing_there(void **state)
{
	(void)state;
	struct test_job *job = test_job_open(2);
	struct wait_word blocked;
	must_post(job, 0, 1, 3, 1);
	assert_null(transport_channel_match(at(job, 1), 0, 4, &blocked));
	assert_edge(&blocked, job, 1, 1, 0);
	assert_int_equal(blocked.edge.value, 2);
	assert_false(satisfied(&blocked));
	must_post(job, 0, 1, 3, 2);
	assert_true(satisfied(&blocked)); /* something came, so it has to look again */
	assert_null(transport_channel_match(at(job, 1), 0, 4, &blocked));
	assert_false(satisfied(&blocked));
	must_post(job, 0, 1, 4, 3);
	assert_true(satisfied(&blocked));
	must_take(job, 1, 0, 4, 3);
	test_job_close(job);
}

static void test_self(void **state)
{
	(void)state;
	struct test_job *job = test_job_open(1);
	struct wait_word blocked;
	uint64_t ticket;
	ls_status refused;
	for (uint64_t i = 0; i < SLOTS; i++)
		assert_true(post(job, 0, 0, 1, i, &ticket, &blocked));
	assert_false(transport_channel_taken(at(job, 0), 0, ticket, &refused, &blocked));
	assert_edge(&blocked, job, 0, 0, 0);
	for (uint64_t i = 0; i < SLOTS; i++)
		must_take(job, 0, 0, 1, i);
	assert_true(transport_channel_taken(at(job, 0), 0, ticket, &refused, &blocked));
	assert_int_equal(refused, LS_OK);
	test_job_close(job);
}

static void test_long(void **state)
{
	(void)state;
	struct test_job *job = test_job_open(2);
	uint64_t offset = 8192, bytes = 100000, ticket;
	struct wait_word blocked;
	ls_status refused;
	memset(job->ranks[0].memory.base + offset, 0x5a, bytes);
	struct transport_envelope envelope = {.seq = 12, .count = bytes, .bytes = bytes};
	assert_true(
		transport_channel_post(at(job, 0), 1, &envelope, NULL, offset, &ticket, &blocked));
	assert_null(transport_channel_match(at(job, 1), 0, 11, &blocked));
	struct transport_message *message = transport_channel_match(at(job, 1), 0, 12, &blocked);
	assert_non_null(message);
	assert_int_equal(message->count, bytes);
	const unsigned char *payload = transport_channel_payload(at(job, 1), 0, message);
	assert_non_null(payload);
	assert_int_equal(payload[0], 0x5a);
	assert_int_equal(payload[bytes - 1], 0x5a);
	assert_int_equal(payload[bytes], 0);
	assert_false(transport_channel_taken(at(job, 0), 1, ticket, &refused, &blocked));
	assert_edge(&blocked, job, 0, 1, 1);
	assert_false(satisfied(&blocked));
	transport_channel_take(at(job, 1), 0, message, LS_OK);
	assert_true(satisfied(&blocked));
	assert_true(transport_channel_taken(at(job, 0), 1, ticket, &refused, &blocked));
	assert_int_equal(refused, LS_OK);
	/* A window outside the arena is nonsense. */
	envelope.bytes = TEST_JOB_ARENA_BYTES;
	assert_true(transport_channel_post(at(job, 0), 1, &envelope, NULL, 64, &ticket, &blocked));
	message = transport_channel_match(at(job, 1), 0, 12, &blocked);
	assert_non_null(message);
	assert_null(transport_channel_payload(at(job, 1), 0, message));
	test_job_close(job);
}

static void test_refusal(void **state)
{
	(void)state;
	struct test_job *job = test_job_open(2);
	uint64_t tickets[3];
	struct wait_word blocked;
	ls_status refused;
	for (int i = 0; i < 3; i++)
		assert_true(post(job, 0, 1, i, (uint64_t)i, &tickets[i], &blocked));
	must_take(job, 1, 0, 0, 0);
	assert_true(transport_channel_taken(at(job, 0), 1, tickets[0], &refused, &blocked));
	assert_int_equal(refused, LS_OK);
	transport_channel_take(at(job, 1), 0, match(job, 1, 0, 1), LS_MISMATCH);
	/* The slot is used again before the sender asks; the first refusal stays. */
	for (uint64_t i = 0; i < SLOTS - 1; i++)
		must_post(job, 0, 1, 50, i);
	transport_channel_take(at(job, 1), 0, match(job, 1, 0, 50), LS_TRUNCATED);
	assert_true(transport_channel_taken(at(job, 0), 1, tickets[1], &refused, &blocked));
	assert_int_equal(refused, LS_MISMATCH);
	assert_false(transport_channel_taken(at(job, 0), 1, tickets[2], &refused, &blocked));
	must_take(job, 1, 0, 2, 2);
	assert_true(transport_channel_taken(at(job, 0), 1, tickets[2], &refused, &blocked));
	assert_int_equal(refused, LS_MISMATCH);
	/* The other lane and the other direction are not closed. */
	must_post(job, 1, 0, 0, 0);
	must_take(job, 0, 1, 0, 0);
	test_job_close(job);
}

/* A channel is quiet once the receiver has taken all matched messages; messages that were never
 * matched do not count. */
static void test_quiet(void **state)
{
	(void)state;
	struct test_job *job = test_job_open(2);
	struct wait_word blocked;
	must_post(job, 0, 1, 1, 10);
	must_post(job, 0, 1, 2, 11);
	assert_true(transport_channel_quiet(at(job, 0), 1, &blocked));
	struct transport_message *message = match(job, 1, 0, 2);
	assert_false(transport_channel_quiet(at(job, 0), 1, &blocked));
	assert_edge(&blocked, job, 0, 1, 1);
	assert_false(satisfied(&blocked));
	transport_channel_take(at(job, 1), 0, message, LS_OK);
	assert_true(satisfied(&blocked));
	assert_true(transport_channel_quiet(at(job, 0), 1, &blocked));
	test_job_close(job);
}

/* ---- threads ---- */

enum { ROUNDS = 4000, STREAMS = 3 };

struct stream {
	struct test_job *job;
	int tag;
	bool ask; /* whether the sender waits until each message is taken */
	uint64_t sum;
	pthread_t sender, receiver;
};

static void *run_sender(void *argument)
{
	struct stream *stream = argument;
	struct test_job *job = stream->job;
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		uint64_t ticket;
		struct wait_word blocked;
		ls_status refused;
		while (!post(job, 0, 1, stream->tag, i, &ticket, &blocked))
			assert_int_equal(test_job_await(&job->ranks[0], &blocked), LS_OK);
		while (stream->ask &&
		       !transport_channel_taken(at(job, 0), 1, ticket, &refused, &blocked))
			assert_int_equal(test_job_await(&job->ranks[0], &blocked), LS_OK);
	}
	wait_thread_leave(&job->ranks[0].waiter);
	return NULL;
}

/* A receiver with a tag of its own sees 1, 2, …; receivers that share a tag see growing numbers. */
static void *run_receiver(void *argument)
{
	struct stream *stream = argument;
	struct test_job *job = stream->job;
	uint64_t last = 0;
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		struct wait_word blocked;
		struct transport_message *message;
		while (!(message = transport_channel_match(at(job, 1), 0, stream->tag, &blocked)))
			assert_int_equal(test_job_await(&job->ranks[1], &blocked), LS_OK);
		uint64_t value = value_of(job, 1, 0, message);
		if (stream->tag != 0)
			assert_int_equal(value, last + 1);
		last = value;
		stream->sum += value;
		transport_channel_take(at(job, 1), 0, message, LS_OK);
	}
	wait_thread_leave(&job->ranks[1].waiter);
	return NULL;
}

/* tag_step 1: a tag each; 0: all share tag 0. */
static void run_streams(int tag_step)
{
	struct test_job *job = test_job_open(2);
	struct stream streams[STREAMS];
	for (int i = 0; i < STREAMS; i++) {
		streams[i] = (struct stream){
			.job = job,
			.tag = tag_step * (i + 1),
			.ask = i == 1,
		};
		assert_int_equal(pthread_create(&streams[i].sender, NULL, run_sender, &streams[i]),
				 0);
		assert_int_equal(
			pthread_create(&streams[i].receiver, NULL, run_receiver, &streams[i]), 0);
	}
	uint64_t sum = 0;
	for (int i = 0; i < STREAMS; i++) {
		wait_join(streams[i].sender);
		wait_join(streams[i].receiver);
		sum += streams[i].sum;
	}
	assert_int_equal(sum, (uint64_t)STREAMS * ROUNDS * (ROUNDS + 1) / 2);
	assert_true(transport_is_valid(at(job, 0)));
	assert_true(transport_is_valid(at(job, 1)));
	test_job_close(job);
}

static void test_threads_with_tags(void **state)
{
	(void)state;
	run_streams(1);
}

static void test_threads_with_one_tag(void **state)
{
	(void)state;
	run_streams(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_oldest_first),
		cmocka_unit_test(test_half_posted),
		cmocka_unit_test(test_claims),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_nothing_there),
		cmocka_unit_test(test_self),
		cmocka_unit_test(test_long),
		cmocka_unit_test(test_refusal),
		cmocka_unit_test(test_quiet),
		cmocka_unit_test(test_threads_with_tags),
		cmocka_unit_test(test_threads_with_one_tag),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
