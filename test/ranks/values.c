/* SPDX-License-Identifier: BSD-3-Clause
 * Typed buffers for the tests. The reference is worked out here, in whole numbers, and shares no code with
 * the library. */
#include "values.h"

#include <stdlib.h>
#include <string.h>

static int64_t input_at(ls_dtype dtype, ls_reduce_op op, int rank, uint64_t i, unsigned seed)
{
	uint64_t mixed = (i + seed) * 7 + (uint64_t)rank * 5 + i / 64 + (uint64_t)(seed % 13);
	if (op == LS_PRODUCT) /* at most 2^3 with 8 ranks */
		return (uint64_t)rank % 3 == (i + seed) % 3 ? 2 : 1;
	int64_t value = (int64_t)(mixed % 29);
	return dtype == LS_UINT8 ? value : value - 14;
}

static int64_t reduced_at(ls_dtype dtype, ls_reduce_op op, int size, uint64_t i, unsigned seed)
{
	int64_t result = input_at(dtype, op, 0, i, seed);
	for (int r = 1; r < size; r++) {
		int64_t next = input_at(dtype, op, r, i, seed);
		switch (op) {
		case LS_SUM:
		case LS_AVERAGE:
			result += next;
			break;
		case LS_MIN:
			result = next < result ? next : result;
			break;
		case LS_MAX:
			result = next > result ? next : result;
			break;
		case LS_PRODUCT:
			result *= next;
			break;
		}
	}
	return result;
}

static void put(void *buffer, uint64_t i, ls_dtype dtype, int64_t value)
{
	switch (dtype) {
	case LS_UINT8:
		((uint8_t *)buffer)[i] = (uint8_t)value;
		break;
	case LS_INT32:
		((int32_t *)buffer)[i] = (int32_t)value;
		break;
	case LS_INT64:
		((int64_t *)buffer)[i] = value;
		break;
	case LS_FLOAT32:
		((float *)buffer)[i] = (float)value;
		break;
	case LS_FLOAT64:
		((double *)buffer)[i] = (double)value;
		break;
	}
}

/* Whether element i is value / divisor: whole numbers round towards zero. */
static bool holds(const void *buffer, uint64_t i, ls_dtype dtype, int64_t value, int divisor)
{
	switch (dtype) {
	case LS_UINT8:
		return ((const uint8_t *)buffer)[i] == value / divisor;
	case LS_INT32:
		return ((const int32_t *)buffer)[i] == value / divisor;
	case LS_INT64:
		return ((const int64_t *)buffer)[i] == value / divisor;
	case LS_FLOAT32:
		return ((const float *)buffer)[i] == (float)value / (float)divisor;
	case LS_FLOAT64:
		return ((const double *)buffer)[i] == (double)value / (double)divisor;
	}
	return false;
}

void values_fill(void *buffer, uint64_t count, ls_dtype dtype, ls_reduce_op op, int rank,
		 unsigned seed)
{
	for (uint64_t i = 0; i < count; i++)
		put(buffer, i, dtype, input_at(dtype, op, rank, i, seed));
}

void values_blot(void *buffer, uint64_t count, ls_dtype dtype, unsigned char byte)
{
	if (count > 0)
		memset(buffer, byte, count * ls_dtype_bytes(dtype));
}

void values_check_reduced(const void *buffer, uint64_t count, ls_dtype dtype, ls_reduce_op op,
			  int size, unsigned seed)
{
	int divisor = op == LS_AVERAGE ? size : 1;
	for (uint64_t i = 0; i < count; i++) {
		int64_t sum = reduced_at(dtype, op, size, i, seed);
		CHECK_THAT(holds(buffer, i, dtype, sum, divisor),
			   "element %llu of %llu is not %lld / %d (dtype %d, op %d)",
			   (unsigned long long)i, (unsigned long long)count, (long long)sum,
			   divisor, (int)dtype, (int)op);
	}
}

void values_check_from(const void *buffer, uint64_t count, ls_dtype dtype, int root, unsigned seed)
{
	for (uint64_t i = 0; i < count; i++) {
		int64_t value = input_at(dtype, LS_SUM, root, i, seed);
		CHECK_THAT(holds(buffer, i, dtype, value, 1),
			   "element %llu of %llu is not %lld of rank %d (dtype %d)",
			   (unsigned long long)i, (unsigned long long)count, (long long)value, root,
			   (int)dtype);
	}
}

uint64_t values_hash(const void *buffer, size_t bytes)
{
	const unsigned char *at = buffer;
	uint64_t hash = UINT64_C(0xcbf29ce484222325);
	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
	return hash;
}

void *values_alloc(ls_group *group, size_t bytes, bool plain)
{
	void *out = NULL;
	if (plain)
		out = malloc(bytes + 1);
	else
		OK(ls_alloc(group, bytes, &out));
	CHECK(out);
	return out;
}

void values_free(ls_group *group, void *buffer, bool plain)
{
	if (plain)
		free(buffer);
	else
		OK(ls_free(group, buffer));
}

uint32_t values_random(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*state >> 33);
}
