/* SPDX-License-Identifier: BSD-3-Clause
 * A collective is a plan: for each rank an array of small steps, computed by pure functions of
 * (collective, algorithm, rank, size, topology). No I/O, no clock, no locks, no global state here.
 * The engine runs the steps, the trace shows the cursor, the diagnosis compares cursors,
 * `lockstep plan` prints them, and the tests run every plan for every size in one process.
 *
 * Buffers. A rank has INPUT and OUTPUT (in place: the same, or one is a part of the other). If the
 * plan asks for it, the rank also has SCRATCH, which is laid out as OUTPUT and which no other rank
 * touches. Each buffer is cut into blocks as plan->layout says, in the same way on all ranks. A
 * step names the block range [block, block + blocks). The engine knows how many elements a block
 * has (plan_block_range, or the counts of the call), so one plan serves every count, and every list
 * of counts. A plan touches a buffer only on ranks where the call has one, with one exception: in a
 * COLL_REDUCE a rank that is not the root, but has an OUTPUT of PLAN_REACH_MAPPED, needs memory
 * there for its partial result, laid out as the root's.
 *
 * Windows and signals. A window is a buffer that peers can access. plan->reach says whether peers
 * may read INPUT and OUTPUT between signals, and whether they may write OUTPUT (PLAN_STEP_REDUCE).
 * A rank has one phase counter for each collective. It is 0 when the rank has entered (its entry
 * and INPUT are published); PLAN_STEP_SIGNAL raises it. PLAN_STEP_AWAIT waits until the peer's
 * counter is at least `phase`. The counter has one writer and only grows, so no signal is lost or
 * mixed up. Such a pair of steps must order each access to a peer's window. The simulator
 * (test/model) has vector clocks and refuses all other accesses, also between three consecutive
 * collectives: a rank that leaves must know that nobody touches its buffers any more.
 *
 * Hosts. Windows and signals are within a host. Where plan->hosts is greater than 1, "all ranks" of
 * PLAN_STEP_AWAIT and PLAN_STEP_REDUCE are those of the rank's own host. Between hosts there are
 * only messages.
 *
 * In a PLAN_INLINE plan the entry carries the whole INPUT, and peers read it there rather than in a
 * window. The ring of K entries protects it: a rank enters collective k + K only when all ranks
 * have left k.
 *
 * Messages. PLAN_STEP_SEND and PLAN_STEP_RECV use a FIFO channel between two ranks. A plan makes no
 * choices, so it is a Kahn network: one run for each size and channel capacity covers every
 * schedule. Plans need channels that take one message while none is outstanding (capacity 1), no
 * more. PLAN_STEP_SEND does not wait for the receiver, and the payload may stay in its buffer until
 * the receiver takes it. So a plan overwrites blocks that it sent only after something has shown
 * that they were taken: a message from the receiver, or PLAN_STEP_AWAIT with PLAN_UNTIL_TAKEN. A
 * rank leaves a collective when all payloads that it sent in it have been taken. Both ends of a
 * message have the same number of elements, but they may name different blocks, in different
 * layouts. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ranks.h"
#include "coll/coll.h"

enum plan_algorithm {
	PLAN_NONE = 0,
	/* Payloads travel in the entries: every rank reads all entries and computes its own result.
	 * One synchronisation; for payloads that fit beside an entry. */
	PLAN_INLINE,
	/* Ranks copy directly from the windows of peers to the final place. All-reduce: rank i
	 * reduces slice i of all windows and stores the result to all windows; with p ranks and S
	 * bytes that is 2pS bytes of traffic, the least possible. Two synchronisations. */
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
	/* All-reduce in two levels: on each host, rank i reduces slice i from the windows of all
	 * its ranks. Ranks with the same slice combine it by messages, with recursive doubling.
	 * Then the ranks of a host copy the slices from each other. On one host: PLAN_DIRECT. */
	PLAN_RAILS,
	/* All-reduce, barrier and all-gather in two levels by messages: a tree on each host,
	 * recursive doubling (all-gather: Bruck's algorithm, if the hosts are no power of two)
	 * among the first ranks of the hosts. For short payloads. On one host: PLAN_TREE, or for
	 * an all-gather PLAN_RING. */
	PLAN_LEADERS,
	PLAN_ALGORITHM_COUNT
};

enum plan_step_kind {
	/* raise my phase to `phase`, from a lower one */
	PLAN_STEP_SIGNAL = 1,
	/* Wait until peer's phase is at least `phase`; peer PLAN_ALL: that of all other ranks; with
	 * PLAN_UNTIL_TAKEN: until peer has taken all payloads that I sent to it. */
	PLAN_STEP_AWAIT,
	/* Combine blocks of INPUT of all ranks, in rank order, and store them to the same blocks of
	 * OUTPUT: of all ranks (peer PLAN_ALL), with PLAN_TO_SELF of mine only, with PLAN_TO_PEER
	 * of another rank `peer` only. Divides for the average, except with PLAN_PARTIAL. */
	PLAN_STEP_REDUCE,
	/* Copy blocks of peer's `from` window to the same blocks of my `to` buffer; peer may be
	 * myself. With PLAN_TRANSPOSE: peer's block that is named after me to my block that is
	 * named after peer, which is also `block`. */
	PLAN_STEP_COPY,
	PLAN_STEP_SEND, /* blocks of my `from` buffer (not SCRATCH) to peer */
	PLAN_STEP_RECV, /* blocks from peer into my `to` buffer */
	/* my OUTPUT = OUTPUT op SCRATCH, or with PLAN_SCRATCH_FIRST SCRATCH op OUTPUT */
	PLAN_STEP_COMBINE,
	/* divide blocks of my OUTPUT by the number of ranks, if the op is the average */
	PLAN_STEP_SCALE,
	PLAN_STEP_KIND_COUNT
};

enum plan_buffer { PLAN_INPUT, PLAN_OUTPUT, PLAN_SCRATCH };

enum {
	PLAN_ALL = -1,    /* as a peer: every other rank */
	PLAN_TO_SELF = 1, /* flags */
	PLAN_SCRATCH_FIRST = 2,
	PLAN_UNTIL_TAKEN = 4,
	PLAN_TO_PEER = 8,
	PLAN_TRANSPOSE = 16,
	PLAN_PARTIAL = 32, /* other ranks have more to combine, so this step does not divide */
	PLAN_TEXT_BYTES = 96,
};

/* How a buffer is cut into blocks. */
enum plan_layout {
	/* the elements of the call, in plan->blocks nearly equal blocks */
	PLAN_LAYOUT_BLOCKS,
	/* a part for each rank: block r is that of rank r, and plan->blocks is the size */
	PLAN_LAYOUT_PARTS,
	/* The buffer is the part of its own rank and nothing else. Steps name the block that it is
	 * in the other buffer. */
	PLAN_LAYOUT_PART,
};

/* Which ranks touch a buffer besides its owner. */
enum plan_reach {
	PLAN_REACH_PRIVATE, /* none */
	PLAN_REACH_READ,    /* peers read it, by PLAN_STEP_COPY or PLAN_STEP_REDUCE */
	/* peers write it, or it is sent from: it must lie in memory that they have mapped */
	PLAN_REACH_MAPPED,
};

struct plan_step {
	uint8_t kind; /* enum plan_step_kind */
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
	 * PLAN_REACH_PRIVATE in a PLAN_INLINE plan. In place the two share memory, which has the
	 * greater reach. */
	uint8_t reach[PLAN_OUTPUT + 1];
	uint16_t rank, size, root;
	uint16_t hosts;  /* of its ranks; 0: all zero, there is no plan */
	uint16_t blocks; /* at least 1 */
	/* The block of INPUT that no other rank reads, and of OUTPUT that this rank makes;
	 * `blocks`: there is none. */
	uint16_t own;
	uint16_t phase_end; /* highest phase any rank signals */
	uint32_t step_count;
	struct plan_step *steps; /* owned by the caller of plan_build */
};

/* Which ranks share a host. */
struct plan_topology {
	int host_count;        /* from 1; each has a rank */
	const uint16_t *hosts; /* [plan_params.size]: each rank's, below host_count */
};

struct plan_params {
	enum coll_id collective;
	enum plan_algorithm algorithm;
	int rank, size, root; /* root: 0 where the collective has none */
	/* OUTPUT is INPUT, or one of the two is a part of the other. Ignored where that cannot be:
	 * in COLL_ALLTOALL and COLL_BARRIER, and on all ranks but the root if there is one. */
	bool in_place;
	const struct plan_topology *topology; /* NULL: all ranks are on one host */
};

/* Whether the collective has a root. */
bool plan_has_root(enum coll_id collective);

/* Upper bound of steps of any plan with these parameters; it depends on the size only. */
size_t plan_steps_max(const struct plan_params *params);

/* Builds into `steps`, which has space for plan_steps_max. False, with *out zeroed, if the
 * collective does not have the algorithm, or not on several hosts (plan_crosses_hosts), or if an
 * argument is out of range. Size 1 gives the local copy, if any. Every step of a plan is needed:
 * test/model shows that no plan works if one of its steps is left out. */
bool plan_build(const struct plan_params *params, struct plan_step *steps, struct plan *out);

/* Whether the collective has this algorithm. */
bool plan_has(enum coll_id collective, enum plan_algorithm algorithm);
/* Whether plans of this algorithm work on several hosts: they open windows only within a host. */
bool plan_crosses_hosts(enum plan_algorithm algorithm);
/* `chosen` where it works on several hosts, otherwise the algorithm that works there for this many
 * `bytes` of the longest INPUT, in any placement of the ranks: all-reduce and barrier in two levels
 * if several ranks share a host. NULL or one host: `chosen`. Pure: the same on all ranks. */
enum plan_algorithm plan_across(enum coll_id collective, enum plan_algorithm chosen, uint64_t bytes,
				int size, const struct plan_topology *topology);

/* First element and number of elements of blocks [block, block + blocks) out of `total` blocks of
 * `count` elements; block borders are multiples of `align` elements. Covers all elements once. */
void plan_block_range(uint64_t count, unsigned align, unsigned total, unsigned block,
		      unsigned blocks, uint64_t *first, uint64_t *elements);

/* Names as `lockstep plan` prints them: "allreduce", "ring", …; "?" outside the range. */
const char *plan_collective_name(unsigned collective);
const char *plan_algorithm_name(unsigned algorithm); /* PLAN_NONE: "none" */
const char *plan_step_name(unsigned kind);
/* The value for a name, -1 if there is no such collective or algorithm. Hyphens in a collective's
 * name are ignored: "all-reduce". */
int plan_collective_from(const char *name);
int plan_algorithm_from(const char *name);

/* One step as a person reads it: "await rank 3, phase 1", "reduce block 2 of all ranks to all
 * ranks". Always terminated, cut to `bytes`; PLAN_TEXT_BYTES hold any. */
void plan_step_text(const struct plan *plan, const struct plan_step *step, char *out, size_t bytes);

#endif
