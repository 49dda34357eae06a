/* SPDX-License-Identifier: BSD-3-Clause
 * The handwritten digits of data/digits.csv, shuffled and split by a seed. */
#ifndef DIGITS_H
#define DIGITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mlp.h"

enum { DIGITS_TEST = 360 }; /* every fifth image is kept for testing */

struct digits {
	size_t count;               /* all images; the last DIGITS_TEST are for testing */
	real (*pixels)[MLP_INPUTS]; /* 0 to 1 */
	uint8_t *labels;
};

/* Reads `path`, and shuffles the images by `seed`. Reports on standard error what is wrong with the
 * file. */
bool digits_load(const char *path, uint64_t seed, struct digits *out);
void digits_free(struct digits *digits);

/* order[0 … count) = a permutation of 0 … count - 1 that depends on seed alone. */
void digits_permute(uint64_t seed, uint32_t *order, size_t count);

/* The generator of all random numbers of these examples (SplitMix64). */
uint64_t digits_random(uint64_t *state);

#endif
