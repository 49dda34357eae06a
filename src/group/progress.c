/* SPDX-License-Identifier: BSD-3-Clause
 * The progress thread: drives operations that run beside the caller. It sleeps on a bell of its own while
 * there is nothing to drive, so it costs nothing then; and while it waits for peers it spins no longer than
 * a wake-up costs, unless there are two cores for each rank, so that it takes little from what the caller computes. */
#include <signal.h>
#include <string.h>

#include "base/messages.h"
#include "group_private.h"

/* Peers that drive as well are soon there; without this every fragment of a large payload costs a wake-up of 10 to 40 us
 * (make bench-torch: the excess of a DDP step is a fifth less). */
enum { BESIDE_SPIN_NS = 50 * 1000 };

static uint32_t spin_beside(const ls_group *group)
{
	const struct group_world *world = group->world;
	uint32_t spin_ns = group->waiter.spin_ns;
	if (world->cores >= 2 * world->size)
		return spin_ns;
	uint32_t most_ns = world->cores >= world->size ? BESIDE_SPIN_NS : 0;
	return spin_ns < most_ns ? spin_ns : most_ns;
}

void group_progress_init(ls_group *group)
{
	struct group_progress *progress = &group->progress;
	atomic_init(&progress->there, false);
	atomic_init(&progress->stop, false);
	atomic_init(&progress->seen, 0);
	atomic_init(&progress->work, 0);
	progress->idle = (struct waiter){.bell = &progress->bell, .look_fd = -1};
	progress->resting = group->waiter;
	progress->resting.spin_ns = 0;
	progress->driving = group->waiter;
	progress->driving.spin_ns = spin_beside(group);
	progress->resting.bell = &progress->told;
}

static void sleep_until_work(struct group_progress *progress, uint64_t seen)
{
	int peer;
	struct wait_word word = {
		.word = &progress->work,
		.edge = {.value = seen + 1, .owner = -1, .peer = -1, .segment = WAIT_SEGMENT_NONE}};
	struct wait_call call = {.words = &word, .count = 1, .deadline_ns = CLOCK_NEVER};
	ls_status status = wait_words(&progress->idle, &call, &peer);
	(void)status; /* signals are blocked here, and there is no time limit */
}

/* A proof of deadlock needs to know of every thread that may still do something. This one is on the board
 * only while it drives, as it would spoil every proof otherwise; so from the moment it is called until it
 * is on the board, the board says that it does not show all threads:
 *   unpublished counts this thread == (seen == CALLED)
 * Called while it is on the board it may be blocked in an operation, which the board shows, or be about to
 * leave: then it stays there. Model: test/model/progress.pml. */
enum { AWAY, CALLED, ON_BOARD, CALLED_ON_BOARD };

static void call_up(ls_group *group)
{
	_Atomic int *seen = &group->progress.seen;
	_Atomic uint32_t *unpublished = &group->world->trace.board->unpublished;
	int state = atomic_load(seen);
	do {
		if (state == CALLED || state == CALLED_ON_BOARD)
			return;
	} while (!atomic_compare_exchange_weak(seen, &state,
					       state == AWAY ? CALLED : CALLED_ON_BOARD));
	if (state == AWAY)
		atomic_fetch_add(unpublished, 1);
}

static void answer(ls_group *group)
{
	wait_thread_enter(&group->waiter);
	if (atomic_exchange(&group->progress.seen, ON_BOARD) == CALLED)
		atomic_fetch_sub(&group->world->trace.board->unpublished, 1);
}

/* Called since it answered it stays, and does not sleep: who calls raises `work` after that. */
static void go_away(ls_group *group)
{
	int state = ON_BOARD;
	if (atomic_compare_exchange_strong(&group->progress.seen, &state, AWAY))
		wait_thread_leave(&group->waiter);
}

static void *progress_main(void *argument)
{
	ls_group *group = argument;
	struct group_progress *progress = &group->progress;
	message_set_rank(group->world->rank);
	for (;;) {
		uint64_t seen = atomic_load(&progress->work);
		answer(group);
		group_lane_drive(group);
		go_away(group);
		if (atomic_load(&progress->stop) && group_lane_queued(group) == 0)
			return NULL;
		sleep_until_work(progress, seen);
	}
}

ls_status group_progress_start(ls_group *group)
{
	struct group_progress *progress = &group->progress;
	if (atomic_load_explicit(&progress->there, memory_order_acquire))
		return LS_OK;
	sigset_t all, old;
	int error = 0;
	lock_group_acquire(&group->lane.lock);
	if (!atomic_load(&progress->there)) {
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		error = pthread_create(&progress->thread, NULL, progress_main, group);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
		atomic_store_explicit(&progress->there, error == 0, memory_order_release);
	}
	lock_group_release(&group->lane.lock);
	if (!error)
		return LS_OK;
	MESSAGE_SAY(MESSAGE_GROUP_PROGRESS, strerror(error));
	return LS_OUT_OF_MEMORY;
}

void group_progress_wake(ls_group *group)
{
	struct group_progress *progress = &group->progress;
	call_up(group);
	atomic_fetch_add(&progress->work, 1);
	wait_ring(&progress->bell);
}

void group_progress_stop(ls_group *group)
{
	struct group_progress *progress = &group->progress;
	if (!atomic_load(&progress->there))
		return;
	atomic_store(&progress->stop, true);
	group_progress_wake(group);
	wait_join(progress->thread);
	atomic_store(&progress->there, false);
}
