/* SPDX-License-Identifier: BSD-3-Clause
 * Asks the system for the limit at the time of the error: the program may have changed it. */
#include "base/open_limit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

bool open_limit_is_reached(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return errno == EMFILE;
	close(fd);
	return false;
}

uint64_t open_limit_left(void)
{
	DIR *names = opendir("/proc/self/fd");
	uint64_t limit = open_limit_get(), count = 0;

	if (!names)
		return errno == EMFILE ? 0 : limit;
	while (readdir(names))
		count++;
	closedir(names);
	count -= 3; /* . and .. and the folder's own */
	return count < limit ? limit - count : 0;
}

uint64_t open_limit_get(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? (uint64_t)limit.rlim_cur : 0;
}

const char *open_limit_text(int error, char out[OPEN_LIMIT_BYTES])
{
	if (error == EMFILE)
		snprintf(out, OPEN_LIMIT_BYTES,
			 "%s: this process may have %llu, so raise the limit (ulimit -n)",
			 strerror(error), (unsigned long long)open_limit_get());
	else
		snprintf(out, OPEN_LIMIT_BYTES, "%s", strerror(error));
	return out;
}
