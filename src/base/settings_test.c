/* SPDX-License-Identifier: BSD-3-Clause
 * Settings: defaults, every type's good and bad values, misspelt names, launchers' variables. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/capture.h"
#include "base/messages.h"
#include "base/settings.h"

#define ENVIRONMENT(...) ((char *const[]){__VA_ARGS__, NULL})

static char *const nothing[] = {NULL};

static ls_status read_saying(char *const *environment, struct settings *out, struct capture *capture)
{
	capture_begin(capture);
	ls_status status = settings_read(environment, out);
	capture_end(capture);
	return status;
}

static void warn_saying(char *const *environment, struct capture *capture)
{
	capture_begin(capture);
	settings_warn_of_unknown(environment);
	capture_end(capture);
}

static void test_defaults(void **state)
{
	(void)state;
	struct settings settings;
	struct capture capture;
	assert_int_equal(read_saying(nothing, &settings, &capture), LS_OK);
	assert_string_equal(capture.text, "");
#define X(field, name, type, def, min, max, help) \
	assert_int_equal(settings.field, (def));  \
	assert_in_range(settings.field, min, max);
#include "base/settings.def"
#undef X
}

static void test_values(void **state)
{
	(void)state;
	struct settings settings;
	struct capture capture;
	char *const environment[] = {"HOME=/",
				     "LOCKSTEP_TIMEOUT_MS=1234",
				     "LOCKSTEP_ARENA_BYTES=64M",
				     "LOCKSTEP_WAIT=Yield",
				     "LOCKSTEP_ALGORITHM=tree",
				     "LOCKSTEP_TRACE_RECORDS=16",
				     "LOCKSTEP_SPIN_US=",
				     "LOCKSTEP_RENDEZVOUS=unix:x",
				     "LOCKSTEP_TABLE=/a/table",
				     NULL};
	assert_int_equal(read_saying(environment, &settings, &capture), LS_OK);
	assert_string_equal(capture.text, "");
	assert_string_equal(settings.table, "/a/table");
	assert_int_equal(settings.timeout_ms, 1234);
	assert_int_equal(settings.arena_bytes, 64 << 20);
	assert_int_equal(settings.wait, SETTING_WAIT_YIELD);
	assert_int_equal(settings.algorithm, SETTING_ALGORITHM_TREE);
	assert_int_equal(settings.trace_records, 16);
	assert_int_equal(settings.spin_us, 100);
}

static void test_suffixes(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		uint64_t value; /* 0: refused */
	} cases[] = {
		{"16777216", 16777216},
		{"16384K", 16777216},
		{"16384k", 16777216},
		{"2G", 2147483648},
		{"16M", 16777216},
		{"16MB", 0},
		{"M", 0},
		{"16 M", 0},
		{"16T", 0},
		{"17179869184G", 0},
		{"15M", 0},
		{"16777217", 0},
		{"18446744073709551616M", 0},
		/* Too big by a multiple of 2^64: what is left would be allowed. */
		{"17179869185G", 0},
		{"18446744073726328832", 0},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char variable[64];
		snprintf(variable, sizeof variable, "LOCKSTEP_ARENA_BYTES=%s", cases[i].text);
		struct settings settings;
		struct capture capture;
		ls_status status = read_saying(ENVIRONMENT(variable), &settings, &capture);
		assert_int_equal(status, cases[i].value ? LS_OK : LS_BAD_ARGUMENT);
		assert_int_equal(settings.arena_bytes, cases[i].value);
	}
}

static void test_refused(void **state)
{
	(void)state;
	static char *const bad[] = {
		"LOCKSTEP_TIMEOUT_MS=0",     "LOCKSTEP_TIMEOUT_MS=-1",
		"LOCKSTEP_TIMEOUT_MS=+1",    "LOCKSTEP_TIMEOUT_MS= 1",
		"LOCKSTEP_TIMEOUT_MS=1 ",    "LOCKSTEP_TIMEOUT_MS=0x10",
		"LOCKSTEP_TIMEOUT_MS=1K",    "LOCKSTEP_TIMEOUT_MS=4294967296",
		"LOCKSTEP_TIMEOUT_MS=1e3",   "LOCKSTEP_TIMEOUT_MS=99999999999999999999999",
		"LOCKSTEP_TRACE_RECORDS=17", "LOCKSTEP_WAIT=sleepy",
		"LOCKSTEP_WAIT=0",           "LOCKSTEP_LOG=SETTING_LOG_WARN",
	};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct settings settings, zero = {0};
		struct capture capture;
		assert_int_equal(read_saying(ENVIRONMENT(bad[i]), &settings, &capture),
				 LS_BAD_ARGUMENT);
		assert_memory_equal(&settings, &zero, sizeof zero);
		assert_non_null(strstr(capture.text, "[LS-SETTING-VALUE]"));
		assert_memory_equal(strstr(capture.text, "LOCKSTEP_"), bad[i], 10);
	}
}

static void test_refusals_say_what_is_allowed(void **state)
{
	(void)state;
	struct settings settings;
	struct capture capture;
	char *const environment[] = {"LOCKSTEP_WAIT=s\033[2J", "LOCKSTEP_PATIENCE_MS=5", NULL};
	assert_int_equal(read_saying(environment, &settings, &capture), LS_BAD_ARGUMENT);
	assert_string_equal(
		capture.text,
		"lockstep: LOCKSTEP_PATIENCE_MS is '5', but must be a number from 100 to "
		"4294967295 [LS-SETTING-VALUE]\n"
		"lockstep: LOCKSTEP_WAIT is 's?[2J', but must be auto, spin, yield or sleep "
		"[LS-SETTING-VALUE]\n");
}

static void test_did_you_mean(void **state)
{
	(void)state;
	static char *const cases[][2] = {
		{"LOCKSTEP_TIMEOUT=5", "did you mean LOCKSTEP_TIMEOUT_MS?"},
		{"LOCKSTEP_TIEMOUT_MS=5", "did you mean LOCKSTEP_TIMEOUT_MS?"},
		{"LOCKSTEP_timeout_ms=5", "did you mean LOCKSTEP_TIMEOUT_MS?"},
		{"LOCKSTEP_COLOUR=never", "did you mean LOCKSTEP_COLOR?"},
		{"LOCKSTEP_ALGO=ring", "LOCKSTEP_ALGO is not a setting"},
		{"LOCKSTEP_", "LOCKSTEP_ is not a setting"},
		{"LOCKSTEP_LONGLONGLONGLONGLONGLONGLONGLONGLONGLONGLONGLONGLONGLONGLONGLONG=1",
		 "[LS-SETTING-UNKNOWN]"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct settings settings;
		struct capture capture;
		assert_int_equal(read_saying(ENVIRONMENT(cases[i][0]), &settings, &capture), LS_OK);
		assert_int_equal(settings.timeout_ms, 600000);
		assert_string_equal(capture.text, "");
		warn_saying(ENVIRONMENT(cases[i][0]), &capture);
		assert_non_null(strstr(capture.text, cases[i][1]));
	}
	struct capture capture;
	warn_saying(ENVIRONMENT("LOCKSTEP_LOG=debug", "LOCKSTEP_RENDEZVOUS=x",
				"LOCKSTEP_RUN_NOTES=/x", "LOCKSTEPX=1"),
		    &capture);
	assert_string_equal(capture.text, "");
	message_set_level(SETTING_LOG_ERROR);
	warn_saying(ENVIRONMENT("LOCKSTEP_NONE=1"), &capture);
	message_set_level(SETTING_LOG_WARN);
	assert_string_equal(capture.text, "");
}

static void test_launch(void **state)
{
	(void)state;
	struct settings_launch launch;
	assert_int_equal(settings_read_launch(nothing, &launch), LS_OK);
	assert_null(launch.rendezvous);
	assert_null(launch.run_notes);
	assert_null(launch.master_addr);
	assert_null(launch.run_id);
	assert_int_equal(launch.master_port, -1);
	assert_int_equal(launch.rank, -1);
	assert_int_equal(launch.world_size, -1);
	assert_int_equal(launch.restart_count, -1);
	assert_false(launch.agent_owns_port);
	assert_false(launch.slurm.is_task);
	char *const torchrun[] = {"MASTER_ADDR=127.0.0.1",
				  "MASTER_PORT=29500",
				  "RANK=2",
				  "WORLD_SIZE=4",
				  "LOCAL_RANK=2",
				  "LOCAL_WORLD_SIZE=4",
				  "TORCHELASTIC_RUN_ID=none",
				  "TORCHELASTIC_RESTART_COUNT=0",
				  "TORCHELASTIC_USE_AGENT_STORE=True",
				  NULL};
	assert_int_equal(settings_read_launch(torchrun, &launch), LS_OK);
	assert_string_equal(launch.master_addr, "127.0.0.1");
	assert_int_equal(launch.master_port, 29500);
	assert_int_equal(launch.rank, 2);
	assert_int_equal(launch.world_size, 4);
	assert_int_equal(launch.local_rank, 2);
	assert_int_equal(launch.local_world_size, 4);
	assert_string_equal(launch.run_id, "none");
	assert_int_equal(launch.restart_count, 0);
	assert_true(launch.agent_owns_port);
}

static void test_slurm(void **state)
{
	(void)state;
	struct settings_launch launch;
	char *task[] = {"SLURM_PROCID=3",
			"SLURM_STEP_NUM_TASKS=4",
			"SLURM_STEP_NUM_NODES=2",
			"SLURM_JOB_ID=4294967294",
			"SLURM_STEP_ID=0",
			"SLURM_STEP_NODELIST=node[1-2]",
			"SLURM_NTASKS=9",
			NULL,
			NULL};
	assert_int_equal(settings_read_launch(task, &launch), LS_OK);
	assert_true(launch.slurm.is_task);
	assert_int_equal(launch.slurm.rank, 3);
	assert_int_equal(launch.slurm.size, 4);
	assert_int_equal(launch.slurm.hosts, 2);
	assert_int_equal(launch.slurm.job, 4294967294);
	assert_int_equal(launch.slurm.step, 0);
	assert_string_equal(launch.slurm.nodes, "node[1-2]");
	assert_int_equal(launch.rank, -1);

	/* Processes of another launcher inside the task. */
	task[7] = "OMPI_COMM_WORLD_SIZE=8";
	assert_int_equal(settings_read_launch(task, &launch), LS_OK);
	assert_false(launch.slurm.is_task);
	task[7] = "MPI_LOCALNRANKS=8";
	assert_int_equal(settings_read_launch(task, &launch), LS_OK);
	assert_false(launch.slurm.is_task);

	/* The shell of a batch script is no task. */
	char *const batch[] = {"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_JOB_ID=7", NULL};
	assert_int_equal(settings_read_launch(batch, &launch), LS_OK);
	assert_false(launch.slurm.is_task);
}

static void test_launch_refused(void **state)
{
	(void)state;
	static char *const bad[] = {
		"MASTER_PORT=65536", "MASTER_PORT=0",        "RANK=-1", "RANK=two", "WORLD_SIZE=0",
		"RANK=1 ",           "LOCAL_RANK=4294967296"};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct settings_launch launch, zero = {0};
		struct capture capture;
		capture_begin(&capture);
		ls_status status = settings_read_launch(
			ENVIRONMENT("LOCKSTEP_RENDEZVOUS=unix:x", bad[i]), &launch);
		capture_end(&capture);
		assert_int_equal(status, LS_BAD_ARGUMENT);
		assert_memory_equal(&launch, &zero, sizeof zero);
		assert_non_null(strstr(capture.text, "[LS-SETTING-VALUE]"));
	}
}

static void test_describe(void **state)
{
	(void)state;
	struct settings_line line;
	char *const environment[] = {"LOCKSTEP_ARENA_BYTES=1G", "LOCKSTEP_WAIT=SPIN",
				     "LOCKSTEP_LOOK_MS=soon", "LOCKSTEP_TABLE=here", NULL};
	int seen = 0;
	assert_true(settings_count() > 0 && settings_count() <= 30);
	for (size_t i = 0; i < settings_count(); i++) {
		settings_describe(environment, i, &line);
		assert_memory_equal(line.name, "LOCKSTEP_", 9);
		assert_true(strlen(line.help) > 10);
		if (strcmp(line.name, "LOCKSTEP_ARENA_BYTES") == 0) {
			assert_string_equal(line.value, "1073741824");
			assert_string_equal(line.value_default, "68719476736");
		} else if (strcmp(line.name, "LOCKSTEP_WAIT") == 0) {
			assert_string_equal(line.value, "spin");
			assert_string_equal(line.value_default, "auto");
		} else if (strcmp(line.name, "LOCKSTEP_LOOK_MS") == 0) {
			assert_string_equal(line.value, "soon");
		} else if (strcmp(line.name, "LOCKSTEP_TABLE") == 0) {
			assert_string_equal(line.value, "here");
			assert_string_equal(line.value_default, "none");
		} else {
			assert_string_equal(line.value, line.value_default);
			assert_int_equal(line.source, SETTINGS_DEFAULT);
			continue;
		}
		assert_int_equal(line.source, SETTINGS_ENVIRONMENT);
		seen++;
	}
	assert_int_equal(seen, 4);
	settings_describe(environment, settings_count(), &line);
	assert_null(line.name);
}

static void test_own_environment(void **state)
{
	(void)state;
	struct settings settings;
	assert_int_equal(setenv("LOCKSTEP_LOOK_MS", "77", 1), 0);
	assert_int_equal(settings_read(NULL, &settings), LS_OK);
	assert_int_equal(settings.look_ms, 77);
	assert_int_equal(unsetenv("LOCKSTEP_LOOK_MS"), 0);
}

static void test_color(void **state)
{
	(void)state;
	struct settings settings = {.color = SETTING_COLOR_ALWAYS};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	assert_true(null >= 0 && terminal >= 0);
	assert_true(settings_use_color(&settings, null));
	settings.color = SETTING_COLOR_NEVER;
	assert_false(settings_use_color(&settings, terminal));
	settings.color = SETTING_COLOR_AUTO;
	setenv("TERM", "xterm", 1);
	unsetenv("NO_COLOR");
	assert_false(settings_use_color(&settings, null));
	assert_true(settings_use_color(&settings, terminal));
	setenv("NO_COLOR", "1", 1);
	assert_false(settings_use_color(&settings, terminal));
	unsetenv("NO_COLOR");
	setenv("TERM", "dumb", 1);
	assert_false(settings_use_color(&settings, terminal));
	close(null);
	close(terminal);
}

static void test_valgrind(void **state)
{
	(void)state;
	char *of_valgrind[] = {
		"LD_PRELOAD=/usr/libexec/valgrind/vgpreload_core-amd64-linux.so:/lib/mine.so", NULL};
	char *mine[] = {"LD_PRELOAD=/lib/mine.so", NULL}, *none[] = {NULL};
	assert_true(settings_is_under_valgrind(of_valgrind));
	assert_false(settings_is_under_valgrind(mine));
	assert_false(settings_is_under_valgrind(none));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_suffixes),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_refusals_say_what_is_allowed),
		cmocka_unit_test(test_did_you_mean),
		cmocka_unit_test(test_launch),
		cmocka_unit_test(test_slurm),
		cmocka_unit_test(test_launch_refused),
		cmocka_unit_test(test_describe),
		cmocka_unit_test(test_own_environment),
		cmocka_unit_test(test_color),
		cmocka_unit_test(test_valgrind),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
