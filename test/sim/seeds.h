/* SPDX-License-Identifier: BSD-3-Clause
 * Which seeds a test of random programs tries: as many as its first argument says; or, with "120s",
 * as many as it can begin in so many seconds. From 1, or from its second argument. */
#ifndef SIM_SEEDS_H
#define SIM_SEEDS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

struct seeds {
	uint64_t first, next, count;
	uint64_t begin_ns, end_ns; /* end_ns: no program begins after that */
};

static inline struct seeds seeds_read(int argc, char **argv, uint64_t count)
{
	struct seeds seeds = {.first = 1, .count = count, .end_ns = CLOCK_NEVER};
	char *end = NULL;
	seeds.begin_ns = clock_now_ns();
	if (argc > 1)
		seeds.count = strtoull(argv[1], &end, 10);
	if (end && *end == 's') {
		seeds.end_ns = seeds.begin_ns + seeds.count * UINT64_C(1000000000);
		seeds.count = UINT64_MAX;
	}
	if (argc > 2)
		seeds.first = strtoull(argv[2], NULL, 10);
	seeds.next = seeds.first;
	return seeds;
}

static inline bool seeds_next(struct seeds *seeds, uint64_t *seed)
{
	if (seeds->next - seeds->first >= seeds->count || clock_now_ns() >= seeds->end_ns)
		return false;
	*seed = seeds->next++;
	return true;
}

static inline void seeds_print(const struct seeds *seeds, const char *what)
{
	printf("# figure: %llu %s, seeds from %llu, in %llu s\n",
	       (unsigned long long)(seeds->next - seeds->first), what,
	       (unsigned long long)seeds->first,
	       (unsigned long long)((clock_now_ns() - seeds->begin_ns) / 1000000000));
}

#endif
