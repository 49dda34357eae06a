/* SPDX-License-Identifier: BSD-3-Clause
 * The watch: one thread per rank that sleeps until a peer's process ends or a wait of this rank has
 * lasted for a look interval. It costs nothing while all is well, blocks all signals, and holds no
 * lock. A death only wakes the sleepers: they decide whether they still needed the dead rank. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/messages.h"
#include "base/own_fd.h"
#include "base/ranks.h"
#include "failure/failure_private.h"
#include "failure/helper.h"

void failure_watch_init(struct world_watch *watch)
{
	*watch = (struct world_watch){.event_fd = -1,
				      .show = watch->show,
				      .remote = watch->remote,
				      .helper_is_busy = settings_is_under_valgrind(NULL)};
	for (int q = 0; q < RANKS_WORLD_MAX; q++)
		watch->pid_fds[q] = -1;
}

/* Publishes how threads outside waits sleep: a proof needs it, and only their own process can see
 * it. */
static void note_sleepers(struct world *world)
{
	const struct trace_view *view = &world->views[world->rank];
	atomic_store(&world->trace.wait_table->outside_sleep, diagnose_outside_sleep(view));
}

static void *watch_main(void *argument)
{
	struct world *world = argument;
	struct world_watch *watch = &world->watch;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	message_set_rank(world->rank);
	atomic_store(&world->trace.wait_table->watch_tid, trace_thread_id());
	while (!atomic_load(&watch->stop)) {
		uint64_t wakeups;
		/* Signals are blocked here; so without its descriptors there is nothing to wait
		 * for. */
		if (!failure_watch_sleep(world, failure_ends_due_ns(world), &wakeups))
			return NULL;
		if (wakeups && !atomic_load(&watch->stop)) {
			note_sleepers(world);
			watch->show(world);
			failure_remote_answer(world);
			failure_remote_serve(world);
			if (wakeups % FAILURE_SERVE_WAKE)
				failure_look(world);
			/* The look itself may have used up the wake-ups of later requests. */
			failure_remote_serve(world);
			failure_show_serve(world);
		}
		if (!atomic_load(&watch->stop))
			failure_ends_serve(world);
	}
	return NULL;
}

/* Ranks of my own process need no watching: they end when I end. The link watches those on other
 * hosts. */
static void open_pid_fds(struct world *world)
{
	for (int q = 0; q < world->size; q++) {
		if (world->pids[q] == getpid() || world->transport.peers[q].mirror)
			continue;
		int fd = (int)syscall(SYS_pidfd_open, world->pids[q], 0);
		if (fd >= 0)
			world->watch.pid_fds[q] = fd; /* the kernel sets close-on-exec */
		else if (errno == ESRCH)
			failure_mark_dead(world, q);
		else
			MESSAGE_SAY(MESSAGE_GROUP_WATCH, q, world->pids[q], strerror(errno));
	}
}

ls_status failure_watch_start(struct world *world)
{
	struct world_watch *watch = &world->watch;
	open_pid_fds(world);
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int error = pthread_create(&watch->thread, NULL, watch_main, world);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (error) {
		MESSAGE_SAY(MESSAGE_GROUP_THREAD, strerror(error));
		return LS_OUT_OF_MEMORY;
	}
	watch->running = true;
	return LS_OK;
}

void failure_watch_stop(struct world *world)
{
	struct world_watch *watch = &world->watch;
	if (watch->running) {
		atomic_store(&watch->stop, true);
		failure_watch_wake(watch);
		/* A program that closes all descriptors does not wake the watch, which sleeps on
		 * the files that they stood for. */
		if (!own_fd_is_event(watch->event_fd))
			pthread_cancel(watch->thread);
		wait_join(watch->thread);
		watch->running = false;
	}
}

void failure_watch_fini(struct world_watch *watch)
{
	struct failure_helper *helper = atomic_load(&watch->helper);
	if (helper)
		failure_helper_stop(helper);
	for (int q = 0; q < RANKS_WORLD_MAX; q++)
		own_fd_close(&(int){watch->pid_fds[q]}, own_fd_is_process);
	own_fd_close(&watch->event_fd, own_fd_is_event);
	failure_watch_init(watch);
}
