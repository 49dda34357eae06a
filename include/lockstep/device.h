/* SPDX-License-Identifier: BSD-3-Clause
 * Memory, streams and launches of a device. See ls_device(3).
 *
 * A rank has one device at most: the option `device` of ls_group_open. A stream is a handle of the
 * device's driver (a CUstream, for example), which the program makes and destroys. Work that is put
 * behind a stream is done later, in order.
 *
 * Operations on a stream: with options->stream set, a collective, a send or a receive takes its
 * place behind what the stream has, and what is put behind the stream later sees its result. The
 * buffers may be memory of the device, of whatever origin, or of the host. The call does not block
 * until the data has moved: without `op` and `callback` it returns when everything is behind the
 * stream, and a failure shows in the next call on the group, in ls_group_failure, and in the
 * report. With `op`, ls_wait waits until the stream has done its part, too. Calls take their order
 * (of collectives, of messages between two ranks) from the calls, as without a stream, and not from
 * the streams. The stream must not be captured for a graph. LOCKSTEP_BLOCKING=1 makes each
 * collective outside of a launch wait until it is complete, which finds the call that fails. An
 * operation on a stream cannot be cancelled.
 *
 * Calls on memory of ls_device_alloc without options->stream: the memory must be ready when the
 * call is made; they block as with host memory, and only collectives and blocking sends and
 * receives take it.
 *
 * Order: Lockstep orders work within one stream only. An operation on one stream that touches what
 * another one, or a copy or kernel of the program, still touches on another stream needs an order:
 * ls_op_follow, an event, or a wait of the host. With LOCKSTEP_CHECK=1 a call without one is
 * refused, and the message has both call sites (LS-RACE-OVERLAP), if the driver shows Lockstep the
 * program's events. So is ls_device_free of what a stream still uses (LS-RACE-FREE), and an
 * operation on memory that was freed (LS-RACE-FREED).
 *
 * Deadlocks: the driver is called with no lock of Lockstep held. Memory goes back to the driver
 * only while no operation is in flight on its devices, as a driver may wait for all of them; until
 * then it is put off, and can be allocated again. No call makes one stream wait for another, except
 * ls_op_follow.
 *
 * Threads: any, on one stream too. Unless said otherwise a call does not wait for other ranks or
 * for the device, with one exception: an operation on a stream, and ls_op_follow, wait while
 * earlier operations leave no room in the queue of the stream. No thread is in the driver
 * meanwhile, so others can call it; a failure of the group or the time limit ends the wait. If the
 * driver does not say how long its queues are, or its calls wait for their own work, the call waits
 * until its own operation needs no other rank any more. The program's own work can fill a queue,
 * too: then it is the driver that makes callers wait, also callers of Lockstep, perhaps all of
 * them. In a forked child all calls return LS_FORKED. */
#ifndef LOCKSTEP_DEVICE_H
#define LOCKSTEP_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "group.h"
#include "op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Allocates at least `bytes` bytes of device memory, aligned to 512, with undefined content, for
 * work behind `stream`; NULL: for no certain stream, so those that use it are recorded, or done
 * when it is freed. Freed blocks are cached. If the device has no memory, the call waits for blocks
 * that other streams, operations or frees under way will bring back, if there are any, up to the
 * group's time limit; a thread between ls_launch_begin and ls_launch_end does not wait. For 0 bytes
 * *out is a valid block that holds nothing. All groups of a rank share the memory. Errors, with a
 * message: LS_OUT_OF_MEMORY (it says who holds what), LS_BAD_ARGUMENT (no device, or the stream is
 * not of this device), LS_UNSUPPORTED (the stream is being captured), LS_SYSTEM; *out is NULL. */
LS_EXPORT LS_CHECKED ls_status ls_device_alloc(ls_group *group, size_t bytes, void *stream,
					       void **out);

/* Frees it; NULL is allowed. What the block's stream has at this moment may still use it, and so
 * may streams that were recorded; it is not used by others before they are done. Operations on it
 * must have been put behind these streams before. Errors, with a message: LS_BAD_ARGUMENT: no block
 * in use of this rank's device. */
LS_EXPORT LS_CHECKED ls_status ls_device_free(ls_group *group, void *block);

/* Another stream uses the block, too: after ls_device_free it is not used again before what that
 * stream has by then is done. Once for each stream is enough. Errors: as above. */
LS_EXPORT LS_CHECKED ls_status ls_device_record(ls_group *group, void *block, void *stream);

/* Gives cached memory back to the driver, until at most keep_bytes are reserved. What is still in
 * use by streams, or would make the driver wait, follows later. */
LS_EXPORT LS_CHECKED ls_status ls_device_trim(ls_group *group, size_t keep_bytes);

/* Call it before a stream is destroyed that blocks or operations have used. The stream has done its
 * work. */
LS_EXPORT LS_CHECKED ls_status ls_device_forget(ls_group *group, void *stream);

/* Bytes, unless said otherwise. live + cached + pending + put_off = reserved. */
struct ls_device_stats {
	size_t size;     /* sizeof(struct ls_device_stats), set by the caller */
	uint64_t live;   /* in blocks that are in use */
	uint64_t cached; /* free, for their stream at once, for others when that stream is so far */
	uint64_t pending; /* freed, and still used by a stream that was recorded */
	uint64_t put_off; /* the driver gets it back when nothing is in flight */
	uint64_t reserved, peak_live, peak_reserved;
	uint64_t largest_cached;        /* the largest cached block */
	uint64_t live_blocks, segments; /* how many */
	uint64_t hits, misses;          /* allocations from the cache; that asked the driver */
};
LS_EXPORT LS_CHECKED ls_status ls_device_stats(ls_group *group, struct ls_device_stats *out);

/* What is put behind `stream` from now on waits until the operation, which is on a stream, is done
 * there. The caller does not wait for that. If the operation is complete, nothing is put there, and
 * its status is returned. Errors: LS_BAD_ARGUMENT (it is not on a stream, or `stream` is not of the
 * same device), LS_UNSUPPORTED (`stream` is being captured), LS_SYSTEM, LS_FORKED. */
LS_EXPORT LS_CHECKED ls_status ls_op_follow(ls_op *op, void *stream);

/* Everything that this thread puts behind streams until ls_launch_end belongs together: operations
 * on several groups whose ranks are in this process, on several devices, or kernels of the program
 * that wait for each other. Meanwhile no memory goes back to the driver of these devices, which
 * could wait for a first part whose partner is launched second. Each thread may do so for its own
 * devices, or one for all. count: 1 to 64 groups, each with a device. Waits for memory that is
 * being given back. Not nested; between the two calls no group of the list is closed. Errors:
 * LS_BAD_ARGUMENT (also if the groups are of several ranks, and the driver's calls wait for their
 * own work: the first rank's operation would wait for the second one's), LS_TIMED_OUT, LS_FORKED;
 * then nothing has begun. */
LS_EXPORT LS_CHECKED ls_status ls_launch_begin(ls_group *const *groups, int count);
/* Returns the first error of a call that put an operation behind a stream in between; that call has
 * returned it, too. LS_BAD_ARGUMENT: this thread has begun none. */
LS_EXPORT LS_CHECKED ls_status ls_launch_end(void);

#ifdef __cplusplus
}
#endif
#endif
