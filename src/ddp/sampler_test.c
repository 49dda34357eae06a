/* SPDX-License-Identifier: BSD-3-Clause
 * The sampler against lists that PyTorch's own sampler gave, and against the words of its
 * documentation for sizes at random. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include <lockstep/sampler.h>

#include "ddp/random.h"

/* Sanitizers end a program that asks for too much memory. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#elif defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define SANITIZED false
#endif

static ls_sampler *open_sampler(uint64_t length, int replicas, int rank, bool shuffle,
				uint64_t seed, bool drop_last)
{
	ls_sampler *sampler;
	struct ls_sampler_options options = {.size = sizeof options,
					     .num_replicas = replicas,
					     .rank = rank,
					     .no_shuffle = !shuffle,
					     .seed = seed,
					     .drop_last = drop_last};
	assert_int_equal(ls_sampler_open(NULL, length, &options, &sampler), LS_OK);
	return sampler;
}

struct list {
	uint64_t length;
	int replicas, rank, shuffle;
	uint64_t seed, epoch;
	int drop_last;
	uint64_t count, hash;
	uint64_t indices[32];
};

static void same_lists_as_pytorch(void **state)
{
	(void)state;
	static const struct list lists[] = {
#define SAMPLER(length, replicas, rank, shuffle, seed, epoch, drop_last, count, ...) \
	{length, replicas, rank, shuffle, seed, epoch, drop_last, count, 0, {__VA_ARGS__}},
#define HASHED(length, replicas, rank, shuffle, seed, epoch, drop_last, count, hash) \
	{length, replicas, rank, shuffle, seed, epoch, drop_last, count, hash, {0}},
#define WIDE(...)
#include "ddp/sampler_table.inc"
#undef SAMPLER
#undef HASHED
#undef WIDE
	};
	for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
		const struct list *list = &lists[i];
		ls_sampler *sampler = open_sampler(list->length, list->replicas, list->rank,
						   list->shuffle, list->seed, list->drop_last);
		assert_int_equal(ls_sampler_set_epoch(sampler, 77), LS_OK); /* leaves no trace */
		assert_int_equal(ls_sampler_set_epoch(sampler, list->epoch), LS_OK);
		assert_int_equal(ls_sampler_count(sampler), list->count);
		uint64_t hash = 0;
		for (uint64_t k = 0; k < list->count; k++) {
			uint64_t index = ls_sampler_index(sampler, k);
			hash = hash * UINT64_C(6364136223846793005) + index;
			if (!list->hash)
				assert_int_equal(index, list->indices[k]);
		}
		if (list->hash)
			assert_true(hash == list->hash);
		assert_true(ls_sampler_index(sampler, list->count) == UINT64_MAX);
		ls_sampler_close(sampler);
	}
	assert_true(sizeof lists / sizeof lists[0] > 50);
}

static void long_sets_are_shuffled_alike(void **state)
{
	(void)state;
	static const struct {
		uint64_t length, seed, indices[32];
	} lists[] = {
#define SAMPLER(...)
#define HASHED(...)
#define WIDE(length, seed, ...) {length, seed, {__VA_ARGS__}},
#include "ddp/sampler_table.inc"
#undef SAMPLER
#undef HASHED
#undef WIDE
	};
	uint64_t order[32];
	for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
		ddp_permute(lists[i].seed, true, order, lists[i].length);
		assert_memory_equal(order, lists[i].indices, lists[i].length * sizeof order[0]);
	}
	assert_int_equal(DDP_PERMUTE_WIDE, 214748364);
}

/* ---- against the documentation's words ---- */

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	return *state ^= *state << 17;
}

/* All indices, padded by repeating them from the head or cut to be divisible; returns how many. */
static uint64_t lay_out(const uint64_t *order, uint64_t length, uint64_t replicas, bool drop_last,
			uint64_t *out)
{
	uint64_t total = 0;
	while (total < length && !(drop_last && length - total < replicas))
		total += replicas;
	for (uint64_t i = 0; i < total; i++)
		out[i] = i < length ? order[i] : out[i - length];
	return total;
}

static void random_sizes_fit_the_words(void **state)
{
	(void)state;
	enum { LENGTH_MAX = 300, REPLICAS_MAX = 70, CASES = 3000 };
	uint64_t random = 88172645463325252, order[LENGTH_MAX];
	static uint64_t all[LENGTH_MAX + 2 * REPLICAS_MAX];
	for (int i = 0; i < CASES; i++) {
		uint64_t length = next_random(&random) % LENGTH_MAX;
		uint64_t replicas = 1 + next_random(&random) % REPLICAS_MAX;
		bool shuffle = next_random(&random) & 1, drop_last = next_random(&random) & 1;
		uint64_t seed = next_random(&random), epoch = next_random(&random);
		for (uint64_t k = 0; k < length; k++)
			order[k] = k;
		if (shuffle)
			ddp_permute(seed + epoch, false, order, length);
		uint64_t total = lay_out(order, length, replicas, drop_last, all);
		for (uint64_t rank = 0; rank < replicas; rank++) {
			ls_sampler *sampler = open_sampler(length, (int)replicas, (int)rank,
							   shuffle, seed, drop_last);
			assert_int_equal(ls_sampler_set_epoch(sampler, epoch), LS_OK);
			assert_int_equal(ls_sampler_count(sampler), total / replicas);
			for (uint64_t k = 0; k < total / replicas; k++)
				assert_int_equal(ls_sampler_index(sampler, k),
						 all[rank + k * replicas]);
			ls_sampler_close(sampler);
		}
	}
}

static void long_lengths_need_no_memory_in_order(void **state)
{
	(void)state;
	uint64_t length = UINT64_C(1) << 53;
	ls_sampler *sampler = open_sampler(length, 3, 2, false, 0, false);
	assert_true(ls_sampler_count(sampler) == length / 3 + 1);
	assert_true(ls_sampler_index(sampler, length / 3) == 0); /* 2^53 is 2 modulo 3 */
	assert_true(ls_sampler_index(sampler, length / 3 - 1) == length - 3);
	ls_sampler_close(sampler);
}

/* ---- arguments ---- */

static void wrong_arguments_are_refused(void **state)
{
	(void)state;
	struct ls_sampler_options good = {.size = sizeof good, .num_replicas = 2, .rank = 1};
	const struct {
		uint32_t size;
		int32_t num_replicas, rank;
		uint64_t length;
	} cases[] = {
		{3, 2, 0, 10},
		{sizeof good + 8, 2, 0, 10},
		{sizeof good, -1, 0, 10},
		{sizeof good, 2, 2, 10},
		{sizeof good, 2, -1, 10},
		{sizeof good, 0, 0, 10},
		{sizeof good, 2, 0, (UINT64_C(1) << 53) + 1},
	};
	ls_sampler *sampler;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct ls_sampler_options options = good;
		options.size = cases[i].size;
		options.num_replicas = cases[i].num_replicas;
		options.rank = cases[i].rank;
		sampler = (ls_sampler *)&good;
		assert_int_equal(ls_sampler_open(NULL, cases[i].length, &options, &sampler),
				 LS_BAD_ARGUMENT);
		assert_null(sampler);
	}
	assert_int_equal(ls_sampler_open(NULL, 10, NULL, &sampler), LS_BAD_ARGUMENT);
	assert_int_equal(ls_sampler_open(NULL, 10, &good, NULL), LS_BAD_ARGUMENT);
	struct ls_sampler_options newer = good;
	newer.reserved = 1;
	assert_int_equal(ls_sampler_open(NULL, 10, &newer, &sampler), LS_BAD_ARGUMENT);
	if (!SANITIZED) {
		assert_int_equal(ls_sampler_open(NULL, UINT64_C(1) << 53, &good, &sampler),
				 LS_OUT_OF_MEMORY);
		assert_null(sampler);
	}
	assert_int_equal(ls_sampler_set_epoch(NULL, 1), LS_BAD_ARGUMENT);
	assert_int_equal(ls_sampler_count(NULL), 0);
	assert_true(ls_sampler_index(NULL, 0) == UINT64_MAX);
	ls_sampler_close(NULL);
}

/* A caller built against a shorter struct gets the defaults of what it does not know. */
static void short_options_are_read(void **state)
{
	(void)state;
	ls_sampler *sampler;
	struct ls_sampler_options options = {.size = offsetof(struct ls_sampler_options, drop_last),
					     .num_replicas = 2,
					     .rank = 1,
					     .drop_last = 1,
					     .seed = 9};
	assert_int_equal(ls_sampler_open(NULL, 9, &options, &sampler), LS_OK);
	assert_int_equal(ls_sampler_count(sampler), 5);
	uint64_t order[9];
	ddp_permute(0, false, order, 9);
	for (uint64_t i = 0; i < 5; i++)
		assert_int_equal(ls_sampler_index(sampler, i), order[(1 + 2 * i) % 9]);
	ls_sampler_close(sampler);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(same_lists_as_pytorch),
		cmocka_unit_test(long_sets_are_shuffled_alike),
		cmocka_unit_test(random_sizes_fit_the_words),
		cmocka_unit_test(long_lengths_need_no_memory_in_order),
		cmocka_unit_test(wrong_arguments_are_refused),
		cmocka_unit_test(short_options_are_read),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
