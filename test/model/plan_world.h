/* SPDX-License-Identifier: BSD-3-Clause
 * The state of a simulated group: buffers whose elements remember what was done to them, vector clocks,
 * entry slots, links. Shared by plan_sim.c (time: who runs, steps) and plan_world.c (memory: who may
 * touch what). */
#ifndef TEST_MODEL_PLAN_WORLD_H
#define TEST_MODEL_PLAN_WORLD_H

#include <assert.h>

#include "plan_sim.h"

enum {
	WORLD_PHASES = 4,
	WORLD_FINISHED = 4 * PLAN_SIM_SLOTS, /* how many last departures are remembered */
	WORLD_SLOT = PLAN_SCRATCH + 1,       /* first of the buffers that are entry slots */
	WORLD_BUFFERS = WORLD_SLOT + PLAN_SIM_SLOTS,
};

/* A value that shows how it came about. Combining is neither commutative nor associative: equal hashes
 * on all ranks mean the same operands in the same order. */
struct element {
	uint64_t hash;
	uint64_t ranks; /* bit r: rank r's input is contained; twice is an error */
	uint32_t index; /* WORLD_GARBAGE: overwritten, never written, or combined wrongly */
	uint16_t op;
	uint16_t scaled; /* how often it was divided */
};
#define WORLD_GARBAGE UINT32_MAX

/* A clock counts the releases of each rank (entry, signal, send, take, departure) that are known to have
 * happened. Rank r's own component is what it will release next, so its accesses at that value are
 * known to whoever has clock[r] >= value. Small and of one length, as clocks are most of the work. */
struct clock {
	int16_t at[PLAN_SIZE_MAX];
};

/* Who touched a block last. */
struct cell {
	int16_t written; /* by `writer`, at this value of its own clock */
	uint16_t writer;
	bool is_read; /* reads is valid: since then, by whom, and when */
	struct clock reads;
};

struct buffer {
	int op; /* the collective it belongs to, -1: none */
	struct element *elements;
	struct cell *cells; /* [PLAN_SIZE_MAX], one for each block */
};

struct entry {
	int op; /* -1: never used */
	int phase;
	int16_t entered;                   /* the rank's own clock then */
	struct clock clocks[WORLD_PHASES]; /* when each phase was signalled */
};

struct message {
	int op;
	enum plan_buffer from;
	unsigned block, blocks;
	uint32_t first, count;
	struct clock clock;
	struct element copy[];
};

struct link {
	struct message *queue[PLAN_SIM_CAPACITY];
	int head, length;
	uint64_t sent, taken;
	struct clock clock; /* of the receiver, when it last took one */
};

enum stage { STAGE_ENTER, STAGE_STEPS, STAGE_LEAVE };

struct rank {
	int number;
	int op; /* the collective it is in, or about to enter */
	enum stage stage;
	bool in_place;
	uint32_t step;
	struct plan plan;
	struct plan_step *steps;
	uint32_t start[PLAN_SIZE_MAX + 1]; /* first element of each block */
	uint64_t sent_to;                  /* bit q: has sent q a payload that stays here */
	struct clock clock;
	struct clock finished[WORLD_FINISHED];
	struct entry entries[PLAN_SIM_SLOTS];
	struct buffer buffers[WORLD_BUFFERS];
};

struct world {
	const struct plan_sim *sim;
	uint32_t count_max;
	struct rank *ranks;
	struct link *links; /* [from * size + to] */
	uint64_t *results;  /* [op][count_max]: hashes that the first rank to leave had */
	bool *known;        /* [op]: results are there */
	char *report;
	bool failed;
};

bool world_init(struct world *world, const struct plan_sim *sim, char *report);
void world_fini(struct world *world);

/* Says what is wrong, where; only the first counts. Always false. */
bool world_refuse(struct world *world, const struct rank *rank, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

void world_merge(struct rank *rank, const struct clock *clock);
/* What the rank does from here on is not covered by what it has released so far. */
static inline void world_tick(struct rank *rank)
{
	assert(rank->clock.at[rank->number] < INT16_MAX);
	rank->clock.at[rank->number]++;
}

/* The rank's buffer `which`, that is INPUT for OUTPUT where it works in place. */
struct buffer *world_buffer(struct rank *rank, unsigned which);
/* Whether `actor` may read or write these blocks of `owner`'s buffer now, and notes that it has. */
bool world_access(struct world *world, struct rank *actor, struct rank *owner, unsigned which,
		  unsigned block, unsigned blocks, bool write);
/* Fills the buffers of a collective that is being entered. */
bool world_enter(struct world *world, struct rank *rank);
/* Checks the result, then rewrites the buffers, as a user may. */
bool world_leave(struct world *world, struct rank *rank);

/* *sum = *sum op *next. */
void world_combine(struct element *sum, const struct element *next);

static inline const struct plan_sim_op *world_op(const struct world *world, const struct rank *rank)
{
	return &world->sim->ops[rank->op];
}
static inline struct link *world_link(const struct world *world, int from, int to)
{
	return &world->links[from * world->sim->size + to];
}

#endif
