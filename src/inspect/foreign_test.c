/* SPDX-License-Identifier: BSD-3-Clause
 * Foreign calls in what `lockstep diagnose` prints, from memory and from a snapshot. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/seqlock.h"
#include "inspect/view_fixture.h"
#include "inspect/report.h"
#include "inspect/stacks.h"

static int set_up(void **state)
{
	assert_int_equal(view_set_up(state), 0);
	assert_true(view_add(*state, 0, 0) && view_add(*state, 1, 1));
	return 0;
}

/* Publishes a foreign call as wait_foreign_call_begin does; `name` may be one that it never
 * writes. */
static void publish(struct trace *trace, int slot, uint32_t tid, const char *name, size_t bytes)
{
	struct wait_slot *to = &trace->wait_table->slots[slot];
	struct wait_slot_body body = {
		.state = WAIT_FOREIGN, .tid = tid, .since_ns = 1, .deadline_ns = CLOCK_NEVER};

	memcpy(body.foreign, name, bytes);
	atomic_store(&to->taken, 1);
	seqlock_begin(&to->epoch);
	seqlock_store(&to->body, &body, sizeof body);
	seqlock_end(&to->epoch);
}

/* The report as text, or as JSON. */
static void print(char *out, size_t bytes, bool json, const struct inspect_report *report,
		  const struct inspect_saved *saved)
{
	FILE *file = fmemopen(out, bytes, "w");
	struct inspect_shown shown = {.report = report, .saved = saved};
	struct print_json to = {.out = file};

	assert_non_null(file);
	if (json)
		inspect_print_json(&to, &shown);
	else
		inspect_print(file, &shown);
	assert_int_equal(fclose(file), 0);
}

/* From memory and from the file. */
static void check(const struct view_fixture *fixture, bool json, const char *want)
{
	char text[8192] = "";
	const char *why;
	struct inspect_report *report = inspect_report_take(fixture->view, NULL);

	assert_non_null(report);
	print(text, sizeof text, json, report, NULL);
	if (!strstr(text, want))
		fail_msg("'%s' is not in: %s", want, text);
	assert_int_equal(inspect_save(fixture->path, fixture->view, report, "it broke"), 0);
	inspect_report_free(report);
	struct inspect_saved *saved = inspect_saved_read(fixture->path, &why);
	assert_non_null(saved);
	unlink(fixture->path);
	print(text, sizeof text, json, &saved->report, saved);
	if (!strstr(text, want))
		fail_msg("'%s' is not in the snapshot's: %s", want, text);
	inspect_saved_free(saved);
}

static void a_call_is_shown_and_kept(void **state)
{
	struct view_fixture *fixture = *state;

	check(fixture, true, "\"foreign_calls\":[],\"python\":null");
	publish(&fixture->traces[1], 5, 4711, "cuMemFree", sizeof "cuMemFree");
	check(fixture, false,
	      "no operation yet; its thread 4711 has been in the foreign call cuMemFree for ");
	check(fixture, true, "\"foreign_calls\":[{\"tid\":4711,\"call\":\"cuMemFree\",\"ms\":");
	struct trace_begin begin = {.kind = TRACE_BARRIER, .seq = 17};
	trace_end(&fixture->traces[1], trace_begin(&fixture->traces[1], &begin), LS_OK);
	check(fixture, false, " ago; its thread 4711 has been in the foreign call cuMemFree for ");
	publish(&fixture->traces[1], 6, 4712, "cuMemAlloc", sizeof "cuMemAlloc");
	check(fixture, true, "},{\"tid\":4712,\"call\":\"cuMemAlloc\",\"ms\":");
}

static void a_hostile_name_is_cleaned(void **state)
{
	struct view_fixture *fixture = *state;
	char full[WAIT_FOREIGN_BYTES], shown[128];

	publish(&fixture->traces[0], 0, 7, "a\033[2J\n\"%s\\\x9b", sizeof "a\033[2J\n\"%s\\\x9b");
	check(fixture, false, " in the foreign call a?[2J?\"%s\\? for ");
	check(fixture, true, "\"call\":\"a\\u001b[2J\\n\\\"%s\\\\\\ufffd\",");
	/* Not ended, and in the middle of a character. */
	memset(full, 'x', sizeof full);
	full[WAIT_FOREIGN_BYTES - 2] = '\xc3';
	publish(&fixture->traces[0], 0, 7, full, sizeof full);
	snprintf(shown, sizeof shown, " in the foreign call %.*s? for ", WAIT_FOREIGN_BYTES - 2,
		 full);
	check(fixture, false, shown);
	snprintf(shown, sizeof shown, "\"call\":\"%.*s\\ufffd\"", WAIT_FOREIGN_BYTES - 2, full);
	check(fixture, true, shown);
}

/* A child in the place of rank 0, whose stacks may be looked at. */
static void a_thread_with_its_stack(void **state)
{
	struct view_fixture *fixture = *state;
	char text[16384] = "";
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	fixture->traces[0].header->pid = child;
	fixture->traces[0].header->start_ns = clock_now_ns();
	publish(&fixture->traces[0], 0, (uint32_t)child, "a\nb", sizeof "a\nb");
	struct inspect_report *report = inspect_report_take(fixture->view, NULL);
	assert_non_null(report);
	FILE *file = fmemopen(text, sizeof text, "w");
	assert_non_null(file);
	inspect_stacks_print(file, report);
	assert_int_equal(fclose(file), 0);
	inspect_report_free(report);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	if (!strstr(text, ": in the foreign call a?b for "))
		fail_msg("%s", text);
}

/* A snapshot file whose report has a name without an end is refused. */
static void a_name_without_end_is_refused(void **state)
{
	struct view_fixture *fixture = *state;
	const char *why = NULL;
	struct inspect_report *report;

	publish(&fixture->traces[0], 0, 7, "cuMemFree", sizeof "cuMemFree");
	report = inspect_report_take(fixture->view, NULL);
	assert_non_null(report);
	memset(report->snapshot->ranks[0].threads[0].wait.foreign, 'x', WAIT_FOREIGN_BYTES);
	assert_int_equal(inspect_save(fixture->path, fixture->view, report, "it broke"), 0);
	inspect_report_free(report);
	assert_null(inspect_saved_read(fixture->path, &why));
	assert_string_equal(why, "its report is damaged");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_call_is_shown_and_kept, set_up, view_tear_down),
		cmocka_unit_test_setup_teardown(a_hostile_name_is_cleaned, set_up, view_tear_down),
		cmocka_unit_test_setup_teardown(a_thread_with_its_stack, set_up, view_tear_down),
		cmocka_unit_test_setup_teardown(a_name_without_end_is_refused, set_up,
						view_tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
