/* SPDX-License-Identifier: BSD-3-Clause
 * Plays each rank as a process. The number of the process is made up. Its descriptor is an eventfd
 * that becomes ready when the rank is killed. /proc/NUMBER/stat is a file that is written anew each
 * time the library opens it. */
#include "played.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "failure/failure.h"
#include "proc.h"
#include "scheduler_private.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum {
	FIRST_PID = 1000001,
	FIRST_TID = 2000001,
	DESCRIPTORS = 1024,
};

/* 1 + the rank whose process the descriptor stands for; 1 + the rank at the other end of a socket;
 * 0: none. */
static signed char rank_of_fd[DESCRIPTORS];
static signed char peer_of_fd[DESCRIPTORS];
int played_signals[SCHEDULER_RANKS];

pid_t __real_getpid(void);
pid_t __real_gettid(void);
int __real_kill(pid_t pid, int signal);
int __real_ioctl(int fd, unsigned long request, ...);
int __real_close(int fd);
ssize_t __real_write(int fd, const void *bytes, size_t size);
ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *to, unsigned long to_count,
				const struct iovec *from, unsigned long from_count,
				unsigned long flags);

int played_pid(int rank)
{
	return FIRST_PID + rank;
}

int played_rank(int pid)
{
	int rank = pid - FIRST_PID;
	return rank >= 0 && rank < SCHEDULER_RANKS ? rank : SCHEDULER_NOBODY;
}

static int rank_of(int fd)
{
	return fd >= 0 && fd < DESCRIPTORS ? rank_of_fd[fd] - 1 : SCHEDULER_NOBODY;
}

pid_t __wrap_getpid(void)
{
	return scheduler_self && scheduler_self->rank >= 0 ? played_pid(scheduler_self->rank)
							   : __real_getpid();
}

/* The first thread of a rank is the main thread of its process. */
int played_tid(const struct thread *thread)
{
	for (int i = 0; i < thread->number; i++)
		if (scheduler.threads[i].rank == thread->rank)
			return FIRST_TID + thread->number;
	return thread->rank >= 0 ? played_pid(thread->rank) : FIRST_TID + thread->number;
}

pid_t __wrap_gettid(void)
{
	return scheduler_self ? played_tid(scheduler_self) : __real_gettid();
}

/* ---- descriptors ---- */

int played_pidfd_open(int pid)
{
	int rank = played_rank(pid);
	if (rank < 0) {
		errno = ESRCH;
		return -1;
	}
	int fd = eventfd(scheduler_is_killed(rank), EFD_CLOEXEC | EFD_NONBLOCK);
	if (fd >= DESCRIPTORS)
		scheduler_fail("a descriptor of a process has the number %d", fd);
	if (fd >= 0)
		rank_of_fd[fd] = (signed char)(1 + rank);
	return fd;
}

int played_pidfd_signal(int fd)
{
	int rank = rank_of(fd);
	errno = rank < 0 ? EBADF : ESRCH;
	return rank >= 0 && !scheduler_is_killed(rank) ? 0 : -1;
}

static void end_process(int rank, int signal)
{
	static const uint64_t one = 1;
	played_signals[rank] = signal;
	for (int fd = 0; fd < DESCRIPTORS; fd++)
		if (rank_of_fd[fd] == 1 + rank && __real_write(fd, &one, sizeof one) < 0)
			scheduler_fail("cannot end a process: %s", strerror(errno));
	scheduler.fds_changed = true;
}

void scheduler_kill(int rank, int signal)
{
	struct thread *self = scheduler_self;
	scheduler.killed |= UINT64_C(1) << rank;
	scheduler.kill_in[rank] = 0;
	for (int i = 0; i < scheduler.count; i++) {
		struct thread *thread = &scheduler.threads[i];
		if (thread->rank != rank || thread->state == THREAD_DONE)
			continue;
		thread->state = THREAD_KILLED;
		scheduler_wake(WAITS_THREAD, (struct thread_key){.at = (uint64_t)i}, INT_MAX);
	}
	end_process(rank, signal);
	if (self->rank == rank)
		scheduler_hand_over(self, scheduler_choose(NULL));
}

void scheduler_kill_at(int rank, uint64_t points, int signal)
{
	scheduler.kill_in[rank] = points ? points : 1;
	scheduler.kill_signal[rank] = signal;
}

bool scheduler_is_killed(int rank)
{
	return scheduler.killed >> rank & 1;
}

int __wrap_close(int fd)
{
	if (scheduler_self) {
		scheduler_point(__builtin_return_address(0), "closes a descriptor");
		if (fd >= 0 && fd < DESCRIPTORS)
			rank_of_fd[fd] = peer_of_fd[fd] = 0;
		if (!proc_has(fd))
			scheduler.fds_changed = true;
		proc_forget(fd);
	}
	return __real_close(fd);
}

/* As with an older kernel, a process does not tell how it has ended. /proc tells it. */
int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list list;
	va_start(list, request);
	void *argument = va_arg(list, void *);
	va_end(list);
	if (rank_of(fd) >= 0) {
		errno = ENOTTY;
		return -1;
	}
	return __real_ioctl(fd, request, argument);
}

int __wrap_kill(pid_t pid, int signal)
{
	int rank = played_rank(pid);
	if (!scheduler_self || rank < 0)
		return __real_kill(pid, signal);
	errno = ESRCH;
	return scheduler_is_killed(rank) ? -1 : 0;
}

/* ---- memory of other ranks ---- */

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *to, unsigned long to_count,
				const struct iovec *from, unsigned long from_count,
				unsigned long flags)
{
	int rank = played_rank(pid);
	if (!scheduler_self || rank < 0)
		return __real_process_vm_readv(pid, to, to_count, from, from_count, flags);
	scheduler_point(__builtin_return_address(0), "reads another's memory");
	if (scheduler_is_killed(rank)) {
		errno = ESRCH;
		return -1;
	}
	return __real_process_vm_readv(__real_getpid(), to, to_count, from, from_count, flags);
}

/* ---- who is at the other end of a socket ---- */

enum { MEETINGS = 256, CALLERS = 256 };

/* An address at which a rank listens, and the ranks that have connected and were not accepted yet,
 * in order. */
struct meeting {
	struct sockaddr_un address;
	socklen_t bytes;
	int listener, first, last;
	signed char callers[CALLERS];
};
static struct meeting meetings[MEETINGS];
static int meeting_count;

static void set_peer(int fd, int rank)
{
	if (fd >= 0 && fd < DESCRIPTORS && rank >= 0)
		peer_of_fd[fd] = (signed char)(1 + rank);
}

static struct meeting *find_meeting(const struct sockaddr *address, socklen_t bytes)
{
	for (int i = meeting_count - 1; i >= 0; i--)
		if (meetings[i].bytes == bytes && !memcmp(&meetings[i].address, address, bytes))
			return &meetings[i];
	return NULL;
}

int __real_listen(int fd, int backlog);
int __wrap_listen(int fd, int backlog)
{
	int result = __real_listen(fd, backlog);
	if (!scheduler_self || result)
		return result;
	struct meeting *meeting = &meetings[meeting_count];
	meeting->bytes = sizeof meeting->address;
	if (getsockname(fd, (struct sockaddr *)&meeting->address, &meeting->bytes) ||
	    meeting->bytes > sizeof meeting->address || ++meeting_count == MEETINGS)
		scheduler_fail("a rank listens where it cannot be noted");
	meeting->listener = scheduler_self->rank;
	return 0;
}

int __real_connect(int fd, const struct sockaddr *address, socklen_t bytes);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
	if (!scheduler_self)
		return __real_connect(fd, address, bytes);
	scheduler_point(__builtin_return_address(0), "connects");
	scheduler.fds_changed = true;
	int result = __real_connect(fd, address, bytes);
	struct meeting *meeting = result == 0 ? find_meeting(address, bytes) : NULL;
	if (meeting) {
		meeting->callers[meeting->last++ % CALLERS] = (signed char)scheduler_self->rank;
		set_peer(fd, meeting->listener);
	}
	return result;
}

int __real_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags)
{
	if (!scheduler_self)
		return __real_accept4(fd, address, bytes, flags);
	scheduler_point(__builtin_return_address(0), "accepts");
	scheduler.fds_changed = true;
	int accepted = __real_accept4(fd, address, bytes, flags);
	struct sockaddr_un mine;
	socklen_t length = sizeof mine;
	if (accepted < 0 || getsockname(fd, (struct sockaddr *)&mine, &length) ||
	    length > sizeof mine)
		return accepted;
	struct meeting *meeting = find_meeting((struct sockaddr *)&mine, length);
	if (meeting && meeting->first < meeting->last)
		set_peer(accepted, meeting->callers[meeting->first++ % CALLERS]);
	return accepted;
}

int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *length);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *length)
{
	int result = __real_getsockopt(fd, level, name, value, length);
	bool asks = scheduler_self && level == SOL_SOCKET && name == SO_PEERCRED;
	if (asks && result == 0 && fd < DESCRIPTORS && peer_of_fd[fd])
		((struct ucred *)value)->pid = played_pid(peer_of_fd[fd] - 1);
	return result;
}

/* ---- lines of Python ---- */

/* No Python program is asked for them: that would be a process beside all threads, in real time. */
void __wrap_failure_add_python(struct world *world, struct diagnose_snapshot *snapshot,
			       const struct diagnose_verdict *verdict)
{
	(void)world, (void)snapshot, (void)verdict;
}
