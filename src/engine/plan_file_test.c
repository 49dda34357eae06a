/* SPDX-License-Identifier: BSD-3-Clause
 * Reading the table of choices from its file, and the messages about files that are no table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/capture.h"
#include "engine/plan_file.h"

static struct plan_table table;

static ls_status read_saying(const char *path, struct capture *capture)
{
	capture_begin(capture);
	ls_status status = engine_table_read(path, &table);
	capture_end(capture);
	return status;
}

/* The path of a file that holds `text` and then `more` bytes of comment. */
static void make_file(const char *text, size_t more, int *fd, char path[64])
{
	static char filler[PLAN_TABLE_FILE_BYTES];
	memset(filler, '#', sizeof filler);
	*fd = memfd_create("table", MFD_CLOEXEC);
	assert_true(*fd >= 0);
	assert_int_equal(write(*fd, text, strlen(text)), (ssize_t)strlen(text));
	assert_true(more <= sizeof filler);
	assert_int_equal(write(*fd, filler, more), (ssize_t)more);
	snprintf(path, 64, "/proc/self/fd/%d", *fd);
}

static ls_status read_text(const char *text, size_t more, struct capture *capture)
{
	char path[64];
	int fd;
	make_file(text, more, &fd, path);
	ls_status status = read_saying(path, capture);
	close(fd);
	return status;
}

static const char line[] = "allreduce 2 64K ring 32K plain 256K\n";

static void without_a_file_it_is_the_default(void **state)
{
	(void)state;
	struct plan_table wanted;
	struct capture capture;
	plan_table_default(&wanted);
	assert_int_equal(read_saying(NULL, &capture), LS_OK);
	assert_string_equal(capture.text, "");
	assert_true(plan_table_hash(&table) == plan_table_hash(&wanted));
}

static void a_file_is_read(void **state)
{
	(void)state;
	struct capture capture;
	assert_int_equal(read_text(line, 0, &capture), LS_OK);
	assert_string_equal(capture.text, "");
	assert_int_equal(table.count, 1);
	assert_int_equal(table.lines[0].algorithm, PLAN_RING);
	assert_int_equal(table.lines[0].chunk_bytes, 32 << 10);
	assert_int_equal(read_text("", 0, &capture), LS_OK);
	assert_int_equal(table.count, 0);
	/* The longest file that is read whole. */
	assert_int_equal(read_text(line, PLAN_TABLE_FILE_BYTES - sizeof line, &capture), LS_OK);
	assert_int_equal(table.count, 1);
}

static void wrong_files_are_refused(void **state)
{
	(void)state;
	struct capture capture;
	char folder[] = "/tmp/table_test.XXXXXX", path[64];
	assert_int_equal(read_text("\n\nallreduce 2\n", 0, &capture), LS_BAD_ARGUMENT);
	assert_non_null(strstr(capture.text, "line 3: 2 words"));
	assert_non_null(strstr(capture.text, "[LS-TABLE-LINE]"));
	assert_int_equal(read_text(line, PLAN_TABLE_FILE_BYTES - sizeof line + 1, &capture),
			 LS_BAD_ARGUMENT);
	assert_non_null(strstr(capture.text, "[LS-TABLE-FILE]"));

	assert_non_null(mkdtemp(folder));
	assert_int_equal(read_saying(folder, &capture), LS_BAD_ARGUMENT);
	assert_non_null(strstr(capture.text, "[LS-TABLE-FILE]"));
	snprintf(path, sizeof path, "%s/pipe", folder);
	assert_int_equal(read_saying(path, &capture), LS_BAD_ARGUMENT);
	assert_non_null(strstr(capture.text, "No such file"));
	/* Nobody writes to it, and it is not waited for. */
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(read_saying(path, &capture), LS_BAD_ARGUMENT);
	assert_non_null(strstr(capture.text, "[LS-TABLE-FILE]"));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_file_it_is_the_default),
		cmocka_unit_test(a_file_is_read),
		cmocka_unit_test(wrong_files_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
