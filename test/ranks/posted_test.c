/* SPDX-License-Identifier: BSD-3-Clause
 * Short receives that are posted before their message comes: matched in order, cancelled, freed,
 * posted and awaited by several threads. */
#include <pthread.h>
#include <sched.h>

#include "posted.h"
#include "tests.h"

static void send_one(ls_group *group, int32_t value, int tag)
{
	struct ls_call_options options = posted_tag(tag);
	OK(ls_send(group, &value, 1, LS_INT32, 1, &options));
}

/* ---- the order ---- */

/* What a receive of the test asks for. */
struct asked {
	int source, tag;
};

static unsigned draw(unsigned *seed, unsigned below)
{
	*seed = *seed * 1103515245 + 12345;
	return (*seed >> 16) % below;
}

/* What is asked for, what is sent, and which receive gets it: as if the receives were one list that
 * is searched from its front. */
struct round {
	struct asked asked[POSTED_MANY];
	int tags[POSTED_MANY];     /* of the messages */
	int takers[POSTED_MANY];   /* -1: no receive would take the message, so it is not sent */
	int32_t gets[POSTED_MANY]; /* of each receive: the message; -1: none */
};

static bool takes(const struct round *round, int i, int tag)
{
	return round->gets[i] < 0 &&
	       (round->asked[i].tag == tag || round->asked[i].tag == LS_ANY_TAG);
}

/* Ordinary receives among those of any source and any tag. */
static void draw_round(unsigned seed, struct round *out)
{
	for (int i = 0; i < POSTED_MANY; i++) {
		out->gets[i] = -1;
		out->asked[i].source = draw(&seed, 4) ? 0 : LS_ANY_SOURCE;
		out->asked[i].tag = draw(&seed, 5) ? (int)draw(&seed, 3) : LS_ANY_TAG;
	}
	for (int sent = 0; sent < POSTED_MANY; sent++) {
		int i = 0, tag = (int)draw(&seed, 3);
		while (i < POSTED_MANY && !takes(out, i, tag))
			i++;
		out->tags[sent] = tag;
		out->takers[sent] = i < POSTED_MANY ? i : -1;
		if (i < POSTED_MANY)
			out->gets[i] = sent;
	}
}

/* What is not matched at the end is cancelled. */
static void take_in_order(ls_group *group, const struct round *round)
{
	int32_t values[POSTED_MANY];
	ls_request *ops[POSTED_MANY];
	for (int i = 0; i < POSTED_MANY; i++) {
		struct ls_call_options options = posted_tag(round->asked[i].tag);
		values[i] = -1;
		OK(ls_irecv(group, &values[i], 1, LS_INT32, round->asked[i].source, &options,
			    &ops[i]));
	}
	OK(ls_barrier(group, NULL));
	OK(ls_barrier(group, NULL));
	for (int i = POSTED_MANY - 1; i >= 0; i--) {
		if (round->gets[i] < 0)
			OK(runner_cancel(ops[i]));
		posted_end(ops[i], round->gets[i] < 0 ? LS_CANCELLED : LS_OK);
		CHECK_THAT(values[i] == round->gets[i], "receive %d got message %d, not %d", i,
			   values[i], round->gets[i]);
	}
}

static void send_in_order(ls_group *group, const struct round *round)
{
	OK(ls_barrier(group, NULL));
	for (int32_t sent = 0; sent < POSTED_MANY; sent++)
		if (round->takers[sent] >= 0)
			send_one(group, sent, round->tags[sent]);
	OK(ls_barrier(group, NULL));
}

void posted_ones_match_in_order(struct runner_rank *self)
{
	enum { ROUNDS = 40 / RUNNER_SLOWNESS };
	ls_group *group = runner_open(self);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct round drawn;
		draw_round(77 * i + self->turn, &drawn);
		if (self->rank == 0)
			send_in_order(group, &drawn);
		else
			take_in_order(group, &drawn);
	}
	ls_group_close(group);
}

/* ---- cancelled and freed ---- */

struct waiting {
	ls_request *op;
	_Atomic bool begun;
	ls_status status;
};

static void *wait_for_one(void *argument)
{
	struct waiting *waiting = argument;
	atomic_store(&waiting->begun, true);
	waiting->status = ls_wait(waiting->op, 0);
	return NULL;
}

/* Every other one, while another thread waits for one of those; the messages go to the rest, in
 * order. */
void posted_ones_are_cancelled(struct runner_rank *self)
{
	enum { ROUNDS = 30 / RUNNER_SLOWNESS };
	ls_group *group = runner_open(self);
	for (int round = 0; round < ROUNDS; round++) {
		int32_t values[POSTED_MANY];
		ls_request *ops[POSTED_MANY];
		struct waiting waiting = {.op = NULL};
		pthread_t thread;
		for (int i = 0; self->rank == 1 && i < POSTED_MANY; i++)
			posted_one(group, &values[i], 3, &ops[i]);
		if (self->rank == 1) {
			waiting.op = ops[2 * (round % (POSTED_MANY / 2))];
			CHECK(pthread_create(&thread, NULL, wait_for_one, &waiting) == 0);
			while (round % 2 && !atomic_load(&waiting.begun))
				sched_yield();
			for (int i = 0; i < POSTED_MANY; i += 2)
				OK(runner_cancel(ops[i]));
			CHECK(pthread_join(thread, NULL) == 0);
			CHECK(waiting.status == LS_CANCELLED);
		}
		OK(ls_barrier(group, NULL));
		for (int i = 1; self->rank == 0 && i < POSTED_MANY; i += 2)
			send_one(group, i, 3);
		for (int i = 0; self->rank == 1 && i < POSTED_MANY; i++) {
			posted_end(ops[i], i % 2 ? LS_OK : LS_CANCELLED);
			CHECK_THAT(values[i] == (i % 2 ? i : -1), "receive %d got %d", i, values[i]);
		}
	}
	ls_group_close(group);
}

struct cancelling {
	_Atomic bool begins;
	ls_request **ops;
	ls_status statuses[POSTED_MANY];
};

static void *cancel_from_the_end(void *argument)
{
	struct cancelling *cancelling = argument;
	while (!atomic_load(&cancelling->begins))
		;
	for (int i = POSTED_MANY - 1; i >= 0; i--)
		cancelling->statuses[i] = ls_cancel(cancelling->ops[i]);
	return NULL;
}

/* While the messages come, and another thread takes them in. Each receive either is cancelled or
 * has its message, and the messages go to those in order. */
static void cancel_meanwhile(ls_group *group, pthread_t *thread, struct cancelling *cancelling)
{
	struct ls_call_options other = posted_tag(4);
	int32_t values[POSTED_MANY], last, next = 0;
	ls_request *ops[POSTED_MANY];
	cancelling->ops = ops;
	for (int i = 0; i < POSTED_MANY; i++)
		posted_one(group, &values[i], 3, &ops[i]);
	CHECK(pthread_create(thread, NULL, cancel_from_the_end, cancelling) == 0);
	OK(ls_barrier(group, NULL));
	atomic_store(&cancelling->begins, true);
	OK(ls_recv(group, &last, 1, LS_INT32, 0, &other));
	CHECK(pthread_join(*thread, NULL) == 0);
	for (int i = 0; i < POSTED_MANY; i++) {
		bool cancelled = cancelling->statuses[i] == LS_OK;
		posted_end(ops[i], cancelled ? LS_CANCELLED : LS_OK);
		CHECK_THAT(values[i] == (cancelled ? -1 : next), "receive %d got %d, not %d", i,
			   values[i], cancelled ? -1 : next);
		next += !cancelled;
	}
	struct ls_call_options same = posted_tag(3);
	for (; next < POSTED_MANY; next++) {
		OK(ls_recv(group, &last, 1, LS_INT32, 0, &same));
		CHECK_THAT(last == next, "%d was left, not %d", last, next);
	}
}

void posted_ones_are_cancelled_meanwhile(struct runner_rank *self)
{
	enum { ROUNDS = 200 / RUNNER_SLOWNESS };
	ls_group *group = runner_open(self);
	for (int round = 0; round < ROUNDS; round++) {
		struct cancelling cancelling = {.ops = NULL};
		pthread_t thread;
		if (self->rank == 1) {
			cancel_meanwhile(group, &thread, &cancelling);
			continue;
		}
		OK(ls_barrier(group, NULL));
		for (int32_t i = 0; i < POSTED_MANY; i++)
			send_one(group, i, 3);
		send_one(group, 0, 4);
	}
	ls_group_close(group);
}

/* Freed before the message comes, the receive still takes it. More of them than the group can have
 * at once: each returns to the pool. */
void posted_ones_are_freed(struct runner_rank *self)
{
	enum { ROUNDS = 1500 / RUNNER_SLOWNESS };
	static int32_t values[RUNNER_RANKS_MAX][POSTED_MANY];
	int32_t *mine = values[self->rank], last;
	ls_group *group = runner_open(self);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; self->rank == 1 && i < POSTED_MANY; i++) {
			ls_request *op;
			posted_one(group, &mine[i], i % 7, &op);
			GIVES(LS_PENDING, ls_test(op));
			ls_request_free(op);
		}
		if (self->rank == 1) {
			OK(ls_send(group, &round, 1, LS_INT32, 0, NULL));
			OK(ls_recv(group, &last, 1, LS_INT32, 0, NULL));
		} else {
			OK(ls_recv(group, &last, 1, LS_INT32, 1, NULL));
			for (int i = 0; i < POSTED_MANY; i++)
				send_one(group, round + i, i % 7);
			send_one(group, round, 0);
		}
		for (int i = 0; self->rank == 1 && i < POSTED_MANY; i++)
			CHECK_THAT(mine[i] == round + i, "receive %d of round %d got %d", i, round,
				   mine[i]);
	}
	ls_group_close(group);
}

/* ---- several threads ---- */

enum { POSTERS = 2, EACH = 30 };

struct poster {
	ls_group *group;
	int number;
	int32_t values[EACH];
	ls_request *_Atomic ops[EACH];
};

static void *post_some(void *argument)
{
	struct poster *poster = argument;
	for (int i = 0; i < EACH; i++) {
		ls_request *op;
		posted_one(poster->group, &poster->values[i], poster->number, &op);
		atomic_store(&poster->ops[i], op);
	}
	return NULL;
}

/* This thread waits for what the others have posted so far, in no order. */
static void wait_for_all(struct poster *posters)
{
	int left = POSTERS * EACH;
	while (left > 0) {
		ls_request *ops[POSTERS * EACH];
		int places[POSTERS * EACH], count = 0, index;
		for (int k = 0; k < POSTERS * EACH; k++) {
			ops[count] = atomic_load(&posters[k / EACH].ops[k % EACH]);
			places[count] = k;
			count += ops[count] != NULL;
		}
		if (count == 0)
			continue;
		OK(ls_wait_any(ops, count, 0, &index));
		int k = places[index];
		struct poster *poster = &posters[k / EACH];
		CHECK_THAT(poster->values[k % EACH] == 100 * poster->number + k % EACH,
			   "thread %d's receive %d got %d", poster->number, k % EACH,
			   poster->values[k % EACH]);
		atomic_store(&poster->ops[k % EACH], NULL);
		ls_request_free(ops[index]);
		left--;
	}
}

void posted_by_two_awaited_by_a_third(struct runner_rank *self)
{
	enum { ROUNDS = 100 / RUNNER_SLOWNESS };
	ls_group *group = runner_open(self);
	for (int round = 0; round < ROUNDS; round++) {
		struct poster posters[POSTERS] = {{.group = group, .number = 0},
						  {.group = group, .number = 1}};
		pthread_t threads[POSTERS];
		if (self->rank == 0) {
			for (int i = 0; i < POSTERS * EACH; i++)
				send_one(group, 100 * (i % POSTERS) + i / POSTERS, i % POSTERS);
		} else {
			for (int i = 0; i < POSTERS; i++)
				CHECK(pthread_create(&threads[i], NULL, post_some, &posters[i]) == 0);
			wait_for_all(posters);
			for (int i = 0; i < POSTERS; i++)
				CHECK(pthread_join(threads[i], NULL) == 0);
		}
		OK(ls_barrier(group, NULL));
	}
	ls_group_close(group);
}

/* A receive that another thread of the rank completes, as it takes in messages for itself: a thread
 * that sleeps until then is woken. */
void posted_ones_taken_in_by_another(struct runner_rank *self)
{
	enum { ROUNDS = 200 / RUNNER_SLOWNESS };
	ls_group *group = runner_open(self);
	int32_t first, second, other = 0;
	for (int round = 0; round < ROUNDS; round++) {
		if (self->rank == 0) {
			OK(ls_recv(group, &other, 1, LS_INT32, 1, NULL));
			send_one(group, round, 1);
			send_one(group, round, 2);
			continue;
		}
		struct waiting waiting;
		struct ls_call_options two = posted_tag(2);
		pthread_t thread;
		posted_one(group, &first, 1, &waiting.op);
		atomic_store(&waiting.begun, false);
		CHECK(pthread_create(&thread, NULL, wait_for_one, &waiting) == 0);
		while (!atomic_load(&waiting.begun))
			sched_yield();
		OK(ls_send(group, &round, 1, LS_INT32, 0, NULL));
		OK(ls_recv(group, &second, 1, LS_INT32, 0, &two));
		CHECK(pthread_join(thread, NULL) == 0);
		CHECK(waiting.status == LS_OK && first == round && second == round);
		ls_request_free(waiting.op);
	}
	ls_group_close(group);
}
