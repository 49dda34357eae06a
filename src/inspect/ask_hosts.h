/* SPDX-License-Identifier: BSD-3-Clause
 * A job on several hosts, seen from one of them: its ranks there ask the other hosts for a snapshot
 * of theirs, and show it (failure/shown.h). */
#ifndef INSPECT_ASK_HOSTS_H
#define INSPECT_ASK_HOSTS_H

#include "inspect/inspect.h"
#include "print/print.h"
#include "transport/layout.h"

/* What is known of the hosts of a job. */
struct inspect_hosts {
	/* the lowest rank of the host that was asked; -1: each was, see inspect_parts_join */
	int here;
	bool has_told;         /* that host has answered */
	struct ranks answered; /* ranks whose host has answered */
	uint64_t waited_ms;
	/* By rank: the name of its host ("": not known), its pid there, the lowest rank there. */
	struct transport_location locations[INSPECT_RANK_MAX];
	/* By rank: since when its host and the one that was asked do not hear each other
	 * (clock_now_ns); 0: they do. */
	uint64_t unheard_ns[INSPECT_RANK_MAX];
	/* By rank: the last collective of the world group of which this host has heard; kind
	 * TRACE_NONE: none. */
	struct trace_record last[INSPECT_RANK_MAX];
	/* Copies of the traces of ranks on other hosts, and when they were made, by their clocks.
	 * has_copied, copied: as has_told and answered. */
	struct trace_view traces[INSPECT_RANK_MAX];
	uint64_t copied_ns[INSPECT_RANK_MAX];
	bool has_copied;
	struct ranks copied;
	/* By rank: how far its host's clock_now_ns is ahead of that of the host that was asked, and
	 * by how much that may be wrong; from heartbeats, else from the times of the question and
	 * of its answer. Error 0: nothing is known, or the host is the one that was asked. */
	int64_t offset_ns[INSPECT_RANK_MAX];
	uint64_t error_ns[INSPECT_RANK_MAX];
	void *memory; /* of these copies */
};

/* NULL: all ranks are on one host, or there is no memory. */
struct inspect_hosts *inspect_hosts_new(const struct inspect_view *view);
void inspect_hosts_free(struct inspect_hosts *hosts); /* NULL is allowed */

/* Asks for a snapshot of the whole job: NULL if this host does not answer in 3 s. Hosts that are
 * not in hosts->answered afterwards are left out of the snapshot. */
struct diagnose_snapshot *inspect_hosts_ask(struct inspect_hosts *hosts,
					    const struct inspect_view *view);
/* Asks for copies of the traces of all ranks on other hosts. False: this host does not answer in
 * 5 s. */
bool inspect_hosts_copy(struct inspect_hosts *hosts, const struct inspect_view *view);

/* The ranks of the host of rank `first`. */
struct ranks inspect_hosts_ranks(const struct inspect_hosts *hosts, int first, int size);
/* Lines about hosts that have not answered. */
void inspect_hosts_print(FILE *out, const struct inspect_report *report);
void inspect_hosts_json(struct print_json *json, const struct inspect_report *report);

/* ---- find_jobs.c ---- */

/* The newest answer to this question or a later one, which the caller closes; -1: there is none. */
int inspect_find_shown(uint64_t job, unsigned question, uint64_t number);

#endif
