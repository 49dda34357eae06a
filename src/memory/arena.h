/* SPDX-License-Identifier: BSD-3-Clause
 * The system's side of an arena, for memory.c and peer_view.c alone: the file, its mappings, its
 * pages. */
#ifndef MEMORY_ARENA_H
#define MEMORY_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

/* Makes and maps the sealed, sparse file. On failure *base is NULL and *fd is -1, with a
 * message. */
LS_CHECKED ls_status memory_arena_open(size_t bytes, uint64_t job, int rank, unsigned char **base,
				       int *fd);

/* Maps the first `bytes` of the file. NULL, with errno, on failure. A forked child does not get the
 * mapping, because shared pages are not copied on write. */
void *memory_arena_map(int fd, size_t bytes, int place);
/* Maps once more the file whose beginning is mapped at `mapped`; the old mapping stays. */
void *memory_arena_map_again(void *mapped, size_t bytes, int place);
/* Whether an errno says that memory, descriptors or mappings have run out. */
bool memory_is_exhaustion(int error);

/* Allocates the file's pages up to `wanted` at least. *committed: up to where it has pages. Returns
 * 0 or an errno. */
int memory_arena_commit(int fd, size_t bytes, size_t wanted, size_t *committed);

/* Replaces the shared pages at `address`, which lie at `offset` in the file, with private copies.
 * Returns 0 or an errno, and then the pages are as before. */
int memory_arena_make_private(int fd, unsigned char *address, size_t bytes, size_t offset,
			      size_t page_bytes);

#endif
