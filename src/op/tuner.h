/* SPDX-License-Identifier: BSD-3-Clause
 * Which stores a copy uses, plain or nontemporal ones, and how a message is transferred, read or
 * staged: what was faster lately. See tuner.c. A struct op_tuner serves one thread at a time
 * for each choice. */
#ifndef OP_TUNER_H
#define OP_TUNER_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/plan_table.h"

enum op_choice {
	OP_CHOICE_COPY_IN, /* into a slot of mine that peers read */
	OP_CHOICE_REDUCE,  /* into buffers of mine and of peers */
	/* a message into a block that its receiver reads; under the mailbox's lock, and the
	 * receiver's time is measured, too */
	OP_CHOICE_STAGE,
	OP_CHOICE_STAGE_PIECES, /* the same while its receiver copies it */
	/* Not the stores, but the transfer of a plain payload: false, its receiver reads it by
	 * address; true, its sender stages it. Both under the mailbox's lock. */
	OP_CHOICE_SEND,
	OP_CHOICE_SEND_BLOCKING,
	OP_CHOICES,
};

enum {
	OP_TUNER_MIN_LOG2 = 13, /* log2 of the bytes from which on uses are measured */
	OP_TUNER_SIZES = 11, /* powers of two from there on; the last one and all above are one */
};

struct op_tuner_case {
	/* Ticks for each byte: plain stores, nontemporal ones; of a transfer: read, staged. 0: not
	 * measured yet. */
	float cost[2];
	float level; /* at the last choice: the cost of the stores that were chosen */
	/* The uses since the last choice; and after how many uses the other stores are tried, 0:
	 * not tried yet. */
	uint32_t count, pause;
	bool second; /* the second way is chosen: nontemporal stores; of a transfer: staged */
};

struct op_tuner {
	struct op_tuner_case cases[OP_CHOICES][OP_TUNER_SIZES];
};

/* One measured use of stores, from begin to end; a use without an end does not count. */
struct op_tuner_use {
	struct op_tuner_case *at; /* NULL: nothing is measured */
	uint64_t start, bytes;
	enum op_choice choice;
	bool second, tries;
};

/* Whether these `bytes`, a part of the `size` bytes of an operation, are to be stored past the
 * cache. wanted: what the table of plans says. */
bool op_tuner_begin(struct op_tuner *tuner, enum op_choice choice, enum plan_stores wanted,
		    uint64_t size, uint64_t bytes, struct op_tuner_use *out);
/* Call when the bytes are stored: op_tuner_end at once; op_tuner_record with the ticks
 * (base/clock.h) that the whole use took. */
void op_tuner_end(const struct op_tuner_use *use);
void op_tuner_record(const struct op_tuner_use *use, uint64_t ticks);

#endif
