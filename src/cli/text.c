/* SPDX-License-Identifier: BSD-3-Clause
 * Small pieces of text that several commands print. */
#include <ctype.h>
#include <stdarg.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"

enum { WORD_MAX = 64 };

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* How many letters must be changed, added, dropped or swapped with their neighbour; upper case counts as
 * lower. */
static unsigned distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
	unsigned rows[3][WORD_MAX + 1];

	for (unsigned j = 0; j <= b_length; j++)
		rows[0][j] = j;
	for (unsigned i = 1; i <= a_length; i++) {
		unsigned *row = rows[i % 3];
		const unsigned *above = rows[(i + 2) % 3];
		const unsigned *twice = rows[(i + 1) % 3];
		row[0] = i;
		for (unsigned j = 1; j <= b_length; j++) {
			int x = tolower((unsigned char)a[i - 1]);
			int y = tolower((unsigned char)b[j - 1]);
			row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + (x != y));
			if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
			    y == tolower((unsigned char)a[i - 2]))
				row[j] = least(row[j], twice[j - 2] + 1);
		}
	}
	return rows[a_length % 3][b_length];
}

const char *cli_nearest(const char *word, const char *const *words)
{
	const char *best = NULL;
	unsigned best_distance = 0;
	size_t length = strlen(word);

	if (length > WORD_MAX)
		return NULL;
	for (; *words; words++) {
		size_t other = strlen(*words);
		if (other > WORD_MAX)
			continue;
		unsigned far = distance(word, length, *words, other);
		/* A third of the letters may be wrong; beyond that a guess only confuses. */
		if (far > (other + 2) / 3)
			continue;
		if (!best || far < best_distance) {
			best = *words;
			best_distance = far;
		}
	}
	return best;
}

void cli_append(char *out, size_t bytes, const char *format, ...)
{
	size_t used = strnlen(out, bytes);
	va_list arguments;

	if (used >= bytes)
		return;
	va_start(arguments, format);
	vsnprintf(out + used, bytes - used, format, arguments);
	va_end(arguments);
}

void cli_rank_list(uint64_t mask, char *out, size_t bytes)
{
	if (bytes == 0)
		return;
	out[0] = '\0';
	for (int first = 0; first < 64; first++) {
		if (!(mask >> first & 1))
			continue;
		int last = first;
		while (last + 1 < 64 && mask >> (last + 1) & 1)
			last++;
		const char *comma = out[0] ? ", " : "";
		/* Three in a row are as short when they are named. */
		if (last - first < 3) {
			cli_append(out, bytes, "%s%d", comma, first);
			continue;
		}
		cli_append(out, bytes, "%s%d-%d", comma, first, last);
		first = last;
	}
}

void cli_ranks(uint64_t mask, char *out, size_t bytes)
{
	char list[256];

	cli_rank_list(mask, list, sizeof list);
	snprintf(out, bytes, "rank%s %s", mask & (mask - 1) ? "s" : "", list);
}

void cli_bytes_text(uint64_t value, char *out, size_t bytes)
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

void cli_signal(int number, char *out, size_t bytes)
{
	const char *name = text_signal(number);

	if (name)
		snprintf(out, bytes, "SIG%s", name);
	else
		snprintf(out, bytes, "signal %d", number);
}

const char *cli_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

void cli_print_safely(FILE *out, const char *text, int indent)
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

const char *cli_variable(char *const *environment, const char *name)
{
	size_t length = strlen(name);

	for (; *environment; environment++)
		if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=')
			return *environment + length + 1;
	return NULL;
}
