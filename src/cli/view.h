/* SPDX-License-Identifier: BSD-3-Clause
 * One job as it can be seen from outside: the traces and segments of its ranks, mapped read-only, also
 * of ranks that have ended, as long as somebody holds them. Used by diagnose, and by run for the time
 * after a failure. find.c finds them, view.c reads them, snapshot.c keeps what was read in a file. */
#ifndef CLI_VIEW_H
#define CLI_VIEW_H

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

enum { CLI_RANK_MAX = DIAGNOSE_RANK_MAX };

/* What is held of one rank. Descriptors stay open so that others find them through us. */
struct cli_held {
	struct trace_view trace; /* trace.header is NULL: not there */
	const struct transport_segment *segment;
	size_t segment_bytes;
	int trace_fd, segment_fd; /* -1: not there */
	uint64_t trace_inode;
};

struct cli_view {
	uint64_t job;
	int size; /* 1 <= size <= CLI_RANK_MAX */
	struct cli_held ranks[CLI_RANK_MAX];
};

/* ---- view.c ---- */

/* NULL without memory. */
struct cli_view *cli_view_new(uint64_t job, int size);
void cli_view_free(struct cli_view *view); /* NULL is allowed */

/* Takes `fd` over if it returns true; false if it is not what it should be, or is there already. */
bool cli_view_add_trace(struct cli_view *view, int rank, int fd);
bool cli_view_add_segment(struct cli_view *view, int rank, int fd);
bool cli_view_has_segments(const struct cli_view *view);

/* The state of a job at one moment, and what it means. */
struct cli_report {
	struct diagnose_job *job;
	struct diagnose_verdict verdict;
	/* The cause that the ranks themselves published; they have seen it happen, so it goes before the
	 * verdict. status LS_OK: none. */
	ls_status failure;
	uint32_t group; /* whose cause it is */
	int32_t blamed;
	uint64_t operation;
	char text[TRANSPORT_TEXT_BYTES]; /* the published report, else the verdict's, "" if healthy */
	struct ddp_phases *phases; /* after cli_report_add_phases, or of a snapshot; NULL: none */
	/* What diagnose_collect was asked, for cli_report_explain. */
	struct diagnose_source sources[CLI_RANK_MAX];
};

/* Copies the state. `known` (NULL, or one per rank) says what the caller knows of the processes: only
 * process, signal and exit_code are read. NULL without memory. */
struct cli_report *cli_report_take(const struct cli_view *view, const struct diagnose_source *known);
/* Reads the published cause, unless there is one already. */
void cli_report_update(struct cli_report *report, const struct cli_view *view);
/* Reads what ranks spend their time on, unless that was done. */
void cli_report_add_phases(struct cli_report *report);
/* Looks up call sites and lines of Python, adds phases and judges. May read debug information, so it takes its time. */
void cli_report_explain(struct cli_report *report);
/* Judges and nothing else, which is fast. */
void cli_report_judge(struct cli_report *report);
/* Whether something is wrong. A rank that computes keeps others waiting all the time; only when it takes as long as
 * `patience_ms` is that worth a verdict. Everything else is known at once. */
bool cli_report_is_verdict(const struct cli_report *report, uint64_t patience_ms);
void cli_report_free(struct cli_report *report); /* NULL is allowed */

/* ---- find.c ---- */

/* The jobs that were found. */
struct cli_jobs {
	struct cli_view **views;
	size_t count;
	bool unreadable; /* there were processes of this user that may not be looked into */
};

/* Finds the jobs of which any process that may be read holds memory. job 0 and pid 0 mean all; with a
 * pid only those of which that process holds memory. */
LS_CHECKED ls_status cli_find_jobs(uint64_t job, pid_t pid, struct cli_jobs *out);
void cli_jobs_free(struct cli_jobs *jobs);
/* Adds the segments of the view's job that process `pid` holds. */
void cli_find_segments(struct cli_view *view, pid_t pid);

/* What a word on the command line stands for: 16 hexadecimal digits are a job, up to 9 decimal ones a process,
 * anything else a file. */
struct cli_named {
	uint64_t job; /* 0: it is none */
	pid_t pid;    /* likewise */
	bool file;
	char what[32]; /* as messages call it: "process 123"; "" for a file */
};
struct cli_named cli_named(const char *word);

/* ---- snapshot.c ---- */

enum { CLI_ENDED_BYTES = 1024 };

/* What was kept of a job in a file. */
struct cli_snapshot {
	struct cli_report report; /* sources are empty */
	uint64_t written_s;       /* wall clock */
	bool ended_well; /* with status 0; then it was kept because somebody had asked for it */
	char ended[CLI_ENDED_BYTES]; /* how the launcher says that the job ended */
	/* Of each rank, as it was at the job's end; trace.header is NULL: not there, or damaged. */
	struct trace_view traces[CLI_RANK_MAX];
	void *memory[CLI_RANK_MAX]; /* in which they lie */
};

/* Writes to a file that is open, from where it stands. 0, or errno. */
int cli_snapshot_write_to(int fd, const struct cli_view *view, const struct cli_report *report,
			  const char *ended, bool ended_well);
/* Writes a new file, of a job that ended badly; an existing one is left alone and is an error. 0, or errno. */
int cli_snapshot_write(const char *path, const struct cli_view *view,
		       const struct cli_report *report, const char *ended);
/* NULL with the reason in *why. */
struct cli_snapshot *cli_snapshot_read(const char *path, const char **why);
void cli_snapshot_free(struct cli_snapshot *snapshot); /* NULL is allowed */

#endif
