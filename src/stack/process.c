/* SPDX-License-Identifier: BSD-3-Clause
 * The memory of another process, which of its files may hold an interpreter, and its threads. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/text.h"
#include "stack/stack_private.h"

enum { LINE_BYTES = 4096 + 128, STAT_BYTES = 512 };

const char *stack_answer_text(enum stack_answer answer)
{
	switch (answer) {
	case STACK_FOUND:
	case STACK_NOTHING:
		break;
	case STACK_REFUSED:
		return "the system does not let this user look into the process: ask as root, or "
		       "see kernel.yama.ptrace_scope in `man ptrace`";
	case STACK_UNKNOWN:
		return "its Python is none of 3.9 to 3.15 with a global lock";
	case STACK_MOVED:
		return "could not be read, as it ran meanwhile";
	case STACK_HANGS:
		return "a thread of the process sleeps uninterruptibly in the kernel, and a process that "
		       "reads its memory might sleep along";
	case STACK_GONE:
		return "has ended";
	}
	return "";
}

static bool read_process(const struct stack_memory *memory, uint64_t address, void *to, size_t bytes)
{
	struct iovec into = {.iov_base = to, .iov_len = bytes};
	struct iovec from = {.iov_base = (void *)(uintptr_t)address, .iov_len = bytes};
	ssize_t got;
	do
		got = process_vm_readv(memory->pid, &into, 1, &from, 1, 0);
	while (got < 0 && errno == EINTR);
	return got == (ssize_t)bytes;
}

void stack_memory_open(int pid, struct stack_memory *out)
{
	*out = (struct stack_memory){.read = read_process, .pid = pid};
	out->pidfd = (int)syscall(SYS_pidfd_open, pid, 0); /* the kernel sets close-on-exec */
	out->gone = out->pidfd < 0 && errno == ESRCH;
}

void stack_memory_close(struct stack_memory *memory)
{
	if (memory->pidfd >= 0)
		close(memory->pidfd);
	memory->pidfd = -1;
}

bool stack_memory_is_there(const struct stack_memory *memory)
{
	if (memory->pidfd < 0)
		return !memory->gone;
	return syscall(SYS_pidfd_send_signal, memory->pidfd, 0, NULL, 0) == 0 || errno != ESRCH;
}

/* ---- threads ---- */

int stack_list_threads(int pid, uint32_t *tids, int max)
{
	char path[64];
	int count = 0;
	snprintf(path, sizeof path, "/proc/%d/task", pid);
	DIR *tasks = opendir(path);
	for (const struct dirent *entry; tasks && count < max && (entry = readdir(tasks)) != NULL;) {
		long tid = strtol(entry->d_name, NULL, 10);
		if (tid <= 0)
			continue;
		tids[count] = (uint32_t)tid;
		if (tid == pid) { /* the main thread first */
			tids[count] = tids[0];
			tids[0] = (uint32_t)tid;
		}
		count++;
	}
	if (tasks)
		closedir(tasks);
	return count;
}

bool stack_read_thread_file(int pid, uint32_t tid, const char *name, char *out, size_t bytes)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/task/%" PRIu32 "/%s", pid, tid, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = fd >= 0 ? read(fd, out, bytes - 1) : -1;
	if (fd >= 0)
		close(fd);
	out[length > 0 ? length : 0] = '\0';
	return length > 0;
}

/* One line of a file of the thread, without its newline. */
static bool read_line(int pid, uint32_t tid, const char *name, char *out, size_t bytes)
{
	bool is_read = stack_read_thread_file(pid, tid, name, out, bytes);
	out[strcspn(out, "\n")] = '\0';
	return is_read;
}

char stack_thread_state(int pid, uint32_t tid)
{
	char line[STAT_BYTES];
	if (!read_line(pid, tid, "stat", line, sizeof line))
		return 0;
	const char *end = strrchr(line, ')'); /* the end of the name, which may hold anything */
	return end && end[1] == ' ' ? end[2] : (char)0;
}

void stack_thread_name(int pid, uint32_t tid, char *out, size_t bytes)
{
	(void)read_line(pid, tid, "comm", out, bytes);
	text_clean(out, false);
}

/* Whether a thread in an uninterruptible sleep waits for a file, as those do that load data. */
static bool waits_for_file(int pid, uint32_t tid)
{
	static const long calls[] = {SYS_read,   SYS_pread64,    SYS_readv,  SYS_preadv,
				     SYS_write,  SYS_pwrite64,   SYS_writev, SYS_pwritev,
				     SYS_openat, SYS_newfstatat, SYS_statx,  SYS_getdents64,
				     SYS_fsync,  SYS_fdatasync,  SYS_close};
	char line[STAT_BYTES], *end;
	if (!read_line(pid, tid, "syscall", line, sizeof line))
		return false;
	long number = strtol(line, &end, 10);
	for (size_t i = 0; end != line && i < sizeof calls / sizeof *calls; i++)
		if (number == calls[i])
			return true;
	return false;
}

/* Reading the memory of a process takes a lock of that process. A thread that hangs in the kernel
 * may hold it if it maps memory or handles a page fault, but not if it waits for a file. */
static bool may_hang(int pid)
{
	uint32_t tids[STACK_THREAD_MAX];
	int count = stack_list_threads(pid, tids, STACK_THREAD_MAX);
	for (int i = 0; i < count; i++)
		if (stack_thread_state(pid, tids[i]) == 'D' && !waits_for_file(pid, tids[i]))
			return true;
	return false;
}

/* ---- files ---- */

/* The address at which a file is mapped that may contain an interpreter; 0: this line is not the
 * beginning of such a file. *first: no line with a file has come before, so the line is the
 * program's. The first such line clears it. */
static uint64_t image_of(const char *line, bool *first)
{
	uint64_t begin, offset;
	int path = 0;
	if (sscanf(line, "%" SCNx64 "-%*x %*s %" SCNx64 " %*s %*s %n", &begin, &offset, &path) != 2 ||
	    line[path] != '/')
		return 0;
	bool of_program = *first;
	*first = false;
	const char *name = strrchr(line, '/');
	bool extension = strstr(name, ".cpython-") != NULL; /* of which there are hundreds */
	return offset == 0 && (of_program || (strstr(name, "python") && !extension)) ? begin : 0;
}

enum stack_answer stack_find_images(const struct stack_memory *memory,
				    uint64_t images[STACK_IMAGE_MAX], int *count)
{
	char path[64], line[LINE_BYTES];
	*count = 0;
	if (may_hang(memory->pid))
		return STACK_HANGS;
	snprintf(path, sizeof path, "/proc/%d/maps", memory->pid);
	FILE *maps = fopen(path, "re");
	if (!maps)
		return errno == EACCES || errno == EPERM ? STACK_REFUSED : STACK_GONE;
	bool first = true;
	while (*count < STACK_IMAGE_MAX && fgets(line, sizeof line, maps)) {
		uint64_t image = image_of(line, &first);
		if (image)
			images[(*count)++] = image;
	}
	fclose(maps);
	uint64_t word;
	bool readable = *count == 0 || stack_read_u64(memory, images[0], &word);
	return readable ? STACK_FOUND : errno == ESRCH ? STACK_GONE : STACK_REFUSED;
}
