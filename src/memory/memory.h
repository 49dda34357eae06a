/* SPDX-License-Identifier: BSD-3-Clause
 * The arena: one sparse memfd per rank, mapped by every local rank when a group opens, so that
 * "where do my peers see this pointer" is a range compare; and the caching allocator of ls_alloc on
 * top of it.
 *
 * A block is a whole number of pages, since what can be taken away from peers is pages: so nothing
 * but one block is ever affected. Size classes: 1 to 4 pages, then four to a doubling (5, 6, 7, 8,
 * 10, …). A freed block goes to the list of its class and is handed out again, warm; nothing is
 * split or merged. The table of blocks lies outside the arena, so that no write past a block can
 * damage it, and a peer cannot. Invariants (memory_is_valid): live + cached + detached == carved <=
 * committed <= bytes, and the blocks of the table fill [0, carved) without gaps. */
#ifndef MEMORY_MEMORY_H
#define MEMORY_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

#include "base/fork.h"
#include "base/lock.h"
#include "memory/region.h"

enum { MEMORY_CLASSES = 128 };

struct memory_block;

struct memory {
	unsigned char *base; /* start of the mapping, page aligned; NULL before init */
	size_t bytes;        /* address space */
	size_t page_bytes;
	int fd;              /* memfd "lockstep-arena:JOB:RANK" */
	uint32_t generation; /* fork_generation of the process that made it */
	struct lock_memory lock;
	/* Changed under the lock only; read without it by memory_offset. */
	_Atomic size_t carved;   /* everything below was handed out at some time */
	_Atomic size_t detached; /* bytes of blocks that peers no longer see, wholly or in part */
	size_t committed LOCK_GUARDED(memory); /* below this the file has its pages: no SIGBUS */
	size_t live LOCK_GUARDED(memory);
	size_t cached LOCK_GUARDED(memory);
	uint64_t hits LOCK_GUARDED(memory);
	uint64_t misses LOCK_GUARDED(memory);
	struct memory_block *free_lists[MEMORY_CLASSES] LOCK_GUARDED(memory);
	struct memory_block *table; /* one entry per page; entries are guarded by the lock too */
	int maps; /* of memory_maps_open, for the regions; made with the first, closed if not -1 */
	_Atomic int region_count; /* grows */
	struct memory_region regions[MEMORY_REGIONS];
};

struct memory_stats {
	size_t bytes, committed, carved, live, cached, detached;
	uint64_t hits, misses; /* allocations that reused a block, and that did not */
};

/* Creates and maps an arena of `bytes` address space for `rank`; nothing is touched yet. Errors:
 * LS_OUT_OF_MEMORY, LS_SYSTEM, with a message. */
LS_CHECKED ls_status memory_init(struct memory *memory, size_t bytes, uint64_t job, int rank);
void memory_fini(struct memory *memory);
/* As memory_fini, but blocks that the user has stay as they are, with all that is in them, until
 * memory_free_kept. The others go back to the system, and so does all address space with the last
 * one. */
void memory_keep(struct memory *memory) LOCK_AVOIDS(memory);
/* As memory_free, of a block that was kept. In a child of the process that kept some nothing is
 * wrong: the blocks are not there. */
LS_CHECKED ls_status memory_free_kept(void *block, void (*called)(char *out, size_t bytes))
	LOCK_AVOIDS(memory);

/* In a forked child there is no arena: memory_alloc gives LS_FORKED, memory_free does nothing,
 * memory_fini frees only what is the child's own. */
static inline bool memory_in_child(const struct memory *memory)
{
	return memory->generation != fork_generation();
}

/* As ls_alloc; *out is NULL on failure. A hit costs one lock and a list pop. */
LS_CHECKED ls_status memory_alloc(struct memory *memory, size_t bytes, void **out)
	LOCK_AVOIDS(memory);
/* The same for a block that the user frees, so that it may be kept. */
LS_CHECKED ls_status memory_alloc_for_user(struct memory *memory, size_t bytes, void **out)
	LOCK_AVOIDS(memory);
/* called: writes ", called from PLACE" or nothing, for the message that says what is wrong; NULL:
 * nothing. */
LS_CHECKED ls_status memory_free(struct memory *memory, void *block,
				 void (*called)(char *out, size_t bytes)) LOCK_AVOIDS(memory);

/* Whether this is a live block that holds so many bytes; then it is no longer the user's, unless it
 * is taken back. */
bool memory_hand_over(struct memory *memory, const void *address, size_t bytes) LOCK_AVOIDS(memory);
void memory_take_back(struct memory *memory, const void *address) LOCK_AVOIDS(memory);

/* True, with the offset that peers use, if [address, address + bytes) lies in arena memory that was
 * handed out and that peers still see, or in one region that all have mapped: one range compare, a
 * look at each page once something has been detached, and at each region if there are any. In a
 * region it takes a system call, of less than a microsecond, that asks whether the region is still
 * there. */
bool memory_offset(struct memory *memory, const void *address, size_t bytes, uint64_t *offset)
	LOCK_AVOIDS(memory);
/* The same where it is enough that these peers, bit q for world rank q, have mapped the region. */
bool memory_offset_for(struct memory *memory, const void *address, size_t bytes, uint64_t peers,
		       uint64_t *offset) LOCK_AVOIDS(memory);

/* Takes the pages under [address, address + bytes) away from peers: what the caller sees from now
 * on is a private copy, and late writes of peers land in pages nobody reads. No write of this
 * process is lost, also not of a thread that writes meanwhile. The block it lies in stays usable
 * for its owner, but memory_offset is false for those pages, and after memory_free it is never
 * handed out again. For a failed operation whose peers have not said that they are done. May be
 * repeated. Errors: LS_BAD_ARGUMENT if the range is not live memory of the arena (a region is the
 * program's, which shares it with others); LS_OUT_OF_MEMORY, with a message; then nothing has
 * changed for the pages that could not be copied. */
LS_CHECKED ls_status memory_detach(struct memory *memory, void *address, size_t bytes)
	LOCK_AVOIDS(memory);

void memory_stats(struct memory *memory, struct memory_stats *out) LOCK_AVOIDS(memory);
bool memory_is_valid(struct memory *memory) LOCK_AVOIDS(memory);

/* A peer's arena as this process sees it. */
struct memory_view {
	unsigned char *base;
	size_t bytes;
	struct lock_memory lock;  /* of adding regions */
	_Atomic int region_count; /* grows */
	struct memory_region_view regions[MEMORY_REGIONS];
};
/* Maps a peer's arena (its fd is not kept). place: its rank, from which its place in memory
 * follows. The size is taken from the file, not from the peer. Errors: LS_UNTRUSTED_PEER if it is
 * no arena, or could be shrunk under us; LS_OUT_OF_MEMORY, LS_SYSTEM; all with a message. */
LS_CHECKED ls_status memory_view_open(struct memory_view *view, int fd, int place);
void memory_view_close(struct memory_view *view);
/* NULL if [offset, offset + bytes) is not inside: what a peer wrote is never trusted. */
void *memory_view_at(const struct memory_view *view, uint64_t offset, uint64_t bytes);

#endif
