/* SPDX-License-Identifier: BSD-3-Clause
 * A rank dies while its peers receive long payloads from it. They notice that the payloads end, or
 * that the rank has ended; in both cases they report its death. And ranks that have ended although
 * their processes live. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests.h"
#include "values.h"

enum {
	LONG = 500000,
	BEFORE = 5,
	LESS_THAN_AN_ARENA = 1 << 30,
};

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

/* Its process lives on, and no descriptor tells that it is a rank no more. */
void a_rank_that_execs_is_lost(struct runner_rank *self)
{
	_Atomic uint64_t *pid = &self->shared->words[1];
	ls_group *group = runner_open(self);
	int32_t one = 1, sum;
	OK(ls_allreduce(group, &one, &sum, 1, LS_INT32, LS_SUM, NULL));
	if (self->rank == 1) {
		atomic_store(pid, (uint64_t)getpid());
		execlp("sleep", "sleep", "1000", NULL);
		CHECK(false);
	}
	ls_status status = ls_allreduce(group, &one, &sum, 1, LS_INT32, LS_SUM, NULL);
	struct ls_failure failure = {.size = sizeof failure};
	OK(ls_group_failure(group, &failure));
	CHECK_THAT(status == LS_PEER_DIED && failure.rank == 1, "%s, rank %d is blamed: %s",
		   ls_status_name(status), failure.rank, failure.text);
	CHECK_THAT(runner_is_on_hosts || strstr(failure.text, "replaced by another program"), "%s",
		   failure.text);
	kill((pid_t)atomic_load(pid), SIGKILL);
	ls_group_close(group);
}

/* A rank fails after all have met, before they share memory, and lives on. Of three ranks it is
 * rank 0, to which the others connect. On other hosts it is only known that nobody listens
 * there. */
void a_rank_without_arena_is_told(struct runner_rank *self)
{
	_Atomic uint64_t *told = &self->shared->words[0];
	struct ls_group_options options = {.size = sizeof options,
					   .rank = self->rank,
					   .world_size = self->size,
					   .rendezvous = self->rendezvous};
	struct rlimit limit;
	bool fails = self->rank == (self->size % 2 ? 0 : self->size - 1);
	ls_group *none;
	CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
	limit.rlim_cur = fails ? LESS_THAN_AN_ARENA : limit.rlim_cur;
	CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	ls_status status = ls_group_open(&options, &none);
	bool is_right = status == LS_SYSTEM || (runner_is_on_hosts && status == LS_NO_MASTER);
	CHECK_THAT(is_right && !none, "%s", ls_status_name(status));
	atomic_fetch_add(told, 1);
	while (fails && atomic_load(told) < (uint64_t)self->size)
		sched_yield();
}

/* As at the limit of a container. */
static void have_no_more_threads(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* Rank 1 fails where the others are ready, and lives on. */
void a_rank_that_cannot_open_is_told(struct runner_rank *self)
{
	_Atomic uint64_t *told = &self->shared->words[0];
	if (self->rank == 1) {
		struct ls_group_options options = {.size = sizeof options,
						   .rank = self->rank,
						   .world_size = self->size,
						   .rendezvous = self->rendezvous};
		ls_group *none;
		have_no_more_threads();
		CHECK(ls_group_open(&options, &none) == LS_OUT_OF_MEMORY && !none);
		while (atomic_load(told) + 1 < (uint64_t)self->size)
			sched_yield();
		raise(SIGKILL); /* a tool that looks for leaks in the end would need threads */
	}
	ls_group *group = runner_open(self);
	ls_status status = ls_barrier(group, NULL);
	struct ls_failure failure = {.size = sizeof failure};
	OK(ls_group_failure(group, &failure));
	CHECK_THAT(status == LS_PEER_LEFT && failure.rank == 1, "%s, rank %d is blamed: %s",
		   ls_status_name(status), failure.rank, failure.text);
	atomic_fetch_add(told, 1);
	ls_group_close(group);
}
