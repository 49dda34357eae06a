/* SPDX-License-Identifier: BSD-3-Clause
 * How the watch sleeps, and who wakes it: other threads of the rank, by an eventfd; and the end of
 * a peer's process. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/messages.h"
#include "base/own_fd.h"
#include "base/ranks.h"
#include "failure/failure_private.h"
#include "failure/helper.h"

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
	if (own_fd_is_process(world->watch.pid_fds[q])) {
		failure_mark_dead(world, q);
		return;
	}
	MESSAGE_SAY(MESSAGE_GROUP_WATCH, q, world->pids[q], strerror(EBADF));
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

bool failure_watch_sleep(struct world *world, uint64_t deadline_ns, uint64_t *wakeups)
{
	struct world_watch *watch = &world->watch;
	struct pollfd fds[RANKS_HOST_MAX + 2];
	int ranks[RANKS_HOST_MAX + 2];
	int count = fill_fds(world, fds, ranks);
	int before;
	/* If nothing else can wake this thread any more: failure_watch_stop. */
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
	ls_status status = wait_fds(NULL, fds, count, -1, deadline_ns);
	pthread_setcancelstate(before, NULL);
	*wakeups = 0;
	if (status != LS_OK)
		return wait_fds_continues(status); /* else its message has been printed */
	for (int i = 1; i < count; i++)
		if (fds[i].revents && ranks[i] >= 0)
			look_at_end(world, ranks[i]);
		else if (fds[i].revents)
			reap_helper(watch);
	if (fds[0].revents && (fds[0].revents & ~POLLIN || !own_fd_is_event(watch->event_fd)))
		return false;
	if (fds[0].revents && read(watch->event_fd, wakeups, sizeof *wakeups) < 0) {
		*wakeups = 0;
		return errno == EAGAIN; /* else the number is another file's by now */
	}
	return true;
}

static void wake_watch(const struct world_watch *watch, uint64_t how)
{
	if (!own_fd_is_event(watch->event_fd))
		return;
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
	wake_watch(watch, FAILURE_SERVE_WAKE);
}
