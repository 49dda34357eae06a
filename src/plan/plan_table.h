/* SPDX-License-Identifier: BSD-3-Clause
 * Which algorithm, chunk and kind of store a collective gets: a small table of text, as `lockstep
 * tune` writes it and LOCKSTEP_TABLE names it. Pure: text in, choices out. One line each:
 *
 *   # collective  ranks  up to  algorithm  chunk  stores  read
 *   allreduce     2-4    64K    doubling   64K    plain   256K
 *   any           any    max    direct     64K    auto    copy
 *
 * The first line that fits a call counts. A line fits where collective and ranks are named, the
 * payload is at most `up to` bytes, and the collective has the algorithm (of inline: the payload
 * fits into an entry). A call that no line fits gets what the default table says. All ranks must
 * have the same table, as the plan of a collective follows from it: that is why no column depends
 * on where a rank's buffer lies. Chunk, stores and read are this rank's own affair, but stand here
 * because they are measured together. */
#ifndef PLAN_PLAN_TABLE_H
#define PLAN_PLAN_TABLE_H

#include "plan/plan.h"

enum {
	PLAN_TABLE_LINES_MAX = 512,
	PLAN_TABLE_DEFAULT_LINES = 25,
	PLAN_TABLE_OVERSUBSCRIBED_LINES = 10, /* no more than the default lines */
	PLAN_TABLE_TEXT_BYTES = 160,          /* one line, with its end */
	PLAN_TABLE_FILE_BYTES = 64 * 1024,    /* what a file may have; more is no table */
	PLAN_TABLE_ANY = 255,                 /* as a collective */
	/* Between chunks a rank sees that the group has failed; this much it may write to peers
	 * after that. */
	PLAN_TABLE_CHUNK_MAX = 64 * 1024,
	PLAN_TABLE_READ_MAX = 512 * 1024,
	PLAN_TABLE_UNIT = 4096, /* chunks are multiples of this, and so of every element */
};

enum plan_stores {
	PLAN_STORES_AUTO, /* whichever turns out to be faster */
	PLAN_STORES_CACHED,
	PLAN_STORES_NONTEMPORAL, /* past the cache */
};

struct plan_table_line {
	uint64_t bytes_max; /* payload as plan_table_choose counts it; UINT64_MAX: any */
	uint8_t collective; /* enum coll_id, or PLAN_TABLE_ANY */
	uint8_t algorithm;  /* enum plan_algorithm, never PLAN_NONE */
	uint8_t stores;     /* enum plan_stores, of what peers will read */
	uint16_t ranks_min, ranks_max;
	uint32_t chunk_bytes; /* moved at once between mapped buffers */
	/* Read at once from a peer's memory that is not mapped; 0: plain buffers are rather
	 * copied. */
	uint32_t read_bytes;
};

/* lines[0, count) are those of the text; lines[count, total) the default ones behind them, so that
 * something always fits. */
struct plan_table {
	int count, total;
	bool oversubscribed; /* plan_table_oversubscribe was called */
	struct plan_table_line lines[PLAN_TABLE_LINES_MAX + PLAN_TABLE_DEFAULT_LINES];
};

struct plan_table_choice {
	enum plan_algorithm algorithm;
	enum plan_stores stores;
	uint32_t chunk_bytes, read_bytes;
	/* The line is of a text that somebody gave, and so may know this machine. */
	bool is_given;
};

struct plan_table_error {
	int line;                         /* from 1 */
	char text[PLAN_TABLE_TEXT_BYTES]; /* what is wrong there, and what may stand there */
};

/* The table that holds if the user gives none: the default lines alone, as lines of the text. They
 * are for ranks that each have a processor of their own. */
void plan_table_default(struct plan_table *out);

/* Replaces the default lines by those for ranks that share processors. All ranks have to decide
 * alike. */
void plan_table_oversubscribe(struct plan_table *table);

/* Reads a table; `#` begins a comment, empty lines are ignored. False: *error says what is wrong,
 * and *out is the default table. */
bool plan_table_parse(const char *text, struct plan_table *out, struct plan_table_error *error);

/* Drops the lines that are not for `size` ranks, so that choosing looks at few. This changes the
 * hash. */
void plan_table_narrow(struct plan_table *table, int size);

/* For `bytes` of payload, the most that any rank has as INPUT (UINT64_MAX: not known to all ranks,
 * so it does not fit into an entry); `inline_bytes` is the longest payload that travels in an entry
 * or in the pages beside it (TRANSPORT_INLINE_BYTES). Pure: the same answer on all ranks that have
 * the same table. `wanted` (PLAN_NONE: none) wins where the collective has it and, for PLAN_INLINE,
 * the payload fits. The default table never gives PLAN_PULL: the engine takes it in place of
 * PLAN_DIRECT where a window cannot be written. */
void plan_table_choose(const struct plan_table *table, enum coll_id collective, uint64_t bytes,
		       uint64_t inline_bytes, int size, enum plan_algorithm wanted,
		       struct plan_table_choice *out);

/* Line `i` as plan_table_parse reads it, and with i = -1 the comment that names the columns;
 * without an end of line. */
void plan_table_text(const struct plan_table *table, int i, char out[PLAN_TABLE_TEXT_BYTES]);

/* The same for tables that say the same, however they are written; never 0. For ranks to
 * compare. */
uint64_t plan_table_hash(const struct plan_table *table);

bool plan_table_line_is_valid(const struct plan_table_line *line);

#endif
