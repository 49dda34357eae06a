/* SPDX-License-Identifier: BSD-3-Clause
 * Which stores a copy uses, plain or streaming ones, and how a message is transferred, read or
 * staged: what was faster lately. See stores.c. A struct engine_stores serves one thread at a time
 * for each writer. */
#ifndef ENGINE_STORES_H
#define ENGINE_STORES_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/plan_table.h"

enum engine_writer {
	ENGINE_COPY_IN, /* into a slot of mine that peers read */
	ENGINE_REDUCE,  /* into buffers of mine and of peers */
	/* a message into a block that its receiver reads; under the mailbox' lock, and the
	 * receiver's time is measured, too */
	ENGINE_STAGE,
	/* Not the stores, but the transfer of a plain payload: false, its receiver reads it by
	 * address; true, its sender stages it. Both under the mailbox' lock. */
	ENGINE_SEND,
	ENGINE_SEND_BLOCKING,
	ENGINE_WRITERS,
};

enum {
	ENGINE_STORES_MIN = 13, /* log2 of the bytes from which on it is measured */
	ENGINE_STORES_SIZES =
		11, /* powers of two from there on; the last one and all above are one */
};

struct engine_stores_case {
	float cost[2]; /* ticks for each byte: plain, streaming; 0: not measured yet */
	float level;   /* at the last choice: the cost of the stores that were chosen */
	/* The uses since then; and after how many uses the other stores are tried, 0: not tried
	 * yet. */
	uint32_t count, pause;
	bool stream; /* streaming stores are chosen */
};

struct engine_stores {
	struct engine_stores_case cases[ENGINE_WRITERS][ENGINE_STORES_SIZES];
};

/* One measured use of stores, from begin to end; a use without an end does not count. */
struct engine_stores_use {
	struct engine_stores_case *at; /* NULL: nothing is measured */
	uint64_t start, bytes;
	enum engine_writer writer;
	bool stream, tries;
};

/* Whether these `bytes`, a part of the `size` bytes of an operation, are to be stored past the
 * cache. wanted: what the table of plans says. */
bool engine_stores_begin(struct engine_stores *stores, enum engine_writer writer,
			 enum plan_stores wanted, uint64_t size, uint64_t bytes,
			 struct engine_stores_use *out);
/* Call when they are stored: now; or with the ticks (base/clock.h) that all that is measured
 * took. */
void engine_stores_end(const struct engine_stores_use *use);
void engine_stores_took(const struct engine_stores_use *use, uint64_t ticks);

#endif
