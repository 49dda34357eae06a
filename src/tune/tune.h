/* SPDX-License-Identifier: BSD-3-Clause
 * What `lockstep tune` tries, and which table follows from the times. A candidate is one line of a
 * table that holds for everything; candidate 0 is the default. */
#ifndef TUNE_TUNE_H
#define TUNE_TUNE_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/plan_table.h"

enum {
	TUNE_SIZES_MAX = 16,
	TUNE_ROUNDS_MAX = 15,
};

/* ---- choose.c: pure ---- */

struct tune_candidate {
	/* of candidate 0: PLAN_NONE, inline where the payload fits, else direct */
	enum plan_algorithm algorithm;
	enum plan_stores stores;
	uint32_t chunk_bytes, read_bytes;
	bool plain;         /* tried with memory of malloc */
	uint64_t bytes_min; /* below this it does not differ from candidate 0 */
};

/* The i-th candidate; NULL: past the end. */
const struct tune_candidate *tune_candidate(int i);
int tune_candidates(void);

/* Whether candidate `i` is worth a try, for this payload. */
bool tune_fits(int i, enum coll_id collective, uint64_t bytes, uint64_t inline_bytes);

/* Seconds for each candidate, collective and size; 0: not tried. */
struct tune_times {
	int size_count;
	uint64_t sizes[TUNE_SIZES_MAX]; /* payloads, growing */
	double *seconds;                /* [candidates][COLL_COUNT][TUNE_SIZES_MAX], see tune_at */
};

double *tune_at(const struct tune_times *times, int candidate, enum coll_id collective, int size);

/* Adds to `table` the lines of all collectives for groups of ranks_min to ranks_max. A candidate
 * that is not clearly faster than the default does not replace it. False: there is no room. */
bool tune_choose(const struct tune_times *times, uint64_t inline_bytes, int ranks_min,
		 int ranks_max, struct plan_table *table);

/* ---- measure_rank.c ---- */

struct tune_request {
	int size_count;
	uint64_t sizes[TUNE_SIZES_MAX]; /* payloads, growing */
	uint64_t rounds;                /* how often each is measured, at most TUNE_ROUNDS_MAX */
	uint64_t ranks_min, ranks_max;  /* of the groups that the lines are for */
};

/* Collective, by all ranks of a job under `lockstep run`: measures all candidates; rank 0 prints
 * the lines of the table on standard output. False, with a message: it could not be measured. */
bool tune_measure(const struct tune_request *request);

#endif
