/* SPDX-License-Identifier: BSD-3-Clause
 * Uneven inputs: ranks that have run out of batches shadow the collectives of those that have not, so that
 * nobody waits for them. See ls_join(3); for gradients ddp.h has it ready.
 *
 * Each rank calls ls_join_step before each batch, then does the collectives of that batch, and calls
 * ls_join_end after its last one. That blocks until no rank has a batch, and calls the shadow once for
 * each step of the others, to do the same collectives with nothing to give. After it the join may begin
 * again, for the next epoch. One thread at a time. */
#ifndef LOCKSTEP_JOIN_H
#define LOCKSTEP_JOIN_H

#include <stdint.h>

#include "group.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_join ls_join;

/* Values are part of the ABI. */
enum ls_join_mode {
	LS_JOIN_SETTING = 0, /* what LOCKSTEP_JOIN says: shadow unless it is set */
	LS_JOIN_SHADOW = 1,  /* ranks that have run out shadow the others */
	LS_JOIN_ERROR = 2,   /* all ranks get LS_UNEVEN; holds for all if it does for one */
};

/* A step that somebody takes part in. */
struct ls_join_round {
	uint64_t step;  /* from 0 */
	uint64_t word;  /* what the lowest of the ranks that have a batch gave to ls_join_step */
	int32_t lead;   /* that rank */
	int32_t active; /* how many ranks have a batch */
};

/* What LS_OK is not ends the join; if the group is still open, it is closed for all ranks, as the others
 * wait for what the shadow did not do. */
typedef ls_status ls_join_shadow(void *data, const struct ls_join_round *round);

struct ls_join_options {
	uint32_t size;
	uint32_t mode;          /* enum ls_join_mode */
	ls_join_shadow *shadow; /* NULL: steps have no collectives */
	void *data;             /* for it */
};

/* Local; the same on all ranks. Errors: LS_BAD_ARGUMENT, LS_OUT_OF_MEMORY; *out is NULL. */
LS_EXPORT LS_CHECKED ls_status ls_join_open(ls_group *group, const struct ls_join_options *options,
					    ls_join **out);

/* NULL is allowed. Before ls_group_close. */
LS_EXPORT void ls_join_close(ls_join *join);

/* I have a batch. Blocks until every rank has said whether it has one; *round (may be NULL) tells. `word`
 * is for shadows: what they need to know of this step. Errors: LS_UNEVEN on all ranks in the mode
 * LS_JOIN_ERROR, once some ranks have no batch and others do, with one message that says which ranks, after
 * how many; the group and the join are as new then. Those of ls_allgather. */
LS_EXPORT LS_CHECKED ls_status ls_join_step(ls_join *join, uint64_t word,
					    struct ls_join_round *round);

/* I have no more. Blocks until nobody has, shadowing. *round (may be NULL) is the last step that was
 * taken: its lead is a rank that was there to the end; active is 0 if there was no step at all. Errors: as
 * ls_join_step, and the shadow's. */
LS_EXPORT LS_CHECKED ls_status ls_join_end(ls_join *join, struct ls_join_round *round);

#ifdef __cplusplus
}
#endif
#endif
