/* SPDX-License-Identifier: BSD-3-Clause
 * Typed buffers for the tests: what rank r puts into element i, and what must come out. Values are
 * whole numbers, of floats small ones, so that every dtype holds the results exactly, in whatever
 * order they are combined. */
#ifndef TEST_RANKS_VALUES_H
#define TEST_RANKS_VALUES_H

#include "runner.h"

enum { VALUES_DTYPES = LS_COMPLEX128 + 1, VALUES_OPS = LS_PREMUL_SUM + 1 };

/* Whether elements of this type can be combined so, as ls_collective(3) has it. */
bool values_allowed(ls_dtype dtype, ls_reduce_op op);
/* What rank r gives as options.factor. */
double values_factor(int rank);

/* `seed` tells one operation from the next, so that old results are not taken for new ones. */
void values_fill(void *buffer, uint64_t count, ls_dtype dtype, ls_reduce_op op, int rank,
		 unsigned seed);
/* All bytes become `byte`. */
void values_blot(void *buffer, uint64_t count, ls_dtype dtype, unsigned char byte);

/* Fails the test unless the buffer holds what values_fill gives rank `rank`, from element `first`
 * on. */
void values_check_filled(const void *buffer, uint64_t first, uint64_t count, ls_dtype dtype,
			 ls_reduce_op op, int rank, unsigned seed);
/* …with LS_SUM, from the beginning. */
void values_check_from(const void *buffer, uint64_t count, ls_dtype dtype, int root, unsigned seed);
/* …unless it holds the result of reducing what `size` ranks were given. */
void values_check_reduced(const void *buffer, uint64_t count, ls_dtype dtype, ls_reduce_op op,
			  int size, unsigned seed);
void values_check_reduced_part(const void *buffer, uint64_t first, uint64_t count, ls_dtype dtype,
			       ls_reduce_op op, int size, unsigned seed);

uint64_t values_hash(const void *buffer, size_t bytes);

/* Memory of ls_alloc, or plain memory. */
void *values_alloc(ls_group *group, size_t bytes, bool plain);
void values_free(ls_group *group, void *buffer, bool plain);

/* A generator all ranks can run in step. */
uint32_t values_random(uint64_t *state);

#endif
