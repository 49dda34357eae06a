/* SPDX-License-Identifier: BSD-3-Clause
 * A collective is a plan: for each rank an array of small steps, computed by pure functions of
 * (collective, algorithm, rank, size). No I/O, no clock, no locks, no global state here. The engine
 * runs the steps, the trace shows the cursor, the diagnosis compares cursors, `lockstep plan` prints
 * them, and the tests run every plan for every size in one process.
 *
 * Buffers. A rank has INPUT and OUTPUT (equal when in place) and, if the plan asks for it, SCRATCH of
 * the same size, which only the rank itself touches. The element range is cut into plan->blocks nearly
 * equal blocks; a step names the block range [block, block + blocks). How many elements a block has
 * is the engine's business (plan_block_range), so one plan serves every count.
 *
 * Windows and signals. INPUT and OUTPUT can be read by peers between signals; in plans that say so
 * (PLAN_REDUCE_ALL) peers write OUTPUT too. A rank has one phase counter per collective: 0 when it
 * has entered (its header and input are published), then PLAN_SIGNAL raises it. PLAN_AWAIT waits until
 * the peer's counter is at least `phase`. Single writer, monotone: no signal can be lost or mixed up.
 * Whatever a rank reads from or writes to a peer's window must be ordered by such a pair; the
 * simulator (test/model) carries vector clocks and refuses anything else, also between three
 * consecutive collectives: a rank that leaves must know that nobody touches its buffers any more.
 *
 * In a PLAN_SLOT plan peers read the payload that an entry published in place of its INPUT window. It
 * is protected by the rule of K: a rank enters collective k + K only when all ranks have left k.
 *
 * Messages. PLAN_SEND and PLAN_RECV between two ranks are a FIFO link. Without choice the whole is a
 * Kahn network: one run per size and link capacity covers every schedule. Plans need links that take
 * one message while none is outstanding (capacity 1), no more. PLAN_SEND does not wait for the
 * receiver, and the payload may stay where it is until it is taken: a plan writes to blocks that it sent
 * only after something has shown that they were taken, be it a message back or PLAN_AWAIT with
 * PLAN_UNTIL_TAKEN. A rank leaves a collective when all payloads it sent in it have been taken. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum plan_collective { PLAN_ALLREDUCE, PLAN_BROADCAST, PLAN_BARRIER, PLAN_COLLECTIVE_COUNT };

enum plan_algorithm {
	PLAN_NONE = 0,
	/* Payloads travel inside the entry headers: every rank reads all of them and reduces for itself.
	 * One synchronisation; for payloads up to the size of a slot. */
	PLAN_SLOT,
	/* Rank i reduces slice i from all windows and stores it to all windows: 2pS bytes of traffic,
	 * the least possible. Two synchronisations. */
	PLAN_DIRECT,
	PLAN_RING, /* reduce-scatter, then all-gather, around a ring; broadcast: a chain of blocks */
	PLAN_DOUBLING, /* recursive doubling, with a fold for sizes that are no power of two;
			* barrier: dissemination */
	PLAN_TREE,     /* binomial: reduce to the root, then broadcast */
	PLAN_ALGORITHM_COUNT
};

enum plan_kind {
	PLAN_SIGNAL = 1, /* raise my phase to `phase` */
	PLAN_AWAIT, /* wait until peer's phase is at least `phase`; peer PLAN_ALL: of all others;
			  * with PLAN_UNTIL_TAKEN: until peer has taken all payloads I sent it */
	PLAN_REDUCE_ALL, /* blocks of INPUT of all ranks, combined in rank order, to OUTPUT of all ranks,
			  * or with PLAN_TO_SELF to my OUTPUT only; applies the average's division */
	PLAN_COPY,    /* blocks from peer's `from` window to my `to` buffer (peer may be myself) */
	PLAN_SEND,    /* blocks of my `from` buffer (not SCRATCH) to peer */
	PLAN_RECV,    /* blocks from peer into my `to` buffer */
	PLAN_COMBINE, /* my OUTPUT = OUTPUT op SCRATCH, or with PLAN_SCRATCH_FIRST SCRATCH op OUTPUT */
	PLAN_SCALE, /* divide blocks of my OUTPUT by the number of ranks, if the op is the average */
	PLAN_KIND_COUNT
};

enum plan_buffer { PLAN_INPUT, PLAN_OUTPUT, PLAN_SCRATCH };

enum {
	PLAN_ALL = -1,    /* as a peer: every other rank */
	PLAN_TO_SELF = 1, /* flags */
	PLAN_SCRATCH_FIRST = 2,
	PLAN_UNTIL_TAKEN = 4,
	PLAN_SIZE_MAX = 64,
	PLAN_TEXT_BYTES = 96,
};

struct plan_step {
	uint8_t kind; /* enum plan_kind */
	uint8_t flags;
	uint8_t from; /* enum plan_buffer */
	uint8_t to;
	int16_t peer;
	uint16_t phase;
	uint16_t block;
	uint16_t blocks; /* 0: a message without payload */
};
_Static_assert(sizeof(struct plan_step) == 12, "a step stays small");

struct plan {
	uint8_t collective;
	uint8_t algorithm;
	bool needs_scratch;
	/* Peers read or write this rank's windows: its buffers must lie in memory they can reach. True of
	 * every rank in a direct all-reduce, of the root alone in a direct broadcast. */
	bool uses_windows;
	uint16_t rank, size, root;
	uint16_t blocks;    /* into how many the element range is cut, at least 1 */
	uint16_t phase_end; /* highest phase any rank signals */
	uint32_t step_count;
	struct plan_step *steps; /* owned by the caller of plan_build */
};

struct plan_request {
	enum plan_collective collective;
	enum plan_algorithm algorithm;
	int rank, size, root; /* root: 0 where the collective has none */
	bool in_place;        /* OUTPUT is INPUT */
};

/* Upper bound of steps of any plan for this request; it depends on the size only. */
size_t plan_steps_max(const struct plan_request *request);

/* Builds into `steps` (room for plan_steps_max). False if the collective does not have the algorithm
 * or an argument is out of range; *out is zeroed then. Size 1 gives the local copy, if any. Every step
 * of a plan is needed: test/model shows that no plan works without any one of its steps. */
bool plan_build(const struct plan_request *request, struct plan_step *steps, struct plan *out);

/* Whether the collective has this algorithm. */
bool plan_has(enum plan_collective collective, enum plan_algorithm algorithm);

/* The algorithm for `bytes` of payload; `slot_bytes` is what fits into an entry header. Pure: the same
 * answer on all ranks. `wanted` (PLAN_NONE: none) wins where the collective has it and, for PLAN_SLOT,
 * the payload fits. */
enum plan_algorithm plan_choose(enum plan_collective collective, uint64_t bytes,
				uint64_t slot_bytes, int size, enum plan_algorithm wanted);

/* First element and number of elements of blocks [block, block + blocks) out of `total` blocks of
 * `count` elements; block borders are multiples of `align` elements. Covers all elements once. */
void plan_block_range(uint64_t count, unsigned align, unsigned total, unsigned block,
		      unsigned blocks, uint64_t *first, uint64_t *elements);

/* Names as `lockstep plan` takes them: "allreduce", "ring", …; "?" outside the range. */
const char *plan_collective_name(unsigned collective);
const char *plan_algorithm_name(unsigned algorithm); /* PLAN_NONE: "none" */
const char *plan_kind_name(unsigned kind);
/* The value for a name, -1 if there is no such collective or algorithm. */
int plan_collective_from(const char *name);
int plan_algorithm_from(const char *name);

/* One step as a person reads it: "await rank 3, phase 1", "reduce block 2 of all ranks to all ranks". Always
 * terminated, cut to `bytes`; PLAN_TEXT_BYTES hold any. */
void plan_step_text(const struct plan *plan, const struct plan_step *step, char *out, size_t bytes);

#endif
