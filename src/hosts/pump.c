/* SPDX-License-Identifier: BSD-3-Clause
 * Which threads make progress on the link: those of the rank, while they spin in a wait; else the
 * pump (in NCCL: the proxy thread), a thread that sleeps until there is something to do.
 *
 *   others make progress  it looks once in TICK_MS, and pushes what the link has kept back (once
 *                         in HOSTS_LONG_MS all of it); a waiting thread that goes to sleep wakes it
 *   no other thread does  it arms the link, and sleeps on the link's descriptor
 *
 *   another thread has    it sleeps until that thread stops: if it asked again and again, it might
 *   the link just now     take the processor that the other thread needs, for milliseconds
 *
 * A thread that makes progress while the link is armed wakes the pump, because the link is armed
 * only until the next advance. Model: test/model/pump.pml. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/messages.h"
#include "hosts/hosts_private.h"

enum {
	TICK_MS = 1,
	/* The longest sleep on the link's descriptor: UCX may lose the event of a long message
	 * (https://github.com/rapidsai/ucxx/issues/15), so the pump looks again after this. */
	NAP_MS = HOSTS_LONG_MS,
};

/* ---- called by waiting threads ---- */

static void advance_link(void *context)
{
	struct hosts_pump *pump = context;
	hosts_advance(pump->transport);
	/* In this order: see sleep_armed. And after this thread has made progress, because the
	 * pump may have armed the link before that. */
	atomic_store(&pump->progress, HOSTS_PROGRESS_MADE);
	hosts_pump_wake_armed(pump);
}

static void hand_over_progress(void *context)
{
	struct hosts_pump *pump = context;
	uint32_t ticks = HOSTS_PUMP_TICKS;
	atomic_store(&pump->progress, HOSTS_PROGRESS_HANDED_OVER);
	if (atomic_compare_exchange_strong(&pump->state, &ticks, HOSTS_PUMP_AWAKE))
		hosts_pump_wake(pump);
}

const struct wait_pump *hosts_pump(const struct transport *transport)
{
	return transport->hosts ? &transport->hosts->pump.calls : NULL;
}

/* ---- the thread ---- */

/* False: the descriptors are not ours any more. */
static bool sleep_on(struct hosts_pump *pump, int link_fd, uint64_t ms)
{
	struct pollfd fds[] = {{.fd = pump->event_fd, .events = POLLIN},
			       {.fd = link_fd, .events = POLLIN}};
	uint64_t wakes;
	ls_status status = wait_fds(NULL, fds, 2, -1, clock_deadline_ns(ms));
	if (status == LS_OK && fds[0].revents & POLLIN) {
		ssize_t got = read(pump->event_fd, &wakes, sizeof wakes);
		(void)got;
	}
	return wait_fds_continues(status) && !(fds[0].revents & ~POLLIN);
}

static bool sleep_one_tick(struct hosts_pump *pump)
{
	hosts_push_short(pump->transport->hosts);
	atomic_store(&pump->state, HOSTS_PUMP_TICKS);
	/* A thread that has handed over before this store has not seen HOSTS_PUMP_TICKS. */
	bool sleeps = atomic_load(&pump->progress) != HOSTS_PROGRESS_HANDED_OVER &&
		      !atomic_load(&pump->stop);
	bool ours = !sleeps || sleep_on(pump, -1, TICK_MS);
	atomic_store(&pump->state, HOSTS_PUMP_AWAKE);
	return ours;
}

static bool sleep_armed(struct hosts_pump *pump, int link_fd)
{
	atomic_store(&pump->state, HOSTS_PUMP_ARMED);
	/* A thread that has made progress before this store, and after the link was armed, has not
	 * seen HOSTS_PUMP_ARMED. */
	bool sleeps =
		atomic_load(&pump->progress) == HOSTS_PROGRESS_NONE && !atomic_load(&pump->stop);
	bool ours = !sleeps || sleep_on(pump, link_fd, NAP_MS);
	atomic_store(&pump->state, HOSTS_PUMP_AWAKE);
	return ours;
}

static void push_long(struct hosts_pump *pump, uint64_t *pushed_ns)
{
	uint64_t now = clock_now_ns();
	if (now - *pushed_ns < HOSTS_LONG_MS * UINT64_C(1000000))
		return;
	hosts_push(pump->transport);
	*pushed_ns = now;
}

static void *pump_main(void *argument)
{
	struct hosts_pump *pump = argument;
	bool ours = true;
	uint64_t pushed_ns = 0;
	message_set_rank(pump->transport->rank);
	atomic_store(pump->tid, (uint32_t)gettid());
	atomic_store(&pump->waits, 0);
	while (ours && !atomic_load(&pump->stop)) {
		if (hosts_advance_without_push(pump->transport))
			continue;
		push_long(pump, &pushed_ns);
		if (atomic_exchange(&pump->progress, HOSTS_PROGRESS_NONE) == HOSTS_PROGRESS_MADE) {
			ours = sleep_one_tick(pump);
			continue;
		}
		int link_fd;
		enum hosts_armed armed = hosts_arm(pump->transport, &link_fd);
		if (armed == HOSTS_ARMED)
			ours = sleep_armed(pump, link_fd);
		else if (armed == HOSTS_IN_USE)
			ours = sleep_on(pump, -1, TICK_MS);
	}
	return NULL;
}

/* ---- life ---- */

void hosts_pump_init(struct hosts_pump *pump, struct transport *transport)
{
	*pump = (struct hosts_pump){
		.transport = transport,
		.event_fd = -1,
		.calls = {.context = pump, .advance = advance_link, .hand_over = hand_over_progress}};
}

ls_status hosts_pump_start(struct transport *transport, _Atomic uint32_t *tid)
{
	struct hosts_pump *pump = &transport->hosts->pump;
	sigset_t all, old;
	pump->tid = tid;
	atomic_store(&pump->waits, 1);
	pump->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int error =
		pump->event_fd < 0 ? errno : pthread_create(&pump->thread, NULL, pump_main, pump);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	atomic_store(&pump->runs, !error);
	if (!error) {
		wait_moment(&pump->waits);
		return LS_OK;
	}
	MESSAGE_SAY(MESSAGE_GROUP_THREAD, strerror(error));
	transport_close_fds(&pump->event_fd, 1);
	return LS_OUT_OF_MEMORY;
}

void hosts_pump_stop(struct hosts_pump *pump)
{
	atomic_store(&pump->stop, true);
	hosts_pump_wake(pump);
	wait_join(pump->thread);
	transport_close_fds(&pump->event_fd, 1);
	atomic_store(&pump->runs, false);
}
