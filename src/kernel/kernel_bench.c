/* SPDX-License-Identifier: BSD-3-Clause
 * What the reduction of two sources into two targets moves on one core: GB/s of what is read and
 * written, medians. First float32 with and without nontemporal stores, from 64 KiB to 64 MiB a
 * buffer; then types in 256 KiB, by each of the kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "kernel/kernel.h"

enum { ROUNDS = 15, BUFFERS = 4, KIND_BYTES = 256 << 10, KIND_REPEATS = 100 };

static double measure(const struct kernel_table *kernels, const struct kernel_reduce *reduce,
		      size_t bytes, size_t repeats)
{
	struct kernel_reduce mine = *reduce;
	mine.kernels = kernels;
	uint64_t start_ns = clock_now_ns();
	for (size_t i = 0; i < repeats; i++)
		kernel_reduce(&mine);
	return (double)(BUFFERS * bytes * repeats) / (double)(clock_now_ns() - start_ns);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double values[ROUNDS])
{
	qsort(values, ROUNDS, sizeof(double), compare);
	return values[ROUNDS / 2];
}

static void by_size(struct kernel_reduce reduce, size_t largest)
{
	const struct kernel_table *kernels = kernel_table_best();
	printf("%10s %12s %12s\n", "KiB", "plain GB/s", "nontemporal GB/s");
	for (size_t bytes = 64 << 10; bytes <= largest; bytes *= 4) {
		double plain[ROUNDS], nontemporal[ROUNDS];
		reduce.count = bytes / sizeof(float);
		for (int i = 0; i < ROUNDS; i++) {
			reduce.nontemporal = false;
			plain[i] = measure(kernels, &reduce, bytes, 1 + largest / bytes / 4);
			reduce.nontemporal = true;
			nontemporal[i] = measure(kernels, &reduce, bytes, 1 + largest / bytes / 4);
		}
		printf("%10zu %12.1f %12.1f\n", bytes >> 10, median(plain), median(nontemporal));
	}
}

static void by_type(struct kernel_reduce reduce)
{
	static const struct {
		const char *name;
		ls_dtype dtype;
		ls_reduce_op op;
		size_t bytes;
	} kinds[] = {
		{"float32 sum", LS_FLOAT32, LS_SUM, 4},
		{"float32 max", LS_FLOAT32, LS_MAX, 4},
		{"float64 sum", LS_FLOAT64, LS_SUM, 8},
		{"float16 sum", LS_FLOAT16, LS_SUM, 2},
		{"float16 max", LS_FLOAT16, LS_MAX, 2},
		{"bfloat16 sum", LS_BFLOAT16, LS_SUM, 2},
		{"bfloat16 max", LS_BFLOAT16, LS_MAX, 2},
		{"int64 product", LS_INT64, LS_PRODUCT, 8},
		{"int32 average", LS_INT32, LS_AVERAGE, 4},
		{"uint8 max", LS_UINT8, LS_MAX, 1},
		{"uint8 product", LS_UINT8, LS_PRODUCT, 1},
		{"bool and", LS_BOOL, LS_BAND, 1},
	};
	printf("\n%-14s %12s %12s %12s\n", "GB/s", "portable", "AVX2", "AVX-512");
	for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
		printf("%-14s", kinds[k].name);
		reduce.dtype = kinds[k].dtype;
		reduce.op = kinds[k].op;
		reduce.count = KIND_BYTES / kinds[k].bytes;
		for (int isa = 0; isa < KERNEL_ISAS; isa++) {
			const struct kernel_table *kernels = kernel_table_of(isa);
			double plain[ROUNDS] = {0};
			for (int i = 0; kernels && i < ROUNDS; i++)
				plain[i] = measure(kernels, &reduce, KIND_BYTES, KIND_REPEATS);
			printf(" %12.1f", median(plain));
		}
		printf("\n");
	}
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
	struct kernel_reduce reduce = {.dtype = LS_FLOAT32,
				       .op = LS_SUM,
				       .source_count = 2,
				       .target_count = 2,
				       .sources = (const void *[]){memory[0], memory[1]},
				       .targets = (void *[]){memory[2], memory[3]},
				       .divisor = 2};
	by_size(reduce, largest);
	by_type(reduce);
	for (int i = 0; i < BUFFERS; i++)
		free(memory[i]);
	return 0;
}
