/* SPDX-License-Identifier: BSD-3-Clause
 * What this process holds, as the system counts it. For tests whose ranks are processes. */
#ifndef TEST_RANKS_PROCESS_H
#define TEST_RANKS_PROCESS_H

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner.h"

/* Entries of a folder, "." and ".." and, of /proc/self/fd, the one that reads it among them. */
static inline int process_entries(const char *path)
{
	DIR *folder = opendir(path);
	int count = 0;
	CHECK(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

static inline int process_lines(const char *path)
{
	FILE *file = fopen(path, "re");
	int count = 0;
	CHECK(file);
	for (int c; (c = getc(file)) != EOF;)
		count += c == '\n';
	fclose(file);
	return count;
}

/* A line of /proc/self/status, e.g. "RssShmem:", in KiB. */
static inline long process_kib(const char *name)
{
	FILE *file = fopen("/proc/self/status", "re");
	char line[256];
	long kib = -1;
	CHECK(file);
	while (fgets(line, sizeof line, file))
		if (strncmp(line, name, strlen(name)) == 0)
			CHECK(sscanf(line + strlen(name), "%ld", &kib) == 1);
	fclose(file);
	CHECK(kib >= 0);
	return kib;
}

/* Memory that the system has given to all files in memory which this process holds, in KiB. */
static inline long process_memfd_kib(void)
{
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;
	long kib = 0;
	CHECK(folder);
	while ((entry = readdir(folder))) {
		char target[64] = "";
		struct stat stat;
		if (readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1) > 0 &&
		    strncmp(target, "/memfd:lockstep", 15) == 0 &&
		    fstatat(dirfd(folder), entry->d_name, &stat, 0) == 0)
			kib += (long)stat.st_blocks / 2;
	}
	closedir(folder);
	return kib;
}

#endif
