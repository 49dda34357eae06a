/* SPDX-License-Identifier: BSD-3-Clause
 * Empty files in a folder that all hosts share, by which ranks and the test that started them tell
 * each other how far they are. */
#ifndef NET_FILES_H
#define NET_FILES_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

static inline bool has_file(const char *folder, const char *name)
{
	char path[512];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	return access(path, F_OK) == 0;
}

static inline void make_file(const char *folder, const char *name)
{
	char path[512];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
	if (fd >= 0)
		close(fd);
}

#endif
