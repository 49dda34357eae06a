/* SPDX-License-Identifier: BSD-3-Clause
 * opening_rank FAULTY CALL NUMBER SIGNAL: the ranks of one host, LOCAL of WORLD_SIZE, open a group.
 * Rank FAULTY gets the signal at its NUMBER-th CALL of the C library: "connect" over a network, but
 * not to the rendezvous; "accept" by UCX; or "send". Without a signal (0) it can open no file more
 * then. "open": before it opens the group it can open only NUMBER more. Prints what each rank
 * got. */
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

static int number(const char *text)
{
	return text ? (int)strtol(text, NULL, 10) : 0;
}

static const char *fault_call; /* NULL: this rank has no fault */
static int fault_number, fault_signal;
static _Atomic int calls;

/* All descriptors below the limit are in use but `left`. */
static void limit_files(int left)
{
	int next = fcntl(0, F_DUPFD_CLOEXEC, 0);
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = (rlim_t)(next + left);
	close(next);
	setrlimit(RLIMIT_NOFILE, &limit);
}

static void pass(const char *call)
{
	if (!fault_call || strcmp(call, fault_call) != 0 ||
	    atomic_fetch_add(&calls, 1) + 1 != fault_number)
		return;
	if (fault_signal == 0)
		limit_files(0);
	else
		kill(getpid(), fault_signal);
}

/* The library and UCX find these before those of the C library. */
int connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
	int (*real)(int, const struct sockaddr *, socklen_t) =
		(__typeof__(real))dlsym(RTLD_NEXT, "connect");
	uint16_t port = ((const struct sockaddr_in *)(const void *)address)->sin_port;
	if (address->sa_family == AF_INET && ntohs(port) != number(getenv("MASTER_PORT")))
		pass("connect");
	return real(fd, address, bytes);
}

int accept(int fd, struct sockaddr *address, socklen_t *bytes)
{
	int (*real)(int, struct sockaddr *, socklen_t *) =
		(__typeof__(real))dlsym(RTLD_NEXT, "accept");
	pass("accept");
	return real(fd, address, bytes);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	ssize_t (*real)(int, const struct msghdr *, int) =
		(__typeof__(real))dlsym(RTLD_NEXT, "sendmsg");
	pass("send");
	return real(fd, message, flags);
}

int main(int count, char **words)
{
	int local = number(getenv("LOCAL")), first = number(getenv("HOST")) * local;
	char rank[16];
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 0; i < local; i++) {
		snprintf(rank, sizeof rank, "%d", first + i);
		setenv("RANK", rank, 1);
		if (fork() > 0)
			continue;
		ls_group *group;
		if (count == 5 && number(words[1]) == first + i) {
			fault_call = words[2];
			fault_number = number(words[3]);
			fault_signal = number(words[4]);
		}
		if (fault_call && strcmp(fault_call, "open") == 0)
			limit_files(fault_number);
		ls_status status = ls_group_open(NULL, &group);
		printf("rank %s: %s\n", rank, ls_status_name(status));
		fflush(stdout);
		if (status == LS_OK)
			ls_group_close(group);
		_exit(0);
	}
	/* Whoever stops is ended once all others have ended. */
	for (int status, left = local; left > 0; left--) {
		pid_t pid = waitpid(-1, &status, WUNTRACED);
		if (pid > 0 && WIFSTOPPED(status)) {
			printf("pid %d: stopped\n", pid);
			fflush(stdout);
			for (int others = left - 1; others > 0; others--)
				(void)waitpid(-1, &status, 0);
			kill(pid, SIGKILL);
			break;
		}
		if (pid > 0 && WIFSIGNALED(status))
			printf("pid %d: signal %d\n", pid, WTERMSIG(status));
	}
	return 0;
}
