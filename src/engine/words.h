/* SPDX-License-Identifier: BSD-3-Clause
 * What the detached sends and receives of a group wait for, and whose need each word is. Within the
 * engine only. */
#ifndef ENGINE_WORDS_H
#define ENGINE_WORDS_H

#include "engine/mailbox.h"

/* Words to wait for, as many as there is room for. */
struct engine_words {
	struct wait_word *words;
	int max, count; /* count > max: some were left out */
	/* of several of one peer that are needed for the same choice one is enough */
	bool only_own;
	bool asks, found; /* whether one of them is there, left out or not; and that one is */
	const struct engine_own *own;
	int own_count;
	/* bit i: own[i] stands for several operations, and some of their words are among these */
	uint64_t chosen;
};

bool engine_word_is_there(const struct wait_word *word);
/* A word of one that has an RTS slot. */
void engine_words_add(struct engine_words *list, const struct engine_op *op,
		      const struct wait_word *word);
/* Of all that have none: of the sources that are asked, and of room to peers. After those. */
void engine_words_add_rest(struct engine *engine, struct engine_words *list) LOCK_REQUIRES(mail);

#endif
