/* SPDX-License-Identifier: BSD-3-Clause
 * The progress thread of a rank. It goes on with collectives that run beside their callers, in all groups, and with sends
 * and receives that would hold up a peer (points.h), as long as no caller waits for them. It never waits for one of them
 * alone: a lane whose first operation waits is left to whoever comes, and the thread waits for all such lanes at once.
 * With nothing to wait for it sleeps where no peer's ring wakes it, so it costs nothing then. */
#include <signal.h>
#include <string.h>

#include "base/messages.h"
#include "lane.h"
#include "points.h"
#include "registry.h"

/* A proof of deadlock needs to know of every thread that may still do something. This one is on no board. While it sleeps
 * the board shows what it would wake for: the lanes (wait_item), and points.h. From the moment it is called until it
 * sleeps again the board says that it does not show all threads:
 *   unpublished counts this thread  ==  (state != ASLEEP)
 * Called while it is busy it looks once more before it sleeps. Model: test/model/progress.pml. */
enum { ASLEEP, CALLED, BUSY, CALLED_WHILE_BUSY };

static struct wait_bell *bell_of(struct group_world *world)
{
	return &world->transport.segment->bell;
}

static _Atomic uint32_t *unpublished_of(struct group_world *world)
{
	return &world->trace.board->unpublished;
}

static void call_up(struct group_world *world)
{
	_Atomic int *state = &world->progress.state;
	int seen = atomic_load(state);
	do {
		if (seen == CALLED || seen == CALLED_WHILE_BUSY)
			return;
	} while (!atomic_compare_exchange_weak(state, &seen,
					       seen == ASLEEP ? CALLED : CALLED_WHILE_BUSY));
	if (seen == ASLEEP)
		atomic_fetch_add(unpublished_of(world), 1);
}

static void begin_work(struct group_world *world)
{
	atomic_fetch_add(unpublished_of(world), 1);
	if (atomic_exchange(&world->progress.state, BUSY) != ASLEEP)
		atomic_fetch_sub(unpublished_of(world), 1);
}

/* False: called meanwhile, so there may be more to do. */
static bool end_work(struct group_world *world)
{
	int state = BUSY;
	/* A failure may have put it on the board, as it waits for reports. */
	wait_thread_leave(&world->waiter);
	if (!atomic_compare_exchange_strong(&world->progress.state, &state, ASLEEP))
		return false;
	atomic_fetch_sub(unpublished_of(world), 1);
	return true;
}

/* ---- the lanes that it attends ---- */

/* Private to the thread. Each is held, so that the object is not used for another group. */
struct attended {
	ls_group *groups[TRANSPORT_AREAS];
	struct wait_item *items[TRANSPORT_AREAS];
	int count;
};

static void take_called(struct group_world *world, struct attended *attended)
{
	ls_group *group = atomic_exchange(&world->progress.called, NULL);
	while (group) {
		ls_group *next = group->next_called;
		/* Before its lane is looked at: who queues something after that calls again. */
		atomic_store(&group->is_called, false);
		if (atomic_exchange(&group->is_attended, true))
			group_release(group);
		else
			attended->groups[attended->count++] = group;
		group = next;
	}
}

/* Keeps those whose first operation waits. */
static void attend(struct attended *attended)
{
	int kept = 0;
	for (int i = 0; i < attended->count; i++) {
		ls_group *group = attended->groups[i];
		if (group_lane_waits(group) || group_lane_attend(group)) {
			attended->groups[kept] = group;
			attended->items[kept++] = &group->lane.unattended;
			continue;
		}
		atomic_store(&group->is_attended, false);
		group_release(group);
	}
	attended->count = kept;
}

/* ---- the thread ---- */

static void wait_for_all(struct group_world *world, const struct attended *attended, uint32_t seen,
			 uint64_t until_ns)
{
	struct wait_set set = {.items = attended->items,
			       .count = attended->count,
			       .bell = bell_of(world),
			       .seen = seen,
			       .until_ns = until_ns,
			       .yield = world->waiter.yield};
	if (attended->count > 0)
		set.spin_ns = attended->items[0]->waiter->spin_ns;
	wait_set(&set);
}

static void *progress_main(void *argument)
{
	struct group_world *world = argument;
	struct attended attended = {.count = 0};
	uint64_t until_ns = 0;
	uint32_t last = 0;
	message_set_rank(world->rank);
	atomic_store(&world->trace.board->progress_tid, trace_thread_id());
	while (!atomic_load(&world->progress.stop)) {
		uint32_t seen = atomic_load(&bell_of(world)->summons);
		begin_work(world);
		take_called(world, &attended);
		attend(&attended);
		if (seen != last || clock_now_ns() >= until_ns) {
			group_points_attend(world);
			until_ns = group_points_sleep_until(&world->points);
		}
		last = seen;
		if (end_work(world))
			wait_for_all(world, &attended, seen, until_ns);
	}
	return NULL;
}

ls_status group_progress_start(struct group_world *world)
{
	struct group_progress *progress = &world->progress;
	if (atomic_load_explicit(&progress->there, memory_order_acquire))
		return LS_OK;
	sigset_t all, old;
	int error = 0;
	lock_group_acquire(&world->lock);
	if (!atomic_load(&progress->there)) {
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		error = pthread_create(&progress->thread, NULL, progress_main, world);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
		atomic_store_explicit(&progress->there, error == 0, memory_order_release);
	}
	lock_group_release(&world->lock);
	if (!error)
		return LS_OK;
	MESSAGE_SAY(MESSAGE_GROUP_PROGRESS, strerror(error));
	return LS_OUT_OF_MEMORY;
}

void group_progress_wake(ls_group *group)
{
	struct group_world *world = group->world;
	if (!atomic_load(&world->progress.there))
		return;
	if (!atomic_exchange(&group->is_called, true)) {
		atomic_fetch_add(&group->holders, 1);
		group->next_called = atomic_load(&world->progress.called);
		while (!atomic_compare_exchange_weak(&world->progress.called, &group->next_called,
						     group))
			;
	}
	call_up(world);
	wait_call_thread(bell_of(world));
}

void group_progress_stop(struct group_world *world)
{
	struct group_progress *progress = &world->progress;
	if (!atomic_exchange(&progress->there, false))
		return;
	atomic_store(&progress->stop, true);
	wait_call_thread(bell_of(world));
	wait_join(progress->thread);
}
