/* SPDX-License-Identifier: BSD-3-Clause
 * Signatures of entries, which any process may have written. */
#include "engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { SIZE = 4 };

static bool is_read(uint64_t kind, uint64_t root, struct engine_signature *out)
{
	return engine_signature_read(kind | UINT64_C(2) << 8 | UINT64_C(3) << 16 |
					     UINT64_C(1) << 24 | root << 32,
				     SIZE, out);
}

static void test_every_kind(void **state)
{
	(void)state;
	struct engine_signature out;
	for (uint32_t kind = 0; kind < 256; kind++) {
		struct trace_kind_facts facts = trace_kind_facts(kind);
		bool can = facts.collective && !facts.per_rank;
		assert_int_equal(is_read(kind, SIZE - 1, &out), can);
		assert_int_equal(is_read(kind, SIZE, &out), can && !facts.rooted);
		assert_int_equal(is_read(kind, UINT32_MAX, &out), can && !facts.rooted);
		if (!is_read(kind, SIZE - 1, &out))
			continue;
		assert_int_equal(out.kind, kind);
		assert_int_equal(out.dtype, 2);
		assert_int_equal(out.reduce, 3);
		assert_int_equal(out.algorithm, 1);
		assert_int_equal(out.root, facts.rooted ? SIZE - 1 : -1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_kind)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
