/* SPDX-License-Identifier: BSD-3-Clause
 * Random programs on streams of simulated devices on real threads, for the sanitizers. `make
 * explore` runs them under drawn schedules. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "seeds.h"
#include "sim_driver.h"
#include "stream_program.h"

enum { SEEDS = 60 };
static struct seeds seeds;

struct one {
	struct stream_program *program;
	const char *rendezvous;
	pthread_barrier_t *begun; /* a rank may fail as soon as it runs */
	int rank, thread;
	pthread_t id;
};

void stream_program_progress(void)
{
}

static void *run_second(void *argument)
{
	const struct one *one = argument;
	stream_program_run(one->program, one->rank, 1);
	return NULL;
}

static void *run_rank(void *argument)
{
	struct one *one = argument, second = *one;
	char device[256];
	ls_group *world;
	stream_program_device(one->program, one->rank, device, sizeof device);
	struct ls_group_options options = {.size = sizeof options,
					   .rank = one->rank,
					   .world_size = stream_program_ranks(one->program),
					   .rendezvous = one->rendezvous,
					   .device = device};
	if (ls_group_open(&options, &world) != LS_OK)
		abort();
	stream_program_begin(one->program, one->rank, world);
	pthread_barrier_wait(one->begun);
	if (pthread_create(&second.id, NULL, run_second, &second) != 0)
		abort();
	stream_program_run(one->program, one->rank, 0);
	pthread_join(second.id, NULL);
	stream_program_end(one->program, one->rank);
	return NULL;
}

static void put_settings(const char *settings)
{
	char copy[256], *left = copy;
	snprintf(copy, sizeof copy, "%s", settings);
	for (char *setting; (setting = strsep(&left, " "));) {
		char *value = strchr(setting, '=');
		if (!value)
			continue;
		*value++ = '\0';
		assert_int_equal(setenv(setting, value, 1), 0);
	}
}

static void programs(void **state)
{
	(void)state;
	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct one all[STREAM_PROGRAM_RANKS];
		char rendezvous[64], why[1024];
		struct stream_program *program = stream_program_draw(seed, false);
		assert_non_null(program);
		lockstep_sim_forget_left();
		put_settings(stream_program_settings(program));
		pthread_barrier_t begun;
		assert_int_equal(
			pthread_barrier_init(&begun, NULL, (unsigned)stream_program_ranks(program)),
			0);
		snprintf(rendezvous, sizeof rendezvous, "unix:stream-programs-%d-%llu",
			 (int)getpid(), (unsigned long long)seed);
		for (int rank = 0; rank < stream_program_ranks(program); rank++) {
			all[rank] = (struct one){program, rendezvous, &begun, rank, 0, 0};
			assert_int_equal(pthread_create(&all[rank].id, NULL, run_rank, &all[rank]),
					 0);
		}
		for (int rank = 0; rank < stream_program_ranks(program); rank++)
			pthread_join(all[rank].id, NULL);
		pthread_barrier_destroy(&begun);
		/* Messages of the library go to standard error. */
		if (!stream_program_judge(program, "", why, sizeof why)) {
			stream_program_show(program, stderr);
			fail_msg("seed %llu: %s", (unsigned long long)seed, why);
		}
		stream_program_free(program);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(programs)};
	seeds = seeds_read(argc, argv, SEEDS);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	if (failed == 0)
		seeds_print(&seeds,
			    "programs of operations on streams, with aborts, failures and closes");
	return failed;
}
