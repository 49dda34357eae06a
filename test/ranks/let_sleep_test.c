/* SPDX-License-Identifier: BSD-3-Clause
 * Other threads of a rank do not wake a thread that waits. */
#include <unistd.h>

#include "process.h"
#include "tests.h"
#include "world/ls_group.h"

enum { CALLS = 300 };

struct sleeper {
	ls_group *group;
	int peer;
	_Atomic int tid;
	ls_status status;
	pthread_t thread;
};

static void *sleep_in_receive(void *argument)
{
	struct sleeper *sleeper = argument;
	int32_t value;
	atomic_store(&sleeper->tid, gettid());
	sleeper->status = ls_recv(sleeper->group, &value, 1, LS_INT32, sleeper->peer, NULL);
	return NULL;
}

static void *sleep_in_barrier(void *argument)
{
	struct sleeper *sleeper = argument;
	atomic_store(&sleeper->tid, gettid());
	sleeper->status = ls_barrier(sleeper->group, NULL);
	return NULL;
}

/* Returns when the thread sleeps. */
static void begin(struct sleeper *sleeper, ls_group *group, int peer, void *(*run)(void *))
{
	*sleeper = (struct sleeper){.group = group, .peer = peer};
	CHECK(pthread_create(&sleeper->thread, NULL, run, sleeper) == 0);
	while (!atomic_load(&sleeper->tid) || process_state(atomic_load(&sleeper->tid)) != 'S')
		sched_yield();
}

static void end(struct sleeper *sleeper)
{
	pthread_join(sleeper->thread, NULL);
	OK(sleeper->status);
}

/* All threads that sleep at this rank are hardly ever woken at once. What comes from another host
 * wakes all. */
static void are_let_sleep(const ls_group *group, uint32_t wakeups)
{
	const struct wait_bell *bell = group->waiter.bell;
	wakeups = bell->wakeups - wakeups;
	CHECK((bell->sleepers & WAIT_SLEEPERS) > 0);
	CHECK_THAT(group->team.host_count > 1 || wakeups < CALLS / 10,
		   "all sleepers were woken %u times", wakeups);
}

static void collectives_let_receives_sleep(const struct runner_rank *self, ls_group *group)
{
	struct sleeper sleeper;
	int32_t value = 0;
	begin(&sleeper, group, 1 - self->rank, sleep_in_receive);
	OK(ls_barrier(group, NULL));
	uint32_t wakeups = group->waiter.bell->wakeups;
	for (int i = 0; i < CALLS; i++)
		OK(ls_allreduce(group, &value, &value, 1, LS_INT32, LS_SUM, NULL));
	are_let_sleep(group, wakeups);
	OK(ls_barrier(group, NULL));
	OK(ls_send(group, &value, 1, LS_INT32, 1 - self->rank, NULL));
	end(&sleeper);
}

static void messages_let_collectives_sleep(const struct runner_rank *self, ls_group *group)
{
	ls_group *other;
	struct sleeper sleeper;
	int32_t value = 0;
	OK(ls_group_split(group, 0, self->rank, &other));
	if (self->rank == 0)
		begin(&sleeper, other, -1, sleep_in_barrier);
	OK(ls_barrier(group, NULL));
	uint32_t wakeups = group->waiter.bell->wakeups;
	for (int i = 0; i < CALLS; i++) {
		OK(ls_send(group, &value, 1, LS_INT32, 1 - self->rank, NULL));
		OK(ls_recv(group, &value, 1, LS_INT32, 1 - self->rank, NULL));
	}
	if (self->rank == 0)
		are_let_sleep(group, wakeups);
	OK(ls_barrier(group, NULL));
	if (self->rank == 0)
		end(&sleeper);
	else
		OK(ls_barrier(other, NULL));
	ls_group_close(other);
}

void others_let_a_thread_sleep(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	collectives_let_receives_sleep(self, group);
	messages_let_collectives_sleep(self, group);
	ls_group_close(group);
}
