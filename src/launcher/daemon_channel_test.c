/* SPDX-License-Identifier: BSD-3-Clause
 * Frames and the greeting: whole, in pieces, and wrong. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <lockstep/lockstep.h>

#include "launcher/daemon_channel.h"

struct pair {
	struct launcher_channel one, other;
	int pipe[2];
};

static void pair_open(struct pair *pair)
{
	assert_int_equal(pipe2(pair->pipe, O_CLOEXEC | O_NONBLOCK), 0);
	launcher_channel_init(&pair->one, -1, pair->pipe[1]);
	launcher_channel_init(&pair->other, pair->pipe[0], -1);
}

static void pair_close(struct pair *pair)
{
	launcher_channel_fini(&pair->one);
	launcher_channel_fini(&pair->other);
	close(pair->pipe[0]);
	if (pair->pipe[1] >= 0)
		close(pair->pipe[1]);
}

/* Writes and reads once, as if poll had said so. */
static void move(struct pair *pair)
{
	struct launcher_poll set = {.fds = {{.revents = POLLOUT}, {.revents = POLLIN}}, .count = 2};

	pair->one.poll_in = -1;
	pair->one.poll_out = pair->one.to.start < pair->one.to.end ? 0 : -1;
	launcher_channel_step(&pair->one, &set);
	pair->other.poll_in = 1;
	pair->other.poll_out = -1;
	launcher_channel_step(&pair->other, &set);
}

static void test_frames(void **state)
{
	struct pair pair;
	struct channel_frame frame;
	struct channel_output output = {.rank = 3, .stream = 1};
	struct channel_credit credit = {.bytes = 77};

	(void)state;
	pair_open(&pair);
	launcher_channel_send(&pair.one, CHANNEL_OUTPUT, &output, sizeof output, "text", 4);
	launcher_channel_send(&pair.one, CHANNEL_CREDIT, &credit, sizeof credit, NULL, 0);
	launcher_channel_send(&pair.one, CHANNEL_END, NULL, 0, NULL, 0);
	move(&pair);
	memset(&output, 0, sizeof output);
	assert_true(launcher_channel_next(&pair.other, &frame));
	assert_int_equal(frame.type, CHANNEL_OUTPUT);
	assert_true(launcher_channel_copy(&frame, &output, sizeof output));
	assert_int_equal(output.rank, 3);
	assert_int_equal(frame.bytes, sizeof output + 4);
	assert_memory_equal(frame.payload + sizeof output, "text", 4);
	assert_true(launcher_channel_next(&pair.other, &frame));
	assert_int_equal(frame.type, CHANNEL_CREDIT);
	assert_false(launcher_channel_copy(&frame, &(char[16]){0}, 16));
	assert_true(launcher_channel_next(&pair.other, &frame));
	assert_int_equal(frame.bytes, 0);
	assert_false(launcher_channel_next(&pair.other, &frame));
	assert_false(pair.other.ended);
	close(pair.pipe[1]);
	pair.pipe[1] = -1;
	move(&pair);
	assert_true(pair.other.ended);
	assert_false(pair.other.wrong);
	pair_close(&pair);
}

/* A frame whose bytes come one by one is one frame, and only when all are there. */
static void test_pieces(void **state)
{
	struct pair pair;
	struct channel_frame frame;
	struct channel_ended ended = {.rank = 1, .signal = 9};

	(void)state;
	pair_open(&pair);
	launcher_channel_send(&pair.one, CHANNEL_ENDED, &ended, sizeof ended, NULL, 0);
	size_t bytes = pair.one.to.end;
	for (size_t i = 0; i < bytes; i++) {
		assert_false(launcher_channel_next(&pair.other, &frame));
		assert_int_equal(write(pair.pipe[1], pair.one.to.data + i, 1), 1);
		pair.one.to.start = pair.one.to.end;
		move(&pair);
	}
	assert_true(launcher_channel_next(&pair.other, &frame));
	assert_int_equal(frame.type, CHANNEL_ENDED);
	pair_close(&pair);
}

static void refused(uint32_t type, uint32_t bytes)
{
	struct pair pair;
	struct channel_frame frame;
	uint32_t head[2] = {type, bytes};

	pair_open(&pair);
	assert_int_equal(write(pair.pipe[1], head, sizeof head), sizeof head);
	move(&pair);
	assert_false(launcher_channel_next(&pair.other, &frame));
	assert_true(pair.other.wrong && pair.other.ended);
	assert_false(launcher_channel_next(&pair.other, &frame));
	pair_close(&pair);
}

static void test_nonsense(void **state)
{
	(void)state;
	refused(0, 4);
	refused(CHANNEL_LAST + 1, 4);
	refused(CHANNEL_OUTPUT, CHANNEL_FRAME_MAX + 1);
	refused(UINT32_MAX, UINT32_MAX);
}

static int greeted(const char *text, size_t bytes, char version[CHANNEL_VERSION_BYTES])
{
	struct pair pair;
	int result = 0;

	pair_open(&pair);
	while (result == 0 && bytes > 0) {
		size_t part = bytes < 4096 ? bytes : 4096;
		assert_int_equal(write(pair.pipe[1], text, part), part);
		move(&pair);
		result = launcher_channel_hear_greeting(&pair.other, version);
		text += part;
		bytes -= part;
	}
	assert_true(result >= 0 || pair.other.ended);
	pair_close(&pair);
	return result;
}

#define GREETED(text) greeted(text, sizeof text - 1, version)

static void test_greeting(void **state)
{
	char version[CHANNEL_VERSION_BYTES];
	struct pair pair;

	(void)state;
	pair_open(&pair);
	launcher_channel_greet(&pair.one);
	move(&pair);
	assert_int_equal(launcher_channel_hear_greeting(&pair.other, version), 1);
	assert_string_equal(version, LOCKSTEP_VERSION);
	pair_close(&pair);

	assert_int_equal(GREETED("Welcome!\nlast login: now\n\nlockstep daemon 9.1\nrest"), 1);
	assert_string_equal(version, "9.1");
	assert_int_equal(GREETED("\nlockstep daemon 9.1"), 0);
	assert_int_equal(GREETED("sh: lockstep: not found\n"), 0);
	assert_int_equal(GREETED("\nlockstep daemon \n"), -1);
	assert_int_equal(GREETED("\nlockstep daemon 9\x01\n"), -1);
	assert_int_equal(GREETED("\nlockstep daemon 0123456789012345678901234567890123456789\n"),
			 -1);
	static char noise[CHANNEL_NOISE_MAX + 4096];
	memset(noise, 'x', sizeof noise);
	assert_int_equal(greeted(noise, sizeof noise, version), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frames),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_greeting),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
