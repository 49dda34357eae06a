/* SPDX-License-Identifier: BSD-3-Clause
 * Why a group failed: how ranks look for the cause while they wait, work it out and publish it. */
#ifndef FAILURE_FAILURE_H
#define FAILURE_FAILURE_H

#include "diagnose/diagnose.h"
#include "hosts/hosts.h"
#include "world/ls_group.h"

/* ---- cause.c ---- */

/* Where a group's cause is published. This rank need not be a member of the group. */
struct failure_cause_ref {
	uint32_t id;
	int owner; /* world rank of the first member on this host */
	struct transport_area *head;
};

/* Whether a cause has been published. One load. */
static inline bool failure_is_set(const struct ls_group *group)
{
	return wait_has_failed(atomic_load_explicit(group->waiter.cause, memory_order_acquire));
}
/* Whether a thread of this rank works out the cause, or has done so. One load. */
static inline bool failure_is_claimed_here(const struct ls_group *group)
{
	return atomic_load_explicit(&group->cause_claimed, memory_order_acquire);
}
/* Waits until that thread has published the cause. */
void failure_await_claimed(struct ls_group *group);
/* The published cause, LS_OK if there is none. */
ls_status failure_status(const struct ls_group *group);
/* Works out and publishes the first cause, unless another rank or thread does. Returns the cause
 * that counts; LS_OK if the place of the cause is another group's by now. collective: hint->seq
 * numbers a collective; then the function waits a moment for other ranks to enter it, so that the
 * report can say what each of them called. Blocks for about a second at most, and in a group over
 * several hosts for two. If the rank that works out the cause is stuck, another one takes over
 * after 600 ms; each further rank that gets stuck meanwhile adds as much. If another thread of this
 * rank works out the cause, this one waits for it, which takes no longer. */
ls_status failure_raise(struct ls_group *group, const struct diagnose_hint *hint, bool collective);
/* Writes the report of a rank on another host beside a cause, so that failure_publish can publish
 * it; `own` is the group if this rank is in it, NULL if not. False: the group has failed, or
 * somebody is working out its cause. Prints nothing. Does not block. */
bool failure_write_told(struct world *world, const struct failure_cause_ref *ref,
			struct ls_group *own, const struct hosts_failure *told);
/* Publishes my reports as these causes, and then wakes all ranks. */
void failure_publish(struct world *world, const struct failure_cause_ref *refs, int count);
void failure_read(const struct ls_group *group, struct ls_failure *out);
/* Call for a new group, of which no failure has been claimed or published. */
void failure_begin(const struct ls_group *group);
struct failure_cause_ref failure_cause_ref_of(const struct ls_group *group);

/* ---- raise_all.c ---- */

/* Fails every group in which a rank of the cycle waits, on all hosts. */
void failure_raise_deadlock(struct ls_group *group, struct diagnose_snapshot *snapshot,
			    const struct diagnose_verdict *verdict,
			    const struct diagnose_hint *hint);
/* Fails the groups that a rank on another host says have failed. Does not block. */
void failure_raise_told(struct world *world, const struct hosts_failure *failure);

/* ---- remote_state.c ---- */

/* What a rank keeps for looks at other hosts. NULL without memory. */
struct failure_remote *failure_remote_open(void);
/* Frees it; call after the link is closed. */
void failure_remote_close(struct failure_remote *remote);

/* ---- show.c: what commands on this host are shown of the others (shown.h) ---- */

/* For the thread of heartbeats, now and then: wakes the watch if there is something to do. */
void failure_show_poll(struct world *world, bool is_agent, uint64_t now_ns);

/* ---- remote_ranks.c ---- */

/* The reactions to failures and ends of ranks on other hosts. */
struct hosts_events failure_hosts_events(struct world *world);

/* ---- ending.c ---- */

/* Fails the group with LS_ABORTED of this rank, with a note in the caller's words. closes: as in
 * struct diagnose_hint. Does not block. */
void failure_abort(ls_group *group, const char *note, bool closes);
/* Fails the group, for all members that are still in it, with "rank 1 closed the group WHY", unless
 * it has failed before; and tells the launcher. */
void failure_abort_by_close(ls_group *group, const char *why);
/* Notes that this rank knows of the group's failure, because a call of it is about to return it. */
void failure_note(struct ls_group *group);
/* Call before this rank leaves, with no operation in progress: compares the collectives of all
 * members so far. If they differ, the group fails. If no call of this rank can return that status
 * any more, the status is printed on standard error and noted in the trace. */
void failure_compare_ends(struct ls_group *group);
/* Warns of groups that are still open when the world group, with which they end, is closed. */
void failure_warn_open(struct world *world);

/* ---- remote_ends.c: the ends of members on other hosts ---- */

/* Whether failure_ends_serve still has to look at this group. */
bool failure_ends_are_due(const struct ls_group *group);
/* Call when the group has just been closed. */
void failure_ends_closed(struct ls_group *group);
/* Call when all groups are closed, while the watch runs: waits until each rank on another host has
 * the ends of this one, or this one has theirs, and differences are reported. Blocks for at most a
 * second. */
void failure_ends_await(struct world *world);

/* ---- run_notes.c ---- */

/* Whether the group has failed for a difference that failure_ends_serve has found, and no call of
 * this rank has returned that. */
bool failure_is_unreturned(const struct ls_group *group);
/* Call when the world is open: hands the trace and the segment of this rank to the daemon of
 * `lockstep run --hosts`, if that has started it. Does not block. */
void failure_note_met(const struct world *world);

/* ---- lost.c ---- */

/* Call when this rank is about to leave the group, with no operation in progress and the group not
 * failed: reports messages that nobody will receive. With the setting CHECK the group fails because
 * of them. */
void failure_warn_lost(struct ls_group *group);

/* ---- watch.c ---- */

/* Starts the thread. Errors, with a message: LS_OUT_OF_MEMORY. */
LS_CHECKED ls_status failure_watch_start(struct world *world);
/* Joins the thread. The progress thread may still look, and ask for a look; that is then
 * ignored. */
void failure_watch_stop(struct world *world);
void failure_watch_init(struct world_watch *watch);
/* Closes the descriptors. The caller is the only thread of this rank. */
void failure_watch_fini(struct world_watch *watch);

/* ---- watch_bell.c ---- */

/* Call when the process of rank `q` has ended, or its host is given up: waits that need it end. */
void failure_mark_dead(struct world *world, int q);

#endif
