/* SPDX-License-Identifier: BSD-3-Clause
 * The counter and the list of sockets are the mutable process-wide state that a fork handler needs:
 * they are about the process, not about a rank. */
#include "base/fork.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SOCKETS_MAX = 2048 };

_Atomic uint32_t fork_count;
static pthread_once_t registered = PTHREAD_ONCE_INIT;
/* fd: 0, or 1 + the descriptor. A number may pass to another file meanwhile; the inode does not. */
static struct {
	_Atomic bool is_taken;
	_Atomic int fd;
	_Atomic uint64_t inode;
} sockets[SOCKETS_MAX];

/* The socket's inode; 0: the descriptor is no socket. */
static uint64_t inode_of(int fd)
{
	struct stat status;
	return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) ? status.st_ino : 0;
}

static void in_child(void)
{
	atomic_fetch_add_explicit(&fork_count, 1, memory_order_relaxed);
	for (int i = 0; i < SOCKETS_MAX; i++) {
		int fd = atomic_load_explicit(&sockets[i].fd, memory_order_acquire) - 1;
		if (fd < 0)
			continue; /* writing to all would copy pages */
		if (inode_of(fd) == atomic_load(&sockets[i].inode))
			close(fd);
		fork_forget(i);
	}
}

static void register_handler(void)
{
	/* Without memory for the handler a child is not recognised, and holds the sockets;
	 * everything else works. */
	int error = pthread_atfork(NULL, NULL, in_child);
	(void)error;
}

int fork_close_in_child(int fd)
{
	uint64_t inode = inode_of(fd);
	pthread_once(&registered, register_handler);
	for (int i = 0; inode && i < SOCKETS_MAX; i++) {
		if (atomic_load(&sockets[i].is_taken) || atomic_exchange(&sockets[i].is_taken, true))
			continue;
		atomic_store(&sockets[i].inode, inode);
		atomic_store_explicit(&sockets[i].fd, fd + 1, memory_order_release);
		return i;
	}
	return -1;
}

void fork_forget(int mark)
{
	atomic_store(&sockets[mark].fd, 0);
	atomic_store(&sockets[mark].is_taken, false);
}

uint32_t fork_generation(void)
{
	pthread_once(&registered, register_handler);
	return atomic_load_explicit(&fork_count, memory_order_relaxed);
}

uint32_t fork_pid_space(void)
{
	struct stat status;
	return stat("/proc/self/ns/pid", &status) == 0 ? (uint32_t)status.st_ino : 0;
}
