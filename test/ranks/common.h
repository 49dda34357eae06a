/* SPDX-License-Identifier: BSD-3-Clause
 * What several files of tests need: the time, a count in a text, the end of a request, a group
 * that works, signals. */
#ifndef TEST_RANKS_COMMON_H
#define TEST_RANKS_COMMON_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "runner.h"

static inline double now_s(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static inline uint64_t now_ms(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

/* How often the text has this part. */
static inline int times(const char *text, const char *part)
{
	int count = 0;
	for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
		count++;
	return count;
}

static inline void finish(ls_request *op, ls_status status)
{
	GIVES(status, ls_wait(op, 0));
	ls_request_free(op);
}

/* Fails the test unless the members can still call a collective. */
static inline void works(ls_group *group)
{
	int64_t word = 1, sum = 0;
	OK(ls_allreduce(group, &word, &sum, 1, LS_INT64, LS_SUM, NULL));
	CHECK(sum == ls_group_size(group));
}

struct nagging {
	pthread_t whom;
	_Atomic bool over;
};

/* Sends a signal to a thread, again and again, until `over`. The body of a thread. */
static inline void *nag(void *argument)
{
	struct nagging *nagging = argument;
	while (!atomic_load(&nagging->over)) {
		CHECK(pthread_kill(nagging->whom, SIGUSR1) == 0);
		sched_yield();
	}
	return NULL;
}

#endif
