/* SPDX-License-Identifier: BSD-3-Clause
 * What every rank gets in a failure: time-outs, aborts, ranks that left or died, calls that do not
 * match. Which rank the report blames, and that the group stays failed. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "caught.h"
#include "common.h"
#include "process.h"
#include "tests.h"
#include "values.h"

enum { LATEST_MS = 250 }; /* less than a report of a mismatch waits for ranks that are late */

/* The group is closed with this status, and says so from now on. */
static void is_closed(ls_group *group, ls_status status, int culprit, struct ls_failure *failure)
{
	int64_t value = 0;
	failure->size = sizeof *failure;
	runner_await_failure(group);
	OK(ls_group_failure(group, failure));
	CHECK_THAT(failure->status == status, "ls_group_failure says %s, not %s",
		   ls_status_name(failure->status), ls_status_name(status));
	CHECK_THAT(failure->rank == culprit, "rank %d is blamed, not %d: %s", failure->rank,
		   culprit, failure->text);
	CHECK((failure->pid > 0) == (culprit >= 0));
	CHECK(culprit != ls_group_rank(group) || failure->pid == getpid());
	CHECK(memchr(failure->text, '\0', sizeof failure->text) && strlen(failure->text) > 0);
	GIVES(status, ls_barrier(group, NULL));
	GIVES(status, ls_allreduce(group, &value, &value, 1, LS_INT64, LS_SUM, NULL));
	GIVES(status, ls_send(group, &value, 1, LS_INT64, 0, NULL));
	GIVES(status, ls_recv(group, &value, 1, LS_INT64, 0, NULL));
}

static void end_closed(ls_group *group, ls_status status, int culprit)
{
	struct ls_failure failure;
	is_closed(group, status, culprit, &failure);
	ls_group_close(group);
}

void an_open_group_has_no_failure(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct ls_failure failure = {.size = sizeof failure};
	OK(ls_group_failure(group, &failure));
	CHECK(failure.status == LS_OK);
	OK(ls_barrier(group, NULL));
	ls_group_close(group);
}

/* ---- time-outs ---- */

/* Rank 0 never comes, though it lives: the others go at their time limit, and not before. */
static void time_out(struct runner_rank *self,
		     ls_status (*call)(ls_group *, void *, uint64_t, const struct ls_call_options *))
{
	enum { COUNT = 50000, LIMIT_MS = 300 };
	ls_group *group = runner_open(self);
	unsigned char *buffer = values_alloc(group, COUNT, false);
	values_blot(buffer, COUNT, LS_UINT8, 1);
	runner_ready(self, group);
	if (self->rank != 0) {
		struct ls_call_options options = {.size = sizeof options, .timeout_ms = LIMIT_MS};
		double begin_s = now_s();
		GIVES(LS_TIMED_OUT, call(group, buffer, COUNT, &options));
		double took_s = now_s() - begin_s;
		/* The first rank that times out closes the group for the others, which began a
		 * little later. */
		CHECK_THAT(took_s > 0.1 && took_s < 10, "it took %.3f s", took_s);
		/* Nobody writes to the buffer any more, whatever rank 0 does. */
		values_blot(buffer, COUNT, LS_UINT8, 2);
	}
	runner_meet(self);
	runner_await_failure(group);
	if (self->rank == 0)
		GIVES(LS_TIMED_OUT, call(group, buffer, COUNT, NULL));
	runner_meet(self);
	for (int i = 0; i < COUNT && self->rank != 0; i++)
		CHECK(buffer[i] == 2);
	struct ls_failure failure = {.size = sizeof failure};
	OK(ls_group_failure(group, &failure));
	CHECK(failure.status == LS_TIMED_OUT);
	values_free(group, buffer, false);
	ls_group_close(group);
}

static ls_status call_allreduce(ls_group *group, void *buffer, uint64_t count,
				const struct ls_call_options *options)
{
	return ls_allreduce(group, buffer, buffer, count, LS_UINT8, LS_MAX, options);
}

static ls_status call_broadcast(ls_group *group, void *buffer, uint64_t count,
				const struct ls_call_options *options)
{
	return ls_broadcast(group, buffer, buffer, count, LS_UINT8, 0, options);
}

static ls_status call_barrier(ls_group *group, void *buffer, uint64_t count,
			      const struct ls_call_options *options)
{
	(void)buffer;
	(void)count;
	return ls_barrier(group, options);
}

/* Long enough that it stays with the sender: rank 0 has to take it. */
static ls_status call_p2p(ls_group *group, void *buffer, uint64_t count,
			  const struct ls_call_options *options)
{
	if (ls_group_rank(group) % 2 == 1)
		return ls_send(group, buffer, count, LS_UINT8, 0, options);
	return ls_recv(group, buffer, count, LS_UINT8, ls_group_rank(group) == 0, options);
}

void timeout_allreduce(struct runner_rank *self)
{
	time_out(self, call_allreduce);
}

void timeout_broadcast(struct runner_rank *self)
{
	time_out(self, call_broadcast);
}

void timeout_barrier(struct runner_rank *self)
{
	time_out(self, call_barrier);
}

void timeout_point(struct runner_rank *self)
{
	time_out(self, call_p2p);
}

/* ---- abort ---- */

struct blocked {
	ls_group *group;
	ls_status status;
};

static void *receive_for_ever(void *argument)
{
	struct blocked *blocked = argument;
	int64_t value;
	blocked->status = ls_recv(blocked->group, &value, 1, LS_INT64, 1, NULL);
	return NULL;
}

/* Rank 0 blocks in one thread and aborts in another; all but rank 1, which calls nothing, are
 * blocked. */
void abort_ends_every_wait(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct blocked blocked = {.group = group, .status = LS_OK};
	runner_ready(self, group);
	if (self->rank == 0) {
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, receive_for_ever, &blocked) == 0);
		OK(ls_group_abort(group, "the loss is not a number"));
		pthread_join(thread, NULL);
		CHECK(blocked.status == LS_ABORTED);
	} else if (self->rank > 1) {
		receive_for_ever(&blocked);
		CHECK(blocked.status == LS_ABORTED);
	}
	runner_meet(self);
	OK(ls_group_abort(group, "too late, the first cause stays"));
	struct ls_failure failure;
	is_closed(group, LS_ABORTED, 0, &failure);
	CHECK(strstr(failure.text, "the loss is not a number"));
	CHECK(!strstr(failure.text, "too late"));
	ls_group_close(group);
}

/* ---- ranks that are gone ---- */

void a_rank_that_left_is_named(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int64_t value = 1;
	int last = self->size - 1;
	runner_ready(self, group);
	if (self->rank == last) {
		ls_group_close(group);
		return;
	}
	if (self->rank == 0)
		GIVES(LS_PEER_LEFT, ls_recv(group, &value, 1, LS_INT64, last, NULL));
	else
		GIVES(LS_PEER_LEFT, ls_allreduce(group, &value, &value, 1, LS_INT64, LS_SUM, NULL));
	end_closed(group, LS_PEER_LEFT, last);
}

/* A rank that no other one needs may leave; what it sent before arrives. */
void a_rank_may_leave_when_done(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int64_t value = 77;
	OK(ls_barrier(group, NULL));
	if (self->rank == 0) {
		OK(ls_send(group, &value, 1, LS_INT64, 1, NULL));
		ls_group_close(group);
		runner_meet(self);
		return;
	}
	runner_meet(self);
	if (self->rank == 1) {
		value = 0;
		OK(ls_recv(group, &value, 1, LS_INT64, 0, NULL));
		CHECK(value == 77);
		OK(ls_send(group, &value, 1, LS_INT64, 2, NULL));
	} else {
		OK(ls_recv(group, &value, 1, LS_INT64, 1, NULL));
	}
	ls_group_close(group);
}

static void die_at_once(void)
{
	raise(SIGKILL);
}

void a_rank_that_died_is_named(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	enum { COUNT = 100000 };
	float *buffer = values_alloc(group, COUNT * sizeof *buffer, false);
	values_fill(buffer, COUNT, LS_FLOAT32, LS_SUM, self->rank, 0);
	for (int i = 0; i < 3; i++)
		OK(ls_allreduce(group, buffer, buffer, COUNT, LS_FLOAT32, LS_AVERAGE, NULL));
	if (self->rank == 1)
		die_at_once();
	double begin_s = now_s();
	GIVES(LS_PEER_DIED, ls_allreduce(group, buffer, buffer, COUNT, LS_FLOAT32, LS_SUM, NULL));
	CHECK(now_s() - begin_s < 1.0 * RUNNER_PATIENCE);
	values_free(group, buffer, false);
	end_closed(group, LS_PEER_DIED, 1);
}

/* As a launcher may, the parent asks how it ended before any peer does; then the kernel tells, if
 * it is new enough. */
void a_rank_whose_end_was_fetched_is_named(struct runner_rank *self)
{
	struct runner_rank both = {.size = 2, .rendezvous = self->rendezvous};
	struct ls_failure failure = {.size = sizeof failure};
	struct utsname system;
	int major, minor, ended;
	pid_t child = fork();
	CHECK(child >= 0);
	both.rank = child == 0;
	ls_group *group = runner_open(&both);
	OK(ls_barrier(group, NULL));
	if (child == 0)
		die_at_once();
	CHECK(waitpid(child, &ended, 0) == child);
	GIVES(LS_PEER_DIED, ls_barrier(group, NULL));
	OK(ls_group_failure(group, &failure));
	CHECK(uname(&system) == 0 && sscanf(system.release, "%d.%d", &major, &minor) == 2);
	bool tells = major > 6 || (major == 6 && minor >= 15);
	SAYS(failure.text, tells ? "killed by SIGKILL" : "died of an unknown cause");
	ls_group_close(group);
}

/* ---- calls that do not fit together ---- */

enum fault { COUNT_DIFFERS, DTYPE_DIFFERS, OP_DIFFERS, ROOT_DIFFERS, KIND_DIFFERS };

/* The last rank does something else than the others, with small and with large payloads. */
static void mismatch(struct runner_rank *self, enum fault fault, uint64_t count)
{
	ls_group *group = runner_open(self);
	bool odd = self->rank == self->size - 1;
	int64_t *buffer = values_alloc(group, (count + 1) * sizeof *buffer, false);
	values_fill(buffer, count + 1, LS_INT64, LS_SUM, self->rank, 0);
	ls_dtype dtype = odd && fault == DTYPE_DIFFERS ? LS_FLOAT64 : LS_INT64;
	ls_reduce_op op = odd && fault == OP_DIFFERS ? LS_MAX : LS_SUM;
	int root = odd && fault == ROOT_DIFFERS ? 1 : 0;
	if (odd && fault == COUNT_DIFFERS)
		count++;
	ls_status status;
	if (odd && fault == KIND_DIFFERS)
		status = ls_barrier(group, NULL);
	else if (fault == ROOT_DIFFERS)
		status = ls_broadcast(group, buffer, buffer, count, dtype, root, NULL);
	else
		status = ls_allreduce(group, buffer, buffer, count, dtype, op, NULL);
	/* A root that needs nobody is done; it hears of it in its next call. */
	if (status == LS_OK && fault == ROOT_DIFFERS)
		status = ls_barrier(group, NULL);
	CHECK_THAT(status == LS_MISMATCH, "fault %d, count %llu: %s", (int)fault,
		   (unsigned long long)count, ls_status_name(status));
	struct ls_failure failure = {.size = sizeof failure};
	OK(ls_group_failure(group, &failure));
	CHECK(failure.status == LS_MISMATCH);
	if (self->size > 2) /* with two ranks none can be called wrong */
		CHECK_THAT(failure.rank == self->size - 1, "rank %d is blamed: %s", failure.rank,
			   failure.text);
	values_free(group, buffer, false);
	ls_group_close(group);
	runner_meet(self); /* the next group meets at the same place */
}

static void mismatch_small_and_large(struct runner_rank *self, enum fault fault)
{
	mismatch(self, fault, 3);
	mismatch(self, fault, 20000);
}

void mismatch_count(struct runner_rank *self)
{
	mismatch_small_and_large(self, COUNT_DIFFERS);
}

void mismatch_dtype(struct runner_rank *self)
{
	mismatch_small_and_large(self, DTYPE_DIFFERS);
}

void mismatch_op(struct runner_rank *self)
{
	mismatch_small_and_large(self, OP_DIFFERS);
}

void mismatch_root(struct runner_rank *self)
{
	mismatch_small_and_large(self, ROOT_DIFFERS);
}

void mismatch_kind(struct runner_rank *self)
{
	mismatch_small_and_large(self, KIND_DIFFERS);
}

/* Ranks 1 and 2 differ, and rank 0 decides which of them is wrong. It comes later than a report
 * waits for other causes. False: it came so late that the report could not wait for it, either. */
static bool differ_before_a_late_rank(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	_Atomic uint64_t *began_ms = &self->shared->words[0]; /* 0: rank 1 has not */
	_Atomic uint64_t *too_late = &self->shared->words[1];
	int64_t value = 1, never;
	OK(ls_barrier(group, NULL));
	ls_request *op = NULL;
	if (self->rank == 1)
		atomic_store(began_ms, (uint64_t)(now_s() * 1e3));
	if (self->rank == 0) {
		struct ls_call_options late = {.size = sizeof late, .request = &op};
		OK(ls_recv(group, &never, 1, LS_INT64, 1, &late));
		GIVES(LS_PENDING, ls_wait(op, 150));
		uint64_t before = atomic_load(began_ms), now = (uint64_t)(now_s() * 1e3);
		atomic_store(too_late, before != 0 && now - before > LATEST_MS);
		atomic_store(began_ms, 0);
	}
	GIVES(LS_MISMATCH,
	      self->rank == 2 ? ls_barrier(group, NULL)
			      : ls_allreduce(group, &value, &value, 1, LS_INT64, LS_SUM, NULL));
	struct ls_failure failure = {.size = sizeof failure};
	OK(ls_group_failure(group, &failure));
	runner_meet(self);
	bool in_time = !atomic_load(too_late);
	CHECK_THAT(failure.rank == 2 || !in_time, "rank %d is blamed: %s", failure.rank,
		   failure.text);
	if (op)
		ls_request_free(op);
	ls_group_close(group);
	return in_time;
}

void mismatch_of_a_late_rank(struct runner_rank *self)
{
	while (!differ_before_a_late_rank(self))
		runner_meet(self);
}

/* The receiver wants another count or dtype, and gets the error at once. So does a sender that
 * waits until its payload is taken; any other sender gets it in its next call. */
static void p2p_mismatch(struct runner_rank *self, uint64_t count, uint64_t wanted, ls_dtype dtype)
{
	ls_group *group = runner_open(self);
	int64_t *buffer = values_alloc(group, 30000 * sizeof *buffer, false);
	ls_status expected = count > wanted && dtype == LS_INT64 ? LS_TRUNCATED : LS_MISMATCH;
	values_blot(buffer, 30000, LS_INT64, 0);
	if (self->rank == 0) {
		ls_status status = ls_send(group, buffer, count, LS_INT64, 1, NULL);
		if (status == LS_OK && count < 25) /* buffered */
			status = ls_recv(group, buffer, 1, LS_INT64, 1, NULL);
		CHECK_THAT(status == expected, "the sender got %s", ls_status_name(status));
	} else {
		GIVES(expected, ls_recv(group, buffer, wanted, dtype, 0, NULL));
	}
	struct ls_failure failure = {.size = sizeof failure};
	OK(ls_group_failure(group, &failure));
	CHECK(failure.status == expected && strlen(failure.text) > 0);
	/* Both calls are named, by both. */
	const char *site = strstr(failure.text, "failure_test.c:");
	CHECK_THAT(site && strstr(site + 1, "failure_test.c:"), "%s", failure.text);
	values_free(group, buffer, false);
	ls_group_close(group);
	runner_meet(self);
}

void p2p_mismatch_small(struct runner_rank *self)
{
	p2p_mismatch(self, 3, 4, LS_INT64);
	p2p_mismatch(self, 3, 2, LS_INT64);
	p2p_mismatch(self, 3, 3, LS_FLOAT64);
	p2p_mismatch(self, 0, 1, LS_INT64);
}

void p2p_mismatch_large(struct runner_rank *self)
{
	p2p_mismatch(self, 20000, 20001, LS_INT64);
	p2p_mismatch(self, 20000, 19999, LS_INT64);
	p2p_mismatch(self, 20000, 20000, LS_FLOAT64);
	p2p_mismatch(self, 20000, 3, LS_INT64);
}

/* Rank 1 has entered the operation when it is stopped, so no record tells that it is missing. */
void a_rank_stopped_inside_is_named(struct runner_rank *self)
{
	enum {
		COUNT = 2000
	}; /* too long for an entry, and short enough to be begun by the caller */
	ls_group *group = runner_open(self);
	int64_t *buffer = values_alloc(group, COUNT * sizeof *buffer, false);
	memset(buffer, 0, COUNT * sizeof *buffer);
	OK(ls_barrier(group, NULL));
	ls_request *op;
	struct ls_call_options options = {.size = sizeof options, .timeout_ms = 300};
	if (self->rank == 1) {
		options.request = &op;
		OK(ls_allreduce(group, buffer, buffer, COUNT, LS_INT64, LS_SUM, &options));
		atomic_store(&self->shared->words[0], (uint64_t)getpid());
		raise(SIGSTOP);
		GIVES(LS_TIMED_OUT, ls_wait(op, 0));
		ls_request_free(op);
	} else {
		uint64_t pid;
		while ((pid = atomic_load(&self->shared->words[0])) == 0 ||
		       process_state((int)pid) != 'T')
			;
		GIVES(LS_TIMED_OUT,
		      ls_allreduce(group, buffer, buffer, COUNT, LS_INT64, LS_SUM, &options));
		struct ls_failure failure = {.size = sizeof failure};
		OK(ls_group_failure(group, &failure));
		CHECK(kill((pid_t)pid, SIGCONT) == 0);
		CHECK_THAT(failure.rank == 1 && strstr(failure.text, "is stopped"),
			   "the report is: %s", failure.text);
	}
	values_free(group, buffer, false);
	ls_group_close(group);
}

/* Each receives before it sends. */
void a_cycle_of_receives_is_proved(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int64_t value = 0;
	int left = (self->rank + self->size - 1) % self->size;
	double begin_s = now_s();
	GIVES(LS_DEADLOCK, ls_recv(group, &value, 1, LS_INT64, left, NULL));
	CHECK(now_s() - begin_s < 2.0 * RUNNER_PATIENCE);
	ls_group_close(group);
}
