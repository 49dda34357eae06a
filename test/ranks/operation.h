/* SPDX-License-Identifier: BSD-3-Clause
 * Any public operation on buffers with known content: what each rank gives, what it must get, and
 * that nothing else was touched. Each rank may pass its buffers as it likes. */
#ifndef TEST_RANKS_OPERATION_H
#define TEST_RANKS_OPERATION_H

#include "coll/coll.h"
#include "runner.h"

/* The calls in the table of coll/coll.h, those with several buffers, and an exchange. */
enum operation_kind {
#define X(id, ...) OPERATION_##id,
	COLL_CALLS(X)
#undef X
		OPERATION_ALLREDUCE_MANY,
	OPERATION_BROADCAST_MANY,
	OPERATION_ALLGATHER_MANY,
	OPERATION_REDUCE_SCATTER_MANY,
	/* Ranks pair up, i with (root - i) mod size, and each sends to the other; a rank that is
	 * its own partner does nothing. Always blocks. */
	OPERATION_EXCHANGE,
	OPERATION_KINDS
};

/* What the public calls make of a kind. */
struct operation_facts {
	const char *name; /* of the call */
	bool reduces, rooted;
	bool lists; /* takes a count for each rank */
	bool many;  /* takes several buffers */
};
struct operation_facts operation_facts(enum operation_kind kind);

/* One call, as it is. What the kind does not take is not looked at. */
struct operation_call {
	enum operation_kind kind;
	ls_group *group;
	const void *send;
	void *recv;
	uint64_t count;
	const uint64_t *counts, *recv_counts;
	const struct ls_buffers *buffers; /* of a _many, in place of send, recv and count */
	int buffer_count;
	ls_dtype dtype;
	ls_reduce_op op;
	int root;
	const struct ls_call_options *options;
};
ls_status operation_issue(const struct operation_call *call);

enum { OPERATION_RANKS = 8, OPERATION_ITEMS = 4, OPERATION_TEXT = 640 };

/* How a rank passes its buffers. */
struct operation_place {
	bool plain_send, plain_recv; /* not from ls_alloc */
	bool in_place;               /* where the call allows it */
	unsigned shift; /* elements from a cache line to the start; odd: NULL where it may be */
};

/* A buffer between guards. */
struct operation_buffer {
	unsigned char *memory, *at;
	size_t room, bytes;
	bool plain;
};

/* The buffers of one call, or of one of a _many. */
struct operation_item {
	struct operation_buffer outer; /* in place: the longer one */
	struct operation_buffer send, recv;
	const unsigned char *from; /* as passed */
	unsigned char *to;
	bool in_place;
};

struct operation {
	/* The same on all ranks. */
	enum operation_kind kind;
	ls_dtype dtype;
	ls_reduce_op op;
	int root;
	unsigned seed;                   /* of values.h */
	int item_count;                  /* of a _many; else 1 */
	uint64_t count[OPERATION_ITEMS]; /* as in the call, where there are no lists */
	/* The lists. counts[0][r] is that of rank r's part; of an all-to-allv counts[q][r] is what
	 * rank q sends to rank r. */
	uint64_t counts[OPERATION_RANKS][OPERATION_RANKS];
	/* As each rank likes. */
	struct operation_place place;
	/* Set by operation_open. */
	const struct runner_rank *self;
	ls_group *group;
	struct operation_item items[OPERATION_ITEMS];
	struct ls_buffers buffers[OPERATION_ITEMS];
	uint64_t send_counts[OPERATION_RANKS], recv_counts[OPERATION_RANKS];
};

/* Bytes of the longest buffer that rank `rank` has, counting all of a _many. */
uint64_t operation_bytes(const struct operation *op, int rank, int size);
/* "ls_gatherv of float32 …", for a note. */
void operation_text(const struct operation *op, int size, char *text, size_t bytes);

/* Makes and fills the buffers. */
void operation_open(struct operation *op, const struct runner_rank *self, ls_group *group);
/* The call. `options` may be NULL; the factor of LS_PREMUL_SUM is put in. Its lists are no longer
 * needed when it has returned. */
ls_status operation_begin(struct operation *op, const struct ls_call_options *options);
/* Fails the test unless all is as it must be after the operation, and gives the buffers back. */
void operation_close(struct operation *op);
/* Gives the buffers back, whatever is in them: after a failure. */
void operation_drop(struct operation *op);

/* All of it, blocking, with a note. */
void operation_run(struct operation *op, const struct runner_rank *self, ls_group *group);

#endif
