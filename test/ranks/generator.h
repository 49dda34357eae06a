/* SPDX-License-Identifier: BSD-3-Clause
 * Random numbers that every rank can draw alike, and that are the same on all machines. */
#ifndef TEST_RANKS_GENERATOR_H
#define TEST_RANKS_GENERATOR_H

#include <stdint.h>

/* The finaliser of splitmix64: a generator's first state, from what it is to depend on. */
static inline uint64_t generator_mix(uint64_t a, uint64_t b)
{
	uint64_t word = a * UINT64_C(0x9e3779b97f4a7c15) + b;
	word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	word = (word ^ word >> 27) * UINT64_C(0x94d049bb133111eb);
	return word ^ word >> 31;
}

static inline uint32_t generator_next(uint64_t *generator)
{
	*generator = *generator * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*generator >> 33);
}

/* 0 to end - 1; end is not 0. */
static inline uint32_t generator_below(uint64_t *generator, uint32_t end)
{
	return generator_next(generator) % end;
}

#endif
