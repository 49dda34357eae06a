/* SPDX-License-Identifier: BSD-3-Clause
 * From records to rows, columns and words; and that no content of a trace can break the picture. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "timeline/timeline_fixture.h"

enum { SIZE = 3, WORLD = 1, TEXT_BYTES = 1 << 16 };

static int set_up(void **state)
{
	struct timeline *timeline = timeline_new(0x1234, SIZE);

	assert_non_null(timeline);
	for (int i = 0; i < SIZE; i++)
		timeline->ranks[i].known = true;
	timeline->groups[timeline->group_count++] =
		(struct timeline_group){.id = WORLD, .name = "world"};
	*state = timeline;
	return 0;
}

static int tear_down(void **state)
{
	timeline_free(*state);
	return 0;
}

static struct trace_record collective(uint32_t kind, uint32_t group, uint64_t seq)
{
	return (struct trace_record){.index = seq,
				     .seq = seq,
				     .kind = (uint16_t)kind,
				     .group = group,
				     .peer = -1,
				     .count = 1000,
				     .state = TRACE_DONE};
}

static struct trace_record message(uint32_t kind, int peer, int tag)
{
	return (struct trace_record){.index = 1,
				     .seq = 1,
				     .kind = (uint16_t)kind,
				     .group = WORLD,
				     .peer = peer,
				     .tag = tag,
				     .count = 1,
				     .state = TRACE_DONE};
}

static void put(struct timeline *timeline, int rank, struct trace_record record, uint64_t begin_ns,
		uint64_t end_ns)
{
	assert_true(timeline_put(timeline, rank, &record, begin_ns, end_ns));
}

static void put_running(struct timeline *timeline, int rank, struct trace_record record,
			uint64_t begin_ns)
{
	record.state = TRACE_RUNNING;
	put(timeline, rank, record, begin_ns, 0);
}

/* The labels of all rows, "" for what goes on, each with the number of operations on it. */
static void expect_rows(const struct timeline *timeline, const char *expected)
{
	char text[4096] = "";
	size_t used = 0;

	for (uint32_t i = 0; i < timeline->row_count; i++) {
		const struct timeline_row *row = &timeline->rows[i];
		int count = 0;
		for (size_t j = 0; j < timeline->op_count; j++) {
			count += timeline->ops[j].row == i;
			assert_true(timeline->ops[j].row != i || timeline->ops[j].rank == row->rank);
		}
		used += (size_t)snprintf(text + used, sizeof text - used, "%d %s: %d\n", row->rank,
					 row->first ? row->label : "", count);
	}
	assert_string_equal(text, expected);
}

/* No two operations on a row at one time, and each rank's rows together. */
static void expect_no_overlap(const struct timeline *timeline)
{
	for (size_t i = 0; i < timeline->op_count; i++)
		for (size_t j = i + 1; j < timeline->op_count; j++) {
			const struct timeline_op *a = &timeline->ops[i], *b = &timeline->ops[j];
			assert_true(a->rank <= b->rank);
			assert_true(a->row != b->row || a->end_ns <= b->begin_ns);
		}
}

static void each_lane_has_a_row(void **state)
{
	struct timeline *timeline = *state;

	timeline->groups[timeline->group_count++] =
		(struct timeline_group){.id = 7, .name = "tensor"};
	put(timeline, 1, message(TRACE_RECV, 0, 5), 10, 90);
	put(timeline, 1, message(TRACE_SEND, 2, 0), 20, 30);
	put(timeline, 1, message(TRACE_SEND, 2, 0), 30, 40);
	put(timeline, 1, message(TRACE_RECV, -1, -1), 10, 90);
	put(timeline, 1, message(TRACE_RECV, 0, 0), 20, 30);
	put(timeline, 1, collective(TRACE_BARRIER, 7, 1), 10, 20);
	put(timeline, 1, collective(TRACE_ALLREDUCE, WORLD, 1), 10, 20);
	put(timeline, 1, collective(TRACE_BROADCAST, WORLD, 2), 20, 25);
	put(timeline, 0, message(TRACE_SEND, 1, 5), 80, 90);
	struct trace_record other = message(TRACE_SEND, 1, 0);
	other.group = 7;
	put(timeline, 0, other, 80, 90);
	assert_true(timeline_lay_out(timeline, 0, 0));
	expect_rows(timeline, "0 to 1 tag 5: 1\n"
			      "0 tensor: to member 1: 1\n"
			      "1 world: 2\n"
			      "1 tensor: 1\n"
			      "1 to 2: 2\n"
			      "1 from any any tag: 1\n"
			      "1 from 0: 1\n"
			      "1 from 0 tag 5: 1\n");
	expect_no_overlap(timeline);
	assert_int_equal(timeline->ranks[1].row, 2);
	assert_int_equal(timeline->ranks[1].row_count, 6);
	assert_int_equal(timeline->ranks[2].row_count, 0);
	assert_int_equal(timeline->begin_ns, 10);
	assert_int_equal(timeline->end_ns, 90);
}

static void what_overlaps_lies_on_several_rows(void **state)
{
	struct timeline *timeline = *state;

	put(timeline, 0, collective(TRACE_ALLREDUCE, WORLD, 1), 0, 30);
	put(timeline, 0, collective(TRACE_ALLREDUCE, WORLD, 2), 10, 20);
	put(timeline, 0, collective(TRACE_ALLREDUCE, WORLD, 3), 20, 50);
	put(timeline, 0, collective(TRACE_ALLREDUCE, WORLD, 4), 29, 40);
	put(timeline, 0, collective(TRACE_ALLREDUCE, WORLD, 5), 30, 40);
	put(timeline, 0, message(TRACE_SEND, 1, 0), 0, 50);
	assert_true(timeline_lay_out(timeline, 0, 0));
	expect_rows(timeline, "0 world: 2\n0 : 2\n0 : 1\n0 to 1: 1\n");
	expect_no_overlap(timeline);
}

/* Less is kept apart where there would be too much: first of tags, then of peers, then of
 * groups. */
static void rows_are_joined_when_there_are_many(void **state)
{
	struct timeline *timeline = *state;

	for (int tag = 0; tag < TIMELINE_ROW_MAX; tag++)
		put(timeline, 0, message(TRACE_SEND, 1 + tag % 2, tag), 10 * (uint64_t)tag,
		    10 * (uint64_t)tag + 15);
	for (int peer = 0; peer <= TIMELINE_ROW_MAX; peer++)
		put(timeline, 1, message(TRACE_RECV, peer, 3), 10 * (uint64_t)peer,
		    10 * (uint64_t)peer + 5);
	put(timeline, 0, collective(TRACE_BARRIER, WORLD, 1), 0, 10);
	for (uint32_t group = 1; group <= 2 * TIMELINE_ROW_MAX; group++)
		put(timeline, 2, collective(TRACE_BARRIER, group, 1), 10 * group, 10 * group + 5);
	for (int i = 0; i < 100; i++)
		put(timeline, 2, message(TRACE_SEND, i, i), 0, 1000);
	put(timeline, 2, message(TRACE_RECV, 0, 0), 500, 600);
	assert_true(timeline_lay_out(timeline, 0, 0));
	assert_true(timeline->row_count <= SIZE * TIMELINE_ROW_MAX);
	assert_int_equal(timeline->ranks[0].row_count, 3);
	assert_string_equal(timeline->rows[0].label, "world");
	assert_string_equal(timeline->rows[1].label, "to 1");
	assert_string_equal(timeline->rows[2].label, "to 2");
	assert_int_equal(timeline->ranks[1].row_count, 1);
	assert_string_equal(timeline->rows[3].label, "receives");
	const struct timeline_row *rows = &timeline->rows[timeline->ranks[2].row];
	uint32_t last = timeline->ranks[2].row_count - 1;
	assert_string_equal(rows[0].label, "collectives");
	assert_string_equal(rows[1].label, "sends");
	assert_string_equal(rows[last].label, "receives");
	assert_true(rows[1].first && !rows[2].first && rows[last].first);
}

static void what_runs_ends_with_the_timeline(void **state)
{
	struct timeline *timeline = *state;

	put(timeline, 0, collective(TRACE_ALLREDUCE, WORLD, 1), 1000000, 2000000);
	put_running(timeline, 1, message(TRACE_RECV, 0, 9), 1500000);
	assert_true(timeline_lay_out(timeline, 0, 3600 * UINT64_C(1000000000)));
	/* An hour is not drawn to scale, but it is said. */
	assert_int_equal(timeline->begin_ns, 1000000);
	assert_int_equal(timeline->end_ns, 2000000 + 101000);
	assert_int_equal(timeline->ops[1].end_ns, timeline->end_ns);
	char text[512] = "";
	timeline_describe(timeline, &timeline->ops[1], text, sizeof text);
	assert_string_equal(text,
			    "receive #1 from 0, tag 9\n1 x int8\nstill running after 3600 s, begun "
			    "at 500 us\nrank 1, thread 0");
}

static void time_that_is_not_over_is_not_drawn(void **state)
{
	struct timeline *timeline = *state;

	put(timeline, 0, collective(TRACE_ALLREDUCE, WORLD, 1), 1000000, 2000000);
	put_running(timeline, 1, message(TRACE_RECV, 0, 9), 1500000);
	assert_true(timeline_lay_out(timeline, 0, 2000500));
	assert_int_equal(timeline->end_ns, 2000500);
}

static void the_last_milliseconds_alone(void **state)
{
	struct timeline *timeline = *state;

	put_running(timeline, 0, message(TRACE_RECV, 1, 0), 100);
	put(timeline, 0, collective(TRACE_ALLREDUCE, WORLD, 1), 200, 7999);
	put(timeline, 0, collective(TRACE_ALLREDUCE, WORLD, 2), 7000, 8000);
	put(timeline, 0, collective(TRACE_ALLREDUCE, WORLD, 3), 9000, 10000);
	assert_true(timeline_lay_out(timeline, 2000, 0));
	assert_int_equal(timeline->op_count, 3);
	assert_int_equal(timeline->begin_ns, 8000);
	assert_int_equal(timeline->end_ns, 10000);
	assert_int_equal(timeline->ops[1].record.seq, 2);
}

static void nothing_is_laid_out_too(void **state)
{
	struct timeline *timeline = *state;

	assert_true(timeline_lay_out(timeline, 0, 5));
	assert_int_equal(timeline->row_count, 0);
	assert_int_equal(timeline->end_ns - timeline->begin_ns, 0);
	assert_null(timeline_new(1, 0));
	assert_null(timeline_new(1, TIMELINE_RANK_MAX + 1));
}

static void too_many_leave_the_newest(void **state)
{
	struct timeline *timeline = *state;

	for (uint64_t i = 0; i < TIMELINE_OP_MAX + 10; i++)
		put(timeline, (int)(i % 2), collective(TRACE_BARRIER, WORLD, i + 1), 100 + i,
		    101 + i);
	assert_true(timeline_lay_out(timeline, 0, 0));
	assert_int_equal(timeline->op_count, TIMELINE_OP_MAX);
	assert_int_equal(timeline->begin_ns, 110);
	assert_int_equal(timeline->ranks[1].complete_ns, 110);
}

/* ---- from a real trace ---- */

static void a_trace_is_read(void **state)
{
	struct trace_options options = {.job = 1, .rank = 0, .world_size = SIZE, .records = 16};
	struct timeline *timeline = *state;
	struct trace trace;
	struct trace_view view;
	const char *why;

	assert_int_equal(trace_init(&trace, &options), LS_OK);
	struct trace_begin begin = {.kind = TRACE_RECV, .group = 5, .peer = 1, .tag = 3};
	begin.label = trace_label(&trace, "first.py:1");
	static const uint16_t members[SIZE] = {0, 1, 2};
	trace_group_fill(&trace, 0,
			 &(struct trace_membership){.id = 5, .size = SIZE, .members = members});
	trace_begin(&trace, &begin);
	begin.kind = TRACE_SEND;
	begin.label = trace_label(&trace, "loop.py:2");
	for (begin.seq = 1; begin.seq <= 40; begin.seq++)
		trace_end(&trace, trace_begin(&trace, &begin), begin.seq == 40 ? LS_ABORTED : LS_OK);
	assert_true(trace_check(trace.header, trace.bytes, &view, &why));
	timeline->ranks[0].known = false;
	assert_true(timeline_add(timeline, 0, &view));
	assert_true(timeline_add(timeline, 0, &view)); /* once is enough */
	timeline_add_sites(timeline, 0, &view);
	assert_true(timeline_lay_out(timeline, 0, clock_now_ns()));
	assert_int_equal(timeline->op_count, 16);
	const struct timeline_op *first = &timeline->ops[0], *last = &timeline->ops[15];
	assert_true(timeline_runs(first));
	assert_int_equal(first->begin_ns, timeline->begin_ns);
	assert_string_equal(timeline_site(timeline, first), "first.py:1");
	assert_int_equal(last->record.seq, 40);
	assert_int_equal(last->record.state, TRACE_FAILED);
	assert_string_equal(timeline_site(timeline, last), "loop.py:2");
	assert_string_equal(timeline_group(timeline, 5), "group 5");
	/* The one that runs is older than what is complete. */
	assert_true(timeline->ranks[0].complete_ns > first->begin_ns);
	assert_true(timeline->ranks[0].complete_ns <= timeline->ops[1].begin_ns);
	trace_fini(&trace);
}

/* ---- words ---- */

static void marks_are_nice(void **state)
{
	static const struct {
		uint64_t span_ns, step_ns, at_ns;
		const char *mark;
	} cases[] = {
		{0, 1, 0, "0 ns"},
		{9, 1, 9, "9 ns"},
		{101, 20, 40, "40 ns"},
		{999, 100, 900, "900 ns"},
		{3400000, 500000, 1500000, "1.5 ms"},
		{1000000, 100000, 900000, "0.9 ms"},
		{1700000000, UINT64_C(200000000), 1600000000, "1.6 s"},
		{600 * UINT64_C(1000000000), 100 * UINT64_C(1000000000), 600 * UINT64_C(1000000000),
		 "600 s"},
		{UINT64_MAX, UINT64_C(2000000000000000000), 0, "0 s"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char mark[32];
		assert_int_equal(timeline_step(cases[i].span_ns, 10), cases[i].step_ns);
		timeline_mark(cases[i].at_ns, cases[i].span_ns, cases[i].step_ns, mark, sizeof mark);
		assert_string_equal(mark, cases[i].mark);
	}
	/* Never more marks than asked for. */
	for (uint64_t span_ns = 1; span_ns < UINT64_MAX / 3; span_ns = span_ns * 3 + 1)
		for (int marks = 1; marks < 20; marks++)
			assert_true(span_ns / timeline_step(span_ns, marks) <= (uint64_t)marks);
}

static void durations_have_three_digits(void **state)
{
	static const struct {
		uint64_t ns;
		const char *text;
	} cases[] = {{0, "0 ns"},        {999, "999 ns"},       {1234, "1.23 us"},
		     {12345, "12.3 us"}, {123456789, "123 ms"}, {3600000000000, "3600 s"}};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char text[32];
		timeline_duration(cases[i].ns, text, sizeof text);
		assert_string_equal(text, cases[i].text);
	}
}

static void every_kind_has_a_look(void **state)
{
	(void)state;
	for (uint32_t kind = 1; kind < TRACE_KIND_COUNT; kind++) {
		assert_int_not_equal(timeline_look(kind).letter, '?');
		assert_int_equal(strlen(timeline_look(kind).color), 7);
	}
	assert_int_equal(timeline_look(TRACE_KIND_COUNT).letter, '?');
}

/* ---- pictures ---- */

static void draw_text(const struct timeline *timeline, FILE *out)
{
	timeline_text(timeline, 80, out);
}

static void lanes_as_text(void **state)
{
	static const char expected[] =
		"job 0000000000001234: unknown program, 3 ranks, 11 operations in 68.1 us\n"
		"                      |0 us           |20 us           |40 us           |60 us\n"
		"rank 0  world        |[AAAAAAAAAAAAAAA#AAAAAA]          [bbbbbbbbbbbbbbbb!     |\n"
		"        from 1 tag 9 |        [rr~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~>|\n"
		"rank 1  world        |[A#A][A]                                                 |\n"
		"                     |.....A.                                                  |\n"
		"        to 0         |....... [ssssssssssssssss]                :              |\n"
		"rank 2  no operation\n"
		"  A all-reduce  b barrier  s send  r receive  # several, : short ones\n"
		"  ~> still running  ! failed  . no longer recorded\n"
		"rank 0: receive #1 from 1, tag 9 (train.py:12) still runs after 91.0 us\n"
		"rank 0: barrier #3 of world failed with LS_TIMED_OUT after 20.0 us\n";
	struct timeline *timeline = *state;

	put(timeline, 0, collective(TRACE_ALLREDUCE, WORLD, 1), 0, 20000);
	put(timeline, 0, collective(TRACE_ALLREDUCE, WORLD, 2), 20000, 28000);
	struct trace_record failed = collective(TRACE_BARRIER, WORLD, 3);
	failed.state = TRACE_FAILED;
	failed.status = LS_TIMED_OUT;
	put(timeline, 0, failed, 41000, 61000);
	put_running(timeline, 0, message(TRACE_RECV, 1, 9), 10000);
	snprintf(timeline->ranks[0].sites[0].text, TIMELINE_SITE_BYTES, "train.py:12");
	timeline->ops[3].site = 1;
	for (uint64_t i = 0; i < 3; i++)
		put(timeline, 1, collective(TRACE_ALLREDUCE, WORLD, i + 1), 3000 * i,
		    3000 * i + 2500);
	put(timeline, 1, message(TRACE_SEND, 0, 0), 10000, 30000);
	put(timeline, 1, message(TRACE_SEND, 0, 0), 50300, 50400);
	put(timeline, 1, message(TRACE_SEND, 0, 0), 50500, 50600);
	put(timeline, 1, collective(TRACE_ALLREDUCE, WORLD, 4), 6000, 6100);
	timeline->ranks[1].complete_ns = 9500;
	assert_true(timeline_lay_out(timeline, 0, 101000));
	char *text = drawn(timeline, draw_text);
	assert_string_equal(text, expected);
	free(text);
}

static void a_picture_has_a_bar_for_each(void **state)
{
	struct timeline *timeline = *state;

	for (uint64_t i = 0; i < 50; i++)
		put(timeline, (int)(i % 3), collective(TRACE_ALLGATHER, WORLD, i + 1), 100 * i,
		    100 * i + 50);
	put_running(timeline, 1, message(TRACE_RECV, 2, 0), 100);
	assert_true(timeline_lay_out(timeline, 0, 0));
	char *svg = drawn(timeline, timeline_svg);
	assert_int_equal(count(svg, "class=\"bar k"), 50);
	assert_int_equal(count(svg, "class=\"bar run r"), 1);
	assert_int_equal(count(svg, "<title>all-gather #"), 50);
	assert_int_equal(count(svg, ">still running</text>"), 1);
	assert_int_equal(count(svg, "nan"), 0);
	char *html = drawn(timeline, timeline_html);
	assert_non_null(strstr(html, svg));
	assert_string_equal(html + strlen(html) - 8, "</html>\n");
	free(html);
	free(svg);
}

/* A page that shows a trace is opened in a browser. */
static void texts_stay_texts(void **state)
{
	struct timeline *timeline = *state;

	put(timeline, 0, collective(TRACE_ALLGATHER, WORLD, 1), 0, 10);
	snprintf(timeline->ranks[0].sites[0].text, TIMELINE_SITE_BYTES,
		 "</title><script>\"'&\x01\x7f\xff\xef\xbf\xbe\xc2\x85\xc3\xa4");
	timeline->ops[0].site = 1;
	snprintf(timeline->groups[0].name, TIMELINE_LABEL_BYTES, "<b>");
	snprintf(timeline->program, sizeof timeline->program, "/x/<i>");
	snprintf(timeline->host, sizeof timeline->host, "]]>&lt;");
	assert_true(timeline_lay_out(timeline, 0, 0));
	char *svg = drawn(timeline, timeline_svg);
	assert_non_null(
		strstr(svg, "\n&#60;/title&#62;&#60;script&#62;&#34;&#39;&#38;?????\xc3\xa4\n"));
	assert_null(strstr(svg, "<script"));
	assert_null(strstr(svg, "<b>"));
	assert_null(strstr(svg, "<i>"));
	assert_null(strstr(svg, "]]>"));
	free(svg);
}

int main(void)
{
#define WITH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		WITH(each_lane_has_a_row),
		WITH(what_overlaps_lies_on_several_rows),
		WITH(rows_are_joined_when_there_are_many),
		WITH(what_runs_ends_with_the_timeline),
		WITH(time_that_is_not_over_is_not_drawn),
		WITH(the_last_milliseconds_alone),
		WITH(nothing_is_laid_out_too),
		WITH(too_many_leave_the_newest),
		WITH(a_trace_is_read),
		cmocka_unit_test(marks_are_nice),
		cmocka_unit_test(durations_have_three_digits),
		cmocka_unit_test(every_kind_has_a_look),
		WITH(lanes_as_text),
		WITH(a_picture_has_a_bar_for_each),
		WITH(texts_stay_texts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
