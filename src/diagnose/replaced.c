/* SPDX-License-Identifier: BSD-3-Clause
 * Whether the process of a rank runs another program since an exec. It keeps its number, its
 * parent and its start time then, so no descriptor of it tells; but its threads and its memory are
 * gone, and with them all that peers wait for. */
#include "diagnose/facts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct file {
	unsigned major, minor;
	unsigned long inode; /* 0: memory of no file */
};

/* Reads the next mapping of /proc/PID/maps. */
static bool next_mapping(FILE *maps, uintptr_t *begin, uintptr_t *end, struct file *file)
{
	char *line = NULL;
	size_t bytes = 0;
	unsigned long from = 0, to = 0;
	bool read = getline(&line, &bytes, maps) > 0 &&
		    sscanf(line, "%lx-%lx %*s %*x %x:%x %lu", &from, &to, &file->major,
			   &file->minor, &file->inode) == 5;
	free(line);
	*begin = from;
	*end = to;
	return read;
}

/* The file that this process has mapped at the address. */
static bool find_own_file(const void *address, struct file *out)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	uintptr_t begin = 0, end = 0;
	bool found = false;
	while (maps && !found && next_mapping(maps, &begin, &end, out))
		found = begin <= (uintptr_t)address && (uintptr_t)address < end;
	if (maps)
		fclose(maps);
	return found && out->inode != 0;
}

/* Whether the process has memory, and none of it is of the file. Of a process that ends /proc shows
 * all of its memory or none, also after some of its threads are gone. */
static bool has_lost_file(int pid, const struct file *file)
{
	char path[64];
	struct file its;
	uintptr_t begin, end;
	bool any = false, found = false;
	snprintf(path, sizeof path, "/proc/%d/maps", pid);
	FILE *maps = fopen(path, "re");
	while (maps && !found && next_mapping(maps, &begin, &end, &its)) {
		any = true;
		found = its.inode == file->inode && its.major == file->major &&
			its.minor == file->minor;
	}
	if (maps)
		fclose(maps);
	return any && !found;
}

static bool has_no_thread(int pid, int tid)
{
	char path[64], text[16];
	snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, tid);
	return diagnose_read_file(path, text, sizeof text, NULL) < 0 && errno == ENOENT;
}

bool diagnose_is_replaced(int pid, const struct trace_view *trace)
{
	uint32_t tid = atomic_load(&trace->wait_table->watch_tid);
	struct file file;
	/* While this thread lives there is no more to read. It has no number yet right after the
	 * group was opened. A rank that closes its world says that it leaves before it unmaps its
	 * trace. */
	return (tid == 0 || has_no_thread(pid, (int)tid)) && find_own_file(trace->header, &file) &&
	       has_lost_file(pid, &file) && atomic_load(&trace->header->left_ns) == 0;
}
