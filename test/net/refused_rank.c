/* SPDX-License-Identifier: BSD-3-Clause
 * refused_rank FOLDER FAULTY CALL HOW FIRST STEP LAST: the ranks of one host, LOCAL of WORLD_SIZE,
 * open a group, call a barrier and close the group, again and again. In opening FIRST, FIRST +
 * STEP, … that CALL of rank FAULTY which has this number fails with the error HOW (> 0), or the
 * rank gets the signal -HOW, or exits (0); with ON set, so does each later one. After an error the
 * same processes open a group in which nothing fails. Ends after opening LAST, or when an opening
 * makes fewer calls than that. Prints what each rank got, and what its process holds then. */
#undef _FILE_OFFSET_BITS
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

enum { HANG_S = 40, PORT_FIRST = 10000, RANKS_MAX = 16 };

/* In a file that all hosts share. */
struct job {
	_Atomic bool is_ready; /* the barrier is */
	pthread_barrier_t meeting;
	/* An opening has made fewer calls than the number of the one that fails. */
	_Atomic bool is_over;
};

static struct job *job;
static const char *fault_call;
static int fault_number, fault_how;
static bool goes_on; /* all calls from this number on fail */
static _Atomic bool is_armed;
static _Atomic bool is_refused; /* the next connection, of a broken one: see connect */
static _Atomic int calls;

static int number(const char *text)
{
	return text ? (int)strtol(text, NULL, 10) : 0;
}

/* ---- the calls ---- */

/* Whether this call fails; then errno is set. */
static bool fails(const char *call)
{
	if (!atomic_load(&is_armed) || strcmp(call, fault_call) != 0)
		return false;
	int made = atomic_fetch_add(&calls, 1) + 1;
	if (goes_on ? made < fault_number : made != fault_number)
		return false;
	if (fault_how == 0)
		exit(3);
	if (fault_how < 0)
		kill(getpid(), -fault_how);
	while (fault_how < 0) /* another thread gets the signal */
		sched_yield();
	errno = fault_how;
	return true;
}

/* The library and UCX find these functions before those of the C library. */
#define REFUSED(result, name, failed, parameters, arguments)                          \
	result name parameters                                                        \
	{                                                                             \
		result(*real) parameters = (__typeof__(real))dlsym(RTLD_NEXT, #name); \
		return fails(#name) ? (failed) : real arguments;                      \
	}

REFUSED(int, socket, -1, (int family, int type, int protocol), (family, type, protocol))
REFUSED(int, socketpair, -1, (int family, int type, int protocol, int fds[2]),
	(family, type, protocol, fds))
/* "reset": the connection breaks as soon as it is made, and the next one is refused. */
int connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
	int (*real)(int, const struct sockaddr *, socklen_t) =
		(__typeof__(real))dlsym(RTLD_NEXT, "connect");
	if (fails("connect"))
		return -1;
	if (address->sa_family == AF_INET && atomic_exchange(&is_refused, false)) {
		errno = ECONNREFUSED;
		return -1;
	}
	bool breaks = address->sa_family == AF_INET && fails("reset");
	if (breaks)
		atomic_store(&is_refused, true);
	int result = real(fd, address, bytes), error = errno;
	struct pollfd made = {.fd = fd, .events = POLLOUT};
	if (breaks && poll(&made, 1, -1) == 1)
		shutdown(fd, SHUT_RDWR);
	errno = error;
	return result;
}
REFUSED(int, bind, -1, (int fd, const struct sockaddr *address, socklen_t bytes),
	(fd, address, bytes))
REFUSED(int, listen, -1, (int fd, int count), (fd, count))
REFUSED(int, accept, -1, (int fd, struct sockaddr *address, socklen_t *bytes), (fd, address, bytes))
REFUSED(int, accept4, -1, (int fd, struct sockaddr *address, socklen_t *bytes, int flags),
	(fd, address, bytes, flags))
REFUSED(int, getsockname, -1, (int fd, struct sockaddr *address, socklen_t *bytes),
	(fd, address, bytes))
REFUSED(int, getpeername, -1, (int fd, struct sockaddr *address, socklen_t *bytes),
	(fd, address, bytes))
REFUSED(int, setsockopt, -1, (int fd, int level, int name, const void *value, socklen_t bytes),
	(fd, level, name, value, bytes))
REFUSED(int, getsockopt, -1, (int fd, int level, int name, void *value, socklen_t *bytes),
	(fd, level, name, value, bytes))
/* A connection that is reset is gone for later calls, too. */
#define RESET(name, message_type)                                        \
	ssize_t name(int fd, message_type *message, int flags)           \
	{                                                                \
		ssize_t (*real)(int, message_type *, int) =              \
			(__typeof__(real))dlsym(RTLD_NEXT, #name);       \
		if (!fails(#name))                                       \
			return real(fd, message, flags);                 \
		if (errno == ECONNRESET && shutdown(fd, SHUT_RDWR) != 0) \
			errno = ECONNRESET;                              \
		return -1;                                               \
	}
RESET(sendmsg, const struct msghdr)
RESET(recvmsg, struct msghdr)
REFUSED(ssize_t, send, -1, (int fd, const void *data, size_t bytes, int flags),
	(fd, data, bytes, flags))
REFUSED(ssize_t, recv, -1, (int fd, void *data, size_t bytes, int flags), (fd, data, bytes, flags))
REFUSED(ssize_t, read, -1, (int fd, void *data, size_t bytes), (fd, data, bytes))
REFUSED(ssize_t, write, -1, (int fd, const void *data, size_t bytes), (fd, data, bytes))
REFUSED(int, pipe, -1, (int fds[2]), (fds))
REFUSED(int, pipe2, -1, (int fds[2], int flags), (fds, flags))
REFUSED(int, eventfd, -1, (unsigned count, int flags), (count, flags))
REFUSED(int, epoll_create, -1, (int size), (size))
REFUSED(int, epoll_create1, -1, (int flags), (flags))
REFUSED(int, epoll_ctl, -1, (int poll, int what, int fd, struct epoll_event *event),
	(poll, what, fd, event))
REFUSED(int, memfd_create, -1, (const char *name, unsigned flags), (name, flags))
REFUSED(int, ftruncate, -1, (int fd, off_t bytes), (fd, bytes))
REFUSED(int, dup, -1, (int fd), (fd))
REFUSED(int, pthread_create, errno,
	(pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user),
	(thread, attributes, run, user))
REFUSED(FILE *, fopen, NULL, (const char *path, const char *mode), (path, mode))
REFUSED(DIR *, opendir, NULL, (const char *path), (path))

/* Before dlsym can be called. */
void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	if (fails("mmap"))
		return MAP_FAILED;
	return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

void *mmap64(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	return mmap(at, bytes, protection, flags, fd, offset);
}

int open(const char *path, int flags, ...)
{
	va_list more;
	va_start(more, flags);
	int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0;
	va_end(more);
	return fails("open") ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));
FILE *fopen64(const char *path, const char *mode) __attribute__((alias("fopen")));
int ftruncate64(int fd, off_t bytes) __attribute__((alias("ftruncate")));

int fcntl(int fd, int what, ...)
{
	va_list more;
	va_start(more, what);
	void *argument = va_arg(more, void *);
	va_end(more);
	int (*real)(int, int, ...) = (__typeof__(real))dlsym(RTLD_NEXT, "fcntl");
	bool dups = what == F_DUPFD || what == F_DUPFD_CLOEXEC;
	return fails(dups ? "dupfd" : "fcntl") ? -1 : real(fd, what, argument);
}

int fcntl64(int fd, int what, ...) __attribute__((alias("fcntl")));

/* ---- a rank ---- */

static int count_names(const char *folder)
{
	DIR *names = opendir(folder);
	int count = 0;
	while (names && readdir(names))
		count++;
	closedir(names);
	return count;
}

static int count_maps(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	int count = 0;
	for (int c; (c = fgetc(maps)) != EOF;)
		count += c == '\n';
	fclose(maps);
	return count;
}

static ls_status open_and_close(int port, bool faulty, bool is_good)
{
	char text[16];
	snprintf(text, sizeof text, "%d", port);
	setenv("MASTER_PORT", text, 1);
	ls_group *group;
	alarm(HANG_S);
	atomic_store(&calls, 0);
	atomic_store(&is_armed, faulty);
	/* Ranks that fail early wait for the others to begin the opening that goes well. */
	const struct ls_group_options patient = {.size = sizeof patient,
						 .open_timeout_ms = HANG_S / 2 * 1000};
	ls_status status = ls_group_open(is_good ? &patient : NULL, &group);
	atomic_store(&is_armed, false);
	atomic_store(&is_refused, false); /* there may have been no next one */
	bool is_open = status == LS_OK;
	if (is_open) /* a rank that failed once all were connected has left the group */
		status = ls_barrier(group, NULL);
	if (is_open)
		ls_group_close(group);
	return status;
}

static double now_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void run_rank(const char *rank, bool faulty, int first, int step, int last, int port)
{
	for (int n = first; n <= last; n += step) {
		fault_number = n;
		double begin = now_s();
		ls_status status = open_and_close(port++, faulty, false);
		printf("rank %s: play %d: %s in %.2f s\n", rank, n, ls_status_name(status),
		       now_s() - begin);
		if (faulty && atomic_load(&calls) < n)
			atomic_store(&job->is_over, true);
		if (fault_how <= 0)
			return;
		status = open_and_close(port++, false, true);
		printf("rank %s: after %d: %s, %d files, %d threads, %d maps\n", rank, n,
		       ls_status_name(status), count_names("/proc/self/fd"),
		       count_names("/proc/self/task"), count_maps());
		if (status != LS_OK || atomic_load(&job->is_over))
			return;
	}
}

/* ---- a host ---- */

static bool open_job(const char *folder)
{
	char path[256];
	snprintf(path, sizeof path, "%s/job", folder);
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	bool is_first = fd >= 0;
	if (!is_first)
		fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || ftruncate(fd, sizeof *job) != 0)
		return false;
	job = mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	pthread_barrierattr_t shared;
	pthread_barrierattr_init(&shared);
	pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	if (is_first)
		pthread_barrier_init(&job->meeting, &shared, (unsigned)number(getenv("HOSTS")));
	if (is_first)
		atomic_store(&job->is_ready, true);
	while (!atomic_load(&job->is_ready))
		sched_yield();
	return true;
}

/* False: one ended by a signal that it did not get from itself as its fault. */
static bool await_ranks(const pid_t *pids, int first, int count)
{
	bool good = true;
	for (int i = 0; i < count; i++) {
		int status;
		if (waitpid(pids[i], &status, 0) != pids[i] || WIFEXITED(status))
			continue;
		printf("rank %d: ended by signal %d\n", first + i, WTERMSIG(status));
		good = good && WTERMSIG(status) == -fault_how;
	}
	return good;
}

int main(int count, char **words)
{
	int local = number(getenv("LOCAL")), lowest = number(getenv("HOST")) * local;
	int port = PORT_FIRST;
	if (count != 8 || local > RANKS_MAX || !open_job(words[1]))
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	int faulty = number(words[2]), first = number(words[5]), step = number(words[6]);
	int last = number(words[7]);
	fault_call = words[3];
	fault_how = number(words[4]);
	goes_on = getenv("ON");
	for (int n = first; n <= last; n += step) {
		pid_t pids[RANKS_MAX];
		for (int i = 0; i < local; i++) {
			char rank[16];
			snprintf(rank, sizeof rank, "%d", lowest + i);
			setenv("RANK", rank, 1);
			pids[i] = fork();
			if (pids[i] == 0) {
				run_rank(rank, lowest + i == faulty, n, step, last, port);
				_exit(0);
			}
		}
		bool good = await_ranks(pids, lowest, local);
		port++;
		pthread_barrier_wait(&job->meeting);
		if (!good || fault_how > 0 || atomic_load(&job->is_over))
			break;
	}
	return 0;
}
