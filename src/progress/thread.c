/* SPDX-License-Identifier: BSD-3-Clause
 * The progress thread of a rank: how it is started and woken, how proofs of deadlock take account
 * of it, how it hands over to another thread, and how it ends. p2p/attend.c is what it does. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/messages.h"
#include "world/registry.h"
#include "progress/progress.h"

/* A thread that is the progress thread, or was until it handed over. */
struct progress_thread {
	pthread_t thread;
	struct world *world;
	struct progress_thread *next;
	_Atomic bool ended;
};

/* A proof of deadlock needs to know of every thread that may still act. This thread is in no wait
 * slot. While it sleeps the wait table shows what would wake it: the lanes (wait_item), and p2p.h.
 * From the moment a thread wakes it until it sleeps again the wait table says that it does not show
 * all threads:
 *   unpublished counts this thread  ==  (state != ASLEEP)
 * A wake-up while it is busy makes it look once more before it sleeps. Model:
 * test/model/progress.pml. */
enum { ASLEEP, WOKEN, BUSY, WOKEN_WHILE_BUSY };

static void mark_woken(struct world *world)
{
	_Atomic int *state = &world->progress.state;
	int seen = atomic_load(state);
	do {
		if (seen == WOKEN || seen == WOKEN_WHILE_BUSY)
			return;
	} while (!atomic_compare_exchange_weak(state, &seen,
					       seen == ASLEEP ? WOKEN : WOKEN_WHILE_BUSY));
	if (seen == ASLEEP)
		atomic_fetch_add(world_unpublished(world), 1);
}

void progress_thread_begin(struct world *world)
{
	atomic_fetch_add(world_unpublished(world), 1);
	if (atomic_exchange(&world->progress.state, BUSY) != ASLEEP)
		atomic_fetch_sub(world_unpublished(world), 1);
}

bool progress_thread_end(struct world *world)
{
	int state = BUSY;
	/* While this thread waited for reports of a failure, it got a wait slot. */
	wait_thread_leave(&world->waiter);
	if (!atomic_compare_exchange_strong(&world->progress.state, &state, ASLEEP))
		return false;
	atomic_fetch_sub(world_unpublished(world), 1);
	return true;
}

bool progress_thread_is_me(const struct world *world)
{
	return atomic_load(&world->progress.tid) == trace_thread_id();
}

/* ---- the thread ---- */

static void *progress_main(void *argument)
{
	struct progress_thread *me = argument;
	struct world *world = me->world;
	message_set_rank(world->rank);
	atomic_store(&world->trace.wait_table->progress_tid, trace_thread_id());
	atomic_store(&world->progress.tid, trace_thread_id());
	world->progress.act(world);
	if (progress_thread_is_me(world)) {
		atomic_store(&world->progress.tid, 0);
	} else {
		wait_thread_leave(&world->waiter);
		atomic_fetch_sub(world_unpublished(world), 1);
	}
	atomic_store(&me->ended, true);
	return NULL;
}

/* Returns 0 or an errno. */
static int start_thread(struct world *world) LOCK_REQUIRES(rank)
{
	struct progress_thread *thread = calloc(1, sizeof *thread);
	sigset_t all, old;
	if (!thread)
		return ENOMEM;
	thread->world = world;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int error = pthread_create(&thread->thread, NULL, progress_main, thread);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (error) {
		free(thread);
		return error;
	}
	thread->next = world->progress.threads;
	world->progress.threads = thread;
	return 0;
}

ls_status progress_thread_start(struct world *world)
{
	struct world_progress *progress = &world->progress;
	if (atomic_load_explicit(&progress->there, memory_order_acquire))
		return LS_OK;
	int error = 0;
	lock_rank_acquire(&world->lock);
	if (!atomic_load(&progress->there)) {
		error = start_thread(world);
		atomic_store_explicit(&progress->there, error == 0, memory_order_release);
	}
	lock_rank_release(&world->lock);
	if (!error)
		return LS_OK;
	MESSAGE_SAY(MESSAGE_GROUP_PROGRESS, strerror(error));
	return LS_OUT_OF_MEMORY;
}

void progress_thread_wake(ls_group *group)
{
	struct world *world = group->world;
	if (!atomic_load(&world->progress.there))
		return;
	if (!atomic_exchange(&group->requests_progress, true)) {
		atomic_fetch_add(&group->holders, 1);
		group->next_requesting = atomic_load(&world->progress.requesting);
		while (!atomic_compare_exchange_weak(&world->progress.requesting,
						     &group->next_requesting, group))
			;
	}
	mark_woken(world);
	wait_wake_progress(world_bell(world));
}

/* ---- handing over ---- */

/* Removes a thread from the list: one that has ended; with `any`, any thread. NULL: none. */
static struct progress_thread *take_thread(struct world *world, bool any)
{
	lock_rank_acquire(&world->lock);
	struct progress_thread **at = &world->progress.threads;
	while (*at && !any && !atomic_load(&(*at)->ended))
		at = &(*at)->next;
	struct progress_thread *found = *at;
	if (found)
		*at = found->next;
	lock_rank_release(&world->lock);
	return found;
}

static void join_threads(struct world *world, bool all)
{
	struct progress_thread *thread;
	while ((thread = take_thread(world, all))) {
		wait_join(thread->thread);
		free(thread);
	}
}

void progress_thread_replace(struct world *world)
{
	if (!progress_thread_is_me(world))
		return;
	join_threads(world, false);
	/* From now on this thread has no wait slot, and the next one has. */
	atomic_fetch_add(world_unpublished(world), 1);
	lock_rank_acquire(&world->lock);
	atomic_store(&world->progress.tid, 0);
	bool stops = atomic_load(&world->progress.stop);
	int error = stops ? 0 : start_thread(world);
	if (stops || error) {
		/* Threads of this rank that need the progress thread wait until this one is
		 * done. */
		atomic_store(&world->progress.tid, trace_thread_id());
		atomic_fetch_sub(world_unpublished(world), 1);
	}
	lock_rank_release(&world->lock);
	if (error)
		MESSAGE_SAY(MESSAGE_GROUP_HAND_OVER, strerror(error));
}

bool progress_thread_release_closed(struct world *world)
{
	bool holds = false;
	if (!atomic_load(&world->progress.there) || progress_thread_is_me(world))
		return false;
	lock_rank_acquire(&world->lock);
	for (const ls_group *group = world->closed; group; group = group->next)
		holds |= atomic_load(&group->is_attended) || atomic_load(&group->requests_progress);
	lock_rank_release(&world->lock);
	if (!holds)
		return false;
	wait_wake_progress(world_bell(world));
	ls_status status = wait_fds(NULL, NULL, 0, -1, clock_deadline_ns(1));
	(void)status; /* the caller checks again in any case */
	return true;
}

void progress_thread_stop(struct world *world)
{
	struct world_progress *progress = &world->progress;
	if (!atomic_exchange(&progress->there, false))
		return;
	atomic_store(&progress->stop, true);
	wait_wake_progress(world_bell(world));
	join_threads(world, true);
}
