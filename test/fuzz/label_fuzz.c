/* SPDX-License-Identifier: BSD-3-Clause
 * Fuzz entry: the input is the name that a program gives to a call, a phase or itself, which
 * reports, JSON and timelines show. Whatever it is, none of it commands a terminal, and JSON stays
 * valid. */
#include "fuzz.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "inspect/report.h"
#include "print/print.h"
#include "diagnose/diagnose.h"

/* A decoder of its own: the next code point of well-formed UTF-8, or -1. */
static int32_t next_point(const unsigned char **at, const unsigned char *end)
{
	unsigned char first = *(*at)++;
	int more = first < 0x80   ? 0
		   : first < 0xc2 ? -1
		   : first < 0xe0 ? 1
		   : first < 0xf0 ? 2
		   : first < 0xf5 ? 3
				  : -1;
	static const int32_t least[] = {0, 0x80, 0x800, 0x10000};
	int32_t point = more <= 0 ? first : first & (0x3f >> more);
	if (more < 0 || end - *at < more)
		return -1;
	for (int i = 0; i < more; i++) {
		if ((*(*at) & 0xc0) != 0x80)
			return -1;
		point = point << 6 | (*(*at)++ & 0x3f);
	}
	return point < least[more] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)
		       ? -1
		       : point;
}

/* Whether the text has nothing that a terminal obeys. */
static void check_shown(const char *text, size_t bytes)
{
	const unsigned char *at = (const unsigned char *)text, *end = at + bytes;
	while (at < end) {
		int32_t point = next_point(&at, end);
		MUST(point >= 0);
		MUST((point >= 0x20 && point < 0x7f) || point >= 0xa0 || point == '\n' ||
		     point == '\t');
		MUST(!(point >= 0x202a && point <= 0x202e) && !(point >= 0x2066 && point <= 0x2069));
		MUST(point != 0x2028 && point != 0x2029 && point != 0x200e && point != 0x200f);
	}
}

/* Whether brackets match, and strings end and have no control character. */
static void check_json(const char *text)
{
	int depth = 0;
	bool inside = false;
	for (; *text; text++) {
		MUST((unsigned char)*text >= ' ' || (!inside && *text == '\n'));
		if (*text == '"')
			inside = !inside;
		else if (inside && *text == '\\')
			MUST(*++text);
		else if (!inside && strchr("{[", *text))
			depth++;
		else if (!inside && strchr("}]", *text))
			MUST(--depth >= 0);
	}
	MUST(depth == 0 && !inside);
}

static void put(char *to, size_t room, const char *name)
{
	size_t length = strnlen(name, room - 1);
	memcpy(to, name, length);
	to[length] = 0;
}

static struct inspect_report *make_report(const char *name, struct inspect_view **out)
{
	struct trace_options options = {.job = 1, .rank = 0, .world_size = 1, .records = 32};
	struct trace trace;
	MUST(trace_init(&trace, &options) == LS_OK);
	struct trace_begin begin = {.group = 1, .kind = 1, .seq = 1, .count = 1};
	begin.label = trace_label(&trace, name);
	const char *inside;
	trace_phase_begin(&trace, name, &inside);
	trace_begin(&trace, &begin);
	trace_report(&trace, 1, LS_ABORTED, 0, 1, name);
	struct inspect_view *view = inspect_view_new(1, 1);
	MUST(view && inspect_view_add_trace(view, 0, fcntl(trace.fd, F_DUPFD_CLOEXEC, 3)));
	/* As if another process had written the label, without the checks of its owner's calls. */
	put(trace.header->program, sizeof trace.header->program, name);
	put(trace.header->host, sizeof trace.header->host, name);
	put(trace.labels[0], sizeof trace.labels[0], name);
	struct inspect_report *report = inspect_report_take(view, NULL);
	MUST(report);
	inspect_report_explain(report);
	trace_fini(&trace);
	*out = view;
	return report;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char name[FUZZ_INPUT_MAX + 1];
	struct inspect_view *view;
	char *text = NULL;
	size_t bytes;
	if (size > FUZZ_INPUT_MAX)
		return 0;
	memcpy(name, data, size);
	name[size] = 0;
	struct inspect_report *report = make_report(name, &view);
	struct inspect_shown shown = {.report = report, .verdict = true};
	FILE *out = open_memstream(&text, &bytes);
	MUST(out);
	inspect_print(out, &shown);
	print_safely(out, name, 2);
	MUST(fclose(out) == 0);
	check_shown(text, bytes);
	free(text);
	out = open_memstream(&text, &bytes);
	MUST(out);
	struct print_json json = {.out = out};
	print_json_open(&json, NULL, '{');
	print_json_string(&json, "name", name);
	print_json_open(&json, "jobs", '[');
	inspect_print_json(&json, &shown);
	print_json_close(&json, ']');
	print_json_close(&json, '}');
	MUST(fclose(out) == 0);
	check_json(text);
	check_shown(text, bytes);
	free(text);
	inspect_report_free(report);
	inspect_view_free(view);
	return 0;
}

size_t fuzz_draw(uint64_t *state, uint8_t *data)
{
	static const char *const parts[] = {"train.py:42",
					    "data/image",
					    "\033[2J",
					    "\x9b",
					    "\xc2\x9b",
					    "\xe2\x80\xae",
					    "\xe2\x81\xa6",
					    "\xff",
					    "\xed\xa0\x80",
					    "\xf4\x90\x80\x80",
					    "\xc3",
					    "\n",
					    "\"",
					    "\\",
					    "\x7f",
					    "\xe2\x80\xa8",
					    "\xf0\x9f\x98\x80",
					    "%s%n",
					    "</script>"};
	size_t size = 0, count = fuzz_random(state) % 20;
	for (size_t i = 0; i < count; i++) {
		if (fuzz_random(state) % 3 == 0) {
			data[size++] = (uint8_t)fuzz_random(state);
			continue;
		}
		const char *part = parts[fuzz_random(state) % (sizeof parts / sizeof parts[0])];
		memcpy(data + size, part, strlen(part));
		size += strlen(part);
	}
	return size;
}
