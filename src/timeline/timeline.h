/* SPDX-License-Identifier: BSD-3-Clause
 * What the ranks of a job did when: trace records as bars in rows, drawn as text, SVG or HTML. Pure
 * functions over copies: add every rank, then its call sites, lay out once, then draw. read.c
 * copies, lay_out.c lays out, legend.c names bars, ascii.c, svg.c and html.c draw, json.c lists. */
#ifndef TIMELINE_TIMELINE_H
#define TIMELINE_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/clock.h"
#include "trace/trace.h"

enum {
	TIMELINE_RANK_MAX = RANKS_WORLD_MAX,
	/* Rows of one rank. If there would be more, rows are joined: first those of different tags,
	 * then of different peers, then of different groups. */
	TIMELINE_ROW_MAX = 32,
	TIMELINE_OP_MAX = 1 << 18, /* of all ranks; the newest are drawn */
	TIMELINE_GROUP_MAX = 256,
	TIMELINE_SITE_MAX = 64, /* of one rank; further call sites are not shown */
	TIMELINE_SITE_BYTES = 96,
	TIMELINE_LABEL_BYTES = 64,
	TIMELINE_PEER_BYTES = 24,
	TIMELINE_COLUMNS = 100, /* of a text, unless a caller wants another width */
};

/* One operation: a bar. After the layout begin_ns <= end_ns, and an operation that still runs ends
 * with the timeline. */
struct timeline_op {
	struct trace_record record;
	uint64_t begin_ns, end_ns; /* clock_now_ns scale */
	int rank;
	uint32_t row;  /* in timeline.rows */
	uint32_t site; /* 1 + place in its rank's sites, 0: unknown */
};

/* Operations that may overlap have different rows: the collectives of each group, and the messages
 * to or from each peer with each tag. If operations of one such lane overlap, it has several
 * rows. */
enum timeline_lane { TIMELINE_LANE_COLLECTIVE, TIMELINE_LANE_SEND, TIMELINE_LANE_RECEIVE };
struct timeline_row {
	int rank;
	enum timeline_lane lane;
	uint32_t group;
	int32_t peer, tag;
	uint32_t order;                   /* in which rows were made */
	bool first;                       /* the first row of its lane, which has the label */
	uint64_t end_ns;                  /* of the last operation on it */
	char label[TIMELINE_LABEL_BYTES]; /* printable ASCII */
};

struct timeline_site {
	uint64_t site; /* as in the record */
	uint32_t label;
	char text[TIMELINE_SITE_BYTES];
};

/* How the times of a rank become times of the host on which the timeline is drawn. */
struct timeline_clock {
	int first;              /* the lowest rank of its host */
	struct clock_rate rate; /* fresh: trace_rate_now */
	/* How far the clock_now_ns of the rank's host is ahead of this host's, give or take
	 * error_ns; 0, 0: the rank is on this host. */
	int64_t offset_ns;
	uint64_t error_ns;
};

struct timeline_rank {
	bool known;
	/* In a job on several hosts. has_clock: `clock` and `host` are set. is_missing: only
	 * `clock.first` and `host` are, as the host has not answered. */
	bool has_clock, is_missing;
	struct timeline_clock clock;
	char host[TIMELINE_LABEL_BYTES]; /* printable ASCII */
	/* All records since this time are there; 0: all records are, as the ring was long
	 * enough. */
	uint64_t complete_ns;
	int32_t pid;
	uint64_t start_ns, start_s; /* one moment: clock_now_ns, and the wall clock */
	struct clock_rate rate;
	uint32_t row, row_count; /* its rows */
	uint32_t site_count;
	struct timeline_site sites[TIMELINE_SITE_MAX];
};

struct timeline_group {
	uint32_t id;
	char name[TIMELINE_LABEL_BYTES]; /* printable ASCII, not empty */
	int size;                        /* 0: its members are not known */
	/* ranks below the timeline's size, in the order of the group */
	uint16_t members[TRACE_MEMBER_MAX];
	/* The number of collectives that each rank has entered; it tells whether a record was
	 * overwritten or never existed. */
	uint64_t entered[TIMELINE_RANK_MAX];
	struct ranks told; /* whose traces have this group */
};

struct timeline {
	uint64_t job;
	int size; /* ranks */
	char program[TRACE_PATH_BYTES];
	char host[TRACE_TEXT_BYTES];
	/* The time that is drawn; begin_ns <= end_ns. If an operation is still running, end_ns is a
	 * little after the last event, so that a hang of an hour does not squeeze everything else
	 * into one column. */
	uint64_t begin_ns, end_ns;
	uint64_t now_ns;         /* when the traces were read, at least end_ns */
	struct timeline_op *ops; /* by rank, then by begin */
	size_t op_count, op_room;
	struct timeline_row *rows; /* by rank, lane, group, peer, tag */
	uint32_t row_count;
	struct timeline_group groups[TIMELINE_GROUP_MAX];
	uint32_t group_count;
	struct timeline_rank ranks[TIMELINE_RANK_MAX];
};

/* ---- read.c ---- */

/* NULL without memory, or with a size outside of 1 to TIMELINE_RANK_MAX. */
struct timeline *timeline_new(uint64_t job, int size);
void timeline_free(struct timeline *timeline); /* NULL is allowed */
/* Copies all records of a rank. Reads nothing but the view's memory. False without memory. */
bool timeline_add(struct timeline *timeline, int rank, const struct trace_view *view);
/* As timeline_add, in a job on several hosts. */
bool timeline_add_at(struct timeline *timeline, int rank, const struct trace_view *view,
		     const struct timeline_clock *clock);
/* Notes that there is no trace of this rank, as its host has not answered. first: the lowest rank
 * of that host. */
void timeline_miss(struct timeline *timeline, int rank, const char *host, int first);
/* Looks up where the operations of a rank that was added were called. That takes its time, so it is
 * done after all ranks have been added, whose traces then are of one moment. */
void timeline_add_sites(struct timeline *timeline, int rank, const struct trace_view *view);
/* Adds one operation, which ended at end_ns unless its record says that it runs. False without
 * memory. */
bool timeline_put(struct timeline *timeline, int rank, const struct trace_record *record,
		  uint64_t begin_ns, uint64_t end_ns);

/* ---- lay_out.c ---- */

/* Drops what ended more than last_ns (0: no limit) before the last thing that happened, and makes
 * the rows. now_ns: when the traces were read, 0: unknown. False without memory. */
bool timeline_lay_out(struct timeline *timeline, uint64_t last_ns, uint64_t now_ns);
static inline bool timeline_runs(const struct timeline_op *op)
{
	return op->record.state == TRACE_RUNNING;
}
static inline bool timeline_streams(const struct timeline_op *op)
{
	return (op->record.stream & TRACE_ON_STREAM) != 0;
}

/* ---- legend.c ---- */

/* How a kind is drawn. */
struct timeline_look {
	char letter;
	bool dark;         /* text on it must be light */
	const char *color; /* "#0072B2"; kinds that are much alike share one */
};
struct timeline_look timeline_look(uint32_t kind);

/* The distance of the marks on an axis, 1, 2 or 5 times a power of ten, so that there are at most
 * `marks` of them after the first. */
uint64_t timeline_step(uint64_t span_ns, int marks);
/* "0.25 ms": the time of a mark. */
void timeline_mark(uint64_t at_ns, uint64_t span_ns, uint64_t step_ns, char *out, size_t bytes);
/* "12.3 us" */
void timeline_duration(uint64_t ns, char *out, size_t bytes);

const char *timeline_group(const struct timeline *timeline, uint32_t id);
/* A rank of a group by its number in the job, which the bands have, too: "3"; "member 1" if the
 * members of the group are not known; "any" for -1. */
void timeline_peer(const struct timeline *timeline, uint32_t id, int32_t peer, char *out,
		   size_t bytes);
/* "" if it is not known. */
const char *timeline_site(const struct timeline *timeline, const struct timeline_op *op);
/* "receive #3 from 1, tag 99", "broadcast #12 of world" */
void timeline_name(const struct timeline *timeline, const struct timeline_op *op, char *out,
		   size_t bytes);
/* All that is known of an operation, in several lines. */
void timeline_describe(const struct timeline *timeline, const struct timeline_op *op, char *out,
		       size_t bytes);
/* "job 0123456789abcdef: train, 4 ranks on HOST, 120 operations in 3.1 ms" */
void timeline_title(const struct timeline *timeline, char *out, size_t bytes);

/* Note `number`, from 0, on a job on several hosts. Every picture shows all notes: "times are those
 * of host a (ranks 0, 1)", "the clock of host b (ranks 2, 3) is 1.250000 s ahead, give or take 41.0
 * us", "host c (rank 4) has not answered". False: there are no more. */
bool timeline_note(const struct timeline *timeline, int number, char *out, size_t bytes);

/* ---- ascii.c, svg.c, html.c ---- */

/* Lines of at most `columns` (60 to 200) ASCII characters, then the operations that have not ended
 * or have failed. */
void timeline_text(const struct timeline *timeline, int columns, FILE *out);
/* A whole SVG file, UTF-8. */
void timeline_svg(const struct timeline *timeline, FILE *out);
/* As timeline_svg, in a page in which one can move and zoom. */
void timeline_html(const struct timeline *timeline, FILE *out);

/* ---- json.c ---- */

/* One JSON object: groups with their members, and every operation of each rank in the order in
 * which they began. */
void timeline_json(const struct timeline *timeline, FILE *out);

#endif
