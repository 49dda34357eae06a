/* SPDX-License-Identifier: BSD-3-Clause
 * A rank with a simulated device, for the tests of what the program prints about operations on
 * streams. All ranks call an all-reduce on a stream, print "called", wait for it, and print "ended
 * STATUS". The stream of rank 1 comes to it only after SIGUSR1. After SIGUSR1 the device of rank 2
 * prints "busy", and does nothing more. */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

#include "base/must_fixture.h"
#include "sim_driver.h"

static _Atomic uint64_t signalled;

static sigset_t signals(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	return set;
}

static void *await_signal(void *sim)
{
	sigset_t set = signals();
	int number;
	MUST(sigwait(&set, &number) == 0);
	sim_board_store(sim, &signalled, 1);
	return NULL;
}

static enum sim_step stay(struct sim *sim, void *argument)
{
	(void)sim;
	(void)argument;
	puts("busy");
	pause();
	return SIM_STEP_SPINS;
}
static const struct sim_kernel stays = {"stay", stay};

/* What is behind the signal. */
static void prepare(int rank, struct sim_stream *const *streams)
{
	if (rank == 1)
		MUST(sim_await(streams[0], &signalled, 1) == SIM_OK);
	if (rank == 2) {
		MUST(sim_await(streams[1], &signalled, 1) == SIM_OK);
		MUST(sim_launch(streams[1], &stays, NULL, 0) == SIM_OK);
	}
}

int main(void)
{
	static int32_t one = 1, sum;
	struct ls_group_options options = {.size = sizeof options, .device = "sim:0"};
	struct ls_call_options on = {.size = sizeof on};
	struct sim_stream *streams[2];
	ls_group *group;
	ls_request *op;
	sigset_t set = signals();
	pthread_t thread;
	setvbuf(stdout, NULL, _IOLBF, 0);
	MUST(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0); /* of all threads */
	MUST(ls_group_open(&options, &group) == LS_OK);
	for (int i = 0; i < 2; i++)
		MUST(sim_stream_open(lockstep_sim(), 0, &streams[i]) == SIM_OK);
	MUST(pthread_create(&thread, NULL, await_signal, lockstep_sim()) == 0);
	prepare(ls_group_rank(group), streams);
	on.stream = streams[0];
	on.request = &op;
	MUST(ls_allreduce(group, &one, &sum, 1, LS_INT32, LS_SUM, &on) == LS_OK);
	puts("called");
	printf("ended %s\n", ls_status_name(ls_wait(op, 0)));
	for (;;)
		pause();
}
