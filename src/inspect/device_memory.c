/* SPDX-License-Identifier: BSD-3-Clause
 * Device memory of a job's ranks as a table and as JSON. Names and figures come from other
 * processes: the figures may be anything. */
#include "inspect/device_memory.h"

#include <inttypes.h>
#include <string.h>

#include "base/ranks.h"
#include "inspect/report.h"

enum { CELL_BYTES = 24, CALL_BYTES = 256 };

/* ---- reading ---- */

void inspect_memory_take(const struct inspect_view *view, const struct inspect_report *report,
			 struct inspect_memory *out)
{
	*out = (struct inspect_memory){.report = report};
	for (int i = 0; i < view->size; i++)
		if (view->ranks[i].trace.header)
			out->has_device[i] =
				trace_read_memory(&view->ranks[i].trace, &out->ranks[i]);
}

void inspect_memory_of_file(const struct inspect_saved *saved, struct inspect_memory *out)
{
	*out = (struct inspect_memory){.report = &saved->report, .saved = saved};
	for (int i = 0; i < saved->report.snapshot->size; i++)
		if (saved->traces[i].header)
			out->has_device[i] = trace_read_memory(&saved->traces[i], &out->ranks[i]);
}

/* ---- text ---- */

/* Peaks are of different moments, so only the first columns have sums, without LARGEST. */
enum { COLUMNS = 8, SUMMED = 6, LARGEST = 2 };
static const int widths[COLUMNS] = {9, 9, 9, 10, 9, 9, 11, 13};

static void put_row(FILE *out, const char *rank, const char *device, const uint64_t *bytes,
		    bool is_sum)
{
	char cell[CELL_BYTES];

	fprintf(out, "  %-4s ", rank);
	print_safely(out, device, 0);
	for (size_t i = strlen(device); i < 7; i++)
		fputc(' ', out);
	for (int i = 0; i < (is_sum ? SUMMED : COLUMNS); i++) {
		print_bytes(bytes[i], cell, sizeof cell);
		fprintf(out, " %*s", widths[i], is_sum && i == LARGEST ? "" : cell);
	}
}

static void print_table(FILE *out, const struct inspect_memory *memory)
{
	const struct diagnose_snapshot *snapshot = memory->report->snapshot;
	uint64_t sums[SUMMED] = {0};
	int count = 0;

	fputs("  rank device     in use    cached   largest on streams   put off  reserved "
	      "peak in use peak reserved  process\n",
	      out);
	for (int i = 0; i < snapshot->size; i++) {
		const struct trace_memory_seen *seen = &memory->ranks[i];
		const uint64_t bytes[COLUMNS] = {
			seen->live,    seen->cached,   seen->largest_cached, seen->pending,
			seen->put_off, seen->reserved, seen->peak_live,      seen->peak_reserved};
		char rank[8], process[64];
		if (!memory->has_device[i])
			continue;
		snprintf(rank, sizeof rank, "%d", i);
		put_row(out, rank, seen->name, bytes, false);
		inspect_process_text(&snapshot->ranks[i], process, sizeof process);
		fprintf(out, "  %s\n", process);
		for (int j = 0; j < SUMMED; j++)
			if (__builtin_add_overflow(sums[j], bytes[j], &sums[j]))
				sums[j] = UINT64_MAX;
		count++;
	}
	if (count > 1) {
		put_row(out, "all", "", sums, true);
		fputc('\n', out);
	}
}

/* What the figures of a rank do not say by themselves. */
static void print_notes(FILE *out, const struct inspect_memory *memory, int rank)
{
	const struct trace_memory_seen *seen = &memory->ranks[rank];
	char call[CALL_BYTES];

	if (seen->failed > 0)
		fprintf(out, "  rank %d: %" PRIu64 " allocation%s found no memory\n", rank,
			seen->failed, seen->failed == 1 ? "" : "s");
	if (!seen->consistent)
		fprintf(out,
			"  rank %d: the figures do not fit together, as they were read in the middle "
			"of a call; look again\n",
			rank);
	diagnose_foreign_call_text(memory->report->snapshot, rank, call, sizeof call);
	if (call[0]) {
		fprintf(out, "  rank %d: ", rank);
		print_safely(out, call, 0);
		fputc('\n', out);
	}
}

/* "rank 3 has no device", or cannot be read. */
static void print_without(FILE *out, const struct ranks *ranks, const char *one, const char *several)
{
	char who[256];

	if (!ranks_any(ranks))
		return;
	print_ranks(ranks, who, sizeof who);
	fprintf(out, "  %s %s\n", who, ranks_count(ranks) == 1 ? one : several);
}

void inspect_memory_print(FILE *out, const struct inspect_memory *memory)
{
	const struct diagnose_snapshot *snapshot = memory->report->snapshot;
	struct ranks without = {{0}}, unknown = {{0}};

	for (int i = 0; i < snapshot->size; i++)
		if (!memory->has_device[i])
			ranks_add(snapshot->ranks[i].known ? &without : &unknown, i);
	inspect_print_head(out, snapshot, memory->saved);
	if (ranks_count(&without) + ranks_count(&unknown) < snapshot->size)
		print_table(out, memory);
	for (int i = 0; i < snapshot->size; i++)
		if (memory->has_device[i])
			print_notes(out, memory, i);
	print_without(out, &without, "has no device", "have no device");
	print_without(out, &unknown, "cannot be read", "cannot be read");
}

/* ---- JSON ---- */

static void put_figures(struct print_json *json, const struct trace_memory_seen *seen)
{
	print_json_open(json, "memory", '{');
	print_json_bool(json, "consistent", seen->consistent);
	print_json_unsigned(json, "live", seen->live);
	print_json_unsigned(json, "cached", seen->cached);
	print_json_unsigned(json, "pending", seen->pending);
	print_json_unsigned(json, "put_off", seen->put_off);
	print_json_unsigned(json, "reserved", seen->reserved);
	print_json_unsigned(json, "peak_live", seen->peak_live);
	print_json_unsigned(json, "peak_reserved", seen->peak_reserved);
	print_json_unsigned(json, "largest_cached", seen->largest_cached);
	print_json_unsigned(json, "live_blocks", seen->live_blocks);
	print_json_unsigned(json, "segments", seen->segments);
	print_json_unsigned(json, "hits", seen->hits);
	print_json_unsigned(json, "misses", seen->misses);
	print_json_unsigned(json, "failed", seen->failed);
	print_json_close(json, '}');
}

static void put_rank(struct print_json *json, const struct inspect_memory *memory, int number)
{
	const struct diagnose_snapshot *snapshot = memory->report->snapshot;
	const struct diagnose_rank *rank = &snapshot->ranks[number];

	print_json_open(json, NULL, '{');
	print_json_number(json, "rank", number);
	print_json_bool(json, "readable", rank->known);
	print_json_number(json, "pid", rank->pid);
	print_json_string(json, "process", inspect_process_word(rank->process));
	print_json_bool(json, "left", rank->left);
	if (memory->has_device[number]) {
		print_json_string(json, "device", memory->ranks[number].name);
		put_figures(json, &memory->ranks[number]);
	} else {
		print_json_null(json, "device");
		print_json_null(json, "memory");
	}
	inspect_foreign_calls_json(json, snapshot, rank);
	print_json_close(json, '}');
}

void inspect_memory_json(struct print_json *json, const struct inspect_memory *memory)
{
	const struct diagnose_snapshot *snapshot = memory->report->snapshot;
	char id[32];

	snprintf(id, sizeof id, "%016" PRIx64, snapshot->job);
	print_json_open(json, NULL, '{');
	print_json_string(json, "job", id);
	print_json_bool(json, "running", !memory->saved && inspect_is_running(snapshot));
	print_json_string(json, "source", memory->saved ? "snapshot" : "memory");
	print_json_number(json, "size", snapshot->size);
	print_json_open(json, "ranks", '[');
	for (int i = 0; i < snapshot->size; i++)
		put_rank(json, memory, i);
	print_json_close(json, ']');
	print_json_close(json, '}');
}
