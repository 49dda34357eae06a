/* SPDX-License-Identifier: BSD-3-Clause
 * Opens the files that the launcher writes. In a folder that other users may write to, a name may
 * be a trap: a link to a file that must not be lost, or a file that another user reads. */
#include "print/print.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *find_fault(int fd, bool exact)
{
	struct stat status;

	if (fstat(fd, &status) != 0)
		return strerror(errno);
	if (!S_ISREG(status.st_mode))
		return "it is no file";
	if (exact && status.st_uid != geteuid())
		return "it is another user's file";
	if (exact && status.st_nlink != 1)
		return "it is a link to another file";
	return ftruncate(fd, 0) == 0 ? NULL : strerror(errno);
}

/* Whether the name is a link that this user or root has made. */
static bool is_own_link(int place, const char *name)
{
	struct stat status;

	return fstatat(place, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode) &&
	       (status.st_uid == geteuid() || status.st_uid == 0);
}

int print_create(int place, const char *name, bool exact, unsigned mode, const char **why)
{
	/* Not blocking, as the name may be a pipe. Not emptied before it is known to be a file. */
	int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK;
	int fd = openat(place, name, flags | O_NOFOLLOW, mode);

	if (fd < 0 && errno == ELOOP && !exact && is_own_link(place, name))
		fd = openat(place, name, flags, mode);
	if (fd < 0) {
		*why = errno == ELOOP ? "it is a link" : strerror(errno);
		return -1;
	}
	*why = find_fault(fd, exact);
	if (!*why)
		return fd;
	close(fd);
	return -1;
}
