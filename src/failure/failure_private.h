/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of this room share: how a rank works out a cause, collects snapshots and looks for
 * hangs, and what its watch does for others. */
#ifndef FAILURE_PRIVATE_H
#define FAILURE_PRIVATE_H

#include "failure/failure.h"

/* ---- cause.c ---- */

/* For a group over several hosts: whether this host works out the cause. The other hosts wait a
 * moment for it. */
bool failure_is_speaker(const struct ls_group *group, const struct diagnose_hint *hint);
/* Reports the failure of a group that all members have left. Its area may belong to another
 * group. */
void failure_report_locally(struct ls_group *group, const struct diagnose_hint *hint);
/* As failure_raise, for a cause that fails several groups, `group` among them. refs: of those with
 * members on this host; groups: the ids of all, as in struct transport_report. `snapshot` proves
 * the cause: a later snapshot might find one of the threads between two waits. Fails none if one of
 * these groups has failed meanwhile: then there is no cycle any more. */
void failure_raise_all(struct ls_group *group, const struct failure_cause_ref *refs, int count,
		       const uint32_t groups[TRANSPORT_REPORT_GROUPS],
		       const struct diagnose_hint *hint, struct diagnose_snapshot *snapshot);
/* As failure_raise, for ls_group_abort: does not wait for other ranks, and takes over no claim. The
 * first rank that publishes wins. */
void failure_raise_aborted(struct ls_group *group, const struct diagnose_hint *hint);
/* Call when another rank or thread is about to publish a cause: waits for that, for at most 600
 * ms. */
void failure_await_cause(struct ls_group *group, const struct failure_cause_ref *ref);
/* Copies the report that counts on this host. False: the group has not failed. */
bool failure_copy(const struct ls_group *group, struct hosts_failure *out);
/* Whether no cause can be published in this place any more: the group has failed, or the area is
 * another group's by now. */
bool failure_is_settled(const struct failure_cause_ref *ref);

/* ---- raise_all.c ---- */

/* Finds the cause of a group that has members on this host. False: there are none. */
bool failure_find_cause_ref(struct world *world, uint32_t id, struct failure_cause_ref *out);
/* Call when this rank has seen that a group has failed, before it continues: waits until the groups
 * that fail with it have failed, too. Blocks for at most 600 ms. */
void failure_await_together(struct ls_group *group);

/* ---- await_facts.c ---- */

/* Call after a claim, before the snapshot. Blocks for at most about half a second. */
void failure_await_arrivals(struct ls_group *group, const struct diagnose_hint *hint,
			    bool collective);

/* ---- remote_look.c, remote_request.c: looks at all hosts; by the watch, if not said otherwise */

void failure_remote_events(struct hosts_events *events);
/* Answers what other hosts have asked. */
void failure_remote_answer(struct world *world);
/* A snapshot of all ranks on all hosts, to be freed with free(). NULL: some host has not answered
 * in time, or there is no memory. Waits for 600 ms at most. closing: as in failure_collect. */
struct diagnose_snapshot *failure_remote_collect(struct world *world,
						 const struct diagnose_closing *closing);
/* As failure_remote_collect, for any thread, of a group of several hosts: the watch collects. */
struct diagnose_snapshot *failure_remote_request(struct ls_group *group);
/* For the watch: collects what failure_remote_request has asked for. */
void failure_remote_serve(struct world *world);
/* Whether some host has not answered for several looks. */
bool failure_remote_is_unanswering(const struct failure_remote *remote);

/* ---- show.c: what commands on this host are shown of the others (shown.h) ---- */

/* For the watch: answers what commands have asked this host, if it has been woken for that. Waits
 * for 1.2 s at most. */
void failure_show_serve(struct world *world);

/* ---- ending.c ---- */

/* The hint for failure_raise about a difference between the collectives of two members. */
struct diagnose_hint failure_difference_hint(const struct ls_group *group,
					     const struct engine_difference *found);
/* Fails the group for such a difference. closed: this rank has closed the group, so none of its
 * calls can return the status. */
void failure_raise_difference(struct ls_group *group, const struct engine_difference *found,
			      bool closed);

/* ---- remote_ends.c: the ends of members on other hosts ---- */

void failure_ends_events(struct hosts_events *events);
/* For the watch: fails the groups in which an end that has arrived differs from what this rank
 * called. If another host is to report the difference, this one waits a second for its report. */
void failure_ends_serve(struct world *world);
/* When failure_ends_serve has to be called again, if ever. */
uint64_t failure_ends_due_ns(const struct world *world);

/* ---- run_notes.c ---- */

/* Call when this rank has found only on closing the group that the group has failed, so none of its
 * calls returned that. Does nothing if another rank has written the report. */
void failure_note_unreturned(struct ls_group *group);
/* For failure_note: tells the launcher that a call returns that a member has left. */
void failure_note_returned(const struct ls_group *group);

/* ---- sources.c ---- */

/* A snapshot of all ranks, to be freed with free(); NULL without memory. `closing`: groups that
 * this thread is about to close, see diagnose_collect. */
struct diagnose_snapshot *failure_collect(const struct world *world,
					  const struct diagnose_closing *closing);
/* Adds the record of world rank `rank` whose index has these lowest bits. Returns that index; 0:
 * nothing was added. */
uint64_t failure_add_record(const struct world *world, int rank, uint32_t low,
			    struct diagnose_snapshot *snapshot);
/* Where the collector finds each rank of the world. */
void failure_fill_sources(const struct world *world, struct diagnose_source *sources);
/* Adds call sites of the ranks of this host. */
void failure_add_sites(const struct world *world, struct diagnose_snapshot *snapshot);

/* ---- report.c ---- */

/* Writes the report about `snapshot`, with call sites, and with the line of Python at which each
 * rank is that others wait for. To find these lines takes about 10 ms, and at most 300. */
void failure_report(struct world *world, struct diagnose_snapshot *snapshot,
		    const struct diagnose_verdict *verdict, char *text, size_t bytes);

/* ---- python_line.c ---- */

/* If the verdict is that ranks are elsewhere: adds to `snapshot` at which line of Python they are.
 * Blocks for at most 300 ms. */
void failure_add_python(struct world *world, struct diagnose_snapshot *snapshot,
			const struct diagnose_verdict *verdict);

/* ---- look.c ---- */

/* Called when a wait of this rank lasts long: looks for the reason in each group, unless another
 * watch has just done so. */
void failure_look(struct world *world);

/* ---- watch_bell.c ---- */

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
