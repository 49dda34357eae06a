/* SPDX-License-Identifier: BSD-3-Clause
 * Plays the steps of all ranks in ticks, in each of which a rank computes at most one task. So all
 * that a task needs has been computed in an earlier tick, for any number of micro-batches. */
#include "pipeline_order.h"

#include <stdlib.h>

struct play {
	int ranks, microbatches;
	int *ticks; /* in which each task was computed; -1: not yet */
	int done[2][PIPELINE_RANKS_MAX];
};

static int task_count(const struct play *play)
{
	return PIPELINE_CHUNKS * play->microbatches;
}

static int *tick_of(const struct play *play, enum pipeline_pass pass, int stage, int microbatch)
{
	int stages = PIPELINE_CHUNKS * play->ranks;
	return &play->ticks[((int)pass * stages + stage) * play->microbatches + microbatch];
}

/* The n-th task of a pass: as many micro-batches as there are ranks go through the first chunk,
 * then through the next one. In the backward pass the chunks are in the reverse order. */
static struct pipeline_task nth_task(const struct play *play, enum pipeline_pass pass, int n)
{
	int first = n / (PIPELINE_CHUNKS * play->ranks) * play->ranks;
	int together =
		play->microbatches - first < play->ranks ? play->microbatches - first : play->ranks;
	int place = n - first * PIPELINE_CHUNKS, chunk = place / together;
	return (struct pipeline_task){
		.pass = pass,
		.chunk = pass == PIPELINE_FORWARD ? chunk : PIPELINE_CHUNKS - 1 - chunk,
		.microbatch = first + place % together};
}

/* The stage whose output the task of `stage` needs; -1: none. */
static int needed_stage(const struct play *play, enum pipeline_pass pass, int stage)
{
	if (pass == PIPELINE_FORWARD)
		return stage - 1;
	return stage + 1 < PIPELINE_CHUNKS * play->ranks ? stage + 1 : -1;
}

static bool is_ready(const struct play *play, int rank, enum pipeline_pass pass, int tick,
		     struct pipeline_task *task)
{
	if (play->done[pass][rank] == task_count(play))
		return false;
	*task = nth_task(play, pass, play->done[pass][rank]);
	int stage = task->chunk * play->ranks + rank;
	int needed = needed_stage(play, pass, stage);
	if (pass == PIPELINE_BACKWARD &&
	    *tick_of(play, PIPELINE_FORWARD, stage, task->microbatch) < 0)
		return false;
	if (needed < 0)
		return true;
	int computed = *tick_of(play, pass, needed, task->microbatch);
	return computed >= 0 && computed < tick;
}

/* Chooses the task that the rank computes in this tick. False: none is ready. */
static bool choose(const struct play *play, int rank, int tick, struct pipeline_task *task)
{
	int ahead = play->done[PIPELINE_FORWARD][rank] - play->done[PIPELINE_BACKWARD][rank];
	int warm_up = 2 * (play->ranks - rank - 1) + (PIPELINE_CHUNKS - 1) * play->ranks;
	if (ahead <= warm_up && is_ready(play, rank, PIPELINE_FORWARD, tick, task))
		return true;
	return is_ready(play, rank, PIPELINE_BACKWARD, tick, task) ||
	       is_ready(play, rank, PIPELINE_FORWARD, tick, task);
}

/* Plays all tasks of all ranks, and writes down those of order->rank. */
static void compute_all(struct play *play, struct pipeline_order *order)
{
	int left = 2 * task_count(play) * play->ranks;
	for (int tick = 0; left > 0; tick++)
		for (int r = 0; r < play->ranks; r++) {
			struct pipeline_task task;
			if (!choose(play, r, tick, &task))
				continue;
			task.tick = tick;
			task.receives = 0;
			*tick_of(play, task.pass, task.chunk * play->ranks + r, task.microbatch) =
				tick;
			play->done[task.pass][r]++;
			left--;
			if (r == order->rank)
				order->tasks[order->task_count++] = task;
		}
}

static int compare(const void *left, const void *right)
{
	const struct pipeline_input *a = left, *b = right;
	return a->tick != b->tick ? (a->tick > b->tick) - (a->tick < b->tick)
				  : (a->source > b->source) - (a->source < b->source);
}

static void find_inputs(const struct play *play, struct pipeline_order *order)
{
	for (int i = 0; i < order->task_count; i++) {
		const struct pipeline_task *task = &order->tasks[i];
		int stage = task->chunk * play->ranks + order->rank;
		int needed = needed_stage(play, task->pass, stage);
		if (needed < 0)
			continue;
		order->inputs[order->input_count++] = (struct pipeline_input){
			.pass = task->pass,
			.chunk = task->chunk,
			.microbatch = task->microbatch,
			.tick = *tick_of(play, task->pass, needed, task->microbatch),
			.source = needed % play->ranks};
	}
	qsort(order->inputs, (size_t)order->input_count, sizeof *order->inputs, compare);
	/* A task sends its output in its own tick. So before the task this rank calls the receives
	 * of all earlier messages. */
	for (int i = 0; i < order->task_count; i++) {
		struct pipeline_input mine = {.tick = order->tasks[i].tick, .source = order->rank};
		int *receives = &order->tasks[i].receives;
		*receives = i > 0 ? order->tasks[i - 1].receives : 0;
		while (*receives < order->input_count &&
		       compare(&order->inputs[*receives], &mine) < 0)
			++*receives;
	}
}

bool pipeline_order_init(struct pipeline_order *order, int ranks, int rank, int microbatches)
{
	struct play play = {.ranks = ranks, .microbatches = microbatches};
	size_t tasks = 2 * (size_t)task_count(&play), all = tasks * (size_t)ranks;
	*order = (struct pipeline_order){.ranks = ranks, .rank = rank, .microbatches = microbatches};
	play.ticks = malloc(all * sizeof *play.ticks);
	order->tasks = calloc(tasks, sizeof *order->tasks);
	order->inputs = calloc(tasks, sizeof *order->inputs);
	bool good = play.ticks && order->tasks && order->inputs;
	for (size_t i = 0; good && i < all; i++)
		play.ticks[i] = -1;
	if (good) {
		compute_all(&play, order);
		find_inputs(&play, order);
	} else {
		pipeline_order_fini(order);
	}
	free(play.ticks);
	return good;
}

void pipeline_order_fini(struct pipeline_order *order)
{
	free(order->tasks);
	free(order->inputs);
	*order = (struct pipeline_order){0};
}
