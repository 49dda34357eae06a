/* SPDX-License-Identifier: BSD-3-Clause
 * Puts the phases of all ranks side by side, and finds which ranks keep the others waiting, in
 * which phase, and what that costs. */
#include "ddp/phases.h"

#include <stdlib.h>
#include <string.h>

/* A rank is named only above this: any two runs differ by less. */
#define RATIO_LEAST 1.2
#define SHARE_LEAST 0.01
/* A rank whose excess over the median is this share of the largest excess is named, too. */
#define EXCESS_SHARE 0.5

struct ddp_phases *ddp_phases_new(int rank_count)
{
	struct ddp_phases *phases = calloc(1, sizeof *phases);
	if (!phases)
		return NULL;
	phases->rank_count = rank_count;
	phases->column_count = 1;
	memcpy(phases->names[DDP_OUTSIDE], "outside", sizeof "outside");
	return phases;
}

/* The column of a phase; 0: there is no room for another one. */
static int column_of(struct ddp_phases *phases, const char *name)
{
	for (int column = 1; column < phases->column_count; column++)
		if (strcmp(phases->names[column], name) == 0)
			return column;
	if (phases->column_count == DDP_COLUMN_MAX) {
		phases->left_out++;
		return 0;
	}
	memcpy(phases->names[phases->column_count], name, TRACE_PHASE_BYTES);
	return phases->column_count++;
}

void ddp_phases_add(struct ddp_phases *phases, int rank, const struct trace_phases *of)
{
	double inside = 0;
	ranks_add(&phases->known, rank);
	if (of->count)
		ranks_add(&phases->entered, rank);
	phases->span[rank] = (double)of->span_ns;
	phases->waited[rank] = (double)of->outside_ns;
	for (uint32_t i = 0; i < of->count; i++) {
		inside += (double)of->phases[i].ns;
		phases->waited[rank] += (double)of->phases[i].waited_ns;
		int column = column_of(phases, of->phases[i].name);
		if (!column)
			continue;
		phases->counts[rank][column] = of->phases[i].count;
		phases->waited_in[rank][column] = (double)of->phases[i].waited_ns;
		phases->own[rank][column] =
			(double)of->phases[i].ns - (double)of->phases[i].waited_ns;
		if (of->phases[i].running)
			phases->running[rank] = column;
	}
	/* If several threads were in phases at once, the rest may be negative, and says nothing. */
	double outside = phases->span[rank] - inside - (double)of->outside_ns;
	phases->own[rank][DDP_OUTSIDE] = outside > 0 ? outside : 0;
	phases->waited_in[rank][DDP_OUTSIDE] = (double)of->outside_ns;
}

/* ---- which ranks are slow ---- */

static int compare_times(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median_of(const double *values, const struct ranks *which, int count)
{
	double sorted[DDP_RANK_MAX];
	int used = 0;
	for (int rank = 0; rank < count; rank++)
		if (ranks_have(which, rank))
			sorted[used++] = values[rank];
	if (!used)
		return 0;
	qsort(sorted, (size_t)used, sizeof sorted[0], compare_times);
	return sorted[(used - 1) / 2];
}

/* The time that a job would gain without `ranks` being slow is no more than any other rank waits:
 * work that nobody waits for, such as that of threads which load ahead, costs nothing. */
static double least_waiting(const struct ddp_phases *phases, const struct ranks *ranks)
{
	double least = -1;
	for (int rank = 0; rank < phases->rank_count; rank++)
		if (ranks_have(&phases->entered, rank) && !ranks_have(ranks, rank) &&
		    (least < 0 || phases->waited[rank] < least))
			least = phases->waited[rank];
	return least < 0 ? 0 : least;
}

/* Adds a rank to those that are named. */
static void name_rank(struct ddp_straggler *straggler, int rank, double time, double median)
{
	double ratio = median > 0 ? time / median : 0;
	straggler->least =
		ranks_any(&straggler->ranks) && straggler->least < ratio ? straggler->least : ratio;
	straggler->most = ratio > straggler->most ? ratio : straggler->most;
	straggler->most_ns = time > straggler->most_ns ? time : straggler->most_ns;
	ranks_add(&straggler->ranks, rank);
}

/* The slow ranks of one column, and what they cost. If there are none, the share is 0. */
static struct ddp_straggler judge_column(const struct ddp_phases *phases,
					 const struct ddp_stragglers *found, int column)
{
	struct ddp_straggler out = {.column = column};
	double times[DDP_RANK_MAX] = {0}, farthest = 0, pace = 0, better = 0;
	for (int rank = 0; rank < phases->rank_count; rank++)
		times[rank] = phases->own[rank][column];
	double median = median_of(times, &phases->entered, phases->rank_count);
	for (int rank = 0; rank < phases->rank_count; rank++)
		if (times[rank] - median > farthest)
			farthest = times[rank] - median;
	for (int rank = 0; rank < phases->rank_count; rank++) {
		double work = found->work[rank], excess = times[rank] - median, without = work;
		if (ranks_have(&phases->entered, rank) && times[rank] > median * RATIO_LEAST &&
		    excess >= farthest * EXCESS_SHARE) {
			name_rank(&out, rank, times[rank], median);
			without = work - excess;
		}
		pace = work > pace ? work : pace;
		better = without > better ? without : better;
	}
	double gain = pace - better, waiting = least_waiting(phases, &out.ranks);
	if (ranks_any(&out.ranks) && found->span > 0)
		out.share = (gain < waiting ? gain : waiting) / found->span;
	if (out.share > 1) /* of several threads, whose times add up */
		out.share = 1;
	return out;
}

static void insert_straggler(struct ddp_stragglers *found, const struct ddp_straggler *straggler)
{
	int at = found->count < DDP_STRAGGLER_MAX ? found->count++ : DDP_STRAGGLER_MAX;
	while (at > 0 && found->stragglers[at - 1].share < straggler->share) {
		if (at < DDP_STRAGGLER_MAX)
			found->stragglers[at] = found->stragglers[at - 1];
		at--;
	}
	if (at < DDP_STRAGGLER_MAX)
		found->stragglers[at] = *straggler;
}

void ddp_phases_judge(const struct ddp_phases *phases, struct ddp_stragglers *out)
{
	*out = (struct ddp_stragglers){0};
	for (int rank = 0; rank < phases->rank_count; rank++) {
		if (!ranks_have(&phases->entered, rank))
			continue;
		for (int column = 0; column < phases->column_count; column++)
			out->work[rank] += phases->own[rank][column];
		if (phases->span[rank] > out->span)
			out->span = phases->span[rank];
	}
	out->median_work = median_of(out->work, &phases->entered, phases->rank_count);
	for (int column = 0; column < phases->column_count; column++) {
		struct ddp_straggler straggler = judge_column(phases, out, column);
		if (straggler.share >= SHARE_LEAST)
			insert_straggler(out, &straggler);
	}
}

/* ---- order ---- */

/* Where the part before the first slash stands in a step. */
static size_t place_in_step(const char *name)
{
	static const char *const step[] = {"data", "forward", "backward", "optimizer"};
	size_t length = strcspn(name, "/"), count = sizeof step / sizeof step[0];
	for (size_t i = 0; i < count; i++)
		if (strlen(step[i]) == length && strncmp(step[i], name, length) == 0)
			return i;
	return count;
}

static bool goes_before(const char *a, const char *b)
{
	size_t x = place_in_step(a), y = place_in_step(b);
	return x != y ? x < y : strcmp(a, b) < 0;
}

int ddp_phases_order(const struct ddp_phases *phases, int *columns)
{
	int count = 0;
	for (int column = 1; column < phases->column_count; column++) {
		int at = count++;
		for (; at > 0 && goes_before(phases->names[column], phases->names[columns[at - 1]]);
		     at--)
			columns[at] = columns[at - 1];
		columns[at] = column;
	}
	columns[count++] = DDP_OUTSIDE;
	return count;
}
