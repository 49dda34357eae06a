/* SPDX-License-Identifier: BSD-3-Clause
 * Random device programs on real threads, for the sanitizers. `make explore` runs them under drawn
 * schedules. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>
#include <stdlib.h>

#include "base/messages.h"
#include "device_program.h"
#include "seeds.h"

enum { THREADS = DEVICE_PROGRAM_RANKS * DEVICE_PROGRAM_THREADS };

enum { SEEDS = 60 };
static struct seeds seeds;

struct one {
	struct device_program *program;
	int rank, thread;
	pthread_t id;
};

static void *run_one(void *argument)
{
	const struct one *one = argument;
	device_program_run(one->program, one->rank, one->thread);
	return NULL;
}

static void programs(void **state)
{
	(void)state;
	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct one all[THREADS];
		int count = 0;
		struct device_program *program = device_program_open(seed);
		assert_non_null(program);
		for (int rank = 0; rank < device_program_ranks(seed); rank++)
			for (int thread = 0; thread < DEVICE_PROGRAM_THREADS; thread++) {
				struct one *one = &all[count++];
				*one = (struct one){program, rank, thread, 0};
				assert_int_equal(pthread_create(&one->id, NULL, run_one, one), 0);
			}
		while (count > 0)
			pthread_join(all[--count].id, NULL);
		if (!device_program_close(program))
			fail_msg("seed %llu", (unsigned long long)seed);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(programs)};
	seeds = seeds_read(argc, argv, SEEDS);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	if (failed == 0)
		seeds_print(&seeds, "programs of allocations, frees and launches over the pool");
	return failed;
}
