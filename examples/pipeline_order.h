/* SPDX-License-Identifier: BSD-3-Clause
 * In which order each rank of an interleaved pipeline computes, receives and sends. Two chunks of
 * the model lie on each rank: stage s, one layer, is chunk s / ranks of rank s % ranks. */
#ifndef PIPELINE_ORDER_H
#define PIPELINE_ORDER_H

#include <stdbool.h>

enum { PIPELINE_CHUNKS = 2, PIPELINE_RANKS_MAX = 64 };
enum pipeline_pass { PIPELINE_FORWARD, PIPELINE_BACKWARD };

/* One micro-batch through one chunk. */
struct pipeline_task {
	enum pipeline_pass pass;
	int chunk, microbatch;
	int tick;     /* the tick in which it is computed, if all tasks take the same time */
	int receives; /* how many receives the rank has to call before it */
};

/* A message: the data that the task of this pass, chunk and micro-batch needs. */
struct pipeline_input {
	enum pipeline_pass pass;
	int chunk, microbatch;
	int tick, source; /* when the data are computed, and by which rank */
};

struct pipeline_order {
	int ranks, rank, microbatches;
	int task_count, input_count;
	struct pipeline_task *tasks;
	struct pipeline_input *inputs; /* in the order of the receives */
};

/* Forward and backward pass of each micro-batch through each chunk take turns, as soon as the first
 * micro-batch is back (1F1B); before that each rank goes so far ahead as it takes to keep the later
 * ones busy.
 *
 * All messages have one order: by tick, then by sender. A rank sends and receives in that order, so
 * no two ranks can wait for each other, even if every message of a rank had to wait for the one
 * before it. False: no memory. */
bool pipeline_order_init(struct pipeline_order *order, int ranks, int rank, int microbatches);
void pipeline_order_fini(struct pipeline_order *order);

#endif
