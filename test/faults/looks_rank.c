/* SPDX-License-Identifier: BSD-3-Clause
 * One rank of a healthy job. It has up to three threads, which are independent of each other. One
 * calls collectives on the group of all ranks, and makes and closes further groups in between. One
 * sends messages of all kinds on the group of all ranks, and cancels some receives. One runs
 * nonblocking collectives and messages on a second group. */
#include "looks.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

enum {
	SHORT = 8,
	LONG = 20000, /* floats: many fragments */
	MANY = 70,    /* operations at once: more than any table can hold */
	ROUNDS = 60,
	TAGS = 1000, /* of each round */
	NEVER = 999, /* a tag with which nobody sends */
};

struct thread {
	const struct looks_rank *self;
	ls_group *group;
	uint64_t random;
	pthread_t id;
};

static void must(ls_status status, const char *what, int line)
{
	if (status == LS_OK)
		return;
	fprintf(stderr, "looks_rank.c:%d: %s: %s\n", line, what, ls_status_name(status));
	_exit(1);
}

#define OK(call) must((call), #call, __LINE__)

static unsigned draw(struct thread *thread, unsigned below)
{
	uint64_t *state = &thread->random;
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (unsigned)(*state >> 33) % below;
}

static uint64_t draw_count(struct thread *thread)
{
	return draw(thread, 3) ? SHORT : LONG;
}

/* ---- collectives, and groups that come and go ---- */

static void use_further_group(struct thread *thread, float *data)
{
	const struct looks_rank *self = thread->self;
	unsigned colors = draw(thread, 1u << self->size), rounds = draw(thread, 4);
	uint64_t count = draw_count(thread);
	ls_group *part;
	OK(ls_group_split(thread->group, (int)(colors >> self->rank & 1), 0, &part));
	for (unsigned i = 0; i < rounds; i++)
		OK(ls_allreduce(part, data, data, count, LS_FLOAT32, LS_MAX, NULL));
	ls_group_close(part);
}

static void *collect(void *argument)
{
	static float data[2][LONG * LOOKS_RANKS_MAX];
	struct thread *thread = argument;
	ls_group *group = thread->group;
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t count = draw_count(thread);
		int root = (int)draw(thread, (unsigned)thread->self->size);
		switch (draw(thread, 6)) {
		case 0:
			OK(ls_barrier(group, NULL));
			break;
		case 1:
			OK(ls_alltoall(group, data[0], data[1], count, LS_FLOAT32, NULL));
			break;
		case 2:
			OK(ls_broadcast(group, data[0], data[0], count, LS_FLOAT32, root, NULL));
			break;
		case 3:
			OK(ls_gather(group, data[0], data[1], count, LS_FLOAT32, root, NULL));
			break;
		case 4:
			use_further_group(thread, data[0]);
			break;
		default:
			OK(ls_allreduce(group, data[0], data[1], count, LS_FLOAT32, LS_MAX, NULL));
		}
	}
	return NULL;
}

/* ---- messages ---- */

static struct ls_call_options with_tag(int tag)
{
	return (struct ls_call_options){.size = sizeof(struct ls_call_options), .tag = tag};
}

/* Around in a ring. */
static void ring(struct thread *thread, float *data, int tag)
{
	const struct looks_rank *self = thread->self;
	struct ls_call_options options = with_tag(tag);
	int next = (self->rank + 1) % self->size,
	    before = (self->rank + self->size - 1) % self->size;
	uint64_t count = draw_count(thread);
	ls_request *op;
	OK(ls_irecv(thread->group, data, count, LS_FLOAT32, before, &options, &op));
	OK(ls_send(thread->group, data + LONG, count, LS_FLOAT32, next, &options));
	OK(ls_wait(op, 0));
	ls_request_free(op);
}

/* Rank `to` receives from any source; some ranks probe first. */
static void gather(struct thread *thread, float *data, int tag)
{
	const struct looks_rank *self = thread->self;
	struct ls_call_options options = with_tag(tag);
	int to = (int)draw(thread, (unsigned)self->size);
	uint64_t count = draw_count(thread);
	bool probes = draw(thread, 2);
	if (self->rank != to) {
		OK(ls_send(thread->group, data, count, LS_FLOAT32, to, &options));
		return;
	}
	for (int i = 1; i < self->size; i++) {
		struct ls_message found = {.size = sizeof found};
		int from = LS_ANY_SOURCE;
		if (probes) {
			OK(ls_probe(thread->group, LS_ANY_SOURCE, &options, &found));
			from = found.source;
		}
		OK(ls_recv(thread->group, data, count, LS_FLOAT32, from, &options));
	}
}

/* More long messages at once than any table can hold, received in the opposite order. */
static void flood(struct thread *thread, float *data, int tag)
{
	const struct looks_rank *self = thread->self;
	int next = (self->rank + 1) % self->size,
	    before = (self->rank + self->size - 1) % self->size;
	ls_request *ops[2 * MANY];
	int count = 1 + (int)draw(thread, MANY);
	for (int i = 0; i < count; i++) {
		struct ls_call_options there = with_tag(tag + i);
		struct ls_call_options here = with_tag(tag + count - 1 - i);
		OK(ls_isend(thread->group, data + LONG, SHORT * 32, LS_FLOAT32, next, &there,
			    &ops[2 * i]));
		OK(ls_irecv(thread->group, data + i * SHORT * 32, SHORT * 32, LS_FLOAT32, before,
			    &here, &ops[2 * i + 1]));
	}
	for (int i = 0; i < 2 * count; i++) {
		OK(ls_wait(ops[i], 0));
		ls_request_free(ops[i]);
	}
}

/* A receive that no rank ever answers is cancelled; meanwhile a message comes. */
static void cancel(struct thread *thread, float *data, int tag)
{
	struct ls_call_options never = with_tag(tag + NEVER);
	int from = draw(thread, 2) ? LS_ANY_SOURCE : (thread->self->rank + 1) % thread->self->size;
	ls_request *op;
	OK(ls_irecv(thread->group, data, SHORT, LS_FLOAT32, from, &never, &op));
	ring(thread, data + SHORT, tag);
	OK(ls_cancel(op));
	must(ls_test(op) == LS_CANCELLED ? LS_OK : LS_INTERNAL, "a cancelled receive", __LINE__);
	ls_request_free(op);
}

static void *exchange(void *argument)
{
	static void (*const ways[])(struct thread *, float *, int) = {ring, gather, flood, cancel};
	static float data[3 * LONG];
	struct thread *thread = argument;
	for (int round = 0; round < ROUNDS; round++)
		ways[draw(thread, 4)](thread, data, round * TAGS);
	return NULL;
}

/* ---- nonblocking, on a group of its own ---- */

static void count_one(void *data, ls_status status)
{
	must(status, "a callback", __LINE__);
	atomic_fetch_add((_Atomic int *)data, 1);
}

static void *work_beside(void *argument)
{
	static float data[MANY][SHORT * 32], message[2][LONG];
	struct thread *thread = argument;
	_Atomic int called = 0;
	int expected = 0;
	for (int round = 0; round < ROUNDS / 2; round++) {
		ls_request *ops[MANY] = {NULL};
		int count = 1 + (int)draw(thread, MANY);
		for (int i = 0; i < count; i++) {
			bool calls = draw(thread, 2);
			struct ls_call_options options = {.size = sizeof options,
							  .request = &ops[i]};
			if (calls) {
				options.callback = count_one;
				options.callback_data = &called;
				expected++;
			}
			OK(ls_allreduce(thread->group, data[i], data[i], SHORT * 32, LS_FLOAT32,
					LS_MAX, &options));
		}
		if (thread->self->rank < 2) {
			int peer = 1 - thread->self->rank;
			struct ls_call_options options = {.size = sizeof options, .tag = round};
			OK(ls_batch_begin(thread->group));
			OK(ls_send(thread->group, message[0], LONG, LS_FLOAT32, peer, &options));
			OK(ls_recv(thread->group, message[1], LONG, LS_FLOAT32, peer, &options));
			OK(ls_batch_end(thread->group, NULL));
		}
		for (int i = count - 1; i >= 0; i--) {
			OK(ls_wait(ops[i], 0));
			ls_request_free(ops[i]);
		}
	}
	while (atomic_load(&called) < expected)
		sched_yield();
	return NULL;
}

void looks_work(const struct looks_rank *self)
{
	static void *(*const works[])(void *) = {collect, exchange, work_beside};
	enum { THREADS = sizeof works / sizeof works[0] };
	struct ls_group_options options = {.size = sizeof options,
					   .timeout_ms = 60000,
					   .rank = self->rank,
					   .world_size = self->size,
					   .rendezvous = self->rendezvous};
	struct thread threads[THREADS];
	ls_group *world, *second;
	/* Some jobs have fewer threads. Which of them opens the groups differs. */
	int count = 1 + (int)(self->seed / 2 % THREADS), first = (int)(self->seed % THREADS);
	OK(ls_group_open(&options, &world));
	OK(ls_group_split(world, 0, self->rank, &second));
	for (int i = 0; i < count; i++) {
		void *(*work)(void *) = works[(first + i) % THREADS];
		threads[i] = (struct thread){.self = self,
					     .group = work == work_beside ? second : world,
					     .random = self->seed * 2654435761u + (uint64_t)i + 1};
		if (i > 0 && pthread_create(&threads[i].id, NULL, work, &threads[i]))
			_exit(2);
	}
	works[first](&threads[0]);
	for (int i = 1; i < count; i++)
		pthread_join(threads[i].id, NULL);
	ls_group_close(second);
	/* No rank leaves while another one still works. */
	OK(ls_barrier(world, NULL));
	ls_group_close(world);
}
