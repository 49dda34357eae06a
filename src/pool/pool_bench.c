/* SPDX-License-Identifier: BSD-3-Clause
 * What an allocation that finds a cached block and its free cost together: beside a mutex and a
 * free list for each size class, which is the least that a cache for several threads does, and
 * beside malloc (of whichever library is preloaded). Medians of rounds that take turns. Twice: in a
 * process that has never had another thread, where glibc's mutex and malloc do without atomic
 * accesses, and in one that has, like each process that uses Lockstep. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "pool/pool.h"

enum { ROUNDS = 31, PAIRS = 20000, LIST_BINS = 256 };

/* ---- a mutex and a free list ---- */

struct list_block {
	struct list_block *next;
	size_t bytes;
};

static struct {
	pthread_mutex_t mutex;
	struct list_block *bins[LIST_BINS];
} list = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static int list_bin(size_t bytes)
{
	int log = 63 - __builtin_clzl(bytes);
	return 4 * log + (int)(bytes >> (log - 2) & 3);
}

static struct list_block *list_alloc(size_t bytes)
{
	pthread_mutex_lock(&list.mutex);
	struct list_block **bin = &list.bins[list_bin(bytes)], *block = *bin;
	if (block)
		*bin = block->next;
	pthread_mutex_unlock(&list.mutex);
	if (!block) {
		block = malloc(sizeof *block);
		if (!block)
			abort();
		block->bytes = bytes;
	}
	return block;
}

static void list_free(struct list_block *block)
{
	pthread_mutex_lock(&list.mutex);
	struct list_block **bin = &list.bins[list_bin(block->bytes)];
	block->next = *bin;
	*bin = block;
	pthread_mutex_unlock(&list.mutex);
}

/* ---- rounds ---- */

static volatile uintptr_t sink;

static double of_list(size_t bytes)
{
	uint64_t start = clock_now_ns();
	for (int i = 0; i < PAIRS; i++) {
		struct list_block *block = list_alloc(bytes);
		sink = (uintptr_t)block;
		list_free(block);
	}
	return (double)(clock_now_ns() - start) / PAIRS;
}

static double of_malloc(size_t bytes)
{
	uint64_t start = clock_now_ns();
	for (int i = 0; i < PAIRS; i++) {
		void *block = malloc(bytes);
		sink = (uintptr_t)block;
		free(block);
	}
	return (double)(clock_now_ns() - start) / PAIRS;
}

static double of_pool(struct pool *pool, size_t bytes)
{
	uint64_t start = clock_now_ns();
	for (int i = 0; i < PAIRS; i++) {
		void *block;
		if (pool_alloc(pool, bytes, NULL, CLOCK_NEVER, &block) != LS_OK)
			abort();
		sink = (uintptr_t)block;
		if (pool_free(pool, block, NULL) != LS_OK)
			abort();
	}
	return (double)(clock_now_ns() - start) / PAIRS;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *values)
{
	qsort(values, ROUNDS, sizeof *values, compare);
	return values[ROUNDS / 2];
}

static void measure(struct pool *pool, size_t bytes)
{
	double pools[ROUNDS], lists[ROUNDS], mallocs[ROUNDS];
	for (int i = 0; i < ROUNDS; i++) {
		lists[i] = of_list(bytes);
		pools[i] = of_pool(pool, bytes);
		mallocs[i] = of_malloc(bytes);
	}
	double ours = median(pools), least = median(lists);
	printf("%12zu %10.1f %12.1f %10.1f %8.2f\n", bytes, ours, least, median(mallocs),
	       ours / least);
}

static void measure_all(struct pool *pool, const char *where)
{
	printf("ns for alloc + free of a cached block, in %s\n%12s %10s %12s %10s %8s\n", where,
	       "bytes", "pool", "mutex+list", "malloc", "ratio");
	static const size_t sizes[] = {512, 4096, 32768, 262144, 2 << 20, 16 << 20, 64 << 20};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		measure(pool, sizes[i]);
}

static void *end_at_once(void *unused)
{
	return unused;
}

int main(void)
{
	static struct pool_gate gate;
	static struct wait_bell bell;
	static struct waiter waiter = {.bell = &bell, .look_fd = -1};
	struct driver driver = {.ops = &device_driver_cpu};
	struct pool_options options = {
		.driver = &driver, .gate = &gate, .waiter = &waiter, .name = "cpu"};
	struct pool *pool;
	pool_gate_init(&gate);
	if (driver.ops->open(&driver) != LS_OK || pool_open(&pool, &options) != LS_OK)
		return 1;
	measure_all(pool, "the first thread of its process");
	pthread_t thread;
	if (pthread_create(&thread, NULL, end_at_once, NULL) != 0)
		return 1;
	pthread_join(thread, NULL);
	measure_all(pool, "a process that has had threads");
	if (pool_close(pool, CLOCK_NEVER) != LS_OK)
		return 1;
	pool_gate_fini(&gate);
	return 0;
}
