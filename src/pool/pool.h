/* SPDX-License-Identifier: BSD-3-Clause
 * Memory of one device, cached as blocks by stream, because training programs need thousands of
 * blocks a second, and a driver takes long for each, or waits for the device. README.md has the
 * picture.
 *
 *   live     the program has it
 *   cached   freed. The stream that it belongs to may use it at once, because a stream does its
 *            work in order. Other streams may, once that stream has done what it had at the free
 *   pending  freed, and some other stream that used it (pool_record) has not done what it had then
 *
 * Invariant (pool_is_valid): the blocks of a segment fill it without gaps, and live + cached +
 * pending == the bytes of all segments of the pool. Memory that is put off (gate.h) is in no
 * segment; `reserved` counts it, too.
 *
 * Nothing here makes one stream wait for another, or waits for a stream, except a call that would
 * have to fail for lack of memory otherwise. No lock is held in a call of the driver.
 *
 * Any thread may call these functions. They call the driver only if no cached block fits, for a
 * free of a block that other streams have used, and for a trim. The driver may then wait for room
 * in a stream's queue. */
#ifndef POOL_POOL_H
#define POOL_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/device.h>
#include <lockstep/status.h>

#include "base/lock.h"
#include "base/wait.h"
#include "device/driver.h"
#include "pool/gate.h"
#include "trace/trace_memory.h"

enum { POOL_STREAMS = 64 }; /* that have blocks at the same time */

struct pool;

struct pool_options {
	struct driver *driver;
	struct pool_gate *gate; /* of all devices that its driver may wait for at once */
	struct waiter *waiter;  /* of the rank */
	const char *name;       /* "cuda:0", for messages; copied */
	size_t limit_bytes;     /* the most that the pool may take from the driver; 0: no limit */
	/* Where the pool counts, all zero at first; others may read it. It belongs to the pool
	 * until pool_close has succeeded, or until pool_detach. NULL: the pool counts in memory of
	 * its own. */
	struct trace_memory *counters;
};

struct pool_stats {
	size_t live, cached, pending; /* bytes in blocks of this kind */
	size_t put_off;               /* bytes that the driver will get back when it may wait */
	size_t reserved;              /* bytes that the driver has not got back: all of these */
	size_t peak_live, peak_reserved;
	size_t largest_cached; /* bytes of the largest cached block */
	uint64_t live_blocks, segments;
	uint64_t hits, misses; /* allocations that found a cached block, or asked the driver */
};

/* Errors: LS_OUT_OF_MEMORY, with a message. */
LS_CHECKED ls_status pool_open(struct pool **out, const struct pool_options *options);
/* Gives all memory back, live blocks too; then the counters show that. The program uses none of it
 * any more, except that streams may have work that was enqueued before. Blocks until that work is
 * done, until the device is broken, or until the deadline, whatever signal handlers run. At the
 * deadline it returns LS_TIMED_OUT, and if all that it would wait for is streams that the program
 * has destroyed, at once LS_BAD_ARGUMENT, with a message. Then it never gives the memory back, so
 * that no kernel writes to memory of others. */
LS_CHECKED ls_status pool_close(struct pool *pool, uint64_t deadline_ns) LOCK_AVOIDS_ALL;

/* A thread that is in a call of this pool that may wait: its id, and the name of the call. 0: there
 * is none. */
uint32_t pool_find_caller(struct pool *pool, const char **call) LOCK_AVOIDS(pool);

/* Call for a pool that is never closed: the counters that it was given no longer belong to it. */
void pool_detach(struct pool *pool) LOCK_AVOIDS(pool);

/* At least `bytes` bytes, aligned to 512, for work behind `stream`; the content is undefined. If
 * the device has no memory, the call waits until streams and launches that are under way have freed
 * enough, if those could, or until the deadline; a thread that has a launch open does not wait. A
 * thread in a callback does not either: LS_TIMED_OUT, without a message, if it would have to. A
 * signal handler does not end the wait. 0 bytes: a block that holds nothing. Errors:
 * LS_OUT_OF_MEMORY (a message says who holds what, or that POOL_STREAMS other streams have blocks),
 * LS_BAD_ARGUMENT (the stream is not of this device; a message says which), LS_UNSUPPORTED (the
 * stream is being captured; the driver is not asked for a block that the cache has: do not allocate
 * for such a stream), LS_SYSTEM; *out is NULL. */
LS_CHECKED ls_status pool_alloc(struct pool *pool, size_t bytes, void *stream, uint64_t deadline_ns,
				void **out) LOCK_AVOIDS_ALL;

/* Frees a block; the streams that use it may have work for it still. Never waits for one of them.
 * called: writes ", called from PLACE" or nothing, for messages; NULL: nothing. Errors:
 * LS_BAD_ARGUMENT, with a message: it is no live block of this pool. */
LS_CHECKED ls_status pool_free(struct pool *pool, void *block,
			       void (*called)(char *out, size_t bytes)) LOCK_AVOIDS_ALL;

/* Says that this stream uses the block, too: after pool_free the pool hands the block out again
 * only when the stream has done the work that it has by then. Errors: as of pool_free and
 * pool_alloc. */
LS_CHECKED ls_status pool_record(struct pool *pool, void *block, void *stream,
				 void (*called)(char *out, size_t bytes)) LOCK_AVOIDS_ALL;

/* Changes the limit, for all that the driver is asked for from now on. 0: no limit. */
void pool_limit(struct pool *pool, size_t bytes) LOCK_AVOIDS(pool);

/* Gives back segments without a live or pending block, until at most keep_bytes are reserved. What
 * streams still use, or what the driver would have to wait for, follows later, in other calls. */
void pool_trim(struct pool *pool, size_t keep_bytes) LOCK_AVOIDS_ALL;

/* Call when the stream is about to be destroyed, and has done its work: the pool puts no more marks
 * behind it. Waits for a thread that is in the driver to put one. Call it for each stream that was
 * passed to the pool and that does not live as long as the pool. LS_TIMED_OUT, without a message:
 * it would wait, but is in a callback, and has done nothing. */
LS_CHECKED ls_status pool_forget(struct pool *pool, const void *stream) LOCK_AVOIDS_ALL;

enum { POOL_USES = 64 };
/* The bytes of a block at this address, and the streams that use it, at most `max`. Returns how
 * many streams it has written, or -1: there is no live block. */
int pool_uses(struct pool *pool, const void *address, size_t *bytes, void **streams, int max)
	LOCK_AVOIDS(pool);
/* The first piece of this range that lies in memory of the pool and in no live block; NULL: none.
 * *piece: its bytes, as far as its block and the range go. */
const void *pool_find_free(struct pool *pool, const void *address, size_t bytes, size_t *piece)
	LOCK_AVOIDS(pool);

void pool_stats(struct pool *pool, struct pool_stats *out) LOCK_AVOIDS(pool);
/* Writes at most `max` blocks, and returns how many there are; see ls_device_snapshot. Looks at all
 * blocks with the lock held. */
size_t pool_snapshot(struct pool *pool, struct ls_device_block *out, size_t max) LOCK_AVOIDS(pool);
bool pool_is_valid(struct pool *pool) LOCK_AVOIDS(pool);

#endif
