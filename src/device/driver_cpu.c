/* SPDX-License-Identifier: BSD-3-Clause
 * The processor as a device: its memory is the host's, and each call does all at once. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/messages.h"
#include "device/driver.h"

static ls_status cpu_open(struct driver *driver)
{
	driver->state = driver->stream = NULL;
	return LS_OK;
}

static void cpu_close(struct driver *driver)
{
	(void)driver;
}

static ls_status cpu_copy(struct driver *driver, void *stream, void *to, const void *from,
			  size_t bytes)
{
	(void)driver;
	(void)stream;
	kernel_copy(to, from, bytes, false);
	return LS_OK;
}

static ls_status cpu_reduce(struct driver *driver, void *stream, const struct kernel_reduce *reduce)
{
	(void)driver;
	(void)stream;
	kernel_reduce(reduce);
	return LS_OK;
}

static ls_status cpu_store(struct driver *driver, void *stream, _Atomic uint64_t *word,
			   uint64_t value)
{
	(void)stream;
	driver_stored(driver, word, value);
	return LS_OK;
}

static ls_status cpu_take(struct driver *driver, size_t bytes, struct driver_segment *out)
{
	(void)driver;
	void *address =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	*out = (struct driver_segment){.address = address, .bytes = bytes};
	return address != MAP_FAILED ? LS_OK : LS_OUT_OF_MEMORY;
}

static ls_status cpu_give(struct driver *driver, const struct driver_segment *segment)
{
	(void)driver;
	if (munmap(segment->address, segment->bytes) == 0)
		return LS_OK;
	MESSAGE_SAY(MESSAGE_DEVICE_CALL, "munmap", strerror(errno));
	return LS_SYSTEM;
}

static ls_status cpu_capturing(struct driver *driver, void *stream, bool *out)
{
	(void)driver;
	(void)stream;
	*out = false;
	return LS_OK;
}

static void cpu_queue(const struct driver *driver, const void *stream, struct driver_queue *out)
{
	(void)driver;
	(void)stream;
	*out = (struct driver_queue){.depth = UINT32_MAX};
}

const struct driver_ops device_driver_cpu = {
	.open = cpu_open,
	.close = cpu_close,
	.copy = cpu_copy,
	.reduce = cpu_reduce,
	.store = cpu_store,
	.take = cpu_take,
	.give = cpu_give,
	.capturing = cpu_capturing,
	.queue = cpu_queue,
	.take_call = "mmap",
	.give_call = "munmap",
};
