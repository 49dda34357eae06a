/* SPDX-License-Identifier: BSD-3-Clause
 * What the fuzzers share. Each has LLVMFuzzerTestOneInput, which aborts if anything is wrong, and
 * draws inputs that are worth trying. The inputs come from alone.c; or from clang's
 * -fsanitize=fuzzer, which chooses them by coverage. */
#ifndef TEST_FUZZ_FUZZ_H
#define TEST_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { FUZZ_INPUT_MAX = 4096 };

#define MUST(condition)                                                                 \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			abort();                                                        \
		}                                                                       \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Draws an input of at most FUZZ_INPUT_MAX bytes; returns its size. */
size_t fuzz_draw(uint64_t *state, uint8_t *data);

/* xorshift64*: the same inputs in every run, so that a failure can be repeated. */
static inline uint64_t fuzz_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(0x2545f4914f6cdd1d) >> 11;
}

#endif
