/* SPDX-License-Identifier: BSD-3-Clause
 * Memory, streams and launches of a device. See ls_device(3).
 *
 * This version has one driver, `sim`, a simulated device; there is none for CUDA yet. A rank has
 * one device at most: the option `device` of ls_group_open. A stream is a handle of the device's
 * driver, which the program makes and destroys. The driver does the work that is enqueued on a
 * stream later, in order.
 *
 * Operations on a stream: with options->stream set, a call enqueues its collective, send or receive
 * on that stream, behind the work that the stream already has. Work that the program enqueues
 * afterwards sees the result. Buffers may be device memory, of whatever origin, or host memory.
 * Without `request` and `callback` the call returns when everything is enqueued, and does not wait
 * for the data to move; a failure shows in the next call on the group, in ls_group_failure, and in
 * the report. With `request`, ls_wait returns when the stream has done the operation. The order of
 * the calls decides which collectives and messages match, as without a stream; the streams do not
 * change it. An operation on a stream cannot be cancelled. LOCKSTEP_BLOCKING=1 makes each
 * collective outside of a launch wait until it is complete. Without `request` and `callback` the
 * call then returns the operation's status; otherwise it returns LS_OK, and the handle or the
 * callback has the status. Errors, in addition to those of the call: LS_BAD_ARGUMENT (no device,
 * the stream is not of this device, or options->resumable is set), LS_UNSUPPORTED (the stream is
 * being captured for a graph), LS_ABORTED (also if another thread has begun a capture during the
 * call: see LS-DEVICE-CAPTURE), LS_OUT_OF_MEMORY, LS_SYSTEM (the driver failed).
 *
 * Without options->stream a call on device memory needs the memory to be ready, and blocks as on
 * host memory. Collectives take device memory, and so do sends and receives that block; ls_isend,
 * ls_irecv and batches refuse it.
 *
 * Order: Lockstep orders work within one stream only. Two streams that touch the same memory need
 * an order from the program: ls_request_follow, an event, or a wait of the host. With
 * LOCKSTEP_CHECK=1 Lockstep refuses an operation without one, and names both call sites
 * (LS-RACE-OVERLAP), if the driver shows it the program's events. It sees copies of the program,
 * and kernels whose buffers the program has named (sim_launch_using). It also refuses
 * ls_device_free of a block that a stream still uses (LS-RACE-FREE), and an operation on memory
 * that was freed (LS-RACE-FREED).
 *
 * Deadlocks: Lockstep calls the driver with no lock of its own held. A driver may wait for all its
 * devices when it gets memory back. So Lockstep gives memory back only while no operation is in
 * flight on these devices, and keeps it until then, for allocations to use. No call makes one
 * stream wait for another, except ls_request_follow.
 *
 * Threads: any thread may make these calls, several threads also on one stream. A call waits
 * neither for other ranks nor for the device, unless its comment says so, with two exceptions. (1)
 * While earlier operations leave no room in the queue of a stream, an operation on it, and
 * ls_request_follow, wait for room. No thread is in the driver meanwhile, so others can call it; a
 * failure of the group or the time limit ends the wait. (2) If the driver does not report the
 * length of its queues, or its calls wait for their own work, the call returns only when this
 * operation needs no other rank any more. Lockstep does not see the work that the program enqueues
 * itself: if that fills a queue, the driver makes callers wait, callers of Lockstep included. In a
 * forked child all calls return LS_FORKED. The exception is ls_launch_end, which returns
 * LS_BAD_ARGUMENT if the thread was in no launch when the parent forked. */
#ifndef LOCKSTEP_DEVICE_H
#define LOCKSTEP_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "group.h"
#include "request.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Allocates at least `bytes` bytes of device memory, aligned to 512, with undefined content. The
 * block belongs to `stream`: work on that stream may use it until ls_device_free, without more
 * calls. NULL: it belongs to no stream; before ls_device_free, name each stream that uses it by
 * ls_device_record, or wait until those streams are done. For 0 bytes *out is a valid block that
 * holds nothing. All groups of a rank share the memory. Lockstep caches freed blocks. If the device
 * has no memory left, the call waits for blocks that streams, operations or frees in other threads
 * are about to bring back, up to the group's time limit; a signal handler does not end that. A
 * thread between ls_launch_begin and ls_launch_end does not wait. In a completion callback
 * (ls_call_options) the call does not wait either: it returns LS_BAD_ARGUMENT if it would have to.
 * Errors, with a message: LS_OUT_OF_MEMORY (the message says who holds what, and names the limit if
 * ls_device_limit is the reason; the call returns at once if the device or the limit is smaller
 * than the block, or if 64 other streams have blocks), LS_BAD_ARGUMENT (no device, or the stream is
 * not of this device), LS_UNSUPPORTED (the stream is being captured; only with LOCKSTEP_CHECK=1
 * does the call notice that if the cache has a block), LS_SYSTEM; then *out is NULL. */
LS_EXPORT LS_CHECKED ls_status ls_device_alloc(ls_group *group, size_t bytes, void *stream,
					       void **out);

/* Frees a block; NULL is allowed. Work that is on the block's stream at this moment, and on the
 * streams that ls_device_record has named, may still use the block: Lockstep does not reuse it
 * before that work is done. Does not wait for it. Errors, with a message: LS_BAD_ARGUMENT (`block`
 * is no block in use of this rank's device). */
LS_EXPORT LS_CHECKED ls_status ls_device_free(ls_group *group, void *block);

/* Says that another stream uses the block, too. After ls_device_free, Lockstep does not reuse the
 * block until all work is done that was on `stream` at the time of the free. One call for each
 * stream is enough. Errors: as for ls_device_free and ls_device_alloc. */
LS_EXPORT LS_CHECKED ls_status ls_device_record(ls_group *group, void *block, void *stream);

/* Gives cached memory back to the driver, until at most keep_bytes are reserved. Lockstep gives
 * back later what streams still use, and what would make the driver wait; if the driver may wait in
 * a free, a completion callback leaves all of it to later calls. Errors, with a message:
 * LS_BAD_ARGUMENT (no device). */
LS_EXPORT LS_CHECKED ls_status ls_device_trim(ls_group *group, size_t keep_bytes);

/* Limits how much memory of the device Lockstep takes from the driver, for all groups of the rank
 * together. 0: no limit, as at first. It takes memory in multiples of 2 MiB. What it holds beyond
 * the limit at the time of this call stays; ls_device_trim gives back what is free. An allocation
 * that would exceed the limit behaves as if the device had no memory left: it gives idle memory
 * back, waits for memory that is about to be free, and if that does not suffice it returns
 * LS_OUT_OF_MEMORY, with a message that names the limit. One that is larger than the limit itself
 * returns that status at once. Memory that the program gets from the driver itself does not count.
 * Errors, with a message: LS_BAD_ARGUMENT (no device). */
LS_EXPORT LS_CHECKED ls_status ls_device_limit(ls_group *group, size_t bytes);

/* Makes Lockstep forget `stream`. Call it before you destroy a stream that blocks of Lockstep's or
 * operations have used, when all work on it is done. May wait for another thread that is in the
 * driver. Errors, with a message: LS_BAD_ARGUMENT (no device, `stream` is NULL, or the call would
 * have to wait in a completion callback; then the stream is not forgotten). */
LS_EXPORT LS_CHECKED ls_status ls_device_forget(ls_group *group, void *stream);

/* Bytes, unless said otherwise. live + cached + pending + put_off = reserved. */
struct ls_device_stats {
	uint32_t size;   /* sizeof(struct ls_device_stats), set by the caller */
	uint32_t unused; /* of no meaning */
	uint64_t live;   /* in blocks that are in use */
	/* Free: their own stream can reuse them at once, other streams when their own stream has
	 * reached the point of the free. */
	uint64_t cached;
	uint64_t pending; /* freed, and still used by a stream that was recorded */
	uint64_t put_off; /* the driver gets it back when nothing is in flight */
	uint64_t reserved, peak_live, peak_reserved;
	uint64_t largest_cached;        /* the largest cached block */
	uint64_t live_blocks, segments; /* how many */
	uint64_t hits, misses;          /* allocations from the cache; that asked the driver */
};
/* Fills *out. Errors, with a message: LS_BAD_ARGUMENT (no device, or out->size is wrong). */
LS_EXPORT LS_CHECKED ls_status ls_device_stats(ls_group *group, struct ls_device_stats *out);

enum ls_device_block_state {
	LS_DEVICE_BLOCK_LIVE,    /* in use */
	LS_DEVICE_BLOCK_CACHED,  /* free, see `cached` above */
	LS_DEVICE_BLOCK_PENDING, /* freed, and still used by a stream that was recorded */
	LS_DEVICE_BLOCK_PUT_OFF, /* the driver gets it back when nothing is in flight */
};
struct ls_device_block {
	void *address; /* of the device */
	uint64_t bytes;
	void *segment; /* where the memory begins that came from the driver in one piece */
	void *stream;  /* the block belongs to it; NULL: to none, or to one that was forgotten */
	uint32_t recorded; /* how many other streams ls_device_record has named */
	uint32_t state;    /* enum ls_device_block_state */
};
/* Lists the blocks of the device's memory as they are at one moment; those of a segment follow each
 * other by address, without gaps. Writes at most `max` of them to `out`, which may be NULL if `max`
 * is 0, and how many there are to *count. If that is more than `max`, call again with more room.
 * The blocks' bytes add up to `reserved` of ls_device_stats, less what the driver is just getting
 * back. Errors, with a message: LS_BAD_ARGUMENT (no device, or a NULL that is not allowed). */
LS_EXPORT LS_CHECKED ls_status ls_device_snapshot(ls_group *group, struct ls_device_block *out,
						  size_t max, size_t *count);

/* Makes work that is enqueued on `stream` from now on wait until `request`, an operation on another
 * stream, is done. The call does not wait for `request`. It may wait, up to the group's time limit,
 * for room in the queue of `stream`, for another thread that enqueues there, or while memory is
 * given back to the driver. If `request` is complete already, the call enqueues nothing and returns
 * the status of `request`. Errors: LS_BAD_ARGUMENT (`request` is not on a stream, or `stream` is
 * not of the same device), LS_UNSUPPORTED (`stream` is being captured), LS_OUT_OF_MEMORY (64 other
 * streams have operations in flight), LS_TIMED_OUT, LS_SYSTEM, LS_FORKED. */
LS_EXPORT LS_CHECKED ls_status ls_request_follow(ls_request *request, void *stream);

/* Begins a launch: all that this thread enqueues until ls_launch_end belongs together. That may be
 * operations on several groups whose ranks are in this process, on several devices, or kernels of
 * the program that wait for each other. Until ls_launch_end Lockstep gives no memory back to the
 * driver of these devices: the driver could wait for a first part, whose partner this thread has
 * not enqueued yet. Several threads may each launch for their own devices, or one thread for all.
 * count: 1 to 64 groups, each with a device. The caller must not close a listed group before
 * ls_launch_end (ls_group_close says so, and ends the launch), and launches cannot be nested. The
 * call waits while memory is being given back, up to the time limit. Errors: LS_BAD_ARGUMENT (also
 * if the groups are of several ranks, and the driver's calls wait for their own work: the first
 * rank's operation would wait for the second rank's), LS_OUT_OF_MEMORY, LS_TIMED_OUT, LS_FORKED;
 * then no launch has begun. If the thread ends before ls_launch_end, the launch ends with it, and a
 * report names the call. */
LS_EXPORT LS_CHECKED ls_status ls_launch_begin(ls_group *const *groups, int count);
/* Ends the launch. Returns the first error of the calls that enqueued an operation in between; each
 * of them has returned its own error, too. Errors: LS_BAD_ARGUMENT (this thread has begun no
 * launch). */
LS_EXPORT LS_CHECKED ls_status ls_launch_end(void);

/* Says that the calling thread is about to enter a foreign call: one of the device's driver, or of
 * another library, which may block and which Lockstep does not see. Until ls_foreign_end, reports
 * about hangs name the call and its time ("its thread 4711 has been in the foreign call cudaFree
 * for 12.3 s"), as they do when Lockstep itself calls the driver. They keep 47 bytes of `call`. The
 * group need not have a device. A thread is in one foreign call at a time; a call of Lockstep that
 * waits in between ends it. Neither function blocks. Errors, with a message: LS_BAD_ARGUMENT (an
 * argument is NULL); LS_FORKED. */
LS_EXPORT LS_CHECKED ls_status ls_foreign_begin(ls_group *group, const char *call);
LS_EXPORT LS_CHECKED ls_status ls_foreign_end(ls_group *group);

#ifdef __cplusplus
}
#endif
#endif
