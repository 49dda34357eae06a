/* SPDX-License-Identifier: BSD-3-Clause
 * Arenas whose group is closed while some of their blocks are in use. Languages that free memory
 * when nobody looks at it any more may free such blocks later. No block of such an arena is handed
 * out again. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/messages.h"
#include "memory/block.h"

struct kept {
	struct kept *next;
	size_t blocks;        /* in use: at least one */
	struct memory memory; /* base, bytes, page_bytes, table, carved: the rest has ended */
};

static struct {
	struct lock_memory lock;
	struct kept *first LOCK_GUARDED(memory);
	bool inherited LOCK_GUARDED(memory); /* this is a child of a process that had some */
} all = {.lock = LOCK_STATIC};
static pthread_once_t registered = PTHREAD_ONCE_INIT;

/* A child does not have the memory, and another thread of its parent may have held the lock. */
static void forget_in_child(void) LOCK_UNCHECKED
{
	lock_memory_init(&all.lock);
	all.inherited |= all.first != NULL;
	all.first = NULL;
}

static void register_handler(void)
{
	int error = pthread_atfork(NULL, NULL, forget_in_child);
	(void)error; /* without memory for it a child must not free what its parent kept */
}

static bool is_in_use(const struct memory_block *block)
{
	return block->of_user && (block->state == BLOCK_LIVE || block->state == BLOCK_REVOKED);
}

/* Gives the pages of a block that nobody uses back to the system. */
static void release_block(const struct memory *memory, struct memory_block *block)
{
	void *address = memory_block_address(memory, block);
	size_t bytes = memory_block_bytes(memory, block);
	/* Private pages first; a failure costs memory, nothing else. */
	if (madvise(address, bytes, MADV_DONTNEED) != 0 || block->state >= BLOCK_REVOKED)
		return;
	int result = madvise(address, bytes, MADV_REMOVE);
	(void)result;
}

/* Releases the blocks that are not in use; returns how many are in use. */
static size_t release_unused(const struct memory *memory)
{
	size_t pages = atomic_load(&memory->carved) / memory->page_bytes, count = 0;
	for (size_t page = 0; page < pages;) {
		struct memory_block *block = &memory->table[page];
		if (is_in_use(block))
			count++;
		else
			release_block(memory, block);
		page += memory_class_pages(block->size_class);
	}
	return count;
}

static void end_kept(struct kept *kept)
{
	munmap(kept->memory.base, kept->memory.bytes);
	munmap(kept->memory.table, memory_table_bytes(&kept->memory));
	free(kept);
}

/* Keeps the arena's blocks, of which this many are in use. NULL: there is no memory for that, and
 * the blocks stay for good. */
static struct kept *make_kept(const struct memory *memory, size_t blocks)
{
	struct kept *kept = calloc(1, sizeof *kept);
	if (!kept)
		return NULL;
	kept->blocks = blocks;
	kept->memory.base = memory->base;
	kept->memory.bytes = memory->bytes;
	kept->memory.page_bytes = memory->page_bytes;
	kept->memory.table = memory->table;
	atomic_init(&kept->memory.carved, atomic_load(&memory->carved));
	return kept;
}

void memory_keep(struct memory *memory)
{
	bool there = memory->base && !memory_in_child(memory);
	size_t blocks = there ? release_unused(memory) : 0;
	struct kept *kept = blocks ? make_kept(memory, blocks) : NULL;
	memory_end(memory, blocks > 0);
	if (!kept)
		return;
	pthread_once(&registered, register_handler);
	lock_memory_acquire(&all.lock);
	kept->next = all.first;
	all.first = kept;
	lock_memory_release(&all.lock);
}

/* The block that starts at `address`, NULL for none. *at: where its arena stands in the list. */
static struct memory_block *find_block(const void *address, struct kept ***at) LOCK_REQUIRES(memory)
{
	for (*at = &all.first; **at; *at = &(**at)->next) {
		const struct memory *memory = &(**at)->memory;
		uintptr_t offset = (uintptr_t)address - (uintptr_t)memory->base;
		if (offset < memory->bytes)
			return offset >= atomic_load(&memory->carved) || offset % memory->page_bytes
				       ? NULL
				       : &memory->table[offset / memory->page_bytes];
	}
	return NULL;
}

ls_status memory_free_kept(void *address, void (*called)(char *out, size_t bytes))
{
	struct kept **at, *over = NULL;
	lock_memory_acquire(&all.lock);
	struct memory_block *block = find_block(address, &at);
	enum block_state state = block ? block->state : BLOCK_NONE;
	bool frees = block && is_in_use(block), silent = frees || (!block && all.inherited);
	if (frees) {
		block->state = state == BLOCK_LIVE ? BLOCK_CACHED : BLOCK_REVOKED_FREED;
		release_block(&(*at)->memory, block);
		if (--(*at)->blocks == 0) {
			over = *at;
			*at = over->next;
		}
	}
	lock_memory_release(&all.lock);
	if (over)
		end_kept(over);
	return silent ? LS_OK : memory_say_wrong(address, state, called);
}
