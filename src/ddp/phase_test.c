/* SPDX-License-Identifier: BSD-3-Clause
 * The public calls on phases, in a world of one rank. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

#include "trace/trace.h"

static ls_group *group;

static int open_world(void **state)
{
	(void)state;
	char name[64];
	snprintf(name, sizeof name, "unix:phase-test-%d", (int)getpid());
	struct ls_group_options options = {
		.size = sizeof options, .rank = 0, .world_size = 1, .rendezvous = name};
	assert_int_equal(ls_group_open(&options, &group), LS_OK);
	return 0;
}

static int close_world(void **state)
{
	(void)state;
	ls_group_close(group);
	return 0;
}

static void report_names_what_was_done(void **state)
{
	(void)state;
	char text[2048];
	assert_int_equal(ls_phase_report(group, text, sizeof text), LS_OK);
	assert_string_equal(text, "no rank has begun a phase\n");
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ls_phase_begin(group, "data"), LS_OK);
		assert_int_equal(ls_phase_begin(group, "data/image"), LS_OK);
		assert_int_equal(ls_phase_end(group, "data/image"), LS_OK);
		assert_int_equal(ls_phase_end(group, "data"), LS_OK);
	}
	assert_int_equal(ls_phase_begin(group, "forward"), LS_OK);
	assert_int_equal(ls_barrier(group, NULL), LS_OK);
	assert_int_equal(ls_phase_report(group, text, sizeof text), LS_OK);
	assert_non_null(strstr(text, "\n  rank      data  data/image   forward   outside"));
	assert_non_null(strstr(text, "  in forward\n"));
	assert_int_equal(ls_phase_end(group, "forward"), LS_OK);
	assert_int_equal(ls_phase_report(group, text, 1), LS_OK);
	assert_string_equal(text, "");
}

static void wrong_calls_are_refused(void **state)
{
	(void)state;
	char text[64] = "#";
	assert_int_equal(ls_phase_begin(NULL, "data"), LS_BAD_ARGUMENT);
	assert_int_equal(ls_phase_begin(group, NULL), LS_BAD_ARGUMENT);
	assert_int_equal(ls_phase_begin(group, ""), LS_BAD_ARGUMENT);
	assert_int_equal(ls_phase_end(NULL, "data"), LS_BAD_ARGUMENT);
	assert_int_equal(ls_phase_end(group, NULL), LS_BAD_ARGUMENT);
	assert_int_equal(ls_phase_end(group, "data"), LS_BAD_ARGUMENT);
	assert_int_equal(ls_phase_begin(group, "data"), LS_OK);
	assert_int_equal(ls_phase_begin(group, "forward"), LS_BAD_ARGUMENT);
	assert_int_equal(ls_phase_begin(group, "data/"), LS_BAD_ARGUMENT);
	assert_int_equal(ls_phase_end(group, "forward"), LS_BAD_ARGUMENT);
	assert_int_equal(ls_phase_end(group, "data"), LS_OK);
	assert_int_equal(ls_phase_report(NULL, text, sizeof text), LS_BAD_ARGUMENT);
	assert_int_equal(ls_phase_report(group, NULL, sizeof text), LS_BAD_ARGUMENT);
	assert_int_equal(ls_phase_report(group, text, 0), LS_BAD_ARGUMENT);
	assert_string_equal(text, "#");
}

static void tables_have_an_end(void **state)
{
	(void)state;
	char name[64];
	int status = LS_OK, count = 0;
	for (; status == LS_OK && count < 2 * TRACE_PHASE_MAX; count++) {
		snprintf(name, sizeof name, "phase-%d", count);
		status = ls_phase_begin(group, name);
		if (status == LS_OK)
			assert_int_equal(ls_phase_end(group, name), LS_OK);
	}
	assert_int_equal(status, LS_BAD_ARGUMENT);
	assert_int_equal(count, TRACE_PHASE_MAX + 1);
}

static void child_is_refused(void **state)
{
	(void)state;
	char text[64] = "#";
	pid_t child = fork();
	if (child == 0)
		_exit(ls_phase_begin(group, "data") == LS_FORKED &&
				      ls_phase_end(group, "data") == LS_FORKED &&
				      ls_phase_report(group, text, sizeof text) == LS_FORKED
			      ? 0
			      : 1);
	int status = -1;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void closed_group_is_refused(void **state)
{
	(void)state;
	char text[64];
	struct ls_sampler *sampler;
	ls_group_close(group);
	assert_int_equal(ls_phase_begin(group, "data"), LS_BAD_ARGUMENT);
	assert_int_equal(ls_phase_end(group, "data"), LS_BAD_ARGUMENT);
	assert_int_equal(ls_phase_report(group, text, sizeof text), LS_BAD_ARGUMENT);
	assert_int_equal(ls_sampler_open(group, 10, NULL, &sampler), LS_BAD_ARGUMENT);
	open_world(state);
}

int main(void)
{
#define WITH_WORLD(test) cmocka_unit_test_setup_teardown(test, open_world, close_world)
	const struct CMUnitTest tests[] = {
		WITH_WORLD(report_names_what_was_done), WITH_WORLD(wrong_calls_are_refused),
		WITH_WORLD(tables_have_an_end),         WITH_WORLD(child_is_refused),
		WITH_WORLD(closed_group_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
