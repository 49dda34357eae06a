/* SPDX-License-Identifier: BSD-3-Clause
 * Fuzz entry: the input is a table of algorithms, as LOCKSTEP_TABLE names one. If it is refused,
 * the error names a line, and the default table stays. If it is accepted, it holds what a table
 * promises, answers every question, and is the same when it is written and read again. */
#include "fuzz.h"

#include <stdbool.h>
#include <string.h>

#include "plan/plan_table.h"

static void ask(const struct plan_table *table)
{
	static const uint64_t sizes[] = {0, 8, 4096, 1 << 20, UINT64_MAX};
	struct plan_table_choice choice;
	for (int collective = 0; collective < COLL_COUNT; collective++)
		for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
			for (int ranks = 1; ranks <= 64; ranks = ranks * 3 + 1) {
				plan_table_choose(table, (enum coll_id)collective, sizes[i], 192,
						  ranks, PLAN_NONE, &choice);
				MUST(choice.algorithm > PLAN_NONE &&
				     choice.stores <= PLAN_STORES_NONTEMPORAL);
				MUST(choice.chunk_bytes > 0 &&
				     choice.chunk_bytes <= PLAN_TABLE_CHUNK_MAX);
				MUST(choice.chunk_bytes % PLAN_TABLE_UNIT == 0);
				MUST(choice.read_bytes <= PLAN_TABLE_READ_MAX);
			}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct plan_table table, again, standard;
	static char text[FUZZ_INPUT_MAX + 1], line[PLAN_TABLE_TEXT_BYTES],
		written[(PLAN_TABLE_LINES_MAX + 1) * PLAN_TABLE_TEXT_BYTES];
	struct plan_table_error error = {0};
	if (size > FUZZ_INPUT_MAX)
		return 0;
	memcpy(text, data, size);
	text[size] = 0;
	plan_table_default(&standard);
	bool good = plan_table_parse(text, &table, &error);
	MUST(table.count >= 0 && table.count <= table.total);
	MUST(table.total <= PLAN_TABLE_LINES_MAX + PLAN_TABLE_DEFAULT_LINES);
	for (int i = 0; i < table.total; i++)
		MUST(plan_table_line_is_valid(&table.lines[i]));
	ask(&table);
	if (!good) {
		MUST(error.line > 0 && memchr(error.text, 0, sizeof error.text) && error.text[0]);
		MUST(plan_table_hash(&table) == plan_table_hash(&standard));
		return 0;
	}
	size_t used = 0;
	for (int i = -1; i < table.count; i++) {
		plan_table_text(&table, i, line);
		MUST(memchr(line, 0, sizeof line) && !strchr(line, '\n'));
		used += (size_t)snprintf(written + used, sizeof written - used, "%s\n", line);
	}
	MUST(used < sizeof written && plan_table_parse(written, &again, &error));
	MUST(plan_table_hash(&table) == plan_table_hash(&again));
	plan_table_narrow(&table, 4);
	MUST(table.count <= again.count);
	ask(&table);
	return 0;
}

size_t fuzz_draw(uint64_t *state, uint8_t *data)
{
	static const char *const words[] = {
		"allreduce",   "reduce",  "broadcast", "allgather",
		"gather",      "scatter", "alltoall",  "barrier",
		"any",         "1",       "2-4",       "64",
		"0",           "9-2",     "65",        "-1",
		"2-",          "64K",     "max",       "1G",
		"4096",        "4097",    "0K",        "18446744073709551616",
		"inline",      "direct",  "pull",      "ring",
		"doubling",    "tree",    "auto",      "plain",
		"nontemporal", "copy",    "256K",      "#",
		"\n",          "\n",      "\t",        "\033",
		"\xc2\x9b"};
	size_t size = 0, count = fuzz_random(state) % 60;
	/* Mostly well-formed lines of seven words. */
	bool wild = fuzz_random(state) % 4 == 0;
	for (size_t i = 0; i < count; i++) {
		static const uint8_t first[] = {0, 8, 17, 24, 17, 30, 33},
				     many[] = {9, 6, 6, 6, 6, 3, 2};
		size_t column = i % 8;
		size_t at = wild || fuzz_random(state) % 40 == 0
				    ? fuzz_random(state) % (sizeof words / sizeof words[0])
			    : column == 7 ? 36
					  : first[column] + fuzz_random(state) % many[column];
		size += (size_t)snprintf((char *)data + size, 64, "%s ", words[at]);
	}
	return size;
}
