/* SPDX-License-Identifier: BSD-3-Clause
 * What an empty operation of the simulated device costs, from its launch until it is done, beside a
 * push into a queue under a mutex that another thread empties. Medians of alternating rounds. All
 * threads share one processor. On several, it depends on where the system puts the threads how
 * often they meet, which would matter more than what is measured. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/wait.h"
#include "sim.h"

enum { ROUNDS = 31, PUSHES = 20000, ITEM_WORDS = 12 };

/* ---- a queue under a mutex ---- */

struct item {
	uint64_t words[ITEM_WORDS]; /* as large as an operation */
};

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	struct item items[SIM_DEPTH];
	unsigned head, count;
	uint64_t popped;
	bool ends;
} queue = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static volatile uint64_t sink;

static void *empty(void *argument)
{
	pthread_mutex_lock(&queue.mutex);
	while (!queue.ends) {
		if (queue.count == 0) {
			pthread_cond_wait(&queue.changed, &queue.mutex);
			continue;
		}
		struct item item = queue.items[queue.head];
		bool was_full = queue.count == SIM_DEPTH;
		queue.head = (queue.head + 1) % SIM_DEPTH;
		queue.count--;
		queue.popped++;
		sink += item.words[0];
		if (was_full || queue.count == 0)
			pthread_cond_broadcast(&queue.changed);
		pthread_mutex_unlock(&queue.mutex);
		pthread_mutex_lock(&queue.mutex);
	}
	pthread_mutex_unlock(&queue.mutex);
	return argument;
}

static void push(uint64_t value)
{
	struct item item = {.words = {value}};
	pthread_mutex_lock(&queue.mutex);
	while (queue.count == SIM_DEPTH)
		pthread_cond_wait(&queue.changed, &queue.mutex);
	queue.items[(queue.head + queue.count++) % SIM_DEPTH] = item;
	if (queue.count == 1)
		pthread_cond_broadcast(&queue.changed);
	pthread_mutex_unlock(&queue.mutex);
}

static double push_many(void)
{
	uint64_t start = clock_now_ns();
	for (int i = 0; i < PUSHES; i++)
		push((uint64_t)i);
	pthread_mutex_lock(&queue.mutex);
	while (queue.count > 0)
		pthread_cond_wait(&queue.changed, &queue.mutex);
	pthread_mutex_unlock(&queue.mutex);
	return (double)(clock_now_ns() - start) / PUSHES;
}

/* ---- the device ---- */

static enum sim_step nothing(struct sim *sim, void *argument)
{
	(void)sim;
	(void)argument;
	return SIM_STEP_DONE;
}
static const struct sim_kernel kernel = {"nothing", nothing};

static void must(bool fine)
{
	if (!fine)
		abort();
}

static double launch_many(struct sim_stream *stream)
{
	uint64_t start = clock_now_ns();
	for (int i = 0; i < PUSHES; i++)
		must(sim_launch(stream, &kernel, NULL, 0) == SIM_OK);
	must(sim_stream_sync(stream) == SIM_OK);
	return (double)(clock_now_ns() - start) / PUSHES;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *values)
{
	qsort(values, ROUNDS, sizeof *values, by_value);
	return values[ROUNDS / 2];
}

static void share_one_processor(void)
{
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET((size_t)sched_getcpu(), &one);
	must(sched_setaffinity(0, sizeof one, &one) == 0);
}

int main(void)
{
	share_one_processor();
	struct sim_options options = {.seed = 1, .devices = 1, .bytes = 1 << 20, .queues = 1};
	struct sim *sim = sim_open(&options);
	struct sim_stream *stream;
	double pushes[ROUNDS], launches[ROUNDS];
	pthread_t thread;
	must(sim && sim_stream_open(sim, 0, &stream) == SIM_OK);
	must(pthread_create(&thread, NULL, empty, NULL) == 0);
	for (int i = 0; i < ROUNDS; i++) {
		pushes[i] = push_many();
		launches[i] = launch_many(stream);
	}
	pthread_mutex_lock(&queue.mutex);
	queue.ends = true;
	pthread_cond_broadcast(&queue.changed);
	pthread_mutex_unlock(&queue.mutex);
	pthread_join(thread, NULL);
	must(sim_stream_close(stream) == SIM_OK);
	sim_close(sim);
	double one = median(pushes), other = median(launches);
	printf("push into a queue under a mutex %.0f ns, empty operation %.0f ns: %.2f\n", one,
	       other, other / one);
	return 0;
}
