/* SPDX-License-Identifier: BSD-3-Clause
 * LOCKSTEP_P2P=serial: one send of a rank at a time, in the order of its calls, whichever thread
 * begins it. A long send that no rank receives holds up those behind it, and nothing else. */
#include <sched.h>
#include <string.h>

#include "caught.h"
#include "common.h"
#include "tests.h"
#include "values.h"

enum { TURNS = 60, WINDOW = 8, SHORT = 5, LONG = 100000 };
static int32_t held[LONG]; /* by all that send it, and never changed */

static ls_request *start(ls_group *group, int32_t *buffer, uint64_t count, int peer, int tag,
			 bool sends)
{
	struct ls_call_options options = {.size = sizeof options, .tag = tag};
	ls_request *op;
	if (sends)
		OK(ls_isend(group, buffer, count, LS_INT32, peer, &options, &op));
	else
		OK(ls_irecv(group, buffer, count, LS_INT32, peer, &options, &op));
	return op;
}

struct prober {
	ls_group *group;
	_Atomic bool stop;
};

/* Takes messages out of the rings while other threads wait for them. */
static void *probe(void *argument)
{
	struct prober *prober = argument;
	struct ls_call_options options = {.size = sizeof options, .tag = TURNS};
	struct ls_message message = {.size = sizeof message};
	while (!atomic_load(&prober->stop)) {
		GIVES(LS_PENDING, ls_iprobe(prober->group, LS_ANY_SOURCE, &options, &message));
		sched_yield();
	}
	return NULL;
}

/* Around a ring, several at a time: the progress thread, the caller and waiting threads all begin
 * some. Even ranks send first, so no rank waits for one that waits for it. */
void in_series_by_turns(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int next = (self->rank + 1) % self->size,
	    before = (self->rank + self->size - 1) % self->size;
	int32_t from[WINDOW][SHORT], to[WINDOW][SHORT];
	struct prober prober = {.group = group};
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, probe, &prober) == 0);
	for (int turn = 0; turn < TURNS; turn++) {
		ls_request *sends[WINDOW], *receives[WINDOW];
		for (int i = 0; i < WINDOW; i++) {
			unsigned seed = (unsigned)(turn * WINDOW + i);
			values_fill(from[i], SHORT, LS_INT32, LS_SUM, self->rank, seed);
			for (int pass = 0; pass < 2; pass++) {
				if ((self->rank % 2 == 0) == (pass == 0))
					sends[i] = start(group, from[i], SHORT, next, turn, true);
				else
					receives[i] =
						start(group, to[i], SHORT, before, turn, false);
			}
		}
		for (int i = WINDOW - 1; i >= 0; i--) {
			finish(receives[i], LS_OK);
			finish(sends[i], LS_OK);
			values_check_from(to[i], SHORT, LS_INT32, before,
					  (unsigned)(turn * WINDOW + i));
		}
	}
	atomic_store(&prober.stop, true);
	CHECK(pthread_join(thread, NULL) == 0);
	runner_meet(self); /* nobody leaves before all have stopped to probe */
	ls_group_close(group);
}

/* What waits for its turn is not seen by anybody, and can be taken back. */
void in_series_taken_back(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct ls_call_options options = {.size = sizeof options, .tag = 2};
	struct ls_message message = {.size = sizeof message};
	int32_t value = 5, got = 0;
	if (self->rank == 0) {
		ls_request *first = start(group, held, LONG, 1, 1, true);
		ls_request *waits = start(group, &value, 1, 1, 2, true);
		ls_request *last = start(group, &value, 1, 1, 3, true);
		OK(runner_cancel(waits));
		GIVES(LS_PENDING, ls_cancel(waits));
		finish(waits, LS_CANCELLED);
		finish(start(group, &got, 1, 1, 4, false), LS_OK); /* which waits for no turn */
		CHECK(got == 5);
		GIVES(LS_PENDING, ls_test(last));
		OK(runner_cancel(first)); /* which has begun */
		finish(first, LS_CANCELLED);
		finish(last, LS_OK);
	} else {
		finish(start(group, &value, 1, 0, 4, true), LS_OK);
		finish(start(group, &got, 1, 0, 3, false), LS_OK);
		CHECK(got == 5);
	}
	OK(ls_barrier(group, NULL));
	GIVES(LS_PENDING, ls_iprobe(group, LS_ANY_SOURCE, &options, &message));
	runner_meet(self); /* the rank that is left alone gets an error */
	ls_group_close(group);
}

/* A group that ends takes along what waits for its turn in it, and nothing of another group. */
void in_series_ended(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group;
	int32_t *buffer = values_alloc(world, LONG * 4, true), value = 0;
	OK(ls_group_split(world, 0, 0, &group));
	if (self->rank == 0) {
		value = 5;
		ls_request *first = start(group, buffer, LONG, 1, 1, true);
		ls_request *second = start(group, buffer, LONG, 1, 1, true);
		ls_request *other = start(world, &value, 1, 1, 1, true);
		OK(ls_group_abort(group, "no longer needed"));
		finish(second, LS_ABORTED);
		finish(first, LS_ABORTED);
		finish(other, LS_OK);
	} else {
		finish(start(world, &value, 1, 0, 1, false), LS_OK);
		CHECK(value == 5);
		GIVES(LS_ABORTED, ls_recv(group, buffer, LONG, LS_INT32, 0, NULL));
	}
	ls_group_close(group);
	ls_group_close(world);
	values_free(NULL, buffer, true);
}

/* ---- what can never go on ---- */

struct waiting {
	ls_request *op;
	_Atomic bool waits;
	ls_status status;
	pthread_t thread;
};

static void *wait_in_thread(void *argument)
{
	struct waiting *waiting = argument;
	atomic_store(&waiting->waits, true);
	waiting->status = ls_wait(waiting->op, 0);
	return NULL;
}

static void wait_beside(struct waiting *waiting, ls_request *op)
{
	*waiting = (struct waiting){.op = op};
	CHECK(pthread_create(&waiting->thread, NULL, wait_in_thread, waiting) == 0);
	while (!atomic_load(&waiting->waits))
		sched_yield();
}

static void finish_beside(struct waiting *waiting, ls_status status)
{
	pthread_join(waiting->thread, NULL);
	GIVES(status, waiting->status);
	ls_request_free(waiting->op);
}

/* All send before they receive. Two threads wait: one for the send that has begun and one for
 * another, whichever is first; or both for others, and nobody for the first. */
void in_series_cycle(struct runner_rank *self)
{
	int next = (self->rank + 1) % self->size;
	for (int turn = 0; turn < 3; turn++) {
		ls_group *group = runner_open(self);
		int32_t values[3] = {1, 2, 3};
		struct waiting beside;
		struct ls_failure failure = {.size = sizeof failure};
		ls_request *ops[3] = {start(group, held, LONG, next, 1, true),
				      start(group, &values[1], 1, next, 1, true),
				      start(group, &values[2], 1, next, 1, true)};
		int first = turn == 0 ? 0 : 1, second = turn == 1 ? 0 : turn == 0 ? 1 : 2;
		wait_beside(&beside, ops[first]);
		finish(ops[second], LS_DEADLOCK);
		finish_beside(&beside, LS_DEADLOCK);
		finish(ops[3 - first - second], LS_DEADLOCK);
		OK(ls_group_failure(group, &failure));
		CHECK_THAT(strstr(failure.text, "send #1") && strstr(failure.text, "series_test.c"),
			   "%s", failure.text);
		SAYS(failure.text,
		     "LOCKSTEP_P2P=serial is set, with which a send begins only when ");
		SAYS(failure.text, "\nstands behind send #1 to rank ");
		ls_group_close(group);
		runner_meet(self);
	}
}

/* The operation that all wait for is in another group: that group ends, and the others continue. */
void in_series_cycle_through_groups(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group;
	int other = 1 - self->rank;
	int32_t values[4] = {0, 1, 2, 3};
	struct waiting beside;
	OK(ls_group_split(world, 0, 0, &group));
	ls_request *first = start(group, held, LONG, other, 1, true);
	ls_request *sends[2] = {start(world, &values[1], 1, other, 1, true),
				start(world, &values[2], 1, other, 2, true)};
	wait_beside(&beside, sends[0]);
	finish(sends[1], LS_OK);
	finish_beside(&beside, LS_OK);
	finish(first, LS_DEADLOCK);
	finish(start(world, &values[3], 1, other, 2, false), LS_OK);
	CHECK(values[3] == 2);
	ls_group_close(group);
	ls_group_close(world);
}

/* It has a time limit of its own, so it goes on by itself. */
void in_series_behind_a_limit(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct ls_call_options options = {.size = sizeof options, .tag = 1, .timeout_ms = 800};
	int other = 1 - self->rank;
	int32_t values[3] = {0, 1, 2};
	struct waiting beside;
	ls_request *first;
	OK(ls_isend(group, held, LONG, LS_INT32, other, &options, &first));
	wait_beside(&beside, start(group, &values[1], 1, other, 1, true));
	finish(start(group, &values[2], 1, other, 1, true), LS_TIMED_OUT);
	finish_beside(&beside, LS_TIMED_OUT);
	finish(first, LS_TIMED_OUT);
	ls_group_close(group);
}

/* With MESSAGES=1. A group is made while sends still wait for their turn: what makes it takes none
 * of their places. */
void in_series_before_a_group(struct runner_rank *self)
{
	enum { ROUNDS = 30, SENDS = 10 };
	static const int ranks[] = {0, 1};
	ls_group *group = runner_open(self), *made;
	for (int32_t round = 0; round < ROUNDS; round++) {
		int32_t values[SENDS];
		ls_request *sends[SENDS];
		const struct ls_call_options first = {.size = sizeof first, .tag = 1};
		runner_meet(self);
		for (int32_t i = 0; i < SENDS; i++) {
			values[i] = round * SENDS + i;
			if (self->rank == 0)
				sends[i] = start(group, &values[i], 1, 1, 1, true);
			else
				OK(ls_recv(group, &values[i], 1, LS_INT32, 0, &first));
			CHECK(values[i] == round * SENDS + i);
		}
		OK(ls_group_from_members(group, ranks, 2, NULL, &made));
		for (int i = 0; i < SENDS && self->rank == 0; i++)
			finish(sends[i], LS_OK);
		ls_group_close(made);
	}
	ls_group_close(group);
}

/* With LOOK_MS=10. Two threads wait, but a third thread that has called Lockstep cancels the
 * operations that both wait for. */
void in_series_goes_on(struct runner_rank *self)
{
	enum { GLANCES = 30, GLANCE_MS = 10 };
	ls_group *group = runner_open(self);
	int other = 1 - self->rank;
	int32_t values[3] = {0, 1, 2}, got[2];
	struct waiting beside[2];
	ls_request *first = start(group, held, LONG, other, 1, true);
	for (int i = 0; i < 2; i++)
		wait_beside(&beside[i], start(group, &values[1 + i], 1, other, 2 + i, true));
	for (int i = 0; i < GLANCES; i++)
		GIVES(LS_PENDING, ls_wait(first, GLANCE_MS));
	OK(runner_cancel(first));
	finish(first, LS_CANCELLED);
	for (int i = 0; i < 2; i++)
		finish_beside(&beside[i], LS_OK);
	for (int i = 0; i < 2; i++)
		finish(start(group, &got[i], 1, other, 2 + i, false), LS_OK);
	CHECK(got[0] == 1 && got[1] == 2);
	OK(ls_barrier(group, NULL));
	ls_group_close(group);
}

/* With LOOK_MS=10. All of rank 0 wait for rank 1, and rank 1 for them: but one of them also for a
 * send that waits for its turn, behind one that rank 2 takes late. */
void in_series_any_goes_on(struct runner_rank *self)
{
	enum { GLANCES = 30, GLANCE_MS = 10 };
	ls_group *group = runner_open(self);
	int32_t value = 5, got[3], *into = values_alloc(group, LONG * 4, true);
	struct waiting beside;
	int which;
	if (self->rank == 0) {
		ls_request *first = start(group, held, LONG, 2, 1, true);
		ls_request *ops[2] = {start(group, &got[0], 1, 1, 2, false),
				      start(group, &value, 1, 1, 3, true)};
		wait_beside(&beside, start(group, &got[1], 1, 1, 4, false));
		for (int i = 0; i < 3; i++) /* from then on the other one makes progress */
			GIVES(LS_PENDING, ls_wait(ops[0], GLANCE_MS));
		OK(ls_wait_any(ops, 2, 0, &which));
		CHECK(which == 1);
		ls_request_free(ops[1]);
		finish(start(group, &value, 1, 1, 5, true), LS_OK);
		finish_beside(&beside, LS_OK);
		finish(ops[0], LS_OK);
		finish(first, LS_OK);
	} else if (self->rank == 1) {
		finish(start(group, &got[2], 1, 0, 5, false), LS_OK);
		finish(start(group, &value, 1, 0, 2, true), LS_OK);
		finish(start(group, &value, 1, 0, 4, true), LS_OK);
		finish(start(group, &got[2], 1, 0, 3, false), LS_OK);
	} else {
		ls_request *never = start(group, &got[2], 1, 0, 6, false);
		for (int i = 0; i < GLANCES; i++)
			GIVES(LS_PENDING, ls_wait(never, GLANCE_MS));
		OK(runner_cancel(never));
		finish(never, LS_CANCELLED);
		finish(start(group, into, LONG, 0, 1, false), LS_OK);
	}
	OK(ls_barrier(group, NULL));
	values_free(group, into, true);
	ls_group_close(group);
}

/* A receive holds up no send, no other receive and no collective, blocking or not; nor does a send
 * a collective. */
void in_series_before_collectives(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	for (int turn = 0; turn < 2; turn++) {
		int32_t value = 5, got = 0, sum = 1;
		int other = 1 - self->rank;
		ls_request *collective = NULL;
		struct ls_call_options beside = {.size = sizeof beside, .request = &collective};
		ls_request *receive = start(group, &got, 1, other, 1, false);
		ls_request *send = start(group, held, LONG, other, 2, true);
		OK(ls_allreduce(group, &sum, &sum, 1, LS_INT32, LS_SUM, turn == 0 ? NULL : &beside));
		if (collective)
			OK(ls_wait(collective, 0));
		ls_request_free(collective);
		CHECK(sum == 2);
		GIVES(LS_PENDING, ls_test(receive));
		GIVES(LS_PENDING, ls_test(send));
		OK(ls_barrier(group, NULL));
		OK(runner_cancel(send));
		finish(send, LS_CANCELLED);
		OK(ls_send(group, &value, 1, LS_INT32, other,
			   &(struct ls_call_options){.size = sizeof beside, .tag = 1}));
		finish(receive, LS_OK);
		CHECK(got == 5);
	}
	ls_group_close(group);
}

struct helper {
	_Atomic(ls_request *) op; /* NULL: nothing to do */
	_Atomic bool busy, stop;
};

/* Begins the next operation, as the thread that makes progress does. */
static void *help(void *argument)
{
	struct helper *helper = argument;
	while (!atomic_load(&helper->stop)) {
		atomic_store(&helper->busy, true);
		ls_request *op = atomic_load(&helper->op);
		if (op) {
			ls_status status = ls_test(op);
			CHECK(status == LS_OK || status == LS_PENDING);
		}
		atomic_store(&helper->busy, false);
		if (!op)
			sched_yield();
	}
	return NULL;
}

/* The first is taken back, which begins the next one, though rank 0 waits for something else from
 * then on. */
void in_series_turn_beside_a_barrier(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int32_t value = 5, got = 0;
	ls_request *next = NULL;
	if (self->rank == 0) {
		ls_request *first = start(group, held, LONG, 1, 1, true);
		next = start(group, &value, 1, 1, 2, true);
		OK(runner_cancel(first));
		finish(first, LS_CANCELLED);
	} else {
		finish(start(group, &got, 1, 0, 2, false), LS_OK);
		CHECK(got == value);
	}
	OK(ls_barrier(group, NULL));
	if (next)
		finish(next, LS_OK);
	ls_group_close(group);
}

/* A send is taken back at the moment at which its turn comes: either it goes, or nobody ever sees
 * it. */
void in_series_taken_back_meanwhile(struct runner_rank *self)
{
	enum { MEANWHILE = 640 / RUNNER_SLOWNESS, SPINS = 10000 };
	ls_group *group = runner_open(self);
	_Atomic uint64_t *words = self->shared->words;
	struct helper helper = {.op = NULL};
	pthread_t thread;
	int32_t value = 5, got = 0, *into = values_alloc(group, LONG * 4, true);
	if (self->rank == 0)
		CHECK(pthread_create(&thread, NULL, help, &helper) == 0);
	for (uint64_t turn = 0; turn < MEANWHILE; turn++) {
		if (self->rank == 1) {
			while (atomic_load(&words[0]) <= turn)
				sched_yield();
			atomic_store(&words[3], turn + 1);
			finish(start(group, into, LONG, 0, 1, false), LS_OK);
			while (atomic_load(&words[1]) <= turn)
				sched_yield();
			if (atomic_load(&words[2]))
				finish(start(group, &got, 1, 0, (int)turn + 2, false), LS_OK);
			continue;
		}
		ls_request *first = start(group, held, LONG, 1, 1, true);
		ls_request *second = start(group, &value, 1, 1, (int)turn + 2, true);
		atomic_store(&helper.op, first);
		atomic_store(&words[0], turn + 1);
		for (int spins = 0; atomic_load(&words[3]) <= turn; spins++)
			if (spins >= SPINS) /* it has no processor */
				sched_yield();
		for (uint64_t looks = turn % 64 * 8; looks > 0; looks--)
			atomic_load(&words[3]);
		ls_status status = ls_cancel(second);
		CHECK(status == LS_OK || status == LS_PENDING);
		finish(second, status == LS_OK ? LS_CANCELLED : LS_OK);
		OK(ls_wait(first, 0));
		atomic_store(&helper.op, NULL);
		while (atomic_load(&helper.busy))
			sched_yield();
		ls_request_free(first);
		atomic_store(&words[2], status != LS_OK);
		atomic_store(&words[1], turn + 1);
	}
	atomic_store(&helper.stop, true);
	if (self->rank == 0)
		CHECK(pthread_join(thread, NULL) == 0);
	OK(ls_barrier(group, NULL));
	struct ls_message message = {.size = sizeof message};
	struct ls_call_options any = {.size = sizeof any, .tag = LS_ANY_TAG};
	GIVES(LS_PENDING, ls_iprobe(group, LS_ANY_SOURCE, &any, &message));
	runner_meet(self); /* alone it could not come any more */
	values_free(group, into, true);
	ls_group_close(group);
}

/* A send that nobody receives is taken back while another thread, which takes back the one before
 * it, begins it. */
void in_series_taken_back_by_threads(struct runner_rank *self)
{
	enum { TIMES = 4000 / RUNNER_SLOWNESS, COUNT = 1100 }; /* none is over without a receive */
	int times = self->drawn ? 6 : TIMES;
	ls_group *group = runner_open(self);
	struct helper helper = {.op = NULL};
	pthread_t thread;
	if (self->rank == 0)
		CHECK(pthread_create(&thread, NULL, help, &helper) == 0);
	for (int i = 0; self->rank == 0 && i < times; i++) {
		ls_request *first = start(group, held, COUNT, 1, 1, true);
		ls_request *second = start(group, held, COUNT, 1, 1, true);
		ls_request *third = start(group, held, COUNT, 1, 1, true);
		atomic_store(&helper.op, third);
		OK(runner_cancel(first));
		for (int looks = i % 64 * 8; looks > 0; looks--)
			atomic_load(&helper.busy);
		OK(runner_cancel(second));
		atomic_store(&helper.op, NULL);
		while (atomic_load(&helper.busy))
			sched_yield();
		OK(runner_cancel(third));
		finish(first, LS_CANCELLED);
		finish(second, LS_CANCELLED);
		finish(third, LS_CANCELLED);
	}
	atomic_store(&helper.stop, true);
	if (self->rank == 0)
		CHECK(pthread_join(thread, NULL) == 0);
	runner_meet(self);
	ls_group_close(group);
}
