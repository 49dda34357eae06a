/* SPDX-License-Identifier: BSD-3-Clause
 * The table of choices: reading, writing, and looking up. */
#include "plan/plan_table.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/ranks.h"

enum { COLUMNS = 7, WORD_BYTES = 24 };

static const char column_names[] =
	"# collective    ranks  up to     algorithm  chunk  stores       read";

/* The one place where defaults stand; decisions 026 and 037 have the measurements. With inline
 * each reader copies the whole payload, and there is one synchronisation. Direct access takes two;
 * each reader copies only its part, but plain memory costs one more copy. Where ranks share
 * processors, a synchronisation costs a turn of the scheduler. Two ranks have lines of their own:
 * there direct access is faster from shorter payloads on, and from 16 KiB on one read by address is
 * faster than two copies, in some collectives up to a limit; but not in reduce and all-reduce. With
 * more ranks it is faster if each byte has one reader: in scatter and all-to-all (decision 037). */
#define FOR(ranks_min, ranks_max, collective, bytes_max, algorithm, read)                 \
	{                                                                                 \
		bytes_max, collective, algorithm, PLAN_STORES_AUTO, ranks_min, ranks_max, \
			64 << 10, read                                                    \
	}
#define LINE(collective, bytes_max, algorithm) \
	FOR(1, RANKS_JOB_MAX, collective, bytes_max, algorithm, 0)
#define PAIR(collective, bytes_max, algorithm, read) \
	FOR(2, 2, collective, bytes_max, algorithm, read)
#define READ_FROM(collective, bytes)          \
	LINE(collective, bytes, PLAN_DIRECT), \
		FOR(1, RANKS_JOB_MAX, collective, UINT64_MAX, PLAN_DIRECT, 512 << 10)
#define PARTS_ARE_READ READ_FROM(COLL_SCATTER, 128 << 10), READ_FROM(COLL_ALLTOALL, 512 << 10)
static const struct plan_table_line default_lines[PLAN_TABLE_DEFAULT_LINES] = {
	PAIR(COLL_ALLREDUCE, 4 << 10, PLAN_INLINE, 0),
	PAIR(COLL_ALLREDUCE, UINT64_MAX, PLAN_DIRECT, 0),
	PAIR(COLL_REDUCE, 6 << 10, PLAN_INLINE, 0),
	PAIR(COLL_REDUCE, UINT64_MAX, PLAN_DIRECT, 0),
	PAIR(COLL_BROADCAST, 4 << 10, PLAN_INLINE, 0),
	PAIR(COLL_GATHER, 4 << 10, PLAN_INLINE, 0),
	PAIR(COLL_SCATTER, 6 << 10, PLAN_INLINE, 0),
	PAIR(PLAN_TABLE_ANY, 2 << 10, PLAN_INLINE, 0),
	PAIR(PLAN_TABLE_ANY, 16 << 10, PLAN_DIRECT, 0),
	PAIR(COLL_GATHER, 256 << 10, PLAN_DIRECT, 256 << 10),
	PAIR(COLL_GATHER, UINT64_MAX, PLAN_DIRECT, 0),
	PAIR(COLL_SCATTER, UINT64_MAX, PLAN_DIRECT, 512 << 10),
	PAIR(COLL_ALLGATHER, UINT64_MAX, PLAN_DIRECT, 512 << 10),
	PAIR(COLL_ALLTOALL, UINT64_MAX, PLAN_DIRECT, 512 << 10),
	PAIR(PLAN_TABLE_ANY, 1 << 20, PLAN_DIRECT, 256 << 10),
	LINE(COLL_REDUCE, 6 << 10, PLAN_INLINE),
	LINE(COLL_BROADCAST, 6 << 10, PLAN_INLINE),
	LINE(COLL_GATHER, 6 << 10, PLAN_INLINE),
	LINE(COLL_SCATTER, 6 << 10, PLAN_INLINE),
	LINE(PLAN_TABLE_ANY, 4 << 10, PLAN_INLINE),
	PARTS_ARE_READ,
	LINE(PLAN_TABLE_ANY, UINT64_MAX, PLAN_DIRECT),
};
static const struct plan_table_line oversubscribed_lines[PLAN_TABLE_OVERSUBSCRIBED_LINES] = {
	LINE(COLL_ALLREDUCE, 8 << 10, PLAN_INLINE),
	LINE(COLL_ALLREDUCE, UINT64_MAX, PLAN_DIRECT),
	LINE(COLL_ALLGATHER, 8 << 10, PLAN_INLINE),
	LINE(COLL_ALLGATHER, UINT64_MAX, PLAN_DIRECT),
	LINE(PLAN_TABLE_ANY, 16 << 10, PLAN_INLINE),
	PARTS_ARE_READ,
	LINE(PLAN_TABLE_ANY, UINT64_MAX, PLAN_DIRECT),
};
#undef PARTS_ARE_READ
#undef PAIR
#undef LINE
#undef READ_FROM
#undef FOR

bool plan_table_line_is_valid(const struct plan_table_line *line)
{
	bool every = line->collective == PLAN_TABLE_ANY;
	if (!every && !plan_has((enum coll_id)line->collective, (enum plan_algorithm)line->algorithm))
		return false;
	return line->stores <= PLAN_STORES_NONTEMPORAL && line->algorithm > PLAN_NONE &&
	       line->algorithm < PLAN_ALGORITHM_COUNT && line->ranks_min >= 1 &&
	       line->ranks_min <= line->ranks_max && line->ranks_max <= RANKS_JOB_MAX &&
	       line->chunk_bytes >= PLAN_TABLE_UNIT && line->chunk_bytes <= PLAN_TABLE_CHUNK_MAX &&
	       line->chunk_bytes % PLAN_TABLE_UNIT == 0 &&
	       line->read_bytes <= PLAN_TABLE_READ_MAX && line->read_bytes % PLAN_TABLE_UNIT == 0;
}

/* ---- reading ---- */

__attribute__((format(printf, 2, 3))) static bool refuse(struct plan_table_error *error,
							 const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(error->text, sizeof error->text, format, arguments);
	va_end(arguments);
	/* What stands in a file is foreign: a terminal must not obey it. */
	for (char *at = error->text; *at; at++)
		if (!isprint((unsigned char)*at))
			*at = '?';
	return false;
}

/* Digits, with K, M or G behind them where `suffixes`. */
static bool read_number(const char *word, const char **end, bool suffixes, uint64_t *out)
{
	static const char letters[] = "KMG";
	*out = 0;
	*end = word;
	for (; isdigit((unsigned char)**end); (*end)++)
		if (*out > (UINT64_MAX >> 40) / 10)
			return false;
		else
			*out = *out * 10 + (uint64_t)(**end - '0');
	const char *letter = suffixes && **end ? strchr(letters, **end) : NULL;
	if (letter) {
		*out <<= 10 * (letter - letters + 1);
		(*end)++;
	}
	return *end > word;
}

static bool read_collective(const char *word, struct plan_table_line *out,
			    struct plan_table_error *error)
{
	int collective = strcmp(word, "any") == 0 ? PLAN_TABLE_ANY : plan_collective_from(word);
	if (collective < 0)
		return refuse(error, "there is no collective '%s'; say one of them, or any", word);
	out->collective = (uint8_t)collective;
	return true;
}

/* "2", "3-8" or "any". */
static bool read_ranks(const char *word, struct plan_table_line *out, struct plan_table_error *error)
{
	uint64_t min = 1, max = RANKS_JOB_MAX;
	const char *end = "";
	bool good = strcmp(word, "any") == 0 || read_number(word, &end, false, &min);
	if (good && strcmp(word, "any") != 0) {
		max = min;
		good = *end == '\0' || (*end == '-' && read_number(end + 1, &end, false, &max));
	}
	if (!good || *end || min < 1 || min > max || max > RANKS_JOB_MAX)
		return refuse(error, "ranks are such as 2, 3-8 or any, at most %d, not '%s'",
			      RANKS_JOB_MAX, word);
	out->ranks_min = (uint16_t)min;
	out->ranks_max = (uint16_t)max;
	return true;
}

static bool read_bytes(const char *word, const char *column, uint64_t max, uint64_t unit,
		       uint64_t *out, struct plan_table_error *error)
{
	const char *end;
	if (read_number(word, &end, true, out) && *end == '\0' && *out >= unit && *out <= max &&
	    *out % unit == 0)
		return true;
	if (unit == 1)
		return refuse(error, "'%s' is such as 4096, 64K or max, not '%s'", column, word);
	return refuse(error, "'%s' is a multiple of %" PRIu64 "K up to %" PRIu64 "K%s, not '%s'",
		      column, unit / 1024, max / 1024,
		      strcmp(column, "read") == 0 ? ", or copy" : "", word);
}

static bool read_algorithm(const char *word, struct plan_table_line *out,
			   struct plan_table_error *error)
{
	int algorithm = plan_algorithm_from(word);
	if (algorithm <= PLAN_NONE)
		return refuse(error, "there is no algorithm '%s'", word);
	if (out->collective != PLAN_TABLE_ANY &&
	    !plan_has((enum coll_id)out->collective, (enum plan_algorithm)algorithm))
		return refuse(error, "%s has no algorithm '%s'",
			      plan_collective_name(out->collective), word);
	out->algorithm = (uint8_t)algorithm;
	return true;
}

static const char *const store_names[] = {"auto", "plain", "nontemporal"};

static bool read_stores(const char *word, struct plan_table_line *out,
			struct plan_table_error *error)
{
	for (out->stores = 0; out->stores <= PLAN_STORES_NONTEMPORAL; out->stores++)
		if (strcmp(word, store_names[out->stores]) == 0)
			return true;
	return refuse(error, "stores are auto, plain or nontemporal, not '%s'", word);
}

static bool read_columns(char words[COLUMNS][WORD_BYTES], struct plan_table_line *out,
			 struct plan_table_error *error)
{
	uint64_t chunk, read = 0;
	if (!read_collective(words[0], out, error) || !read_ranks(words[1], out, error))
		return false;
	out->bytes_max = UINT64_MAX;
	if (strcmp(words[2], "max") != 0 &&
	    !read_bytes(words[2], "up to", UINT64_MAX - 1, 1, &out->bytes_max, error))
		return false;
	if (!read_algorithm(words[3], out, error) ||
	    !read_bytes(words[4], "chunk", PLAN_TABLE_CHUNK_MAX, PLAN_TABLE_UNIT, &chunk, error))
		return false;
	if (!read_stores(words[5], out, error))
		return false;
	if (strcmp(words[6], "copy") != 0 &&
	    !read_bytes(words[6], "read", PLAN_TABLE_READ_MAX, PLAN_TABLE_UNIT, &read, error))
		return false;
	out->chunk_bytes = (uint32_t)chunk;
	out->read_bytes = (uint32_t)read;
	return true;
}

/* Returns how many words stand before a comment or the end of the line, and copies the first
 * COLUMNS of them, cut. */
static int split_words(const char *text, size_t length, char words[COLUMNS][WORD_BYTES])
{
	int count = 0;
	for (size_t at = 0; at < length && text[at] != '#';) {
		size_t start = at;
		while (at < length && text[at] != '#' && !isspace((unsigned char)text[at]))
			at++;
		if (at > start && count++ < COLUMNS)
			snprintf(words[count - 1], WORD_BYTES, "%.*s", (int)(at - start),
				 text + start);
		while (at < length && isspace((unsigned char)text[at]))
			at++;
	}
	return count;
}

static bool read_line(const char *text, size_t length, struct plan_table *out,
		      struct plan_table_error *error)
{
	char words[COLUMNS][WORD_BYTES];
	struct plan_table_line line = {0};
	int count = split_words(text, length, words);
	if (count == 0)
		return true;
	if (count != COLUMNS)
		return refuse(error, "%d words instead of %d: %s", count, COLUMNS, column_names + 2);
	if (!read_columns(words, &line, error))
		return false;
	if (out->count == PLAN_TABLE_LINES_MAX)
		return refuse(error, "more than %d lines", PLAN_TABLE_LINES_MAX);
	out->lines[out->count++] = line;
	return true;
}

static void add_default_lines(struct plan_table *table)
{
	memcpy(&table->lines[table->count], default_lines, sizeof default_lines);
	table->total = table->count + PLAN_TABLE_DEFAULT_LINES;
	table->oversubscribed = false;
}

void plan_table_default(struct plan_table *out)
{
	out->count = 0;
	add_default_lines(out);
	out->count = out->total;
}

void plan_table_oversubscribe(struct plan_table *table)
{
	bool as_text = table->count == table->total;
	if (table->oversubscribed)
		return;
	table->total -= PLAN_TABLE_DEFAULT_LINES;
	memcpy(&table->lines[table->total], oversubscribed_lines, sizeof oversubscribed_lines);
	table->total += PLAN_TABLE_OVERSUBSCRIBED_LINES;
	table->count = as_text ? table->total : table->count;
	table->oversubscribed = true;
}

bool plan_table_parse(const char *text, struct plan_table *out, struct plan_table_error *error)
{
	*error = (struct plan_table_error){.line = 0};
	out->count = 0;
	while (*text) {
		size_t length = strcspn(text, "\n");
		error->line++;
		if (!read_line(text, length, out, error)) {
			plan_table_default(out);
			return false;
		}
		text += length + (text[length] == '\n');
	}
	add_default_lines(out);
	return true;
}

/* ---- choosing ---- */

static bool can_be(enum coll_id collective, enum plan_algorithm algorithm, uint64_t bytes,
		   uint64_t inline_bytes)
{
	bool fits = bytes != UINT64_MAX && bytes <= inline_bytes;
	return plan_has(collective, algorithm) && (algorithm != PLAN_INLINE || fits);
}

static bool is_for(const struct plan_table_line *line, int size)
{
	return size >= line->ranks_min && size <= line->ranks_max;
}

void plan_table_narrow(struct plan_table *table, int size)
{
	int kept = 0, of_text = 0;
	for (int i = 0; i < table->total; i++) {
		if (!is_for(&table->lines[i], size))
			continue;
		of_text += i < table->count;
		table->lines[kept++] = table->lines[i];
	}
	table->count = of_text;
	table->total = kept;
}

void plan_table_choose(const struct plan_table *table, enum coll_id collective, uint64_t bytes,
		       uint64_t inline_bytes, int size, enum plan_algorithm wanted,
		       struct plan_table_choice *out)
{
	*out = (struct plan_table_choice){0};
	for (int i = 0; i < table->total; i++) {
		const struct plan_table_line *line = &table->lines[i];
		enum plan_algorithm algorithm = (enum plan_algorithm)line->algorithm;
		if ((line->collective != collective && line->collective != PLAN_TABLE_ANY) ||
		    bytes > line->bytes_max || !is_for(line, size) ||
		    !can_be(collective, algorithm, bytes, inline_bytes))
			continue;
		*out = (struct plan_table_choice){.algorithm = algorithm,
						  .stores = (enum plan_stores)line->stores,
						  .chunk_bytes = line->chunk_bytes,
						  .read_bytes = line->read_bytes,
						  .is_given = i < table->count &&
							      table->count < table->total};
		if (can_be(collective, wanted, bytes, inline_bytes))
			out->algorithm = wanted;
		return;
	}
}

/* ---- writing ---- */

static void bytes_text(uint64_t bytes, char *out, size_t room)
{
	static const char letters[] = "GMK";
	if (bytes == UINT64_MAX) {
		snprintf(out, room, "max");
		return;
	}
	for (int i = 0; i < 3; i++) {
		int shift = 30 - 10 * i;
		if (bytes > 0 && bytes % (UINT64_C(1) << shift) == 0) {
			snprintf(out, room, "%" PRIu64 "%c", bytes >> shift, letters[i]);
			return;
		}
	}
	snprintf(out, room, "%" PRIu64, bytes);
}

static void ranks_text(const struct plan_table_line *line, char *out, size_t room)
{
	if (line->ranks_min == 1 && line->ranks_max == RANKS_JOB_MAX)
		snprintf(out, room, "any");
	else if (line->ranks_min == line->ranks_max)
		snprintf(out, room, "%u", line->ranks_min);
	else
		snprintf(out, room, "%u-%u", line->ranks_min, line->ranks_max);
}

void plan_table_text(const struct plan_table *table, int i, char out[PLAN_TABLE_TEXT_BYTES])
{
	char ranks[WORD_BYTES], most[WORD_BYTES], chunk[WORD_BYTES], read[WORD_BYTES];
	if (i < 0 || i >= table->count) {
		snprintf(out, PLAN_TABLE_TEXT_BYTES, "%s", i < 0 ? column_names : "");
		return;
	}
	const struct plan_table_line *line = &table->lines[i];
	ranks_text(line, ranks, sizeof ranks);
	bytes_text(line->bytes_max, most, sizeof most);
	bytes_text(line->chunk_bytes, chunk, sizeof chunk);
	if (line->read_bytes > 0)
		bytes_text(line->read_bytes, read, sizeof read);
	else
		snprintf(read, sizeof read, "copy");
	snprintf(out, PLAN_TABLE_TEXT_BYTES, "%-14s  %-5s  %-8s  %-9s  %-5s  %-11s  %s",
		 line->collective == PLAN_TABLE_ANY ? "any" : plan_collective_name(line->collective),
		 ranks, most, plan_algorithm_name(line->algorithm), chunk,
		 store_names[line->stores], read);
}

/* FNV-1a over the lines as they are written. */
uint64_t plan_table_hash(const struct plan_table *table)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);
	for (int i = 0; i < table->count; i++) {
		char text[PLAN_TABLE_TEXT_BYTES];
		plan_table_text(table, i, text);
		for (const char *at = text;; at++) {
			hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
			if (*at == '\0')
				break;
		}
	}
	return hash ? hash : 1;
}
