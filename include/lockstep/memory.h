/* SPDX-License-Identifier: BSD-3-Clause
 * Memory that the other ranks of this host access without a copy. See ls_alloc(3).
 *
 * Arena: the range of shared memory, reserved for each rank when the world group is opened, from
 * which ls_alloc allocates. Plain memory: any other memory, such as malloc's, unless it is
 * registered. */
#ifndef LOCKSTEP_MEMORY_H
#define LOCKSTEP_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "group.h"
#include "request.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Allocates a block of at least `bytes` bytes, aligned to 64, with undefined content. Freed blocks
 * are cached and reused, so that a training loop touches new pages only in its first step. For 0
 * bytes *out is a valid block that holds nothing. Local; any thread; does not block. A forked child
 * has no access to this memory.
 * Errors: LS_BAD_ARGUMENT, LS_OUT_OF_MEMORY (a message says what is in use), LS_FORKED; *out is
 * NULL. */
LS_EXPORT LS_CHECKED ls_status ls_alloc(ls_group *group, size_t bytes, void **out);

/* Frees a block of ls_alloc or ls_recv_block; NULL is allowed. The caller must not free a buffer
 * that an operation is using. With group NULL it frees a block that has outlived its group
 * (keep_memory of struct ls_group_options). Local; any thread; does not block. In a forked child it
 * does nothing and returns LS_OK.
 * Errors: LS_BAD_ARGUMENT for an address that is not a block in use of this group, and with
 * LOCKSTEP_CHECK=1 for one that an operation is using. */
LS_EXPORT LS_CHECKED ls_status ls_free(ls_group *group, void *block);

/* Registers shared memory of the program with all ranks of the group, so that those of this host
 * access buffers in it without a copy, like memory of ls_alloc: a memfd, a file in /dev/shm, a
 * tensor in shared memory. `address` is where this process has mapped `bytes` of `fd`, from
 * `offset` on, with MAP_SHARED, readable and writable. address and offset are multiples of the page
 * size. A rank that has nothing to register calls with bytes 0. The caller may close the descriptor
 * when the call has returned. Memory that is registered already is not registered again;
 * registered_again of ls_memory_stats counts such calls. A rank can register 64 ranges over the
 * life of the world group.
 *
 * A registration ends with ls_deregister, when the world group is closed, or with the mapping. A
 * call that is given a buffer in the range asks the system whether this part of the file is still
 * mapped there. If not, the registration ends, the message LS-MEMORY-GONE says so once, and the
 * buffer is treated as plain memory. As with any buffer, the memory must stay mapped while an
 * operation uses it; and the file must not be truncated. Before Linux 6.11 the query is slow, so
 * buffers of less than 1 MiB are treated as plain. After a failed operation Lockstep cannot revoke
 * a stopped peer's access to such memory, because other processes share it; the failed call then
 * returns LS_SYSTEM, with the message LS-MEMORY-DETACH.
 *
 * Collective and blocking; it takes its place in the order of the group's collectives. Of the
 * options, `label` and `timeout_ms` are used; `request` and `callback` must be NULL, else
 * LS_BAD_ARGUMENT. Either all ranks have registered, or all return the same error, which a message
 * explains: LS_BAD_ARGUMENT (some rank's memory is not as described), LS_UNSUPPORTED (the system
 * does not let ranks open each other's files), LS_OUT_OF_MEMORY, LS_SYSTEM, or the errors of a
 * collective. */
LS_EXPORT LS_CHECKED ls_status ls_register(ls_group *group, void *address, size_t bytes, int fd,
					   uint64_t offset, const struct ls_call_options *options);

/* Ends the registration of the range that begins at `address`: buffers in it are plain memory from
 * now on. Call it before the memory is unmapped. Local; any thread; does not block; operations that
 * are under way finish as they began. Peers keep their mapping until they close the world group.
 * Errors: LS_BAD_ARGUMENT if no range that begins at `address` is registered by this rank. */
LS_EXPORT LS_CHECKED ls_status ls_deregister(ls_group *group, const void *address);

/* Memory use of this rank. All groups of a rank share one arena. */
struct ls_memory_stats {
	uint32_t size;         /* sizeof(struct ls_memory_stats), set by the caller */
	uint32_t unused;       /* of no meaning */
	uint64_t arena_bytes;  /* address space for ls_alloc */
	uint64_t live_bytes;   /* in blocks that are in use */
	uint64_t cached_bytes; /* in blocks that were freed and are kept for reuse */
	uint64_t hits, misses; /* calls of ls_alloc that reused a block, and that did not */
	/* The number of ranges that this rank has registered, their bytes, and how often
	 * ls_register found its range registered already. */
	uint64_t registered, registered_bytes, registered_again;
	uint64_t registrable; /* how many further ranges it can register */
};
/* Local, any thread.
 * Errors: LS_BAD_ARGUMENT, LS_FORKED. */
LS_EXPORT LS_CHECKED ls_status ls_memory_stats(ls_group *group, struct ls_memory_stats *out);

#ifdef __cplusplus
}
#endif
#endif
