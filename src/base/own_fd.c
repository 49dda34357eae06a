/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/own_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Whether the system calls the open file by a name that begins so. Where it cannot tell, as without
 * /proc, `otherwise` counts. */
static bool is_named(int fd, const char *name, bool otherwise)
{
	char path[40], target[64];
	size_t length = strlen(name);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	ssize_t got = readlink(path, target, sizeof target);
	return got < 0 ? otherwise : got >= (ssize_t)length && memcmp(target, name, length) == 0;
}

/* An eventfd and its relatives stand for a file without a type. */
bool own_fd_is_event(int fd)
{
	struct stat stat;
	return fd >= 0 && fstat(fd, &stat) == 0 && (stat.st_mode & S_IFMT) == 0 &&
	       is_named(fd, "anon_inode:[eventfd]", true);
}

/* All files in memory have seals, also those of /dev/shm. */
bool own_fd_is_memory(int fd)
{
	return fd >= 0 && fcntl(fd, F_GET_SEALS) >= 0 && is_named(fd, "/memfd:lockstep-", true);
}

bool own_fd_is_process(int fd)
{
	return fd >= 0 && (syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == 0 || errno == ESRCH ||
			   errno == EPERM);
}

void own_fd_close(int *fd, bool (*is)(int fd))
{
	if (is(*fd))
		close(*fd);
	*fd = -1;
}
