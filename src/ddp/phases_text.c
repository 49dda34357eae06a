/* SPDX-License-Identifier: BSD-3-Clause
 * The report on phases as a person reads it. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ddp/phases.h"

enum { LINE_BYTES = 256, WIDTH = 100, COLUMN_WIDTH = 10 };

/* A larger ratio only says that the median rank has next to nothing to do. */
enum { RATIO_MAX = 100 };

/* A text made of whole lines: a line that does not fit ends it. used < bytes. */
struct text {
	char *out;
	size_t bytes, used;
	bool full;
};

static void put_line(struct text *text, const char *line)
{
	size_t length = strlen(line);
	if (text->full || length + 2 > text->bytes - text->used) {
		text->full = true;
		return;
	}
	memcpy(text->out + text->used, line, length);
	memcpy(text->out + text->used + length, "\n", 2);
	text->used += length + 1;
}

__attribute__((format(printf, 2, 3))) static void append_text(char *line, const char *format, ...)
{
	size_t length = strlen(line);
	va_list args;
	va_start(args, format);
	vsnprintf(line + length, LINE_BYTES - length, format, args);
	va_end(args);
}

/* "rank 2", "ranks 0, 1 and 3"; of many only how many they are. */
static void append_ranks(char *line, const struct ranks *ranks)
{
	int count = ranks_count(ranks), said = 0;
	if (count > 8) {
		append_text(line, "%d ranks", count);
		return;
	}
	append_text(line, count == 1 ? "rank " : "ranks ");
	RANKS_EACH (rank, ranks) {
		append_text(line, "%s%d", !said ? "" : said == count - 1 ? " and " : ", ", rank);
		said++;
	}
}

static void append_time(char *line, double ns)
{
	if (ns < 1e6)
		append_text(line, "%.0f us", ns / 1e3);
	else if (ns < 10e9)
		append_text(line, "%.*f ms", ns < 100e6 ? 1 : 0, ns / 1e6);
	else
		append_text(line, "%.1f s", ns / 1e9);
}

void ddp_phases_sentence(const struct ddp_phases *phases, const struct ddp_straggler *straggler,
			 char *out, size_t bytes)
{
	char line[LINE_BYTES] = "", least[16], most[16];
	bool one = ranks_count(&straggler->ranks) == 1;
	bool outside = straggler->column == DDP_OUTSIDE;
	const char *where = outside ? "of phases" : phases->names[straggler->column];
	append_ranks(line, &straggler->ranks);
	append_text(line, one ? " spends " : " spend ");
	snprintf(least, sizeof least, "%.1fx", straggler->least);
	snprintf(most, sizeof most, "%.1fx", straggler->most);
	if (straggler->most <= 0 || straggler->most > RATIO_MAX) {
		append_text(line, one || straggler->most <= 0 ? "" : "up to ");
		append_time(line, straggler->most_ns);
		append_text(line, " %s %s, where the median rank spends ",
			    outside ? "outside" : "in", where);
		if (straggler->most <= 0)
			append_text(line, "nothing");
		else
			append_time(line, straggler->most_ns / straggler->most);
	} else {
		if (strcmp(least, most) != 0)
			append_text(line, "%s to ", least);
		append_text(line, "%s the median %s %s", most, outside ? "outside" : "in", where);
	}
	append_text(line, ", which costs %.0f %% of the step", straggler->share * 100);
	snprintf(out, bytes, "%s", line);
}

static int width_of(const char *name)
{
	int width = (int)strlen(name) + 2;
	return width < COLUMN_WIDTH ? COLUMN_WIDTH : width;
}

/* The unit of time that suits the whole table. */
struct unit {
	double ns;
	const char *name;
};

static void put_rank(struct text *text, const struct ddp_phases *phases,
		     const struct ddp_stragglers *found, const struct unit *unit,
		     const int *columns, int count, bool last, int rank)
{
	char line[LINE_BYTES] = "";
	append_text(line, "  %4d", rank);
	if (!ranks_have(&phases->known, rank)) {
		append_text(line, "  cannot be read");
	} else if (!ranks_have(&phases->entered, rank)) {
		append_text(line, "  has not begun a phase");
	} else {
		for (int i = 0; i < count; i++)
			append_text(line, "%*.2f", width_of(phases->names[columns[i]]),
				    phases->own[rank][columns[i]] / unit->ns);
		if (last)
			append_text(line, "%10.2f", phases->waited[rank] / unit->ns);
		if (last && found->span > 0)
			append_text(line, "%+8.0f %%",
				    100 * (found->work[rank] - found->median_work) / found->span);
		if (last && phases->running[rank])
			append_text(line, "  in %s", phases->names[phases->running[rank]]);
	}
	put_line(text, line);
}

/* Puts as many columns side by side as fit into a terminal, and the next ones below. */
static void put_table(struct text *text, const struct ddp_phases *phases,
		      const struct ddp_stragglers *found, const struct unit *unit)
{
	int columns[DDP_COLUMN_MAX];
	int count = ddp_phases_order(phases, columns), next = 0;
	while (next < count) {
		char line[LINE_BYTES] = "  rank";
		int first = next;
		for (int width = 6; next < count; next++) {
			const char *name = phases->names[columns[next]];
			/* Two more columns follow the last one. */
			width += width_of(name) + (next == count - 1 ? 20 : 0);
			if (width > WIDTH && next > first)
				break;
			append_text(line, "%*s", width_of(name), name);
		}
		if (next == count)
			append_text(line, "%10s%10s", "waiting", "skew");
		put_line(text, line);
		for (int rank = 0; rank < phases->rank_count; rank++)
			put_rank(text, phases, found, unit, columns + first, next - first,
				 next == count, rank);
	}
}

void ddp_phases_text(const struct ddp_phases *phases, char *out, size_t bytes)
{
	struct text text = {.out = out, .bytes = bytes, .full = bytes == 0};
	struct ddp_stragglers found;
	char line[LINE_BYTES] = "";
	if (bytes)
		out[0] = 0;
	if (!ranks_any(&phases->entered)) {
		put_line(&text, "no rank has begun a phase");
		return;
	}
	ddp_phases_judge(phases, &found);
	for (int i = 0; i < found.count; i++) {
		ddp_phases_sentence(phases, &found.stragglers[i], line, sizeof line);
		put_line(&text, line);
	}
	if (!found.count && phases->rank_count > 1)
		put_line(&text, "no straggler: no rank's time in a phase costs 1 % of the step");
	struct unit unit = {1e6, "milliseconds"};
	if (found.span >= 100e9)
		unit = (struct unit){1e9, "seconds"};
	snprintf(line, sizeof line,
		 "%s of own work in each phase, of %.2f in all; skew: work beyond the median rank's",
		 unit.name, found.span / unit.ns);
	put_line(&text, line);
	put_table(&text, phases, &found, &unit);
	if (phases->left_out)
		put_line(&text, "more phases were left out, for there are too many names");
}
