/* SPDX-License-Identifier: BSD-3-Clause
 * The processor as a device: memory of the host, nothing later. */
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
	device_copy(to, from, bytes, false);
	return LS_OK;
}

static ls_status cpu_reduce(struct driver *driver, void *stream, const struct device_reduce *reduce)
{
	(void)driver;
	(void)stream;
	device_reduce(reduce);
	return LS_OK;
}

static ls_status cpu_store(struct driver *driver, void *stream, _Atomic uint64_t *word,
			   uint64_t value)
{
	(void)stream;
	driver_stored(driver, word, value);
	return LS_OK;
}

const struct driver_ops device_driver_cpu = {cpu_open, cpu_close, cpu_copy, cpu_reduce, cpu_store};
