/* SPDX-License-Identifier: BSD-3-Clause
 * Which kernels this processor runs. Each call asks anew, which costs a few loads of what the
 * compiler's runtime has found out when the program was loaded; so there is no state here. */
#include "kernel/kernel.h"

#include "kernel/kernel_private.h"

const struct kernel_table *kernel_table_of(enum kernel_isa isa)
{
	switch (isa) {
	case KERNEL_PORTABLE:
		return &kernel_table_portable;
#if defined(__x86_64__)
	case KERNEL_AVX2:
		/* All processors with AVX2 have F16C, for which clang 14 cannot ask. */
		return __builtin_cpu_supports("avx2") ? &kernel_table_avx2 : NULL;
	case KERNEL_AVX512:
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
				       __builtin_cpu_supports("avx512dq") &&
				       __builtin_cpu_supports("avx512vl")
			       ? &kernel_table_avx512
			       : NULL;
#endif
	default:
		return NULL;
	}
}

const struct kernel_table *kernel_table_best(void)
{
	for (int isa = KERNEL_ISAS - 1; isa > KERNEL_PORTABLE; isa--) {
		const struct kernel_table *kernels = kernel_table_of((enum kernel_isa)isa);
		if (kernels)
			return kernels;
	}
	return &kernel_table_portable;
}
