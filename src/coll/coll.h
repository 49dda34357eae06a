/* SPDX-License-Identifier: BSD-3-Clause
 * What each collective is, and each kind of operation that a rank may call. Facts only: this room
 * includes no other, so that programs that time other runtimes can use it. Also for C++. */
#ifndef COLL_COLL_H
#define COLL_COLL_H

#include <stdbool.h>
#include <stdint.h>

/* How long a buffer is, where a call is for `count` elements. */
enum coll_extent {
	COLL_NOTHING, /* no buffer */
	COLL_WHOLE,   /* count: the same elements on all ranks */
	COLL_PART,    /* count, or this rank's count: what one rank has */
	COLL_PARTS,   /* the parts of all ranks, in their order */
};

/* Which ranks have both buffers. The others have one. */
enum coll_root {
	COLL_NO_ROOT,       /* all */
	COLL_ROOT_SENDS,    /* only the root has an input */
	COLL_ROOT_RECEIVES, /* only the root has an output */
};

/* Whose inputs a result combines, by the call's reduction. */
enum coll_reduces {
	COLL_REDUCES_NOTHING, /* inputs are only copied */
	COLL_REDUCES_ALL,     /* those of all ranks: the same combination for everybody */
	/* Those of some ranks, as in a prefix reduction (scan). Only the plan knows of which. */
	COLL_REDUCES_SOME,
};

/* X(id, name, input, output, root, reduces). The engine computes short results from a line of this
 * table, without the plan, if the line determines them. So two collectives whose results differ
 * must not have the same line, unless it says REDUCES_SOME. */
#define COLL_TABLE(X)                                                          \
	X(ALLREDUCE, "all-reduce", WHOLE, WHOLE, NO_ROOT, REDUCES_ALL)         \
	X(REDUCE, "reduce", WHOLE, WHOLE, ROOT_RECEIVES, REDUCES_ALL)          \
	X(BROADCAST, "broadcast", WHOLE, WHOLE, ROOT_SENDS, REDUCES_NOTHING)   \
	X(ALLGATHER, "all-gather", PART, PARTS, NO_ROOT, REDUCES_NOTHING)      \
	X(GATHER, "gather", PART, PARTS, ROOT_RECEIVES, REDUCES_NOTHING)       \
	X(SCATTER, "scatter", PARTS, PART, ROOT_SENDS, REDUCES_NOTHING)        \
	X(REDUCE_SCATTER, "reduce-scatter", PARTS, PART, NO_ROOT, REDUCES_ALL) \
	X(ALLTOALL, "all-to-all", PARTS, PARTS, NO_ROOT, REDUCES_NOTHING)      \
	X(BARRIER, "barrier", NOTHING, NOTHING, NO_ROOT, REDUCES_NOTHING)

enum coll_id {
#define X(id, ...) COLL_##id,
	COLL_TABLE(X)
#undef X
		COLL_COUNT,
	COLL_NONE = COLL_COUNT, /* of kinds that are no collective */
};

struct coll {
	const char *name;      /* "all-reduce" */
	uint8_t input, output; /* enum coll_extent */
	uint8_t root;          /* enum coll_root */
	uint8_t reduces;       /* enum coll_reduces */
};
extern const struct coll coll_table[COLL_COUNT + 1]; /* the entry of COLL_NONE has no buffers */

/* Which counts a call has, and so what a record of it means. */
enum coll_counts {
	COLL_UNCOUNTED,   /* none, and no type */
	COLL_ONE_COUNT,   /* one */
	COLL_SAME_COUNTS, /* one for each rank; all ranks pass the same list */
	COLL_OWN_COUNTS,  /* two for each rank, and each passes its own lists */
};

/* People who confuse red and green can tell these apart. */
enum coll_color {
	COLL_GREY,
	COLL_BLUE,
	COLL_SKY,
	COLL_GREEN,
	COLL_YELLOW,
	COLL_ORANGE,
	COLL_RED,
	COLL_PINK,
	COLL_WINE,
};

/* X(id, name, collective, counts, letter, color): the calls of <lockstep/collective.h>. A call
 * with several buffers, as ls_allreduce_many, is recorded as one of these for each buffer. */
#define COLL_CALLS(X)                                                                \
	X(ALLREDUCE, "all-reduce", ALLREDUCE, ONE_COUNT, 'A', BLUE)                  \
	X(REDUCE, "reduce", REDUCE, ONE_COUNT, 'R', SKY)                             \
	X(BROADCAST, "broadcast", BROADCAST, ONE_COUNT, 'B', YELLOW)                 \
	X(ALLGATHER, "all-gather", ALLGATHER, ONE_COUNT, 'G', GREEN)                 \
	X(ALLGATHERV, "all-gatherv", ALLGATHER, SAME_COUNTS, 'G', GREEN)             \
	X(GATHER, "gather", GATHER, ONE_COUNT, 'g', PINK)                            \
	X(GATHERV, "gatherv", GATHER, SAME_COUNTS, 'g', PINK)                        \
	X(SCATTER, "scatter", SCATTER, ONE_COUNT, 'c', PINK)                         \
	X(SCATTERV, "scatterv", SCATTER, SAME_COUNTS, 'c', PINK)                     \
	X(REDUCE_SCATTER, "reduce-scatter", REDUCE_SCATTER, ONE_COUNT, 'S', SKY)     \
	X(REDUCE_SCATTERV, "reduce-scatterv", REDUCE_SCATTER, SAME_COUNTS, 'S', SKY) \
	X(ALLTOALL, "all-to-all", ALLTOALL, ONE_COUNT, 'T', ORANGE)                  \
	X(ALLTOALLV, "all-to-allv", ALLTOALL, OWN_COUNTS, 'T', ORANGE)               \
	X(BARRIER, "barrier", BARRIER, UNCOUNTED, 'b', GREY)

/* All kinds. Their numbers are in traces, whose version changes with COLL_KIND_COUNT. */
#define COLL_KINDS(X)                                                                       \
	COLL_CALLS(X)                                                                       \
	X(GROUP_SPLIT, "group-split", ALLGATHER, UNCOUNTED, 'n', GREY) /* ls_group_split */ \
	X(GROUP_FROM_RANKS, "group-from-ranks", ALLGATHER, UNCOUNTED, 'n', GREY)            \
	X(SEND, "send", NONE, ONE_COUNT, 's', RED)                                          \
	X(RECV, "receive", NONE, ONE_COUNT, 'r', WINE)                                      \
	X(PROBE, "probe", NONE, UNCOUNTED, 'p', WINE)

enum coll_kind_id {
	COLL_KIND_NONE,
#define X(id, ...) COLL_KIND_##id,
	COLL_KINDS(X)
#undef X
		COLL_KIND_COUNT,
};

struct coll_kind {
	const char *name;   /* "all-gatherv" */
	uint8_t collective; /* enum coll_id */
	uint8_t counts;     /* enum coll_counts */
	char letter;        /* in pictures */
	uint8_t color;      /* enum coll_color */
};
extern const struct coll_kind coll_kinds[COLL_KIND_COUNT];

/* Whether `given` is `name`, apart from dashes and underscores. */
bool coll_is_name(const char *given, const char *name);
/* The collective of that name; COLL_NONE. */
enum coll_id coll_from_name(const char *name);

#endif
