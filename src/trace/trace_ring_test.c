/* SPDX-License-Identifier: BSD-3-Clause
 * The ring of records: how it wraps around, what it does when it is full, and numbers that are
 * taken before their records are written. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "trace/trace.h"
#include "trace/trace_fixture.h"

static void ring_wraps_round_running_operations(void **state)
{
	(void)state;
	struct trace trace;
	struct trace_view view;
	open_trace(&trace, 16, &view);
	uint64_t old = trace_begin(&trace, &(struct trace_begin){.seq = 1000});
	uint64_t newest = 0;
	for (uint64_t i = 1; i <= 100; i++) {
		newest = trace_begin(&trace, &(struct trace_begin){.seq = i});
		trace_end(&trace, newest, LS_OK);
	}
	struct trace_record r;
	uint32_t step;
	assert_true(trace_read(&view, old, &r, &step));
	assert_true(r.seq == 1000 && r.state == TRACE_RUNNING);
	assert_true(trace_read_at(&view, old % 16, &r, &step));
	assert_int_equal(r.index, old);
	uint64_t seq = 100;
	for (uint64_t i = newest; i > newest - 16; i--) {
		if (i % 16 == old % 16)
			continue;
		assert_true(trace_read(&view, i, &r, &step));
		assert_int_equal(r.seq, seq--);
	}
	assert_int_equal(seq, 85);
	assert_false(trace_read(&view, newest - 16, &r, &step));
	assert_int_equal(r.index, 0);
	assert_false(trace_read(&view, newest + 1, &r, &step));
	assert_false(trace_read(&view, 0, &r, &step));
	assert_false(trace_read_at(&view, 16, &r, &step));
	trace_end(&trace, old, LS_OK);
	assert_true(trace_read(&view, old, &r, &step));
	assert_int_equal(r.state, TRACE_DONE);
	close_trace(&trace, &view);
}

static uint64_t add(struct trace *trace, uint64_t index, uint64_t seq)
{
	trace_add(trace, index, &(struct trace_begin){.seq = seq, .peer = 2, .tag = 7});
	return index;
}

static void numbers_first(void **state)
{
	(void)state;
	struct trace trace;
	struct trace_view view;
	struct trace_record r, other;
	uint32_t step;
	open_trace(&trace, 16, &view);
	uint64_t first = trace_reserve(&trace), second = trace_reserve(&trace);
	assert_false(trace_read(&view, first, &r, &step)); /* a number and no more */
	assert_true(trace_is_due(&view, first) && trace_is_due(&view, second));
	assert_false(trace_is_due(&view, second + 1) || trace_is_due(&view, 0));
	add(&trace, second, 20);
	assert_true(trace_is_due(&view, first) && !trace_is_due(&view, second));
	add(&trace, first, 10);
	assert_false(trace_is_due(&view, first));
	assert_true(trace_read(&view, first, &r, &step));
	assert_true(r.seq == 10 && r.state == TRACE_DONE && r.status == LS_OK && r.peer == 2 &&
		    r.tag == 7 && r.begin_ticks && r.begin_ticks == r.end_ticks);
	assert_true(trace_read(&view, second, &other, &step));
	assert_true(other.seq == 20 && other.begin_ticks <= r.begin_ticks);
	/* A running operation has the record: it keeps it. */
	uint64_t running = trace_begin(&trace, &(struct trace_begin){.seq = 30});
	for (int i = 0; i < 15; i++)
		add(&trace, trace_reserve(&trace), 40);
	assert_false(trace_is_due(&view, first)); /* there is a later one */
	uint64_t taken = trace_reserve(&trace);
	assert_int_equal(taken, running + 16);
	assert_false(trace_is_due(&view, taken));
	add(&trace, taken, 50);
	assert_false(trace_read(&view, taken, &r, &step));
	assert_true(trace_read(&view, running, &r, &step) && r.state == TRACE_RUNNING);
	assert_true(trace_read(&view, taken + 1, &r, &step) && r.seq == 50);
	assert_int_equal(r.state, TRACE_DONE);
	close_trace(&trace, &view);
}

/* A thread that was held up for a whole lap of the ring leaves newer records alone. */
static void overtaken_by_a_lap(void **state)
{
	(void)state;
	struct trace trace;
	struct trace_view view;
	struct trace_record r;
	uint32_t step;
	open_trace(&trace, 16, &view);
	uint64_t late = trace_reserve(&trace), last = 0;
	for (uint64_t i = 1; i <= 16; i++)
		last = add(&trace, trace_reserve(&trace), i);
	assert_int_equal(last, late + 16);
	add(&trace, late, 99);
	assert_true(trace_read(&view, last, &r, &step) && r.seq == 16);
	assert_false(trace_read(&view, late, &r, &step));
	assert_true(trace_read(&view, last + 1, &r, &step) && r.seq == 99);
	/* Less than a lap is none of this: its record is as it was left. */
	late = trace_reserve(&trace);
	for (uint64_t i = 1; i <= 15; i++)
		add(&trace, trace_reserve(&trace), i);
	add(&trace, late, 98);
	assert_true(trace_read(&view, late, &r, &step) && r.seq == 98);
	close_trace(&trace, &view);
}

static void full_ring_records_no_more(void **state)
{
	(void)state;
	struct trace trace;
	struct trace_view view;
	open_trace(&trace, 16, &view);
	uint64_t open[16];
	for (int i = 0; i < 16; i++) {
		open[i] = trace_begin(&trace, &(struct trace_begin){.seq = 1 + (uint64_t)i});
		assert_int_not_equal(open[i], 0);
	}
	uint64_t none = trace_begin(&trace, &(struct trace_begin){.seq = 99});
	assert_int_equal(none, 0);
	trace_plan(&trace, none, 1, 1);
	trace_step(&trace, none, 77);
	trace_end(&trace, none, LS_OK);
	struct trace_record r;
	uint32_t step;
	for (int i = 0; i < 16; i++) {
		assert_true(trace_read(&view, open[i], &r, &step));
		assert_true(r.seq == 1 + (uint64_t)i && r.state == TRACE_RUNNING && step == 0);
	}
	trace_end(&trace, open[5], LS_OK);
	none = trace_begin(&trace, &(struct trace_begin){.seq = 99});
	assert_int_equal(none % 16, open[5] % 16);
	assert_true(trace_read(&view, none, &r, &step));
	assert_int_equal(r.seq, 99);
	close_trace(&trace, &view);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ring_wraps_round_running_operations),
		cmocka_unit_test(numbers_first),
		cmocka_unit_test(overtaken_by_a_lap),
		cmocka_unit_test(full_ring_records_no_more),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
