/* SPDX-License-Identifier: BSD-3-Clause
 * The state of a simulated group: buffers whose elements remember what was done to them, vector
 * clocks, entry slots, links. Shared by plan_sim.c (time: who runs, steps), plan_world.c (memory:
 * who may touch what) and plan_data.c (data: what is where, and what must come of it). */
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

/* A value that shows how it came about. Combining is neither commutative nor associative: equal
 * hashes on all ranks mean the same operands in the same order. */
struct element {
	uint64_t hash;
	/* sum of a number for each rank whose input is contained; twice is an error */
	uint64_t ranks;
	uint32_t index; /* WORLD_GARBAGE: overwritten, never written, or combined wrongly */
	uint16_t op;
	uint16_t scaled; /* how often it was divided */
};
#define WORLD_GARBAGE UINT32_MAX

/* A clock counts the releases of each rank (entry, signal, send, take, departure) that are known to
 * have happened. Rank r's own component is what it will release next, so its accesses at that value
 * are known to whoever has clock[r] >= value. Small, and of one length (world.width), as clocks are
 * most of the work. */
typedef int16_t clock_value;

/* Who touched a block last. */
struct cell {
	clock_value written; /* by `writer`, at this value of its own clock */
	uint16_t writer;
	/* since then, by `reader`; 0: by nobody, CELL_SHARED: by those in reads */
	clock_value read;
	uint16_t reader;
	clock_value *reads; /* NULL until two ranks read it between two writes */
};
#define CELL_SHARED ((clock_value)-1)

struct buffer {
	int op; /* the collective it belongs to, -1: none */
	struct element *elements;
	struct cell *cells; /* one for each block */
};

struct entry {
	int op; /* -1: never used */
	int phase;
	clock_value entered;               /* the rank's own clock then */
	clock_value *clocks[WORLD_PHASES]; /* when each phase was signalled */
};

struct message {
	int op;
	enum plan_buffer from;
	unsigned block, blocks;
	uint32_t count;
	struct element *copy; /* of the payload; behind the clock, if at all */
	clock_value clock[];
};

struct link {
	struct message *queue[PLAN_SIM_CAPACITY];
	uint8_t head, length;
	bool stays;           /* a payload was sent that lies with the sender until it is taken */
	clock_value taken_at; /* of the receiver's own clock, when it last took one */
	uint32_t sent, taken;
};

enum stage { STAGE_ENTER, STAGE_STEPS, STAGE_LEAVE };

struct rank {
	int number;
	int op; /* the collective it is in, or about to enter */
	enum stage stage;
	bool in_place; /* its buffers of this collective really are one */
	uint32_t step;
	struct plan plan;
	struct plan_step *steps;
	uint16_t *sent_to; /* peers whose link has `stays` set */
	int sent_count;
	/* enum plan_reach that was made use of; of SCRATCH: whether */
	uint8_t used[PLAN_SCRATCH + 1];
	clock_value *clock;
	clock_value *finished[WORLD_FINISHED];
	struct entry entries[PLAN_SIM_SLOTS];
	struct buffer buffers[WORLD_BUFFERS];
	clock_value *clocks; /* the memory of all the above */
};

struct plan_world {
	const struct plan_sim *sim;
	int width;             /* of a clock; 0: accesses are not ordered */
	uint64_t all_ranks;    /* sum of their numbers */
	unsigned cells;        /* of a buffer */
	bool has_entries;      /* as some operation needs them */
	uint32_t count_max;    /* elements of any call */
	uint32_t elements_max; /* of any buffer */
	struct rank *ranks;
	struct link *links; /* [from * size + to] */
	uint64_t *results;  /* [op][count_max]: hashes that the first rank to leave had */
	bool *known;        /* [op]: results are there */
	char *report;
	bool failed;
};

bool plan_world_init(struct plan_world *world, const struct plan_sim *sim, char *report);
void plan_world_fini(struct plan_world *world);

/* Says what is wrong, where; only the first counts. Always false. */
bool plan_world_refuse(struct plan_world *world, const struct rank *rank, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

void plan_world_copy(const struct plan_world *world, clock_value *to, const clock_value *from);
/* The rank knows from now on what the clock says. */
void plan_world_merge(const struct plan_world *world, struct rank *rank, const clock_value *clock);
/* What the rank does from here on is not covered by what it has released so far. */
static inline void plan_world_tick(struct rank *rank)
{
	assert(rank->clock[rank->number] < INT16_MAX);
	rank->clock[rank->number]++;
}

/* Whether they share a host, so that windows and signals reach from one to the other. */
static inline bool plan_world_share(const struct plan_world *world, int rank, int other)
{
	const struct plan_topology *topology = world->sim->topology;
	return !topology || topology->hosts[rank] == topology->hosts[other];
}

/* Some blocks of a buffer. */
struct span {
	struct element *elements;
	uint32_t count;
};

/* Whether `actor` may read or write these blocks of `owner`'s buffer now, and notes that it has. */
bool plan_world_access(struct plan_world *world, struct rank *actor, struct rank *owner,
		       unsigned which, unsigned block, unsigned blocks, bool write,
		       struct span *out);
/* Makes the buffer one of the rank's collective, all its blocks written by the rank. */
bool plan_world_open(struct plan_world *world, struct rank *rank, unsigned which);

/* Where blocks of a buffer lie: in which one (that is the other where it works in place), from
 * which element on, how many, and in which cell the first one begins. */
struct place {
	unsigned which, cell;
	uint32_t first, count;
};
struct place data_place(const struct plan_sim_op *op, const struct plan *plan,
			const struct rank *owner, unsigned which, unsigned block, unsigned blocks);
/* Elements of the greatest buffer of any rank. */
uint32_t data_elements_max(const struct plan_sim_op *op, int size);

/* Whether the rank has two buffers that may be one. */
bool data_can_be_in_place(const struct plan_sim_op *op, int rank);
/* Fills the buffers of a collective that is being entered. */
bool data_enter(struct plan_world *world, struct rank *rank);
/* Checks the result, then rewrites the buffers, as a user may. */
bool data_leave(struct plan_world *world, struct rank *rank);
/* Sums of these numbers tell which ranks are in them, each once. */
uint64_t data_number_of(int rank);
/* *sum = *sum op *next. */
void data_combine(struct element *sum, const struct element *next);

static inline const struct plan_sim_op *plan_world_op(const struct plan_world *world,
						      const struct rank *rank)
{
	return &world->sim->ops[rank->op];
}
static inline struct link *plan_world_link(const struct plan_world *world, int from, int to)
{
	return &world->links[from * world->sim->size + to];
}

#endif
