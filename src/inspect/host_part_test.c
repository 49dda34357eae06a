/* SPDX-License-Identifier: BSD-3-Clause
 * Parts of a job on two hosts, packed, joined, kept in a file; and parts that are damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "inspect/host_part.h"
#include "inspect/ask_hosts.h"

enum { SIZE = 4, EACH = 2, HOSTS = SIZE / EACH, JOB = 0x1234, RECORDS = 16 };

struct parts_fixture {
	struct trace traces[SIZE];
	struct inspect_part parts[HOSTS];
};

/* Rank 2 has published that rank 3 has died; all others are in a barrier. */
static void fill_trace(struct trace *trace, int rank)
{
	struct trace_begin begin = {.kind = TRACE_BARRIER, .seq = 17};
	struct trace_options options = {
		.job = JOB, .rank = rank, .world_size = SIZE, .records = RECORDS};
	assert_int_equal(trace_init(trace, &options), LS_OK);
	trace_begin(trace, &begin);
	if (rank == 2)
		trace_report(trace, TRACE_GROUP_WORLD, LS_PEER_DIED, 3, 17, "rank 3 has died");
}

static void pack_host(struct parts_fixture *fixture, int host)
{
	struct diagnose_source known[SIZE];
	struct inspect_view *view = inspect_view_new(JOB, SIZE);
	struct inspect_part *part = &fixture->parts[host];
	struct ranks here = {{0}};
	assert_non_null(view);
	for (int q = 0; q < SIZE; q++) {
		bool mine = q / EACH == host;
		known[q] = (struct diagnose_source){
			.process = q == 3 ? DIAGNOSE_PROCESS_DEAD : DIAGNOSE_PROCESS_SLEEPING,
			.signal = q == 3 ? 9 : -1,
			.exit_code = -1,
			.host = mine ? NULL : "another",
		};
		if (!mine)
			continue;
		ranks_add(&here, q);
		assert_true(inspect_view_add_trace(
			view, q, fcntl(fixture->traces[q].fd, F_DUPFD_CLOEXEC, 3)));
	}
	struct inspect_report *report = inspect_report_take(view, known);
	assert_non_null(report);
	*part = (struct inspect_part){.host = host ? "beta" : "alpha",
				      .first = host * EACH,
				      .ranks = EACH,
				      .offset_ns = host * 1000,
				      .error_ns = 5};
	part->block = inspect_part_pack(view, report, &here, &part->bytes);
	assert_non_null(part->block);
	inspect_report_free(report);
	inspect_view_free(view);
}

static int set_up(void **state)
{
	struct parts_fixture *fixture = calloc(1, sizeof *fixture);
	assert_non_null(fixture);
	for (int q = 0; q < SIZE; q++)
		fill_trace(&fixture->traces[q], q);
	for (int host = 0; host < HOSTS; host++)
		pack_host(fixture, host);
	*state = fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct parts_fixture *fixture = *state;
	for (int q = 0; q < SIZE; q++)
		trace_fini(&fixture->traces[q]);
	for (int host = 0; host < HOSTS; host++)
		free((void *)(uintptr_t)fixture->parts[host].block);
	free(fixture);
	return 0;
}

static void expect_whole(const struct inspect_report *report, const struct trace_view *traces)
{
	assert_int_equal(report->failure, LS_PEER_DIED);
	assert_int_equal(report->culprit, 3);
	assert_string_equal(report->text, "rank 3 has died");
	assert_int_equal(report->snapshot->job, JOB);
	for (int q = 0; q < SIZE; q++) {
		const struct diagnose_rank *rank = &report->snapshot->ranks[q];
		assert_true(rank->known);
		assert_int_equal(rank->records[0].record.kind, TRACE_BARRIER);
		assert_int_equal(rank->records[0].record.seq, 17);
		assert_int_equal(rank->process,
				 q == 3 ? DIAGNOSE_PROCESS_DEAD : DIAGNOSE_PROCESS_SLEEPING);
		assert_int_equal(traces[q].header->rank, q);
		assert_string_equal(report->hosts->locations[q].host, q < EACH ? "alpha" : "beta");
		assert_int_equal(report->hosts->locations[q].first, q / EACH * EACH);
		assert_int_equal(report->hosts->offset_ns[q], q / EACH * 1000);
		assert_true(ranks_have(&report->hosts->answered, q));
	}
}

static void parts_become_one_report(void **state)
{
	struct parts_fixture *fixture = *state;
	struct inspect_report *report = inspect_parts_join(fixture->parts, HOSTS, SIZE, 12);
	assert_non_null(report);
	expect_whole(report, report->hosts->traces);
	assert_int_equal(report->hosts->waited_ms, 12);
	/* The hosts were copied at different moments. */
	inspect_report_explain(report);
	assert_int_equal(report->verdict.cause, DIAGNOSE_HEALTHY);
	inspect_report_free(report);
}

/* Rank 2 seems to have left while others wait for it, and nobody has published that: the copies of
 * the hosts are of different moments. */
static void what_needs_one_moment_is_not_concluded(void **state)
{
	struct parts_fixture *fixture = *state;
	struct inspect_report *report = inspect_parts_join(fixture->parts, HOSTS, SIZE, 0);
	assert_non_null(report);
	report->failure = LS_OK;
	report->snapshot->ranks[2].left = true;
	report->snapshot->ranks[2].left_ns = 1;
	for (int q = 0; q < SIZE; q++) {
		struct diagnose_rank *rank = &report->snapshot->ranks[q];
		rank->process = DIAGNOSE_PROCESS_SLEEPING;
		rank->thread_count = !rank->left;
		rank->threads[0] = (struct diagnose_thread){
			.stable = true,
			.wait = {.state = WAIT_WORDS,
				 .group = TRACE_GROUP_WORLD,
				 .record = rank->records[0].record.index,
				 .since_ns = 1,
				 .edge_count = 1,
				 .edges = {{.owner = q, .peer = (q + 1) % SIZE}}}};
	}
	struct diagnose_verdict verdict;
	diagnose_judge(report->snapshot, NULL, &verdict);
	assert_int_equal(verdict.cause, DIAGNOSE_LEFT);
	inspect_report_judge(report);
	assert_int_equal(report->verdict.cause, DIAGNOSE_HEALTHY);
	inspect_report_free(report);
}

static void a_report_of_parts_is_kept_in_a_file(void **state)
{
	struct parts_fixture *fixture = *state;
	struct inspect_report *report = inspect_parts_join(fixture->parts, HOSTS, SIZE, 0);
	int fd = memfd_create("snapshot", MFD_CLOEXEC);
	char path[32];
	const char *why = NULL;
	assert_non_null(report);
	assert_int_equal(inspect_save_to(fd, NULL, report, "it has failed", false), 0);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	struct inspect_saved *saved = inspect_saved_read(path, &why);
	if (!saved)
		fail_msg("%s", why);
	expect_whole(&saved->report, saved->traces);
	assert_string_equal(saved->ended, "it has failed");
	inspect_saved_free(saved);
	inspect_report_free(report);
	close(fd);
}

static void a_host_that_has_not_told_is_left_out(void **state)
{
	struct parts_fixture *fixture = *state;
	struct inspect_part parts[HOSTS] = {fixture->parts[0], fixture->parts[1]};
	parts[1].block = NULL;
	struct inspect_report *report = inspect_parts_join(parts, HOSTS, SIZE, 0);
	assert_non_null(report);
	for (int q = 0; q < SIZE; q++) {
		assert_int_equal(report->snapshot->ranks[q].known, q < EACH);
		assert_int_equal(ranks_have(&report->hosts->answered, q), q < EACH);
	}
	assert_string_equal(report->snapshot->ranks[3].host, "beta");
	assert_int_equal(report->failure, LS_OK);
	inspect_report_free(report);
	parts[0].block = NULL;
	assert_null(inspect_parts_join(parts, HOSTS, SIZE, 0));
}

/* A part that speaks of ranks of another host, as another job's or a damaged one may. */
static void a_part_of_other_ranks_is_refused(void **state)
{
	struct parts_fixture *fixture = *state;
	struct inspect_part parts[HOSTS] = {fixture->parts[0], fixture->parts[0]};
	parts[1].first = EACH;
	struct inspect_report *report = inspect_parts_join(parts, HOSTS, SIZE, 0);
	assert_non_null(report);
	assert_false(report->snapshot->ranks[2].known);
	inspect_report_free(report);
	assert_null(inspect_parts_join(fixture->parts, HOSTS, SIZE + 1, 0)); /* of another size */
}

/* Each is refused, or what comes of it can be judged and printed. */
static void damaged_parts(void **state)
{
	struct parts_fixture *fixture = *state;
	struct inspect_part parts[HOSTS] = {fixture->parts[0], fixture->parts[1]};
	size_t bytes = parts[1].bytes;
	unsigned char *copy = aligned_alloc(64, bytes);
	assert_non_null(copy);
	for (size_t at = 0; at < bytes; at += at < 512 ? 1 : 397) {
		memcpy(copy, fixture->parts[1].block, bytes);
		copy[at] ^= (unsigned char)(1 + at % 255);
		parts[1].block = copy;
		parts[1].bytes = bytes;
		struct inspect_report *report = inspect_parts_join(parts, HOSTS, SIZE, 0);
		assert_non_null(report);
		assert_true(diagnose_snapshot_is_valid(report->snapshot,
						       diagnose_snapshot_bytes(SIZE)));
		inspect_report_judge(report);
		inspect_report_free(report);
	}
	memcpy(copy, fixture->parts[1].block, bytes);
	for (size_t length = 0; length < bytes; length += bytes / 50 + 1) {
		parts[1].bytes = length;
		struct inspect_report *report = inspect_parts_join(parts, HOSTS, SIZE, 0);
		assert_non_null(report);
		assert_false(report->snapshot->ranks[2].known);
		inspect_report_free(report);
	}
	free(copy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(parts_become_one_report, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_needs_one_moment_is_not_concluded, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_report_of_parts_is_kept_in_a_file, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_host_that_has_not_told_is_left_out, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_part_of_other_ranks_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(damaged_parts, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
