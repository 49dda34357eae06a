/* SPDX-License-Identifier: BSD-3-Clause
 * The arena's file and its mappings. The file is sparse and sealed in length; fallocate takes its
 * pages before they are handed out, so that exhaustion is an error code here and not a SIGBUS in
 * the user's loop. */
#include "memory/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_limit.h"
#include "base/messages.h"
#include "base/open_limit.h"
#include "base/own_fd.h"
#include "memory/memory.h"

enum {
	STEP_BYTES = 1 << 20, /* at least this much is committed at once */
	PIECE_BYTES =
		16 << 20, /* and at most this much: a signal makes the kernel start a piece anew */
	INTERRUPTS_MAX = 1000,
	COPY_TRIES = 1000,
	SKEW_PAGES = 437, /* odd, and no part of a power of two */
};

bool memory_is_exhaustion(int error)
{
	return error == ENOMEM || error == ENOSPC || error == EMFILE || error == ENFILE;
}

static ls_status say_no_arena(size_t bytes, const char *call)
{
	int error = errno;
	MESSAGE_SAY(MESSAGE_MEMORY_ARENA, bytes >> 20, call, OPEN_LIMIT_TEXT(error));
	return memory_is_exhaustion(error) ? LS_OUT_OF_MEMORY : LS_SYSTEM;
}

/* Reserves address space in which arena number `place` begins at an offset of its own. Otherwise
 * the mappings, whose size is a power of two, would differ in high bits only. A reduction reads the
 * same offset of all ranks at once, and these lines would compete for the same sets of a cache.
 * With SKEW_PAGES 0 a loop of ls_allreduce on 2 ranks took 14 % longer at 64 KiB, 19 % at 1 MiB and
 * 32 % at 16 MiB on an AMD EPYC. *slack: the bytes before the arena. */
static void *reserve_range(size_t bytes, int place, size_t page_bytes, size_t *slack)
{
	*slack = (size_t)(place + 1) * SKEW_PAGES * page_bytes;
	return mmap(NULL, bytes + *slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		    -1, 0);
}

/* Maps the file `fd`; with fd -1, once more what is mapped at `from`. */
static void *map_at(void *at, int fd, void *from, size_t bytes)
{
	/* For an old size of 0 the system makes a second mapping of the same pages. */
	if (fd < 0)
		return mremap(from, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at);
	return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd,
		    0);
}

static void *map_arena(int fd, void *from, size_t bytes, int place)
{
	size_t slack;
	unsigned char *range = reserve_range(bytes, place, (size_t)sysconf(_SC_PAGESIZE), &slack);
	if (range == MAP_FAILED)
		return NULL;
	void *memory = map_at(range + slack, fd, from, bytes);
	if (memory == MAP_FAILED || madvise(memory, bytes, MADV_DONTFORK) != 0) {
		int error = errno;
		munmap(range, slack + bytes);
		errno = error;
		return NULL;
	}
	/* the slack has done its work; if it stays, it is only address space */
	munmap(range, slack);
	return memory;
}

void *memory_arena_map(int fd, size_t bytes, int place)
{
	return map_arena(fd, NULL, bytes, place);
}

void *memory_arena_map_again(void *mapped, size_t bytes, int place)
{
	return map_arena(-1, mapped, bytes, place);
}

ls_status memory_arena_open(size_t bytes, uint64_t job, int rank, unsigned char **base, int *fd)
{
	char name[64];
	const char *call = "memfd_create";
	void *memory = NULL;
	*base = NULL;
	*fd = -1;
	snprintf(name, sizeof name, "lockstep-arena:%016" PRIx64 ":%d", job, rank);
	int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (file < 0)
		return say_no_arena(bytes, call);
	if (!file_limit_allows(bytes)) {
		ls_status status = say_no_arena(bytes, FILE_LIMIT_NAME);
		close(file);
		return status;
	}
	call = "ftruncate";
	if (ftruncate(file, (off_t)bytes) == 0) {
		call = "F_ADD_SEALS";
		if (fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
			call = "mmap";
			memory = memory_arena_map(file, bytes, rank);
		}
	}
	if (!memory) {
		ls_status status = say_no_arena(bytes, call);
		close(file);
		return status;
	}
	*base = memory;
	*fd = file;
	return LS_OK;
}

static int commit_piece(int fd, size_t from, size_t bytes)
{
	for (int i = 0; i < INTERRUPTS_MAX; i++) {
		if (fallocate(fd, 0, (off_t)from, (off_t)bytes) == 0)
			return 0;
		if (errno != EINTR)
			return errno;
	}
	return EINTR;
}

int memory_arena_commit(int fd, size_t bytes, size_t wanted, size_t *committed)
{
	if (!own_fd_is_memory(fd))
		return EBADF;
	while (*committed < wanted) {
		size_t need = wanted - *committed;
		size_t piece = need < STEP_BYTES ? STEP_BYTES : need;
		if (piece > PIECE_BYTES)
			piece = PIECE_BYTES;
		if (piece > bytes - *committed)
			piece = bytes - *committed;
		int error = commit_piece(fd, *committed, piece);
		if (error && piece > need) {
			piece = need;
			error = commit_piece(fd, *committed, piece);
		}
		if (error)
			return error;
		*committed += piece;
	}
	return 0;
}

/* Writes to each page what the page holds, which makes the kernel copy it. The write is atomic, as
 * another thread of this process may be writing to the same word and must not lose its store. It is
 * a compare-and-swap, which no compiler turns into a mere load, and which fails only if the word
 * changes meanwhile. */
__attribute__((no_sanitize("thread"))) static void copy_pages(unsigned char *address, size_t bytes,
							      size_t page_bytes)
{
	for (size_t i = 0; i < bytes; i += page_bytes) {
		uint32_t *word = (uint32_t *)(void *)(address + i);
		uint32_t now = __atomic_load_n(word, __ATOMIC_RELAXED);
		for (int tries = 0; tries < COPY_TRIES; tries++)
			if (__atomic_compare_exchange_n(word, &now, now, false, __ATOMIC_RELAXED,
							__ATOMIC_RELAXED))
				break;
	}
}

/* The private mapping of the same pages is made elsewhere and then moved: at every moment the
 * address shows the same content, and what fails, fails before anything has changed. */
int memory_arena_make_private(int fd, unsigned char *address, size_t bytes, size_t offset,
			      size_t page_bytes)
{
	if (!own_fd_is_memory(fd))
		return EBADF;
	void *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd,
			  (off_t)offset);
	if (copy == MAP_FAILED)
		return errno;
	if (madvise(copy, bytes, MADV_DONTFORK) != 0 ||
	    mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, address) == MAP_FAILED) {
		int error = errno;
		munmap(copy, bytes);
		return error;
	}
	copy_pages(address, bytes, page_bytes);
	return 0;
}
