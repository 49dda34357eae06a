/* SPDX-License-Identifier: BSD-3-Clause
 * Call sites: from a return address to file.c:line through the module table and the file alone, and
 * the text if the file has no lines, was replaced, or is gone. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/trace.h"

static struct trace trace;
static unsigned char *image;
static struct trace_view view;

/* The sites are read from a copy, as of a process that is gone. */
static int set_up(void **state)
{
	(void)state;
	const char *why;
	struct trace_options options = {.job = 1, .rank = 0, .world_size = 1, .records = 16};
	if (trace_init(&trace, &options) != LS_OK)
		return -1;
	trace_label(&trace, "train.py:42");
	image = aligned_alloc(64, trace.bytes);
	if (!image)
		return -1;
	memcpy(image, trace.header, trace.bytes);
	return trace_check(image, trace.bytes, &view, &why) ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	free(image);
	trace_fini(&trace);
	return 0;
}

/* Records where it was called from, as an operation of the library does. */
__attribute__((noinline)) static uint64_t record_caller(void)
{
	struct trace_begin begin = {.kind = TRACE_BARRIER,
				    .site = (uint64_t)__builtin_return_address(0)};
	return trace_begin(&trace, &begin);
}

static const char *site_of(uint64_t address, uint32_t label)
{
	static char text[128];
	struct trace_record record = {.site = address, .label = label};
	trace_site(&view, &record, text, sizeof text);
	return text;
}

static struct trace_module *module_of(const char *part)
{
	struct trace_module *modules = (struct trace_module *)(image + view.header->module_offset);
	for (uint32_t i = 0; i < view.module_count; i++)
		if (strstr(modules[i].path, part))
			return &modules[i];
	return NULL;
}

static void site_is_the_line_of_the_call(void **state)
{
	(void)state;
	char expected[64];
	int line = __LINE__ + 1;
	uint64_t index = record_caller();
	snprintf(expected, sizeof expected, "trace_site_test.c:%d", line);
	struct trace_view live;
	struct trace_record record;
	uint32_t step;
	char site[64];
	const char *why;
	assert_true(trace_map(trace.fd, &live, &why));
	assert_true(trace_read(&live, index, &record, &step));
	trace_site(&live, &record, site, sizeof site);
	assert_string_equal(site, expected);
	assert_string_equal(site_of(record.site, 0), expected);
	trace_site(&live, &record, site, 8);
	assert_string_equal(site, "trace_s");
	trace_site(&live, &record, site, 1);
	assert_string_equal(site, "");
	trace_unmap(&live);
}

static void module_without_lines_gives_its_function(void **state)
{
	(void)state;
	void *function = dlsym(RTLD_DEFAULT, "gnu_get_libc_version");
	assert_non_null(function);
	const char *site = site_of((uint64_t)function + 2, 0);
	struct trace_module *libc = module_of("libc.so");
	assert_non_null(libc);
	assert_true(libc->build_id_bytes > 0);
	char expected[128];
	snprintf(expected, sizeof expected, "libc.so.6+0x%lx (gnu_get_libc_version)",
		 (unsigned long)((uint64_t)function + 1 - libc->base));
	assert_string_equal(site, expected);
}

static void replaced_file_is_not_believed(void **state)
{
	(void)state;
	struct trace_module *self = module_of("trace_site_test");
	assert_non_null(self);
	uint64_t here = (uint64_t)&record_caller + 1;
	assert_non_null(strstr(site_of(here, 0), "trace_site_test.c:"));
	self->build_id[0] ^= 1;
	self->build_id_bytes = self->build_id_bytes ? self->build_id_bytes : 20;
	const char *site = site_of(here, 0);
	assert_non_null(strstr(site, "trace_site_test+0x"));
	assert_null(strstr(site, "("));
	self->path[0] = 'x'; /* gone */
	assert_non_null(strstr(site_of(here, 0), "trace_site_test+0x"));
	memset(self->path, '/', sizeof self->path); /* no string any more */
	assert_non_null(strstr(site_of(here, 0), "+0x"));
	snprintf(self->path, sizeof self->path, "/dev/zero");
	assert_non_null(strstr(site_of(here, 0), "zero+0x"));
}

static void what_calls_for_an_interpreter_says_nothing(void **state)
{
	(void)state;
	struct trace_module *libc = module_of("libc.so");
	struct trace_module before = *libc;
	snprintf(libc->path, sizeof libc->path, "/usr/lib/libffi.so.8");
	assert_string_equal(site_of(before.base + 1, 0), "");
	snprintf(libc->path, sizeof libc->path, "/usr/lib/liblockstep_torch.so");
	assert_string_equal(site_of(before.base + 1, 0), "");
	*libc = before;
	assert_non_null(strstr(site_of(before.base + 1, 0), "libc.so.6+0x"));
}

static void address_outside_of_all_modules(void **state)
{
	(void)state;
	assert_string_equal(site_of(0x10, 0), "0x10");
	assert_string_equal(site_of(UINT64_MAX, 0), "0xffffffffffffffff");
	assert_string_equal(site_of(0, 0), "");
}

static void label_goes_before_the_address(void **state)
{
	(void)state;
	char(*labels)[TRACE_LABEL_BYTES] =
		(char(*)[TRACE_LABEL_BYTES])(image + view.header->label_offset);
	uint32_t label = trace_label(&trace, "train.py:42");
	assert_string_equal(site_of((uint64_t)&record_caller + 1, label), "train.py:42");
	assert_string_equal(site_of(0x10, TRACE_LABEL_MAX + 1), "0x10");
	assert_string_equal(site_of(0x10, UINT32_MAX), "0x10");
	memset(labels[label - 1], 'y', TRACE_LABEL_BYTES); /* no string any more */
	assert_int_equal(strlen(site_of(0x10, label)), TRACE_LABEL_BYTES - 1);
	memcpy(labels[label - 1], "a\033[2Jb", 7);
	assert_string_equal(site_of(0x10, label), "a?[2Jb");
	memcpy(labels[label - 1], "a\xc2\x9b[2Jb\xff", 9); /* the same command in two other ways */
	assert_string_equal(site_of(0x10, label), "a?[2Jb?");
}

static void modules_are_listed_once(void **state)
{
	(void)state;
	uint32_t count = atomic_load(&trace.header->module_count);
	assert_true(count >= 3);
	trace_update_modules(&trace);
	assert_int_equal(atomic_load(&trace.header->module_count), count);
	void *library = dlopen("libBrokenLocale.so.1", RTLD_NOW);
	if (!library)
		skip();
	trace_update_modules(&trace);
	assert_int_equal(atomic_load(&trace.header->module_count), count + 1);
	assert_non_null(strstr(trace.modules[count].path, "libBrokenLocale"));
	dlclose(library);
	trace_update_modules(&trace);
	assert_int_equal(atomic_load(&trace.header->module_count), count + 1);
}

static __attribute__((noinline)) void check_called(const char *want)
{
	char text[TRACE_CALLER_BYTES], all[TRACE_CALLER_BYTES];
	trace_caller_text_at(__builtin_return_address(0), text, sizeof text);
	assert_memory_equal(text, want, strlen(want));
	/* Cut where there is no room, and empty where there would be nothing of it. */
	trace_caller_text_at(__builtin_return_address(0), all, strlen(want));
	assert_int_equal(strlen(all), strlen(want) - 1);
	trace_caller_text_at(__builtin_return_address(0), all, strlen(", called from "));
	assert_string_equal(all, "");
}

static void called_from_here(void **state)
{
	char text[TRACE_CALLER_BYTES] = "x";
	(void)state;
	check_called(", called from trace_site_test.c:");
	trace_caller_text_at(NULL, text, sizeof text);
	assert_string_equal(text, "");
	/* This program contains what it calls. */
	trace_caller_text(text, sizeof text);
	assert_string_equal(text, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(site_is_the_line_of_the_call),
		TEST(module_without_lines_gives_its_function),
		TEST(replaced_file_is_not_believed),
		TEST(what_calls_for_an_interpreter_says_nothing),
		TEST(address_outside_of_all_modules),
		TEST(label_goes_before_the_address),
		TEST(modules_are_listed_once),
		TEST(called_from_here),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
