/* SPDX-License-Identifier: BSD-3-Clause
 * Copies of traces for other hosts. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/seqlock.h"
#include "trace/trace.h"
#include "trace/trace_fixture.h"

enum { RECORDS = 16 };

static struct trace_view copy_of(const struct trace_view *view, uint64_t until_ns, void **memory)
{
	struct trace_view copy;
	const char *why;
	*memory = aligned_alloc(64, (view->bytes + 63) / 64 * 64);
	assert_non_null(*memory);
	trace_copy(view, *memory, until_ns);
	assert_true(trace_check(*memory, view->bytes, &copy, &why));
	return copy;
}

/* A record that is being written is left out; it looks whole in a copy that takes no care. */
static void records_are_whole(void **state)
{
	struct trace trace;
	struct trace_view view;
	void *memory;
	(void)state;
	open_trace(&trace, RECORDS, &view);
	uint64_t first = trace_begin(&trace, &(struct trace_begin){.seq = 7, .peer = 2});
	trace_step(&trace, first, 3);
	uint64_t second = trace_begin(&trace, &(struct trace_begin){.seq = 8});
	trace_end(&trace, second, LS_OK);
	seqlock_begin(&trace.ring[second & trace.mask].epoch);
	struct trace_view copy = copy_of(&view, CLOCK_NEVER, &memory);
	struct trace_record record;
	uint32_t step;
	assert_true(trace_read(&copy, first, &record, &step));
	assert_true(record.seq == 7 && record.peer == 2 && record.state == TRACE_RUNNING &&
		    step == 3);
	assert_false(trace_read(&copy, second, &record, &step));
	assert_int_equal(copy.header->pid, view.header->pid);
	free(memory);
	close_trace(&trace, &view);
}

/* A copy for another host has words where a call site is an address, because only this host has the
 * files; labels stay as they are. */
static void sites_become_labels(void **state)
{
	struct trace trace;
	struct trace_view view;
	char said[TRACE_LABEL_BYTES], copied[TRACE_LABEL_BYTES];
	void *memory;
	(void)state;
	open_trace(&trace, RECORDS, &view);
	uint32_t label = trace_label(&trace, "train.py:42");
	uint64_t site = (uint64_t)(uintptr_t)&sites_become_labels + 16, indices[3];
	for (int i = 0; i < 3; i++)
		indices[i] = trace_begin(
			&trace,
			&(struct trace_begin){.seq = 1, .site = site, .label = i == 2 ? label : 0});
	struct trace_view copy = copy_of(&view, CLOCK_NEVER, &memory);
	struct trace_record record, there;
	uint32_t step, last = 0;
	for (int i = 0; i < 3; i++) {
		assert_true(trace_read(&view, indices[i], &record, &step));
		trace_site(&view, &record, said, sizeof said);
		assert_true(trace_read(&copy, indices[i], &there, &step));
		assert_int_not_equal(there.label, 0);
		there.site = 0; /* it means nothing elsewhere */
		trace_site(&copy, &there, copied, sizeof copied);
		assert_string_equal(copied, said);
		assert_true(i != 1 || there.label == last);
		last = there.label;
	}
	assert_string_equal(copied, "train.py:42");
	free(memory);
	copy = copy_of(&view, 1, &memory); /* there is no time to look them up */
	assert_true(trace_read(&copy, indices[0], &there, &step));
	assert_true(there.label == 0 && there.site == site);
	free(memory);
	close_trace(&trace, &view);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(records_are_whole),
		cmocka_unit_test(sites_become_labels),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
