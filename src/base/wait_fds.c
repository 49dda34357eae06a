/* SPDX-License-Identifier: BSD-3-Clause
 * The wait for descriptors. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/messages.h"
#include "base/wait.h"
#include "base/wait_slot.h"

enum { NS_PER_S = 1000000000 };

static struct timespec to_timespec(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S),
				 .tv_nsec = (long)(ns % NS_PER_S)};
}

/* mask: NULL for the thread's own. */
static ls_status poll_until(struct pollfd *fds, int count, uint64_t deadline_ns,
			    const sigset_t *mask)
{
	uint64_t now = clock_now_ns();
	struct timespec left = to_timespec(now < deadline_ns ? deadline_ns - now : 0);
	int ready = ppoll(fds, (nfds_t)count, deadline_ns == CLOCK_NEVER ? NULL : &left, mask);
	if (ready > 0)
		return LS_OK;
	if (ready == 0)
		return LS_TIMED_OUT;
	if (errno == EINTR)
		return LS_INTERRUPTED;
	MESSAGE_SAY(MESSAGE_WAIT_SYSTEM, "ppoll", strerror(errno));
	return LS_SYSTEM;
}

/* Polls once without waiting. A signal that arrives now counts as one that came just before. */
static ls_status poll_once(struct pollfd *fds, int count)
{
	sigset_t all;
	ls_status status;
	sigfillset(&all);
	do
		status = poll_until(fds, count, 0, &all);
	while (status == LS_INTERRUPTED); /* by the C library, as all other signals are blocked */
	return status;
}

/* Of a fault, which comes to the thread that makes it, and so to none that polls. Handlers of
 * faults are usual: of the sanitizers, and of programs that tell where they crash. */
static bool is_of_fault(int number)
{
	return number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL ||
	       number == SIGTRAP || number == SIGSYS;
}

static bool has_handler(int number, const sigset_t *mask, bool *restarts)
{
	struct sigaction action;
	if (is_of_fault(number) || sigismember(mask, number) == 1 ||
	    sigaction(number, NULL, &action) != 0)
		return false;
	*restarts = action.sa_flags & SA_RESTART;
	return action.sa_flags & SA_SIGINFO ||
	       (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

/* Whether a handler of the program can run under this mask. If not, a poll was interrupted by a
 * signal of the C library, which sends one to all threads when one calls setuid(2). */
static bool any_handler(const sigset_t *mask)
{
	bool any = false, restarts = false;
	for (int number = 1; number <= SIGRTMAX && !any; number++)
		any = has_handler(number, mask, &restarts);
	return any;
}

/* A descriptor that is ready when a signal has come whose handler was installed with SA_RESTART;
 * -1: there are no such handlers. *mask: the thread's mask, and these signals. *interrupts: there
 * is a handler that ends a poll. */
static int open_restarting(sigset_t *mask, bool *interrupts)
{
	bool any = false;
	sigset_t restarting;
	sigemptyset(&restarting);
	pthread_sigmask(SIG_BLOCK, NULL, mask);
	for (int number = 1; number <= SIGRTMAX; number++) {
		bool restarts = false;
		if (!has_handler(number, mask, &restarts))
			continue;
		*interrupts |= !restarts;
		if (restarts && sigaddset(&restarting, number) == 0 && sigaddset(mask, number) == 0)
			any = true;
	}
	return any ? signalfd(-1, &restarting, SFD_CLOEXEC | SFD_NONBLOCK) : -1;
}

/* Any handler ends poll(2). So signals whose handlers must not end the wait are blocked while it
 * sleeps, and a signalfd wakes it when one is pending: then the handler runs, and the wait
 * continues. Handlers without SA_RESTART end the wait. */
static ls_status poll_resuming(const struct waiter *waiter, struct pollfd *fds, int count,
			       uint64_t deadline_ns)
{
	struct pollfd all[WAIT_FDS_MAX + 1];
	sigset_t mask;
	bool interrupts = false; /* before a handler runs, as it may remove itself */
	int fd = count <= WAIT_FDS_MAX ? open_restarting(&mask, &interrupts) : -1;
	int extra = fd >= 0;
	bool again;
	ls_status status;
	do {
		if (extra && count > 0)
			memcpy(all, fds, (size_t)count * sizeof *fds);
		all[extra ? count : 0] = (struct pollfd){.fd = fd, .events = POLLIN};
		status = poll_until(extra ? all : fds, count + extra, deadline_ns,
				    extra ? &mask : NULL);
		if (status == LS_INTERRUPTED && !extra)
			pthread_sigmask(SIG_BLOCK, NULL, &mask);
		again = status == LS_INTERRUPTED &&
			(waiter->resumes || !(interrupts || any_handler(&mask)));
		if (extra && status == LS_OK && all[count].revents) {
			/* The handler has run. This poll finds descriptors that are ready as
			 * well. */
			status = poll_once(fds, count);
			again = status == LS_TIMED_OUT && clock_now_ns() < deadline_ns;
		} else if (extra && count > 0) {
			memcpy(fds, all, (size_t)count * sizeof *fds);
		}
	} while (again);
	if (fd >= 0)
		close(fd);
	return status;
}

ls_status wait_fds(struct waiter *waiter, struct pollfd *fds, int count, int peer,
		   uint64_t deadline_ns)
{
	lock_assert_none();
	/* What is ready now needs no slot; a deadline in the past means one look. */
	ls_status status = poll_once(fds, count);
	uint64_t now = clock_now_ns();
	if (status != LS_TIMED_OUT || now >= deadline_ns)
		return status;
	if (waiter) {
		struct wait_slot_body body;
		memset(&body, 0, offsetof(struct wait_slot_body, edges));
		body.state = WAIT_FDS;
		body.has_own_limit = deadline_ns != CLOCK_NEVER;
		body.since_ns = now;
		body.deadline_ns = deadline_ns;
		body.edge_count = 1;
		body.edges[0] = (struct wait_edge){.owner = -1, .peer = peer};
		wait_slot_publish(waiter, &body, NULL);
	}
	status = waiter ? poll_resuming(waiter, fds, count, deadline_ns)
			: poll_until(fds, count, deadline_ns, NULL);
	if (waiter)
		wait_slot_clear(waiter);
	return status;
}
