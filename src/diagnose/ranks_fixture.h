/* SPDX-License-Identifier: BSD-3-Clause
 * Small sets of ranks as numbers: most tests have a few ranks, bit r for rank r. */
#ifndef DIAGNOSE_RANKS_FIXTURE_H
#define DIAGNOSE_RANKS_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "diagnose/facts.h"

#define TEST_UNUSED __attribute__((unused))

TEST_UNUSED static uint64_t test_bit(int rank)
{
	return rank >= 0 && rank < 64 ? UINT64_C(1) << rank : 0;
}

/* The bits of a set that has no ranks from 64 on. */
TEST_UNUSED static uint64_t test_bits(struct ranks set)
{
	struct ranks low = ranks_of_bits(set.words[0]);
	assert_true(ranks_are_equal(&set, &low));
	return set.words[0];
}

/* The snapshot gets the members of a group; 0: it does not. */
TEST_UNUSED static void test_members(struct diagnose_snapshot *snapshot, uint32_t id,
				     uint64_t members)
{
	struct ranks set = ranks_of_bits(members);
	if (members)
		diagnose_add_members(snapshot, id, &set);
}

/* The cycle, and whether its ranks are as many as its hops; hops[DIAGNOSE_HOP_MAX]. */
TEST_UNUSED static int test_cycle(const struct diagnose_snapshot *snapshot,
				  struct diagnose_hop *hops)
{
	struct ranks all;
	int length = diagnose_find_cycle(snapshot, NULL, hops, DIAGNOSE_HOP_MAX, &all);
	assert_int_equal(ranks_count(&all), length);
	return length;
}

#endif
