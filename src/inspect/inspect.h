/* SPDX-License-Identifier: BSD-3-Clause
 * One job seen from outside: the traces and segments of its ranks, mapped read-only; also those of
 * ended ranks, as long as some process holds them. `diagnose` uses it, and `run` after a failure.
 * find_jobs.c finds jobs, view.c maps their memory, report_take.c makes reports of it, and
 * snapshot.c saves these in a file. */
#ifndef INSPECT_INSPECT_H
#define INSPECT_INSPECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <lockstep/status.h>

#include "base/ranks.h"
#include "ddp/phases.h"
#include "diagnose/diagnose.h"
#include "trace/trace.h"
#include "transport/transport.h"

enum { INSPECT_RANK_MAX = RANKS_WORLD_MAX };

/* The memory of one rank. Descriptors stay open, so that other processes can find the memory
 * through this one. */
struct inspect_held {
	struct trace_view trace; /* trace.header NULL: there is none */
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

/* Takes over `fd` if it returns true. False: not a trace or segment of this rank, or a second
 * one. */
bool inspect_view_add_trace(struct inspect_view *view, int rank, int fd);
bool inspect_view_add_segment(struct inspect_view *view, int rank, int fd);
bool inspect_view_has_segments(const struct inspect_view *view);

/* ---- report_take.c ---- */

/* The state of a job at one moment, and what it means. */
struct inspect_report {
	struct diagnose_snapshot *snapshot;
	struct diagnose_verdict verdict;
	/* The cause that the ranks themselves published. It counts more than the verdict, because
	 * they saw the failure happen. LS_OK: none. */
	ls_status failure;
	uint32_t group; /* whose cause this is */
	int32_t culprit;
	uint64_t operation;
	/* the published report, else the verdict's, "" if healthy */
	char text[TRANSPORT_TEXT_BYTES];
	/* after inspect_report_add_phases, or of a snapshot; NULL: none */
	struct ddp_phases *phases;
	/* Set by inspect_report_ask_hosts for a job on several hosts; else NULL. */
	struct inspect_hosts *hosts;
	/* The sources given to diagnose_collect, for inspect_report_explain. */
	struct diagnose_source sources[INSPECT_RANK_MAX];
};

/* Copies the state. If operations last and nobody seems to wait, it looks again, for half a second
 * at most. `known` (NULL, or one for each rank) is what the caller knows of the processes;
 * only process, signal, exit_code and host are read. NULL without memory. */
struct inspect_report *inspect_report_take(const struct inspect_view *view,
					   const struct diagnose_source *known);
/* If the job is on several hosts: asks its ranks for those of the other hosts, for 3 s at most.
 * Before the report is explained. What has not answered is in report->hosts (ask_hosts.h). */
void inspect_report_ask_hosts(struct inspect_report *report, const struct inspect_view *view);
/* Reads the published cause, unless there is one already. */
void inspect_report_update(struct inspect_report *report, const struct inspect_view *view);
/* Reads the phases of all ranks of this host, unless that was done before; of all others after
 * inspect_hosts_copy. */
void inspect_report_add_phases(struct inspect_report *report);
/* Looks up call sites, adds phases and judges. May be slow, because it reads debug information. */
void inspect_report_explain(struct inspect_report *report);
/* Call afterwards: adds the line of Python at which a rank is that others wait for (where.c). Reads
 * the memory of other processes, which may block forever if they have mapped a file of a server
 * that hangs. So it is only for a command that its user can end. */
void inspect_report_add_python(struct inspect_report *report);
/* Also judges and adds that line, but a process of its own reads the memory: blocks for at most
 * 400 ms, as a rule for 10. Only for the program `lockstep`, as that process runs it, too. Does
 * nothing if the ranks have published a cause. */
void inspect_report_ask_python(struct inspect_report *report);
/* "its main thread is in load at data.py:88": where the thread `caller` of a process is, or if that
 * is in no function of Python the main thread; and which mutexes of the process keep them. "" if
 * there is nothing to say. Returns struct diagnose_rank.awaits_mutex. May block forever, as
 * inspect_report_add_python. */
bool inspect_python_line(int pid, uint32_t caller, char *out, size_t bytes);
/* Only judges, which is fast. */
void inspect_report_judge(struct inspect_report *report);
/* Whether the report is worth printing. A rank that computes keeps the others waiting all the time:
 * that counts only after `patience_ms`, unless a rank can never continue. All other verdicts count
 * at once. */
bool inspect_report_is_verdict(const struct inspect_report *report, uint64_t patience_ms);
void inspect_report_free(struct inspect_report *report); /* NULL is allowed */

/* ---- find_jobs.c ---- */

/* The jobs that were found. */
struct inspect_jobs {
	struct inspect_view **views;
	size_t count;
	bool unreadable; /* some processes of this user may not be read */
};

/* Finds the jobs whose memory some readable process holds. job 0 and pid 0 mean all; with a pid,
 * only jobs whose memory that process holds. */
LS_CHECKED ls_status inspect_find_jobs(uint64_t job, pid_t pid, struct inspect_jobs *out);
void inspect_jobs_free(struct inspect_jobs *jobs);
/* Adds the segments of the view's job that process `pid` holds. */
void inspect_find_segments(struct inspect_view *view, pid_t pid);

/* ---- snapshot.c ---- */

enum { INSPECT_ENDED_BYTES = 1024 };

/* A job that was saved in a file. */
struct inspect_saved {
	struct inspect_report report;    /* sources are empty */
	uint64_t written_s;              /* wall clock */
	bool ended_well;                 /* it ended with status 0, and was saved on request */
	char ended[INSPECT_ENDED_BYTES]; /* the launcher's text about the job's end */
	/* The trace of each rank at the job's end; trace.header NULL: there is none, or it is
	 * damaged. */
	struct trace_view traces[INSPECT_RANK_MAX];
	void *memory[INSPECT_RANK_MAX]; /* the memory of these traces */
};

/* Writes to an open file, at its current offset. view NULL: the report is one of
 * inspect_parts_join, and has the traces. Returns 0, or errno. */
int inspect_save_to(int fd, const struct inspect_view *view, const struct inspect_report *report,
		    const char *ended, bool ended_well);
/* Writes a new file for a job that failed; an existing file is not overwritten and is an error.
 * Returns 0, or errno. */
int inspect_save(const char *path, const struct inspect_view *view,
		 const struct inspect_report *report, const char *ended);
/* NULL with the reason in *why. */
struct inspect_saved *inspect_saved_read(const char *path, const char **why);
void inspect_saved_free(struct inspect_saved *saved); /* NULL is allowed */

#endif
