/* SPDX-License-Identifier: BSD-3-Clause
 * The simulated device as a plugin of struct driver_ops: see sim_driver.h. */
#include "sim_driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/messages.h"
#include "sim_private.h"

enum { OPERANDS = 16 };

static struct sim *of(const struct driver *driver)
{
	return driver->state;
}

static ls_status say(const struct driver *driver, const char *call, enum sim_error error)
{
	if (error == SIM_OK)
		return LS_OK;
	driver->say(MESSAGE_DEVICE_CALL, call, sim_error_name(error));
	return LS_SYSTEM;
}

/* What a call that puts something behind a stream returns. */
static ls_status have_put(const struct driver *driver, const char *call, enum sim_error error)
{
	return error == SIM_CAPTURED ? LS_UNSUPPORTED : say(driver, call, error);
}

static ls_status open_driver(struct driver *driver)
{
	struct sim_stream *stream;
	enum sim_error error = sim_stream_open(of(driver), driver->index, &stream);
	driver->stream = stream;
	driver->domain = of(driver);
	driver->address = sim_addresses(of(driver), driver->index, &driver->bytes);
	return say(driver, "sim_stream_open", error);
}

static void close_driver(struct driver *driver)
{
	ls_status status = LS_OK;
	if (atomic_load(&driver->broken) == 0)
		status = say(driver, "sim_stream_close", sim_stream_close(driver->stream));
	(void)status; /* the message was printed */
	sim_await_store(&of(driver)->devices[driver->index]);
}

static ls_status copy(struct driver *driver, void *stream, void *to, const void *from, size_t bytes)
{
	return have_put(driver, "sim_copy", sim_copy_unseen(stream, to, from, bytes));
}

/* ---- reductions: a kernel with its operands on the heap ---- */

struct reduction {
	struct kernel_reduce reduce;
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
	kernel_reduce(&reduction->reduce);
	free(reduction);
	return SIM_STEP_DONE;
}
static const struct sim_kernel reduces = {"reduce", run_reduction};

static ls_status reduce(struct driver *driver, void *stream, const struct kernel_reduce *given)
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
	enum sim_error error = sim_launch_unseen(stream, &reduces, &mine, sizeof mine);
	if (error != SIM_OK)
		free(mine);
	return have_put(driver, "sim_launch", error);
}

/* ---- words and memory ---- */

static ls_status store(struct driver *driver, void *stream, _Atomic uint64_t *word, uint64_t value)
{
	return have_put(driver, "sim_store", sim_store(stream, word, value, driver->bell));
}

static ls_status await(struct driver *driver, void *stream, const _Atomic uint64_t *word,
		       uint64_t value)
{
	return have_put(driver, "sim_await", sim_await_unseen(stream, word, value));
}

static void signal(struct driver *driver, _Atomic uint64_t *word, uint64_t value)
{
	sim_board_store(of(driver), word, value);
}

static ls_status take(struct driver *driver, size_t bytes, struct driver_segment *out)
{
	void *address;
	enum sim_error error = sim_alloc_relaxed(of(driver), driver->index, bytes, &address);
	*out = (struct driver_segment){.address = address, .bytes = bytes};
	return error == SIM_OUT_OF_MEMORY ? LS_OUT_OF_MEMORY : say(driver, "sim_alloc", error);
}

static ls_status give(struct driver *driver, const struct driver_segment *segment)
{
	return say(driver, "sim_free", sim_free_relaxed(of(driver), segment->address));
}

static ls_status capturing(struct driver *driver, void *stream, bool *out)
{
	if (!sim_is_stream(of(driver), driver->index, stream))
		return LS_BAD_ARGUMENT;
	return say(driver, "sim_is_captured", sim_is_captured(stream, out));
}

static void queue(const struct driver *driver, const void *stream, struct driver_queue *out)
{
	if (!sim_is_stream(of(driver), driver->index, stream))
		return;
	out->id = (uint64_t)sim_queue_of(stream);
	out->depth = (uint32_t)sim_depth_of(stream);
}

static void observe(struct driver *driver, const struct driver_observer *observer)
{
	sim_observe(of(driver), driver->index, observer);
}

#define OPS(open_one, close_one, waits)                                                          \
	{                                                                                        \
		.open = open_one, .close = close_one, .copy = copy, .reduce = reduce,            \
		.store = store, .await = await, .signal = signal, .take = take, .give = give,    \
		.capturing = capturing, .queue = queue, .observe = observe, .give_waits = waits, \
		.take_call = "sim_alloc", .give_call = "sim_free"                                \
	}

bool sim_driver_open(struct sim_driver *out, struct sim *sim, int index, struct wait_bell *bell)
{
	*out = (struct sim_driver){.ops = OPS(open_driver, close_driver, sim_free_may_wait(sim))};
	out->driver = (struct driver){
		.ops = &out->ops, .index = index, .bell = bell, .say = message_say, .state = sim};
	return out->ops.open(&out->driver) == LS_OK;
}

void sim_driver_close(struct sim_driver *driver)
{
	driver->ops.close(&driver->driver);
}

/* ---- the driver "sim" ---- */

enum { PROCESSES = 8 };

/* Simulated processes, by the number in the option, from 1; 0: a process with one device. */
static struct {
	pthread_mutex_t lock;
	struct {
		struct sim *sim;
		int users;
	} all[PROCESSES + 1];
} processes = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Thread_local struct sim *opened_last;
static _Atomic size_t bytes_left;
static _Atomic int open_count;

static bool read_number(const char *option, const char *name, uint64_t *out)
{
	size_t length = strlen(name);
	char *end;
	if (strncmp(option, name, length) != 0 || option[length] != '=')
		return false;
	*out = strtoull(option + length + 1, &end, 10);
	return *end == '\0' && end > option + length + 1;
}

static bool read_option(const char *option, struct sim_options *out, uint64_t *process)
{
	uint64_t number;
	if (read_number(option, "process", &number))
		*process = number;
	else if (read_number(option, "seed", &number))
		out->seed = number;
	else if (read_number(option, "devices", &number))
		out->devices = (int)number;
	else if (read_number(option, "bytes", &number))
		out->bytes = number;
	else if (read_number(option, "resident", &number))
		out->resident = (int)number;
	else if (read_number(option, "queues", &number))
		out->queues = (int)number;
	else if (read_number(option, "depth", &number))
		out->depth = (int)number;
	else if (read_number(option, "fail_at", &number))
		out->fail_at = number;
	else if (strcmp(option, "free=waits") == 0)
		out->free = SIM_FREE_WAITS;
	else if (strcmp(option, "free=at_once") == 0)
		out->free = SIM_FREE_AT_ONCE;
	else if (strcmp(option, "free=drawn") == 0)
		out->free = SIM_FREE_DRAWN;
	else if (strcmp(option, "launch=waits") == 0)
		out->launch = SIM_LAUNCH_WAITS;
	else if (strcmp(option, "loads_lazily") == 0)
		out->loads_lazily = true;
	else
		return false;
	return true;
}

static bool read_options(const char *text, struct sim_options *out, uint64_t *process)
{
	char copy_of[256], *left = copy_of;
	*out = (struct sim_options){.seed = 1, .devices = SIM_DEVICES, .bytes = 64 << 20};
	*process = 0;
	if (strlen(text) >= sizeof copy_of)
		return false;
	memcpy(copy_of, text, strlen(text) + 1);
	for (char *option; (option = strsep(&left, ","));)
		if (*option && !read_option(option, out, process))
			return false;
	return *process <= PROCESSES;
}

static struct sim *join_process(uint64_t process, const struct sim_options *options)
{
	if (process == 0)
		return sim_open(options);
	pthread_mutex_lock(&processes.lock);
	if (!processes.all[process].sim)
		processes.all[process].sim = sim_open(options);
	struct sim *sim = processes.all[process].sim;
	processes.all[process].users += sim != NULL;
	pthread_mutex_unlock(&processes.lock);
	return sim;
}

static void leave_process(struct sim *sim)
{
	bool last = true;
	pthread_mutex_lock(&processes.lock);
	for (int i = 1; i <= PROCESSES; i++) {
		if (processes.all[i].sim != sim)
			continue;
		last = --processes.all[i].users == 0;
		if (last)
			processes.all[i].sim = NULL;
	}
	pthread_mutex_unlock(&processes.lock);
	if (last)
		sim_close(sim);
}

static ls_status join(struct driver *driver)
{
	struct sim_options options;
	uint64_t process;
	if (!read_options(driver->options, &options, &process) || driver->index >= options.devices) {
		driver->say(MESSAGE_DEVICE_OPEN, "ls_group_open", "sim",
			    "no such device, or unknown options");
		return LS_BAD_ARGUMENT;
	}
	driver->state = opened_last = join_process(process, &options);
	if (driver->state)
		return LS_OK;
	driver->say(MESSAGE_DEVICE_OPEN, "ls_group_open", "sim", "bad options, or no memory");
	return LS_OUT_OF_MEMORY;
}

static void close_named(struct driver *driver)
{
	sim_tell_no_more(of(driver), &driver->broken);
	if (atomic_load(&driver->broken) == 0)
		atomic_fetch_add(&bytes_left, sim_bytes_used(of(driver), driver->index));
	atomic_fetch_sub(&open_count, 1);
	close_driver(driver);
	leave_process(of(driver));
}

static ls_status open_named(struct driver *driver);
static const struct driver_ops waits = OPS(open_named, close_named, true);
static const struct driver_ops at_once = OPS(open_named, close_named, false);

static ls_status open_named(struct driver *driver)
{
	ls_status status = join(driver);
	if (status != LS_OK)
		return status;
	driver->ops = sim_free_may_wait(of(driver)) ? &waits : &at_once;
	status = open_driver(driver);
	if (status != LS_OK) {
		leave_process(of(driver));
		return status;
	}
	atomic_fetch_add(&open_count, 1);
	bool told = sim_tell_failure(of(driver), &driver->broken, LS_SYSTEM, &driver->bell);
	(void)told; /* there is room for every device */
	return LS_OK;
}

LS_EXPORT const struct driver_plugin lockstep_driver_sim = {DRIVER_VERSION,
							    sizeof(struct driver_ops), &waits};

void lockstep_sim_forget_left(void)
{
	atomic_store(&bytes_left, 0);
	atomic_store(&open_count, 0);
}

bool lockstep_sim_has_left(void)
{
	return atomic_load(&bytes_left) > 0 || atomic_load(&open_count) != 0;
}

struct sim *lockstep_sim(void)
{
	return opened_last;
}
