/* SPDX-License-Identifier: BSD-3-Clause
 * From times to a table. For each collective and size: the fastest algorithm, then, where data goes
 * from buffer to buffer, the fastest chunk and kind of store, and the fastest way to read plain
 * memory. Then neighbouring sizes with the same choice become one line. */
#include "tune/tune.h"

enum { CHUNK = 64 << 10, READ = 0, LARGE = 256 << 10, NONTEMPORAL_LEAST = 1 << 20 };
static const double clearly = 0.95; /* of the default's time; less of a gain may be noise */

static const struct tune_candidate candidates[] = {
	{PLAN_NONE, PLAN_STORES_AUTO, CHUNK, READ, false, 0},
	{PLAN_INLINE, PLAN_STORES_AUTO, CHUNK, READ, false, 0},
	{PLAN_DIRECT, PLAN_STORES_AUTO, CHUNK, READ, false, 0},
	{PLAN_PULL, PLAN_STORES_AUTO, CHUNK, READ, false, 0},
	{PLAN_RING, PLAN_STORES_AUTO, CHUNK, READ, false, 0},
	{PLAN_DOUBLING, PLAN_STORES_AUTO, CHUNK, READ, false, 0},
	{PLAN_TREE, PLAN_STORES_AUTO, CHUNK, READ, false, 0},
	{PLAN_PAIRWISE, PLAN_STORES_AUTO, CHUNK, READ, false, 0},
	{PLAN_DIRECT, PLAN_STORES_AUTO, 32 << 10, READ, false, LARGE},
	{PLAN_DIRECT, PLAN_STORES_AUTO, 16 << 10, READ, false, LARGE},
	{PLAN_DIRECT, PLAN_STORES_NONTEMPORAL, CHUNK, READ, false, NONTEMPORAL_LEAST},
	{PLAN_NONE, PLAN_STORES_AUTO, CHUNK, READ, true, LARGE},
	{PLAN_NONE, PLAN_STORES_AUTO, CHUNK, 64 << 10, true, LARGE},
	{PLAN_NONE, PLAN_STORES_AUTO, CHUNK, 128 << 10, true, LARGE},
	{PLAN_NONE, PLAN_STORES_AUTO, CHUNK, 256 << 10, true, LARGE},
	{PLAN_NONE, PLAN_STORES_AUTO, CHUNK, 512 << 10, true, LARGE},
};
enum { CANDIDATES = sizeof candidates / sizeof candidates[0] };

const struct tune_candidate *tune_candidate(int i)
{
	return i >= 0 && i < CANDIDATES ? &candidates[i] : NULL;
}

int tune_candidates(void)
{
	return CANDIDATES;
}

double *tune_at(const struct tune_times *times, int candidate, enum coll_id collective, int size)
{
	return &times->seconds[(candidate * COLL_COUNT + (int)collective) * TUNE_SIZES_MAX + size];
}

/* The algorithm of candidate 0. It is not that of the default table, which has other borders where
 * ranks share processors. */
static enum plan_algorithm default_of(enum coll_id collective, uint64_t bytes, uint64_t inline_bytes)
{
	return bytes <= inline_bytes && plan_has(collective, PLAN_INLINE) ? PLAN_INLINE
									  : PLAN_DIRECT;
}

bool tune_fits(int i, enum coll_id collective, uint64_t bytes, uint64_t inline_bytes)
{
	const struct tune_candidate *candidate = &candidates[i];
	enum plan_algorithm usual = default_of(collective, bytes, inline_bytes);
	bool varies = candidate->chunk_bytes != CHUNK || candidate->read_bytes != READ ||
		      candidate->stores != PLAN_STORES_AUTO || candidate->plain;

	if (bytes < candidate->bytes_min || (collective == COLL_BARRIER && varies))
		return false;
	if (candidate->algorithm == PLAN_NONE)
		return !candidate->plain || usual == PLAN_DIRECT;
	/* The default itself is candidate 0. */
	if (candidate->algorithm == usual && !varies)
		return false;
	if (candidate->algorithm == PLAN_INLINE && bytes > inline_bytes)
		return false;
	return plan_has(collective, candidate->algorithm);
}

/* ---- choosing ---- */

/* One collective and size. */
struct place {
	const struct tune_times *times;
	enum coll_id collective;
	int size;
};

static double seconds_of(const struct place *place, int candidate)
{
	return *tune_at(place->times, candidate, place->collective, place->size);
}

/* The fastest candidate for which `is_one` holds and that is clearly faster than `than`; else
 * `than`. */
static int fastest_candidate(const struct place *place, int than,
			     bool (*is_one)(const struct tune_candidate *candidate))
{
	int best = than;
	double most = seconds_of(place, than) * clearly;

	for (int i = 0; i < CANDIDATES; i++) {
		double here = seconds_of(place, i);
		if (i == than || !is_one(&candidates[i]) || here <= 0 || here >= most)
			continue;
		best = i;
		most = here;
	}
	return best;
}

static bool is_algorithm(const struct tune_candidate *candidate)
{
	return !candidate->plain && candidate->stores == PLAN_STORES_AUTO &&
	       candidate->chunk_bytes == CHUNK;
}

static bool is_way_of_moving(const struct tune_candidate *candidate)
{
	return !candidate->plain && candidate->algorithm == PLAN_DIRECT &&
	       (candidate->stores != PLAN_STORES_AUTO || candidate->chunk_bytes != CHUNK);
}

static bool is_way_of_reading(const struct tune_candidate *candidate)
{
	return candidate->plain;
}

/* The candidate that reads plain memory as the default does. */
static int usual_reader(void)
{
	int i = 0;

	while (!candidates[i].plain)
		i++;
	return i;
}

static struct plan_table_line choose_line(const struct place *place, uint64_t inline_bytes)
{
	uint64_t bytes = place->times->sizes[place->size];
	int best = fastest_candidate(place, 0, is_algorithm);
	enum plan_algorithm algorithm = candidates[best].algorithm;

	if (algorithm == PLAN_NONE)
		algorithm = default_of(place->collective, bytes, inline_bytes);
	int moves =
		algorithm == PLAN_DIRECT ? fastest_candidate(place, best, is_way_of_moving) : best;
	int reads = fastest_candidate(place, usual_reader(), is_way_of_reading);
	return (struct plan_table_line){
		.collective = (uint8_t)place->collective,
		.algorithm = (uint8_t)algorithm,
		.stores = (uint8_t)candidates[moves].stores,
		.chunk_bytes = candidates[moves].chunk_bytes,
		.read_bytes = algorithm == PLAN_DIRECT ? candidates[reads].read_bytes : READ,
	};
}

static bool same_choice(const struct plan_table_line *a, const struct plan_table_line *b)
{
	return a->algorithm == b->algorithm && a->stores == b->stores &&
	       a->chunk_bytes == b->chunk_bytes && a->read_bytes == b->read_bytes;
}

/* Where one line ends and the next begins: between two sizes that were measured, at the power of
 * two in the middle. Inline ends by itself. */
static uint64_t border_between(const struct plan_table_line *line, uint64_t below, uint64_t above,
			       uint64_t inline_bytes)
{
	uint64_t middle = below;

	if (line->algorithm == PLAN_INLINE && above > inline_bytes)
		return UINT64_MAX;
	while (middle < above / middle * below)
		middle *= 2;
	return middle < above ? middle : below;
}

bool tune_choose(const struct tune_times *times, uint64_t inline_bytes, int ranks_min,
		 int ranks_max, struct plan_table *table)
{
	for (int c = 0; c < COLL_COUNT; c++) {
		int sizes = c == COLL_BARRIER ? 1 : times->size_count;
		struct plan_table_line line = {0};
		for (int i = 0; i < sizes; i++) {
			struct place place = {times, (enum coll_id)c, i};
			struct plan_table_line here = choose_line(&place, inline_bytes);
			here.ranks_min = (uint16_t)ranks_min;
			here.ranks_max = (uint16_t)ranks_max;
			here.bytes_max = UINT64_MAX;
			if (i > 0 && !same_choice(&line, &here)) {
				struct plan_table_line *last = &table->lines[table->count - 1];
				last->bytes_max = border_between(last, times->sizes[i - 1],
								 times->sizes[i], inline_bytes);
			}
			if (i == 0 || !same_choice(&line, &here)) {
				if (table->count == PLAN_TABLE_LINES_MAX)
					return false;
				table->lines[table->count++] = here;
			}
			line = here;
		}
	}
	return true;
}
