/* SPDX-License-Identifier: BSD-3-Clause
 * The permutations of torch.randperm on the CPU, so that a job moved over from PyTorch sees its
 * samples in the same order. */
#ifndef DDP_RANDOM_H
#define DDP_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

/* From this length on torch.randperm draws 64 bits for each place, for 32 would be visibly
 * uneven. */
#define DDP_PERMUTE_WIDE (UINT32_MAX / 20)

/* order[0] to order[count - 1] = a permutation of 0 to count - 1, by the way for short or for long
 * ones. */
void ddp_permute(uint64_t seed, bool wide, uint64_t *order, uint64_t count);

#endif
