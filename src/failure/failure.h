/* SPDX-License-Identifier: BSD-3-Clause
 * Why a group failed: who works it out, publishes it, and looks for it while ranks wait. */
#ifndef FAILURE_FAILURE_H
#define FAILURE_FAILURE_H

#include "diagnose/diagnose.h"
#include "world/ls_group.h"

/* ---- cause.c ---- */

/* Where a group's cause is published, whether this rank is a member or not. */
struct failure_place {
	uint32_t id;
	int owner; /* world rank of the first member */
	struct transport_area *head;
};

/* The published cause, LS_OK if there is none. One load while all is well. */
ls_status failure_status(const struct ls_group *group);
/* Works out and publishes the first cause, unless somebody else does; returns the cause that
 * stands. Blocks for at most about a second. `collective`: hint->seq numbers a collective, so it
 * waits a moment for others to arrive in it, to tell what each of them called. */
ls_status failure_raise(struct ls_group *group, const struct diagnose_hint *hint, bool collective);
/* The same of a cause that closes several groups, one of them `group`, as `job` shows it: what has
 * been proved stays so, though a later snapshot may meet one of its threads between two waits. */
void failure_raise_all(struct ls_group *group, const struct failure_place *places, int count,
		       const struct diagnose_hint *hint, struct diagnose_job *job);
/* The same for ls_group_abort: does not wait for anybody. */
void failure_abort(struct ls_group *group, const struct diagnose_hint *hint);
void failure_read(const struct ls_group *group, struct ls_failure *out);
/* A new group: nobody has claimed or published anything. */
void failure_begin(const struct ls_group *group);
struct failure_place failure_place_of(const struct ls_group *group);

/* ---- ending.c ---- */

/* LS_ABORTED of this rank becomes the cause, with a note in the caller's words. closes: as in
 * struct diagnose_hint. Waits for nobody. */
void failure_end(ls_group *group, const char *note, bool closes);
/* "Rank 1 closed the group WHY", with which it fails for all who are still in it, if it has not
 * failed before; then the launcher learns of it, too. */
void failure_close(ls_group *group, const char *why);
/* This rank knows that the group has failed. */
void failure_note(struct ls_group *group);
/* Before it leaves, with no operation under way: whether all members' collectives were the same, as
 * far as they have come. If not, the group fails with that; who is told of it only so finds it on
 * standard error and in the trace. */
void failure_compare_ends(struct ls_group *group);
/* Groups made from others that are open, before that of all ranks takes them along. */
void failure_tell_open(struct world *world);

/* ---- lost.c ---- */

/* No operation is under way, and the group, which this rank is about to leave, has not failed: says
 * which messages nobody will receive; with the setting CHECK the group fails for that. */
void failure_tell_lost(struct ls_group *group);

/* ---- sources.c ---- */

/* A snapshot of all ranks, NULL without memory; free() it. `closing`: groups that this thread, no
 * other one, is to close. */
struct diagnose_job *failure_collect(const struct world *world,
				     const struct diagnose_closing *closing);
/* Adds what rank `rank` of the world recorded under the index with these lowest bits; that index,
 * 0: nothing. */
uint64_t failure_add_record(const struct world *world, int rank, uint32_t low,
			    struct diagnose_job *job);
/* Writes the report on `job`, with call sites. */
void failure_report(const struct world *world, struct diagnose_job *job,
		    const struct diagnose_verdict *verdict, char *text, size_t bytes);

/* ---- look.c ---- */

/* Some wait of this rank lasts long: finds out why, group by group, unless that was just done. */
void failure_look(struct world *world);

/* ---- watch.c ---- */

ls_status failure_watch_start(struct world *world);
void failure_watch_stop(struct world *world);
void failure_watch_init(struct world_watch *watch);

#endif
