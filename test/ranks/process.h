/* SPDX-License-Identifier: BSD-3-Clause
 * What this process holds, as the system counts it, for tests whose ranks are processes; and what a
 * thread does. */
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

/* Files of /dev/shm that this process has mapped. Other processes may have some there, too. */
static inline int process_named_memory(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	char line[512];
	int count = 0;
	CHECK(file);
	while (fgets(line, sizeof line, file))
		count += strstr(line, " /dev/shm/") != NULL;
	fclose(file);
	return count;
}

/* Waits until the process has this many threads: the program's, the watch and the progress thread
 * are 3. A joined thread is in the folder a moment longer. */
static inline void process_await_threads(const struct runner_rank *self, int expected)
{
	int threads;
	while ((threads = process_entries("/proc/self/task") - 2) != expected)
		runner_note(self, "%d threads", threads);
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

/* Of a thread or process: 'S' if it sleeps, 'T' if it is stopped, as in proc(5). */
static inline char process_state(int id)
{
	char path[64], line[256] = "";
	snprintf(path, sizeof path, "/proc/%d/stat", id);
	FILE *file = fopen(path, "re");
	CHECK(file && fgets(line, sizeof line, file));
	fclose(file);
	const char *name_ends = strrchr(line, ')');
	CHECK(name_ends);
	return name_ends[2];
}

#endif
