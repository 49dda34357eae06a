/* SPDX-License-Identifier: BSD-3-Clause
 * Views, reports and snapshot files, with traces made here. Damaged files are a matter of
 * test/cli. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inspect/view_fixture.h"
#include "inspect/phase_report.h"
#include "print/print.h"

static struct inspect_report *take(struct view_fixture *fixture)
{
	struct diagnose_source known[SIZE] = {
		{.process = DIAGNOSE_PROCESS_DEAD, .signal = 9, .exit_code = -1},
		{.process = DIAGNOSE_PROCESS_DEAD, .signal = 0, .exit_code = 0},
		{.process = DIAGNOSE_PROCESS_DEAD, .signal = -1, .exit_code = -1},
	};
	struct inspect_report *report = inspect_report_take(fixture->view, known);

	assert_non_null(report);
	inspect_report_explain(report);
	return report;
}

static void a_view_takes_each_trace_once(void **state)
{
	struct view_fixture *fixture = *state;
	int plain = memfd_create("plain", MFD_CLOEXEC);

	assert_true(view_add(fixture, 0, 0));
	assert_false(view_add(fixture, 0, 0));
	assert_false(view_add(fixture, 1, SIZE));
	assert_false(view_add(fixture, 1, -1));
	/* Could shrink under the reader. */
	assert_int_equal(ftruncate(plain, 1 << 20), 0);
	assert_false(inspect_view_add_trace(fixture->view, 1, plain));
	assert_false(inspect_view_add_segment(fixture->view, 1, plain));
	close(plain);
}

static int make_segment(uint64_t job, int rank, bool sealed)
{
	int fd = memfd_create("segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct transport_header header = {
		.magic = TRANSPORT_MAGIC, .bytes = 1 << 20, .job = job, .rank = rank, .size = SIZE};

	assert_int_equal(ftruncate(fd, (off_t)transport_segment_bytes(SIZE)), 0);
	assert_int_equal(pwrite(fd, &header, sizeof header, 0), sizeof header);
	if (sealed)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	return fd;
}

static void a_view_takes_only_its_segments(void **state)
{
	struct view_fixture *fixture = *state;
	int strangers[] = {make_segment(JOB + 1, 1, true), make_segment(JOB, 2, true),
			   make_segment(JOB, 1, false)};

	for (size_t i = 0; i < 3; i++) {
		assert_false(inspect_view_add_segment(fixture->view, 1, strangers[i]));
		close(strangers[i]);
	}
	for (int rank = 0; rank < SIZE; rank++) {
		assert_false(inspect_view_has_segments(fixture->view));
		assert_true(inspect_view_add_segment(fixture->view, rank,
						     make_segment(JOB, rank, true)));
	}
	assert_true(inspect_view_has_segments(fixture->view));
}

static void a_published_cause_is_read(void **state)
{
	struct view_fixture *fixture = *state;
	struct transport_report told = {.status = LS_MISMATCH, .culprit = 1, .operation = 58};
	off_t cause_at =
		(off_t)transport_areas_at(SIZE) + (off_t)offsetof(struct transport_area, cause);
	off_t told_at = (off_t)transport_areas_at(SIZE) +
			(off_t)(transport_area_reports_at(SIZE) + 2 * sizeof told);
	uint64_t ours = (uint64_t)TRACE_GROUP_WORLD << 32, cause = ours + 3;

	memset(told.text, 'x', sizeof told.text); /* without an end */
	for (int rank = 0; rank < SIZE; rank++) {
		int fd = make_segment(JOB, rank, true);
		if (rank == 0) {
			assert_true(pwrite(fd, &told, sizeof told, told_at) == sizeof told);
			assert_true(pwrite(fd, &cause, sizeof cause, cause_at) > 0);
		}
		assert_true(inspect_view_add_segment(fixture->view, rank, fd));
	}
	struct inspect_report *report = take(fixture);
	assert_int_equal(report->failure, LS_MISMATCH);
	assert_int_equal(report->culprit, 1);
	assert_int_equal(report->operation, 58);
	assert_int_equal(strlen(report->text), sizeof report->text - 1);
	inspect_report_free(report);

	/* Nonsense is nothing. */
	uint64_t wrong[] = {0, ours, ours + SIZE + 1, 3, 2 * ours + 3, UINT64_MAX};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		assert_true(pwrite(fixture->view->ranks[0].segment_fd, &wrong[i], sizeof wrong[i],
				   cause_at) > 0);
		report = take(fixture);
		assert_int_equal(report->failure, LS_OK);
		inspect_report_free(report);
	}
}

/* A short job is over before the launcher has found its segments. */
static void a_cause_is_read_from_a_trace_alone(void **state)
{
	struct view_fixture *fixture = *state;

	for (int rank = 0; rank < SIZE; rank++)
		assert_true(view_add(fixture, rank, rank));
	trace_report(&fixture->traces[1], TRACE_GROUP_WORLD, LS_PEER_LEFT, 2, 6, "rank 2 finished");
	struct inspect_report *report = take(fixture);
	assert_int_equal(report->failure, LS_PEER_LEFT);
	assert_int_equal(report->culprit, 2);
	assert_int_equal(report->operation, 6);
	assert_string_equal(report->text, "rank 2 finished");
	inspect_report_free(report);
}

static void a_snapshot_is_read_as_it_was_written(void **state)
{
	struct view_fixture *fixture = *state;
	const char *why = NULL;
	struct stat status;

	for (int rank = 0; rank < 2; rank++)
		assert_true(view_add(fixture, rank, rank));
	struct inspect_report *report = take(fixture);
	assert_int_equal(report->verdict.cause, DIAGNOSE_DIED);
	assert_true(ranks_have(&report->verdict.culprits, 0));
	assert_int_equal(ranks_count(&report->verdict.culprits), 1);
	assert_int_equal(inspect_save(fixture->path, fixture->view, report, "it broke"), 0);
	assert_int_equal(stat(fixture->path, &status), 0);
	assert_int_equal(status.st_mode & 07777, 0600);

	struct inspect_saved *saved = inspect_saved_read(fixture->path, &why);
	assert_null(why);
	assert_non_null(saved);
	assert_string_equal(saved->ended, "it broke");
	assert_string_equal(saved->report.text, report->text);
	assert_int_equal(saved->report.verdict.cause, DIAGNOSE_DIED);
	assert_int_equal(saved->report.culprit, 0);
	assert_int_equal(saved->report.snapshot->job, JOB);
	assert_int_equal(saved->report.snapshot->size, SIZE);
	assert_int_equal(saved->report.snapshot->ranks[0].signal, 9);
	assert_true(saved->report.snapshot->ranks[1].known);
	assert_false(saved->report.snapshot->ranks[2].known);
	assert_false(saved->ended_well);
	assert_true(saved->traces[0].header && saved->traces[1].header);
	assert_null(saved->traces[2].header);
	inspect_saved_free(saved);
	inspect_report_free(report);
}

/* A job ended well, and its traces go to a file that exists already. */
static void traces_are_read_as_they_were_written(void **state)
{
	struct view_fixture *fixture = *state;
	struct trace_begin begin = {.kind = TRACE_BARRIER, .seq = 17};
	struct trace_record record;
	const char *why = NULL;
	uint32_t step;

	for (int rank = 0; rank < SIZE; rank++) {
		assert_true(view_add(fixture, rank, rank));
		begin.count = (uint64_t)rank;
		trace_end(&fixture->traces[rank], trace_begin(&fixture->traces[rank], &begin),
			  LS_OK);
	}
	struct inspect_report *report = take(fixture);
	int fd = open(fixture->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(inspect_save_to(fd, fixture->view, report, "it is over", true), 0);
	close(fd);
	inspect_report_free(report);
	struct inspect_saved *saved = inspect_saved_read(fixture->path, &why);
	assert_non_null(saved);
	assert_true(saved->ended_well);
	for (int rank = 0; rank < SIZE; rank++) {
		assert_true(trace_read(&saved->traces[rank], 1, &record, &step));
		assert_int_equal(record.kind, TRACE_BARRIER);
		assert_int_equal(record.count, rank);
	}
	inspect_saved_free(saved);
}

/* Adds the trace of a rank in a file of another length. */
static void add_with_length(struct view_fixture *fixture, int rank, size_t bytes)
{
	const struct trace *trace = &fixture->traces[rank];
	int fd = memfd_create("trace", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(pwrite(fd, trace->header, trace->bytes, 0), trace->bytes);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_true(inspect_view_add_trace(fixture->view, rank, fd));
}

/* The state is kept all the same, and the file has a size that its reader takes. */
static void traces_that_do_not_fit_are_left_out(void **state)
{
	struct view_fixture *fixture = *state;
	const char *why;
	struct stat status;
	size_t bytes = fixture->traces[1].bytes;

	add_with_length(fixture, 0, bytes + 4);
	add_with_length(fixture, 1, (size_t)1 << 33);
	add_with_length(fixture, 2, bytes + 8);
	struct inspect_report *report = take(fixture);
	assert_int_equal(inspect_save(fixture->path, fixture->view, report, "it broke"), 0);
	inspect_report_free(report);
	assert_int_equal(stat(fixture->path, &status), 0);
	assert_in_range(status.st_size, bytes, 3 * bytes);
	struct inspect_saved *saved = inspect_saved_read(fixture->path, &why);
	assert_non_null(saved);
	for (int rank = 0; rank < SIZE; rank++)
		assert_true(saved->report.snapshot->ranks[rank].known);
	assert_true(ranks_are_equal(&saved->report.phases->known, &(struct ranks){{4}}));
	inspect_saved_free(saved);
}

static bool is_sound(const struct inspect_saved *saved)
{
	const struct inspect_report *report = &saved->report;
	const struct diagnose_snapshot *snapshot = report->snapshot;

	return snapshot->size >= 1 && snapshot->size <= INSPECT_RANK_MAX &&
	       diagnose_snapshot_is_valid(snapshot, diagnose_snapshot_bytes(snapshot->size)) &&
	       (unsigned)report->verdict.cause <= DIAGNOSE_ABORTED &&
	       (unsigned)report->verdict.status <= LS_INTERNAL &&
	       (unsigned)report->failure <= LS_INTERNAL &&
	       memchr(report->text, 0, sizeof report->text) &&
	       memchr(saved->ended, 0, sizeof saved->ended);
}

/* Every number in the head and at the beginning of the first rank in turn, and the ends of the
 * texts. */
static void a_damaged_snapshot_is_refused_or_sound(void **state)
{
	static const uint32_t wrong[] = {UINT32_MAX, 0x80000000, 0x02020202};
	struct view_fixture *fixture = *state;
	const char *why;
	int refused = 0;

	assert_true(view_add(fixture, 0, 0));
	struct inspect_report *report = take(fixture);
	assert_int_equal(inspect_save(fixture->path, fixture->view, report, "it broke"), 0);
	inspect_report_free(report);
	int fd = open(fixture->path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	for (off_t at = 0; at < 6400; at += 4) {
		uint32_t good;
		assert_int_equal(pread(fd, &good, sizeof good, at), sizeof good);
		for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
			assert_int_equal(pwrite(fd, &wrong[i], sizeof good, at), sizeof good);
			struct inspect_saved *saved = inspect_saved_read(fixture->path, &why);
			assert_true(!saved == !!why);
			assert_true(!saved || is_sound(saved));
			refused += !saved;
			inspect_saved_free(saved);
		}
		assert_int_equal(pwrite(fd, &good, sizeof good, at), sizeof good);
	}
	close(fd);
	assert_in_range(refused, 40, 5000);
	struct inspect_saved *saved = inspect_saved_read(fixture->path, &why);
	assert_non_null(saved);
	inspect_saved_free(saved);
}

static void a_snapshot_replaces_nothing(void **state)
{
	struct view_fixture *fixture = *state;
	char trap[128];
	struct stat status;
	struct inspect_report *report = take(fixture);

	snprintf(trap, sizeof trap, "%s/trap", fixture->directory);
	assert_int_equal(symlink(fixture->path, trap), 0);
	assert_int_equal(inspect_save(trap, fixture->view, report, ""), EEXIST);
	assert_int_equal(stat(fixture->path, &status), -1);
	unlink(trap);
	assert_int_equal(inspect_save(fixture->path, fixture->view, report, ""), 0);
	assert_int_equal(inspect_save(fixture->path, fixture->view, report, ""), EEXIST);
	assert_int_equal(inspect_save("/there/is/none", fixture->view, report, ""), ENOENT);
	/* A file that could not be written whole is not left behind. */
	assert_int_equal(stat(fixture->path, &status), 0);
	inspect_report_free(report);
}

/* Prints what a report says of phases: as text, then as JSON for each rank and for the
 * stragglers. */
static void print(char *out, size_t bytes, const struct inspect_report *report)
{
	FILE *file = fmemopen(out, bytes, "w");
	struct print_json json = {.out = file};

	assert_non_null(file);
	inspect_phases_print(file, report->phases);
	print_json_open(&json, NULL, '{');
	for (int rank = 0; rank < SIZE; rank++)
		inspect_phases_json(&json, report->phases, rank);
	inspect_stragglers_json(&json, report->phases);
	print_json_close(&json, '}');
	assert_int_equal(fclose(file), 0);
}

/* Puts numbers where phases have theirs: milliseconds in data, of which the rank waited. */
static void spend(struct trace *trace, int count, int time_ms, int waited_ms)
{
	const char *inside;

	trace->header->rate = (struct clock_rate){.ns_per_tick = 1};
	assert_int_equal(trace_phase_begin(trace, "data", &inside), TRACE_PHASE_DONE);
	assert_int_equal(trace_phase_end(trace, "data", &inside), TRACE_PHASE_DONE);
	for (int i = 0; i < TRACE_PHASE_MAX; i++) {
		struct trace_phase *phase = &trace->phases->phases[i];
		if (!atomic_load(&phase->hash))
			continue;
		atomic_store(&phase->count, (uint64_t)count);
		atomic_store(&phase->ticks, (uint64_t)time_ms * 1000000);
		atomic_store(&phase->waited_ticks, (uint64_t)waited_ms * 1000000);
	}
	atomic_store(&trace->phases->first_ticks, 1000);
	atomic_store(&trace->phases->last_ticks, 1000 + UINT64_C(100000000));
}

static void a_straggler_is_shown_and_kept(void **state)
{
	static const char expected[] =
		"  phases:\n"
		"    rank 1 spends 4.0x the median in data, which costs 60 % of the step\n"
		"    milliseconds of own work in each phase, of 100.00 in all; skew: work beyond "
		"the median rank's\n"
		"      rank      data   outside   waiting      skew\n"
		"         0     20.00     20.00     60.00      +0 %\n"
		"         1     80.00     20.00      0.00     +60 %\n"
		"         2  cannot be read\n"
		"{\"phases\":[{\"name\":\"data\",\"count\":7,\"own_us\":20000,\"waited_us\":60000,"
		"\"running\":false},{\"name\":\"outside\",\"count\":0,\"own_us\":20000,"
		"\"waited_us\":0,\"running\":false}],"
		"\"phases\":[{\"name\":\"data\",\"count\":8,\"own_us\":80000,\"waited_us\":0,"
		"\"running\":false},{\"name\":\"outside\",\"count\":0,\"own_us\":20000,"
		"\"waited_us\":0,\"running\":false}],"
		"\"phases\":null,"
		"\"stragglers\":[{\"ranks\":[1],\"phase\":\"data\",\"cost_percent\":60,\"text\":"
		"\"rank 1 spends 4.0x the median in data, which costs 60 % of the step\"}]}";
	struct view_fixture *fixture = *state;
	char text[4096] = "", kept[4096] = "";
	const char *why;

	assert_true(view_add(fixture, 0, 0) && view_add(fixture, 1, 1));
	spend(&fixture->traces[0], 7, 80, 60);
	spend(&fixture->traces[1], 8, 80, 0);
	struct inspect_report *report = take(fixture);
	print(text, sizeof text, report);
	assert_string_equal(text, expected);
	assert_int_equal(inspect_save(fixture->path, fixture->view, report, "it broke"), 0);
	struct inspect_saved *saved = inspect_saved_read(fixture->path, &why);
	assert_non_null(saved);
	print(kept, sizeof kept, &saved->report);
	assert_string_equal(text, kept);
	inspect_saved_free(saved);
	inspect_report_free(report);
}

/* One rank is in phases, another one has none. */
static void phases_are_shown_and_kept(void **state)
{
	struct view_fixture *fixture = *state;
	char text[4096] = "", kept[4096] = "";
	const char *inside, *why;

	assert_true(view_add(fixture, 0, 0) && view_add(fixture, 1, 1));
	struct inspect_report *report = take(fixture);
	print(text, sizeof text, report);
	assert_string_equal(text,
			    "{\"phases\":null,\"phases\":null,\"phases\":null,\"stragglers\":[]}");
	inspect_report_free(report);
	struct trace *trace = &fixture->traces[0];
	assert_int_equal(trace_phase_begin(trace, "data", &inside), TRACE_PHASE_DONE);
	assert_int_equal(trace_phase_begin(trace, "data/image", &inside), TRACE_PHASE_DONE);
	assert_int_equal(trace_phase_end(trace, "data/image", &inside), TRACE_PHASE_DONE);
	report = take(fixture);
	print(text, sizeof text, report);
	assert_non_null(strstr(text, "data  data/image   outside"));
	assert_non_null(strstr(text, "  in data\n"));
	assert_non_null(strstr(text, "         1  has not begun a phase\n"));
	assert_non_null(strstr(text, "         2  cannot be read\n"));
	assert_int_equal(inspect_save(fixture->path, fixture->view, report, "it broke"), 0);
	struct inspect_saved *saved = inspect_saved_read(fixture->path, &why);
	assert_non_null(saved);
	print(kept, sizeof kept, &saved->report);
	assert_string_equal(text, kept);
	inspect_saved_free(saved);
	inspect_report_free(report);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_view_takes_each_trace_once, view_set_up,
						view_tear_down),
		cmocka_unit_test_setup_teardown(a_view_takes_only_its_segments, view_set_up,
						view_tear_down),
		cmocka_unit_test_setup_teardown(a_published_cause_is_read, view_set_up,
						view_tear_down),
		cmocka_unit_test_setup_teardown(a_cause_is_read_from_a_trace_alone, view_set_up,
						view_tear_down),
		cmocka_unit_test_setup_teardown(a_snapshot_is_read_as_it_was_written, view_set_up,
						view_tear_down),
		cmocka_unit_test_setup_teardown(traces_are_read_as_they_were_written, view_set_up,
						view_tear_down),
		cmocka_unit_test_setup_teardown(a_damaged_snapshot_is_refused_or_sound, view_set_up,
						view_tear_down),
		cmocka_unit_test_setup_teardown(a_snapshot_replaces_nothing, view_set_up,
						view_tear_down),
		cmocka_unit_test_setup_teardown(traces_that_do_not_fit_are_left_out, view_set_up,
						view_tear_down),
		cmocka_unit_test_setup_teardown(phases_are_shown_and_kept, view_set_up,
						view_tear_down),
		cmocka_unit_test_setup_teardown(a_straggler_is_shown_and_kept, view_set_up,
						view_tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
