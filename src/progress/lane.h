/* SPDX-License-Identifier: BSD-3-Clause
 * The lane of a group: its queue of collectives, which run one after the other. One thread at a
 * time makes progress on it: a calling thread that waits, or the progress thread. */
#ifndef PROGRESS_LANE_H
#define PROGRESS_LANE_H

#include "progress/progress.h"

/* init and fini once for each group object; begin for each new group. */
void progress_lane_init(ls_group *group);
void progress_lane_fini(ls_group *group);
void progress_lane_begin(ls_group *group);
/* Call when the group is closed, and has failed if collectives are queued: ends them, and returns
 * when no thread makes progress on them. */
void progress_lane_close(ls_group *group);
/* The 64-bit number after the 40-bit number in `state`. Another thread may have taken later numbers
 * since. */
static inline uint64_t progress_lane_number(struct world_lane *lane, uint64_t state)
{
	uint64_t recent = atomic_load_explicit(&lane->recent_number, memory_order_relaxed);
	uint64_t low = (state >> WORLD_LANE_SHIFT) + 1;
	int64_t offset = (int64_t)((low - recent) << WORLD_LANE_SHIFT) >> WORLD_LANE_SHIFT;
	uint64_t seq = recent + (uint64_t)offset;
	atomic_store_explicit(&lane->recent_number, seq, memory_order_relaxed);
	return seq;
}
/* For a blocking call: takes the next number and the lane in one exchange if no collective is in
 * progress. False: nothing has changed. Until progress_lane_release, or progress_lane_run_taken,
 * which releases the lane, no other thread uses the group's engine for collectives. */
static inline bool progress_lane_take(struct world_lane *lane, uint64_t *seq)
{
	uint64_t state = atomic_load_explicit(&lane->state, memory_order_relaxed), next;
	do {
		if (state & WORLD_LANE_COUNT_MASK)
			return false;
		next = ((state >> WORLD_LANE_SHIFT) + 1) << WORLD_LANE_SHIFT | WORLD_LANE_TAKEN | 1;
	} while (!atomic_compare_exchange_weak_explicit(
		&lane->state, &state, next, memory_order_acquire, memory_order_relaxed));
	*seq = progress_lane_number(lane, state);
	return true;
}
/* Call when other operations were queued meanwhile: wakes a thread that waits for them, or the
 * progress thread. */
void progress_lane_release_to_others(ls_group *group);
static inline void progress_lane_release(ls_group *group)
{
	uint64_t before = atomic_fetch_sub(&group->lane.state, WORLD_LANE_TAKEN | 1);
	if (__builtin_expect((before & WORLD_LANE_COUNT_MASK) > 1, 0))
		progress_lane_release_to_others(group);
}
/* For a caller that has taken the lane: runs its operation until that is complete or until the
 * pause, as progress_lane_run_blocking does, and releases the lane. */
ls_status progress_lane_run_taken(struct ls_request *op, const struct progress_pause *pause);
/* Runs op until it is complete, or until the pause. Then it returns LS_PENDING and op continues as
 * a nonblocking operation; for that op must come from the pool, and the progress thread must exist.
 * Drops the lane's reference to an operation of the pool that is complete. */
ls_status progress_lane_run_blocking(struct ls_request *op, const struct ls_call_options *options,
				     const void *site, const struct progress_pause *pause);
/* Queues `op`, from the pool, and makes what progress is possible without waiting; the progress
 * thread must exist. `wake`: wakes it if it is needed. */
void progress_lane_start(struct ls_request *op, const struct ls_call_options *options,
			 const void *site, bool wake);
/* Only gives the operation its number, its record and its place in the queue. The caller wakes the
 * progress thread afterwards. */
void progress_lane_enqueue(struct ls_request *op, const struct ls_call_options *options,
			   const void *site);
/* Blocks until op is complete, or until the pause or a signal that ends nothing: LS_PENDING. Makes
 * progress on the lane if no other thread does. */
ls_status progress_lane_await(struct ls_request *op, const struct progress_pause *pause);
/* For the progress thread: makes what progress is possible without waiting, unless another thread
 * does. True: the first operation waits, and the lane has published for which words; or this thread
 * is no longer the progress thread (progress_thread_replace). */
bool progress_lane_attend(ls_group *group);
/* For the progress thread: whether the lane's wait is published and would not end yet. */
bool progress_lane_waits(const ls_group *group);
/* Call when the calling thread has become the progress thread: it takes over the lane's wait from
 * the old progress thread. */
void progress_lane_adopt(ls_group *group);
/* How many operations are queued, including the running one. A complete operation does not count,
 * even if the thread that ran it has not left the lane yet. */
long progress_lane_length(ls_group *group);
/* The first queued operation, with a reference, if it comes from the pool; otherwise NULL. */
struct ls_request *progress_lane_first(ls_group *group);

#endif
