/* SPDX-License-Identifier: BSD-3-Clause
 * Posted receives, found by source and tag in constant time, however many there are.
 *
 * Receives with the same source and tag form one queue, in the order of their calls; a hash table
 * has the first of each queue. A message may match four queues (its source or any, its tag or any);
 * of their first receives the one that was called first gets the message. Not for two threads at
 * once. */
#ifndef MAILBOX_MATCH_H
#define MAILBOX_MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "op/p2p_part.h"

enum { MATCH_BUCKETS_LEAST = 16 };

struct match_table {
	struct match_entry **buckets; /* [1 << bits] */
	unsigned bits;
	uint64_t count, order;
	uint64_t any_source, any_tag;                 /* how many receives with these wildcards */
	struct match_entry *few[MATCH_BUCKETS_LEAST]; /* the buckets, at first */
};

void mailbox_match_init(struct match_table *table);
void mailbox_match_fini(struct match_table *table);

/* Appends a receive to its queue. Never fails: without memory for a larger table, look-ups only
 * take longer. */
void mailbox_match_add(struct match_table *table, struct match_entry *entry);
/* The place of the receive that matches a message of this source and tag; NULL: there is none. The
 * receive stays in the table. The place is valid until the table changes. */
struct match_entry **mailbox_match_find(const struct match_table *table, int32_t source,
					int32_t tag);
/* Removes the receive at a place that mailbox_match_find has returned. */
void mailbox_match_remove_at(struct match_table *table, struct match_entry **place);
/* Any receive for which `question` is true; NULL: none. Looks at all of them. */
struct match_entry *mailbox_match_first(const struct match_table *table,
					bool (*question)(const struct match_entry *));
void mailbox_match_each(const struct match_table *table,
			void (*visit)(const struct match_entry *, void *context), void *context);
/* Removes a receive; the first of a queue in constant time. */
void mailbox_match_remove(struct match_table *table, struct match_entry *entry);

#endif
