/* SPDX-License-Identifier: BSD-3-Clause
 * The caching allocator of the arena. The table has one entry per page, of which only the entry of
 * a block's first page says something about the block. The table is private, sparse memory, so
 * finding a block by its address is an index, and a large arena costs nothing. */
#include "memory/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/messages.h"
#include "base/own_fd.h"
#include "memory/arena.h"
#include "memory/block.h"

enum { CALLED_BYTES = 160 };

/* The smallest class of at least `pages`. */
static unsigned class_of(size_t pages)
{
	if (pages <= 4)
		return (unsigned)pages - 1;
	unsigned doubling = 63u - (unsigned)__builtin_clzl(pages - 1);
	size_t quarter = (size_t)1 << (doubling - 2);
	return 4 * (doubling - 1) + (unsigned)((pages + quarter - 1) / quarter) - 5;
}

static size_t load_counter(const _Atomic size_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static void add_to_counter(_Atomic size_t *counter, size_t bytes)
{
	atomic_store_explicit(counter, load_counter(counter) + bytes, memory_order_relaxed);
}

ls_status memory_init(struct memory *memory, size_t bytes, uint64_t job, int rank)
{
	size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	*memory = (struct memory){.fd = -1, .maps = -1, .page_bytes = page_bytes};
	memory->bytes = bytes / page_bytes * page_bytes;
	memory->generation = fork_generation();
	ls_status status = memory_arena_open(memory->bytes, job, rank, &memory->base, &memory->fd);
	if (status != LS_OK)
		return status;
	void *table = mmap(NULL, memory_table_bytes(memory), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (table == MAP_FAILED) {
		MESSAGE_SAY(MESSAGE_MEMORY_ARENA, bytes >> 20, "mmap", strerror(errno));
		munmap(memory->base, memory->bytes);
		close(memory->fd);
		*memory = (struct memory){.fd = -1, .maps = -1};
		return LS_OUT_OF_MEMORY;
	}
	memory->table = table;
	lock_memory_init(&memory->lock);
	return LS_OK;
}

void memory_end(struct memory *memory, bool stays)
{
	if (!memory->base)
		return;
	/* In a child something else may lie where the arena was, and the lock may be held for
	 * ever. */
	if (!memory_in_child(memory)) {
		if (!stays)
			munmap(memory->base, memory->bytes);
		lock_memory_fini(&memory->lock);
	}
	if (!stays)
		munmap(memory->table, memory_table_bytes(memory));
	own_fd_close(&memory->fd, own_fd_is_memory);
	if (memory->maps >= 0)
		close(memory->maps);
	*memory = (struct memory){.fd = -1, .maps = -1};
}

void memory_fini(struct memory *memory)
{
	memory_end(memory, false);
}

static struct memory_block *pop_block(struct memory *memory, unsigned size_class)
	LOCK_REQUIRES(memory)
{
	struct memory_block *block = memory->free_lists[size_class];
	if (block) {
		memory->free_lists[size_class] = block->next;
		memory->cached -= memory_block_bytes(memory, block);
	}
	return block;
}

/* A block never used before; NULL with *error 0 when the arena is full, or an errno. */
static struct memory_block *carve_block(struct memory *memory, unsigned size_class, int *error)
	LOCK_REQUIRES(memory)
{
	size_t carved = load_counter(&memory->carved);
	size_t bytes = memory_class_pages(size_class) * memory->page_bytes;
	*error = 0;
	if (bytes > memory->bytes - carved)
		return NULL;
	*error = memory_arena_commit(memory->fd, memory->bytes, carved + bytes, &memory->committed);
	if (*error)
		return NULL;
	struct memory_block *block = &memory->table[carved / memory->page_bytes];
	block->size_class = (uint8_t)size_class;
	add_to_counter(&memory->carved, bytes);
	return block;
}

/* A cached block of this class or a larger one, but not of more than `pages`. */
static struct memory_block *pop_any(struct memory *memory, unsigned size_class, size_t pages)
	LOCK_REQUIRES(memory)
{
	struct memory_block *block = NULL;
	for (unsigned i = size_class;
	     i < MEMORY_CLASSES && memory_class_pages(i) <= pages && !block; i++)
		block = pop_block(memory, i);
	return block;
}

/* Takes a block of this class, else one up to twice as large, else a fresh one, else any larger
 * one: waste is better than failure. */
static struct memory_block *take_block(struct memory *memory, unsigned size_class, int *error)
	LOCK_REQUIRES(memory)
{
	struct memory_block *block = pop_any(memory, size_class, 2 * memory_class_pages(size_class));
	*error = 0;
	if (block) {
		memory->hits++;
	} else {
		memory->misses++;
		block = carve_block(memory, size_class, error);
		if (!block)
			block = pop_any(memory, size_class, SIZE_MAX);
	}
	if (block) {
		block->next = NULL;
		block->state = BLOCK_LIVE;
		memory->live += memory_block_bytes(memory, block);
	}
	return block;
}

static ls_status say_exhausted(struct memory *memory, size_t bytes, int error)
{
	struct memory_stats stats;
	memory_stats(memory, &stats);
	const char *full = bytes > memory->bytes ? "the arena is smaller" : "the arena is full";
	MESSAGE_SAY(MESSAGE_MEMORY_EXHAUSTED, bytes, error ? strerror(error) : full,
		    stats.bytes >> 10, stats.live >> 10, stats.cached >> 10, stats.revoked >> 10);
	return LS_OUT_OF_MEMORY;
}

/* NULL, with *error as carve_block: there is no room. */
static void *find_room(struct memory *memory, size_t bytes, bool of_user, int *error)
{
	*error = 0;
	if (bytes > memory->bytes)
		return NULL;
	size_t pages = bytes ? (bytes - 1) / memory->page_bytes + 1 : 1;
	lock_memory_acquire(&memory->lock);
	struct memory_block *block = take_block(memory, class_of(pages), error);
	if (block)
		block->of_user = of_user;
	lock_memory_release(&memory->lock);
	return block ? memory_block_address(memory, block) : NULL;
}

static ls_status alloc_block(struct memory *memory, size_t bytes, bool of_user, void **out)
{
	int error;
	*out = NULL;
	if (memory_in_child(memory))
		return LS_FORKED;
	*out = find_room(memory, bytes, of_user, &error);
	return *out ? LS_OK : say_exhausted(memory, bytes, error);
}

void *memory_alloc_quietly(struct memory *memory, size_t bytes)
{
	int error;
	return memory_in_child(memory) ? NULL : find_room(memory, bytes, false, &error);
}

ls_status memory_alloc(struct memory *memory, size_t bytes, void **out)
{
	return alloc_block(memory, bytes, false, out);
}

ls_status memory_alloc_for_user(struct memory *memory, size_t bytes, void **out)
{
	return alloc_block(memory, bytes, true, out);
}

/* The block that starts at `address`, NULL for none. */
static struct memory_block *find_block(struct memory *memory, const void *address)
	LOCK_REQUIRES(memory)
{
	uintptr_t offset = (uintptr_t)address - (uintptr_t)memory->base;
	if (offset >= load_counter(&memory->carved) || offset % memory->page_bytes)
		return NULL;
	struct memory_block *block = &memory->table[offset / memory->page_bytes];
	return block->state == BLOCK_NONE ? NULL : block;
}

bool memory_has_block(struct memory *memory, const void *address, size_t bytes)
{
	if (!address || memory_in_child(memory))
		return false;
	lock_memory_acquire(&memory->lock);
	struct memory_block *block = find_block(memory, address);
	bool fits = block && block->state == BLOCK_LIVE && block->of_user &&
		    bytes <= memory_block_bytes(memory, block);
	lock_memory_release(&memory->lock);
	return fits;
}

size_t memory_bytes_of(struct memory *memory, const void *address)
{
	if (!address || memory_in_child(memory))
		return 0;
	lock_memory_acquire(&memory->lock);
	struct memory_block *block = find_block(memory, address);
	size_t bytes = block && block->state == BLOCK_LIVE ? memory_block_bytes(memory, block) : 0;
	lock_memory_release(&memory->lock);
	return bytes;
}

void memory_give_block(struct memory *memory, const void *address)
{
	lock_memory_acquire(&memory->lock);
	struct memory_block *block = find_block(memory, address);
	if (block)
		block->of_user = false;
	lock_memory_release(&memory->lock);
}

ls_status memory_say_wrong(const void *address, enum block_state state,
			   void (*called)(char *out, size_t bytes))
{
	char from[CALLED_BYTES] = "";
	if (called)
		called(from, sizeof from);
	if (state == BLOCK_NONE)
		MESSAGE_SAY(MESSAGE_MEMORY_NO_BLOCK, address, from);
	else
		MESSAGE_SAY(MESSAGE_MEMORY_FREED_TWICE, address, from);
	return LS_BAD_ARGUMENT;
}

ls_status memory_free(struct memory *memory, void *address, void (*called)(char *out, size_t bytes))
{
	if (!address || memory_in_child(memory))
		return LS_OK;
	lock_memory_acquire(&memory->lock);
	struct memory_block *block = find_block(memory, address);
	enum block_state state = block ? block->state : BLOCK_NONE;
	if (state == BLOCK_LIVE) {
		size_t bytes = memory_block_bytes(memory, block);
		block->state = BLOCK_CACHED;
		block->next = memory->free_lists[block->size_class];
		memory->free_lists[block->size_class] = block;
		memory->live -= bytes;
		memory->cached += bytes;
	} else if (state == BLOCK_REVOKED) {
		block->state = BLOCK_REVOKED_FREED;
		/* Gives the private copies back; a failure costs memory, nothing else. */
		int result = madvise(address, memory_block_bytes(memory, block), MADV_DONTNEED);
		(void)result;
	}
	lock_memory_release(&memory->lock);

	if (state == BLOCK_LIVE || state == BLOCK_REVOKED)
		return LS_OK;
	return memory_say_wrong(address, state, called);
}

/* Pages [*first, *last] under a range; false if not all of it was ever handed out. An empty range
 * lies on no page: *last < *first. */
static bool find_pages(struct memory *memory, const void *address, size_t bytes, size_t *first,
		       size_t *last)
{
	uintptr_t offset = (uintptr_t)address - (uintptr_t)memory->base;
	size_t carved = load_counter(&memory->carved);
	if (offset > carved || bytes > carved - offset)
		return false;
	*first = offset / memory->page_bytes + (bytes ? 0 : 1);
	*last = bytes ? (offset + bytes - 1) / memory->page_bytes : *first - 1;
	return true;
}

bool memory_offset(struct memory *memory, const void *address, size_t bytes, uint64_t *offset)
{
	return memory_offset_for(memory, address, bytes, NULL, offset);
}

bool memory_offset_for(struct memory *memory, const void *address, size_t bytes,
		       const struct ranks *peers, uint64_t *offset)
{
	size_t first, last;
	*offset = 0;
	if (!find_pages(memory, address, bytes, &first, &last))
		return memory_region_offset(memory, address, bytes, peers, offset);
	bool seen = true;
	if (load_counter(&memory->revoked)) {
		lock_memory_acquire(&memory->lock);
		for (size_t page = first; page <= last && seen; page++)
			seen = !memory->table[page].page_revoked;
		lock_memory_release(&memory->lock);
	}
	if (seen)
		*offset = (uintptr_t)address - (uintptr_t)memory->base;
	return seen;
}

/* Whether all blocks on pages [*first, last] are in use; *first becomes the start of the first
 * one. */
static bool all_in_use(const struct memory *memory, size_t *first, size_t last) LOCK_REQUIRES(memory)
{
	while (memory->table[*first].state == BLOCK_NONE)
		(*first)--; /* page 0 starts a block */
	for (size_t page = *first; page <= last;) {
		const struct memory_block *block = &memory->table[page];
		if (block->state != BLOCK_LIVE && block->state != BLOCK_REVOKED)
			return false;
		page += memory_class_pages(block->size_class);
	}
	return true;
}

/* Makes pages [first, stop) private, in runs of pages that are not private yet. */
static int make_private(struct memory *memory, size_t first, size_t stop) LOCK_REQUIRES(memory)
{
	size_t end;
	for (size_t page = first; page < stop; page = end) {
		bool done = memory->table[page].page_revoked;
		for (end = page; end < stop && memory->table[end].page_revoked == done;)
			end++;
		if (done)
			continue;
		size_t offset = page * memory->page_bytes;
		int error = memory_arena_make_private(memory->fd, memory->base + offset,
						      (end - page) * memory->page_bytes, offset,
						      memory->page_bytes);
		if (error)
			return error;
		for (struct memory_block *block = &memory->table[page]; block < &memory->table[end];
		     block++)
			block->page_revoked = true;
	}
	return 0;
}

/* EINVAL: the range is no memory in use. */
static ls_status say_not_revoked(struct memory *memory, size_t bytes, void *address, int error)
{
	static const struct ranks nobody; /* it may be registered with a part of the ranks */
	uint64_t offset;
	bool region = memory_region_offset(memory, address, bytes, &nobody, &offset);
	MESSAGE_SAY(MESSAGE_MEMORY_DETACH, bytes, address,
		    region ? "it was registered, and is shared with others by the program"
		    : error == EINVAL ? "it is no memory in use"
				      : strerror(error));
	return error == EINVAL ? LS_BAD_ARGUMENT : LS_OUT_OF_MEMORY;
}

ls_status memory_revoke(struct memory *memory, void *address, size_t bytes)
{
	size_t first, last;
	int error = 0;
	if (memory_in_child(memory))
		return LS_FORKED;
	if (!find_pages(memory, address, bytes, &first, &last))
		return say_not_revoked(memory, bytes, address, EINVAL);
	if (!bytes)
		return LS_OK;
	size_t block_first = first;
	lock_memory_acquire(&memory->lock);
	bool in_use = all_in_use(memory, &block_first, last);
	for (size_t page = block_first; in_use && page <= last;) {
		struct memory_block *block = &memory->table[page];
		if (block->state == BLOCK_LIVE) {
			block->state = BLOCK_REVOKED;
			memory->live -= memory_block_bytes(memory, block);
			add_to_counter(&memory->revoked, memory_block_bytes(memory, block));
		}
		page += memory_class_pages(block->size_class);
	}
	if (in_use)
		error = make_private(memory, first, last + 1);
	lock_memory_release(&memory->lock);
	if (!in_use)
		error = EINVAL;
	return error ? say_not_revoked(memory, bytes, address, error) : LS_OK;
}

void memory_stats(struct memory *memory, struct memory_stats *out)
{
	lock_memory_acquire(&memory->lock);
	*out = (struct memory_stats){
		.bytes = memory->bytes,
		.committed = memory->committed,
		.carved = load_counter(&memory->carved),
		.live = memory->live,
		.cached = memory->cached,
		.revoked = load_counter(&memory->revoked),
		.hits = memory->hits,
		.misses = memory->misses,
	};
	lock_memory_release(&memory->lock);
}

/* What a walk over the table finds. */
struct tally {
	size_t live, cached, revoked, cached_blocks;
};

/* False if the blocks do not fill [0, carved), or a page is private that may not be. */
static bool walk_table(const struct memory *memory, size_t pages, struct tally *tally)
	LOCK_REQUIRES(memory)
{
	size_t page = 0;
	while (page < pages) {
		const struct memory_block *block = &memory->table[page];
		size_t bytes = memory_block_bytes(memory, block);
		bool revoked = block->state >= BLOCK_REVOKED;
		if (block->state == BLOCK_NONE || block->state > BLOCK_REVOKED_FREED)
			return false;
		tally->live += block->state == BLOCK_LIVE ? bytes : 0;
		tally->cached += block->state == BLOCK_CACHED ? bytes : 0;
		tally->cached_blocks += block->state == BLOCK_CACHED;
		tally->revoked += revoked ? bytes : 0;
		for (size_t i = 0; i < memory_class_pages(block->size_class); i++)
			if ((i > 0 && block[i].state != BLOCK_NONE) ||
			    (block[i].page_revoked && !revoked))
				return false;
		page += memory_class_pages(block->size_class);
	}
	return page == pages;
}

/* False if the lists do not hold exactly the cached blocks, each in the list of its class. */
static bool walk_lists(const struct memory *memory, size_t cached_blocks) LOCK_REQUIRES(memory)
{
	size_t found = 0;
	for (unsigned i = 0; i < MEMORY_CLASSES; i++) {
		const struct memory_block *block = memory->free_lists[i];
		for (; block && found <= cached_blocks; block = block->next, found++)
			if (block->state != BLOCK_CACHED || block->size_class != i)
				return false;
	}
	return found == cached_blocks;
}

bool memory_is_valid(struct memory *memory)
{
	struct tally tally = {0};
	lock_memory_acquire(&memory->lock);
	size_t carved = load_counter(&memory->carved), revoked = load_counter(&memory->revoked);
	bool valid = carved <= memory->committed && memory->committed <= memory->bytes &&
		     memory->live + memory->cached + revoked == carved &&
		     walk_table(memory, carved / memory->page_bytes, &tally) &&
		     walk_lists(memory, tally.cached_blocks) && tally.live == memory->live &&
		     tally.cached == memory->cached && tally.revoked == revoked;
	lock_memory_release(&memory->lock);
	return valid;
}
