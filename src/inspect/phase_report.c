/* SPDX-License-Identifier: BSD-3-Clause
 * On what the ranks of a job spend their time, as far as their programs say so. */
#include "inspect/phase_report.h"

#include <stdlib.h>
#include <string.h>

#include "base/ranks.h"
#include "print/print.h"

void inspect_phases_add(struct ddp_phases *phases, const struct diagnose_rank *rank,
			uint64_t now_ns, const struct trace_view *trace)
{
	struct trace_phases *of_rank = malloc(sizeof *of_rank);
	/* Nobody knows when a process ended, so the phase in which it ended has no length. */
	bool goes_on = rank->process != DIAGNOSE_PROCESS_DEAD && !rank->left;

	if (!of_rank)
		return;
	trace_read_phases(trace, goes_on ? now_ns : 0, of_rank);
	ddp_phases_add(phases, rank->rank, of_rank);
	free(of_rank);
}

static void print_text(FILE *out, const struct ddp_phases *phases, int indent)
{
	/* As ls_phase_report asks for, and room for what stands above the tables. */
	size_t bytes =
		(size_t)(phases->rank_count + 8) * (size_t)(phases->column_count / 8 + 1) * 128;
	char *text = malloc(bytes);

	if (!text)
		return;
	ddp_phases_text(phases, text, bytes);
	size_t length = strlen(text);
	if (length > 0)
		text[length - 1] = '\0'; /* the last line's end */
	print_safely(out, text, indent);
	fputc('\n', out);
	free(text);
}

void inspect_phases_print(FILE *out, const struct ddp_phases *phases)
{
	if (!phases || !ranks_any(&phases->entered))
		return;
	fputs("  phases:\n    ", out);
	print_text(out, phases, 4);
}

void inspect_phases_report(FILE *out, const struct ddp_phases *phases)
{
	if (phases)
		print_text(out, phases, 0);
}

/* Whole microseconds, as milliseconds of other keys would be too coarse for a phase. */
static void put_us(struct print_json *json, const char *key, double ns)
{
	print_json_unsigned(json, key, (uint64_t)(ns / 1000));
}

void inspect_phases_json(struct print_json *json, const struct ddp_phases *phases, int rank)
{
	int columns[DDP_COLUMN_MAX];

	if (!phases || !ranks_have(&phases->entered, rank)) {
		print_json_null(json, "phases");
		return;
	}
	int count = ddp_phases_order(phases, columns);
	print_json_open(json, "phases", '[');
	for (int i = 0; i < count; i++) {
		int column = columns[i];
		print_json_open(json, NULL, '{');
		print_json_string(json, "name", phases->names[column]);
		print_json_unsigned(json, "count", phases->counts[rank][column]);
		put_us(json, "own_us", phases->own[rank][column]);
		put_us(json, "waited_us", phases->waited_in[rank][column]);
		print_json_bool(json, "running",
				column != DDP_OUTSIDE && phases->running[rank] == column);
		print_json_close(json, '}');
	}
	print_json_close(json, ']');
}

void inspect_stragglers_json(struct print_json *json, const struct ddp_phases *phases)
{
	struct ddp_stragglers found = {0};
	char text[256];

	if (phases)
		ddp_phases_judge(phases, &found);
	print_json_open(json, "stragglers", '[');
	for (int i = 0; i < found.count; i++) {
		const struct ddp_straggler *straggler = &found.stragglers[i];
		ddp_phases_sentence(phases, straggler, text, sizeof text);
		print_json_open(json, NULL, '{');
		print_json_ranks(json, "ranks", &straggler->ranks);
		print_json_string(json, "phase", phases->names[straggler->column]);
		print_json_unsigned(json, "cost_percent", (uint64_t)(straggler->share * 100 + 0.5));
		print_json_string(json, "text", text);
		print_json_close(json, '}');
	}
	print_json_close(json, ']');
}
