/* SPDX-License-Identifier: BSD-3-Clause
 * ls_group_from_members that ends while some of the members are in it, and other operations that
 * continue meanwhile. Rank 1 comes last: it sees that the others have sent it their lists. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "caught.h"
#include "tests.h"

enum { TAG = 77, OTHER_TAG = 78, ROUNDS = 30, MORE_THAN_AREAS = 600, SIGNALS = 50 };

static ls_status make(ls_group *parent, const int *ranks, int count, int tag, ls_group **out)
{
	struct ls_call_options options = {.size = sizeof options, .tag = tag};
	return ls_group_from_members(parent, ranks, count, &options, out);
}

static ls_status make_all(ls_group *parent, int tag, ls_group **out)
{
	int all[RUNNER_RANKS_MAX];
	for (int i = 0; i < ls_group_size(parent); i++)
		all[i] = i;
	return make(parent, all, ls_group_size(parent), tag, out);
}

static void works(ls_group *group)
{
	int32_t one = 1, all;
	OK(ls_allreduce(group, &one, &all, 1, LS_INT32, LS_SUM, NULL));
	CHECK(all == ls_group_size(group));
}

/* Until it has told its list. */
static void await_member(ls_group *group, int rank, int tag)
{
	struct ls_call_options options = {.size = sizeof options, .tag = tag};
	struct ls_message found = {.size = sizeof found};
	OK(ls_probe(group, rank, &options, &found));
}

static void await_others(ls_group *group, int tag)
{
	for (int q = 0; q < ls_group_size(group); q++)
		if (q != ls_group_rank(group))
			await_member(group, q, tag);
}

static bool is_open(ls_group *group)
{
	struct ls_call_options options = {.size = sizeof options, .tag = OTHER_TAG};
	struct ls_message found = {.size = sizeof found};
	return ls_iprobe(group, 0, &options, &found) == LS_PENDING;
}

/* ---- the parent fails ---- */

/* The last rank is killed in the call, before rank 1 comes. */
void members_lose_one(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group = world;
	_Atomic uint64_t *pids = self->shared->words;
	atomic_store(&pids[self->rank], (uint64_t)getpid());
	runner_ready(self, world);
	if (self->rank == 1) {
		await_others(world, TAG);
		CHECK(kill((pid_t)atomic_load(&pids[self->size - 1]), SIGKILL) == 0);
	}
	GIVES(LS_PEER_DIED, make_all(world, TAG, &group));
	CHECK(!group);
	ls_group_close(world);
}

struct aborting {
	ls_group *group;
	_Atomic uint64_t *goes;
};

static void *abort_it(void *argument)
{
	struct aborting *aborting = argument;
	while (!atomic_load(aborting->goes))
		sched_yield();
	OK(ls_group_abort(aborting->group, "enough of it"));
	return NULL;
}

/* By another thread of a rank that is in the call. */
void members_are_aborted(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *parent, *group = world;
	struct aborting aborting = {.goes = &self->shared->words[0]};
	pthread_t thread;
	OK(ls_group_split(world, 0, 0, &parent));
	aborting.group = parent;
	if (self->rank == 0)
		CHECK(pthread_create(&thread, NULL, abort_it, &aborting) == 0);
	if (self->rank == 1) {
		await_others(parent, TAG);
		atomic_store(aborting.goes, 1);
		while (is_open(parent))
			sched_yield();
	}
	GIVES(LS_ABORTED, make_all(parent, TAG, &group));
	CHECK(!group);
	if (self->rank == 0)
		pthread_join(thread, NULL);
	ls_group_close(parent);
	works(world);
	ls_group_close(world);
}

/* Rank 1 does not come in time. */
void members_wait_in_vain(struct runner_rank *self)
{
	struct ls_call_options soon = {.size = sizeof soon, .tag = TAG, .timeout_ms = 200};
	int all[RUNNER_RANKS_MAX];
	ls_group *world = runner_open(self), *parent, *group = world;
	for (int i = 0; i < self->size; i++)
		all[i] = i;
	OK(ls_group_from_members(world, all, self->size, &soon, &parent));
	if (self->rank != 1) {
		GIVES(LS_TIMED_OUT, make_all(parent, TAG, &group));
		CHECK(!group);
	}
	runner_meet(self);
	ls_group_close(parent);
	works(world);
	ls_group_close(world);
}

/* ---- signals ---- */

static _Atomic uint64_t handled;

static void count(int number)
{
	(void)number;
	atomic_fetch_add(&handled, 1);
}

struct nagging {
	pthread_t whom;
	_Atomic uint64_t *told;
	_Atomic bool over;
};

static void *nag(void *argument)
{
	struct nagging *nagging = argument;
	while (!atomic_load(&nagging->over)) {
		CHECK(pthread_kill(nagging->whom, SIGUSR1) == 0);
		atomic_store(nagging->told, atomic_load(&handled));
		sched_yield();
	}
	return NULL;
}

/* Rank 0 is sent signals from when it calls; rank 1 comes after some of them, if at all. */
static ls_status make_among_signals(struct runner_rank *self, ls_group *world, ls_group **out)
{
	struct sigaction action = {.sa_handler = count};
	struct nagging nagging = {.whom = pthread_self(), .told = &self->shared->words[0]};
	pthread_t thread;
	atomic_store(&handled, 0);
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	runner_meet(self);
	if (self->rank == 0)
		CHECK(pthread_create(&thread, NULL, nag, &nagging) == 0);
	if (self->rank == 1) {
		while (atomic_load(nagging.told) < SIGNALS)
			sched_yield();
		await_member(world, 2, TAG);
	}
	ls_status status = make_all(world, TAG, out);
	atomic_store(&nagging.over, true);
	if (self->rank == 0)
		pthread_join(thread, NULL);
	return status;
}

void members_go_on_after_signals(struct runner_rank *self)
{
	ls_group *world = runner_open_resuming(self), *group;
	OK(make_among_signals(self, world, &group));
	works(group);
	ls_group_close(group);
	ls_group_close(world);
}

/* Rank 1 sends rank 0 signals until that has seen one. */
void members_are_interrupted(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group = world;
	_Atomic uint64_t *pids = self->shared->words;
	struct sigaction action = {.sa_handler = count};
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	atomic_store(&pids[self->rank], (uint64_t)getpid());
	runner_ready(self, world);
	if (self->rank == 1) {
		await_others(world, TAG);
		while (is_open(world))
			CHECK(kill((pid_t)atomic_load(&pids[0]), SIGUSR1) == 0);
	}
	GIVES(LS_INTERRUPTED, make_all(world, TAG, &group));
	CHECK(!group);
	runner_meet(self);
	ls_group_close(world);
}

/* ---- lists that differ ---- */

/* Nothing is used up: neither areas, nor handles, nor room for messages. */
void members_differ_often(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group = world;
	int lists[2][2] = {{0, 1}, {1, 0}};
	for (int i = 0; i < MORE_THAN_AREAS; i++) {
		GIVES(LS_INCONSISTENT, make(world, lists[self->rank], 2, TAG, &group));
		CHECK(!group);
	}
	OK(make(world, lists[0], 2, TAG, &group));
	works(group);
	ls_group_close(group);
	ls_group_close(world);
}

/* All ranks pass different lists, and close the parent as soon as they get the error. Some may be
 * left without it; but a rank that has got it does not fail because another one has left. */
void members_differ_and_leave(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *parent, *group;
	struct caught caught;
	int list[RUNNER_RANKS_MAX];
	for (int i = 0; i < self->size; i++)
		list[i] = (self->rank + i) % self->size;
	for (int i = 0; i < ROUNDS; i++) {
		OK(ls_group_split(world, 0, 0, &parent));
		caught_begin(&caught);
		ls_status status = make(parent, list, self->size, TAG, &group);
		const char *text = caught_end(&caught);
		ls_group_close(parent);
		CHECK_THAT(status == LS_INCONSISTENT || status == LS_PEER_LEFT, "%s",
			   ls_status_name(status));
		CHECK_THAT(status != LS_INCONSISTENT || !strstr(text, "LS-VERDICT"), "%s", text);
		OK(ls_barrier(world, NULL));
	}
	ls_group_close(world);
}

/* ---- a second thread ---- */

static void *make_with_other_tag(void *argument)
{
	ls_group *world = argument, *group;
	OK(make_all(world, OTHER_TAG, &group));
	works(group);
	ls_group_close(group);
	return NULL;
}

/* Threads of the other ranks wait for rank 1 all the time; the first threads give lists that
 * differ, and then make groups. */
void members_of_two_threads(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group;
	int lists[2][RUNNER_RANKS_MAX];
	pthread_t thread;
	for (int i = 0; i < self->size; i++) {
		lists[0][i] = i;
		lists[1][i] = self->size - 1 - i;
	}
	if (self->rank != 1)
		CHECK(pthread_create(&thread, NULL, make_with_other_tag, world) == 0);
	else
		await_others(world, OTHER_TAG);
	for (int i = 0; i < ROUNDS; i++) {
		ls_status status = LS_INCONSISTENT;
		for (int which = self->rank == i % self->size; status == LS_INCONSISTENT; which = 0)
			status = make(world, lists[which], self->size, TAG, &group);
		OK(status);
		works(group);
		ls_group_close(group);
	}
	works(world);
	if (self->rank == 1)
		make_with_other_tag(world);
	else
		pthread_join(thread, NULL);
	ls_group_close(world);
}
