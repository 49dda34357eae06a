/* SPDX-License-Identifier: BSD-3-Clause
 * The arena: one sparse memfd for each rank, which every local rank maps when a group opens, so
 * that one range compare finds out how peers see a pointer; and the caching allocator of ls_alloc
 * in it.
 *
 * A block is a whole number of pages, because the access of peers can be revoked only by pages: so
 * revoking one block affects no other. Size classes: 1 to 4 pages, then four to a doubling (5, 6,
 * 7, 8, 10, …). A freed block goes to the list of its class and is reused from there, also for a
 * request of half the size. Blocks are never split or merged (doc/decisions/038). The table of
 * blocks lies outside of the arena, so no write past a block and no peer can damage it. Invariants
 * (memory_is_valid): live + cached + revoked == carved <= committed <= bytes, and the blocks of
 * the table fill [0, carved) without gaps. */
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
	_Atomic size_t carved; /* all memory below was once in a block */
	/* bytes of blocks whose memory peers no longer see, in whole or in part */
	_Atomic size_t revoked;
	size_t committed LOCK_GUARDED(memory); /* all pages below exist in the file: no SIGBUS */
	size_t live LOCK_GUARDED(memory);
	size_t cached LOCK_GUARDED(memory);
	uint64_t hits LOCK_GUARDED(memory);
	uint64_t misses LOCK_GUARDED(memory);
	struct memory_block *free_lists[MEMORY_CLASSES] LOCK_GUARDED(memory);
	struct memory_block *table; /* one entry per page; entries are guarded by the lock too */
	/* of memory_maps_open, for the regions; opened with the first region; -1: not open */
	int maps;
	_Atomic int region_count;      /* grows */
	_Atomic bool inspects_buffers; /* see memory_inspects_buffers */
	struct memory_region regions[MEMORY_REGIONS];
};

struct memory_stats {
	size_t bytes, committed, carved, live, cached, revoked;
	uint64_t hits, misses; /* allocations that reused a block, and that did not */
};

/* Creates and maps an arena of `bytes` address space for `rank`; it has no pages yet. Errors:
 * LS_OUT_OF_MEMORY, LS_SYSTEM, with a message. */
LS_CHECKED ls_status memory_init(struct memory *memory, size_t bytes, uint64_t job, int rank);
void memory_fini(struct memory *memory);
/* As memory_fini, but the user's blocks keep their addresses and content until memory_free_kept.
 * All other blocks are unmapped now, and the address space when the last of the user's blocks is
 * freed. */
void memory_keep(struct memory *memory) LOCK_AVOIDS(memory);
/* As memory_free, for a block that was kept. In a forked child it does nothing and returns LS_OK,
 * because the block does not exist there. */
LS_CHECKED ls_status memory_free_kept(void *block, void (*called)(char *out, size_t bytes))
	LOCK_AVOIDS(memory);

/* A forked child has no arena: memory_alloc returns LS_FORKED, memory_free does nothing,
 * memory_fini frees only the child's own memory. */
static inline bool memory_in_child(const struct memory *memory)
{
	return memory->generation != fork_generation();
}

/* As ls_alloc; *out is NULL on failure. A hit costs one lock and a list pop. */
LS_CHECKED ls_status memory_alloc(struct memory *memory, size_t bytes, void **out)
	LOCK_AVOIDS(memory);
/* As memory_alloc, without a message on failure: NULL. */
void *memory_alloc_quietly(struct memory *memory, size_t bytes) LOCK_AVOIDS(memory);
/* As memory_alloc, for a block that the user frees, and that may therefore be kept. */
LS_CHECKED ls_status memory_alloc_for_user(struct memory *memory, size_t bytes, void **out)
	LOCK_AVOIDS(memory);
/* called: writes ", called from PLACE" or nothing, for the error message; NULL: nothing. */
LS_CHECKED ls_status memory_free(struct memory *memory, void *block,
				 void (*called)(char *out, size_t bytes)) LOCK_AVOIDS(memory);

/* Whether this is the address of a live block of at least `bytes`, which is the user's. */
bool memory_has_block(struct memory *memory, const void *address, size_t bytes) LOCK_AVOIDS(memory);
/* The bytes of a live block at this address; 0: there is none. */
size_t memory_bytes_of(struct memory *memory, const void *address) LOCK_AVOIDS(memory);
/* A peer owns the block from now on: memory_keep does not keep it for the user. */
void memory_give_block(struct memory *memory, const void *address) LOCK_AVOIDS(memory);

/* True, with the offset that peers use, if [address, address + bytes) lies in a block of the arena
 * that peers still see, or in one region that all have mapped. The cost is one range compare; once
 * something was revoked also a look at each page; and a look at each region, if there are any. For
 * a region one system call of less than a microsecond checks whether the region is still mapped
 * there. */
bool memory_offset(struct memory *memory, const void *address, size_t bytes, uint64_t *offset)
	LOCK_AVOIDS(memory);
/* As memory_offset, but only these world ranks need to have mapped the region; NULL: all. */
bool memory_offset_for(struct memory *memory, const void *address, size_t bytes,
		       const struct ranks *peers, uint64_t *offset) LOCK_AVOIDS(memory);

/* Whether a short call has to look at its buffers: this rank has had memory of a device, or races
 * are looked for (LOCKSTEP_CHECK). One load. */
static inline bool memory_inspects_buffers(const struct memory *memory)
{
	bool has = atomic_load_explicit(&memory->inspects_buffers, memory_order_relaxed);
	return __builtin_expect(has, false);
}

/* Short calls look at their buffers from now on, as with memory of a device. */
static inline void memory_inspect_buffers(struct memory *memory)
{
	atomic_store_explicit(&memory->inspects_buffers, true, memory_order_release);
}

/* Revokes the peers' access to the pages under [address, address + bytes): the caller's addresses
 * become a private copy, and late writes of peers reach pages that nobody reads. No write of this
 * process is lost, not even of a thread that writes meanwhile. The owner may still use the block,
 * but memory_offset is false for those pages, and after memory_free the block is never reused.
 * Meant for a failed operation whose peers have not said that they are done. May be repeated.
 * Errors: LS_BAD_ARGUMENT if the range is not live memory of the arena (a region belongs to the
 * program, which shares it with others); LS_OUT_OF_MEMORY, with a message: pages that could not be
 * copied are unchanged. */
LS_CHECKED ls_status memory_revoke(struct memory *memory, void *address, size_t bytes)
	LOCK_AVOIDS(memory);

void memory_stats(struct memory *memory, struct memory_stats *out) LOCK_AVOIDS(memory);
bool memory_is_valid(struct memory *memory) LOCK_AVOIDS(memory);

enum { MEMORY_MAPPINGS = 24 }; /* of one view, each twice as large as the one before at least */
struct memory_mapping {
	unsigned char *base;
	size_t bytes;
};

/* A peer's arena as this process sees it. */
struct memory_view {
	_Atomic(unsigned char *) base; /* of the newest mapping, and how far that reaches */
	_Atomic size_t mapped;
	size_t bytes; /* of the arena */
	int place;
	struct lock_memory lock; /* for growing, and for adding regions */
	struct memory_mapping mappings[MEMORY_MAPPINGS];
	int mapping_count;
	_Atomic int region_count; /* grows */
	struct memory_region_view regions[MEMORY_REGIONS];
};
/* Maps the beginning of a peer's arena (fd stays the caller's). place: the peer's rank, which
 * determines the address range. The size is taken from the file, not from the peer. Errors:
 * LS_UNTRUSTED_PEER if it is not an arena, or could be shrunk; LS_OUT_OF_MEMORY, LS_SYSTEM; all
 * with a message. */
LS_CHECKED ls_status memory_view_open(struct memory_view *view, int fd, int place);
void memory_view_close(struct memory_view *view);
/* NULL if [offset, offset + bytes) is not in the arena or a region: an offset from a peer is never
 * trusted. NULL with a message if the system refuses to map this much of the arena. The address is
 * right until the view is closed; a later call may give another one, of the same memory. */
void *memory_view_at(struct memory_view *view, uint64_t offset, uint64_t bytes);

#endif
