/* SPDX-License-Identifier: BSD-3-Clause
 * What every call does with the driver lock; streams, events and captures. */
#include <string.h>

#include "sim_private.h"

_Thread_local bool sim_in_host_function;

static bool is_to_fail(struct sim *sim)
{
	return atomic_fetch_add(&sim->calls, 1) + 1 == sim->options.fail_at || sim_is_over(sim);
}

enum sim_error sim_enter(struct sim *sim, bool waits)
{
	if (sim_in_host_function)
		return SIM_NOT_PERMITTED;
	pthread_mutex_lock(&sim->driver);
	if (is_to_fail(sim))
		return sim_leave(sim, SIM_FAILED);
	if (waits && sim->captured) {
		sim->capture_is_invalid = true;
		return sim_leave(sim, SIM_CAPTURED);
	}
	return SIM_OK;
}

enum sim_error sim_leave(struct sim *sim, enum sim_error error)
{
	pthread_mutex_unlock(&sim->driver);
	return error;
}

/* ---- what an observer learns ---- */

/* Under the driver lock. Returns the observer to tell, with no lock held; then call end_telling.
 * NULL: there is none. */
static const struct driver_observer *begin_to_tell(struct sim_device *device)
{
	if (device->observer)
		atomic_fetch_add(&device->telling, 1);
	return device->observer;
}

static void end_telling(struct sim_device *device)
{
	atomic_fetch_sub(&device->telling, 1);
	sim_raise(&device->told, &device->told_bell);
}

/* Call with the driver lock, which this releases: the new stream or event has this handle. No other
 * thread gets the handle before the observers know it. */
static enum sim_error leave_and_tell(struct sim *sim, struct sim_device *first, int count,
				     const void *handle)
{
	const struct driver_observer *observers[SIM_DEVICES];
	for (int i = 0; i < count; i++)
		observers[i] = begin_to_tell(&first[i]);
	enum sim_error error = sim_leave(sim, SIM_OK);
	for (int i = 0; i < count; i++)
		if (observers[i]) {
			observers[i]->makes(observers[i]->data, handle);
			end_telling(&first[i]);
		}
	return error;
}

/* ---- streams ---- */

static struct sim_stream *find_closed(struct sim_device *device)
{
	for (int i = 0; i < SIM_STREAMS; i++)
		if (!device->streams[i].open)
			return &device->streams[i];
	return NULL;
}

enum sim_error sim_stream_open(struct sim *sim, int device, struct sim_stream **out)
{
	*out = NULL;
	if (device < 0 || device >= sim->options.devices)
		return SIM_BAD_VALUE;
	enum sim_error error = sim_enter(sim, false);
	if (error != SIM_OK)
		return error;
	struct sim_stream *stream = find_closed(&sim->devices[device]);
	if (!stream)
		return sim_leave(sim, SIM_BAD_VALUE);
	/* An event may still name the stream that was here before, so the counts continue. */
	stream->device = &sim->devices[device];
	stream->queue = (int)(stream - sim->devices[device].streams) % sim->options.queues;
	stream->open = true;
	*out = stream;
	return leave_and_tell(sim, stream->device, 1, stream);
}

enum sim_error sim_stream_close(struct sim_stream *stream)
{
	struct sim *sim = stream->device->sim;
	enum sim_error error = sim_enter(sim, true);
	if (error != SIM_OK)
		return error;
	error = sim_await_done(stream, stream->put);
	stream->open = error != SIM_OK;
	return sim_leave(sim, error);
}

int sim_queue_of(const struct sim_stream *stream)
{
	return stream->queue;
}

int sim_depth_of(const struct sim_stream *stream)
{
	const struct sim_options *options = &stream->device->sim->options;
	return options->launch == SIM_LAUNCH_WAITS ? 0 : options->depth;
}

uint64_t sim_held_calls(const struct sim *sim)
{
	return atomic_load(&sim->held_calls);
}

bool sim_is_stream(const struct sim *sim, int device, const void *stream)
{
	for (int i = 0; i < SIM_STREAMS; i++)
		if (stream == &sim->devices[device].streams[i])
			return sim->devices[device].streams[i].open;
	return false;
}

/* For Lockstep: in a capture nothing is put there, and the capture goes on. The driver lock is
 * held. */
static enum sim_error put_now(struct sim_stream *stream, struct sim_op *op)
{
	bool captured = stream->device->sim->captured == stream;
	return captured ? SIM_CAPTURED : sim_put(stream, op);
}

static enum sim_error put_unseen(struct sim_stream *stream, struct sim_op *op)
{
	struct sim *sim = stream->device->sim;
	enum sim_error error = sim_enter(sim, false);
	return error == SIM_OK ? sim_leave(sim, put_now(stream, op)) : error;
}

/* Loads the kernel if this is its first launch; the driver lock is held. */
static enum sim_error load(struct sim_device *device, const struct sim_kernel *kernel)
{
	struct sim *sim = device->sim;
	for (int i = 0; i < sim->loaded_count; i++)
		if (sim->loaded[i] == kernel)
			return SIM_OK;
	if (sim->loaded_count == SIM_KERNELS)
		return SIM_BAD_VALUE;
	enum sim_error error = sim->options.loads_lazily ? sim_await_idle(device) : SIM_OK;
	if (error == SIM_OK)
		sim->loaded[sim->loaded_count++] = kernel;
	return error;
}

/* Enqueues the operation on the stream. Call with the driver lock, which this releases. *observer:
 * the one to tell, with no lock held, that it is operation `number` there; NULL: none. In a capture
 * the operation is not run. */
static enum sim_error put_and_leave(struct sim_stream *stream, struct sim_op *op,
				    const struct driver_observer **observer, uint64_t *number)
{
	struct sim *sim = stream->device->sim;
	bool captured = sim->captured == stream;
	*number = stream->put + 1;
	enum sim_error error = sim_put(stream, op);
	*observer = error == SIM_OK && !captured ? begin_to_tell(stream->device) : NULL;
	return sim_leave(sim, error);
}

/* As `put`, for an operation that an observer learns. */
static enum sim_error put_seen(struct sim_stream *stream, struct sim_op *op,
			       const struct driver_observer **observer, uint64_t *number)
{
	*observer = NULL;
	enum sim_error error = sim_enter(stream->device->sim, false);
	return error == SIM_OK ? put_and_leave(stream, op, observer, number) : error;
}

void sim_observe(struct sim *sim, int device, const struct driver_observer *observer)
{
	pthread_mutex_lock(&sim->driver);
	sim->devices[device].observer = observer;
	pthread_mutex_unlock(&sim->driver);
	/* Waits for threads that are in a call of the former observer. */
	for (struct sim_device *at = &sim->devices[device]; !observer;) {
		uint64_t told = atomic_load(&at->told);
		if (atomic_load(&at->telling) == 0)
			break;
		sim_sleep(&at->told_bell, &at->told, told, NULL, 0);
	}
}

/* Makes the stream wait for something that the observer does not learn. */
static enum sim_error put_wait(struct sim_stream *stream, struct sim_op *op)
{
	const struct driver_observer *observer;
	uint64_t number;
	enum sim_error error = put_seen(stream, op, &observer, &number);
	if (observer) {
		observer->awaits(observer->data, stream);
		end_telling(stream->device);
	}
	return error;
}

/* ---- work on streams ---- */

/* Tells the observer, unless it is NULL, what was enqueued on the stream. */
static void tell_touch(const struct driver_observer *observer, struct sim_stream *stream,
		       struct driver_touch *touch)
{
	if (!observer)
		return;
	touch->stream = stream;
	touch->done = &stream->done;
	if (touch->count > 0)
		observer->touches(observer->data, touch);
	end_telling(stream->device);
}

/* Enqueues the kernel on the stream. *observer and *number as in put_seen. */
static enum sim_error launch(struct sim_stream *stream, const struct sim_kernel *kernel,
			     const void *argument, size_t bytes,
			     const struct driver_observer **observer, uint64_t *number)
{
	struct sim_op op = {.kind = SIM_KERNEL, .kernel = kernel};
	*observer = NULL;
	if (bytes > sizeof op.argument)
		return SIM_BAD_VALUE;
	if (bytes > 0)
		memcpy(op.argument, argument, bytes);
	enum sim_error error = sim_enter(stream->device->sim, false);
	if (error != SIM_OK)
		return error;
	error = load(stream->device, kernel);
	return error == SIM_OK ? put_and_leave(stream, &op, observer, number)
			       : sim_leave(stream->device->sim, error);
}

enum sim_error sim_launch(struct sim_stream *stream, const struct sim_kernel *kernel,
			  const void *argument, size_t bytes)
{
	return sim_launch_using(stream, kernel, argument, bytes, NULL, 0);
}

enum sim_error sim_launch_using(struct sim_stream *stream, const struct sim_kernel *kernel,
				const void *argument, size_t bytes, const struct sim_use *uses,
				int count)
{
	struct driver_range ranges[SIM_USES];
	struct driver_touch touch = {.call = "sim_launch_using",
				     .kernel = kernel->name,
				     .site = __builtin_return_address(0),
				     .ranges = ranges,
				     .count = count};
	const struct driver_observer *observer;
	if (count < 0 || count > SIM_USES)
		return SIM_BAD_VALUE;
	for (int i = 0; i < count; i++)
		ranges[i] = (struct driver_range){uses[i].address, uses[i].bytes, uses[i].writes};
	enum sim_error error = launch(stream, kernel, argument, bytes, &observer, &touch.number);
	tell_touch(observer, stream, &touch);
	return error;
}

enum sim_error sim_launch_unseen(struct sim_stream *stream, const struct sim_kernel *kernel,
				 const void *argument, size_t bytes)
{
	struct sim *sim = stream->device->sim;
	struct sim_op op = {.kind = SIM_KERNEL, .kernel = kernel};
	memcpy(op.argument, argument, bytes);
	enum sim_error error = sim_enter(sim, false);
	if (error != SIM_OK)
		return error;
	error = load(stream->device, kernel);
	return sim_leave(sim, error == SIM_OK ? put_now(stream, &op) : error);
}

enum sim_error sim_copy(struct sim_stream *stream, void *to, const void *from, size_t bytes)
{
	struct sim_op op = {.kind = SIM_COPY, .copy = {to, from, bytes}};
	const struct driver_range ranges[] = {{from, bytes, false}, {to, bytes, true}};
	struct driver_touch touch = {.call = "sim_copy",
				     .site = __builtin_return_address(0),
				     .ranges = ranges,
				     .count = 2};
	const struct driver_observer *observer;
	enum sim_error error = put_seen(stream, &op, &observer, &touch.number);
	tell_touch(observer, stream, &touch);
	return error;
}

enum sim_error sim_copy_unseen(struct sim_stream *stream, void *to, const void *from, size_t bytes)
{
	struct sim_op op = {.kind = SIM_COPY, .copy = {to, from, bytes}};
	return put_unseen(stream, &op);
}

enum sim_error sim_store(struct sim_stream *stream, _Atomic uint64_t *word, uint64_t value,
			 struct wait_bell *bell)
{
	struct sim_op op = {.kind = SIM_STORE, .store = {word, value, bell}};
	return put_unseen(stream, &op);
}

enum sim_error sim_await(struct sim_stream *stream, const _Atomic uint64_t *word, uint64_t value)
{
	struct sim_op op = {.kind = SIM_AWAIT, .await = {word, value}};
	return put_wait(stream, &op);
}

enum sim_error sim_await_unseen(struct sim_stream *stream, const _Atomic uint64_t *word,
				uint64_t value)
{
	struct sim_op op = {.kind = SIM_AWAIT, .await = {word, value}};
	return put_unseen(stream, &op);
}

enum sim_error sim_host(struct sim_stream *stream, void (*function)(void *data), void *data)
{
	struct sim_op op = {.kind = SIM_HOST, .host = {function, data}};
	return put_wait(stream, &op);
}

enum sim_error sim_stream_sync(struct sim_stream *stream)
{
	struct sim *sim = stream->device->sim;
	enum sim_error error = sim_enter(sim, true);
	return error == SIM_OK ? sim_leave(sim, sim_await_done(stream, stream->put)) : error;
}

enum sim_error sim_device_sync(struct sim *sim, int device)
{
	if (device < 0 || device >= sim->options.devices)
		return SIM_BAD_VALUE;
	enum sim_error error = sim_enter(sim, true);
	return error == SIM_OK ? sim_leave(sim, sim_await_idle(&sim->devices[device])) : error;
}

enum sim_error sim_stream_query(struct sim_stream *stream)
{
	struct sim *sim = stream->device->sim;
	enum sim_error error = sim_enter(sim, true);
	if (error != SIM_OK)
		return error;
	bool idle = atomic_load(&stream->done) == stream->put;
	return sim_leave(sim, idle ? SIM_OK : SIM_NOT_READY);
}

/* ---- events ---- */

enum sim_error sim_event_open(struct sim *sim, struct sim_event **out)
{
	*out = NULL;
	enum sim_error error = sim_enter(sim, false);
	if (error != SIM_OK)
		return error;
	for (int i = 0; i < SIM_EVENTS && !*out; i++)
		if (!sim->events[i].open)
			*out = &sim->events[i];
	if (!*out)
		return sim_leave(sim, SIM_BAD_VALUE);
	**out = (struct sim_event){.sim = sim, .open = true};
	return leave_and_tell(sim, sim->devices, sim->options.devices, *out);
}

enum sim_error sim_event_close(struct sim_event *event)
{
	enum sim_error error = sim_enter(event->sim, false);
	if (error != SIM_OK)
		return error;
	event->open = false;
	return sim_leave(event->sim, SIM_OK);
}

enum sim_error sim_record(struct sim_event *event, struct sim_stream *stream)
{
	enum sim_error error = sim_enter(event->sim, false);
	if (error != SIM_OK)
		return error;
	event->stream = stream;
	event->number = stream->put;
	const struct driver_observer *observer = begin_to_tell(stream->device);
	error = sim_leave(event->sim, SIM_OK);
	if (observer) {
		observer->records(observer->data, event, stream);
		end_telling(stream->device);
	}
	return error;
}

enum sim_error sim_follow(struct sim_stream *stream, const struct sim_event *event)
{
	enum sim_error error = sim_enter(event->sim, false);
	if (error != SIM_OK)
		return error;
	struct sim_op op = {.kind = SIM_FOLLOW, .follow = {event->stream, event->number}};
	bool is_far = event->stream && event->stream->device != stream->device;
	error = event->stream ? sim_put(stream, &op) : SIM_OK;
	const struct driver_observer *observer =
		error == SIM_OK ? begin_to_tell(stream->device) : NULL;
	error = sim_leave(event->sim, error);
	if (!observer)
		return error;
	if (is_far)
		observer->awaits(observer->data, stream);
	else
		observer->follows(observer->data, event, stream);
	end_telling(stream->device);
	return error;
}

enum sim_error sim_event_query(const struct sim_event *event)
{
	enum sim_error error = sim_enter(event->sim, true);
	if (error != SIM_OK)
		return error;
	bool complete = !event->stream || atomic_load(&event->stream->done) >= event->number;
	return sim_leave(event->sim, complete ? SIM_OK : SIM_NOT_READY);
}

enum sim_error sim_event_sync(const struct sim_event *event)
{
	enum sim_error error = sim_enter(event->sim, true);
	if (error != SIM_OK)
		return error;
	return sim_leave(event->sim,
			 event->stream ? sim_await_done(event->stream, event->number) : SIM_OK);
}

/* ---- capture ---- */

enum sim_error sim_capture_begin(struct sim_stream *stream)
{
	struct sim *sim = stream->device->sim;
	enum sim_error error = sim_enter(sim, true);
	if (error != SIM_OK)
		return error;
	sim->captured = stream;
	sim->captured_count = 0;
	sim->capture_is_invalid = false;
	return sim_leave(sim, SIM_OK);
}

enum sim_error sim_capture_end(struct sim_stream *stream, uint64_t *count)
{
	struct sim *sim = stream->device->sim;
	enum sim_error error = sim_enter(sim, false);
	if (error != SIM_OK)
		return error;
	if (sim->captured != stream)
		return sim_leave(sim, SIM_BAD_VALUE);
	sim->captured = NULL;
	*count = sim->captured_count;
	return sim_leave(sim, sim->capture_is_invalid ? SIM_CAPTURED : SIM_OK);
}

enum sim_error sim_is_captured(const struct sim_stream *stream, bool *out)
{
	struct sim *sim = stream->device->sim;
	enum sim_error error = sim_enter(sim, false);
	if (error != SIM_OK)
		return error;
	*out = sim->captured == stream;
	return sim_leave(sim, SIM_OK);
}
