/* SPDX-License-Identifier: BSD-3-Clause
 * For the thread sanitizer where ranks are threads of one process. It knows memory by its address.
 * Each rank maps the same files, so a store by one rank and the load of another have different
 * addresses: the sanitizer sees neither their race nor the order that they make. Here a process
 * maps each part of the library's files once. A call that maps it again gets the same address, and
 * the last munmap of it takes it away.
 *
 * The functions here come before those of the sanitizer's library, which they call. */
#if defined(__SANITIZE_THREAD__)

#include <dlfcn.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define LIBRARY_FILE "/memfd:lockstep-"

enum { EXTENTS = 8192 };

/* A part of a file, mapped from `base` on. */
struct extent {
	uintptr_t base;
	size_t bytes;
	dev_t device;
	ino_t inode;
	off_t offset;
	int users;    /* 0: the entry is free */
	pid_t thread; /* that has mapped it first */
};

static struct extent extents[EXTENTS];
static int extent_count;
static bool locked;

/* The sanitizer calls munmap, too, when it writes a report: so these functions are not watched, and
 * use no lock that is. */
#define UNWATCHED __attribute__((no_sanitize("thread")))

UNWATCHED static void acquire(void)
{
	while (__atomic_exchange_n(&locked, true, __ATOMIC_ACQUIRE))
		sched_yield();
}

UNWATCHED static void release(void)
{
	__atomic_store_n(&locked, false, __ATOMIC_RELEASE);
}

typedef void *map_call(void *, size_t, int, int, int, off_t);
typedef int unmap_call(void *, size_t);
typedef void *remap_call(void *, size_t, size_t, int, ...);

UNWATCHED static void *next(const char *name)
{
	void *call = dlsym(RTLD_NEXT, name);
	if (!call) {
		fprintf(stderr, "one_mapping: no %s\n", name);
		abort();
	}
	return call;
}

UNWATCHED static void *real_map(void *at, size_t bytes, int protection, int flags, int fd,
				off_t offset)
{
	return ((map_call *)next("mmap64"))(at, bytes, protection, flags, fd, offset);
}

UNWATCHED static int real_unmap(void *at, size_t bytes)
{
	return ((unmap_call *)next("munmap"))(at, bytes);
}

/* The extent that has these bytes of the file. Not for the thread that has made it: a rank maps its
 * own arena a second time, to tell blocks that it received from itself from those that it sends. */
UNWATCHED static struct extent *find(const struct stat *file, off_t offset, size_t bytes)
{
	pid_t self = gettid();
	for (int i = 0; i < extent_count; i++) {
		struct extent *at = &extents[i];
		if (at->users > 0 && at->thread != self && at->device == file->st_dev &&
		    at->inode == file->st_ino && offset >= at->offset && bytes <= at->bytes &&
		    (size_t)(offset - at->offset) <= at->bytes - bytes)
			return at;
	}
	return NULL;
}

UNWATCHED static struct extent *find_address(uintptr_t address)
{
	for (int i = 0; i < extent_count; i++)
		if (extents[i].users > 0 && address >= extents[i].base &&
		    address - extents[i].base < extents[i].bytes)
			return &extents[i];
	return NULL;
}

UNWATCHED static void add(const struct stat *file, off_t offset, uintptr_t base, size_t bytes)
{
	int i = 0;
	while (i < extent_count && extents[i].users > 0)
		i++;
	if (i == EXTENTS) {
		fprintf(stderr, "one_mapping: more than %d mappings\n", EXTENTS);
		abort();
	}
	extents[i] = (struct extent){base, bytes, file->st_dev, file->st_ino, offset, 1, gettid()};
	if (i == extent_count)
		extent_count++;
}

/* A caller that names a place gets another one here; it has reserved that place, and takes what is
 * returned. */
UNWATCHED static void *map_shared(void *at, size_t bytes, int protection, int flags, int fd,
				  off_t offset)
{
	struct stat file;
	if (fstat(fd, &file) != 0)
		return MAP_FAILED;
	acquire();
	struct extent *extent = find(&file, offset, bytes);
	void *memory;
	if (extent) {
		extent->users++;
		memory = (void *)(extent->base + (uintptr_t)(offset - extent->offset));
		if (flags & MAP_FIXED)
			real_unmap(at, bytes);
	} else {
		memory = real_map(at, bytes, protection | PROT_READ | PROT_WRITE, flags, fd, offset);
		if (memory == MAP_FAILED)
			memory = real_map(at, bytes, protection, flags, fd, offset);
		else
			add(&file, offset, (uintptr_t)memory, bytes);
	}
	release();
	return memory;
}

/* A file of the library. Of its own files a program may map parts over others. */
UNWATCHED static bool is_of_library(int fd)
{
	char path[64], name[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	ssize_t length = readlink(path, name, sizeof name - 1);
	name[length > 0 ? length : 0] = '\0';
	return strncmp(name, LIBRARY_FILE, sizeof LIBRARY_FILE - 1) == 0;
}

UNWATCHED void *mmap64(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	return (flags & MAP_SHARED) && fd >= 0 && bytes > 0 && is_of_library(fd)
		       ? map_shared(at, bytes, protection, flags, fd, offset)
		       : real_map(at, bytes, protection, flags, fd, offset);
}

UNWATCHED int munmap(void *at, size_t bytes)
{
	acquire();
	struct extent *extent = find_address((uintptr_t)at);
	int result = 0;
	if (!extent)
		result = real_unmap(at, bytes);
	else if (--extent->users == 0)
		result = real_unmap((void *)extent->base, extent->bytes);
	release();
	return result;
}

/* Of an old size of 0: maps the same pages again. */
UNWATCHED void *mremap(void *from, size_t old_bytes, size_t bytes, int flags, ...)
{
	va_list arguments;
	va_start(arguments, flags);
	void *at = flags & MREMAP_FIXED ? va_arg(arguments, void *) : NULL;
	va_end(arguments);
	acquire();
	struct extent *extent = old_bytes == 0 ? find_address((uintptr_t)from) : NULL;
	bool is_inside = extent && bytes <= extent->bytes - ((uintptr_t)from - extent->base);
	if (is_inside) {
		extent->users++;
		if (flags & MREMAP_FIXED)
			real_unmap(at, bytes);
	}
	release();
	return is_inside ? from : ((remap_call *)next("mremap"))(from, old_bytes, bytes, flags, at);
}

#else
/* Ranks that are processes, or no sanitizer: nothing to do. */
typedef int one_mapping_is_not_needed;
#endif
