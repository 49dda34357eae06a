/* SPDX-License-Identifier: BSD-3-Clause
 * A scheduler for real threads: the system chooses which one runs. See plain.h. */
#include "plain.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "program_private.h"
#include "scheduler.h"

enum { SLICE_NS = 1000000, SECOND_NS = 1000000000, SAID_BYTES = 65536, FAILED = 3 };

struct thread {
	pthread_t id;
	scheduler_main *main;
	void *data;
};

static struct thread threads[SCHEDULER_THREADS];
static int thread_count; /* under the lock, as `threads` */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static char said[SAID_BYTES];
static int said_file = -1;

void plain_begin(int file)
{
	said_file = file;
}

static void *run(void *data)
{
	const struct thread *thread = data;
	thread->main(thread->data);
	return NULL;
}

int scheduler_spawn(int rank, const char *name, scheduler_main *main, void *data)
{
	(void)rank;
	pthread_mutex_lock(&lock);
	int number = thread_count < SCHEDULER_THREADS ? thread_count++ : -1;
	if (number >= 0) {
		threads[number].main = main;
		threads[number].data = data;
	}
	if (number < 0 || pthread_create(&threads[number].id, NULL, run, &threads[number]) != 0)
		scheduler_fail("%s: no thread", name);
	pthread_mutex_unlock(&lock);
	return number;
}

bool scheduler_join(int thread)
{
	pthread_mutex_lock(&lock);
	pthread_t id = threads[thread].id;
	pthread_mutex_unlock(&lock);
	pthread_join(id, NULL);
	return true;
}

bool scheduler_await(const int *word, int value, uint64_t until_ns)
{
	pthread_mutex_lock(&lock);
	bool there;
	while (!(there = __atomic_load_n(word, __ATOMIC_SEQ_CST) >= value) &&
	       scheduler_now_ns() < until_ns) {
		struct timespec slice;
		clock_gettime(CLOCK_REALTIME, &slice);
		slice.tv_nsec += SLICE_NS;
		if (slice.tv_nsec >= SECOND_NS) {
			slice.tv_nsec -= SECOND_NS;
			slice.tv_sec++;
		}
		pthread_cond_timedwait(&changed, &lock, &slice);
	}
	pthread_mutex_unlock(&lock);
	return there;
}

int word_add(int *word, int more)
{
	pthread_mutex_lock(&lock);
	int value = __atomic_add_fetch(word, more, __ATOMIC_SEQ_CST);
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return value;
}

void scheduler_progress(void)
{
	pthread_mutex_lock(&lock);
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

void scheduler_yield(void)
{
	sched_yield();
}

uint64_t scheduler_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

void scheduler_kill_at(int rank, uint64_t points, int signal)
{
	scheduler_fail("rank %d is to be killed by signal %d in %llu points: only where a seed draws",
		       rank, signal, (unsigned long long)points);
}

bool scheduler_is_killed(int rank)
{
	(void)rank;
	return false;
}

const char *scheduler_said(void)
{
	ssize_t length = pread(said_file, said, sizeof said - 1, 0);
	said[length > 0 ? length : 0] = '\0';
	return said;
}

void scheduler_fail(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	fflush(stdout);
	_exit(FAILED);
}
