/* SPDX-License-Identifier: BSD-3-Clause
 * A peer's arena as this process sees it. An arena may be as large as the machine, and a rank has
 * up to 63 peers, so a view begins with the arena's first part, and grows when something lies
 * behind it. What was handed out stays where it is: a larger view is a second mapping. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/messages.h"
#include "memory/arena.h"
#include "memory/memory.h"
#include "memory/region.h"

enum { FIRST_BYTES = 256 << 20 };

ls_status memory_view_open(struct memory_view *view, int fd, int place)
{
	*view = (struct memory_view){.place = place};
	struct stat stat = {.st_size = 0};
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &stat) != 0 || stat.st_size <= 0) {
		MESSAGE_SAY(MESSAGE_MEMORY_VIEW, place, (size_t)stat.st_size,
			    "it is no sealed memory file");
		return LS_UNTRUSTED_PEER;
	}
	size_t bytes = (size_t)stat.st_size;
	size_t mapped = bytes < FIRST_BYTES ? bytes : FIRST_BYTES;
	void *memory = memory_arena_map(fd, mapped, place);
	if (!memory) {
		int error = errno;
		MESSAGE_SAY(MESSAGE_MEMORY_VIEW, place, mapped, strerror(error));
		return memory_is_exhaustion(error) ? LS_OUT_OF_MEMORY : LS_SYSTEM;
	}
	view->bytes = bytes;
	view->mappings[0] = (struct memory_mapping){memory, mapped};
	view->mapping_count = 1;
	atomic_store(&view->base, memory);
	atomic_store(&view->mapped, mapped);
	lock_memory_init(&view->lock);
	return LS_OK;
}

void memory_view_close(struct memory_view *view)
{
	memory_region_views_close(view);
	for (int i = 0; i < view->mapping_count; i++)
		munmap(view->mappings[i].base, view->mappings[i].bytes);
	if (view->mapping_count > 0)
		lock_memory_fini(&view->lock);
	*view = (struct memory_view){.place = 0};
}

/* Makes the newest mapping reach `wanted` bytes. Each mapping is at least twice as large as the one
 * before, so there are few, and the last one is as large as all others together. */
static bool grow_view(struct memory_view *view, size_t wanted) LOCK_REQUIRES(memory)
{
	struct memory_mapping *last = &view->mappings[view->mapping_count - 1];
	size_t mapped = last->bytes;
	if (mapped >= wanted)
		return true; /* another thread was faster */
	while (mapped < wanted)
		mapped = mapped > view->bytes / 2 ? view->bytes : 2 * mapped;
	void *memory = memory_arena_map_again(last->base, mapped, view->place);
	if (!memory) {
		MESSAGE_SAY(MESSAGE_MEMORY_VIEW, view->place, mapped, strerror(errno));
		return false;
	}
	last[1] = (struct memory_mapping){memory, mapped};
	view->mapping_count++;
	atomic_store_explicit(&view->base, memory, memory_order_relaxed);
	/* Release: a thread that sees this size sees that base, or a later one. */
	atomic_store_explicit(&view->mapped, mapped, memory_order_release);
	return true;
}

void *memory_view_at(struct memory_view *view, uint64_t offset, uint64_t bytes)
{
	if (offset > view->bytes || bytes > view->bytes - offset)
		return memory_region_view_at(view, offset, bytes);
	if (offset + bytes > atomic_load_explicit(&view->mapped, memory_order_acquire)) {
		lock_memory_acquire(&view->lock);
		bool grown = grow_view(view, offset + bytes);
		lock_memory_release(&view->lock);
		if (!grown)
			return NULL;
	}
	return atomic_load_explicit(&view->base, memory_order_relaxed) + offset;
}
