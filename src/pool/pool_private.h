/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of this room share. blocks.c and bins.h: blocks, segments and free lists.
 * streams.c: which streams there are. marks.c: how far they are. queues.c: room in their queues.
 * reclaim.c: what the driver gets back. close.c: the end. contents.c: what the pool has.
 * exhausted.c: why it has no memory. callers.c: threads that may wait here. pool.c: the calls. */
#ifndef POOL_POOL_PRIVATE_H
#define POOL_POOL_PRIVATE_H

#include "pool/launch.h"
#include "pool/pool.h"

enum {
	POOL_UNIT_BYTES = TRACE_MEMORY_UNIT_BYTES,
	POOL_SMALL_BYTES = 1 << 20,   /* a request of up to this much comes from a shared segment */
	POOL_SEGMENT_BYTES = 2 << 20, /* bytes of such a segment; other segments have multiples */
	POOL_BINS = TRACE_MEMORY_BINS, /* eight to a doubling */
	POOL_BIN_WORDS = (POOL_BINS + 63) / 64,
	POOL_SCAN = 16,             /* blocks of one bin that a search looks at */
	POOL_LARGE_BYTES = 8 << 20, /* smaller blocks are split for any request */
	POOL_SLACK_BYTES = 8 << 20, /* bytes that may be reserved beyond the peak in any case */
};

enum { POOL_LAUNCH_RECORDS = 256 }; /* more than queues have of launches in flight */

enum pool_state { POOL_LIVE, POOL_CACHED, POOL_PENDING };

/* A stream that used the block. The block is pending until the stream has reached `number`. */
struct pool_use {
	struct pool_use *next;
	uint64_t number;
	int stream;
};

struct pool_block {
	unsigned char *address;
	size_t bytes;
	struct pool_segment *segment;
	struct pool_block *left, *right; /* its neighbours in the segment */
	struct pool_block *next, **link; /* in a bin, or of the pending blocks */
	struct pool_use *uses;           /* of other streams */
	/* Other streams may use the block when its stream has reached this number. 0: at once. */
	uint64_t number;
	uint16_t bin;   /* the bin for blocks of its size */
	uint8_t stream; /* the stream that it belongs to */
	uint8_t state;
};

/* What the driver has handed out. */
struct pool_segment {
	struct pool_due due; /* first: the gate knows the segment by it */
	struct pool *pool;
	struct pool_segment *next, **link;
	struct pool_block *first;
	bool small;        /* for requests of up to POOL_SMALL_BYTES */
	bool has_unmerged; /* it may have neighbours that are both cached and not merged */
	bool unwanted; /* pool_trim wanted to give it back, but its stream had not done its work */
};

/* Cached blocks of one stream. Bit i of `has`: list i may have some; without the bit list i is
 * empty. */
struct pool_bins {
	uint64_t has[POOL_BIN_WORDS];
	struct pool_block *lists[POOL_BINS];
};

/* How far a stream is. A mark is a store of the next number to `done`, enqueued behind the work
 * that the stream has. At most one is under way, so `done` only grows, although threads enqueue
 * marks without a lock:
 *   wanted >= issued >= done >= issued - 1 */
struct pool_stream {
	void *handle; /* NULL is a stream, too */
	struct driver_queue queue;
	_Atomic uint64_t done;
	uint64_t issued, wanted;
	bool putting; /* a thread is about to enqueue mark `issued` on the stream */
	/* The program has no such stream, or not any more: it has reached every number. */
	bool forgotten;
	bool is_gone;   /* the program was told that it has destroyed a stream that is needed */
	bool allocates; /* false: it was only recorded, so it wants no blocks of others */
	/* blocks that belong to it, and its uses of other streams' blocks */
	uint32_t blocks;
	struct pool_bins *bins; /* [0]: of small segments; [1]: of others. NULL: no slot in use */
};

/* A stream that launches have been put behind, or a place for one. It may become another stream's
 * when nothing is in flight; `inflight` stays, so that its numbers go on. */
struct pool_launch_stream {
	void *handle;                   /* under the lock */
	struct driver_queue queue;      /* under the lock */
	uint32_t users;                 /* under the lock: threads between claim and end */
	uint32_t user_tid;              /* under the lock: the last one that came */
	struct pool_inflight *inflight; /* NULL: no stream has used this place yet */
	/* Under the lock: of the newest launches, at the number's remainder, the trace record of
	 * what was put on the stream, 0: not known. NULL: no memory for that. */
	uint64_t *records;
	/* raised when a thread claims the stream to launch on it, and when the claim ends; odd in
	 * between */
	_Atomic uint64_t claims;
	_Atomic uint64_t recent, follows; /* of struct pool_launch */
};

/* A thread in a call that may wait; on its stack. */
struct pool_caller {
	struct pool_caller *next;
	const char *call;
	uint32_t tid;
};

struct pool {
	struct pool_options options;
	char name[32];
	struct lock_pool lock;
	struct pool_stream streams[POOL_STREAMS]; /* fields but `done` under the lock */
	int stream_count LOCK_GUARDED(pool);
	int last_stream LOCK_GUARDED(pool); /* the stream that a call named last */
	struct pool_launch_stream launch_streams[POOL_STREAMS];
	struct pool_segment *segments LOCK_GUARDED(pool);
	struct pool_block *pending LOCK_GUARDED(pool);
	uint64_t puts LOCK_GUARDED(pool); /* how often a block became a cached one */
	struct pool_block *spare_blocks LOCK_GUARDED(pool); /* linked by `right` */
	struct pool_use *spare_uses LOCK_GUARDED(pool);
	struct pool_chunk *chunks LOCK_GUARDED(pool); /* the memory of those two */
	/* Blocks by address: open addressing, a power of two, at most half full. */
	struct pool_block **table LOCK_GUARDED(pool);
	size_t table_mask LOCK_GUARDED(pool), table_count LOCK_GUARDED(pool);
	/* options.counters, or own_counters */
	struct trace_memory *counters LOCK_GUARDED(pool);
	struct trace_memory own_counters;
	size_t slack LOCK_GUARDED(pool); /* allowed beyond the peak: pool_make_room */
	/* Bytes that went to the gate, and that the driver or the pool has got back from it. One
	 * word says both that there is less to come, and that a wait may be over. Their difference
	 * is counters->put_off, as far as others may see it. */
	_Atomic size_t offered, returned;
	size_t reserved LOCK_GUARDED(pool); /* bytes on their way into blocks */
	struct pool_caller *callers LOCK_GUARDED(pool);
};

/* ---- callers.c ---- */

/* Around all that a call may wait for. The pool may be closed once the thread has left. */
void pool_caller_enter(struct pool *pool, struct pool_caller *caller, const char *call)
	LOCK_AVOIDS(pool);
void pool_caller_leave(struct pool *pool, const struct pool_caller *caller) LOCK_AVOIDS(pool);

/* ---- blocks.c: all with the lock ---- */

static inline size_t pool_round(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

/* Room for what a call may need of blocks, uses and the table; false: no memory. */
bool pool_prepare(struct pool *pool) LOCK_REQUIRES(pool);
/* The segment becomes part of the pool, as one cached block of this stream. */
void pool_add_segment(struct pool *pool, struct pool_segment *segment, int stream)
	LOCK_REQUIRES(pool);
/* A segment that is one cached block leaves the pool. */
void pool_remove_segment(struct pool *pool, struct pool_segment *segment) LOCK_REQUIRES(pool);
/* Merges cached neighbours that the same streams may use, in one segment or in all. */
void pool_merge_segment(struct pool *pool, struct pool_segment *segment) LOCK_REQUIRES(pool);
void pool_merge(struct pool *pool) LOCK_REQUIRES(pool);
/* Which cached blocks a request may have. */
enum pool_choice {
	POOL_GOOD, /* those that it would use well */
	/* also a large block for a much smaller request; then the segment of that block cannot be
	 * given back */
	POOL_LARGER,
	/* also those of segments for smaller or larger requests; the search leaves out none */
	POOL_ANY,
};
/* Takes a cached block that this stream may use: its own; neighbours that it may use together; that
 * of another stream that has reached the block's number. The best of those that it looks at, split
 * if that is worth it. The block belongs to `stream` from now on, and its `state` is live. NULL:
 * there is none; then the streams that would have one later want marks. */
struct pool_block *pool_pick(struct pool *pool, int stream, size_t bytes, enum pool_choice choice)
	LOCK_REQUIRES(pool);
/* Moves the cached blocks of a stream that other streams may use to the stream `to`; wants a mark
 * for the rest. */
void pool_hand_over(struct pool *pool, int stream, int to) LOCK_REQUIRES(pool);
void pool_free_chunks(struct pool *pool) LOCK_REQUIRES(pool);
static inline size_t pool_cached(const struct pool *pool) LOCK_REQUIRES(pool)
{
	return trace_memory_get(&pool->counters->owned) - trace_memory_get(&pool->counters->live) -
	       trace_memory_get(&pool->counters->pending);
}
/* Bytes of the largest cached block. Looks at all blocks. */
size_t pool_largest_cached(const struct pool *pool) LOCK_REQUIRES(pool);

/* ---- marks.c ---- */

bool pool_stream_has_reached(const struct pool *pool, int stream, uint64_t number);
/* The number that the stream has reached when it has done what it has now. */
static inline uint64_t pool_stream_number(const struct pool *pool, int stream) LOCK_REQUIRES(pool)
{
	return pool->streams[stream].issued + 1;
}
/* Asks for a mark of that number on the stream; pool_put_marks puts it there. */
void pool_want(struct pool *pool, int stream, uint64_t number) LOCK_REQUIRES(pool);
/* Puts the wanted marks behind their streams, where none is under way. A stream that is captured,
 * whose queue refuses or may be full, gets its mark at a later call. */
void pool_put_marks(struct pool *pool) LOCK_AVOIDS_ALL;
/* Frees pending blocks whose streams have done their work. True: there were some. */
bool pool_settle(struct pool *pool) LOCK_REQUIRES(pool);

/* ---- streams.c ---- */

/* Says that this call of the program fails with `status`, because a call of the driver, which has
 * said why, has failed. */
void pool_say_failed(const struct pool *pool, ls_status status);
/* The slot of a stream. -1: it has none. */
int pool_stream_search(struct pool *pool, const void *handle) LOCK_REQUIRES(pool);
static inline int pool_stream_find(struct pool *pool, const void *handle) LOCK_REQUIRES(pool)
{
	const struct pool_stream *last = &pool->streams[pool->last_stream];
	if (last->handle == handle && !last->forgotten)
		return pool->last_stream;
	return pool_stream_search(pool, handle);
}
/* The slot of a stream. A stream without a slot gets one after pool_stream_check, unless the caller
 * has `checked` it. *out counts as in use until the caller lowers `blocks`. */
LS_CHECKED ls_status pool_stream_enter(struct pool *pool, void *handle, bool checked, int *out)
	LOCK_AVOIDS_ALL;
/* Bytes at the gate. */
static inline size_t pool_put_off(const struct pool *pool)
{
	size_t returned = atomic_load(&pool->returned);
	return atomic_load(&pool->offered) - returned;
}

/* ---- queues.c ---- */

void pool_queue_find(const struct pool *pool, const void *handle, struct driver_queue *out);
/* Whether a launch may count on room in the queue. */
static inline bool pool_queue_is_certain(const struct driver_queue *queue)
{
	return queue->depth >= POOL_LAUNCH_ENTRIES;
}
/* Whether the queue has room for this many entries more, beside what this pool has put there. Also
 * true if the queue's room is not certain, or the device is broken: then nothing would say when
 * there is room. */
bool pool_queue_has_room(const struct pool *pool, const struct driver_queue *queue,
			 uint64_t entries) LOCK_REQUIRES(pool);
/* The number of the next launch on this stream, once its queue has room for it. The caller that
 * takes a number has the room. The wait is shown as one of `op`, and with what is first on each
 * stream of the queue. Errors: LS_TIMED_OUT, and all others that end a wait. */
LS_CHECKED ls_status pool_queue_issue(struct pool *pool, struct pool_launch_stream *launched,
				      struct waiter *waiter, uint64_t deadline_ns,
				      const struct pool_launch_op *op, uint64_t *number)
	LOCK_AVOIDS_ALL;

/* ---- launch.c ---- */

/* The next stream with this handle is another one: nothing that was put there is in front of what
 * comes. */
void pool_launches_forget(struct pool *pool, const void *stream) LOCK_REQUIRES(pool);
/* Whether the device reads and stores no word of a launch any more. */
bool pool_launches_are_done(struct pool *pool);
void pool_launches_close(struct pool *pool);

/* ---- reclaim.c ---- */

/* The bytes of a new segment for this request. */
static inline size_t pool_segment_bytes(size_t bytes)
{
	return bytes <= POOL_SMALL_BYTES ? POOL_SEGMENT_BYTES
					 : pool_round(bytes, POOL_SEGMENT_BYTES);
}

/* Counts bytes that go to the gate. */
void pool_count_offered(struct pool *pool, size_t bytes) LOCK_REQUIRES(pool);
/* Gives back idle segments, so that a new one for this many bytes leaves little reserved beyond the
 * peak. False: idle segments are too few, or in use, or the driver's give waits. */
bool pool_make_room(struct pool *pool, size_t bytes) LOCK_AVOIDS_ALL;
/* A new segment that has room for this many bytes: one that was to be given back and fits well,
 * else one of the driver. */
LS_CHECKED ls_status pool_take(struct pool *pool, size_t bytes, int stream) LOCK_AVOIDS_ALL;
/* Takes back the smallest segment that was to be given back, of at least `bytes` and at most `most`
 * bytes. LS_OUT_OF_MEMORY: there is none. */
LS_CHECKED ls_status pool_take_back(struct pool *pool, size_t bytes, size_t most, int stream)
	LOCK_AVOIDS_ALL;
/* As pool_trim, for a thread that is in a call of the pool. */
void pool_trim_to(struct pool *pool, size_t keep_bytes) LOCK_AVOIDS_ALL;
/* Gives back unwanted segments whose streams have done their work, and what is due at the gate. */
void pool_give_unwanted(struct pool *pool) LOCK_AVOIDS_ALL;
/* Changes whenever a block has become a cached one, a stream has reached a mark, the driver has got
 * something back, or the device has broken. */
uint64_t pool_moment(struct pool *pool) LOCK_AVOIDS(pool);
/* The foreign call that a thread of the rank shows while it waits for its device. */
struct pool_patience {
	const char *call;
	uint64_t since_ns; /* when it first waited; 0: it has not */
	uint64_t soon_ns;  /* until then it waits for whole segments; 0: it has not waited */
	uint64_t deadline_ns;
};
/* Waits until a stream, a launch or another thread may have freed something since `moment`; a
 * signal handler does not end that for the caller, as LS_INTERRUPTED is a status of groups. */
LS_CHECKED ls_status pool_wait_for_any(struct pool *pool, uint64_t moment,
				       struct pool_patience *patience) LOCK_AVOIDS_ALL;
/* Waits until memory may have come back since that moment. LS_OUT_OF_MEMORY: none will come back,
 * or the thread has a launch open, or the time limit has passed. LS_TIMED_OUT: it would wait, but
 * is in a callback. The status of the device, if that is broken: memory that seems to have come
 * back then is of no use. */
LS_CHECKED ls_status pool_await_memory(struct pool *pool, uint64_t moment,
				       struct pool_patience *patience) LOCK_AVOIDS_ALL;

/* ---- exhausted.c ---- */

/* Whether so much is more than the device has, or than the limit allows, so that nothing that is
 * freed could help. */
bool pool_can_never_have(struct pool *pool, size_t bytes) LOCK_AVOIDS(pool);
/* Says why there are no `bytes` bytes, and who holds what. */
void pool_say_exhausted(struct pool *pool, size_t bytes) LOCK_AVOIDS(pool);

#endif
