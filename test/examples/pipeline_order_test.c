/* SPDX-License-Identifier: BSD-3-Clause
 * The order of the pipeline example: complete, no longer than it has to be, and without a deadlock
 * even if every message of a rank waits for the one before it, and a send for its receive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pipeline_order.h"

enum { RANKS = 9, MICROBATCHES = 40, EVENTS = 12 * MICROBATCHES };

/* What a rank does, one after the other. */
struct event {
	enum { RECEIVE, COMPUTE, SEND } what;
	enum pipeline_pass pass; /* of the task that is computed, or for which the message is */
	int stage, microbatch;
};

struct rank {
	struct pipeline_order order;
	int count, at;
	struct event events[EVENTS];
};

static struct rank ranks[RANKS];

static void add(struct rank *rank, struct event event)
{
	assert_true(rank->count < EVENTS);
	rank->events[rank->count++] = event;
}

static bool has_received(const struct rank *rank, enum pipeline_pass pass, int stage, int microbatch)
{
	for (int i = 0; i < rank->count; i++) {
		const struct event *event = &rank->events[i];
		if (event->what == RECEIVE && event->pass == pass && event->stage == stage &&
		    event->microbatch == microbatch)
			return true;
	}
	return false;
}

/* As the example calls them. */
static void list_events(struct rank *rank)
{
	const struct pipeline_order *order = &rank->order;
	int last = PIPELINE_CHUNKS * order->ranks - 1, received = 0;
	rank->count = rank->at = 0;
	for (int i = 0; i < order->task_count; i++) {
		const struct pipeline_task *task = &order->tasks[i];
		int stage = task->chunk * order->ranks + order->rank;
		bool forward = task->pass == PIPELINE_FORWARD;
		for (; received < task->receives; received++) {
			const struct pipeline_input *input = &order->inputs[received];
			int to = input->chunk * order->ranks + order->rank;
			add(rank, (struct event){RECEIVE, input->pass, to, input->microbatch});
			assert_int_equal(
				input->source,
				(input->pass == PIPELINE_FORWARD ? to + order->ranks - 1 : to + 1) %
					order->ranks);
		}
		if (stage != (forward ? 0 : last))
			assert_true(has_received(rank, task->pass, stage, task->microbatch));
		add(rank, (struct event){COMPUTE, task->pass, stage, task->microbatch});
		if (stage != (forward ? last : 0))
			add(rank, (struct event){SEND, task->pass, forward ? stage + 1 : stage - 1,
						 task->microbatch});
	}
	assert_int_equal(received, order->input_count);
}

/* One event of the rank, or none: a send and its receive happen together. */
static bool advance(struct rank *rank, int size)
{
	if (rank->at == rank->count || rank->events[rank->at].what == RECEIVE)
		return false;
	const struct event *event = &rank->events[rank->at];
	if (event->what == SEND) {
		struct rank *peer = &ranks[event->stage % size];
		const struct event *other = &peer->events[peer->at];
		if (peer->at == peer->count || other->what != RECEIVE || other->pass != event->pass ||
		    other->stage != event->stage || other->microbatch != event->microbatch)
			return false;
		peer->at++;
	}
	rank->at++;
	return true;
}

static void run_all(int size)
{
	for (bool moved = true; moved;) {
		moved = false;
		for (int r = 0; r < size; r++)
			moved |= advance(&ranks[r], size);
	}
	for (int r = 0; r < size; r++)
		assert_int_equal(ranks[r].at, ranks[r].count);
}

/* Each task once, backward after forward, and no more micro-batches under way than it takes. */
static void check_tasks(const struct pipeline_order *order)
{
	bool done[2][PIPELINE_CHUNKS][MICROBATCHES] = {0};
	int ahead = 0, most = 2 * (order->ranks - order->rank - 1) + order->ranks + 1;
	assert_int_equal(order->task_count, 2 * PIPELINE_CHUNKS * order->microbatches);
	for (int i = 0; i < order->task_count; i++) {
		const struct pipeline_task *task = &order->tasks[i];
		bool *mine = &done[task->pass][task->chunk][task->microbatch];
		assert_false(*mine);
		*mine = true;
		if (task->pass == PIPELINE_BACKWARD)
			assert_true(done[PIPELINE_FORWARD][task->chunk][task->microbatch]);
		ahead += task->pass == PIPELINE_FORWARD ? 1 : -1;
		assert_true(ahead <= most);
	}
}

static void any_number_of_ranks_and_microbatches(void **state)
{
	(void)state;
	for (int size = 2; size <= RANKS; size++)
		for (int microbatches = 1; microbatches <= MICROBATCHES; microbatches++) {
			int ticks = 0;
			for (int r = 0; r < size; r++) {
				struct pipeline_order *order = &ranks[r].order;
				assert_true(pipeline_order_init(order, size, r, microbatches));
				check_tasks(order);
				list_events(&ranks[r]);
				int tick = order->tasks[order->task_count - 1].tick + 1;
				ticks = tick > ticks ? tick : ticks;
			}
			run_all(size);
			/* The work of one rank, and the way through all of them once. */
			if (microbatches % size == 0)
				assert_int_equal(ticks, 4 * microbatches + 2 * (size - 1));
			for (int r = 0; r < size; r++)
				pipeline_order_fini(&ranks[r].order);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_number_of_ranks_and_microbatches),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
