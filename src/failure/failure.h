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
/* For a group over several hosts: whether this host works out the cause. The other hosts wait a
 * moment for it. */
bool failure_is_speaker(const struct ls_group *group, const struct diagnose_hint *hint);
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
/* Reports the failure of a group that all members have left. Its area may belong to another
 * group. */
void failure_report_locally(struct ls_group *group, const struct diagnose_hint *hint);
/* As failure_raise, for a cause that fails several groups, `group` among them. refs: of those
 * with members on this host; groups: the ids of all, as in struct transport_report. `job` proves
 * the cause: a later snapshot might find one of the threads between two waits. Fails none if one
 * of these groups has failed meanwhile: then there is no cycle any more. */
void failure_raise_all(struct ls_group *group, const struct failure_cause_ref *refs, int count,
		       const uint32_t groups[TRANSPORT_REPORT_GROUPS],
		       const struct diagnose_hint *hint, struct diagnose_snapshot *job);
/* As failure_raise, for ls_group_abort: does not wait for other ranks, and takes over no claim. The
 * first rank that publishes wins. */
void failure_raise_aborted(struct ls_group *group, const struct diagnose_hint *hint);
/* Writes the report of a rank on another host beside a cause, so that failure_publish can publish
 * it; `own` is the group if this rank is in it, NULL if not. False: the group has failed, or
 * somebody is working out its cause. Prints nothing. Does not block. */
bool failure_write_told(struct world *world, const struct failure_cause_ref *ref,
			struct ls_group *own, const struct hosts_failure *told);
/* Call when another rank or thread is about to publish a cause: waits for that, for at most 600
 * ms. */
void failure_await_cause(struct ls_group *group, const struct failure_cause_ref *ref);
/* Publishes my reports as these causes, and then wakes all ranks. */
void failure_publish(struct world *world, const struct failure_cause_ref *refs, int count);
/* Copies the report that counts on this host. False: the group has not failed. */
bool failure_copy(const struct ls_group *group, struct hosts_failure *out);
void failure_read(const struct ls_group *group, struct ls_failure *out);
/* Call for a new group, of which no failure has been claimed or published. */
void failure_begin(const struct ls_group *group);
struct failure_cause_ref failure_cause_ref_of(const struct ls_group *group);
/* Whether no cause can be published in this place any more: the group has failed, or the area is
 * another group's by now. */
bool failure_is_settled(const struct failure_cause_ref *ref);

/* ---- together.c ---- */

/* Finds the cause of a group that has members on this host. False: there are none. */
bool failure_find_cause_ref(struct world *world, uint32_t id, struct failure_cause_ref *out);
/* Fails every group in which a rank of the cycle waits, on all hosts. */
void failure_raise_deadlock(struct ls_group *group, struct diagnose_snapshot *job,
			    const struct diagnose_verdict *verdict,
			    const struct diagnose_hint *hint);
/* Call when this rank has seen that a group has failed, before it continues: waits until the groups
 * that fail with it have failed, too. Blocks for at most 600 ms. */
void failure_await_together(struct ls_group *group);
/* Fails the groups that a rank on another host says have failed. Does not block. */
void failure_raise_told(struct world *world, const struct hosts_failure *failure);

/* ---- arrivals.c ---- */

/* Call after a claim, before the snapshot. Blocks for at most about half a second. */
void failure_await_arrivals(struct ls_group *group, const struct diagnose_hint *hint,
			    bool collective);

/* ---- far_state.c ---- */

/* NULL without memory. */
struct failure_far *failure_far_open(void);
/* After the link is closed. */
void failure_far_close(struct failure_far *far);

/* ---- far_look.c, far_request.c: looks at all hosts; by the watch, unless said otherwise ---- */

void failure_far_events(struct hosts_events *events);
/* Answers what other hosts have asked. */
void failure_far_answer(struct world *world);
/* A snapshot of all ranks on all hosts, to be freed with free(). NULL: some host has not answered
 * in time, or there is no memory. Waits for 600 ms at most. closing: as in failure_collect. */
struct diagnose_snapshot *failure_far_collect(struct world *world,
					      const struct diagnose_closing *closing);
/* As failure_far_collect, for any thread, of a group of several hosts: the watch collects. */
struct diagnose_snapshot *failure_far_request(struct ls_group *group);
/* For the watch: collects what failure_far_request has asked for. */
void failure_far_serve(struct world *world);
/* Whether some host has not answered for several looks. */
bool failure_far_is_unanswering(const struct failure_far *far);

/* ---- show.c: what commands on this host are shown of the others (shown.h) ---- */

/* For the thread of heartbeats, now and then: wakes the watch if there is something to do. */
void failure_show_poll(struct world *world, bool is_agent, uint64_t now_ns);
/* For the watch: answers what commands have asked this host, if it has been woken for that. Waits
 * for 1.2 s at most. */
void failure_show_serve(struct world *world);

/* ---- far_ranks.c ---- */

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

/* The hint for failure_raise about a difference between the collectives of two members. */
struct diagnose_hint failure_difference_hint(const struct ls_group *group,
					     const struct engine_difference *found);
/* Fails the group for such a difference. closed: this rank has closed the group, so none of its
 * calls can return the status. */
void failure_raise_difference(struct ls_group *group, const struct engine_difference *found,
			      bool closed);

/* ---- far_ends.c: the ends of members on other hosts ---- */

void failure_ends_events(struct hosts_events *events);
/* For the watch: fails the groups in which an end that has arrived differs from what this rank
 * called. If another host is to report the difference, this one waits a second for its report. */
void failure_ends_serve(struct world *world);
/* When failure_ends_serve has to be called again, if ever. */
uint64_t failure_ends_due_ns(const struct world *world);
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
/* Call when this rank has found only on closing the group that the group has failed, so none of its
 * calls returned that. Does nothing if another rank has written the report. */
void failure_note_unreturned(struct ls_group *group);
/* For failure_note: tells the launcher that a call returns that a member has left. */
void failure_note_returned(const struct ls_group *group);
/* Call when the world is open: hands the trace and the segment of this rank to the daemon of
 * `lockstep run --hosts`, if that has started it. Does not block. */
void failure_note_met(const struct world *world);

/* ---- lost.c ---- */

/* Call when this rank is about to leave the group, with no operation in progress and the group not
 * failed: reports messages that nobody will receive. With the setting CHECK the group fails because
 * of them. */
void failure_warn_lost(struct ls_group *group);

/* ---- sources.c ---- */

/* A snapshot of all ranks, to be freed with free(); NULL without memory. `closing`: groups that
 * this thread is about to close, see diagnose_collect. */
struct diagnose_snapshot *failure_collect(const struct world *world,
					  const struct diagnose_closing *closing);
/* Adds the record of world rank `rank` whose index has these lowest bits. Returns that index; 0:
 * nothing was added. */
uint64_t failure_add_record(const struct world *world, int rank, uint32_t low,
			    struct diagnose_snapshot *job);
/* Where the collector finds each rank of the world. */
void failure_fill_sources(const struct world *world, struct diagnose_source *sources);
/* Adds call sites of the ranks of this host. */
void failure_add_sites(const struct world *world, struct diagnose_snapshot *job);

/* ---- report.c ---- */

/* Writes the report about `job`, with call sites, and with the line of Python at which each rank is
 * that others wait for. To find these lines takes about 10 ms, and at most 300. */
void failure_report(struct world *world, struct diagnose_snapshot *job,
		    const struct diagnose_verdict *verdict, char *text, size_t bytes);

/* ---- python_line.c ---- */

/* If the verdict is that ranks are elsewhere: adds to `job` at which line of Python they are.
 * Blocks for at most 300 ms. */
void failure_add_python(struct world *world, struct diagnose_snapshot *job,
			const struct diagnose_verdict *verdict);

/* ---- look.c ---- */

/* Called when a wait of this rank lasts long: looks for the reason in each group, unless another
 * watch has just done so. */
void failure_look(struct world *world);

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
/* A thread adds this to the eventfd to make the watch serve others. Threads that wait add 1, and
 * then the watch looks, too. */
#define FAILURE_SERVE_WAKE (UINT64_C(1) << 32)
/* For the watch: sleeps until a thread wakes it or until deadline_ns, and notes meanwhile which
 * peers end. *wakeups: not 0 if a thread woke it. False: the program has closed its descriptors. */
bool failure_watch_sleep(struct world *world, uint64_t deadline_ns, uint64_t *wakeups);
/* Makes the watch look now. */
void failure_watch_wake(struct world_watch *watch);
/* Makes the watch answer other hosts and commands now, but not look. */
void failure_watch_serve(struct world_watch *watch);

#endif
