/* SPDX-License-Identifier: BSD-3-Clause
 * Ranks that poll (ls_test, ls_iprobe) and never block: a poll reports that the peer has died or
 * left. A rank that does not poll gets the status from its next call. */
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "common.h"
#include "message_ways.h"
#include "tests.h"
#include "values.h"

enum { LONG = 300000, PROMPT_MS = 3000 * RUNNER_PATIENCE };

/* What is asked. */
enum question { TEST, TEST_BATCH, PROBE };

struct asking {
	ls_group *group;
	enum question question;
	bool sends;
	int peer;
	int32_t *buffer;
};

static ls_request *begin(const struct asking *asking)
{
	ls_request *op = NULL;
	int32_t *buffer = asking->buffer;
	if (asking->question == PROBE)
		return NULL;
	if (asking->question == TEST_BATCH)
		OK(ls_batch_begin(asking->group));
	if (asking->question == TEST_BATCH && asking->sends)
		OK(ls_send(asking->group, buffer, LONG, LS_INT32, asking->peer, NULL));
	else if (asking->question == TEST_BATCH)
		OK(ls_recv(asking->group, buffer, LONG, LS_INT32, asking->peer, NULL));
	else if (asking->sends)
		OK(ls_isend(asking->group, buffer, LONG, LS_INT32, asking->peer, NULL, &op));
	else
		OK(ls_irecv(asking->group, buffer, LONG, LS_INT32, asking->peer, NULL, &op));
	if (asking->question == TEST_BATCH)
		OK(ls_batch_end(asking->group, &op));
	return op;
}

static ls_status ask_once(const struct asking *asking, ls_request *op)
{
	struct ls_message found = {.size = sizeof found};
	return op ? ls_test(op) : ls_iprobe(asking->group, asking->peer, NULL, &found);
}

static ls_status ask(const struct asking *asking, ls_request *op)
{
	uint64_t end_ms = now_ms() + PROMPT_MS;
	ls_status status;
	do
		status = ask_once(asking, op);
	while (status == LS_PENDING && now_ms() < end_ms);
	ls_request_free(op);
	return status;
}

/* All but rank 0 go, when it has begun or before. */
static void peers_go(struct runner_rank *self, struct asking *asking, ls_status status)
{
	ls_group *group = runner_open(self);
	bool late = (self->turn + (unsigned)self->size) % 2 == 0;
	int culprit = asking->peer == LS_ANY_SOURCE ? self->size - 1 : asking->peer;
	runner_ready(self, group);
	if (self->rank != 0) {
		while (late && atomic_load(&self->shared->words[0]) == 0)
			sched_yield();
		if (status == LS_PEER_DIED && self->rank == culprit)
			raise(SIGKILL);
		ls_group_close(group);
		return;
	}
	asking->group = group;
	asking->buffer = values_alloc(group, LONG * 4, false);
	values_blot(asking->buffer, LONG, LS_INT32, 0);
	ls_request *op = late ? begin(asking) : NULL;
	if (late)
		GIVES(LS_PENDING, ask_once(asking, op));
	atomic_store(&self->shared->words[0], 1);
	GIVES(status, ask(asking, late ? op : begin(asking)));
	struct ls_failure failure = {.size = sizeof failure};
	OK(ls_group_failure(group, &failure));
	CHECK_THAT(failure.rank == culprit ||
			   (asking->peer == LS_ANY_SOURCE && status == LS_PEER_LEFT),
		   "rank %d is blamed: %s", failure.rank, failure.text);
	message_is_closed(group, status, failure.rank, "polling_test.c");
	values_free(group, asking->buffer, false);
	ls_group_close(group);
}

void polled_receive_of_one_that_left(struct runner_rank *self)
{
	peers_go(self, &(struct asking){.peer = 1}, LS_PEER_LEFT);
}

void polled_receive_of_one_that_died(struct runner_rank *self)
{
	peers_go(self, &(struct asking){.peer = 1}, LS_PEER_DIED);
}

void polled_send_to_one_that_left(struct runner_rank *self)
{
	peers_go(self, &(struct asking){.peer = 1, .sends = true}, LS_PEER_LEFT);
}

void polled_send_to_one_that_died(struct runner_rank *self)
{
	peers_go(self, &(struct asking){.peer = 1, .sends = true}, LS_PEER_DIED);
}

void polled_batch_of_one_that_left(struct runner_rank *self)
{
	peers_go(self, &(struct asking){.peer = 1, .question = TEST_BATCH}, LS_PEER_LEFT);
}

void polled_batch_to_one_that_died(struct runner_rank *self)
{
	peers_go(self, &(struct asking){.peer = 1, .question = TEST_BATCH, .sends = true},
		 LS_PEER_DIED);
}

void polled_receive_when_all_left(struct runner_rank *self)
{
	peers_go(self, &(struct asking){.peer = LS_ANY_SOURCE}, LS_PEER_LEFT);
}

void polled_receive_when_all_are_gone(struct runner_rank *self)
{
	peers_go(self, &(struct asking){.peer = LS_ANY_SOURCE}, LS_PEER_DIED);
}

void probed_one_that_left(struct runner_rank *self)
{
	peers_go(self, &(struct asking){.peer = 1, .question = PROBE}, LS_PEER_LEFT);
}

void probed_one_that_died(struct runner_rank *self)
{
	peers_go(self, &(struct asking){.peer = 1, .question = PROBE}, LS_PEER_DIED);
}

void probed_when_all_are_gone(struct runner_rank *self)
{
	peers_go(self, &(struct asking){.peer = LS_ANY_SOURCE, .question = PROBE}, LS_PEER_DIED);
}

/* Setting P2P=serial: the tested operation waits for its turn, behind one that is not tested. */
void polled_behind_one_that_left(struct runner_rank *self)
{
	static int32_t held[LONG];
	ls_group *group = runner_open(self);
	struct asking asking = {.group = group, .peer = self->size - 1};
	int32_t value = 0;
	ls_request *first, *second;
	runner_ready(self, group);
	if (self->rank == 0) {
		OK(ls_isend(group, held, LONG, LS_INT32, 1, NULL, &first));
		OK(ls_isend(group, &value, 1, LS_INT32, self->size - 1, NULL, &second));
	}
	runner_meet(self);
	if (self->rank == 1) {
		ls_group_close(group);
		return;
	}
	if (self->rank == 0) {
		GIVES(LS_PEER_LEFT, ask(&asking, second));
		GIVES(LS_PEER_LEFT, ls_test(first));
		ls_request_free(first);
	} else {
		GIVES(LS_PEER_LEFT, ls_recv(group, &value, 1, LS_INT32, 0, NULL));
	}
	message_is_closed(group, LS_PEER_LEFT, 1, "rank 1");
	ls_group_close(group);
}

/* The report names the tested operation, however many have begun after it. */
void polled_before_many_that_run(struct runner_rank *self)
{
	enum { MANY = 100 };
	static int32_t values[MANY];
	ls_group *group = runner_open(self);
	struct ls_call_options options = {.size = sizeof options, .label = "the first of many"};
	struct asking asking = {.group = group, .peer = 1};
	ls_request *ops[MANY];
	runner_ready(self, group);
	for (int i = 0; self->rank == 0 && i < MANY; i++)
		OK(ls_irecv(group, &values[i], 1, LS_INT32, 1, i ? NULL : &options, &ops[i]));
	runner_meet(self);
	if (self->rank == 0) {
		GIVES(LS_PEER_LEFT, ask(&asking, ops[0]));
		message_is_closed(group, LS_PEER_LEFT, 1, options.label);
		for (int i = 1; i < MANY; i++)
			ls_request_free(ops[i]);
	}
	ls_group_close(group);
}

/* A message that was sent before is received, even if its sender has gone since; and the other
 * ranks are still there. */
void polled_what_was_sent_before(struct runner_rank *self)
{
	enum { MESSAGES = 20 };
	ls_group *group = runner_open(self);
	int last = self->size - 1;
	OK(ls_barrier(group, NULL));
	for (int32_t i = 0; self->rank == 1 && i < MESSAGES; i++)
		OK(ls_send(group, &i, 1, LS_INT32, 0, NULL));
	if (self->rank == 1)
		ls_group_close(group);
	runner_meet(self);
	if (self->rank == 1)
		return;
	struct ls_message found = {.size = sizeof found};
	for (int32_t i = 0; self->rank == 0 && i < MESSAGES; i++) {
		struct asking asking = {.group = group, .peer = i % 2 ? 1 : LS_ANY_SOURCE};
		int32_t value = -1;
		ls_request *op;
		OK(ls_iprobe(group, asking.peer, NULL, &found));
		OK(ls_irecv(group, &value, 1, LS_INT32, asking.peer, NULL, &op));
		OK(ask(&asking, op));
		CHECK(value == i);
	}
	if (self->rank == 0) {
		GIVES(LS_PENDING, ls_iprobe(group, LS_ANY_SOURCE, NULL, &found));
		GIVES(LS_PENDING, ls_iprobe(group, last, NULL, &found));
	}
	/* Nobody needs rank 1 any more. */
	int32_t value = 7;
	if (self->rank == 0)
		OK(ls_send(group, &value, 1, LS_INT32, last, NULL));
	else
		OK(ls_recv(group, &value, 1, LS_INT32, 0, NULL));
	ls_group_close(group);
}

/* ---- ranks that do not test ---- */

enum next_call { CALL_SEND, CALL_COLLECTIVE, TEST_OTHER, WAIT_OTHER, FREE, CLOSE, NEXT_CALLS };

/* `op` is not the send, but for FREE. */
static void call_next(struct runner_rank *self, ls_group *group, enum next_call call, ls_request *op)
{
	int32_t value = 1;
	switch (call) {
	case CALL_SEND:
		GIVES(LS_PEER_LEFT, ls_send(group, &value, 1, LS_INT32, self->size - 1, NULL));
		break;
	case CALL_COLLECTIVE:
		GIVES(LS_PEER_LEFT, ls_barrier(group, NULL));
		break;
	case TEST_OTHER:
		GIVES(LS_PEER_LEFT, ls_test(op));
		break;
	case WAIT_OTHER:
		GIVES(LS_PEER_LEFT, ls_wait(op, 0));
		break;
	case FREE:
		ls_request_free(op);
		break;
	default:
		break;
	}
}

/* A long message that rank 1 has not taken when it leaves. The next call returns the error,
 * whichever it is, even if it has nothing to do with rank 1. */
void sends_that_are_lost_are_told(struct runner_rank *self)
{
	for (enum next_call call = 0; call < NEXT_CALLS; call++) {
		ls_group *world = runner_open(self), *group;
		int32_t *buffer = values_alloc(world, LONG * 4, true), value = 0;
		ls_request *send = NULL, *other = NULL;
		values_blot(buffer, LONG, LS_INT32, 0);
		OK(ls_group_split(world, 0, self->rank, &group));
		if (self->rank == 0) {
			runner_note(self, "call %d", (int)call);
			OK(ls_irecv(group, &value, 1, LS_INT32, self->size - 1, NULL, &other));
			OK(ls_isend(group, buffer, LONG, LS_INT32, 1, NULL, &send));
			runner_meet(self);
			runner_meet(self); /* rank 1 has gone */
			call_next(self, group, call, call == FREE ? send : other);
			struct ls_failure failure = {.size = sizeof failure};
			OK(ls_group_failure(group, &failure));
			CHECK(failure.status == (call == CLOSE ? LS_OK : LS_PEER_LEFT));
			if (call != FREE)
				ls_request_free(send);
			ls_request_free(other);
			ls_group_close(group);
		} else {
			runner_meet(self);
			if (self->rank == 1)
				ls_group_close(group);
			runner_meet(self);
			if (self->rank != 1) {
				GIVES(LS_PEER_LEFT, ls_recv(group, &value, 1, LS_INT32, 0, NULL));
				message_is_closed(group, LS_PEER_LEFT, 1, "polling_test.c");
				ls_group_close(group);
			}
		}
		OK(ls_barrier(world, NULL));
		values_free(world, buffer, true);
		ls_group_close(world);
		runner_meet(self);
	}
}
