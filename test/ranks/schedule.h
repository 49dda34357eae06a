/* SPDX-License-Identifier: BSD-3-Clause
 * Random programs of sends, receives, batches and collectives for 2 to 6 ranks, and a reference
 * matcher that says of each whether it comes to its end or to a deadlock, whatever the timing. Pure
 * functions: every rank works out the same. A program ends with a wait for all that is under way,
 * and a barrier, so that in a deadlock every rank is stuck somewhere. */
#ifndef TEST_RANKS_SCHEDULE_H
#define TEST_RANKS_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SCHEDULE_RANKS = 6,
	SCHEDULE_ACTIONS = 64, /* of a rank: as many as a set has bits */
	SCHEDULE_TAGS = 4,
	SCHEDULE_ANY = -1,        /* of a receive: any source, any tag */
	SCHEDULE_BUFFERED = 4096, /* a longer message stays with its sender until it is received */
	SCHEDULE_ENDS = 8,
	SCHEDULE_TEXT = 960,
};

enum schedule_kind {
	SCHEDULE_SEND,
	SCHEDULE_RECV,
	SCHEDULE_COLLECTIVE,
	SCHEDULE_WAIT,     /* for all of a set of actions that do not block */
	SCHEDULE_WAIT_ANY, /* for one of them */
	/* begins; up to its end there are only sends and receives that do not block */
	SCHEDULE_BATCH,
	SCHEDULE_BATCH_END, /* if it blocks, for all of the batch */
};

enum schedule_collective {
	SCHEDULE_BARRIER,
	SCHEDULE_ALLREDUCE,
	/* Those after whose end some rank may not have begun: never beside receives of any source,
	 * as the matcher takes all collectives for ones that end on no rank before all have
	 * begun. */
	SCHEDULE_BROADCAST,
	SCHEDULE_ALLGATHER,
	SCHEDULE_COLLECTIVES
};

struct schedule_action {
	uint8_t kind; /* enum schedule_kind */
	bool blocks;
	bool batched;       /* has no handle, its batch has */
	int8_t peer, tag;   /* of a send or receive */
	uint8_t collective; /* enum schedule_collective */
	uint8_t root;
	uint32_t count; /* of a collective: elements */
	/* random: how it is called, where that makes no difference to the matcher */
	uint32_t choice;
	uint64_t of; /* a set of earlier actions: of a wait, and of the end of a batch */
};

struct schedule_program {
	int count;
	struct schedule_action actions[SCHEDULE_ACTIONS];
};

struct schedule {
	int ranks;
	int limit;   /* unmatched messages under way from one rank to another */
	bool by_tag; /* how long a message is follows from its tag; otherwise from its receiver */
	uint32_t bytes[SCHEDULE_RANKS];
	struct schedule_program programs[SCHEDULE_RANKS];
};

/* How long a message, or what an action receives, is. A receive of any tag where lengths follow
 * from tags has to ask first (schedule_must_probe). */
uint32_t schedule_bytes(const struct schedule *schedule, int receiver, int tag);
bool schedule_must_probe(const struct schedule *schedule, const struct schedule_action *action);
/* Which of a rank's messages to that receiver with that tag action `i` sends, from 0. */
int schedule_number(const struct schedule_program *program, int i);
/* All on one line, for a note. */
void schedule_text(const struct schedule_program *program, char *text, size_t bytes);

/* ---- schedule_judge.c ---- */

enum schedule_outcome {
	SCHEDULE_ENDS_WELL,
	SCHEDULE_DEADLOCKS,
	SCHEDULE_DEPENDS, /* on which message a receive of any source gets */
	SCHEDULE_TOO_LARGE,
};

/* One way in which all ranks have come to a stop. */
struct schedule_end {
	/* The action a rank is stuck in; how many it has, if it has come to its end. */
	uint8_t at[SCHEDULE_RANKS];
	/* Bit q: what the rank is stuck in waits for rank q to go on, … */
	uint8_t waits[SCHEDULE_RANKS];
	/* …or something else of its does, or it waits in a collective for which rank q itself
	 * waits. */
	uint8_t touches[SCHEDULE_RANKS];
	/* Actions that are over: the buffer is the rank's again. */
	uint64_t over[SCHEDULE_RANKS];
	/* What a receive has got: the sender, and its action. Source -1: nothing. */
	int8_t source[SCHEDULE_RANKS][SCHEDULE_ACTIONS];
	uint8_t sent[SCHEDULE_RANKS][SCHEDULE_ACTIONS];
};

struct schedule_verdict {
	enum schedule_outcome outcome;
	bool leftover; /* in some end a message is not received */
	/* no receive had a choice, so there is one end, which says what each has got */
	bool unique;
	int end_count; /* different ones: of a deadlock all of them, else one */
	struct schedule_end ends[SCHEDULE_ENDS];
};

void schedule_judge(const struct schedule *schedule, struct schedule_verdict *verdict);

/* One step of a report: `rank` waits for `peer`. */
struct schedule_hop {
	int rank, peer;
};
/* Whether the hops are a cycle that this end has, which really keeps its ranks from going on. */
bool schedule_is_cycle(const struct schedule_end *end, const struct schedule_hop *hops, int count);

/* ---- schedule.c ---- */

/* The schedule that belongs to `seed`, and its verdict, which is that it ends well or that it
 * deadlocks. */
void schedule_make(uint64_t seed, int ranks, int limit, struct schedule *schedule,
		   struct schedule_verdict *verdict);
/* One in which every rank makes its calls in the order of one sequence of messages and collectives,
 * and in which all but sends to oneself block: it must end well. */
void schedule_make_legal(uint64_t seed, int ranks, int limit, struct schedule *schedule);

#endif
