/* SPDX-License-Identifier: BSD-3-Clause
 * The memory of a device: addresses at which the processor faults, and the bytes behind them. First
 * fit. */
#include <string.h>
#include <sys/mman.h>

#include "sim_private.h"

enum { ALIGNMENT = 512, DESTROYED = 0xdb };

bool sim_blocks_open(struct sim_device *device, size_t bytes)
{
	void *base =
		mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED || memory == MAP_FAILED) {
		if (base != MAP_FAILED)
			munmap(base, bytes);
		if (memory != MAP_FAILED)
			munmap(memory, bytes);
		return false;
	}
	device->base = base;
	device->memory = memory;
	return true;
}

void sim_blocks_close(struct sim_device *device, size_t bytes)
{
	munmap(device->base, bytes);
	munmap(device->memory, bytes);
}

void *sim_where(const struct sim *sim, const void *address)
{
	for (int i = 0; i < sim->options.devices; i++) {
		const struct sim_device *device = &sim->devices[i];
		uintptr_t offset = (uintptr_t)address - (uintptr_t)device->base;
		if (offset < sim->options.bytes)
			return device->memory + offset;
	}
	return (void *)(uintptr_t)address;
}

void *sim_addresses(const struct sim *sim, int device, size_t *bytes)
{
	*bytes = sim->options.bytes;
	return sim->devices[device].base;
}

static size_t end_of(const struct sim_device *device, int block)
{
	return block < 0 ? 0 : device->blocks[block].offset + device->blocks[block].bytes;
}

static enum sim_error take(struct sim_device *device, size_t bytes, void **out)
{
	size_t wanted = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	size_t total = device->sim->options.bytes;
	int count = device->block_count;
	if (wanted < bytes || count == SIM_BLOCKS)
		return SIM_OUT_OF_MEMORY;
	for (int i = -1; i < count; i++) { /* the gap behind block i */
		size_t begin = end_of(device, i);
		size_t end = i + 1 < count ? device->blocks[i + 1].offset : total;
		if (end - begin < wanted)
			continue;
		memmove(&device->blocks[i + 2], &device->blocks[i + 1],
			(size_t)(count - i - 1) * sizeof *device->blocks);
		device->blocks[i + 1] = (struct sim_block){begin, wanted};
		device->block_count++;
		*out = device->base + begin;
		return SIM_OK;
	}
	return SIM_OUT_OF_MEMORY;
}

static enum sim_error alloc(struct sim *sim, int device, size_t bytes, void **out, bool captures)
{
	*out = NULL;
	if (device < 0 || device >= sim->options.devices || bytes == 0)
		return SIM_BAD_VALUE;
	enum sim_error error = sim_enter(sim, !captures);
	if (error != SIM_OK)
		return error;
	return sim_leave(sim, take(&sim->devices[device], bytes, out));
}

enum sim_error sim_alloc(struct sim *sim, int device, size_t bytes, void **out)
{
	return alloc(sim, device, bytes, out, false);
}

enum sim_error sim_alloc_relaxed(struct sim *sim, int device, size_t bytes, void **out)
{
	return alloc(sim, device, bytes, out, true);
}

static struct sim_device *find(struct sim *sim, const void *address, int *block)
{
	for (int i = 0; i < sim->options.devices; i++) {
		struct sim_device *device = &sim->devices[i];
		for (*block = 0; *block < device->block_count; ++*block)
			if (device->base + device->blocks[*block].offset == address)
				return device;
	}
	return NULL;
}

static void give(struct sim_device *device, int block)
{
	memmove(&device->blocks[block], &device->blocks[block + 1],
		(size_t)(device->block_count - block - 1) * sizeof *device->blocks);
	device->block_count--;
}

/* Memory that was never touched has no content. To overwrite it would only use its pages. */
static void destroy(unsigned char *memory, size_t bytes)
{
	enum { PAGE = 4096, AT_ONCE = 512 };
	unsigned char is_resident[AT_ONCE];
	unsigned char *end = memory + bytes;
	for (unsigned char *page = memory - (uintptr_t)memory % PAGE; page < end;) {
		size_t left = ((size_t)(end - page) + PAGE - 1) / PAGE;
		size_t pages = left < AT_ONCE ? left : AT_ONCE;
		if (mincore(page, pages * PAGE, is_resident) != 0)
			memset(is_resident, 1, pages);
		for (size_t i = 0; i < pages; i++, page += PAGE) {
			unsigned char *from = page < memory ? memory : page;
			unsigned char *to = page + PAGE < end ? page + PAGE : end;
			if (is_resident[i])
				memset(from, DESTROYED, (size_t)(to - from));
		}
	}
}

static enum sim_error free_locked(struct sim *sim, const void *address)
{
	int block;
	struct sim_device *device = find(sim, address, &block);
	enum sim_free_mode mode = sim->options.free;
	enum sim_error error = SIM_OK;
	if (!device)
		return SIM_BAD_VALUE;
	if (mode == SIM_FREE_DRAWN)
		mode = sim_draw(&sim->random, 2) ? SIM_FREE_WAITS : SIM_FREE_AT_ONCE;
	for (int i = 0; mode == SIM_FREE_WAITS && error == SIM_OK && i < sim->options.devices; i++)
		error = sim_await_idle(&sim->devices[i]);
	if (error != SIM_OK)
		return error;
	destroy(device->memory + device->blocks[block].offset, device->blocks[block].bytes);
	give(device, block);
	return SIM_OK;
}

enum sim_error sim_free(struct sim *sim, void *address)
{
	if (!address)
		return SIM_OK;
	enum sim_error error = sim_enter(sim, true);
	return error == SIM_OK ? sim_leave(sim, free_locked(sim, address)) : error;
}

enum sim_error sim_free_relaxed(struct sim *sim, void *address)
{
	enum sim_error error = sim_enter(sim, false);
	return error == SIM_OK ? sim_leave(sim, free_locked(sim, address)) : error;
}

bool sim_free_may_wait(const struct sim *sim)
{
	return sim->options.free != SIM_FREE_AT_ONCE;
}

size_t sim_bytes_used(struct sim *sim, int device)
{
	size_t used = 0;
	pthread_mutex_lock(&sim->driver);
	for (int i = 0; i < sim->devices[device].block_count; i++)
		used += sim->devices[device].blocks[i].bytes;
	pthread_mutex_unlock(&sim->driver);
	return used;
}
