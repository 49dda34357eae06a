/* SPDX-License-Identifier: BSD-3-Clause
 * The watch: one thread per rank that sleeps until a peer's process ends or a wait of this rank has
 * lasted for a look interval. It costs nothing while all is well, blocks all signals, and holds no
 * lock. A death only wakes the sleepers: they decide whether they still needed the dead rank. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/messages.h"
#include "base/ranks.h"
#include "failure/failure.h"
#include "failure/helper.h"

/* A thread adds this value to the eventfd to make the watch serve others. Threads that wait add 1,
 * and then the watch looks, too. */
#define SERVE_WAKE (UINT64_C(1) << 32)

void failure_watch_init(struct world_watch *watch)
{
	*watch = (struct world_watch){.event_fd = -1,
				      .show = watch->show,
				      .far = watch->far,
				      .helper_is_busy = settings_is_under_valgrind(NULL)};
	for (int q = 0; q < RANKS_WORLD_MAX; q++)
		watch->pid_fds[q] = -1;
}

void failure_mark_dead(struct world *world, int q)
{
	atomic_store(&world->dead[q], 1);
	atomic_fetch_add(&world->transport.segment->departures, 1);
	wait_wake(world->waiter.bell);
}

/* A descriptor of a process shows that it has ended. But a program that closes all descriptors,
 * like some daemons, leaves this rank with closed ones, or with descriptors of something else. */
static void look_at_end(struct world *world, int q)
{
	int fd = world->watch.pid_fds[q];
	long sent = syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0);
	if (sent == 0 || errno == ESRCH || errno == EPERM) {
		failure_mark_dead(world, q);
		return;
	}
	MESSAGE_SAY(MESSAGE_GROUP_WATCH, q, world->pids[q], strerror(errno));
	world->watch.pid_fds[q] = -1; /* it is another file's by now: this rank must not close it */
}

static int fill_fds(const struct world *world, struct pollfd *fds, int *ranks)
{
	const struct world_watch *watch = &world->watch;
	int count = 1;
	fds[0] = (struct pollfd){.fd = watch->event_fd, .events = POLLIN};
	ranks[0] = -1;
	for (int q = 0; q < world->size && count <= RANKS_HOST_MAX; q++) {
		if (watch->pid_fds[q] < 0 || atomic_load(&world->dead[q]))
			continue;
		fds[count] = (struct pollfd){.fd = watch->pid_fds[q], .events = POLLIN};
		ranks[count++] = q;
	}
	struct failure_helper *helper = atomic_load(&watch->helper);
	if (helper) {
		fds[count] = (struct pollfd){.fd = failure_helper_fd(helper), .events = POLLIN};
		ranks[count++] = -1;
	}
	return count;
}

/* The program that reads lines of Python has ended, later than its report. */
static void reap_helper(struct world_watch *watch)
{
	struct failure_helper *helper = atomic_exchange(&watch->helper, NULL);
	/* Otherwise the program has closed the descriptor: then no thread starts another helper. */
	if (failure_helper_reap(helper))
		atomic_store(&watch->helper_is_busy, false);
}

/* Publishes how threads outside waits sleep: a proof needs it, and only their own process can see
 * it. */
static void note_sleepers(struct world *world)
{
	const struct trace_view *view = &world->views[world->rank];
	atomic_store(&world->trace.wait_table->outside_sleep, diagnose_outside_sleep(view));
}

bool failure_watch_sleep(struct world *world, uint64_t deadline_ns, uint64_t *wakeups)
{
	struct world_watch *watch = &world->watch;
	struct pollfd fds[RANKS_HOST_MAX + 2];
	int ranks[RANKS_HOST_MAX + 2];
	int count = fill_fds(world, fds, ranks);
	ls_status status = wait_fds(NULL, fds, count, -1, deadline_ns);
	*wakeups = 0;
	if (status != LS_OK)
		return status == LS_TIMED_OUT; /* else its message has been printed */
	for (int i = 1; i < count; i++)
		if (fds[i].revents && ranks[i] >= 0)
			look_at_end(world, ranks[i]);
		else if (fds[i].revents)
			reap_helper(watch);
	if (fds[0].revents & ~POLLIN)
		return false;
	if (fds[0].revents && read(watch->event_fd, wakeups, sizeof *wakeups) < 0)
		*wakeups = 0;
	return true;
}

static void *watch_main(void *argument)
{
	struct world *world = argument;
	struct world_watch *watch = &world->watch;
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
			failure_far_answer(world);
			failure_far_serve(world);
			if (wakeups % SERVE_WAKE)
				failure_look(world);
			/* The look itself may have used up the wake-ups of later requests. */
			failure_far_serve(world);
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

static void wake_watch(const struct world_watch *watch, uint64_t how)
{
	/* An eventfd takes a write at once unless 2^64 - 2 wake-ups would be pending. */
	ssize_t written = write(watch->event_fd, &how, sizeof how);
	(void)written;
}

void failure_watch_wake(struct world_watch *watch)
{
	wake_watch(watch, 1);
}

void failure_watch_serve(struct world_watch *watch)
{
	wake_watch(watch, SERVE_WAKE);
}

void failure_watch_stop(struct world *world)
{
	struct world_watch *watch = &world->watch;
	if (watch->running) {
		atomic_store(&watch->stop, true);
		failure_watch_wake(watch);
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
		if (watch->pid_fds[q] >= 0)
			close(watch->pid_fds[q]);
	if (watch->event_fd >= 0)
		close(watch->event_fd);
	failure_watch_init(watch);
}
