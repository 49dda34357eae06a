/* SPDX-License-Identifier: BSD-3-Clause
 * Sets of ranks beside an array of bool, at the borders of words and of all ranks. */
#include "base/ranks.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

struct model {
	bool in[RANKS_JOB_MAX];
};

static void check(const struct ranks *set, const struct model *model)
{
	int count = 0, seen = -1, first = -1;
	for (int r = 0; r < RANKS_JOB_MAX; r++) {
		assert_int_equal(ranks_have(set, r), model->in[r]);
		count += model->in[r];
		first = first < 0 && model->in[r] ? r : first;
	}
	assert_int_equal(ranks_count(set), count);
	assert_int_equal(ranks_any(set), count > 0);
	assert_int_equal(ranks_first(set), first);
	RANKS_EACH (r, set) {
		assert_true(r > seen && model->in[r]);
		seen = r;
		count--;
	}
	assert_int_equal(count, 0);
	assert_int_equal(ranks_last(set), seen);
}

static uint64_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	return *state ^= *state << 17;
}

static struct ranks draw(uint64_t *state, struct model *model)
{
	struct ranks set = {{0}};
	*model = (struct model){{false}};
	for (uint64_t left = next(state) % 200; left > 0; left--) {
		int r = (int)(next(state) % RANKS_JOB_MAX);
		ranks_add(&set, r);
		model->in[r] = true;
	}
	return set;
}

static void members(void **state)
{
	(void)state;
	static const int borders[] = {
		0, 1, 62, 63, 64, 65, 127, 128, 4031, 4032, RANKS_JOB_MAX - 1};
	struct ranks set = {{0}};
	struct model model = {{false}};
	check(&set, &model);
	for (size_t i = 0; i < sizeof borders / sizeof borders[0]; i++) {
		struct ranks one = ranks_of(borders[i]);
		assert_int_equal(ranks_count(&one), 1);
		assert_int_equal(ranks_first(&one), borders[i]);
		ranks_add(&set, borders[i]);
		model.in[borders[i]] = true;
		check(&set, &model);
	}
	for (size_t i = 0; i < sizeof borders / sizeof borders[0]; i += 2) {
		ranks_remove(&set, borders[i]);
		model.in[borders[i]] = false;
		check(&set, &model);
	}
}

/* Numbers that a peer has made up. */
static void no_ranks(void **state)
{
	(void)state;
	static const int none[] = {-1, RANKS_JOB_MAX, INT32_MIN, INT32_MAX};
	for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
		struct ranks set = ranks_of(none[i]), all = ranks_below(RANKS_JOB_MAX);
		assert_false(ranks_any(&set));
		assert_false(ranks_have(&all, none[i]));
		ranks_remove(&all, none[i]);
		assert_int_equal(ranks_count(&all), RANKS_JOB_MAX);
	}
}

static void lowest_ranks(void **state)
{
	(void)state;
	static const int counts[] = {
		-1, 0, 1, 63, 64, 65, 128, RANKS_JOB_MAX - 1, RANKS_JOB_MAX, RANKS_JOB_MAX + 1};
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
		struct ranks set = ranks_below(counts[i]);
		struct model model = {{false}};
		for (int r = 0; r < counts[i] && r < RANKS_JOB_MAX; r++)
			model.in[r] = true;
		check(&set, &model);
	}
	struct ranks bits = ranks_of_bits(UINT64_C(1) << 63 | 5);
	struct model model = {{[0] = true, [2] = true, [63] = true}};
	check(&bits, &model);
}

/* Sets in shared memory, of a few words. */
static void words(void **state)
{
	(void)state;
	uint64_t random = 7;
	for (int round = 0; round < 20; round++) {
		struct model model;
		struct ranks drawn = draw(&random, &model);
		uint64_t few[RANKS_WORLD_WORDS] = {0};
		for (int r = 0; r < RANKS_JOB_MAX; r++) {
			assert_int_equal(ranks_among(&drawn, r), model.in[r]);
			model.in[r] = model.in[r] && r < RANKS_WORLD_MAX;
			if (model.in[r])
				few[r / 64] |= ranks_bit(r);
		}
		struct ranks set = ranks_of_words(few, RANKS_WORLD_WORDS);
		check(&set, &model);
	}
	assert_false(ranks_among(NULL, 0));
}

static void two_sets(void **state)
{
	(void)state;
	uint64_t random = 1;
	for (int round = 0; round < 100; round++) {
		struct model a_model, b_model, model;
		struct ranks a = draw(&random, &a_model), b = draw(&random, &b_model), set = a;
		bool meet = false, are_in = true, equal = true;
		for (int r = 0; r < RANKS_JOB_MAX; r++) {
			model.in[r] = a_model.in[r] || b_model.in[r];
			meet |= a_model.in[r] && b_model.in[r];
			are_in &= !a_model.in[r] || b_model.in[r];
			equal &= a_model.in[r] == b_model.in[r];
		}
		ranks_join(&set, &b);
		check(&set, &model);
		assert_int_equal(ranks_meet(&a, &b), meet);
		assert_int_equal(ranks_are_in(&a, &b), are_in);
		assert_int_equal(ranks_are_equal(&a, &b), equal);
		assert_true(ranks_are_in(&a, &set) && ranks_are_in(&b, &set));
		set = a;
		ranks_keep(&set, &b);
		for (int r = 0; r < RANKS_JOB_MAX; r++)
			model.in[r] = a_model.in[r] && b_model.in[r];
		check(&set, &model);
		assert_true(ranks_are_in(&set, &a));
		set = a;
		ranks_drop(&set, &b);
		for (int r = 0; r < RANKS_JOB_MAX; r++)
			model.in[r] = a_model.in[r] && !b_model.in[r];
		check(&set, &model);
		assert_false(ranks_meet(&set, &b));
		set = a;
		assert_true(ranks_are_equal(&set, &a));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(members),      cmocka_unit_test(no_ranks),
		cmocka_unit_test(lowest_ranks), cmocka_unit_test(words),
		cmocka_unit_test(two_sets),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
