/* SPDX-License-Identifier: BSD-3-Clause
 * How wait.c shows in a wait table what a thread waits for. Within base only; the rest of
 * wait_slot.c is declared in wait.h. */
#ifndef BASE_WAIT_SLOT_H
#define BASE_WAIT_SLOT_H

#include <string.h>

#include "base/lock.h"
#include "base/wait.h"

/* Copies as much of the text as there is room for. */
static inline void wait_name_foreign(struct wait_slot_body *body, const char *call)
{
	memset(body->foreign, 0, sizeof body->foreign);
	memcpy(body->foreign, call, strnlen(call, sizeof body->foreign - 1));
}

/* Writes *body with the thread's own id into its slot; edges beyond edge_count are not copied.
 * further: the words that body->edges has no room for. body->further: how many words these are;
 * UINT32_MAX: nobody is to see them. If no slot is free, the wait table counts the thread as
 * unpublished. Does nothing for a waiter without a wait table. */
void wait_slot_publish(struct waiter *waiter, struct wait_slot_body *body,
		       const struct wait_word *further) LOCK_AVOIDS(trace);

/* Writes that the thread is outside again. */
void wait_slot_clear(struct waiter *waiter) LOCK_AVOIDS(trace);

/* As wait_slot_publish, in a slot of the item's own: takes one if the item has none. If none is
 * free, the wait table counts the item. */
void wait_slot_publish_item(struct wait_item *item, struct wait_slot_body *body,
			    const struct wait_word *further) LOCK_AVOIDS(trace);
/* Gives the item's slot back. */
void wait_slot_clear_item(struct wait_item *item) LOCK_AVOIDS(trace);

#endif
