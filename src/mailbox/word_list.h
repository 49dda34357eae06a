/* SPDX-License-Identifier: BSD-3-Clause
 * The words that the detached sends and receives of a group wait for, and which operation needs
 * which word. For files of this room only. */
#ifndef MAILBOX_WORD_LIST_H
#define MAILBOX_WORD_LIST_H

#include "mailbox/mailbox_private.h"

/* A list of words to wait for. */
struct mailbox_words {
	struct wait_word *words;
	int max, count; /* count > max: some were left out */
	/* of several words of one peer for the same alternative, one suffices */
	bool only_own;
	/* asks: find out whether one of the words, left out or not, has arrived; found: it has */
	bool asks, found;
	const struct mailbox_awaited *own;
	int own_count;
	/* bit i: own[i] stands for several operations, and some of their words are among these */
	uint64_t chosen;
};

bool mailbox_word_has_come(const struct wait_word *word);
/* Adds a word of an operation that has an RTS slot. */
void mailbox_words_add(struct mailbox_words *list, const struct op *op,
		       const struct wait_word *word);
/* Adds the words of all other operations: those of the sources of posted receives, and those of
 * free slots at peers. Call it last. */
void mailbox_words_add_others(struct mailbox *mailbox, struct mailbox_words *list)
	LOCK_REQUIRES(mail);

#endif
