/* SPDX-License-Identifier: BSD-3-Clause
 * A timeline as SVG: one band for each rank, in it one row for each thing that may run beside the
 * others. Texts of traces go through print_xml alone, so that no text can add markup to the
 * file. */
#include "timeline/timeline.h"

#include <inttypes.h>
#include <string.h>

#include "print/print.h"

enum {
	WIDTH = 1200,
	LEFT = 200, /* where the chart begins */
	RIGHT = 40,
	CHART = WIDTH - LEFT - RIGHT,
	LABEL_X = 70, /* of rows; those of ranks stand before it */
	TITLE_Y = 20,
	LEGEND_Y = 34,
	LINE = 18, /* of the legend */
	AXIS = 24, /* between legend and chart */
	ROW = 18,
	BAR = 14,
	BAND = 6, /* between ranks */
	BOTTOM = 12,
	LETTER = 7,       /* width of one, at most, on the average */
	SMALL_LETTER = 6, /* likewise, in bars */
	MARKS = 10,
	DESCRIBED_BYTES = 768,
};

struct page {
	const struct timeline *timeline;
	FILE *out;
	int top, height; /* of the chart */
	bool used[TRACE_KIND_COUNT];
};

static double x_of(const struct page *page, uint64_t at_ns)
{
	const struct timeline *timeline = page->timeline;
	double span = (double)(timeline->end_ns - timeline->begin_ns);

	if (at_ns <= timeline->begin_ns)
		return 0;
	if (at_ns >= timeline->end_ns)
		return CHART;
	return (double)(at_ns - timeline->begin_ns) / span * CHART;
}

/* ---- the parts around the chart ---- */

static void put_style(const struct page *page)
{
	FILE *out = page->out;

	fputs("<style>\n"
	      "text{fill:#222}.row{fill:#555}.rank{font-weight:bold}.grid{stroke:#ccc}\n"
	      ".band{fill:#f4f4f4}.lost{fill:url(#lost)}.in{pointer-events:none;font-size:10px}\n"
	      "\n"
	      ".run+.in{paint-order:stroke;stroke:#fff;stroke-width:3px}\n"
	      ".stream{rx:7px}\n"
	      ".failed{stroke:#000;stroke-width:1.5;stroke-dasharray:3 2}\n",
	      out);
	for (uint32_t kind = 0; kind < TRACE_KIND_COUNT; kind++) {
		struct timeline_look look = timeline_look(kind);
		if (!page->used[kind])
			continue;
		fprintf(out, ".k%u{fill:%s}.r%u{fill:url(#r%u)}", kind, look.color, kind, kind);
		if (look.dark)
			fprintf(out, ".k%u+.in{fill:#fff}", kind);
		fputc('\n', out);
	}
	fputs("</style>\n<defs>\n", out);
	for (uint32_t kind = 0; kind < TRACE_KIND_COUNT; kind++)
		if (page->used[kind])
			fprintf(out,
				"<pattern id=\"r%u\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\" "
				"patternTransform=\"rotate(45)\"><rect width=\"8\" height=\"8\" "
				"class=\"k%u\"/><rect width=\"4\" height=\"8\" fill=\"#fff\" "
				"opacity=\".6\"/></pattern>\n",
				kind, kind);
	fputs("<pattern id=\"lost\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">"
	      "<rect width=\"2\" height=\"2\" fill=\"#bbb\"/></pattern>\n</defs>\n",
	      out);
}

/* A colored square and what it means. Returns where the next entry begins; without `put` nothing
 * is written. */
static int put_entry(const struct page *page, int at, const char *class, const char *word, bool put)
{
	int width = 20 + LETTER * (int)strlen(word) + 14;
	int line = at / WIDTH, x = at % WIDTH;

	if (x + width > WIDTH - RIGHT) {
		line++;
		x = 12;
	}
	if (put) {
		fprintf(page->out,
			"<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"12\" class=\"%s\"/>"
			"<text x=\"%d\" y=\"%d\">",
			x, LEGEND_Y + line * LINE, class, x + 19, LEGEND_Y + line * LINE + 10);
		print_xml(page->out, word);
		fputs("</text>\n", page->out);
	}
	return line * WIDTH + x + width;
}

/* Kinds of one color share an entry. Returns how many lines there are. */
static int put_legend(const struct page *page, bool put)
{
	const struct timeline *timeline = page->timeline;
	bool said[TRACE_KIND_COUNT] = {false}, failed = false, streams = false, lost = false;
	char class[16], word[128];
	uint32_t runs = 0;
	int at = 12;

	for (uint32_t kind = 1; kind < TRACE_KIND_COUNT; kind++) {
		if (!page->used[kind] || said[kind])
			continue;
		snprintf(class, sizeof class, "k%u", kind);
		snprintf(word, sizeof word, "%s", trace_kind_name(kind));
		for (uint32_t other = kind + 1; other < TRACE_KIND_COUNT; other++) {
			if (!page->used[other] ||
			    strcmp(timeline_look(other).color, timeline_look(kind).color) != 0)
				continue;
			print_append(word, sizeof word, ", %s", trace_kind_name(other));
			said[other] = true;
		}
		at = put_entry(page, at, class, word, put);
	}
	for (size_t i = 0; i < timeline->op_count; i++) {
		const struct timeline_op *op = &timeline->ops[i];
		if (timeline_runs(op))
			runs = op->record.kind;
		failed = failed || op->record.state == TRACE_FAILED;
		streams = streams || timeline_streams(op);
	}
	for (int i = 0; i < timeline->size; i++)
		lost = lost || timeline->ranks[i].complete_ns > timeline->begin_ns;
	snprintf(class, sizeof class, "r%u", runs);
	if (streams)
		at = put_entry(page, at, "row stream", "on a stream", put);
	if (runs)
		at = put_entry(page, at, class, "still running", put);
	if (failed)
		at = put_entry(page, at, "row failed", "failed", put);
	if (lost)
		at = put_entry(page, at, "lost", "no longer recorded", put);
	return at / WIDTH + 1;
}

static void put_axis(const struct page *page)
{
	const struct timeline *timeline = page->timeline;
	uint64_t span_ns = timeline->end_ns - timeline->begin_ns;
	uint64_t step_ns = timeline_step(span_ns, MARKS);
	char mark[32];

	fputs("<g class=\"axis\">\n", page->out);
	for (uint64_t at_ns = 0;; at_ns += step_ns) {
		double x = LEFT + x_of(page, timeline->begin_ns + at_ns);
		timeline_mark(at_ns, span_ns, step_ns, mark, sizeof mark);
		fprintf(page->out,
			"<line x1=\"%.2f\" x2=\"%.2f\" y1=\"%d\" y2=\"%d\" class=\"grid\"/>"
			"<text x=\"%.2f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
			x, x, page->top - 4, page->top + page->height, x, page->top - 8, mark);
		if (span_ns - at_ns < step_ns)
			break;
	}
	fputs("</g>\n", page->out);
}

/* ---- the chart ---- */

static int band_height(const struct timeline_rank *rank)
{
	return (rank->row_count ? (int)rank->row_count : 1) * ROW + BAND;
}

static void put_labels(const struct page *page)
{
	const struct timeline *timeline = page->timeline;
	const int letters = (LEFT - LABEL_X) / LETTER;
	int y = page->top;

	for (int i = 0; i < timeline->size; i++) {
		const struct timeline_rank *rank = &timeline->ranks[i];
		if (i % 2 == 0)
			fprintf(page->out,
				"<rect y=\"%d\" width=\"%d\" height=\"%d\" class=\"band\"/>\n", y,
				WIDTH, band_height(rank));
		fprintf(page->out, "<text x=\"12\" y=\"%d\" class=\"rank\">rank %d</text>\n",
			y + BAND / 2 + 12, i);
		if (rank->row_count == 0)
			fprintf(page->out, "<text x=\"%d\" y=\"%d\" class=\"row\">%s</text>\n",
				LABEL_X, y + BAND / 2 + 12,
				rank->known ? "no operation" : "cannot be read");
		for (uint32_t r = 0; r < rank->row_count; r++) {
			const struct timeline_row *row = &timeline->rows[rank->row + r];
			char label[TIMELINE_LABEL_BYTES];
			snprintf(label, sizeof label, "%.*s", letters, row->label);
			if (!row->first)
				continue;
			fprintf(page->out, "<text x=\"%d\" y=\"%d\" class=\"row\">", LABEL_X,
				y + BAND / 2 + (int)r * ROW + 12);
			print_xml(page->out, label);
			fputs("</text>\n", page->out);
		}
		y += band_height(rank);
	}
}

static void put_word(const struct page *page, const struct timeline_op *op, double x, double width,
		     int y)
{
	const char *name = trace_kind_name(op->record.kind);
	char word[64];

	trace_name(&op->record, word, sizeof word);
	if ((double)(strlen(word) * SMALL_LETTER + 6) > width)
		snprintf(word, sizeof word, "%s", name);
	if ((double)(strlen(word) * SMALL_LETTER + 6) > width)
		return;
	fprintf(page->out, "<text x=\"%.2f\" y=\"%d\" class=\"in\">%s</text>", x + 3, y + 11, word);
}

/* Makes short bars visible, and leaves a gap between long ones. */
static double visible_width(double width)
{
	return width > 3 ? width - 0.7 : width < 1 ? 1 : width;
}

static void put_op(const struct page *page, const struct timeline_op *op, int y)
{
	const struct timeline *timeline = page->timeline;
	uint64_t begin_ns = op->begin_ns > timeline->begin_ns ? op->begin_ns : timeline->begin_ns;
	double x = x_of(page, begin_ns), width = x_of(page, op->end_ns) - x;
	char text[DESCRIBED_BYTES];

	fprintf(page->out,
		"<g><rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" class=\"bar %s%u%s%s\" "
		"data-b=\"%" PRIu64 "\" data-e=\"%" PRIu64 "\"><title>",
		x, y, visible_width(width), BAR, timeline_runs(op) ? "run r" : "k", op->record.kind,
		timeline_streams(op) ? " stream" : "",
		op->record.state == TRACE_FAILED ? " failed" : "", begin_ns - timeline->begin_ns,
		op->end_ns - timeline->begin_ns);
	timeline_describe(timeline, op, text, sizeof text);
	print_xml(page->out, text);
	fputs("</title></rect>", page->out);
	put_word(page, op, x, width, y);
	fputs("</g>\n", page->out);
}

static void put_lost(const struct page *page, const struct timeline_rank *rank, int y)
{
	const struct timeline *timeline = page->timeline;

	if (rank->complete_ns <= timeline->begin_ns)
		return;
	uint64_t lost_ns = rank->complete_ns - timeline->begin_ns;
	fprintf(page->out,
		"<g><rect x=\"0\" y=\"%d\" width=\"%.2f\" height=\"%d\" class=\"lost\" data-b=\"0\" "
		"data-e=\"%" PRIu64 "\"><title>no longer recorded: see LOCKSTEP_TRACE_RECORDS</title>"
		"</rect></g>\n",
		y, x_of(page, rank->complete_ns), band_height(rank) - BAND, lost_ns);
}

static void put_chart(const struct page *page)
{
	const struct timeline *timeline = page->timeline;
	size_t next = 0;
	int y = BAND / 2;

	fprintf(page->out, "<svg class=\"chart\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\">\n",
		LEFT, page->top, CHART, page->height);
	for (int i = 0; i < timeline->size; i++) {
		const struct timeline_rank *rank = &timeline->ranks[i];
		put_lost(page, rank, y);
		for (; next < timeline->op_count && timeline->ops[next].rank == i; next++) {
			const struct timeline_op *op = &timeline->ops[next];
			put_op(page, op, y + (int)(op->row - rank->row) * ROW + (ROW - BAR) / 2);
		}
		y += band_height(rank);
	}
	fputs("</svg>\n", page->out);
}

void timeline_svg(const struct timeline *timeline, FILE *out)
{
	struct page page = {.timeline = timeline, .out = out};
	char title[512];

	for (size_t i = 0; i < timeline->op_count; i++)
		page.used[timeline->ops[i].record.kind] = true;
	for (int i = 0; i < timeline->size; i++)
		page.height += band_height(&timeline->ranks[i]);
	page.top = LEGEND_Y + put_legend(&page, false) * LINE + AXIS;
	int notes = 0, below = page.top + page.height;
	while (timeline_note(timeline, notes, title, sizeof title))
		notes++;
	int height = below + notes * LINE + BOTTOM;
	fprintf(out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
		"font-family=\"system-ui, sans-serif\" font-size=\"11\" data-span=\"%" PRIu64
		"\">\n",
		WIDTH, height, WIDTH, height, timeline->end_ns - timeline->begin_ns);
	put_style(&page);
	fprintf(out, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", WIDTH, height);
	fprintf(out, "<text x=\"12\" y=\"%d\" font-size=\"13\">", TITLE_Y);
	timeline_title(timeline, title, sizeof title);
	print_xml(out, title);
	fputs("</text>\n", out);
	put_legend(&page, true);
	put_labels(&page);
	put_axis(&page);
	put_chart(&page);
	for (int i = 0; timeline_note(timeline, i, title, sizeof title); i++) {
		fprintf(out, "<text x=\"12\" y=\"%d\">", below + (i + 1) * LINE);
		print_xml(out, title);
		fputs("</text>\n", out);
	}
	fputs("</svg>\n", out);
}
