/* SPDX-License-Identifier: BSD-3-Clause
 * fork-with-lock on Lockstep: processes fork while another thread is in a call that takes the locks
 * of the allocators and of messages. In the child no thread will ever release them, so each of its
 * calls returns before it takes one. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "old_ways.h"
#include "sim_driver.h"

enum { FORKS = 50, BYTES = 4096 };

static _Atomic bool ends;

static void *call_all_the_time(void *unused)
{
	float value = 0;
	void *block;
	for (int i = 0; !atomic_load(&ends); i++) {
		must_status(ls_device_alloc(world, BYTES, NULL, &block));
		must_status(ls_device_free(world, block));
		must_status(ls_alloc(world, BYTES, &block));
		must_status(ls_free(world, block));
		must_status(ls_send(world, &value, 1, LS_FLOAT32, my_rank, NULL));
		must_status(ls_recv(world, &value, 1, LS_FLOAT32, my_rank, NULL));
		if (i == 0)
			meet();
	}
	return unused;
}

/* How many calls were refused. */
static int call_all(void)
{
	float value = 0;
	void *block;
	const ls_status got[] = {
		ls_device_alloc(world, BYTES, NULL, &block),
		ls_device_free(world, cached),
		ls_device_record(world, cached, cached),
		ls_device_trim(world, 0),
		ls_alloc(world, BYTES, &block),
		ls_send(world, &value, 1, LS_FLOAT32, my_rank, NULL),
		ls_recv(world, &value, 1, LS_FLOAT32, my_rank, NULL),
		ls_allreduce(world, &value, &value, 1, LS_FLOAT32, LS_SUM, NULL),
	};
	int refused = 0;
	for (size_t i = 0; i < sizeof got / sizeof *got; i++)
		refused += got[i] == LS_FORKED;
	return refused;
}

void fork_on_lockstep(void)
{
	enum { CALLS = 8 };
	pthread_t thread;
	if (!lockstep_sim() || pthread_create(&thread, NULL, call_all_the_time, NULL) != 0)
		exit(2);
	meet();
	for (int i = 0; i < FORKS; i++) {
		int status = 0;
		fflush(stdout);
		pid_t child = fork();
		if (child == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			_exit(call_all() == CALLS ? 0 : 1);
		}
		if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
			printf("fork %d: a call of the child was not refused\n", i + 1);
			exit(4);
		}
	}
	atomic_store(&ends, true);
	pthread_join(thread, NULL);
	printf("%d forks while a thread is in ls_device_alloc, ls_alloc or ls_send: each of %d calls in "
	       "a child returns LS_FORKED\n",
	       FORKS, CALLS);
}
