/* SPDX-License-Identifier: BSD-3-Clause
 * A rank dies while long payloads come from it. Its peers notice by the payloads, which end, or by
 * its end; either way they say that it died. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "tests.h"
#include "values.h"

enum { LONG = 500000, BEFORE = 5 };

typedef ls_status round_function(struct runner_rank *self, ls_group *group, int32_t *buffer);

struct rounds {
	struct runner_rank *self;
	ls_group *group;
	int32_t *buffer;
	round_function *round;
	ls_status status;
};

static void *run_rounds(void *argument)
{
	struct rounds *rounds = argument;
	while (rounds->status == LS_OK) {
		rounds->status = rounds->round(rounds->self, rounds->group, rounds->buffer);
		atomic_fetch_add(&rounds->self->shared->words[rounds->self->rank], 1);
	}
	return NULL;
}

static void rank_1_dies(struct runner_rank *self, round_function *round)
{
	ls_group *group = runner_open(self);
	struct rounds rounds = {.self = self,
				.group = group,
				.buffer = values_alloc(group, LONG * 4, true),
				.round = round};
	values_fill(rounds.buffer, LONG, LS_INT32, LS_SUM, self->rank, 3);
	if (self->rank == 1) {
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, run_rounds, &rounds) == 0);
		while (atomic_load(&self->shared->words[1]) < BEFORE)
			sched_yield();
		raise(SIGKILL);
	}
	run_rounds(&rounds);
	struct ls_failure failure = {.size = sizeof failure};
	OK(ls_group_failure(group, &failure));
	CHECK_THAT(rounds.status == LS_PEER_DIED && failure.rank == 1, "%s, rank %d is blamed: %s",
		   ls_status_name(rounds.status), failure.rank, failure.text);
	values_free(group, rounds.buffer, true);
	ls_group_close(group);
}

static ls_status broadcast(struct runner_rank *self, ls_group *group, int32_t *buffer)
{
	(void)self;
	return ls_broadcast(group, buffer, buffer, LONG, LS_INT32, 1, NULL);
}

void a_root_dies_in_long_broadcasts(struct runner_rank *self)
{
	rank_1_dies(self, broadcast);
}

static ls_status pass(struct runner_rank *self, ls_group *group, int32_t *buffer)
{
	ls_status status = LS_OK;
	for (int q = 0; q < self->size && self->rank == 1 && status == LS_OK; q++)
		if (q != 1)
			status = ls_send(group, buffer, LONG, LS_INT32, q, NULL);
	return self->rank == 1 ? status : ls_recv(group, buffer, LONG, LS_INT32, 1, NULL);
}

void a_sender_dies_in_long_messages(struct runner_rank *self)
{
	rank_1_dies(self, pass);
}
