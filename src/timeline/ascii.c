/* SPDX-License-Identifier: BSD-3-Clause
 * A timeline as lines of ASCII, for terminals and logs. */
#include "timeline/timeline.h"

#include <string.h>

#include "print/print.h"

enum { COLUMNS_MIN = 60, COLUMNS_MAX = 200, RANK_COLUMNS = 8, LABEL_MAX = 28, LISTED_MAX = 16 };
enum { MARK_COLUMNS = 12 }; /* a mark and its time, such as "|250.5 ms" */

/* How a line is divided: RANK_COLUMNS, label, '|', chart, '|'. */
struct frame {
	const struct timeline *timeline;
	FILE *out;
	int label; /* columns of labels with the blank after them */
	int chart;
};

static int column_at(const struct frame *frame, uint64_t at_ns)
{
	const struct timeline *timeline = frame->timeline;
	double span = (double)(timeline->end_ns - timeline->begin_ns) + 1;

	if (at_ns <= timeline->begin_ns)
		return 0;
	if (at_ns >= timeline->end_ns)
		return frame->chart - 1;
	int column = (int)((double)(at_ns - timeline->begin_ns) / span * frame->chart);
	return column < frame->chart ? column : frame->chart - 1;
}

static void print_axis(const struct frame *frame)
{
	const struct timeline *timeline = frame->timeline;
	uint64_t span_ns = timeline->end_ns - timeline->begin_ns;
	uint64_t step_ns = timeline_step(span_ns, frame->chart / MARK_COLUMNS);
	char line[COLUMNS_MAX + 1];
	char mark[32];

	memset(line, ' ', sizeof line);
	line[frame->chart] = '\0';
	for (uint64_t at_ns = 0;; at_ns += step_ns) {
		int column = column_at(frame, timeline->begin_ns + at_ns);
		timeline_mark(at_ns, span_ns, step_ns, mark, sizeof mark);
		line[column] = '|';
		for (int i = 0; mark[i] && column + 1 + i < frame->chart; i++)
			line[column + 1 + i] = mark[i];
		if (span_ns - at_ns < step_ns)
			break;
	}
	int last = frame->chart;
	while (last > 0 && line[last - 1] == ' ')
		last--;
	fprintf(frame->out, "%*s%.*s\n", RANK_COLUMNS + frame->label + 1, "", last, line);
}

/* Adds to each column which part of the column the operation fills. */
static void fill_columns(const struct frame *frame, const struct timeline_op *op, float *filled)
{
	const struct timeline *timeline = frame->timeline;
	double width = ((double)(timeline->end_ns - timeline->begin_ns) + 1) / frame->chart;
	double begin = ((double)op->begin_ns - (double)timeline->begin_ns) / width;
	double end = ((double)op->end_ns - (double)timeline->begin_ns) / width;

	for (int i = column_at(frame, op->begin_ns); i <= column_at(frame, op->end_ns); i++)
		filled[i] += (float)((end < i + 1 ? end : i + 1) - (begin > i ? begin : i));
}

/* "[AAA]", "(AAA)" on a stream of a device, "[rr~~>" while the operation runs, "[AA!" if it failed.
 * A column that two operations share gets a ':', which print_row may replace. */
static void draw_op(const struct frame *frame, const struct timeline_op *op, char *line)
{
	char letter = timeline_look(op->record.kind).letter;
	bool runs = timeline_runs(op), failed = op->record.state == TRACE_FAILED;
	bool streams = timeline_streams(op);
	int first = column_at(frame, op->begin_ns), last = column_at(frame, op->end_ns);
	bool shared = line[first] != ' ' && line[first] != '.';

	for (int i = first; i <= last; i++)
		line[i] = runs && i > first + 2 ? '~' : letter;
	if (last - first >= 2)
		line[first] = streams ? '(' : '[';
	if (last > first && runs)
		line[last] = '>';
	else if (failed)
		line[last] = '!';
	else if (last - first >= 2)
		line[last] = streams ? ')' : ']';
	if (shared)
		line[first] = ':';
}

/* A rank's operations lie together, from `first` on. */
static void print_row(const struct frame *frame, uint32_t number, size_t first)
{
	const struct timeline *timeline = frame->timeline;
	const struct timeline_row *row = &timeline->rows[number];
	const struct timeline_rank *rank = &timeline->ranks[row->rank];
	char line[COLUMNS_MAX + 1], who[16] = "";
	float filled[COLUMNS_MAX] = {0};

	memset(line, ' ', sizeof line);
	line[frame->chart] = '\0';
	if (rank->complete_ns > timeline->begin_ns)
		memset(line, '.', (size_t)column_at(frame, rank->complete_ns));
	for (size_t i = first; i < timeline->op_count && timeline->ops[i].rank == row->rank; i++)
		if (timeline->ops[i].row == number) {
			draw_op(frame, &timeline->ops[i], line);
			fill_columns(frame, &timeline->ops[i], filled);
		}
	for (int i = 0; i < frame->chart; i++)
		if (line[i] == ':' && filled[i] > 0.5f)
			line[i] = '#';
	if (number == rank->row)
		snprintf(who, sizeof who, "rank %d", row->rank);
	fprintf(frame->out, "%-*s%-*.*s|%s|\n", RANK_COLUMNS, who, frame->label, frame->label - 1,
		row->first ? row->label : "", line);
}

static void print_each_rank(const struct frame *frame)
{
	const struct timeline *timeline = frame->timeline;
	size_t next = 0;

	for (int i = 0; i < timeline->size; i++) {
		const struct timeline_rank *rank = &timeline->ranks[i];
		if (rank->row_count == 0)
			fprintf(frame->out, "rank %-3d%s\n", i,
				rank->known ? "no operation" : "cannot be read");
		for (uint32_t row = 0; row < rank->row_count; row++)
			print_row(frame, rank->row + row, next);
		while (next < timeline->op_count && timeline->ops[next].rank == i)
			next++;
	}
}

static void add_word(FILE *out, int *column, int columns, const char *word)
{
	int length = (int)strlen(word);

	if (*column > 0 && *column + 2 + length > columns) {
		fputc('\n', out);
		*column = 0;
	}
	*column += fprintf(out, "  %s", word);
}

/* Explains the letters that are used; kinds with one letter share a word: "G all-gather,
 * all-gatherv". */
static void print_legend(const struct frame *frame)
{
	const struct timeline *timeline = frame->timeline;
	bool used[TRACE_KIND_COUNT] = {false};
	bool runs = false, failed = false, streams = false, lost = false;
	int columns = RANK_COLUMNS + frame->label + frame->chart + 2, column = 0;
	char word[96];

	for (size_t i = 0; i < timeline->op_count; i++) {
		const struct timeline_op *op = &timeline->ops[i];
		used[op->record.kind] = true;
		runs = runs || timeline_runs(op);
		failed = failed || op->record.state == TRACE_FAILED;
		streams = streams || timeline_streams(op);
	}
	for (int i = 0; i < timeline->size; i++)
		lost = lost || timeline->ranks[i].complete_ns > timeline->begin_ns;
	for (uint32_t kind = 1; kind < TRACE_KIND_COUNT; kind++) {
		char letter = timeline_look(kind).letter;
		if (!used[kind])
			continue;
		snprintf(word, sizeof word, "%c %s", letter, trace_kind_name(kind));
		for (uint32_t other = kind + 1; other < TRACE_KIND_COUNT; other++) {
			if (!used[other] || timeline_look(other).letter != letter)
				continue;
			print_append(word, sizeof word, ", %s", trace_kind_name(other));
			used[other] = false;
		}
		add_word(frame->out, &column, columns, word);
	}
	if (timeline->op_count > 0)
		add_word(frame->out, &column, columns, "# several, : short ones");
	if (streams)
		add_word(frame->out, &column, columns, "() on a stream");
	if (runs)
		add_word(frame->out, &column, columns, "~> still running");
	if (failed)
		add_word(frame->out, &column, columns, "! failed");
	if (lost)
		add_word(frame->out, &column, columns, ". no longer recorded");
	if (column > 0)
		fputc('\n', frame->out);
}

static void print_one(const struct frame *frame, const struct timeline_op *op)
{
	const struct timeline *timeline = frame->timeline;
	const char *site = timeline_site(timeline, op);
	const char *stream = trace_stream_clause(&op->record);
	bool runs = timeline_runs(op);
	char name[160], took[32];

	timeline_name(timeline, op, name, sizeof name);
	timeline_duration((runs ? timeline->now_ns : op->end_ns) - op->begin_ns, took, sizeof took);
	fprintf(frame->out, "rank %d: %s", op->rank, name);
	if (site[0]) {
		fputs(" (", frame->out);
		print_safely(frame->out, site, 0);
		fputc(')', frame->out);
	}
	fprintf(frame->out, "%s%s", stream, stream[0] ? "," : "");
	if (runs)
		fprintf(frame->out, " still runs after %s\n", took);
	else
		fprintf(frame->out, " failed with %s after %s\n",
			ls_status_name((ls_status)op->record.status), took);
}

static void print_unfinished(const struct frame *frame)
{
	const struct timeline *timeline = frame->timeline;
	size_t found = 0;

	for (size_t i = 0; i < timeline->op_count; i++) {
		const struct timeline_op *op = &timeline->ops[i];
		if ((timeline_runs(op) || op->record.state == TRACE_FAILED) && ++found <= LISTED_MAX)
			print_one(frame, op);
	}
	if (found > LISTED_MAX)
		fprintf(frame->out, "and %zu more that run or failed\n", found - LISTED_MAX);
}

void timeline_text(const struct timeline *timeline, int columns, FILE *out)
{
	struct frame frame = {.timeline = timeline, .out = out};
	char title[512];

	if (columns < COLUMNS_MIN)
		columns = COLUMNS_MIN;
	if (columns > COLUMNS_MAX)
		columns = COLUMNS_MAX;
	for (uint32_t i = 0; i < timeline->row_count; i++)
		if ((int)strlen(timeline->rows[i].label) >= frame.label)
			frame.label = (int)strlen(timeline->rows[i].label) + 1;
	if (frame.label > LABEL_MAX)
		frame.label = LABEL_MAX;
	frame.chart = columns - RANK_COLUMNS - frame.label - 2;
	timeline_title(timeline, title, sizeof title);
	fprintf(out, "%s\n", title);
	for (int i = 0; timeline_note(timeline, i, title, sizeof title); i++)
		fprintf(out, "%s\n", title);
	if (timeline->row_count > 0)
		print_axis(&frame);
	print_each_rank(&frame);
	print_legend(&frame);
	print_unfinished(&frame);
}
