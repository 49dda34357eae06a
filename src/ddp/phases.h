/* SPDX-License-Identifier: BSD-3-Clause
 * What the phases of all ranks mean: pure functions over flat numbers, for ls_phase_report and for
 * lockstep diagnose. In lock step the slowest rank sets the pace, so a phase costs what the whole
 * job would gain if the slow ranks took no longer for it than the median rank: never more than
 * others wait. */
#ifndef DDP_PHASES_H
#define DDP_PHASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ranks.h"
#include "trace/trace.h"

enum {
	DDP_RANK_MAX = RANKS_WORLD_MAX,
	DDP_COLUMN_MAX = TRACE_PHASE_MAX + 1,
	DDP_OUTSIDE = 0, /* the column of time in no phase */
	DDP_STRAGGLER_MAX = 3,
};

/* Times are in nanoseconds, own[rank][column] without waiting for others. Columns 1 to column_count
 * - 1 are phases, in the order in which they were met. */
struct ddp_phases {
	int rank_count, column_count;
	int left_out;         /* phases for which there was no column */
	struct ranks known;   /* ranks that have been added */
	struct ranks entered; /* ranks that have begun some phase */
	char names[DDP_COLUMN_MAX][TRACE_PHASE_BYTES];
	double own[DDP_RANK_MAX][DDP_COLUMN_MAX];
	double waited_in[DDP_RANK_MAX][DDP_COLUMN_MAX];
	uint64_t counts[DDP_RANK_MAX][DDP_COLUMN_MAX];
	double waited[DDP_RANK_MAX]; /* in all phases and in none, since the first phase */
	double span[DDP_RANK_MAX];
	int running[DDP_RANK_MAX]; /* a column that some thread is in, 0: none */
};

/* On the heap; NULL without memory. 1 <= rank_count <= DDP_RANK_MAX. */
struct ddp_phases *ddp_phases_new(int rank_count);
/* Call once for each rank whose phases can be read. */
void ddp_phases_add(struct ddp_phases *phases, int rank, const struct trace_phases *of);

/* Ranks that are slow in one phase. */
struct ddp_straggler {
	int column;
	struct ranks ranks;
	double least, most; /* times the median; 0: the median is nothing */
	double most_ns;
	double share; /* of the step that it costs */
};

/* Which ranks the others wait for in their phases, and the spans from which that follows. */
struct ddp_stragglers {
	int count; /* of stragglers, the costliest first */
	struct ddp_straggler stragglers[DDP_STRAGGLER_MAX];
	double span;               /* the longest span of a rank */
	double work[DDP_RANK_MAX]; /* all own time of a rank */
	double median_work;
};

/* The median of an even number of ranks is the lower one of the middle two, so that with half of
 * all ranks slow the other half is the measure. */
void ddp_phases_judge(const struct ddp_phases *phases, struct ddp_stragglers *out);

/* The columns to show, in the order of a step: data, forward, backward, optimizer, each with what
 * is inside of it, then others, then the time outside. Returns how many. */
int ddp_phases_order(const struct ddp_phases *phases, int *columns);

/* "rank 3 spends 4.2x the median in data/image, which costs 18 % of the step" */
void ddp_phases_sentence(const struct ddp_phases *phases, const struct ddp_straggler *straggler,
			 char *out, size_t bytes);
/* The report, stragglers first. Lines that do not fit are left out whole; ends with a newline. */
void ddp_phases_text(const struct ddp_phases *phases, char *out, size_t bytes);

#endif
