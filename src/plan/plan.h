/* SPDX-License-Identifier: BSD-3-Clause
 * A collective is a plan: for each rank an array of small steps, computed by pure functions of
 * (collective, algorithm, rank, size, topology). No I/O, no clock, no locks, no global state here.
 * The engine runs the steps, the trace shows the cursor, the diagnosis compares cursors,
 * `lockstep plan` prints them, and the tests run every plan for every size in one process.
 *
 * Buffers. A rank has INPUT and OUTPUT (in place: the same, or one is a part of the other) and, if
 * the plan asks for it, SCRATCH, laid out as OUTPUT is, which only the rank itself touches. Each is
 * cut into blocks as plan->layout says, on all ranks alike; a step names the block range [block,
 * block + blocks). How many elements a block has is the engine's business (plan_block_range, or the
 * counts of the call), so one plan serves every count, and every list of counts. A plan touches a
 * buffer only on ranks where the call has one, with one exception: in PLAN_REDUCE a rank that is
 * not the root but has an OUTPUT of PLAN_MAPPED needs memory there, for what it has combined so
 * far, laid out as the root's.
 *
 * Windows and signals. As far as plan->reach says so, INPUT and OUTPUT can be read by peers between
 * signals, and OUTPUT can be written by them (PLAN_REDUCE_ALL). A rank has one phase counter per
 * collective: 0 when it has entered (its header and input are published), then PLAN_SIGNAL raises
 * it. PLAN_AWAIT waits until the peer's counter is at least `phase`. Single writer, monotone: no
 * signal can be lost or mixed up. Whatever a rank reads from or writes to a peer's window must be
 * ordered by such a pair; the simulator (test/model) carries vector clocks and refuses anything
 * else, also between three consecutive collectives: a rank that leaves must know that nobody
 * touches its buffers any more.
 *
 * Hosts. Windows and signals are within a host: where plan->hosts is greater than 1, "all ranks" of
 * PLAN_AWAIT and PLAN_REDUCE_ALL are those of the rank's own host, and between hosts there are
 * messages only.
 *
 * In a PLAN_SLOT plan peers read the payload that an entry published in place of its INPUT window:
 * the whole INPUT, laid out as it is. It is protected by the rule of K: a rank enters collective k
 * + K only when all ranks have left k.
 *
 * Messages. PLAN_SEND and PLAN_RECV between two ranks are a FIFO channel. Without choice the whole
 * is a Kahn network: one run per size and channel capacity covers every schedule. Plans need
 * channels that take one message while none is outstanding (capacity 1), no more. PLAN_SEND does
 * not wait for the receiver, and the payload may stay where it is until it is taken: a plan writes
 * to blocks that it sent only after something has shown that they were taken, be it a message back
 * or PLAN_AWAIT with PLAN_UNTIL_TAKEN. A rank leaves a collective when all payloads it sent in it
 * have been taken. The two ends may name different blocks (of different layouts), but they have the
 * same number of elements. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ranks.h"
#include "coll/coll.h"

enum plan_collective {
#define X(id, ...) PLAN_##id = COLL_##id,
	COLL_TABLE(X)
#undef X
		PLAN_COLLECTIVE_COUNT = COLL_COUNT
};

enum plan_algorithm {
	PLAN_NONE = 0,
	/* Payloads travel inside the entry headers: every rank reads all of them and reduces for
	 * itself. One synchronisation; for payloads up to the size of a slot. */
	PLAN_SLOT,
	/* Straight from the windows of peers to where it belongs. All-reduce: rank i reduces slice
	 * i from all windows and stores it to all windows: 2pS bytes of traffic, the least
	 * possible. Two synchronisations. */
	PLAN_DIRECT,
	/* All-reduce where peers can read each other's buffers but not write them: rank i reduces
	 * slice i to its own OUTPUT, then all copy the slices of the others. Three
	 * synchronisations. */
	PLAN_PULL,
	/* reduce-scatter, then all-gather, around a ring; broadcast: a chain of blocks */
	PLAN_RING,
	PLAN_DOUBLING, /* recursive doubling, with a fold for sizes that are no power of two;
			* barrier: dissemination */
	PLAN_TREE,     /* binomial: reduce to the root, then broadcast */
	/* each pair of ranks exchanges what they have for each other by messages; gather and
	 * scatter: the root with each rank */
	PLAN_PAIRWISE,
	/* All-reduce in two levels: on each host rank i reduces slice i from the windows of all
	 * ranks there; those who have the same slice exchange it by messages, doubling; then the
	 * ranks of a host copy the slices from each other. On one host it is PLAN_DIRECT. */
	PLAN_RAILS,
	PLAN_ALGORITHM_COUNT
};

enum plan_kind {
	PLAN_SIGNAL = 1, /* raise my phase to `phase`, from a lower one */
	PLAN_AWAIT, /* wait until peer's phase is at least `phase`; peer PLAN_ALL: of all others;
			  * with PLAN_UNTIL_TAKEN: until peer has taken all payloads I sent it */
	/* blocks of INPUT of all ranks, combined in rank order, to the same blocks of OUTPUT of all
	 * ranks, or with PLAN_TO_SELF of mine only, or with PLAN_TO_PEER of peer's only (peer is
	 * another rank; else PLAN_ALL); applies the average's division, but with PLAN_PARTIAL */
	PLAN_REDUCE_ALL,
	/* blocks from peer's `from` window to the same blocks of my `to` buffer (peer may be
	 * myself); with PLAN_TRANSPOSE from its block named after me to my block named after it,
	 * which is also `block` */
	PLAN_COPY,
	PLAN_SEND, /* blocks of my `from` buffer (not SCRATCH) to peer */
	PLAN_RECV, /* blocks from peer into my `to` buffer */
	/* my OUTPUT = OUTPUT op SCRATCH, or with PLAN_SCRATCH_FIRST SCRATCH op OUTPUT */
	PLAN_COMBINE,
	/* divide blocks of my OUTPUT by the number of ranks, if the op is the average */
	PLAN_SCALE,
	PLAN_KIND_COUNT
};

enum plan_buffer { PLAN_INPUT, PLAN_OUTPUT, PLAN_SCRATCH };

enum {
	PLAN_ALL = -1,    /* as a peer: every other rank */
	PLAN_TO_SELF = 1, /* flags */
	PLAN_SCRATCH_FIRST = 2,
	PLAN_UNTIL_TAKEN = 4,
	PLAN_TO_PEER = 8,
	PLAN_TRANSPOSE = 16,
	PLAN_PARTIAL = 32, /* others have more to combine, so it is not divided yet */
	PLAN_TEXT_BYTES = 96,
};

/* How a buffer is cut into blocks. */
enum plan_layout {
	PLAN_BLOCKS, /* the elements of the call, in plan->blocks nearly equal blocks */
	PLAN_PARTS,  /* a part for each rank: block r is that of rank r, and blocks is the size */
	PLAN_PART,   /* the part of the rank whose buffer it is, and nothing else, whatever block is
		     * named; steps name the one that it is in the other buffer */
};

/* Which ranks touch a buffer beside its owner. */
enum plan_reach {
	PLAN_PRIVATE, /* nobody */
	PLAN_READ,    /* peers read it, by PLAN_COPY or PLAN_REDUCE_ALL */
	PLAN_MAPPED, /* peers write it, or it is sent from: it must lie where they have it mapped */
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
	uint8_t layout[PLAN_SCRATCH + 1]; /* enum plan_layout of INPUT, OUTPUT, SCRATCH */
	/* enum plan_reach of this rank's INPUT and OUTPUT, no more than its peers use; all
	 * PLAN_PRIVATE in a PLAN_SLOT plan. In place the two share memory, for which the greater
	 * one holds. */
	uint8_t reach[PLAN_OUTPUT + 1];
	uint16_t rank, size, root;
	uint16_t hosts;     /* of its ranks; 0: all zero, there is no plan */
	uint16_t blocks;    /* at least 1 */
	uint16_t phase_end; /* highest phase any rank signals */
	uint32_t step_count;
	struct plan_step *steps; /* owned by the caller of plan_build */
};

/* Which ranks share a host. */
struct plan_topology {
	int host_count;        /* from 1; each has a rank */
	const uint16_t *hosts; /* [size of the request]: each rank's, below host_count */
};

struct plan_request {
	enum plan_collective collective;
	enum plan_algorithm algorithm;
	int rank, size, root; /* root: 0 where the collective has none */
	/* OUTPUT is INPUT, or one of the two is a part of the other. Not looked at where that
	 * cannot be: in PLAN_ALLTOALL and PLAN_BARRIER, and, where there is a root, on all ranks
	 * but it. */
	bool in_place;
	const struct plan_topology *topology; /* NULL: all ranks are on one host */
};

/* Whether the collective has a root. */
bool plan_has_root(enum plan_collective collective);

/* Upper bound of steps of any plan for this request; it depends on the size only. */
size_t plan_steps_max(const struct plan_request *request);

/* Builds into `steps` (room for plan_steps_max). False if the collective does not have the
 * algorithm, or not on several hosts (plan_crosses_hosts), or an argument is out of range; *out is
 * zeroed then. Size 1 gives the local copy, if
 * any. Every step of a plan is needed: test/model shows that no plan works without any one of its
 * steps. */
bool plan_build(const struct plan_request *request, struct plan_step *steps, struct plan *out);

/* Whether the collective has this algorithm. */
bool plan_has(enum plan_collective collective, enum plan_algorithm algorithm);
/* Whether plans of this algorithm work on several hosts, as they open windows on one at most. */
bool plan_crosses_hosts(enum plan_algorithm algorithm);

/* First element and number of elements of blocks [block, block + blocks) out of `total` blocks of
 * `count` elements; block borders are multiples of `align` elements. Covers all elements once. */
void plan_block_range(uint64_t count, unsigned align, unsigned total, unsigned block,
		      unsigned blocks, uint64_t *first, uint64_t *elements);

/* Names as `lockstep plan` prints them: "allreduce", "ring", …; "?" outside the range. */
const char *plan_collective_name(unsigned collective);
const char *plan_algorithm_name(unsigned algorithm); /* PLAN_NONE: "none" */
const char *plan_kind_name(unsigned kind);
/* The value for a name, -1 if there is no such collective or algorithm. Hyphens in a collective's
 * name do not count: "all-reduce". */
int plan_collective_from(const char *name);
int plan_algorithm_from(const char *name);

/* One step as a person reads it: "await rank 3, phase 1", "reduce block 2 of all ranks to all
 * ranks". Always terminated, cut to `bytes`; PLAN_TEXT_BYTES hold any. */
void plan_step_text(const struct plan *plan, const struct plan_step *step, char *out, size_t bytes);

#endif
