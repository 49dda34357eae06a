/* SPDX-License-Identifier: BSD-3-Clause
 * Regions: finds out whether memory is, and still is, what the caller says it is; and maps regions
 * of peers. Only memory_region_offset and memory_region_view_at are on the path of an operation. */
#include "memory/region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/messages.h"
#include "memory/maps.h"
#include "memory/memory.h"

/* ---- of this process ---- */

static ls_status say_bad(const char *why)
{
	MESSAGE_SAY(MESSAGE_MEMORY_REGION, why);
	return LS_BAD_ARGUMENT;
}

ls_status memory_region_check(const void *address, size_t bytes, int fd, uint64_t file_offset,
			      struct memory_region_name *name)
{
	struct stat file;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), end;
	int mode = fcntl(fd, F_GETFL);
	*name = (struct memory_region_name){
		.bytes = bytes, .file_offset = file_offset, .pid = getpid(), .fd = fd};
	if (mode < 0 || fstat(fd, &file) != 0)
		return say_bad("fd is no open descriptor");
	if (!S_ISREG(file.st_mode) || (mode & O_ACCMODE) != O_RDWR)
		return say_bad("fd is not shared memory, or not open for reading and writing");
	if ((uintptr_t)address % page != 0 || file_offset % page != 0)
		return say_bad("address and offset are not multiples of the page size");
	if (__builtin_add_overflow(file_offset, bytes, &end) || end > (uint64_t)file.st_size)
		return say_bad("the file ends before offset + bytes");
	name->device = file.st_dev;
	name->inode = file.st_ino;
	struct memory_maps_file part = {name->device, name->inode, file_offset, .writable = true};
	if (!memory_maps_show(-1, address, bytes, &part))
		return say_bad(
			"address is not a shared mapping (MAP_SHARED, readable and writable) of "
			"this part of the file");
	return LS_OK;
}

/* How many bytes are registered and known to peers. */
static size_t live_bytes(const struct memory_region *region)
{
	return atomic_load_explicit(&region->live_bytes, memory_order_acquire);
}

struct memory_region *memory_region_find(struct memory *memory, const void *address,
					 const struct memory_region_name *name)
{
	int count = atomic_load_explicit(&memory->region_count, memory_order_acquire);
	for (int i = 0; i < count; i++) {
		struct memory_region *region = &memory->regions[i];
		if (live_bytes(region) == name->bytes && region->address == address &&
		    region->name.device == name->device && region->name.inode == name->inode &&
		    region->name.file_offset == name->file_offset)
			return region;
	}
	return NULL;
}

/* A region that could not be registered keeps its place, so that its offsets never mean anything
 * else. */
struct memory_region *memory_region_add(struct memory *memory, void *address,
					const struct memory_region_name *name)
{
	lock_memory_acquire(&memory->lock);
	int count = atomic_load_explicit(&memory->region_count, memory_order_relaxed);
	if (count == MEMORY_REGIONS) {
		lock_memory_release(&memory->lock);
		MESSAGE_SAY(MESSAGE_MEMORY_REGIONS, MEMORY_REGIONS);
		return NULL;
	}
	uint64_t offset = memory->bytes;
	if (count == 0)
		memory->maps = memory_maps_open();
	if (count > 0) {
		const struct memory_region_name *last = &memory->regions[count - 1].name;
		offset = last->offset + last->bytes;
	}
	struct memory_region *region = &memory->regions[count];
	region->address = address;
	region->name = *name;
	/* A page between any two regions, so that no range reaches from one into the next. */
	region->name.offset = offset + memory->page_bytes;
	atomic_store_explicit(&memory->region_count, count + 1, memory_order_release);
	lock_memory_release(&memory->lock);
	return region;
}

void memory_region_show(struct memory_region *region, const struct ranks *peers)
{
	for (int w = 0; w < RANKS_WORLD_WORDS; w++)
		atomic_fetch_or_explicit(&region->peers[w], peers ? peers->words[w] : UINT64_MAX,
					 memory_order_release);
	atomic_store_explicit(&region->registered, true, memory_order_relaxed);
	atomic_store_explicit(&region->live_bytes, region->name.bytes, memory_order_release);
}

struct ranks memory_region_peers(const struct memory_region *region)
{
	struct ranks peers = {{0}};
	for (int w = 0; w < RANKS_WORLD_WORDS; w++)
		peers.words[w] = atomic_load_explicit(&region->peers[w], memory_order_acquire);
	return peers;
}

/* Whether all of `peers` have mapped the region; NULL: all ranks that there are. */
static bool have_mapped(const struct memory_region *region, const struct ranks *peers)
{
	uint64_t lack = 0;
	for (int w = 0; w < RANKS_WORLD_WORDS; w++)
		lack |= (peers ? peers->words[w] : UINT64_MAX) &
			~atomic_load_explicit(&region->peers[w], memory_order_acquire);
	return lack == 0;
}

/* False, after a message, if operations use the region. Of two threads that remove it one gets
 * true. */
static bool close_device(struct memory_region *region)
{
	uint32_t users = 0;
	if (atomic_compare_exchange_strong(&region->users, &users, MEMORY_REGION_CLOSED))
		return true;
	if (users != MEMORY_REGION_CLOSED)
		MESSAGE_SAY(MESSAGE_MEMORY_IN_USE, (size_t)region->name.bytes,
			    (void *)region->address, users, users == 1 ? "" : "s");
	return false;
}

bool memory_region_remove(struct memory *memory, const void *address)
{
	int count = atomic_load_explicit(&memory->region_count, memory_order_acquire);
	bool removed = false;
	for (int i = 0; i < count; i++) {
		struct memory_region *region = &memory->regions[i];
		if (region->address != address)
			continue;
		if (live_bytes(region) > 0 && region->driver && !close_device(region))
			continue;
		if (!atomic_exchange(&region->registered, false))
			continue;
		atomic_store_explicit(&region->live_bytes, 0, memory_order_release);
		removed = true;
	}
	return removed;
}

/* Whether the program still has the region's file, and no other memory, where peers believe this
 * part of it to be. If not, the region ends. */
static bool is_there(const struct memory *memory, struct memory_region *region, size_t from,
		     size_t bytes)
{
	const struct memory_region_name *name = &region->name;
	unsigned char *at = region->address + from;
	struct memory_maps_file part = {name->device, name->inode, name->file_offset + from, false};
	if (memory_maps_show(memory->maps, at, bytes, &part))
		return true;
	if (atomic_exchange(&region->live_bytes, 0) > 0)
		MESSAGE_SAY(MESSAGE_MEMORY_GONE, (size_t)name->bytes, (void *)region->address,
			    bytes, (void *)at);
	return false;
}

bool memory_region_offset(struct memory *memory, const void *address, size_t bytes,
			  const struct ranks *peers, uint64_t *offset)
{
	int count = atomic_load_explicit(&memory->region_count, memory_order_acquire);
	for (int i = 0; i < count; i++) {
		struct memory_region *region = &memory->regions[i];
		size_t length = live_bytes(region);
		uintptr_t from = (uintptr_t)address - (uintptr_t)region->address;
		bool inside = length > 0 && !region->driver && from <= length &&
			      bytes <= length - from && have_mapped(region, peers);
		if (inside && (memory->maps >= 0 || bytes >= MEMORY_LONG_LOOK_BYTES) &&
		    is_there(memory, region, from, bytes)) {
			*offset = region->name.offset + from;
			return true;
		}
	}
	return false;
}

struct memory_region *memory_region_add_device(struct memory *memory, void *address, size_t bytes,
					       struct driver *driver)
{
	struct memory_region_name name = {.bytes = bytes, .fd = -1};
	struct memory_region *region = memory_region_add(memory, address, &name);
	if (!region)
		return NULL;
	region->driver = driver;
	static const struct ranks nobody;
	memory_region_show(region, &nobody); /* peers do not map it */
	atomic_store_explicit(&memory->inspects_buffers, true, memory_order_release);
	return region;
}

static struct memory_region *find_device(struct memory *memory, const void *address, size_t bytes)
{
	int count = atomic_load_explicit(&memory->region_count, memory_order_acquire);
	for (int i = 0; i < count; i++) {
		struct memory_region *region = &memory->regions[i];
		size_t length = live_bytes(region);
		uintptr_t from = (uintptr_t)address - (uintptr_t)region->address;
		if (length > 0 && region->driver && from < length && bytes <= length - from)
			return region;
	}
	return NULL;
}

static bool is_device(struct memory *memory, const struct buffer *buffer)
{
	return buffer->bytes > 0 && find_device(memory, buffer->address, buffer->bytes);
}

bool memory_region_any_device(struct memory *memory, const struct buffer *a, const struct buffer *b)
{
	return is_device(memory, a) || is_device(memory, b);
}

struct memory_region *memory_region_hold(struct memory *memory, const void *address, size_t bytes)
{
	struct memory_region *region = find_device(memory, address, bytes);
	uint32_t users = region ? atomic_load(&region->users) : MEMORY_REGION_CLOSED;
	while (users != MEMORY_REGION_CLOSED &&
	       !atomic_compare_exchange_weak(&region->users, &users, users + 1))
		;
	return users == MEMORY_REGION_CLOSED ? NULL : region;
}

void memory_region_release(struct memory_region *region)
{
	if (region)
		atomic_fetch_sub(&region->users, 1);
}

void memory_regions(struct memory *memory, uint64_t *count, uint64_t *bytes)
{
	int places = atomic_load_explicit(&memory->region_count, memory_order_acquire);
	*count = *bytes = 0;
	for (int i = 0; i < places; i++) {
		size_t length = live_bytes(&memory->regions[i]);
		if (length == 0 || memory->regions[i].driver)
			continue;
		*count += 1;
		*bytes += length;
	}
}

int memory_regions_left(struct memory *memory)
{
	return MEMORY_REGIONS - atomic_load_explicit(&memory->region_count, memory_order_relaxed);
}

/* ---- of peers ---- */

static ls_status say_cannot_map(int rank, const struct memory_region_name *name, const char *why,
				int error)
{
	MESSAGE_SAY(MESSAGE_MEMORY_PEER_REGION, rank, (int)name->pid, why, strerror(error));
	if (error == ENOMEM || error == EMFILE || error == ENFILE)
		return LS_OUT_OF_MEMORY;
	return error == EACCES || error == EPERM || error == ENOENT ? LS_UNSUPPORTED : LS_SYSTEM;
}

/* Opens a descriptor that belongs to the peer. What this opens must be the file that the peer has
 * named. */
static int open_named(const struct memory_region_name *name)
{
	char path[64];
	struct stat file;
	snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)name->pid, (int)name->fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -1;
	uint64_t end;
	if (fstat(fd, &file) == 0 && file.st_dev == name->device && file.st_ino == name->inode &&
	    S_ISREG(file.st_mode) && !__builtin_add_overflow(name->file_offset, name->bytes, &end) &&
	    end <= (uint64_t)file.st_size)
		return fd;
	close(fd);
	errno = ESTALE;
	return -1;
}

/* MAP_FAILED, with errno, and *step names the call. */
static void *map_named(const struct memory_region_name *name, const char **step)
{
	*step = "open";
	int fd = open_named(name);
	if (fd < 0)
		return MAP_FAILED;
	*step = "mmap";
	void *base = mmap(NULL, name->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			  (off_t)name->file_offset);
	int error = base == MAP_FAILED ? errno : 0;
	close(fd);
	if (!error && madvise(base, name->bytes, MADV_DONTFORK) != 0) {
		*step = "madvise";
		error = errno;
		munmap(base, name->bytes);
	}
	errno = error;
	return error ? MAP_FAILED : base;
}

static bool has_region(const struct memory_view *view, int count, uint64_t offset)
{
	for (int i = 0; i < count; i++)
		if (view->regions[i].offset == offset)
			return true;
	return false;
}

static ls_status add_region(struct memory_view *view, int rank,
			    const struct memory_region_name *name) LOCK_REQUIRES(memory)
{
	int count = atomic_load_explicit(&view->region_count, memory_order_relaxed);
	const char *step;
	uint64_t end;
	if (has_region(view, count, name->offset))
		return LS_OK;
	if (count == MEMORY_REGIONS || name->bytes == 0 || name->offset < view->bytes ||
	    __builtin_add_overflow(name->offset, name->bytes, &end))
		return say_cannot_map(rank, name, "check", EINVAL);
	void *base = map_named(name, &step);
	if (base == MAP_FAILED)
		return say_cannot_map(rank, name, step, errno);
	view->regions[count] = (struct memory_region_view){base, name->offset, name->bytes};
	atomic_store_explicit(&view->region_count, count + 1, memory_order_release);
	return LS_OK;
}

ls_status memory_view_add(struct memory_view *view, int rank, const struct memory_region_name *name)
{
	lock_memory_acquire(&view->lock);
	ls_status status = add_region(view, rank, name);
	lock_memory_release(&view->lock);
	return status;
}

void memory_region_views_close(struct memory_view *view)
{
	for (int i = 0; i < atomic_load(&view->region_count); i++)
		munmap(view->regions[i].base, view->regions[i].bytes);
}

void *memory_region_view_at(const struct memory_view *view, uint64_t offset, uint64_t bytes)
{
	int count = atomic_load_explicit(&view->region_count, memory_order_acquire);
	for (int i = 0; i < count; i++) {
		const struct memory_region_view *region = &view->regions[i];
		uint64_t from = offset - region->offset;
		if (offset >= region->offset && from <= region->bytes &&
		    bytes <= region->bytes - from)
			return region->base + from;
	}
	return NULL;
}
