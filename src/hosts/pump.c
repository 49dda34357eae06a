/* SPDX-License-Identifier: BSD-3-Clause
 * Which threads make progress on the link: those of the rank, while they spin in a wait; else the
 * pump (in NCCL: the proxy thread), a thread that sleeps until there is something to do.
 *
 *   others make progress  it looks once in TICK_MS, and pushes what the link has kept back; a
 *                         waiting thread that goes to sleep wakes it
 *   no other thread does  it arms the link, and sleeps on the link's descriptor
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
	NAP_MS = 100,
};

enum pump_state { PUMP_AWAKE, PUMP_TICKS, PUMP_ARMED };

/* What another thread has done last since the pump looked. */
enum pump_progress { PROGRESS_NONE, PROGRESS_MADE, PROGRESS_HANDED_OVER };

static void wake_pump(const struct hosts_pump *pump)
{
	static const uint64_t one = 1;
	ssize_t written = write(pump->event_fd, &one, sizeof one); /* full: the pump is awake */
	(void)written;
}

/* ---- called by waiting threads ---- */

static void wake_armed(struct hosts_pump *pump)
{
	uint32_t armed = PUMP_ARMED;
	if (atomic_load(&pump->state) == PUMP_ARMED &&
	    atomic_compare_exchange_strong(&pump->state, &armed, PUMP_AWAKE))
		wake_pump(pump);
}

static void advance_link(void *context)
{
	struct hosts_pump *pump = context;
	hosts_advance(pump->transport);
	/* In this order: see sleep_armed. And after this thread has made progress, because the
	 * pump may have armed the link before that. */
	atomic_store(&pump->progress, PROGRESS_MADE);
	wake_armed(pump);
}

void hosts_pump_recheck(struct hosts_pump *pump)
{
	/* Not MADE: the pump looks once more, but no other thread makes progress in its place. */
	uint32_t none = PROGRESS_NONE;
	atomic_compare_exchange_strong(&pump->progress, &none, PROGRESS_HANDED_OVER);
	wake_armed(pump);
}

static void hand_over_progress(void *context)
{
	struct hosts_pump *pump = context;
	uint32_t ticks = PUMP_TICKS;
	atomic_store(&pump->progress, PROGRESS_HANDED_OVER);
	if (atomic_compare_exchange_strong(&pump->state, &ticks, PUMP_AWAKE))
		wake_pump(pump);
}

/* The pump pushes when it arms the link, and looks at `progress` after that; so it pushes again
 * unless it is armed already. */
bool hosts_pump_pushes(struct hosts_pump *pump)
{
	if (!atomic_load(&pump->runs) || atomic_load(&pump->state) == PUMP_ARMED)
		return false;
	if (atomic_load(&pump->progress) == PROGRESS_NONE)
		atomic_store(&pump->progress, PROGRESS_MADE);
	return atomic_load(&pump->state) != PUMP_ARMED;
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
	return (status == LS_OK || status == LS_TIMED_OUT) && !(fds[0].revents & ~POLLIN);
}

static bool sleep_one_tick(struct hosts_pump *pump)
{
	hosts_push(pump->transport);
	atomic_store(&pump->state, PUMP_TICKS);
	/* A thread that has handed over before this store has not seen PUMP_TICKS. */
	bool sleeps =
		atomic_load(&pump->progress) != PROGRESS_HANDED_OVER && !atomic_load(&pump->stop);
	bool ours = !sleeps || sleep_on(pump, -1, TICK_MS);
	atomic_store(&pump->state, PUMP_AWAKE);
	return ours;
}

static bool sleep_armed(struct hosts_pump *pump)
{
	atomic_store(&pump->state, PUMP_ARMED);
	/* A thread that has made progress before this store, and after the link was armed, has not
	 * seen PUMP_ARMED. */
	bool sleeps = atomic_load(&pump->progress) == PROGRESS_NONE && !atomic_load(&pump->stop);
	bool ours = !sleeps || sleep_on(pump, pump->transport->hosts->link->fd, NAP_MS);
	atomic_store(&pump->state, PUMP_AWAKE);
	return ours;
}

static void *pump_main(void *argument)
{
	struct hosts_pump *pump = argument;
	bool ours = true;
	message_set_rank(pump->transport->rank);
	atomic_store(pump->tid, (uint32_t)gettid());
	atomic_store(&pump->waits, 0);
	while (ours && !atomic_load(&pump->stop)) {
		if (hosts_advance_without_push(pump->transport))
			continue;
		if (atomic_exchange(&pump->progress, PROGRESS_NONE) == PROGRESS_MADE)
			ours = sleep_one_tick(pump);
		else if (hosts_arm(pump->transport))
			ours = sleep_armed(pump);
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

static void stop_pump(struct hosts_pump *pump)
{
	atomic_store(&pump->stop, true);
	wake_pump(pump);
	wait_join(pump->thread);
	transport_close_fds(&pump->event_fd, 1);
	atomic_store(&pump->runs, false);
}

/* ---- before the end ---- */

static bool is_flushed(struct transport *transport)
{
	struct hosts *hosts = transport->hosts;
	bool flushed = true;
	for (unsigned w = 0; w < HOSTS_AREA_WORDS; w++)
		flushed = flushed && !atomic_load(&hosts->areas[w]);
	for (int q = 0; q < transport->size && flushed; q++)
		if (transport->peers[q].mirror)
			flushed = hosts->link->ops->flush(hosts->link, q);
	return flushed;
}

void hosts_flush(struct transport *transport, uint64_t deadline_ns)
{
	if (!transport->hosts || !transport->hosts->pump.runs)
		return;
	stop_pump(&transport->hosts->pump);
	struct pollfd fd = {.fd = transport->hosts->link->fd, .events = POLLIN};
	ls_status status = LS_OK;
	while (status == LS_OK) {
		bool did = hosts_advance(transport);
		if (is_flushed(transport) || clock_now_ns() >= deadline_ns)
			return;
		if (!did && hosts_arm(transport))
			status = wait_fds(NULL, &fd, 1, -1, deadline_ns);
	}
}
