/* SPDX-License-Identifier: BSD-3-Clause
 * Device memory of a job's ranks as a picture: a bar for each rank, with its peaks as marks. Texts
 * of traces go through print_xml alone. Figures may be anything, but no bar leaves the chart. */
#include "inspect/device_memory.h"

#include "inspect/report.h"

enum {
	WIDTH = 1000,
	LEFT = 170, /* where bars begin */
	RIGHT = 110,
	CHART = WIDTH - LEFT - RIGHT,
	TITLE_Y = 22,
	LEGEND_Y = 38,
	TOP = 92, /* of the chart */
	ROW = 30,
	BAR = 18,
	BOTTOM = 14,
	MARKS = 8, /* of the axis, at most */
	CELL_BYTES = 24,
};

/* What a bar is made of, from the left. */
enum { PARTS = 4 };
static const struct part {
	const char *class, *word, *light, *dark;
} parts[PARTS] = {
	{"live", "in use", "#0072b2", "#3b9fe0"},
	{"pending", "freed, still used by streams", "#e69f00", "#e69f00"},
	{"put", "put off: the driver gets it back later", "#cc79a7", "#d98fb8"},
	{"cached", "cached", "#a9d6f0", "#35566b"},
};

struct page {
	const struct inspect_memory *memory;
	FILE *out;
	double scale; /* bytes that are as long as the chart */
	int rows;
};

static double x_of(const struct page *page, double bytes)
{
	return bytes < page->scale ? bytes / page->scale * CHART : CHART;
}

static void put_style(FILE *out)
{
	fputs("<style>\n"
	      ".back{fill:#fff}text{fill:#222}.dim{fill:#555}.rank{font-weight:bold}"
	      ".grid{stroke:#ddd}.peak{stroke:#222;stroke-width:2}.most{stroke-dasharray:3 2}\n",
	      out);
	for (int i = 0; i < PARTS; i++)
		fprintf(out, ".%s{fill:%s}", parts[i].class, parts[i].light);
	fputs("\n@media (prefers-color-scheme:dark){"
	      ".back{fill:#1b1b1b}text{fill:#eee}.dim{fill:#aaa}.grid{stroke:#444}"
	      ".peak{stroke:#eee}",
	      out);
	for (int i = 0; i < PARTS; i++)
		fprintf(out, ".%s{fill:%s}", parts[i].class, parts[i].dark);
	fputs("}\n</style>\n", out);
}

static void put_legend(FILE *out)
{
	static const int at[PARTS] = {12, 100, 310, 560};

	for (int i = 0; i < PARTS; i++)
		fprintf(out,
			"<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"12\" class=\"%s\"/>"
			"<text x=\"%d\" y=\"%d\">%s</text>\n",
			at[i], LEGEND_Y, parts[i].class, at[i] + 19, LEGEND_Y + 10, parts[i].word);
	fprintf(out,
		"<path d=\"M648 %dv14\" class=\"peak\"/><text x=\"656\" y=\"%d\">peak in use</text>\n"
		"<path d=\"M752 %dv14\" class=\"peak most\"/><text x=\"760\" y=\"%d\">peak "
		"reserved</text>\n",
		LEGEND_Y - 1, LEGEND_Y + 10, LEGEND_Y - 1, LEGEND_Y + 10);
}

/* Steps are powers of two. */
static void put_axis(const struct page *page)
{
	uint64_t step = 512;
	char cell[CELL_BYTES];

	while ((double)step * MARKS < page->scale && step < UINT64_C(1) << 62)
		step *= 2;
	for (uint64_t i = 0; i <= MARKS && (double)i * (double)step <= page->scale; i++) {
		double x = LEFT + x_of(page, (double)i * (double)step);
		print_bytes(i * step, cell, sizeof cell);
		fprintf(page->out,
			"<path d=\"M%.2f %dV%d\" class=\"grid\"/><text x=\"%.2f\" y=\"%d\" "
			"text-anchor=\"middle\" class=\"dim\">%s</text>\n",
			x, TOP - 6, TOP + page->rows * ROW, x, TOP - 12, i ? cell : "0");
	}
}

static void put_tip(const struct page *page, int rank)
{
	const struct trace_memory_seen *seen = &page->memory->ranks[rank];
	const struct {
		const char *word;
		uint64_t bytes;
	} lines[] = {
		{"in use", seen->live},
		{"freed, still used by streams", seen->pending},
		{"put off", seen->put_off},
		{"cached", seen->cached},
		{"largest cached block", seen->largest_cached},
		{"peak in use", seen->peak_live},
		{"peak reserved", seen->peak_reserved},
	};
	char cell[CELL_BYTES];

	fprintf(page->out, "<title>rank %d, ", rank);
	print_xml(page->out, seen->name);
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		print_bytes(lines[i].bytes, cell, sizeof cell);
		fprintf(page->out, "\n%s: %s", lines[i].word, cell);
	}
	fputs(seen->consistent ? "</title>" : "\nread in the middle of a call</title>", page->out);
}

static void put_peak(const struct page *page, uint64_t bytes, int y, const char *class)
{
	fprintf(page->out, "<path d=\"M%.2f %dv%d\" class=\"%s\"/>",
		LEFT + x_of(page, (double)bytes), y - 3, BAR + 6, class);
}

static void put_rank(const struct page *page, int rank, int y)
{
	const struct trace_memory_seen *seen = &page->memory->ranks[rank];
	const uint64_t bytes[PARTS] = {seen->live, seen->pending, seen->put_off, seen->cached};
	FILE *out = page->out;
	char cell[CELL_BYTES], process[64];
	double sum = 0;

	inspect_process_text(&page->memory->report->snapshot->ranks[rank], process, sizeof process);
	fprintf(out, "<text x=\"12\" y=\"%d\" class=\"rank\">rank %d</text>", y + 8, rank);
	fprintf(out, "<text x=\"12\" y=\"%d\" class=\"dim\">%s</text>", y + 20, process);
	fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">", LEFT - 8, y + 13);
	print_xml(out, seen->name);
	fputs("</text>\n<g>", out);
	put_tip(page, rank);
	for (int i = 0; i < PARTS; i++) {
		double x = x_of(page, sum);
		sum += (double)bytes[i];
		fprintf(out, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" class=\"%s\"/>",
			LEFT + x, y, x_of(page, sum) - x, BAR, parts[i].class);
	}
	put_peak(page, seen->peak_live, y, "peak");
	put_peak(page, seen->peak_reserved, y, "peak most");
	print_bytes(seen->reserved, cell, sizeof cell);
	fprintf(out, "</g>\n<text x=\"%d\" y=\"%d\">%s%s</text>\n", WIDTH - RIGHT + 12, y + 13,
		seen->consistent ? "" : "about ", cell);
}

/* Ranks that have no bar. */
static void put_without(const struct page *page, int y)
{
	const struct diagnose_snapshot *snapshot = page->memory->report->snapshot;
	struct ranks without = {{0}};
	char who[256];

	for (int i = 0; i < snapshot->size; i++)
		if (!page->memory->has_device[i])
			ranks_add(&without, i);
	if (!ranks_any(&without))
		return;
	print_ranks(&without, who, sizeof who);
	fprintf(page->out,
		"<text x=\"12\" y=\"%d\" class=\"dim\">%s: no device, or not readable</text>\n",
		y + 13, who);
}

void inspect_memory_svg(FILE *out, const struct inspect_memory *memory)
{
	const struct diagnose_snapshot *snapshot = memory->report->snapshot;
	struct page page = {.memory = memory, .out = out, .scale = 1};

	for (int i = 0; i < snapshot->size; i++) {
		const struct trace_memory_seen *seen = &memory->ranks[i];
		double most = (double)(seen->reserved > seen->peak_reserved ? seen->reserved
									    : seen->peak_reserved);
		if (!memory->has_device[i])
			continue;
		page.rows++;
		page.scale = most > page.scale ? most : page.scale;
	}
	int height = TOP + (page.rows + (page.rows < snapshot->size)) * ROW + BOTTOM, y = TOP + 4;
	fprintf(out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d "
		"%d\" font-family=\"system-ui, sans-serif\" font-size=\"11\">\n",
		WIDTH, height, WIDTH, height);
	put_style(out);
	fprintf(out,
		"<rect width=\"%d\" height=\"%d\" class=\"back\"/>\n"
		"<text x=\"12\" y=\"%d\" font-size=\"13\">device memory of job %016llx</text>\n",
		WIDTH, height, TITLE_Y, (unsigned long long)snapshot->job);
	put_legend(out);
	put_axis(&page);
	for (int i = 0; i < snapshot->size; i++) {
		if (!memory->has_device[i])
			continue;
		put_rank(&page, i, y);
		y += ROW;
	}
	put_without(&page, y);
	fputs("</svg>\n", out);
}
