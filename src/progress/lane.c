/* SPDX-License-Identifier: BSD-3-Clause
 * The lane of a group's collectives: numbers in the order of calls; one thread at a time makes
 * progress on the lane, and runs them in that order. A blocking call that finds no collective in
 * progress does not queue, and takes no lock. */
#include <string.h>

#include "progress/lane.h"
#include "progress/progress.h"

enum {
	/* a nonblocking collective of at most this many bytes runs inside its call if all peers
	 * have entered */
	RUN_AT_ONCE_BYTES = 16 * 1024,
	FOR_OTHERS_SPIN_NS = 50 * 1000,
};

void progress_lane_init(ls_group *group)
{
	lock_rank_init_unbiased(&group->lane.lock);
}

void progress_lane_fini(ls_group *group)
{
	lock_rank_fini(&group->lane.lock);
}

/* How long a thread that makes progress for other callers spins. Peers are often moments behind;
 * without spinning every fragment of a large payload costs a wake-up of 10 to 40 us (make
 * bench-torch: the excess of a DDP step is a fifth less). But unless there are two cores for each
 * rank, the thread spins no longer than a wake-up costs, so that it takes little time from the
 * computing thread. */
static uint32_t spin_for_others(const ls_group *group)
{
	const struct world *world = group->world;
	uint32_t spin_ns = group->waiter.spin_ns;
	if (world->host_cores >= 2 * world->host_ranks)
		return spin_ns;
	uint32_t most_ns = world->host_cores >= world->host_ranks ? FOR_OTHERS_SPIN_NS : 0;
	return spin_ns < most_ns ? spin_ns : most_ns;
}

void progress_lane_begin(ls_group *group)
{
	struct world_lane *lane = &group->lane;
	lock_rank_acquire(&lane->lock);
	lane->head = lane->tail = NULL;
	lane->progressing = false;
	lock_rank_release(&lane->lock);
	atomic_store(&lane->state, 0);
	atomic_store(&lane->recent_number, 0);
	lane->for_others = group->waiter;
	lane->for_others.spin_ns = spin_for_others(group);
	lane->follower_waiter = group->waiter;
	lane->follower_waiter.spin_ns = 0;
	lane->follower_waiter.bell = &lane->followers_bell;
	lane->unattended.waiter = &lane->for_others;
}

long progress_lane_length(ls_group *group)
{
	long count = 0;
	lock_rank_acquire(&group->lane.lock);
	for (const struct ls_request *op = group->lane.head; op; op = op->next)
		count++;
	lock_rank_release(&group->lane.lock);
	return count;
}

struct ls_request *progress_lane_first(ls_group *group)
{
	lock_rank_acquire(&group->lane.lock);
	struct ls_request *op = group->lane.head;
	if (op && op->pooled)
		progress_op_ref(op);
	else
		op = NULL;
	lock_rank_release(&group->lane.lock);
	return op;
}

/* ---- nobody makes progress any more ---- */

/* Wakes threads that wait for the thread that made progress, so that one of them takes its place.
 * Sequentially consistent, as their side is: either a waiting thread sees that no thread makes
 * progress, or this thread sees that it waits. */
static void wake_followers(ls_group *group)
{
	if (atomic_load(&group->lane.followers) == 0)
		return;
	atomic_fetch_add(&transport_area_of(&group->team, group->rank)->released, 1);
	wait_wake(&group->lane.followers_bell);
}

void progress_lane_release_to_others(ls_group *group)
{
	wake_followers(group);
	progress_thread_wake(group);
}

/* ---- alone in the lane: see lane.h ---- */

/* The caller has the lane, and leaves its operation to the next thread that makes progress, ahead
 * of operations that were queued meanwhile. */
static void requeue_first(struct ls_request *op)
{
	struct world_lane *lane = &op->group->lane;
	op->caller = pthread_self();
	lock_rank_acquire(&lane->lock);
	op->next = lane->head;
	lane->head = op;
	if (!lane->tail)
		lane->tail = op;
	atomic_fetch_sub(&lane->state, WORLD_LANE_TAKEN);
	lock_rank_release(&lane->lock);
	progress_lane_release_to_others(op->group);
}

/* ---- the queue ---- */

void progress_lane_enqueue(struct ls_request *op, const struct ls_call_options *options,
			   const void *site)
{
	struct world_lane *lane = &op->group->lane;
	lock_rank_acquire(&lane->lock);
	uint64_t state = atomic_fetch_add(&lane->state, (UINT64_C(1) << WORLD_LANE_SHIFT) + 1);
	op->base.seq = progress_lane_number(lane, state);
	op->next = NULL;
	/* All fields are set before another thread can find it. */
	progress_op_record(op, options, site);
	op->deadline_ns = clock_deadline_ns(op->timeout_ms);
	op->caller = pthread_self();
	op->waited_ns = op->waited_word = 0;
	if (lane->tail)
		lane->tail->next = op;
	else
		lane->head = op;
	lane->tail = op;
	lock_rank_release(&lane->lock);
}

static bool read_status(const struct ls_request *op, ls_status *status)
{
	uint32_t complete = atomic_load_explicit(&op->complete, memory_order_acquire);
	*status = complete ? (ls_status)(complete - 1) : LS_PENDING;
	return complete != 0;
}

/* True: the calling thread makes progress from now on, because operations are queued and no other
 * thread makes progress. only: this operation must be the next one; NULL: any. until: this
 * operation must not be complete, because the calling thread would then run later ones, and wait
 * for them. */
static bool begin_progress(struct world_lane *lane, const struct ls_request *only,
			   const struct ls_request *until)
{
	ls_status status;
	lock_rank_acquire(&lane->lock);
	bool mine = lane->head && !lane->progressing && (!only || lane->head == only) &&
		    !(until && read_status(until, &status)) &&
		    !(atomic_load(&lane->state) & WORLD_LANE_TAKEN);
	if (mine) {
		lane->progressing = true;
		wait_item_hide(&lane->unattended);
	}
	lock_rank_release(&lane->lock);
	return mine;
}

static struct ls_request *first_queued(struct world_lane *lane)
{
	lock_rank_acquire(&lane->lock);
	struct ls_request *op = lane->head;
	lock_rank_release(&lane->lock);
	return op;
}

static void drop_first(struct world_lane *lane)
{
	lock_rank_acquire(&lane->lock);
	lane->head = lane->head->next;
	if (!lane->head)
		lane->tail = NULL;
	lock_rank_release(&lane->lock);
}

/* Call after one operation. The thread gives up the lane in the same section of the lock in which
 * the count of operations under way falls: with count 0 the next blocking call may take the lane,
 * and no thread may make progress beside it. */
static bool finish_one(struct world_lane *lane, bool wanted, bool *more)
{
	lock_rank_acquire(&lane->lock);
	*more = lane->head != NULL;
	bool progressing = wanted && *more;
	lane->progressing = progressing;
	atomic_fetch_sub(&lane->state, 1);
	lock_rank_release(&lane->lock);
	return progressing;
}

static void stop_progress(struct world_lane *lane)
{
	lock_rank_acquire(&lane->lock);
	lane->progressing = false;
	lock_rank_release(&lane->lock);
}

/* As stop_progress, for the progress thread, which then publishes a wait for the lane while no
 * thread makes progress on it. */
static void leave_unattended(struct world_lane *lane, struct ls_request *op)
{
	const struct op *base = &op->base;
	uint64_t since = progress_op_since(op);
	lock_rank_acquire(&lane->lock);
	memcpy(lane->words, base->words, (size_t)base->word_count * sizeof *lane->words);
	lane->unattended.tid = trace_thread_id();
	lane->unattended.call = (struct wait_call){.words = lane->words,
						   .count = base->word_count,
						   .any = base->any_suffices,
						   .has_own_limit = op->has_own_limit,
						   .deadline_ns = op->deadline_ns,
						   .since_ns = since,
						   .group = op->group->id,
						   .record = base->record};
	lane->progressing = false;
	wait_item_show(&lane->unattended);
	lock_rank_release(&lane->lock);
}

/* Call after begin_progress was true. Runs queued operations until `until` is complete, or until
 * the pause, and then stops making progress. True: there is more to do. Model:
 * test/model/lane.pml. */
static bool make_progress(ls_group *group, const struct ls_request *until, struct waiter *waiter,
			  const struct progress_pause *pause)
{
	struct world_lane *lane = &group->lane;
	bool progressing = true, more = true;
	while (progressing) {
		ls_status status;
		struct ls_request *op = first_queued(lane);
		if (!progress_op_run(op, &lane->workspace, waiter, pause, &status)) {
			if (pause->checks_only && progress_thread_is_me(group->world))
				leave_unattended(lane, op);
			else
				stop_progress(lane);
			break;
		}
		bool was_last = op == until;
		uint64_t seq = op->base.seq;
		drop_first(lane);
		/* While this thread still has the lane, so that completed_seq only grows. */
		progress_op_complete(op, status);
		wait_store(&transport_area_of(&group->team, group->rank)->completed_seq, seq);
		wait_wake(&lane->followers_bell);
		wait_wake(group->waiter.bell);
		progressing = finish_one(lane, !was_last, &more);
	}
	wake_followers(group);
	return more;
}

/* As make_progress, for a calling thread: the progress thread continues what is left. */
static void make_progress_in_call(ls_group *group, const struct ls_request *until,
				  struct waiter *waiter, const struct progress_pause *pause)
{
	if (make_progress(group, until, waiter, pause))
		progress_thread_wake(group);
}

bool progress_lane_attend(ls_group *group)
{
	static const struct progress_pause check = {.at_ns = 0, .checks_only = true};
	return begin_progress(&group->lane, NULL, NULL) &&
	       make_progress(group, NULL, &group->lane.for_others, &check);
}

bool progress_lane_waits(const ls_group *group)
{
	const struct wait_item *item = &group->lane.unattended;
	ls_status status;
	int peer;
	return atomic_load(&item->shown) && !item->counted &&
	       !wait_check(item->waiter, &item->call, &status, &peer);
}

void progress_lane_adopt(ls_group *group)
{
	struct wait_item *item = &group->lane.unattended;
	lock_rank_acquire(&group->lane.lock);
	if (atomic_load(&item->shown)) {
		item->tid = trace_thread_id();
		wait_item_show(item);
	}
	lock_rank_release(&group->lane.lock);
}

/* ---- waiting for an operation that another thread runs ---- */

static bool is_progressing(struct world_lane *lane)
{
	lock_rank_acquire(&lane->lock);
	bool progressing = lane->progressing || atomic_load(&lane->state) & WORLD_LANE_TAKEN;
	lock_rank_release(&lane->lock);
	return progressing;
}

/* Waits until collective `seq` is complete, no thread makes progress on the lane, or the call ends
 * for another reason. */
static ls_status wait_following(ls_group *group, uint64_t seq, struct waiter *waiter,
				struct wait_call *call)
{
	struct world_lane *lane = &group->lane;
	struct transport_area *area = transport_area_of(&group->team, group->rank);
	struct wait_word words[2];
	ls_status status = LS_OK;
	int peer;
	atomic_fetch_add(&lane->followers, 1);
	transport_wait_word(&group->team, group->rank, &area->completed_seq, seq, group->rank,
			    &words[0]);
	transport_wait_word(&group->team, group->rank, &area->released,
			    atomic_load(&area->released) + 1, group->rank, &words[1]);
	/* These words name no peer: a proof follows the thread that makes progress, which waits for
	 * peers. */
	words[0].edge.peer = words[1].edge.peer = -1;
	call->words = words;
	call->count = 2;
	call->any = true;
	if (is_progressing(lane))
		status = wait_words(waiter, call, &peer);
	atomic_fetch_sub(&lane->followers, 1);
	return status;
}

/* Waits until the operation is complete, a moment has passed, or the caller has to act. */
static ls_status await_progress(struct ls_request *op, struct waiter *waiter,
				const struct progress_pause *pause)
{
	ls_group *group = op->group;
	struct wait_call call = {.has_own_limit = progress_pause_has_own_limit(pause, op),
				 .deadline_ns = pause->at_ns,
				 .since_ns = pause->since_ns,
				 .group = group->id,
				 .record = op->base.record};
	uint64_t start = clock_ticks();
	ls_status status = wait_following(group, op->base.seq, waiter, &call);
	trace_waited(&group->world->trace, clock_ticks() - start);
	return status;
}

/* The group has failed: waits while the thread that makes progress ends one operation after the
 * other. Devices may take longer for that than the caller has time. */
static ls_status await_failed(struct ls_request *op, const struct progress_pause *pause)
{
	ls_group *group = op->group;
	ls_status status;
	while (!read_status(op, &status)) {
		if (group->world->device && clock_now_ns() >= pause->at_ns)
			return LS_PENDING;
		if (begin_progress(&group->lane, NULL, op)) {
			make_progress_in_call(group, op, &group->waiter, pause);
			continue;
		}
		struct progress_pause soon = {.at_ns = clock_deadline_ns(PROGRESS_SLICE_MS)};
		status = await_progress(op, &group->quiet, &soon);
	}
	return status;
}

/* A thread that waits for its own call has nothing else to do, and spins as long as in any wait. A
 * thread that makes progress for others spins less (spin_for_others): the calling thread may be
 * computing. */
static struct waiter *waiter_of(const struct ls_request *op)
{
	ls_group *group = op->group;
	return pthread_equal(op->caller, pthread_self()) ? &group->waiter : &group->lane.for_others;
}

ls_status progress_lane_await(struct ls_request *op, const struct progress_pause *pause)
{
	ls_group *group = op->group;
	bool comes_back = group->world->resumes && pause->at_ns != CLOCK_NEVER;
	ls_status status;
	while (!read_status(op, &status)) {
		if (begin_progress(&group->lane, NULL, op)) {
			make_progress_in_call(group, op, waiter_of(op), pause);
			if (!read_status(op, &status) &&
			    (comes_back || clock_now_ns() >= pause->at_ns))
				return LS_PENDING;
			continue;
		}
		status = await_progress(op, &group->lane.follower_waiter, pause);
		if (status == LS_OK)
			continue;
		if (status == LS_INTERRUPTED && comes_back)
			return LS_PENDING;
		if (status == LS_INTERRUPTED && group->world->resumes)
			continue;
		if (status == LS_TIMED_OUT)
			return read_status(op, &status) ? status : LS_PENDING;
		if (status != LS_ABORTED)
			status = progress_op_fail(op, status, -1, NULL);
		return await_failed(op, pause);
	}
	return status;
}

/* ---- the two ways in ---- */

/* Waits for a queued operation. */
static ls_status await_in_time(struct ls_request *op)
{
	struct progress_pause late = {.at_ns = op->deadline_ns};
	ls_status status;
	do
		status = progress_lane_await(op, &late);
	while (status == LS_PENDING && clock_now_ns() < op->deadline_ns); /* a signal handler ran */
	if (status != LS_PENDING)
		return status;
	/* The time limit has passed. The operation may have begun meanwhile: then the thread that
	 * makes progress on it reports the same, and the first report counts. */
	status = progress_op_fail(op, LS_TIMED_OUT, -1, NULL);
	return await_failed(op, &progress_no_pause);
}

/* Call after the caller had the lane, and has run the operation until it was complete, or until the
 * pause. */
static ls_status leave_lane(struct ls_request *op, bool complete, ls_status status)
{
	if (!complete) {
		requeue_first(op);
		return LS_PENDING;
	}
	progress_lane_release(op->group);
	if (op->pooled)
		progress_op_unref(op);
	return status;
}

ls_status progress_lane_run_taken(struct ls_request *op, const struct progress_pause *pause)
{
	ls_group *group = op->group;
	ls_status status;
	bool complete = progress_op_run(op, &group->lane.workspace, &group->waiter, pause, &status);
	return leave_lane(op, complete, status);
}

static ls_status queue_and_await(struct ls_request *op, const struct ls_call_options *options,
				 const void *site, const struct progress_pause *pause)
{
	ls_status status = progress_thread_start(op->group->world);
	if (status != LS_OK)
		return status;
	progress_lane_enqueue(op, options, site);
	return pause->returns ? progress_lane_await(op, pause) : await_in_time(op);
}

ls_status progress_lane_run_blocking(struct ls_request *op, const struct ls_call_options *options,
				     const void *site, const struct progress_pause *pause)
{
	ls_group *group = op->group;
	ls_status status;
	if (!progress_lane_take(&group->lane, &op->base.seq))
		return queue_and_await(op, options, site, pause);
	progress_op_record(op, options, site);
	bool complete = progress_op_run(op, &group->lane.workspace, &group->waiter, pause, &status);
	return leave_lane(op, complete, status);
}

void progress_lane_start(struct ls_request *op, const struct ls_call_options *options,
			 const void *site, bool wake)
{
	ls_group *group = op->group;
	static const struct progress_pause at_once = {.at_ns = 0};
	bool small = op->base.call.count * ls_dtype_bytes(op->base.call.dtype) <= RUN_AT_ONCE_BYTES;
	progress_lane_enqueue(op, options, site);
	if (small && begin_progress(&group->lane, op, NULL))
		make_progress_in_call(group, op, &group->waiter, &at_once);
	else if (wake)
		progress_thread_wake(group);
}

void progress_lane_close(ls_group *group)
{
	struct world_lane *lane = &group->lane;
	while (progress_lane_length(group) > 0 || is_progressing(lane)) {
		if (begin_progress(lane, NULL, NULL)) {
			make_progress_in_call(group, NULL, &group->waiter, &progress_no_pause);
			continue;
		}
		struct wait_call call = {.deadline_ns = clock_deadline_ns(PROGRESS_SLICE_MS)};
		struct waiter quiet = group->quiet;
		quiet.bell = &lane->followers_bell;
		ls_status status = wait_following(group, UINT64_MAX >> 1, &quiet, &call);
		(void)status; /* the loop checks again in any case */
	}
	if (atomic_load(&group->is_attended))
		progress_thread_wake(group); /* that thread gives up the lane */
}
