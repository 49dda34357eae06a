/* SPDX-License-Identifier: BSD-3-Clause
 * Uneven inputs: ranks have different numbers of batches. Ranks that have run out of batches
 * "shadow" the others: they call the same collectives with neutral data, so that no rank waits for
 * them. See ls_join(3). Programs that use ls_ddp use the calls in ddp.h instead.
 *
 * Each rank calls ls_join_step before each batch, then the collectives of that batch, and
 * ls_join_end after its last batch. ls_join_end blocks until no rank has a batch. It calls the
 * program's shadow function once for each step of the others; that function calls the same
 * collectives. Afterwards the join can be used again, for the next epoch. One thread at a time
 * calls joins of one group. */
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
	LS_JOIN_SETTING = 0, /* what the setting LOCKSTEP_JOIN says; its default is shadow */
	LS_JOIN_SHADOW = 1,  /* ranks that have run out of batches shadow the others */
	LS_JOIN_ERROR = 2,   /* all ranks get LS_UNEVEN; one rank with this mode suffices */
};

/* One step in which at least one rank has a batch. */
struct ls_join_round {
	uint64_t step;  /* its number, from 0 */
	uint64_t word;  /* the `word` that rank `lead` passed to ls_join_step */
	int32_t lead;   /* the lowest rank that has a batch */
	int32_t active; /* number of ranks that have a batch */
};

/* Called by ls_join_end, in its thread, once for each step of the others. Any status but LS_OK ends
 * the join. If the group has not failed yet, it fails then on all ranks, as the others wait for
 * collectives that the shadow has not called. */
typedef ls_status ls_join_shadow(void *data, const struct ls_join_round *round);

struct ls_join_options {
	uint32_t size;
	uint32_t mode;          /* enum ls_join_mode */
	ls_join_shadow *shadow; /* NULL: steps have no collectives */
	void *data;             /* its first argument */
};

/* Local, but every rank must open the join. Does not block.
 * Errors: LS_BAD_ARGUMENT, LS_OUT_OF_MEMORY, LS_FORKED; *out is NULL. */
LS_EXPORT LS_CHECKED ls_status ls_join_open(ls_group *group, const struct ls_join_options *options,
					    ls_join **out);

/* Frees the join. Local. Call it before ls_group_close. NULL is allowed. */
LS_EXPORT void ls_join_close(ls_join *join);

/* Called before each batch: this rank has one more batch. Blocks until every rank has called this
 * or ls_join_end, and describes the step in *round (may be NULL). `word` is passed to the shadows:
 * whatever they need to know of this step.
 * Errors: those of ls_allgather; in the mode LS_JOIN_ERROR, LS_UNEVEN on all ranks as soon as some
 * ranks have a batch and others do not. One message then says which ranks ended, after how many
 * batches; the group stays open, and the join can be used again. */
LS_EXPORT LS_CHECKED ls_status ls_join_step(ls_join *join, uint64_t word,
					    struct ls_join_round *round);

/* Called after the last batch: this rank has no more batches. Blocks until no rank has one, and
 * calls the shadow for each step until then. *round (may be NULL) describes the last step: its lead
 * is a rank that had batches to the end; active is 0 if there was no step at all.
 * Errors: those of ls_join_step, and the status of the shadow. */
LS_EXPORT LS_CHECKED ls_status ls_join_end(ls_join *join, struct ls_join_round *round);

#ifdef __cplusplus
}
#endif
#endif
