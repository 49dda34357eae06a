/* SPDX-License-Identifier: BSD-3-Clause
 * What a device does with bytes: reduction and copy kernels for host memory. Pure functions, any
 * thread, no allocation. Element order is defined: out[i] = (((in0 op in1) op in2) …), so that results
 * do not depend on vector width, machine or how a buffer is cut into pieces. */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/group.h>

enum { DEVICE_REDUCE_MAX = 64 }; /* sources and destinations of one call */

struct device_reduce {
	ls_dtype dtype;
	ls_reduce_op op;
	int source_count; /* 1 to DEVICE_REDUCE_MAX, combined in this order */
	int target_count; /* 1 to DEVICE_REDUCE_MAX, each gets the result */
	const void *const *sources;
	void *const *targets; /* a target may be equal to a source */
	size_t count;         /* elements */
	uint32_t divisor;     /* LS_AVERAGE only: the result is divided by it; 0 or 1: not */
	bool stream;          /* write targets past the cache, with a fence at the end */
};

/* Runs it. The caller has checked the arguments. */
void device_reduce(const struct device_reduce *reduce);

/* memcpy; stream: past the cache, with a fence at the end. */
void device_copy(void *to, const void *from, size_t bytes, bool stream);

#endif
