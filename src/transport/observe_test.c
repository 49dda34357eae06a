/* SPDX-License-Identifier: BSD-3-Clause
 * Entries as another process reads them, from segments that may be damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "transport/observe.h"
#include "transport/transport_fixture.h"

static void test_entered(void **state)
{
	(void)state;
	struct test_job *job = test_job_new(2, TEST_JOB_LIMIT_MS);
	struct test_rank *rank = &job->ranks[1];
	const struct transport_segment *segment = rank->transport.segment;
	size_t bytes = transport_segment_bytes(2);
	struct transport_entered out;
	for (uint64_t seq = 1; seq <= 2 * TRANSPORT_ENTRIES; seq++) {
		struct transport_entry *entry =
			&transport_area_at(segment, 2, 0)->entries[transport_entry_index(seq)];
		assert_false(transport_read_entered(segment, bytes, 2, 0, seq, &out));
		entry->signature = seq * 3;
		entry->count = seq * 5;
		atomic_store(&entry->signal, transport_signal(seq, 0));
		assert_true(transport_read_entered(segment, bytes, 2, 0, seq, &out));
		assert_int_equal(out.signature, seq * 3);
		assert_int_equal(out.count, seq * 5);
		atomic_store(&entry->signal, transport_signal(seq, 7)); /* a later phase of it */
		assert_true(transport_read_entered(segment, bytes, 2, 0, seq, &out));
	}
	/* Its slot has been used again. */
	assert_false(transport_read_entered(segment, bytes, 2, 0, TRANSPORT_ENTRIES, &out));
	uint64_t seq = 2 * TRANSPORT_ENTRIES;
	assert_false(transport_read_entered(segment, bytes - 1, 2, 0, seq, &out));
	assert_false(transport_read_entered(segment, bytes, 2, TRANSPORT_AREAS, seq, &out));
	assert_false(transport_read_entered(segment, bytes, 0, 0, seq, &out));
	assert_false(transport_read_entered(segment, bytes, RANKS_WORLD_MAX + 1, 0, seq, &out));
	test_job_close(job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_entered)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
