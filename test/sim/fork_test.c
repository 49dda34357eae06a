/* SPDX-License-Identifier: BSD-3-Clause
 * A child that is forked while its parent is in a launch, and that opens a job and a device of its
 * own: it is in no launch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sched.h>
#include <sys/wait.h>

#include "job_fixture.h"

enum { MIB = 1 << 20 };

static ls_group *open_job(const char *rendezvous)
{
	struct ls_group_options options = {.size = sizeof options,
					   .timeout_ms = 60000,
					   .world_size = 1,
					   .rendezvous = rendezvous,
					   .device = "sim:0"};
	ls_group *group;
	MUST(ls_group_open(&options, &group) == LS_OK);
	return group;
}

struct waiting {
	struct sim *sim;
	ls_group *group;
	_Atomic uint64_t word;
};

/* Once the other thread waits for the memory, lets the stream go on that still uses it. */
static void *release_late(void *argument)
{
	struct waiting *waiting = argument;
	struct ls_device_stats stats = {.size = sizeof stats};
	do
		MUST(ls_device_stats(waiting->group, &stats) == LS_OK);
	while (stats.pending == 0);
	for (int i = 0; i < 1000; i++)
		sched_yield();
	sim_board_store(waiting->sim, &waiting->word, 1);
	return NULL;
}

/* A thread that is in a launch does not wait for memory. */
static void wait_for_memory(ls_group *group)
{
	struct waiting waiting = {.sim = lockstep_sim(), .group = group};
	struct sim_stream *owner, *user;
	pthread_t other;
	void *block;
	MUST(sim_stream_open(waiting.sim, 0, &owner) == SIM_OK);
	MUST(sim_stream_open(waiting.sim, 0, &user) == SIM_OK);
	MUST(sim_await(user, &waiting.word, 1) == SIM_OK);
	MUST(ls_device_alloc(group, 40 * MIB, owner, &block) == LS_OK);
	MUST(ls_device_record(group, block, user) == LS_OK);
	MUST(pthread_create(&other, NULL, release_late, &waiting) == 0);
	MUST(ls_device_free(group, block) == LS_OK);
	MUST(ls_device_alloc(group, 60 * MIB, owner, &block) == LS_OK);
	MUST(ls_device_free(group, block) == LS_OK);
	pthread_join(other, NULL);
}

/* With LOCKSTEP_BLOCKING=1 only a call in a launch returns before its operation is complete. */
static void call_once(ls_group *group)
{
	int32_t one = 1, sum = 0;
	struct sim_stream *stream;
	struct ls_call_options options = {.size = sizeof options};
	MUST(sim_stream_open(lockstep_sim(), 0, &stream) == SIM_OK);
	options.stream = stream;
	MUST(ls_allreduce(group, &one, &sum, 1, LS_INT32, LS_SUM, &options) == LS_OK);
	MUST(sum == 1);
	MUST(ls_launch_begin(&group, 1) == LS_OK);
	MUST(ls_launch_end() == LS_OK);
}

static void run_child(void (*function)(ls_group *group))
{
	ls_group *group = open_job("unix:sim-fork-parent");
	MUST(ls_launch_begin(&group, 1) == LS_OK);
	pid_t child = fork();
	MUST(child >= 0);
	if (child == 0) {
		ls_group *mine = open_job("unix:sim-fork-child");
		function(mine);
		ls_group_close(mine);
		_exit(0);
	}
	int status;
	MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	MUST(ls_launch_end() == LS_OK);
	ls_group_close(group);
}

static void a_child_is_in_no_launch(void **state)
{
	(void)state;
	/* The sanitizer of threads allows none in a child of a process with threads; that of
	 * addresses does not free the locks of its allocator, which other threads of the parent may
	 * hold. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	skip();
#endif
	run_child(wait_for_memory);
	assert_int_equal(setenv("LOCKSTEP_BLOCKING", "1", 1), 0);
	run_child(call_once);
	assert_int_equal(unsetenv("LOCKSTEP_BLOCKING"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_child_is_in_no_launch)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
