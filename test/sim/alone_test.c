/* SPDX-License-Identifier: BSD-3-Clause
 * A rank that is alone receives from any source, which only its other thread could serve. That one
 * waits for its device, and so may still send. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sched.h>
#include <semaphore.h>
#include <time.h>

#include "job_fixture.h"
#include "world/ls_group.h"
#include "world/world.h"

/* The receive looks for other threads when it begins: while the sender sleeps, if it does not wake
 * too soon, in one of the turns. */
enum { LONELY_MS = 40, TURNS = 10 };

struct alone {
	ls_group *group;
	struct sim *sim;
	_Atomic uint64_t held; /* the stream waits for this word */
	ls_status status;      /* of the receive */
	int32_t got;
};

static bool sender_waits(const struct wait_table *wait_table)
{
	for (int i = 0; i < WAIT_SLOT_MAX; i++)
		if (__atomic_load_n(&wait_table->slots[i].body.state, __ATOMIC_RELAXED) ==
		    WAIT_ANY_WORD)
			return true;
	return false;
}

static void *receive(void *argument)
{
	struct alone *alone = argument;
	while (!sender_waits(alone->group->world->trace.wait_table) && !atomic_load(&alone->held))
		sched_yield();
	alone->status = ls_recv(alone->group, &alone->got, 1, LS_INT32, LS_ANY_SOURCE, NULL);
	return NULL;
}

/* Sleeps meanwhile: a thread that runs may call at any time, and would be why the receive goes
 * on. */
static void *let_go_late(void *argument)
{
	struct alone *alone = argument;
	struct timespec end;
	sem_t never;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_nsec += LONELY_MS * 1000000L;
	end.tv_sec += end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	MUST(sem_init(&never, 0, 0) == 0);
	MUST(sem_timedwait(&never, &end) != 0);
	sem_destroy(&never);
	sim_board_store(alone->sim, &alone->held, 1);
	return NULL;
}

/* The other ranks leave. Rank 0 has the message of one of them, but its stream does not come to
 * that. */
static void send_late(struct rank *rank)
{
	struct alone alone = {.group = rank->group, .sim = rank->sim, .status = LS_INTERNAL};
	int32_t seven = 7, other;
	pthread_t threads[2];
	ls_request *op;
	struct ls_call_options tagged = {.size = sizeof tagged, .tag = 3};
	if (rank->rank == 1)
		MUST(ls_send(rank->group, &seven, 1, LS_INT32, 0, &tagged) == LS_OK);
	if (rank->rank != 0)
		return;
	tagged.stream = rank->streams[0];
	MUST(sim_await(rank->streams[0], &alone.held, 1) == SIM_OK);
	MUST(ls_irecv(rank->group, &other, 1, LS_INT32, 1, &tagged, &op) == LS_OK);
	MUST(pthread_create(&threads[0], NULL, receive, &alone) == 0);
	MUST(pthread_create(&threads[1], NULL, let_go_late, &alone) == 0);
	MUST(ls_wait(op, 0) == LS_OK && other == 7);
	ls_request_free(op);
	MUST(ls_send(rank->group, &seven, 1, LS_INT32, 0, NULL) == LS_OK);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	MUST(alone.status == LS_OK && alone.got == 7);
}

static void the_sender_waits_for_its_device(void **state)
{
	(void)state;
	for (int turn = 0; turn < TURNS; turn++)
		run_job(send_late, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(the_sender_waits_for_its_device)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
