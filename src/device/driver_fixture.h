/* SPDX-License-Identifier: BSD-3-Clause
 * For tests: a device that is late. What is enqueued on a stream is done later, by a thread or step
 * by step by the test, and its memory is where the processor cannot touch it: at addresses that
 * fault. A seed draws how much is done at once; a call, or a step, can be made to fail. */
#ifndef DEVICE_DRIVER_FIXTURE_H
#define DEVICE_DRIVER_FIXTURE_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/must_fixture.h"
#include "device/driver.h"

enum { LATE_BYTES = 8 << 20, LATE_DEPTH = 1024, LATE_OPERANDS = 8 };

enum late_kind { LATE_COPY, LATE_REDUCE, LATE_STORE };

struct late_work {
	enum late_kind kind;
	void *to;
	const void *from;
	size_t bytes;
	struct kernel_reduce reduce;
	const void *sources[LATE_OPERANDS];
	void *targets[LATE_OPERANDS];
	_Atomic uint64_t *word;
	uint64_t value;
};

struct late {
	struct driver driver;
	unsigned char *device; /* LATE_BYTES that fault */
	unsigned char *memory; /* what they stand for, known to the device alone */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool threaded, held, closed;
	uint64_t seed, put, done; /* works enqueued on the stream, and done */
	uint64_t calls, fail_at;  /* the call that fails, from 1; 0: none */
	uint64_t stays_at;        /* the call that does not return while this is its number */
	uint64_t break_at;        /* the work at which the device breaks, from 1; 0: none */
	pthread_t thread;
	struct late_work queue[LATE_DEPTH];
};

/* Where an address of the device's, or of the host's, really is. */
static inline void *late_where(const struct late *late, const void *address)
{
	uintptr_t offset = (uintptr_t)address - (uintptr_t)late->device;
	return offset < LATE_BYTES ? late->memory + offset : (void *)(uintptr_t)address;
}

static inline void late_do(struct late *late, const struct late_work *work)
{
	const void *sources[LATE_OPERANDS];
	void *targets[LATE_OPERANDS];
	struct kernel_reduce reduce = work->reduce;
	switch (work->kind) {
	case LATE_COPY:
		memcpy(late_where(late, work->to), late_where(late, work->from), work->bytes);
		break;
	case LATE_REDUCE:
		for (int i = 0; i < reduce.source_count; i++)
			sources[i] = late_where(late, work->sources[i]);
		for (int i = 0; i < reduce.target_count; i++)
			targets[i] = late_where(late, work->targets[i]);
		reduce.sources = sources;
		reduce.targets = targets;
		kernel_reduce(&reduce);
		break;
	case LATE_STORE:
		driver_stored(&late->driver, work->word, work->value);
		break;
	}
}

static inline bool late_is_broken(const struct late *late)
{
	return atomic_load(&late->driver.broken) != 0;
}

/* Does the oldest work; false: there is none, or the device is broken. The lock is held, as a work
 * that is being done is one that whoever holds it waits for. */
static inline bool late_step_locked(struct late *late)
{
	if (late_is_broken(late) || late->done == late->put)
		return false;
	if (late->done + 1 == late->break_at) {
		driver_broke(&late->driver, LS_SYSTEM);
		return false;
	}
	late_do(late, &late->queue[late->done % LATE_DEPTH]);
	late->done++;
	return true;
}

static inline bool late_step(struct late *late)
{
	pthread_mutex_lock(&late->lock);
	bool stepped = late_step_locked(late);
	pthread_mutex_unlock(&late->lock);
	return stepped;
}

/* The device does some, and then lets others run: how often in between, the seed draws. */
static inline void *late_main(void *argument)
{
	struct late *late = argument;
	pthread_mutex_lock(&late->lock);
	while (!late->closed) {
		late->seed = late->seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
		uint64_t works = 1 + (late->seed >> 33) % 4;
		bool stepped = false;
		for (; works > 0 && !late->held && late_step_locked(late); works--)
			stepped = true;
		if (!stepped) {
			pthread_cond_wait(&late->changed, &late->lock);
			continue;
		}
		pthread_mutex_unlock(&late->lock);
		sched_yield();
		pthread_mutex_lock(&late->lock);
	}
	pthread_mutex_unlock(&late->lock);
	return NULL;
}

static inline void late_hold(struct late *late, bool held)
{
	pthread_mutex_lock(&late->lock);
	late->held = held;
	pthread_cond_broadcast(&late->changed);
	pthread_mutex_unlock(&late->lock);
}

/* The n-th call from now does not return; 0: all return. */
static inline void late_stay(struct late *late, uint64_t n)
{
	pthread_mutex_lock(&late->lock);
	late->stays_at = n ? late->calls + n : 0;
	pthread_cond_broadcast(&late->changed);
	pthread_mutex_unlock(&late->lock);
}

static inline struct late *late_of(struct driver *driver)
{
	return driver->state;
}

static inline ls_status late_put(struct driver *driver, const struct late_work *work)
{
	struct late *late = late_of(driver);
	pthread_mutex_lock(&late->lock);
	uint64_t call = ++late->calls;
	while (late->stays_at == call)
		pthread_cond_wait(&late->changed, &late->lock);
	ls_status status = call == late->fail_at || late_is_broken(late) ? LS_SYSTEM : LS_OK;
	if (status == LS_OK) {
		MUST(late->put - late->done < LATE_DEPTH);
		struct late_work *here = &late->queue[late->put++ % LATE_DEPTH];
		*here = *work;
		pthread_cond_broadcast(&late->changed);
	}
	pthread_mutex_unlock(&late->lock);
	return status;
}

static inline ls_status late_copy(struct driver *driver, void *stream, void *to, const void *from,
				  size_t bytes)
{
	MUST(stream == driver->stream);
	struct late_work work = {.kind = LATE_COPY, .to = to, .from = from, .bytes = bytes};
	return late_put(driver, &work);
}

static inline ls_status late_reduce(struct driver *driver, void *stream,
				    const struct kernel_reduce *reduce)
{
	MUST(stream == driver->stream);
	MUST(reduce->source_count <= LATE_OPERANDS && reduce->target_count <= LATE_OPERANDS);
	struct late_work work = {.kind = LATE_REDUCE, .reduce = *reduce};
	memcpy(work.sources, reduce->sources, (size_t)reduce->source_count * sizeof(void *));
	memcpy(work.targets, reduce->targets, (size_t)reduce->target_count * sizeof(void *));
	return late_put(driver, &work);
}

static inline ls_status late_store(struct driver *driver, void *stream, _Atomic uint64_t *word,
				   uint64_t value)
{
	MUST(stream == driver->stream);
	struct late_work work = {.kind = LATE_STORE, .word = word, .value = value};
	return late_put(driver, &work);
}

/* driver->state is the struct late, which the test has cleared and given threaded and seed. */
static inline ls_status late_open(struct driver *driver)
{
	struct late *late = late_of(driver);
	driver->stream = &late->queue;
	late->device = mmap(NULL, LATE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	late->memory = calloc(1, LATE_BYTES);
	MUST(late->device != MAP_FAILED && late->memory);
	pthread_mutex_init(&late->lock, NULL);
	pthread_cond_init(&late->changed, NULL);
	if (late->threaded)
		MUST(pthread_create(&late->thread, NULL, late_main, late) == 0);
	return LS_OK;
}

static inline void late_close(struct driver *driver)
{
	struct late *late = late_of(driver);
	pthread_mutex_lock(&late->lock);
	late->closed = true;
	pthread_cond_broadcast(&late->changed);
	pthread_mutex_unlock(&late->lock);
	if (late->threaded)
		pthread_join(late->thread, NULL);
	MUST(late_is_broken(late) || late->done == late->put);
	munmap(late->device, LATE_BYTES);
	free(late->memory);
	pthread_mutex_destroy(&late->lock);
	pthread_cond_destroy(&late->changed);
}

/* Its memory is the test's own: nobody takes any. */
static const struct driver_ops driver_late = {.open = late_open,
					      .close = late_close,
					      .copy = late_copy,
					      .reduce = late_reduce,
					      .store = late_store};

static inline struct late *late_new(struct wait_bell *bell, bool threaded, uint64_t seed)
{
	struct late *late = calloc(1, sizeof *late);
	MUST(late);
	late->driver.ops = &driver_late;
	late->driver.bell = bell;
	late->driver.state = late;
	late->threaded = threaded;
	late->seed = seed;
	MUST(driver_late.open(&late->driver) == LS_OK);
	return late;
}

static inline void late_free(struct late *late)
{
	late->driver.ops->close(&late->driver);
	free(late);
}

#endif
