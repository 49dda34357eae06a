/* SPDX-License-Identifier: BSD-3-Clause
 * Which kernels this processor runs. Asked anew at each call, which costs a few loads of what the
 * compiler's runtime has found out when the program was loaded; so there is no state here. */
#include "kernel/kernel.h"

#include "kernel/kernel_private.h"

const struct device_kernels *device_kernels_of(enum device_isa isa)
{
	switch (isa) {
	case DEVICE_PORTABLE:
		return &device_kernels_portable;
#if defined(__x86_64__)
	case DEVICE_AVX2:
		/* All processors with AVX2 have F16C, for which clang 14 cannot ask. */
		return __builtin_cpu_supports("avx2") ? &device_kernels_avx2 : NULL;
	case DEVICE_AVX512:
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
				       __builtin_cpu_supports("avx512dq") &&
				       __builtin_cpu_supports("avx512vl")
			       ? &device_kernels_avx512
			       : NULL;
#endif
	default:
		return NULL;
	}
}

const struct device_kernels *device_kernels_best(void)
{
	for (int isa = DEVICE_ISAS - 1; isa > DEVICE_PORTABLE; isa--) {
		const struct device_kernels *kernels = device_kernels_of((enum device_isa)isa);
		if (kernels)
			return kernels;
	}
	return &device_kernels_portable;
}
