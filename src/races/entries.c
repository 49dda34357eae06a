/* SPDX-License-Identifier: BSD-3-Clause
 * The list of the uses that are under way. */
#include <stdlib.h>
#include <string.h>

#include "races/races_private.h"

enum { FIRST_ROOM = 16 };

void *races_grow(void *array, size_t count, size_t *room, size_t element_bytes)
{
	if (count < *room)
		return array;
	size_t more = *room ? 2 * *room : FIRST_ROOM;
	unsigned char *grown = realloc(array, more * element_bytes);
	if (!grown)
		return NULL;
	memset(grown + count * element_bytes, 0, (more - count) * element_bytes);
	*room = more;
	return grown;
}

static bool is_over(const struct races *races, const struct races_entry *entry)
{
	const struct races_use *use = &entry->use;
	if (!use->who.stream)
		return false; /* until races_end */
	if (races->broken && atomic_load(races->broken) != 0)
		return true;
	return use->done &&
	       (int64_t)(atomic_load_explicit(use->done, memory_order_acquire) - use->number) >= 0;
}

void races_remove(struct races *races, size_t index)
{
	size_t last = --races->count;
	races->on_streams -= races->entries[index].use.who.stream != NULL;
	if (index == last)
		return;
	races->entries[index] = races->entries[last];
	races->keys[index] = races->keys[last];
}

void races_drop(struct races *races)
{
	for (size_t i = races->count; i > 0 && races->on_streams > 0; i--)
		if (is_over(races, &races->entries[i - 1]))
			races_remove(races, i - 1);
}
