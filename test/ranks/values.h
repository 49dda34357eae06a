/* SPDX-License-Identifier: BSD-3-Clause
 * Typed buffers for the tests: what rank r puts into element i, and what must come out. Values are small
 * whole numbers, so that every dtype holds the results exactly, in whatever order they are combined. */
#ifndef TEST_RANKS_VALUES_H
#define TEST_RANKS_VALUES_H

#include "runner.h"

enum { VALUES_DTYPES = LS_FLOAT64 + 1, VALUES_OPS = LS_PRODUCT + 1 };

/* `seed` tells one operation from the next, so that old results are not taken for new ones. */
void values_fill(void *buffer, uint64_t count, ls_dtype dtype, ls_reduce_op op, int rank,
		 unsigned seed);
/* All bytes become `byte`. */
void values_blot(void *buffer, uint64_t count, ls_dtype dtype, unsigned char byte);

/* Fails the test unless the buffer holds the result of an all-reduce of what `size` ranks filled in; or
 * what rank `root` filled in. */
void values_check_reduced(const void *buffer, uint64_t count, ls_dtype dtype, ls_reduce_op op,
			  int size, unsigned seed);
void values_check_from(const void *buffer, uint64_t count, ls_dtype dtype, int root, unsigned seed);

uint64_t values_hash(const void *buffer, size_t bytes);

/* Memory of ls_alloc, or plain memory. */
void *values_alloc(ls_group *group, size_t bytes, bool plain);
void values_free(ls_group *group, void *buffer, bool plain);

/* A generator all ranks can run in step. */
uint32_t values_random(uint64_t *state);

#endif
