/* SPDX-License-Identifier: BSD-3-Clause
 * One job as it can be seen from outside: the traces and segments of its ranks, mapped read-only,
 * also of ranks that have ended, as long as somebody holds them. Used by diagnose, and by run for
 * the time after a failure. find.c finds them, view.c reads them, snapshot.c keeps what was read in
 * a file. */
#ifndef INSPECT_INSPECT_H
#define INSPECT_INSPECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <lockstep/status.h>

#include "ddp/phases.h"
#include "diagnose/diagnose.h"
#include "trace/trace.h"
#include "transport/transport.h"

enum { INSPECT_RANK_MAX = DIAGNOSE_RANK_MAX };

/* What is held of one rank. Descriptors stay open so that others find them through us. */
struct inspect_held {
	struct trace_view trace; /* trace.header is NULL: not there */
	const struct transport_segment *segment;
	size_t segment_bytes;
	int trace_fd, segment_fd; /* -1: not there */
	uint64_t trace_inode;
};

struct inspect_view {
	uint64_t job;
	int size; /* 1 <= size <= INSPECT_RANK_MAX */
	struct inspect_held ranks[INSPECT_RANK_MAX];
};

/* ---- view.c ---- */

/* NULL without memory. */
struct inspect_view *inspect_view_new(uint64_t job, int size);
void inspect_view_free(struct inspect_view *view); /* NULL is allowed */

/* Takes `fd` over if it returns true; false if it is not what it should be, or is there already. */
bool inspect_view_add_trace(struct inspect_view *view, int rank, int fd);
bool inspect_view_add_segment(struct inspect_view *view, int rank, int fd);
bool inspect_view_has_segments(const struct inspect_view *view);

/* The state of a job at one moment, and what it means. */
struct inspect_report {
	struct diagnose_job *job;
	struct diagnose_verdict verdict;
	/* The cause that the ranks themselves published; they have seen it happen, so it goes
	 * before the verdict. status LS_OK: none. */
	ls_status failure;
	uint32_t group; /* whose cause it is */
	int32_t blamed;
	uint64_t operation;
	/* the published report, else the verdict's, "" if healthy */
	char text[TRANSPORT_TEXT_BYTES];
	/* after inspect_report_add_phases, or of a snapshot; NULL: none */
	struct ddp_phases *phases;
	/* What diagnose_collect was asked, for inspect_report_explain. */
	struct diagnose_source sources[INSPECT_RANK_MAX];
};

/* Copies the state. `known` (NULL, or one per rank) says what the caller knows of the processes:
 * only process, signal and exit_code are read. NULL without memory. */
struct inspect_report *inspect_report_take(const struct inspect_view *view,
					   const struct diagnose_source *known);
/* Reads the published cause, unless there is one already. */
void inspect_report_update(struct inspect_report *report, const struct inspect_view *view);
/* Reads what ranks spend their time on, unless that was done. */
void inspect_report_add_phases(struct inspect_report *report);
/* Looks up call sites and lines of Python, adds phases and judges. May read debug information, so
 * it takes its time. */
void inspect_report_explain(struct inspect_report *report);
/* After that: says at which line of Python a rank is that does not come (where.c). Reads the memory
 * of other processes, which blocks where a file that they have mapped does not answer; so it is for
 * a command that its user can end. */
void inspect_report_add_python(struct inspect_report *report);
/* Judges and nothing else, which is fast. */
void inspect_report_judge(struct inspect_report *report);
/* Whether something is wrong. A rank that computes keeps others waiting all the time; only when it
 * takes as long as `patience_ms` is that worth a verdict. Everything else is known at once. */
bool inspect_report_is_verdict(const struct inspect_report *report, uint64_t patience_ms);
void inspect_report_free(struct inspect_report *report); /* NULL is allowed */

/* ---- find.c ---- */

/* The jobs that were found. */
struct inspect_jobs {
	struct inspect_view **views;
	size_t count;
	bool unreadable; /* there were processes of this user that may not be looked into */
};

/* Finds the jobs of which any process that may be read holds memory. job 0 and pid 0 mean all; with
 * a pid only those of which that process holds memory. */
LS_CHECKED ls_status inspect_find_jobs(uint64_t job, pid_t pid, struct inspect_jobs *out);
void inspect_jobs_free(struct inspect_jobs *jobs);
/* Adds the segments of the view's job that process `pid` holds. */
void inspect_find_segments(struct inspect_view *view, pid_t pid);

/* ---- snapshot.c ---- */

enum { INSPECT_ENDED_BYTES = 1024 };

/* What was kept of a job in a file. */
struct inspect_snapshot {
	struct inspect_report report; /* sources are empty */
	uint64_t written_s;           /* wall clock */
	bool ended_well; /* with status 0; then it was kept because somebody had asked for it */
	char ended[INSPECT_ENDED_BYTES]; /* how the launcher says that the job ended */
	/* Of each rank, as it was at the job's end; trace.header is NULL: not there, or damaged. */
	struct trace_view traces[INSPECT_RANK_MAX];
	void *memory[INSPECT_RANK_MAX]; /* in which they lie */
};

/* Writes to a file that is open, from where it stands. 0, or errno. */
int inspect_snapshot_write_to(int fd, const struct inspect_view *view,
			      const struct inspect_report *report, const char *ended,
			      bool ended_well);
/* Writes a new file, of a job that ended badly; an existing one is left alone and is an error. 0,
 * or errno. */
int inspect_snapshot_write(const char *path, const struct inspect_view *view,
			   const struct inspect_report *report, const char *ended);
/* NULL with the reason in *why. */
struct inspect_snapshot *inspect_snapshot_read(const char *path, const char **why);
void inspect_snapshot_free(struct inspect_snapshot *snapshot); /* NULL is allowed */

#endif
