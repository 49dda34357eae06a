/* SPDX-License-Identifier: BSD-3-Clause
 * A message of a group that was aborted, whose peer is in the middle of copying it and does not go
 * on: no call of another group waits for that peer. */
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common.h"
#include "process.h"
#include "tests.h"

enum {
	BYTES = 64 << 20, /* more than a connection takes ahead */
	/* A rank without a processor may see the end of the message first: on one host the peer
	 * loses its access after 250 ms. */
	TRIES = 60,
	MARK = 1,
	BEHIND = 1 << 17, /* too long to be over without its receive */
};

/* The message may have arrived before the abort. */
static void end(ls_request *op)
{
	ls_status status = ls_wait(op, 0);
	CHECK_THAT(status == LS_ABORTED || status == LS_OK, "%s", ls_status_text(status));
	ls_request_free(op);
}

/* Rank 2, which is on another host if there are two, stops itself while the message arrives. */
static void stop_inside(struct runner_rank *self, ls_group *pair, unsigned char *buffer)
{
	ls_request *op;
	buffer[0] = 0;
	OK(ls_irecv(pair, buffer, BYTES, LS_UINT8, 0, NULL, &op));
	runner_meet(self);
	while (*(volatile unsigned char *)buffer != MARK && ls_test(op) == LS_PENDING)
		;
	atomic_store(&self->shared->words[0], (uint64_t)getpid());
	raise(SIGSTOP);
	end(op);
}

static void answer(struct runner_rank *self, ls_group *other, uint64_t count)
{
	int64_t *there = malloc(count * sizeof *there);
	CHECK(there);
	runner_meet(self);
	OK(ls_recv(other, there, count, LS_INT64, 0, NULL));
	OK(ls_send(other, there, 1, LS_INT64, 0, NULL));
	free(there);
}

/* A send of which rank 2 has copied a part, in a group that was aborted then. */
static ls_request *abort_inside(struct runner_rank *self, ls_group *pair, unsigned char *buffer,
				const struct ls_call_options *options)
{
	_Atomic uint64_t *pid = &self->shared->words[0];
	ls_request *op;
	OK(ls_isend(pair, buffer, BYTES, LS_UINT8, 1, options, &op));
	runner_meet(self);
	while (atomic_load(pid) == 0 || process_state((int)atomic_load(pid)) != 'T')
		;
	OK(ls_group_abort(pair, "a test"));
	return op;
}

/* The receive is nonblocking: some thread has to make progress for it. */
static void go_there_and_back(ls_group *other)
{
	int64_t there = 0, back;
	ls_request *op;
	OK(ls_irecv(other, &back, 1, LS_INT64, 1, NULL, &op));
	OK(ls_send(other, &there, 1, LS_INT64, 1, NULL));
	finish(op, LS_OK);
}

/* True: ls_test returned while the stopped rank could still touch the buffer, and then a message of
 * the other group went to rank 1 and back. */
static bool pass_by_test(struct runner_rank *self, ls_group *pair, ls_group *other,
			 unsigned char *buffer)
{
	ls_request *op = abort_inside(self, pair, buffer, NULL);
	bool passes = ls_test(op) == LS_PENDING;
	go_there_and_back(other);
	passes = passes && ls_test(op) == LS_PENDING;
	end(op);
	ls_group_close(pair);
	return passes;
}

struct closing {
	ls_group *group;
	_Atomic int tid;
	_Atomic bool over, seen; /* seen: the thread may end, and its directory of /proc */
};

static void *close_it(void *argument)
{
	struct closing *closing = argument;
	atomic_store(&closing->tid, gettid());
	ls_group_close(closing->group);
	atomic_store(&closing->over, true);
	while (!atomic_load(&closing->seen))
		sched_yield();
	return NULL;
}

/* True: the message went there and back while another thread was still closing the group. */
static bool pass_by_close(struct runner_rank *self, ls_group *pair, ls_group *other,
			  unsigned char *buffer)
{
	struct closing closing = {.group = pair};
	pthread_t thread;
	ls_request *op = abort_inside(self, pair, buffer, NULL);
	bool passes = ls_test(op) == LS_PENDING;
	ls_request_free(op);
	CHECK(pthread_create(&thread, NULL, close_it, &closing) == 0);
	while (!atomic_load(&closing.over) &&
	       (atomic_load(&closing.tid) == 0 || process_state(atomic_load(&closing.tid)) != 'S'))
		;
	go_there_and_back(other);
	passes = passes && !atomic_load(&closing.over);
	atomic_store(&closing.seen, true);
	CHECK(pthread_join(thread, NULL) == 0);
	return passes;
}

/* A verdict would take a part of the time for which a message lingers, in most rounds. */
static bool are_enough(void)
{
	enum { ROUNDS = 5 };
	static int rounds;
	return ++rounds == ROUNDS;
}

/* With LOCKSTEP_P2P=serial the long send is behind the one that lingers, and does not wait for it.
 * True: it was over first. */
static bool queue_behind(struct runner_rank *self, ls_group *pair, ls_group *other,
			 unsigned char *buffer)
{
	int64_t *there = calloc(BEHIND, sizeof *there), back;
	ls_request *first = abort_inside(self, pair, buffer, NULL), *send, *receive;
	CHECK(there);
	OK(ls_irecv(other, &back, 1, LS_INT64, 1, NULL, &receive));
	OK(ls_isend(other, there, BEHIND, LS_INT64, 1, NULL, &send));
	finish(receive, LS_OK);
	finish(send, LS_OK);
	bool passes = ls_test(first) == LS_PENDING;
	end(first);
	ls_group_close(pair);
	free(there);
	return passes;
}

struct sending {
	ls_group *group;
	int64_t value;
	ls_request *op;
};

static void send_then(void *data, ls_status status)
{
	struct sending *sending = data;
	(void)status; /* see end */
	OK(ls_isend(sending->group, &sending->value, 1, LS_INT64, 1, NULL, &sending->op));
}

/* Rank 1 waits for what the callback of the message that lingers sends: that is no deadlock
 * either. */
static bool send_in_callback(struct runner_rank *self, ls_group *pair, ls_group *other,
			     unsigned char *buffer)
{
	struct sending sending = {.group = other};
	struct ls_call_options options = {
		.size = sizeof options, .callback = send_then, .callback_data = &sending};
	ls_request *first = abort_inside(self, pair, buffer, &options), *receive;
	int64_t back;
	OK(ls_irecv(other, &back, 1, LS_INT64, 1, NULL, &receive));
	finish(receive, LS_OK);
	end(first);
	finish(sending.op, LS_OK);
	ls_group_close(pair);
	return are_enough();
}

/* Of all threads of this process. */
static double processor_s(void)
{
	struct timespec time;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

enum {
	LINGERS_MS = 100,              /* less than a peer has before it loses its access */
	PROMPT_S = 5 * RUNNER_PATIENCE /* more than that, and less than any time limit */
};

/* True: what began then has taken so long that it was a wait; no thread has spun for it, not even
 * if there are several times as many threads as processors. */
static bool has_slept(double begin_s, double begin_processor_s)
{
	double took_s = now_s() - begin_s, used_s = processor_s() - begin_processor_s;
	CHECK_THAT(took_s < PROMPT_S, "it took %.3f s", took_s);
	if (took_s < LINGERS_MS * 1e-3)
		return false;
	CHECK_THAT(used_s < took_s / 8, "of %.3f s it used the processor for %.3f s", took_s,
		   used_s);
	return true;
}

static bool close_asleep(struct runner_rank *self, ls_group *pair, ls_group *other,
			 unsigned char *buffer)
{
	ls_request *op = abort_inside(self, pair, buffer, NULL);
	bool passes = ls_test(op) == LS_PENDING;
	ls_request_free(op);
	double begin_s = now_s(), begin_processor_s = processor_s();
	ls_group_close(pair);
	passes = has_slept(begin_s, begin_processor_s) && passes;
	go_there_and_back(other);
	return passes;
}

struct left {
	sem_t over;
	ls_status status;
};

static void note_end(void *data, ls_status status)
{
	struct left *left = data;
	left->status = status;
	CHECK(sem_post(&left->over) == 0);
}

/* No thread of the program is in a call while the message lingers: the progress thread ends it. */
static bool leave_alone(struct runner_rank *self, ls_group *pair, ls_group *other,
			unsigned char *buffer)
{
	struct left left = {.status = LS_PENDING};
	struct ls_call_options options = {
		.size = sizeof options, .callback = note_end, .callback_data = &left};
	CHECK(sem_init(&left.over, 0, 0) == 0);
	ls_request *op = abort_inside(self, pair, buffer, &options);
	bool passes = ls_test(op) == LS_PENDING;
	ls_request_free(op);
	double begin_s = now_s(), begin_processor_s = processor_s();
	while (sem_wait(&left.over) != 0)
		;
	passes = has_slept(begin_s, begin_processor_s) && passes;
	CHECK_THAT(left.status == LS_ABORTED || (left.status == LS_OK && !passes), "%s",
		   ls_status_name(left.status));
	go_there_and_back(other);
	ls_group_close(pair);
	return passes;
}

static ls_group *make(ls_group *world, const int *ranks)
{
	ls_group *group;
	bool mine = ls_group_rank(world) == ranks[0] || ls_group_rank(world) == ranks[1];
	GIVES(mine ? LS_OK : LS_NOT_MEMBER, ls_group_from_ranks(world, ranks, 2, &group));
	return group;
}

typedef bool pass_by(struct runner_rank *self, ls_group *pair, ls_group *other,
		     unsigned char *buffer);

static void pass_some_time(struct runner_rank *self, pass_by *pass, uint64_t count)
{
	ls_group *world = runner_open(self);
	unsigned char *buffer = malloc(BYTES);
	_Atomic uint64_t *pid = &self->shared->words[0], *passes = &self->shared->words[1];
	CHECK(buffer);
	memset(buffer, MARK, BYTES);
	runner_ready(self, world);
	for (int i = 0; i < TRIES && !atomic_load(passes); i++) {
		ls_group *pair = make(world, (const int[]){0, 2});
		ls_group *other = make(world, (const int[]){0, 1});
		if (self->rank == 0) {
			if (pass(self, pair, other, buffer))
				atomic_store(passes, 1);
			CHECK(kill((pid_t)atomic_exchange(pid, 0), SIGCONT) == 0);
		} else if (self->rank == 1) {
			answer(self, other, count);
		} else {
			stop_inside(self, pair, buffer);
			ls_group_close(pair);
		}
		runner_meet(self);
		if (other)
			ls_group_close(other);
		runner_meet(self);
	}
	CHECK(atomic_load(passes));
	free(buffer);
	ls_group_close(world);
}

void an_aborted_message_holds_up_no_other_group(struct runner_rank *self)
{
	pass_some_time(self, pass_by_test, 1);
}

void a_close_with_such_a_message_holds_up_none(struct runner_rank *self)
{
	pass_some_time(self, pass_by_close, 1);
}

void a_send_behind_it_is_no_deadlock(struct runner_rank *self)
{
	pass_some_time(self, queue_behind, BEHIND);
}

void its_callback_is_no_deadlock(struct runner_rank *self)
{
	pass_some_time(self, send_in_callback, 1);
}

void a_close_that_waits_takes_no_time(struct runner_rank *self)
{
	pass_some_time(self, close_asleep, 1);
}

void a_message_that_is_left_alone_ends(struct runner_rank *self)
{
	pass_some_time(self, leave_alone, 1);
}
