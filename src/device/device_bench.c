/* SPDX-License-Identifier: BSD-3-Clause
 * What the reduction of two float32 sources into two targets moves on one core, with and without
 * streaming stores, from 64 KiB to 64 MiB a buffer: GB/s of what is read and written, medians. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "device/device.h"

enum { ROUNDS = 15, BUFFERS = 4 };

static double measure(struct device_reduce *reduce, bool stream, size_t repeats)
{
	reduce->stream = stream;
	uint64_t start_ns = clock_now_ns();
	for (size_t i = 0; i < repeats; i++)
		device_reduce(reduce);
	double bytes = (double)(BUFFERS * reduce->count * sizeof(float)) * (double)repeats;
	return bytes / (double)(clock_now_ns() - start_ns);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(void)
{
	size_t largest = (size_t)64 << 20;
	float *memory[BUFFERS];
	for (int i = 0; i < BUFFERS; i++) {
		memory[i] = aligned_alloc(4096, largest);
		if (!memory[i])
			return 1;
		memset(memory[i], 0, largest);
	}
	printf("%10s %12s %12s\n", "KiB", "plain GB/s", "stream GB/s");
	for (size_t bytes = 64 << 10; bytes <= largest; bytes *= 4) {
		const void *sources[] = {memory[0], memory[1]};
		void *targets[] = {memory[2], memory[3]};
		struct device_reduce reduce = {.dtype = LS_FLOAT32,
					       .op = LS_SUM,
					       .source_count = 2,
					       .target_count = 2,
					       .sources = sources,
					       .targets = targets,
					       .count = bytes / sizeof(float)};
		double plain[ROUNDS], stream[ROUNDS];
		for (int i = 0; i < ROUNDS; i++) {
			plain[i] = measure(&reduce, false, 1 + largest / bytes / 4);
			stream[i] = measure(&reduce, true, 1 + largest / bytes / 4);
		}
		qsort(plain, ROUNDS, sizeof(double), compare);
		qsort(stream, ROUNDS, sizeof(double), compare);
		printf("%10zu %12.1f %12.1f\n", bytes >> 10, plain[ROUNDS / 2], stream[ROUNDS / 2]);
	}
	for (int i = 0; i < BUFFERS; i++)
		free(memory[i]);
	return 0;
}
