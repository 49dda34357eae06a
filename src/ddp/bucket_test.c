/* SPDX-License-Identifier: BSD-3-Clause
 * Which parameter goes into which bucket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/ranks.h"
#include "ddp/ddp_private.h"

enum { MAX = 12 };

struct model {
	struct ls_ddp ddp;
	struct ddp_parameter parameters[MAX];
	struct ddp_bucket buckets[MAX];
};

static const char *const names[MAX] = {"p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"};

/* float32 parameters of this many bytes each, in buckets of `first` and `other` bytes. */
static void fill(struct model *model, const uint64_t *bytes, const ls_dtype *dtypes, int count,
		 uint64_t first, uint64_t other)
{
	memset(model, 0, sizeof *model);
	model->ddp.parameters = model->parameters;
	model->ddp.buckets = model->buckets;
	model->ddp.parameter_count = count;
	model->ddp.first_bytes = first;
	model->ddp.bucket_bytes = other;
	for (int i = 0; i < count; i++) {
		model->parameters[i].name = names[i];
		model->parameters[i].bytes = bytes[i];
		model->parameters[i].dtype = dtypes ? dtypes[i] : LS_FLOAT32;
	}
	assert_true(ddp_fill_buckets(&model->ddp));
}

static void expect(const struct model *model, const int *buckets)
{
	for (int i = 0; i < model->ddp.parameter_count; i++)
		assert_int_equal(model->parameters[i].bucket, buckets[i]);
}

/* Whatever the sizes: every gradient has a place of its own, and members and bytes add up. */
static void expect_sound(const struct model *model)
{
	const struct ls_ddp *ddp = &model->ddp;
	uint64_t bytes[MAX] = {0};
	int members[MAX] = {0};
	for (int i = ddp->parameter_count - 1; i >= 0; i--) {
		const struct ddp_parameter *p = &ddp->parameters[i];
		assert_int_equal(p->offset, bytes[p->bucket]);
		assert_int_equal(p->dtype, ddp->buckets[p->bucket].dtype);
		bytes[p->bucket] += p->bytes;
		members[p->bucket]++;
	}
	for (int k = 0; k < ddp->bucket_count; k++) {
		assert_int_equal(bytes[k], ddp->buckets[k].bytes);
		assert_int_equal(members[k], ddp->buckets[k].members);
		assert_true(k == 0 || ddp->buckets[k].last < ddp->buckets[k - 1].last);
	}
}

static void from_the_last_parameter(void **state)
{
	(void)state;
	struct model model;
	fill(&model, (uint64_t[]){64, 64, 64, 64, 64}, NULL, 5, 64, 128);
	expect(&model, (int[]){2, 2, 1, 1, 0});
	expect_sound(&model);
}

static void all_in_one(void **state)
{
	(void)state;
	struct model model;
	fill(&model, (uint64_t[]){1000, 4, 8000}, NULL, 3, DDP_FIRST_BYTES, DDP_BUCKET_BYTES);
	expect(&model, (int[]){0, 0, 0});
	expect_sound(&model);
	assert_string_equal(model.buckets[0].label, "bucket 0 ('p2' to 'p0')");
}

/* One that is larger than a bucket closes the one it goes into; none is split. */
static void large_ones(void **state)
{
	(void)state;
	struct model model;
	fill(&model, (uint64_t[]){64, 1000, 64, 64, 1000}, NULL, 5, 64, 200);
	expect(&model, (int[]){2, 1, 1, 1, 0});
	expect_sound(&model);
	assert_string_equal(model.buckets[0].label, "bucket 0 ('p4')");
}

static void empty_ones(void **state)
{
	(void)state;
	struct model model;
	fill(&model, (uint64_t[]){0, 0, 64, 0}, NULL, 4, 64, 64);
	expect(&model, (int[]){1, 1, 0, 0});
	expect_sound(&model);
}

/* Buckets are in the order in which they become complete, not in which they were begun. */
static void dtypes_apart(void **state)
{
	(void)state;
	struct model model;
	ls_dtype dtypes[] = {LS_FLOAT32, LS_FLOAT16, LS_FLOAT32, LS_FLOAT32, LS_FLOAT16};
	fill(&model, (uint64_t[]){64, 64, 64, 64, 64}, dtypes, 5, 128, 64);
	/* float16: 4 and 1; float32: 3 and 2, then 0. 3 and 2 are complete first. */
	expect(&model, (int[]){2, 1, 0, 0, 1});
	expect_sound(&model);
}

static void ranks_as_text(void **state)
{
	(void)state;
	static const struct {
		struct ranks ranks;
		const char *text;
	} cases[] = {
		{{{0x1}}, "rank 0"},
		{{{0x5}}, "ranks 0 and 2"},
		{{{0x3}}, "ranks 0 and 1"},
		{{{0xb}}, "ranks 0, 1 and 3"},
		{{{0xe}}, "ranks 1-3"},
		{{{UINT64_MAX}}, "ranks 0-63"},
		{{{UINT64_C(1) << 63}}, "rank 63"},
		{{{UINT64_C(1) << 63, 0x3}}, "ranks 63-65"},
		{{{1, 0x2}}, "ranks 0 and 65"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char text[128], narrow[8];
		ddp_text_ranks(&cases[i].ranks, text, sizeof text);
		assert_string_equal(text, cases[i].text);
		ddp_text_ranks(&cases[i].ranks, narrow, sizeof narrow);
		assert_int_equal(strncmp(narrow, cases[i].text, sizeof narrow - 1), 0);
	}
}

static void names_as_text(void **state)
{
	(void)state;
	char text[12];
	ddp_text_name("short", text, sizeof text);
	assert_string_equal(text, "short");
	ddp_text_name("elevenchars", text, sizeof text);
	assert_string_equal(text, "elevenchars");
	ddp_text_name("layers.11.weight", text, sizeof text);
	assert_string_equal(text, "...1.weight");
	ddp_text_name("", text, sizeof text);
	assert_string_equal(text, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(from_the_last_parameter),
		cmocka_unit_test(all_in_one),
		cmocka_unit_test(large_ones),
		cmocka_unit_test(empty_ones),
		cmocka_unit_test(dtypes_apart),
		cmocka_unit_test(ranks_as_text),
		cmocka_unit_test(names_as_text),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
