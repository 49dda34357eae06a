/* SPDX-License-Identifier: BSD-3-Clause
 * What the ranks of a job did when: records of their traces as bars on rows, and these as text, SVG or HTML.
 * Pure functions over copies: add every rank, then its call sites, lay out once, then draw. timeline_read.c
 * copies, timeline.c lays out, timeline_words.c says what a bar is, timeline_text.c and timeline_svg.c draw,
 * timeline_json.c lists. */
#ifndef CLI_TIMELINE_H
#define CLI_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/clock.h"
#include "trace/trace.h"

enum {
	CLI_TIMELINE_RANK_MAX = 64,
	/* Of one rank. With more, rows are joined: first those of tags, then of peers, then of groups. */
	CLI_TIMELINE_ROW_MAX = 32,
	CLI_TIMELINE_OP_MAX = 1 << 18, /* of all ranks; the newest are drawn */
	CLI_TIMELINE_GROUP_MAX = 256,
	CLI_TIMELINE_SITE_MAX = 64, /* of one rank; where other operations were called is not said */
	CLI_TIMELINE_SITE_BYTES = 96,
	CLI_TIMELINE_LABEL_BYTES = 64,
	CLI_TIMELINE_COLUMNS = 100, /* of text, if nothing speaks against it */
};

/* One operation: a bar. After the layout begin_ns <= end_ns, and one that runs ends with the timeline. */
struct cli_timeline_op {
	struct trace_record record;
	uint64_t begin_ns, end_ns; /* clock_now_ns scale */
	int rank;
	uint32_t row;  /* in cli_timeline.rows */
	uint32_t site; /* 1 + place in its rank's sites, 0: unknown */
};

/* What may run beside everything else has a row of its own: the collectives of each group, and what goes to
 * or comes from each peer with each tag. Where operations of one such lane overlap it has several rows. */
enum cli_timeline_lane { CLI_LANE_COLLECTIVE, CLI_LANE_SEND, CLI_LANE_RECEIVE };
struct cli_timeline_row {
	int rank;
	enum cli_timeline_lane lane;
	uint32_t group;
	int32_t peer, tag;
	uint32_t order;                       /* in which rows were made */
	bool first;                           /* of its lane: the one that says what it is */
	uint64_t end_ns;                      /* of the last operation on it */
	char label[CLI_TIMELINE_LABEL_BYTES]; /* printable ASCII */
};

struct cli_timeline_site {
	uint64_t site; /* as in the record */
	uint32_t label;
	char text[CLI_TIMELINE_SITE_BYTES];
};

struct cli_timeline_rank {
	bool known;
	/* What has begun since then is there; 0: everything is, as the ring was long enough. */
	uint64_t complete_ns;
	int32_t pid;
	uint64_t start_ns, start_s; /* one moment: clock_now_ns, and the wall clock */
	struct clock_rate rate;
	uint32_t row, row_count; /* its rows */
	uint32_t site_count;
	struct cli_timeline_site sites[CLI_TIMELINE_SITE_MAX];
};

struct cli_timeline_group {
	uint32_t id;
	char name[CLI_TIMELINE_LABEL_BYTES]; /* printable ASCII, not empty */
	int size;                            /* 0: its members are not known */
	uint8_t members[TRACE_MEMBER_MAX]; /* ranks below the timeline's size, in the order of the group */
	/* Collectives that each rank has entered: with them one knows whether a record is gone or never was. */
	uint64_t entered[CLI_TIMELINE_RANK_MAX];
	uint64_t told; /* by which ranks: bit i */
};

struct cli_timeline {
	uint64_t job;
	int size; /* ranks */
	char program[TRACE_PATH_BYTES];
	char host[TRACE_TEXT_BYTES];
	/* What is drawn; begin_ns <= end_ns. When an operation runs, end_ns lies a little behind the last
	 * thing that happened: a hang of an hour shall not press all else into one column. */
	uint64_t begin_ns, end_ns;
	uint64_t now_ns;             /* when the traces were read, at least end_ns */
	struct cli_timeline_op *ops; /* by rank, then by begin */
	size_t op_count, op_room;
	struct cli_timeline_row *rows; /* by rank, lane, group, peer, tag */
	uint32_t row_count;
	struct cli_timeline_group groups[CLI_TIMELINE_GROUP_MAX];
	uint32_t group_count;
	struct cli_timeline_rank ranks[CLI_TIMELINE_RANK_MAX];
};

/* ---- timeline_read.c ---- */

/* NULL without memory, or with a size outside of 1 to CLI_TIMELINE_RANK_MAX. */
struct cli_timeline *cli_timeline_new(uint64_t job, int size);
void cli_timeline_free(struct cli_timeline *timeline); /* NULL is allowed */
/* Copies all records of a rank. Reads nothing but the view's memory. False without memory. */
bool cli_timeline_add(struct cli_timeline *timeline, int rank, const struct trace_view *view);
/* Looks up where the operations of a rank that was added were called, which takes its time: after all ranks
 * have been added, so that their traces are of one moment. */
void cli_timeline_add_sites(struct cli_timeline *timeline, int rank, const struct trace_view *view);
/* One operation; ended at end_ns unless its record says that it runs. False without memory. */
bool cli_timeline_put(struct cli_timeline *timeline, int rank, const struct trace_record *record,
		      uint64_t begin_ns, uint64_t end_ns);

/* ---- timeline.c ---- */

/* Drops what ended more than last_ns (0: no limit) before the last thing that happened, and makes the rows.
 * now_ns: when the traces were read, 0: unknown. False without memory. */
bool cli_timeline_lay_out(struct cli_timeline *timeline, uint64_t last_ns, uint64_t now_ns);
static inline bool cli_timeline_runs(const struct cli_timeline_op *op)
{
	return op->record.state == TRACE_RUNNING;
}

/* ---- timeline_words.c ---- */

/* How a kind is drawn. */
struct cli_timeline_look {
	char letter;
	bool dark;          /* text on it must be light */
	const char *colour; /* "#0072B2"; kinds that are much alike share one */
};
struct cli_timeline_look cli_timeline_look(uint32_t kind);

/* The distance of the marks on an axis, 1, 2 or 5 times a power of ten, so that there are at most
 * `marks` of them after the first. */
uint64_t cli_timeline_step(uint64_t span_ns, int marks);
/* "0.25 ms": the time of a mark. */
void cli_timeline_mark(uint64_t at_ns, uint64_t span_ns, uint64_t step_ns, char *out, size_t bytes);
/* "12.3 us" */
void cli_timeline_duration(uint64_t ns, char *out, size_t bytes);

const char *cli_timeline_group(const struct cli_timeline *timeline, uint32_t id);
/* "" if it is not known. */
const char *cli_timeline_site(const struct cli_timeline *timeline, const struct cli_timeline_op *op);
/* "receive #3 from 1, tag 99", "broadcast #12 of world" */
void cli_timeline_name(const struct cli_timeline *timeline, const struct cli_timeline_op *op,
		       char *out, size_t bytes);
/* All that is known of an operation, in several lines. */
void cli_timeline_describe(const struct cli_timeline *timeline, const struct cli_timeline_op *op,
			   char *out, size_t bytes);
/* "job 0123456789abcdef: train, 4 ranks on HOST, 120 operations in 3.1 ms" */
void cli_timeline_title(const struct cli_timeline *timeline, char *out, size_t bytes);

/* ---- timeline_text.c, timeline_svg.c, timeline_html.c ---- */

/* Lines of at most `columns` (60 to 200) characters, ASCII; then what has not ended, or failed. */
void cli_timeline_text(const struct cli_timeline *timeline, int columns, FILE *out);
/* A whole SVG file, UTF-8. */
void cli_timeline_svg(const struct cli_timeline *timeline, FILE *out);
/* The same in a page in which one can move and zoom. */
void cli_timeline_html(const struct cli_timeline *timeline, FILE *out);

/* ---- timeline_json.c ---- */

/* One JSON object: groups with their members, and of each rank every operation, as they began. */
void cli_timeline_json(const struct cli_timeline *timeline, FILE *out);

#endif
