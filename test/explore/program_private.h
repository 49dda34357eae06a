/* SPDX-License-Identifier: BSD-3-Clause
 * A program while it runs: what its lanes have under way, and in which memory. */
#ifndef TEST_EXPLORE_PROGRAM_PRIVATE_H
#define TEST_EXPLORE_PROGRAM_PRIVATE_H

#include "operation.h"
#include "program.h"
#include "scheduler.h"

enum { NAME_BYTES = 16, LABEL_BYTES = 32, REGION_BYTES = 65536, REGION_SLOTS = 4 };

/* Only these functions change words that other threads of the harness read. */
static inline int word_read(const int *word)
{
	return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

/* Words only grow. Wakes the threads that await the word; they may free it at once. Under the
 * scheduler no other thread runs meanwhile; with real threads this takes a lock. */
int word_add(int *word, int more);

/* Memory for messages, each of `stride` bytes, with a guard behind it. */
struct memory_piece {
	unsigned char *at;
	size_t bytes;
	enum program_memory sort;
	int slot; /* of the registered region; -1: the memory is not registered */
};

/* A half that has begun. */
struct half_run {
	int event, due;
	bool batched, receives, waits_any;
	int count;        /* calls */
	ls_request **ops; /* NULL: the operation is over, or the half has no handle */
	ls_status status; /* of the first call that did not return LS_OK */
	/* of callbacks: how many have come; 1 + the first status that was not LS_OK */
	int called, bad;
	int callbacks; /* how many will come; 0: the half has handles */
	size_t bytes, stride;
	struct memory_piece memory;
	struct ls_message *messages; /* of receives */
	void **blocks;               /* received ones */
	struct operation *operation; /* of a collective */
};

struct lane_run {
	struct program_run *run;
	int number, rank;
	int thread; /* of the scheduler */
	char name[NAME_BYTES];
	int halves; /* begun */
	int count;
	struct half_run *under_way[PROGRAM_EVENTS];
	int batch;             /* the group in which the lane has one; -1: none */
	unsigned char *region; /* NULL: none */
	bool registered;
	unsigned slots; /* taken */
};

struct program_run {
	const struct program *program;
	struct program_expectation expectation;
	struct program_results results;
	int order, ranks_over;
	ls_group *groups[PROGRAM_RANKS][PROGRAM_GROUPS];
	int made[PROGRAM_RANKS][PROGRAM_GROUPS];     /* 1: made, or never will be */
	int came[PROGRAM_RANKS];                     /* lanes that have begun */
	int finished[PROGRAM_RANKS][PROGRAM_GROUPS]; /* halves in it that are over */
	int over[PROGRAM_LANES][PROGRAM_EVENTS];
	struct lane_run lanes[PROGRAM_LANES];
};

/* ---- program_run.c ---- */

_Noreturn void lane_fail(const struct lane_run *lane, int event, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
ls_group *lane_group(const struct lane_run *lane, int group);
struct ls_call_options lane_options(const struct lane_run *lane, int event, char label[LABEL_BYTES]);
/* Call when a half of the lane is over. */
void lane_over(struct lane_run *lane, int event, ls_status status);

/* ---- program_half.c ---- */

struct half_run *half_new(struct lane_run *lane, int event, bool receives);
/* The half is over: checks the data if it ended well, frees the half, and tells the lane. */
void half_over(struct lane_run *lane, struct half_run *half);
/* Notes the status of one of its calls. */
void half_note(struct half_run *half, ls_status status);
/* The options for call `i`, as the form of the half needs them. *op receives the handle. */
void half_options(struct half_run *half, const struct program_half *as, int i,
		  struct ls_call_options *options);
/* Adds a half with handles or callbacks to those that the lane waits for later. */
void half_leave(struct lane_run *lane, struct half_run *half);
/* Waits for the halves that are due before the lane begins `next` (-1: nothing); for all in `group`
 * (-1: in any); or for all. */
void half_flush(struct lane_run *lane, int group, bool all, int next);

/* ---- program_message.c ---- */

void message_begin(struct lane_run *lane, int event);
void message_check(const struct lane_run *lane, const struct half_run *half);
void message_free(struct lane_run *lane, struct half_run *half);
void blocks_run(struct lane_run *lane, int event);
void cancel_run(struct lane_run *lane, int event);

/* ---- program_group.c ---- */

void collective_begin(struct lane_run *lane, int event);
void group_make(struct lane_run *lane, int event);
void group_close_one(struct lane_run *lane, int event);
void region_register(struct lane_run *lane, int event);
void region_deregister(struct lane_run *lane, int event);
void region_free(struct lane_run *lane);
struct memory_piece memory_take(struct lane_run *lane, size_t bytes, enum program_memory sort);
void memory_give(struct lane_run *lane, struct memory_piece *piece);

#endif
