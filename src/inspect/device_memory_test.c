/* SPDX-License-Identifier: BSD-3-Clause
 * Device memory of ranks, as lockstep memory reads and shows it, also where it is damaged. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inspect/view_fixture.h"
#include "inspect/device_memory.h"

enum { MIB = 1 << 20 };

/* Rank 0 has a device, rank 1 none, and of rank 2 there is no trace. */
static int set_up(void **state)
{
	assert_int_equal(view_set_up(state), 0);
	struct view_fixture *fixture = *state;

	assert_true(view_add(fixture, 0, 0) && view_add(fixture, 1, 1));
	struct trace_memory *memory = &fixture->traces[0].device->memory;
	trace_set_device(&fixture->traces[0], "sim:0");
	trace_memory_set(&memory->live, 3 * MIB);
	trace_memory_set(&memory->peak_live, 7 * MIB);
	trace_memory_set(&memory->allocs, 10);
	trace_memory_set(&memory->frees, 8);
	trace_memory_set(&memory->pending, 1 * MIB);
	trace_memory_set(&memory->owned, 6 * MIB);
	trace_memory_set(&memory->put_off, 4 * MIB);
	trace_memory_set(&memory->peak_reserved, 12 * MIB);
	trace_memory_set(&memory->segments, 3);
	trace_memory_set(&memory->misses, 5);
	trace_memory_set(&memory->failed, 1);
	trace_memory_set(&memory->bins[0], 9 * trace_memory_one_cached(512));
	trace_memory_set(&memory->bins[7], 2 * trace_memory_one_cached(3 * MIB / 4));
	return 0;
}

enum form { TEXT, JSON, SVG };

static const char *show(struct view_fixture *fixture, enum form form)
{
	struct inspect_report *report = inspect_report_take(fixture->view, NULL);
	FILE *out = fmemopen(fixture->text, sizeof fixture->text, "w");
	struct print_json json = {.out = out};
	struct inspect_memory memory;

	assert_true(report && out);
	inspect_memory_take(fixture->view, report, &memory);
	if (form == TEXT)
		inspect_memory_print(out, &memory);
	else if (form == JSON)
		inspect_memory_json(&json, &memory);
	else
		inspect_memory_svg(out, &memory);
	assert_int_equal(fclose(out), 0);
	inspect_report_free(report);
	return fixture->text;
}

static void has(const char *text, const char *want)
{
	if (!strstr(text, want))
		fail_msg("'%s' is not in: %s", want, text);
}

static void who_holds_what(void **state)
{
	struct view_fixture *fixture = *state;

	const char *text = show(fixture, TEXT);
	has(text, "  0    sim:0       3 MiB     2 MiB   768 KiB      1 MiB     4 MiB    10 MiB "
		  "      7 MiB        12 MiB  running\n");
	has(text, "  rank 0: 1 allocation found no memory\n");
	has(text, "  rank 1 has no device\n  rank 2 cannot be read\n");
	assert_null(strstr(text, "fit together"));
	assert_null(strstr(text, "all "));
	text = show(fixture, JSON);
	has(text, "\"device\":\"sim:0\",\"memory\":{\"consistent\":true,\"live\":3145728,"
		  "\"cached\":2097152,\"pending\":1048576,\"put_off\":4194304,\"reserved\":10485760,"
		  "\"peak_live\":7340032,\"peak_reserved\":12582912,\"largest_cached\":786432,"
		  "\"live_blocks\":2,\"segments\":3,\"hits\":6,\"misses\":5,\"failed\":1}");
	has(text, "\"device\":null,\"memory\":null");
	text = show(fixture, SVG);
	has(text, "\nlargest cached block: 768 KiB\n");
	/* 3 of 12 MiB of a chart of 720. */
	has(text, "<rect x=\"170.00\" y=\"96\" width=\"180.00\" height=\"18\" class=\"live\"/>");
	has(text, "</g>\n<text x=\"902\" y=\"109\">10 MiB</text>");
	has(text, "ranks 1, 2: no device, or not readable");
	has(text, "</svg>\n");
}

/* Figures that are no sizes of blocks. */
static void damaged_figures(void **state)
{
	struct view_fixture *fixture = *state;
	struct trace_memory *memory = &fixture->traces[0].device->memory, good;
	/* All bins but the first are read in the same way. */
	const size_t words = offsetof(struct trace_memory, bins[1]) / sizeof(uint64_t);
	static const uint64_t values[] = {
		0, 1, (uint64_t)1 << 40, INT64_MAX, UINT64_MAX - 1, UINT64_MAX};

	memcpy(&good, memory, sizeof good);
	for (size_t i = 0; i <= words; i++)
		for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
			_Atomic uint64_t *all = (_Atomic uint64_t *)memory;
			for (size_t j = 0; j < words; j++)
				if (i == words || i == j)
					trace_memory_set(&all[j], values[v]);
			has(show(fixture, TEXT), "  rank 1 has no device\n");
			has(show(fixture, JSON), "\"memory\":{\"consistent\":");
			const char *svg = show(fixture, SVG);
			has(svg, "</svg>\n");
			assert_null(strstr(svg, "nan"));
			assert_null(strstr(svg, "inf"));
			assert_null(strstr(svg, "width=\"-"));
			memcpy(memory, &good, sizeof good);
		}
	trace_memory_set(&memory->live, 6 * MIB); /* with what is pending more than there is */
	has(show(fixture, TEXT), "  rank 0: the figures do not fit together");
	has(show(fixture, JSON), "\"consistent\":false,\"live\":6291456,\"cached\":0,");
	has(show(fixture, SVG), ">about 10 MiB<");
	memcpy(memory, &good, sizeof good);
	trace_memory_set(&memory->put_off, UINT64_MAX);
	has(show(fixture, JSON), "\"consistent\":false");
	has(show(fixture, JSON), "\"reserved\":18446744073709551615,");
}

static void damaged_name(void **state)
{
	struct view_fixture *fixture = *state;
	struct trace_device *device = fixture->traces[0].device;

	memset(device->name, 'x', sizeof device->name);
	memcpy(device->name, "a\033[2J<b>\n\"", 10);
	has(show(fixture, TEXT), "  0    a?[2J<b>");
	has(show(fixture, JSON), "\"device\":\"a\\u001b[2J<b>\\n\\\"xxxxxxxxxxxxxxxxxxxxx\",");
	has(show(fixture, SVG), "a?[2J&#60;b&#62;");
	atomic_store(&device->present, 2);
	has(show(fixture, TEXT), "  ranks 0, 1 have no device\n");
	has(show(fixture, SVG), "ranks 0, 1, 2: no device, or not readable");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(who_holds_what, set_up, view_tear_down),
		cmocka_unit_test_setup_teardown(damaged_figures, set_up, view_tear_down),
		cmocka_unit_test_setup_teardown(damaged_name, set_up, view_tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
