/* SPDX-License-Identifier: BSD-3-Clause
 * The words that the detached sends and receives of a group wait for, and which operation needs
 * which word. For files of the engine only. */
#ifndef ENGINE_P2P_WORDS_H
#define ENGINE_P2P_WORDS_H

#include "engine/mailbox_private.h"

/* A list of words to wait for. */
struct engine_words {
	struct wait_word *words;
	int max, count; /* count > max: some were left out */
	/* of several words of one peer for the same alternative, one suffices */
	bool only_own;
	/* asks: find out whether one of the words, left out or not, has arrived; found: it has */
	bool asks, found;
	const struct engine_awaited *own;
	int own_count;
	/* bit i: own[i] stands for several operations, and some of their words are among these */
	uint64_t chosen;
};

bool engine_word_is_there(const struct wait_word *word);
/* Adds a word of an operation that has an RTS slot. */
void engine_words_add(struct engine_words *list, const struct engine_op *op,
		      const struct wait_word *word);
/* Adds the words of all other operations: those of the sources of posted receives, and those of
 * free slots at peers. Call it last. */
void engine_words_add_others(struct mailbox *mailbox, struct engine_words *list) LOCK_REQUIRES(mail);

#endif
