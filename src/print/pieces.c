/* SPDX-License-Identifier: BSD-3-Clause
 * Small pieces of text that several commands print. */
#include <stdarg.h>
#include <string.h>

#include "base/text.h"
#include "print/print.h"

void print_append(char *out, size_t bytes, const char *format, ...)
{
	size_t used = strnlen(out, bytes);
	va_list arguments;

	if (used >= bytes)
		return;
	va_start(arguments, format);
	vsnprintf(out + used, bytes - used, format, arguments);
	va_end(arguments);
}

void print_rank_list(const struct ranks *ranks, char *out, size_t bytes)
{
	if (bytes == 0)
		return;
	out[0] = '\0';
	for (int first = ranks_first(ranks), last; first >= 0; first = ranks_from(ranks, last + 1)) {
		const char *comma = out[0] ? ", " : "";
		for (last = first; ranks_have(ranks, last + 1);)
			last++;
		/* Three in a row are as short when they are named. */
		if (last - first < 3) {
			print_append(out, bytes, "%s%d", comma, first);
			last = first;
		} else {
			print_append(out, bytes, "%s%d-%d", comma, first, last);
		}
	}
}

void print_ranks(const struct ranks *ranks, char *out, size_t bytes)
{
	char list[256];

	print_rank_list(ranks, list, sizeof list);
	snprintf(out, bytes, "rank%s %s", ranks_count(ranks) == 1 ? "" : "s", list);
}

void print_bytes(uint64_t value, char *out, size_t bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
	int unit = -1;
	double scaled = (double)value;

	while (scaled >= 1024 && unit < 3) {
		scaled /= 1024;
		unit++;
	}
	if (unit < 0 || value < 10240)
		snprintf(out, bytes, "%llu B", (unsigned long long)value);
	else
		snprintf(out, bytes, "%.4g %s", scaled, units[unit]);
}

void print_signal(int number, char *out, size_t bytes)
{
	const char *name = text_signal(number);

	if (name)
		snprintf(out, bytes, "SIG%s", name);
	else
		snprintf(out, bytes, "signal %d", number);
}

const char *print_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

void print_safely(FILE *out, const char *text, int indent)
{
	for (int bytes; *text; text += bytes) {
		if (!text_is_shown(text, &bytes))
			fputc('?', out);
		else if (*text == '\n')
			fprintf(out, "\n%*s", text[1] ? indent : 0, "");
		else
			fwrite(text, 1, (size_t)bytes, out);
	}
}

void print_xml(FILE *out, const char *text)
{
	for (int bytes; *text; text += bytes) {
		if (!text_is_shown(text, &bytes))
			fputc('?', out);
		else if (strchr("<>&\"'", *text))
			fprintf(out, "&#%d;", *text);
		else
			fwrite(text, 1, (size_t)bytes, out);
	}
}
