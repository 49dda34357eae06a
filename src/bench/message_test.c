/* SPDX-License-Identifier: BSD-3-Clause
 * Both sides of a round must fit together, the check must see every wrong element that was
 * received, and the time must be that of one message. The runtime is one rank of a made-up job,
 * which writes down its calls. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "bench/bench.h"

enum { SIZE = 3, FLOATS = 2 * BENCH_OUTSTANDING_MAX, STEP = 3 /* between the data of two ranks */ };
static const double round_s = 1e-3;

struct call {
	char kind; /* s r: send and recv; S R: isend and irecv; f: finish; g: regroup */
	int number, peer, tag;
	size_t at, count; /* of the send or recv buffer */
};

struct fake {
	int rank;
	long calls, fail_at; /* the call that fails, 0: none */
	size_t spoiled;      /* element of the recv buffer that comes wrong, from 1; 0: none */
	struct call log[2 * BENCH_OUTSTANDING_MAX];
	int logged;
	float send[FLOATS], recv[FLOATS];
};

static bool call(struct fake *fake, struct call what)
{
	if (fake->logged < 2 * BENCH_OUTSTANDING_MAX)
		fake->log[fake->logged++] = what;
	return ++fake->calls != fake->fail_at;
}

static bool run(void *state, enum bench_op op, float *send, float *recv, size_t count)
{
	struct fake *fake = state;
	(void)send;
	(void)recv;
	(void)count;
	assert_int_equal(op, BENCH_BARRIER);
	return ++fake->calls != fake->fail_at;
}

/* All loops take round_s, on all ranks together. */
static bool combine(void *state, enum bench_combine how, double *value)
{
	struct fake *fake = state;
	(void)how;
	*value = round_s;
	return ++fake->calls != fake->fail_at;
}

static size_t sent_at(const struct fake *fake, const float *buffer)
{
	return (size_t)(buffer - fake->send);
}

/* Receives what the peer has at the same place of its send buffer. */
static size_t receive(struct fake *fake, float *buffer, size_t count, int peer)
{
	size_t at = (size_t)(buffer - fake->recv);
	for (size_t i = at; i < at + count; i++)
		fake->recv[i] = fake->send[i] + STEP * (float)(peer - fake->rank) +
				(i + 1 == fake->spoiled ? 1 : 0);
	return at;
}

static bool send(void *state, const float *buffer, size_t count, int peer, int tag)
{
	return call(state, (struct call){'s', 0, peer, tag, sent_at(state, buffer), count});
}

static bool recv(void *state, float *buffer, size_t count, int peer, int tag)
{
	size_t at = receive(state, buffer, count, peer);
	return call(state, (struct call){'r', 0, peer, tag, at, count});
}

static bool isend(void *state, int number, const float *buffer, size_t count, int peer, int tag)
{
	return call(state, (struct call){'S', number, peer, tag, sent_at(state, buffer), count});
}

static bool irecv(void *state, int number, float *buffer, size_t count, int peer, int tag)
{
	size_t at = receive(state, buffer, count, peer);
	return call(state, (struct call){'R', number, peer, tag, at, count});
}

static bool finish(void *state, int count)
{
	return call(state, (struct call){'f', count, 0, 0, 0, 0});
}

static bool regroup(void *state)
{
	return call(state, (struct call){'g', 0, 0, 0, 0, 0});
}

static const struct bench_messages messages = {send, recv, isend, irecv, finish, regroup};

struct setup {
	struct fake fake;
	struct bench_runtime runtime;
	struct bench_case what;
};

static struct setup *new_setup(enum bench_op op, int rank, size_t bytes)
{
	struct setup *setup = calloc(1, sizeof *setup);
	assert_non_null(setup);
	setup->fake.rank = rank;
	setup->runtime = (struct bench_runtime){rank, SIZE, &setup->fake, run, combine, &messages};
	setup->what = (struct bench_case){op, bytes, false, setup->fake.send, setup->fake.recv};
	return setup;
}

/* Its calls as letters, repeated ones once. */
static void assert_calls(enum bench_op op, int rank, size_t bytes, const char *wanted)
{
	struct setup *s = new_setup(op, rank, bytes);
	char text[64] = "";
	int length = 0;
	assert_true(bench_round(&s->runtime, &s->what));
	for (int i = 0; i < s->fake.logged && length < 63; i++)
		if (i == 0 || s->fake.log[i].kind != s->fake.log[i - 1].kind)
			text[length++] = s->fake.log[i].kind;
	assert_string_equal(text, wanted);
	free(s);
}

static void test_sides_fit_together(void **state)
{
	(void)state;
	assert_calls(BENCH_PING_PONG, 0, 8, "sr");
	assert_calls(BENCH_PING_PONG, 1, 8, "rs");
	assert_calls(BENCH_BANDWIDTH, 0, 4096, "Sfr");
	assert_calls(BENCH_BANDWIDTH, 1, 4096, "Rfs");
	assert_calls(BENCH_MESSAGE_RATE, 0, 8, "Sfr");
	assert_calls(BENCH_MESSAGE_RATE, 1, 8, "Rfs");
	assert_calls(BENCH_MATCH, 0, 80, "rSf"); /* nothing is sent before all receives are there */
	assert_calls(BENCH_MATCH, 1, 80, "Rsf");
	for (int rank = 0; rank < SIZE; rank++)
		assert_calls(BENCH_GROUP, rank, 0, "g");
	for (int op = BENCH_PING_PONG; op < BENCH_GROUP; op++)
		assert_calls((enum bench_op)op, 2, 80, "");
}

static void test_windows(void **state)
{
	(void)state;
	assert_int_equal(bench_round_messages(BENCH_BANDWIDTH, 8), BENCH_WINDOW);
	assert_int_equal(bench_round_messages(BENCH_BANDWIDTH, 1 << 20), BENCH_WINDOW);
	assert_int_equal(bench_round_messages(BENCH_BANDWIDTH, 8 << 20), 32);
	assert_int_equal(bench_round_messages(BENCH_BANDWIDTH, (size_t)1 << 36), 4);
	struct setup *s = new_setup(BENCH_MESSAGE_RATE, 0, BENCH_SMALL_BYTES);
	assert_true(bench_round(&s->runtime, &s->what));
	assert_int_equal(s->fake.logged, BENCH_WINDOW + 2);
	assert_int_equal(s->fake.log[BENCH_WINDOW].number, BENCH_WINDOW);
	for (int i = 0; i < BENCH_WINDOW; i++) {
		assert_int_equal(s->fake.log[i].number, i);
		assert_int_equal(s->fake.log[i].peer, 1);
		assert_int_equal(s->fake.log[i].count, BENCH_SMALL_BYTES / sizeof(float));
	}
	free(s);
}

/* Each receive has a tag of its own, each is sent to once, and not in their turn. */
static void assert_match(int count)
{
	struct setup *sender = new_setup(BENCH_MATCH, 0, (size_t)count * BENCH_SMALL_BYTES);
	struct setup *receiver = new_setup(BENCH_MATCH, 1, (size_t)count * BENCH_SMALL_BYTES);
	int *place_of = calloc(1 << 15, sizeof *place_of), in_turn = 0;
	assert_non_null(place_of);
	assert_int_equal(bench_round_messages(BENCH_MATCH, sender->what.bytes), count);
	assert_true(bench_round(&sender->runtime, &sender->what));
	assert_true(bench_round(&receiver->runtime, &receiver->what));
	for (int i = 0; i < count; i++) {
		const struct call *one = &receiver->fake.log[i];
		assert_in_range(one->tag, 0, (1 << 15) - 1);
		assert_int_equal(one->number, i);
		assert_int_equal(one->at, 2 * i);
		assert_int_equal(place_of[one->tag], 0);
		place_of[one->tag] = i + 1;
	}
	for (int i = 0; i < count; i++) {
		const struct call *one = &sender->fake.log[1 + i];
		assert_int_equal(one->number, i);
		assert_int_equal(one->at, 2 * (place_of[one->tag] - 1));
		place_of[one->tag] = 0;
		in_turn += one->at == (size_t)(2 * i);
	}
	if (count > 3)
		assert_in_range(in_turn, 1, count / 2);
	free(place_of);
	free(sender);
	free(receiver);
}

static void test_match(void **state)
{
	(void)state;
	for (int count = 1; count <= BENCH_OUTSTANDING_MAX;
	     count = count < 50 ? count + 1 : count + 97)
		assert_match(count);
	assert_match(1000);
	assert_match(BENCH_OUTSTANDING_MAX);
	assert_int_equal(bench_count(BENCH_MATCH, 0, SIZE), 2);
	assert_int_equal(bench_count(BENCH_MATCH, 1 << 20, SIZE), 2 * BENCH_OUTSTANDING_MAX);
}

static void test_check(void **state)
{
	char text[128];
	(void)state;
	for (int op = BENCH_PING_PONG; op < BENCH_OP_COUNT; op++)
		for (int rank = 0; rank < SIZE; rank++) {
			struct setup *s = new_setup((enum bench_op)op, rank, 256);
			size_t elements = bench_elements((enum bench_op)op, 256, SIZE);
			bool gets = op != BENCH_GROUP &&
				    (rank == 1 || (rank == 0 && op == BENCH_PING_PONG));
			assert_int_equal(elements, op == BENCH_GROUP ? 0 : 64);
			assert_true(bench_check(&s->runtime, &s->what, text, sizeof text));
			for (size_t i = 1; i <= elements; i++) {
				s->fake.spoiled = i;
				assert_int_equal(
					bench_check(&s->runtime, &s->what, text, sizeof text),
					!gets);
				assert_int_equal(strstr(text, bench_op_name((enum bench_op)op)) !=
							 NULL,
						 gets);
			}
			free(s);
		}
}

static void test_runtimes_without_messages(void **state)
{
	char text[128];
	(void)state;
	for (int op = BENCH_PING_PONG; op < BENCH_OP_COUNT; op++) {
		struct setup *s = new_setup((enum bench_op)op, 0, 8);
		s->runtime.messages = NULL;
		assert_false(bench_check(&s->runtime, &s->what, text, sizeof text));
		assert_non_null(strstr(text, bench_op_name((enum bench_op)op)));
		free(s);
	}
}

static void test_time_is_that_of_one_message(void **state)
{
	const struct bench_effort effort = {.repeat_s = 1e-4, .limit_s = 1, .repeats = 3};
	const int messages_of[] = {2, BENCH_WINDOW, BENCH_WINDOW, 100, 1};
	(void)state;
	for (int op = BENCH_PING_PONG; op < BENCH_OP_COUNT; op++) {
		struct setup *s = new_setup((enum bench_op)op, 0, 100 * BENCH_SMALL_BYTES);
		double one = round_s / messages_of[op - BENCH_PING_PONG];
		struct bench_time taken;
		assert_true(bench_time(&s->runtime, &s->what, &effort, &taken));
		assert_true(taken.seconds > 0.999 * one && taken.seconds < 1.001 * one);
		assert_true(taken.cpu_seconds > 0.999 * one && taken.cpu_seconds < 1.001 * one);
		free(s);
	}
}

/* However often a failure comes, it ends the measurement. */
static void test_time_ends_with_a_failure(void **state)
{
	const struct bench_effort effort = {.repeat_s = 1e-4, .limit_s = 1, .repeats = 2};
	struct bench_time taken;
	(void)state;
	for (int op = BENCH_PING_PONG; op < BENCH_OP_COUNT; op++)
		for (int rank = 0; rank < 2; rank++)
			for (long at = 1; at < 40; at++) {
				struct setup *s = new_setup((enum bench_op)op, rank, 24);
				s->fake.fail_at = at;
				bool good = bench_time(&s->runtime, &s->what, &effort, &taken);
				assert_int_equal(good, s->fake.calls < at);
				if (!good)
					assert_int_equal(s->fake.calls, at);
				free(s);
			}
}

static void test_sizes(void **state)
{
	int count;
	(void)state;
	assert_null(bench_sizes(BENCH_PING_PONG, &count));
	assert_null(bench_sizes(BENCH_ALLREDUCE, &count));
	const size_t *sizes = bench_sizes(BENCH_MATCH, &count);
	for (int i = 0, outstanding = 1; i < count; i++, outstanding *= 10)
		assert_int_equal(bench_round_messages(BENCH_MATCH, sizes[i]), outstanding);
	assert_int_equal(count, 4);
	assert_int_equal(bench_sizes(BENCH_MESSAGE_RATE, &count)[0], BENCH_SMALL_BYTES);
	assert_int_equal(count, 1);
	for (int op = 0; op < BENCH_OP_COUNT; op++)
		assert_int_equal(bench_needs_two((enum bench_op)op),
				 op >= BENCH_PING_PONG && op < BENCH_GROUP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sides_fit_together),
		cmocka_unit_test(test_windows),
		cmocka_unit_test(test_match),
		cmocka_unit_test(test_check),
		cmocka_unit_test(test_runtimes_without_messages),
		cmocka_unit_test(test_time_is_that_of_one_message),
		cmocka_unit_test(test_time_ends_with_a_failure),
		cmocka_unit_test(test_sizes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
