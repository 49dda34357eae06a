/* SPDX-License-Identifier: BSD-3-Clause
 * How long a cache line takes from one core to another: prints nanoseconds one way, the median of
 * several runs, of two processes on two processors that answer each other. */
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <signal.h>

enum { REPEATS = 9, TRIPS = 400000 };

struct line {
	_Alignas(128) _Atomic uint64_t word;
};

static double now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void await(const _Atomic uint64_t *word, uint64_t value)
{
	while (atomic_load_explicit(word, memory_order_acquire) != value) {
#if defined(__x86_64__)
		__builtin_ia32_pause();
#endif
	}
}

static bool bind(unsigned cpu)
{
	cpu_set_t all, one;
	if (sched_getaffinity(0, sizeof all, &all) != 0)
		return false;
	CPU_ZERO(&one);
	for (unsigned i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &all) && cpu-- == 0)
			CPU_SET(i, &one);
	return sched_setaffinity(0, sizeof one, &one) == 0;
}

static void answer(struct line *lines)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (!bind(1))
		_exit(1);
	for (uint64_t i = 1; i <= (uint64_t)REPEATS * TRIPS; i++) {
		await(&lines[0].word, i);
		atomic_store_explicit(&lines[1].word, i, memory_order_release);
	}
	_exit(0);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(void)
{
	double times[REPEATS];
	struct line *lines = mmap(NULL, 2 * sizeof *lines, PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t other = lines == MAP_FAILED ? -1 : fork();
	if (other < 0) {
		perror("line");
		return 1;
	}
	if (other == 0)
		answer(lines);
	if (!bind(0)) {
		perror("line: two processors are needed");
		return 1;
	}
	uint64_t i = 0;
	for (int repeat = 0; repeat < REPEATS; repeat++) {
		double start = now_ns();
		for (int trip = 0; trip < TRIPS; trip++) {
			atomic_store_explicit(&lines[0].word, ++i, memory_order_release);
			await(&lines[1].word, i);
		}
		times[repeat] = (now_ns() - start) / TRIPS / 2;
	}
	int status;
	if (waitpid(other, &status, 0) != other || status != 0)
		return 1;
	qsort(times, REPEATS, sizeof times[0], compare);
	printf("%.1f\n", times[REPEATS / 2]);
	return 0;
}
