/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of stream_program.h share.
 *
 * Why such a program cannot deadlock: the first threads of all ranks do the same steps in the same
 * order, and a send before the receive of the same step. So the first step that is not complete can
 * always continue, whichever hardware queues the streams share. Second threads that communicate on
 * streams need queues of their own, and calls that block in the driver must not delay the other
 * thread (is_apart). */
#ifndef SIM_STREAM_PROGRAM_PRIVATE_H
#define SIM_STREAM_PROGRAM_PRIVATE_H

#include "base/wait.h"
#include "sim.h"
#include "stream_program.h"

enum {
	STEPS = 12, /* of a thread */
	GROUPS = 3, /* all ranks; some; all, for the second thread */
	FIRST_STREAMS = 3,
	SECOND_STREAMS = 2,
	STREAMS = FIRST_STREAMS + SECOND_STREAMS,
	ON_HOST = -1,
	TEXT_BYTES = 256,
};

enum kind {
	ALLREDUCE,
	BROADCAST,
	REDUCE,
	ALLGATHER,
	ALLTOALL,
	BARRIER,
	SHIFT,   /* each rank sends to the next one */
	ONE_WAY, /* from root to the next rank */
	KINDS,
};

/* LATER: the thread waits at the end */
enum form { NO_HANDLE, HANDLE, LATER, CALLBACK, BATCH, FORMS };
enum where { DEVICE_MEMORY, HOST_MEMORY, IN_PLACE, PLACES };

struct step {
	enum kind kind;
	enum form form;
	enum where where;
	/* follows: another stream that reads the result; ON_HOST: none */
	int group, stream, follows;
	int count, root, tag;
	bool begins, ends; /* a launch: see ls_launch_begin */
	bool frees_late;
};

/* How one step of one thread ended. */
struct note {
	int32_t *in, *out;
	void *send, *recv; /* blocks of the device that are freed at the end */
	ls_request *ops[2];
	_Atomic int callbacks;
	int expected_callbacks;
	bool called; /* all of the operations are under way */
};

struct rank_state {
	struct sim *sim;
	ls_group *groups[GROUPS];
	struct sim_stream *streams[STREAMS];
	struct wait_bell bell, *bell_at;
	_Atomic uint64_t failed, stored[STREAMS];
	uint64_t numbers[STREAMS];
	struct note notes[STREAM_PROGRAM_THREADS][STEPS];
	bool in_launch[STREAM_PROGRAM_THREADS];
	bool failed_in[STREAM_PROGRAM_THREADS]; /* it has seen an error */
	bool stopped;                           /* it leaves */
	bool last;                              /* it has reached its last call */
	bool ended;
	char why[TEXT_BYTES]; /* of a healthy program: the first failure */
};

struct stream_program {
	uint64_t seed;
	int ranks, threads;
	bool shares;   /* one simulated process */
	bool is_apart; /* second threads communicate on streams */
	bool serial, blocking, barrier, forgets;
	bool checks; /* LOCKSTEP_CHECK=1, which must find nothing */
	int queues, depth, free_mode, small;
	bool launch_waits;
	enum stream_program_fault fault;
	int culprit, at; /* which step; or which call of the driver */
	int counts[STREAM_PROGRAM_THREADS];
	struct step steps[STREAM_PROGRAM_THREADS][STEPS];
	struct rank_state all[STREAM_PROGRAM_RANKS];
	char settings[TEXT_BYTES];
};

/* ---- stream_program.c ---- */

static inline uint64_t draw_of(uint64_t *random, uint64_t limit)
{
	*random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (*random >> 33) % limit;
}
int size_of(const struct stream_program *program, int group);
/* The number of a rank in the group; -1: it is not a member. */
int place_in(const struct stream_program *program, int group, int rank);
/* How many elements a member gives and gets in this step. */
int in_count(const struct stream_program *program, const struct step *step, int place);
int out_count(const struct stream_program *program, const struct step *step, int place);
int32_t value_of(int place, int thread, int step, int i);
int32_t expected_at(const struct stream_program *program, int thread, int number, int place, int i);
/* In a healthy program: keeps the first failure. */
void wrong(struct rank_state *state, const char *what, int step, int value);

/* ---- stream_program_play.c ---- */

/* Waits until the stream has done all its work. False: the device has failed. */
bool await_stream(struct rank_state *state, int stream);
/* Waits for the handles, and frees them. */
void end_handles(struct stream_program *program, int rank, int thread);
void give_up(struct stream_program *program, int rank, int thread);

#endif
