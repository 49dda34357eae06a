/* SPDX-License-Identifier: BSD-3-Clause
 * Blocks of an arena, for memory.c and kept.c only: their table entries, sizes and addresses. */
#ifndef MEMORY_BLOCK_H
#define MEMORY_BLOCK_H

#include "memory/memory.h"

enum block_state {
	BLOCK_NONE = 0, /* no block starts at this page */
	BLOCK_LIVE,
	BLOCK_CACHED,
	BLOCK_REVOKED,       /* in use, but peers no longer see it, in whole or in part */
	BLOCK_REVOKED_FREED, /* freed as well: never reused */
};

struct memory_block {
	struct memory_block *next; /* in its free list, while cached */
	uint8_t state;             /* enum block_state */
	uint8_t size_class;
	bool of_user;      /* the user frees it, perhaps after the group has closed */
	bool page_revoked; /* this page is private */
};

static inline size_t memory_class_pages(unsigned size_class)
{
	return size_class < 4 ? size_class + 1u
			      : (size_t)(5 + size_class % 4) << (size_class / 4 - 1);
}

static inline size_t memory_block_bytes(const struct memory *memory,
					const struct memory_block *block)
{
	return memory_class_pages(block->size_class) * memory->page_bytes;
}

static inline size_t memory_block_page(const struct memory *memory, const struct memory_block *block)
{
	return (size_t)(block - memory->table);
}

static inline unsigned char *memory_block_address(const struct memory *memory,
						  const struct memory_block *block)
{
	return memory->base + memory_block_page(memory, block) * memory->page_bytes;
}

static inline size_t memory_table_bytes(const struct memory *memory)
{
	return memory->bytes / memory->page_bytes * sizeof(struct memory_block);
}

/* Returns LS_BAD_ARGUMENT, with a message: a block in this state cannot be freed. */
LS_CHECKED ls_status memory_say_wrong(const void *address, enum block_state state,
				      void (*called)(char *out, size_t bytes));
/* As memory_fini; stays: mapping and table belong to another owner from now on. */
void memory_end(struct memory *memory, bool stays);

#endif
