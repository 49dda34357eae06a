/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/own_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Such a descriptor stands for a file without a type. */
bool own_fd_is_event(int fd)
{
	struct stat stat;

	return fd >= 0 && fstat(fd, &stat) == 0 && (stat.st_mode & S_IFMT) == 0;
}

bool own_fd_is_memory(int fd)
{
	return fd >= 0 && fcntl(fd, F_GET_SEALS) >= 0;
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
