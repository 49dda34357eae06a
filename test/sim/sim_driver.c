/* SPDX-License-Identifier: BSD-3-Clause */
#include "sim_driver.h"

#include <stdlib.h>
#include <string.h>

#include "base/messages.h"

enum { OPERANDS = 16 };

static struct sim_driver *of(struct driver *driver)
{
	return (struct sim_driver *)driver;
}

static ls_status say(const char *call, enum sim_error error)
{
	if (error == SIM_OK)
		return LS_OK;
	MESSAGE_SAY(MESSAGE_DEVICE_CALL, call, sim_error_name(error));
	return LS_SYSTEM;
}

static ls_status open_driver(struct driver *driver)
{
	struct sim_stream *stream;
	enum sim_error error = sim_stream_open(of(driver)->sim, driver->index, &stream);
	driver->stream = stream;
	return say("sim_stream_open", error);
}

static void close_driver(struct driver *driver)
{
	ls_status status = LS_OK;
	if (atomic_load(&driver->broken) == 0)
		status = say("sim_stream_close", sim_stream_close(driver->stream));
	(void)status; /* it has been said */
}

static ls_status copy(struct driver *driver, void *stream, void *to, const void *from, size_t bytes)
{
	(void)driver;
	return say("sim_copy", sim_copy(stream, to, from, bytes));
}

/* ---- reductions: a kernel that has its operands on the heap ---- */

struct reduction {
	struct device_reduce reduce;
	const void *sources[OPERANDS];
	void *targets[OPERANDS];
};

static enum sim_step run_reduction(struct sim *sim, void *argument)
{
	struct reduction *reduction = *(struct reduction **)argument;
	for (int i = 0; i < reduction->reduce.source_count; i++)
		reduction->sources[i] = sim_where(sim, reduction->sources[i]);
	for (int i = 0; i < reduction->reduce.target_count; i++)
		reduction->targets[i] = sim_where(sim, reduction->targets[i]);
	device_reduce(&reduction->reduce);
	free(reduction);
	return SIM_STEP_DONE;
}
static const struct sim_kernel reduces = {"reduce", run_reduction};

static ls_status reduce(struct driver *driver, void *stream, const struct device_reduce *given)
{
	(void)driver;
	if (given->source_count > OPERANDS || given->target_count > OPERANDS)
		return LS_UNSUPPORTED;
	struct reduction *mine = calloc(1, sizeof *mine);
	if (!mine)
		return LS_OUT_OF_MEMORY;
	mine->reduce = *given;
	memcpy(mine->sources, given->sources, (size_t)given->source_count * sizeof(void *));
	memcpy(mine->targets, given->targets, (size_t)given->target_count * sizeof(void *));
	mine->reduce.sources = mine->sources;
	mine->reduce.targets = mine->targets;
	enum sim_error error = sim_launch(stream, &reduces, &mine, sizeof mine);
	if (error != SIM_OK)
		free(mine);
	return say("sim_launch", error);
}

/* ---- words and memory ---- */

static ls_status store(struct driver *driver, void *stream, _Atomic uint64_t *word, uint64_t value)
{
	return say("sim_store", sim_store(stream, word, value, driver->bell));
}

static ls_status take(struct driver *driver, size_t bytes, struct driver_segment *out)
{
	void *address;
	enum sim_error error = sim_alloc(of(driver)->sim, driver->index, bytes, &address);
	*out = (struct driver_segment){.address = address, .bytes = bytes};
	return error == SIM_OUT_OF_MEMORY ? LS_OUT_OF_MEMORY : say("sim_alloc", error);
}

static ls_status give(struct driver *driver, const struct driver_segment *segment)
{
	return say("sim_free", sim_free(of(driver)->sim, segment->address));
}

static ls_status capturing(struct driver *driver, void *stream, bool *out)
{
	if (!sim_is_stream(of(driver)->sim, driver->index, stream)) {
		MESSAGE_SAY(MESSAGE_DEVICE_CALL, "sim_is_captured",
			    "the stream is not one of this device");
		return LS_BAD_ARGUMENT;
	}
	return say("sim_is_captured", sim_is_captured(stream, out));
}

bool sim_driver_open(struct sim_driver *out, struct sim *sim, int index, struct wait_bell *bell)
{
	*out = (struct sim_driver){
		.ops = {.open = open_driver,
			.close = close_driver,
			.copy = copy,
			.reduce = reduce,
			.store = store,
			.take = take,
			.give = give,
			.capturing = capturing,
			.give_waits = sim_free_may_wait(sim),
			.take_call = "sim_alloc",
			.give_call = "sim_free"},
		.sim = sim,
	};
	out->driver = (struct driver){.ops = &out->ops, .index = index, .bell = bell, .state = out};
	return out->ops.open(&out->driver) == LS_OK;
}

void sim_driver_close(struct sim_driver *driver)
{
	driver->ops.close(&driver->driver);
}
