/* SPDX-License-Identifier: BSD-3-Clause */
#include "hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runner.h"

enum {
	SKIPPED = 77,
	FIRST_PORT = 20000,
	PORTS = 10000,
	SPACES = CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWNS
};

static int host_count;
static int keepers[HOSTS_MAX]; /* pidfds of the processes that keep the namespaces */

_Noreturn static void skip(const char *what)
{
	printf("# skipped: no hosts of namespaces here: %s: %s\n0 passed, 0 failed\n", what,
	       strerror(errno));
	exit(SKIPPED);
}

__attribute__((format(printf, 1, 2))) static bool run(const char *format, ...)
{
	char line[256];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(line, sizeof line, format, arguments);
	va_end(arguments);
	errno = ENOEXEC; /* a command that fails says why */
	return system(line) == 0;
}

static bool write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t length = (ssize_t)strlen(text);
	bool written = fd >= 0 && write(fd, text, (size_t)length) == length;
	return fd >= 0 && close(fd) == 0 && written;
}

/* A process without rights gets those of root in a user namespace. */
static void enter_network(void)
{
	char users[32], groups[32];
	snprintf(users, sizeof users, "0 %u 1", (unsigned)geteuid());
	snprintf(groups, sizeof groups, "0 %u 1", (unsigned)getegid());
	if (geteuid() != 0 &&
	    (unshare(CLONE_NEWUSER) || !write_file("/proc/self/setgroups", "deny") ||
	     !write_file("/proc/self/uid_map", users) || !write_file("/proc/self/gid_map", groups)))
		skip("user namespace");
	if (unshare(CLONE_NEWNET))
		skip("network namespace");
	if (!run("ip link add bridge type bridge && ip link set bridge up"))
		skip("bridge");
}

/* Keeps a host until the runner ends. `told` is readable when its device is there. */
_Noreturn static void keep(int host, pid_t runner, int told, int tell)
{
	char name[16], byte = 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != runner)
		_exit(1);
	snprintf(name, sizeof name, "host%d", host);
	/* /sys shows the devices of the namespace in which it was mounted, and UCX looks there. */
	bool made =
		unshare(SPACES) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		mount("sysfs", "/sys", "sysfs", 0, NULL) == 0 &&
		sethostname(name, strlen(name)) == 0 && write(tell, &byte, 1) == 1 &&
		read(told, &byte, 1) == 1 &&
		run("ip addr add 198.18.0.%d/15 dev wire && ip link set wire up && ip link set lo up",
		    host + 1) &&
		write(tell, &byte, 1) == 1;
	if (made)
		(void)pause(); /* until the runner's end kills it */
	_exit(1);
}

static void make(int host)
{
	int told[2], tell[2];
	char byte = 0;
	pid_t runner = getpid();
	if (pipe2(told, O_CLOEXEC) || pipe2(tell, O_CLOEXEC))
		skip("pipe");
	pid_t pid = fork();
	if (pid == 0) {
		close(told[1]);
		keep(host, runner, told[0], tell[1]);
	}
	close(told[0]);
	close(tell[1]);
	keepers[host] = pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
	bool made = keepers[host] >= 0 && read(tell[0], &byte, 1) == 1 &&
		    run("ip link add port%d type veth peer name wire netns %d", host, (int)pid) &&
		    run("ip link set port%d master bridge up", host) &&
		    write(told[1], &byte, 1) == 1 && read(tell[0], &byte, 1) == 1;
	if (!made)
		skip("host");
	close(told[1]);
	close(tell[0]);
}

void hosts_make(int count)
{
	host_count = count;
	runner_is_on_hosts = count > 1;
	fflush(stdout);
	enter_network();
	for (int host = 0; host < count; host++)
		make(host);
}

void hosts_enter(int host)
{
	char folder[PATH_MAX]; /* the root of another mount namespace becomes the folder */
	if (!getcwd(folder, sizeof folder) || setns(keepers[host], SPACES) || chdir(folder) ||
	    setenv("LOCKSTEP_TRUST_NETWORK", "1", 1)) {
		perror("hosts_enter");
		_exit(2);
	}
	for (int i = 0; i < host_count; i++)
		close(keepers[i]);
}

int hosts_of_rank(int rank, int size)
{
	return rank * host_count / size;
}

void hosts_rendezvous(char *text, size_t room, unsigned job)
{
	snprintf(text, room, "tcp:198.18.0.1:%u", FIRST_PORT + job % PORTS);
}
