/* SPDX-License-Identifier: BSD-3-Clause
 * The state of a simulated group: buffers whose elements remember what was done to them, vector
 * clocks, entry slots, links. Shared by plan_sim.c (time: which rank runs, steps), plan_world.c
 * (memory: which rank may access what) and plan_data.c (data: what is where, and what the result
 * must be). */
#ifndef TEST_MODEL_PLAN_WORLD_H
#define TEST_MODEL_PLAN_WORLD_H

#include <assert.h>

#include "plan_sim.h"

enum {
	WORLD_PHASES = 4,
	WORLD_FINISHED = 4 * PLAN_SIM_SLOTS, /* how many of the last departures are remembered */
	WORLD_SLOT = PLAN_SCRATCH + 1,       /* the first of the buffers that are entry slots */
	WORLD_BUFFERS = WORLD_SLOT + PLAN_SIM_SLOTS,
};

/* A value that shows how it was made. Combining is neither commutative nor associative, so equal
 * hashes on all ranks mean the same operands in the same order. */
struct element {
	uint64_t hash;
	/* a sum of one number for each rank whose input it has; a number that is in it twice is an
	 * error */
	uint64_t ranks;
	uint32_t index; /* WORLD_GARBAGE: overwritten, never written, or wrongly combined */
	uint16_t op;
	uint16_t scaled; /* how often it was divided */
};
#define WORLD_GARBAGE UINT32_MAX

/* A clock counts the releases of each rank (entry, signal, send, take, departure) that are known to
 * have happened. Rank r's own component is the number of its next release, so a rank knows of r's
 * accesses at that value once its own clock[r] >= value. All clocks are short, and of one length
 * (world.width), because clocks are most of the work. */
typedef int16_t clock_value;

/* The ranks that accessed a block last. */
struct cell {
	clock_value written; /* by `writer`, at this value of its own clock */
	uint16_t writer;
	/* since then, by `reader`; 0: by nobody; CELL_SHARED: by those in `reads` */
	clock_value read;
	uint16_t reader;
	clock_value *reads; /* NULL until two ranks read it between two writes */
};
#define CELL_SHARED ((clock_value)-1)

struct buffer {
	int op; /* the collective that it belongs to; -1: none */
	struct element *elements;
	struct cell *cells; /* one for each block */
};

struct entry {
	int op; /* -1: never used */
	int phase;
	clock_value entered;               /* the rank's own clock at that time */
	clock_value *clocks[WORLD_PHASES]; /* when each phase was signalled */
};

struct message {
	int op;
	enum plan_buffer from;
	unsigned block, blocks;
	uint32_t count;
	struct element *copy; /* of the payload, which is behind the clock, if there is one */
	clock_value clock[];
};

struct link {
	struct message *queue[PLAN_SIM_CAPACITY];
	uint8_t head, length;
	bool stays;           /* a payload was sent that stays with its sender until it is taken */
	clock_value taken_at; /* of the receiver's own clock, when it last took a message */
	uint32_t sent, taken;
};

enum stage { STAGE_ENTER, STAGE_STEPS, STAGE_LEAVE };

struct rank {
	int number;
	int op; /* the collective that it is in, or about to enter */
	enum stage stage;
	bool in_place; /* in this collective its two buffers are one */
	uint32_t step;
	struct plan plan;
	struct plan_step *steps;
	uint16_t *sent_to; /* peers whose link has `stays` set */
	int sent_count;
	/* enum plan_reach: which were used; for SCRATCH: whether */
	uint8_t used[PLAN_SCRATCH + 1];
	clock_value *clock;
	clock_value *finished[WORLD_FINISHED];
	struct entry entries[PLAN_SIM_SLOTS];
	struct buffer buffers[WORLD_BUFFERS];
	clock_value *clocks; /* the memory of all members above */
};

struct plan_world {
	const struct plan_sim *sim;
	int width;             /* of a clock; 0: accesses are not ordered */
	uint64_t all_ranks;    /* sum of their numbers */
	unsigned cells;        /* of a buffer */
	bool has_entries;      /* as many as some operation needs */
	uint32_t count_max;    /* elements of any call */
	uint32_t elements_max; /* of any buffer */
	struct rank *ranks;
	struct link *links; /* [from * size + to] */
	uint64_t *results;  /* [op][count_max]: the hashes of the first rank that left */
	bool *known;        /* [op]: the first rank has left */
	char *report;
	bool failed;
};

bool plan_world_init(struct plan_world *world, const struct plan_sim *sim, char *report);
void plan_world_fini(struct plan_world *world);

/* Says what is wrong, and where. Only the first call counts. Always returns false. */
bool plan_world_refuse(struct plan_world *world, const struct rank *rank, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

void plan_world_copy(const struct plan_world *world, clock_value *to, const clock_value *from);
/* From now on the rank knows what the clock knows. */
void plan_world_merge(const struct plan_world *world, struct rank *rank, const clock_value *clock);
/* The rank releases what it has done so far; its releases do not cover what it does from now on. */
static inline void plan_world_tick(struct rank *rank)
{
	assert(rank->clock[rank->number] < INT16_MAX);
	rank->clock[rank->number]++;
}

/* Whether both are on one host, so that windows and signals reach from one to the other. */
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

/* Whether `actor` may read or write these blocks of `owner`'s buffer now. Records the access. */
bool plan_world_access(struct plan_world *world, struct rank *actor, struct rank *owner,
		       unsigned which, unsigned block, unsigned blocks, bool write,
		       struct span *out);
/* Gives the buffer to the rank's collective, as if the rank had written all its blocks. */
bool plan_world_open(struct plan_world *world, struct rank *rank, unsigned which);

/* Where blocks of a buffer are: in which buffer (the other one, if the rank works in place), from
 * which element on, how many elements, and which cell guards the first block. */
struct place {
	unsigned which, cell;
	uint32_t first, count;
};
struct place data_place(const struct plan_sim_op *op, const struct plan *plan,
			const struct rank *owner, unsigned which, unsigned block, unsigned blocks);
/* How many elements the largest buffer of any rank has. */
uint32_t data_elements_max(const struct plan_sim_op *op, int size);

/* Whether the rank has two buffers that may be one. */
bool data_can_be_in_place(const struct plan_sim_op *op, int rank);
/* Fills the buffers of a collective that the rank enters. */
bool data_enter(struct plan_world *world, struct rank *rank);
/* Checks the result, then overwrites the buffers, as a user may. */
bool data_leave(struct plan_world *world, struct rank *rank);
/* A sum of these numbers shows which ranks are in it, each once. */
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
