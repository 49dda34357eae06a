/* SPDX-License-Identifier: BSD-3-Clause
 * Hardware queues, and the thread of a device, which empties them. Streams share queues. If the
 * work at the head of a queue cannot begin, all work behind it waits, also that of other
 * streams. */
#include <string.h>

#include "sim_private.h"

/* Only the first call that the sleeping thread waits for wakes it: until the thread has woken each
 * wake-up costs a system call. */
void sim_call(struct sim_device *device)
{
	uint64_t work = atomic_fetch_add(&device->work, 1) + 1;
	if (atomic_load(&device->awaited_work) == work)
		wait_wake(device->bell);
}

static bool is_reached(const _Atomic uint64_t *word, uint64_t value)
{
	return (int64_t)(atomic_load(word) - value) >= 0;
}

/* ---- callers ---- */

/* Whether it waits for a store by the processor, or for another device. */
static bool is_stuck(const struct sim_op *op)
{
	return op->kind == SIM_AWAIT && !is_reached(op->await.word, op->await.value);
}

/* stuck: the work at the head is. */
static bool try_push(struct sim_device *device, const struct sim_op *op, bool *stuck)
{
	struct sim_queue *queue = &device->queues[op->stream->queue];
	pthread_mutex_lock(&device->lock);
	bool has_room = queue->count < (unsigned)device->sim->options.depth;
	*stuck = !has_room && is_stuck(&queue->ops[queue->head]);
	if (has_room)
		queue->ops[(queue->head + queue->count++) % SIM_DEPTH] = *op;
	pthread_mutex_unlock(&device->lock);
	return has_room;
}

enum sim_error sim_put(struct sim_stream *stream, struct sim_op *op)
{
	struct sim_device *device = stream->device;
	struct sim *sim = device->sim;
	if (sim->captured == stream) {
		sim->captured_count++;
		return SIM_OK;
	}
	op->stream = stream;
	op->number = stream->put + 1;
	if (sim_is_over(sim))
		return SIM_FAILED;
	bool stuck, was_stuck = false;
	while (!try_push(device, op, &stuck)) {
		uint64_t seen = atomic_load(&device->room);
		atomic_store(&device->awaited_room, seen + 1);
		if (try_push(device, op, &stuck))
			break;
		if (stuck && !was_stuck)
			atomic_fetch_add(&sim->held_calls, 1);
		was_stuck |= stuck;
		if (sim_is_over(sim))
			return SIM_FAILED;
		sim_sleep(&device->room_bell, &device->room, seen, NULL, 0);
	}
	stream->put++;
	sim_call(device);
	if (sim->options.launch != SIM_LAUNCH_WAITS)
		return SIM_OK;
	if (is_stuck(op))
		atomic_fetch_add(&sim->held_calls, 1);
	return sim_await_done(stream, op->number);
}

enum sim_error sim_await_done(const struct sim_stream *stream, uint64_t number)
{
	struct sim_device *device = stream->device;
	for (;;) {
		uint64_t seen = atomic_load(&device->progress);
		if (sim_is_over(device->sim))
			return SIM_FAILED;
		if (atomic_load(&stream->done) >= number)
			return SIM_OK;
		sim_sleep(&device->host_bell, &device->progress, seen, NULL, 0);
	}
}

void sim_await_store(struct sim_device *device)
{
	for (;;) {
		uint64_t seen = atomic_load(&device->progress);
		if (!atomic_load(&device->is_storing))
			return;
		sim_sleep(&device->host_bell, &device->progress, seen, NULL, 0);
	}
}

enum sim_error sim_await_idle(struct sim_device *device)
{
	enum sim_error error = SIM_OK;
	for (int i = 0; i < SIM_STREAMS && error == SIM_OK; i++)
		if (device->streams[i].open)
			error = sim_await_done(&device->streams[i], device->streams[i].put);
	return error;
}

/* ---- the device ---- */

void sim_complete(struct sim_stream *stream)
{
	struct sim_device *device = stream->device;
	struct sim *sim = device->sim;
	atomic_fetch_add(&stream->done, 1);
	sim_raise(&device->progress, &device->host_bell);
	/* A stream of any device may follow an event of this one. */
	for (int i = 0; i < sim->options.devices; i++)
		sim_call(&sim->devices[i]);
}

static bool may_begin(const struct sim_device *device, const struct sim_op *op)
{
	struct sim *sim = device->sim;
	if (atomic_load(&op->stream->done) + 1 != op->number)
		return false;
	switch (op->kind) {
	case SIM_KERNEL:
		return device->running_count < sim->options.resident;
	case SIM_AWAIT:
		return is_reached(op->await.word, op->await.value);
	case SIM_FOLLOW:
		return atomic_load(&op->follow.stream->done) >= op->follow.number;
	case SIM_HOST: /* claims the thread; the caller begins it */
		return !atomic_exchange(&sim->host_busy, true);
	case SIM_COPY:
	case SIM_STORE:
		return true;
	}
	return true;
}

/* Callers that wait for room are woken when a queue is half empty, or the device has nothing to do.
 * Otherwise the two threads would alternate at each operation. */
static void offer_room(struct sim_device *device)
{
	if (atomic_load(&device->awaited_room) > atomic_load(&device->room))
		sim_raise(&device->room, &device->room_bell);
}

/* Takes the work at the head of the queue, if it may begin. */
static bool pop(struct sim_device *device, struct sim_queue *queue, struct sim_op *out)
{
	pthread_mutex_lock(&device->lock);
	bool begins = queue->count > 0 && may_begin(device, &queue->ops[queue->head]);
	if (begins) {
		*out = queue->ops[queue->head];
		queue->head = (queue->head + 1) % SIM_DEPTH;
		queue->count--;
	}
	bool half = queue->count <= (unsigned)device->sim->options.depth / 2;
	pthread_mutex_unlock(&device->lock);
	if (begins && half)
		offer_room(device);
	return begins;
}

static void begin(struct sim_device *device, const struct sim_op *op)
{
	struct sim *sim = device->sim;
	switch (op->kind) {
	case SIM_KERNEL:
		device->running[device->running_count++] = *op;
		return;
	case SIM_HOST:
		sim->host_op = *op;
		sim_raise(&sim->host_put, &sim->host_bell);
		return;
	case SIM_COPY:
		memcpy(sim_where(sim, op->copy.to), sim_where(sim, op->copy.from), op->copy.bytes);
		break;
	case SIM_STORE:
		atomic_store(&device->is_storing, true);
		sim_board_store(sim, op->store.word, op->store.value);
		if (op->store.bell)
			wait_wake(op->store.bell);
		atomic_store(&device->is_storing, false);
		break;
	case SIM_AWAIT:
	case SIM_FOLLOW:
		break;
	}
	sim_complete(op->stream);
}

static void fail(struct sim *sim)
{
	atomic_store(&sim->failed, true);
	for (int i = 0; i < sim->options.devices; i++) {
		sim_raise(&sim->devices[i].progress, &sim->devices[i].host_bell);
		sim_raise(&sim->devices[i].room, &sim->devices[i].room_bell);
		sim_call(&sim->devices[i]);
	}
}

/* One step of a running kernel. Returns whether it has ended. */
static bool step(struct sim_device *device, int which)
{
	struct sim_op *op = &device->running[which];
	enum sim_step result = op->kernel->step(device->sim, op->argument);
	if (result == SIM_STEP_SPINS)
		return false;
	struct sim_stream *stream = op->stream;
	*op = device->running[--device->running_count];
	if (result == SIM_STEP_FAILED)
		fail(device->sim);
	else
		sim_complete(stream);
	return true;
}

/* Each queue and each running kernel gets a turn, from a drawn one on. */
static bool do_some(struct sim_device *device)
{
	int queues = device->sim->options.queues;
	int first = (int)sim_draw(&device->random, (uint64_t)queues);
	bool has_done = false;
	struct sim_op op;
	for (int i = 0; i < queues; i++)
		if (pop(device, &device->queues[(first + i) % queues], &op)) {
			begin(device, &op);
			has_done = true;
		}
	int count = device->running_count;
	if (count > 0)
		first = (int)sim_draw(&device->random, (uint64_t)count);
	for (int i = count; i-- > 0;) {
		int which = (first + i) % count;
		if (which < device->running_count && step(device, which))
			has_done = true;
	}
	return has_done;
}

void *sim_device_main(void *argument)
{
	struct sim_device *device = argument;
	struct sim *sim = device->sim;
	for (;;) {
		uint64_t work = atomic_load(&device->work), news = atomic_load(&sim->board->news);
		if (sim_is_over(sim)) {
			sim_device_ends(sim);
			return NULL;
		}
		if (do_some(device))
			continue;
		offer_room(device);
		atomic_store(&device->awaited_work, work + 1);
		sim_sleep(device->bell, &device->work, work, &sim->board->news, news);
	}
}

void *sim_host_main(void *argument)
{
	struct sim *sim = argument;
	sim_in_host_function = true;
	for (;;) {
		uint64_t put = atomic_load(&sim->host_put);
		if (sim_is_over(sim))
			return NULL;
		if (atomic_load(&sim->host_done) == put) {
			sim_sleep(&sim->host_bell, &sim->host_put, put, NULL, 0);
			continue;
		}
		struct sim_op op = sim->host_op;
		op.host.function(op.host.data);
		atomic_store(&sim->host_done, put);
		atomic_store(&sim->host_busy, false);
		sim_complete(op.stream);
	}
}
