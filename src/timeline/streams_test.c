/* SPDX-License-Identifier: BSD-3-Clause
 * Operations on streams of a device: marked in each picture, and how far those have come that still
 * run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "timeline/timeline_fixture.h"

enum { SIZE = 5, WORLD = 1, LAUNCHED = TRACE_ON_STREAM | TRACE_LAUNCHED };

/* How far the operation of each rank is on its stream. */
static const uint32_t seen[SIZE] = {
	TRACE_ON_STREAM,
	LAUNCHED,
	LAUNCHED | TRACE_REACHED,
	LAUNCHED | TRACE_REACHED | TRACE_ARRIVED,
	0,
};

static void put(struct timeline *timeline, int rank, uint64_t seq, unsigned state, uint32_t stream,
		uint64_t begin_ns, uint64_t end_ns)
{
	struct trace_record record = {.index = seq,
				      .seq = seq,
				      .kind = TRACE_ALLREDUCE,
				      .group = WORLD,
				      .peer = -1,
				      .count = 1000,
				      .state = (uint16_t)state,
				      .status = state == TRACE_FAILED ? LS_TIMED_OUT : LS_OK,
				      .stream = stream};

	assert_true(timeline_put(timeline, rank, &record, begin_ns, end_ns));
}

/* Each rank has done an all-reduce on a stream, and is in another one. Of rank 4 that one is on the
 * host, and one before it has failed. */
static int set_up(void **state)
{
	struct timeline *timeline = timeline_new(0x1234, SIZE);

	assert_non_null(timeline);
	timeline->groups[timeline->group_count++] =
		(struct timeline_group){.id = WORLD, .name = "world"};
	for (int rank = 0; rank < SIZE; rank++) {
		timeline->ranks[rank].known = true;
		put(timeline, rank, 1, TRACE_DONE, LAUNCHED | TRACE_REACHED | TRACE_ARRIVED, 0,
		    20000);
		put(timeline, rank, 3, TRACE_RUNNING, seen[rank], 40000, 0);
	}
	put(timeline, 4, 2, TRACE_FAILED, LAUNCHED, 23000, 37000);
	assert_true(timeline_lay_out(timeline, 0, 60000));
	*state = timeline;
	return 0;
}

static int tear_down(void **state)
{
	timeline_free(*state);
	return 0;
}

static void draw_text(const struct timeline *timeline, FILE *out)
{
	timeline_text(timeline, 60, out);
}

static void as_text(void **state)
{
	static const char expected[] =
		"job 0000000000001234: unknown program, 5 ranks, 11 operations in 45.0 us\n"
		"               |0 us              |20 us              |40 u\n"
		"rank 0  world |(AAAAAAAAAAAAAAAAAA)                   (AA~>|\n"
		"rank 1  world |(AAAAAAAAAAAAAAAAAA)                   (AA~>|\n"
		"rank 2  world |(AAAAAAAAAAAAAAAAAA)                   (AA~>|\n"
		"rank 3  world |(AAAAAAAAAAAAAAAAAA)                   (AA~>|\n"
		"rank 4  world |(AAAAAAAAAAAAAAAAAA)  (AAAAAAAAAAAAA!  [AA~>|\n"
		"  A all-reduce  # several, : short ones  () on a stream\n"
		"  ~> still running  ! failed\n"
		"rank 0: all-reduce #3 of world, which is being enqueued on its stream, still runs "
		"after 20.0 us\n"
		"rank 1: all-reduce #3 of world, to which its stream has not come yet, still runs "
		"after 20.0 us\n"
		"rank 2: all-reduce #3 of world, on a stream, still runs after 20.0 us\n"
		"rank 3: all-reduce #3 of world, whose result its stream has not taken yet, still "
		"runs after 20.0 us\n"
		"rank 4: all-reduce #2 of world, on a stream, failed with LS_TIMED_OUT after 14.0 us\n"
		"rank 4: all-reduce #3 of world still runs after 20.0 us\n";
	char *text = drawn(*state, draw_text);

	assert_string_equal(text, expected);
	free(text);
}

static void as_json(void **state)
{
	static const char key[] = "\"stream\":\"";
	char words[256] = "";
	char *json = drawn(*state, timeline_json);

	for (const char *at = json; (at = strstr(at, key)); at += strlen(key)) {
		size_t used = strlen(words), length = strcspn(at + strlen(key), "\"");
		snprintf(words + used, sizeof words - used, "%.*s ", (int)length, at + strlen(key));
	}
	assert_string_equal(words, "arrived called arrived launched arrived reached arrived arrived "
				   "arrived launched ");
	free(json);
}

static void as_a_picture(void **state)
{
	char *svg = drawn(*state, timeline_svg);

	assert_int_equal(count(svg, " stream\""), 9 + 1); /* and in the legend */
	assert_int_equal(count(svg, " stream failed\""), 1);
	assert_int_equal(count(svg, ">on a stream</text>"), 1);
	assert_int_equal(count(svg, "<title>all-reduce #1 of world, on a stream\n"), SIZE);
	assert_int_equal(count(svg, "<title>all-reduce #2 of world, on a stream\n"), 1);
	assert_int_equal(
		count(svg, "<title>all-reduce #3 of world, which is being enqueued on its stream\n"),
		1);
	assert_int_equal(
		count(svg, "<title>all-reduce #3 of world, to which its stream has not come yet\n"),
		1);
	assert_int_equal(count(svg, "<title>all-reduce #3 of world, on a stream\n"), 1);
	assert_int_equal(count(svg, "<title>all-reduce #3 of world, whose result its stream has not "
				    "taken yet\n"),
			 1);
	assert_int_equal(count(svg, "<title>all-reduce #3 of world\n"), 1);
	free(svg);
}

int main(void)
{
#define WITH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		WITH(as_text),
		WITH(as_json),
		WITH(as_a_picture),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
